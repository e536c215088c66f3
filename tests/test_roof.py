"""The roofs of a device: the kernels check their own results, so what is left are the figures."""

import pathlib
import shutil

import pytest
from helpers import SOURCE

import funlib

DTYPES = ("float32", "float64", "int32")


@pytest.fixture(scope="module")
def plain_queue(queue):
    """A queue without profiling on the device under test."""
    device = queue.device
    made = funlib.register_queue(
        "tests without profiling", device.type, device.vendor, device.backend, profiling=False
    )
    yield made
    funlib.unregister_queue(made.name)


def assert_plausible(roofs):
    assert isinstance(roofs, funlib.Roofs)
    # From the slowest machine that anyone would use to ten times the fastest that there is.
    assert 1e8 < roofs.bytes_per_second < 1e14
    assert 1e7 < roofs.operations_per_second < 1e16
    # More bytes than caches hold took part, and more operations than a launch could hide.
    assert roofs.bytes_per_second * roofs.copy_seconds >= 2**26
    assert roofs.operations_per_second * roofs.multiply_add_seconds >= 2**20


@pytest.mark.parametrize("dtype", DTYPES)
def test_roofs(queue, dtype):
    if dtype == "float64" and not queue.device.fp64:
        with pytest.raises(funlib.UnsupportedError, match="float64"):
            funlib.measure_roofs(queue, dtype)
        return
    live = funlib.memory_info(queue).live_bytes
    assert_plausible(funlib.measure_roofs(queue, dtype))
    assert funlib.memory_info(queue).live_bytes == live


def test_host_times(plain_queue):
    """Without profiling the host's clock is taken."""
    assert_plausible(funlib.measure_roofs(plain_queue.name))


def test_wrong_arguments(queue):
    with pytest.raises(TypeError, match="complex64"):
        funlib.measure_roofs(queue, "complex64")
    with pytest.raises(TypeError, match="queue"):
        funlib.measure_roofs(3)
    with pytest.raises(LookupError, match="nowhere"):
        funlib.measure_roofs("nowhere")


BROKEN = {
    "roof_copy": ("from[n * FUNLIB_GROUP]", "from[0]"),
    "roof_multiply_add": ("n < steps;", "n < steps - unroll;"),
}


@pytest.mark.parametrize("kernel", BROKEN)
def test_wrong_results_are_seen(run_python, tmp_path, kernel):
    """A kernel that leaves out a part of its work gives an error, not a figure."""
    sources = shutil.copytree(SOURCE / "lib" / "kernels", tmp_path / "kernels")
    path = pathlib.Path(sources, f"{kernel}.cpp")
    text = path.read_text()
    right, wrong = BROKEN[kernel]
    assert right in text
    path.write_text(text.replace(right, wrong))
    result = run_python(
        """
import funlib
try:
    funlib.measure_roofs()
except funlib.DeviceError as error:
    print(error)
""",
        FUNLIB_KERNEL_DIR=sources,
    )
    assert result.returncode == 0, result.stderr
    assert kernel in result.stdout
    assert "would be right" in result.stdout
