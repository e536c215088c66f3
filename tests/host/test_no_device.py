"""What works where no device is found, and what the errors say."""

import pytest

NO_DEVICE = {
    "selector matches nothing": {"ONEAPI_DEVICE_SELECTOR": "level_zero:gpu"},
    "selector is nonsense": {"ONEAPI_DEVICE_SELECTOR": "nonsense"},
    "selector is half nonsense": {"ONEAPI_DEVICE_SELECTOR": "opencl:toaster"},
}


@pytest.mark.parametrize("environment", NO_DEVICE.values(), ids=NO_DEVICE)
def test_no_device(run_python, environment):
    """Import works and the errors say why. devices() is empty, or the selector can't be read."""
    result = run_python(
        """
import os
import funlib
assert funlib.kernels()
needs = [funlib.get_queue, lambda: funlib.register_queue("q"),
         lambda: funlib.DeviceTensor((2, 2))]
if os.environ["ONEAPI_DEVICE_SELECTOR"] == "level_zero:gpu":
    assert funlib.devices() == [], funlib.devices()
else:
    needs.append(funlib.devices)
for need in needs:
    try:
        need()
    except funlib.DeviceNotFoundError as error:
        print(error)
    else:
        raise AssertionError("no error")
""",
        **environment,
    )
    assert result.returncode == 0, result.stdout + result.stderr
    for line in result.stdout.splitlines():
        assert "ONEAPI_DEVICE_SELECTOR" in line
        assert environment["ONEAPI_DEVICE_SELECTOR"] in line


@pytest.mark.parametrize("environment", NO_DEVICE.values(), ids=NO_DEVICE)
def test_doctor_without_device(run_python, environment):
    result = run_python(
        "import runpy, sys; sys.argv = ['funlib', 'doctor'];"
        "runpy.run_module('funlib', run_name='__main__')",
        **environment,
    )
    assert "Traceback" not in result.stderr, result.stderr
    assert "ONEAPI_DEVICE_SELECTOR" in result.stdout + result.stderr


def test_import_starts_no_runtime(run_python):
    """Importing the package and listing kernels asks no driver: it can't fail for want of one."""
    result = run_python(
        """
import funlib
funlib.kernels()
with open("/proc/self/maps") as maps:
    assert "libintelocl" not in maps.read()
"""
    )
    assert result.returncode == 0, result.stderr
