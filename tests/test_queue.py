"""Queues, devices, and what happens where there are none."""

import itertools

import numpy as np
import pytest

import funlib
from funlib import DeviceTensor


@pytest.fixture
def registered():
    """registered(name, **options) registers a queue that is taken off again after the test."""
    names = []

    def register(name, **options):
        queue = funlib.register_queue(name, **options)
        names.append(name)
        return queue

    yield register
    for name in names:
        funlib.unregister_queue(name)


# ---- the registry of queues ----------------------------------------------------------------------


def test_register_get_unregister():
    made = funlib.register_queue("one")
    try:
        assert made.name == "one"
        assert made.profiling
        assert made.device in funlib.devices()
        assert funlib.get_queue("one").name == "one"
        with pytest.raises(ValueError, match="one"):
            funlib.register_queue("one")
    finally:
        funlib.unregister_queue("one")
    with pytest.raises(LookupError, match="one"):
        funlib.get_queue("one")
    with pytest.raises(LookupError, match="one"):
        funlib.unregister_queue("one")
    # Whoever holds the queue can go on using it.
    assert (DeviceTensor.full((3,), 4, queue=made).to_host() == 4).all()


def test_name_can_be_used_again(registered):
    first = funlib.register_queue("again")
    tensor = DeviceTensor.full((3, 3), 1, queue=first)
    funlib.unregister_queue("again")
    second = registered("again")
    assert (funlib.gemm(tensor, tensor, queue=second).to_host() == 3).all()


def test_default_queue():
    assert funlib.get_queue().name == "default"
    assert funlib.get_queue("default").name == "default"
    assert funlib.get_queue() == funlib.get_queue()


def test_missing_queue_lists_what_there_is(registered):
    registered("alpha")
    registered("beta")
    with pytest.raises(LookupError) as raised:
        funlib.get_queue("gamma")
    for name in ("gamma", "alpha", "beta"):
        assert name in str(raised.value)


@pytest.mark.parametrize(
    "options",
    [
        {"vendor": "No Such Vendor"},
        {"device": "accelerator", "backend": "level_zero"},
        {"device": "gpu", "vendor": "No Such Vendor"},
    ],
)
def test_missing_device_lists_what_there_is(options):
    with pytest.raises(funlib.DeviceNotFoundError) as raised:
        funlib.register_queue("nothing", **options)
    for value in options.values():
        assert value in str(raised.value)
    for device in funlib.devices():
        assert device.name in str(raised.value)
    with pytest.raises(LookupError):
        funlib.get_queue("nothing")


def test_bad_options_list_the_right_ones():
    with pytest.raises(ValueError, match=r"toaster") as raised:
        funlib.register_queue("nothing", device="toaster")
    for name in ("gpu", "cpu", "accelerator", "any"):
        assert name in str(raised.value)
    with pytest.raises(ValueError, match=r"abacus") as raised:
        funlib.register_queue("nothing", backend="abacus")
    for name in ("opencl", "level_zero", "cuda"):
        assert name in str(raised.value)
    for name in ("", None, 5):
        with pytest.raises((ValueError, TypeError)):
            funlib.register_queue(name)


def test_every_device_by_its_own_description(registered):
    for device in funlib.devices():
        queue = registered(
            f"device {device.index}",
            device=device.type,
            vendor=device.vendor.upper(),
            backend=device.backend,
        )
        assert queue.device.type == device.type
        assert queue.device.vendor == device.vendor
        assert queue.device.backend == device.backend


def test_device_description():
    devices = funlib.devices()
    assert [device.index for device in devices] == list(range(len(devices)))
    for device in devices:
        assert device.name
        assert device.vendor
        assert device.driver
        assert device.type in ("cpu", "gpu", "accelerator")
        assert device.backend in ("opencl", "level_zero", "cuda", "hip", "other")
        assert device.compute_units > 0
        assert device.local_memory > 0
        assert device.global_memory >= device.max_allocation > 0
        assert device.max_work_group_size > 0
        assert list(device.sub_group_sizes) == sorted(device.sub_group_sizes)
        assert isinstance(device.fp64, bool)
        assert isinstance(device.host_accessible, bool)
        with pytest.raises(AttributeError):
            device.name = "another"


def test_queue_repr(queue):
    assert "tests" in repr(queue)
    assert queue.device.name in repr(queue)


def test_queue_wait(queue):
    tensor = DeviceTensor.full((500, 500), 1, queue=queue)
    product = tensor @ tensor
    queue.wait()
    assert product.event.is_complete


def test_queue_without_profiling(registered):
    queue = registered("plain", profiling=False)
    assert not queue.profiling
    a = DeviceTensor.full((8, 8), 1, queue=queue)
    c = a @ a
    assert (c.to_host() == 8).all()
    c.event.wait()
    with pytest.raises(funlib.UnsupportedError, match="profiling"):
        c.event.times  # noqa: B018
    with pytest.raises(funlib.UnsupportedError, match="profiling"):
        c.event.kernel_time  # noqa: B018


# ---- several queues ------------------------------------------------------------------------------


def test_two_queues_of_one_device(registered):
    """Work on one queue waits for what another queue is still writing."""
    one, two = registered("first"), registered("second")
    a = DeviceTensor.full((256, 256), 1, queue=one)
    for i in range(20):
        b = funlib.gemm(a, a, queue=one if i % 2 else two)
        c = funlib.gemm(b, a, queue=two if i % 2 else one)
        d = funlib.gemm(c, b, queue=one if i % 2 else two)
        del b, c
        assert (d.to_host() == 256.0**4).all()


def test_out_on_another_queue(registered):
    one, two = registered("first"), registered("second")
    a = DeviceTensor.full((64, 64), 1, queue=one)
    out = DeviceTensor.full((64, 64), 5, queue=two)
    funlib.gemm(a, a, alpha=1, beta=2, out=out, queue=one)
    funlib.gemm(a, a, alpha=1, beta=1, out=out, queue=two)
    assert (out.to_host() == 64 + 10 + 64).all()


def test_result_belongs_to_the_queue(registered, queue):
    other = registered("other")
    a = DeviceTensor.full((4, 4), 1, queue=queue)
    assert funlib.gemm(a, a).queue.name == queue.name
    assert funlib.gemm(a, a, queue=other).queue.name == "other"


def test_queue_arguments(queue):
    a = DeviceTensor.full((4, 4), 1, queue=queue)
    with pytest.raises(TypeError):
        funlib.gemm(a, a, queue=5)
    with pytest.raises(TypeError):
        DeviceTensor((4,), queue=5)


def test_queue_of_a_device(registered):
    for device in funlib.devices():
        queue = registered(f"device {device.index}", device=device)
        assert queue.device == device
        assert queue.device.index == device.index
        a = DeviceTensor.full((3, 3), 2, "int32", queue=queue)
        assert (funlib.gemm(a, a).to_host() == 12).all()
    with pytest.raises(funlib.DeviceNotFoundError, match="index 0"):
        registered("nobody", device=funlib.devices()[0], vendor="no such vendor")


def test_devices_that_share_nothing(registered):
    """Tensors of one device are refused by the queue of another, with both devices named."""
    devices = funlib.devices()
    if len(devices) < 2:
        pytest.skip("this machine has one device")
    queues = [registered(f"device {d.index}", device=d) for d in devices[:2]]
    a = DeviceTensor.zeros((4, 4), queue=queues[0])
    b = DeviceTensor.zeros((4, 4), queue=queues[1])
    with pytest.raises(ValueError, match=r".") as raised:
        funlib.gemm(a, b)
    for queue in queues:
        assert f"device {queue.device.index}" in str(raised.value)
        assert queue.device.name in str(raised.value)


def test_two_gpus_at_once(registered):
    """Queues on two GPUs work side by side, each on memory of its own, and only the host's copy of
    a result gets from one to the other."""
    gpus = [device for device in funlib.devices() if device.type == "gpu"]
    pairs = [(a, b) for a, b in itertools.combinations(gpus, 2) if a.backend == b.backend]
    if not pairs:
        pytest.skip("this machine has no two GPUs of one backend")
    queues = [registered(f"gpu {d.index}", device=d) for d in pairs[0]]
    random = np.random.default_rng(1)
    n = 1024
    # Small integers, so that float32 is exact in both products.
    hosts = [random.integers(-1, 2, (2, n, n)).astype("float32") for _ in queues]
    tensors = [
        [DeviceTensor.from_numpy(x, queue=queue) for x in host]
        for host, queue in zip(hosts, queues, strict=True)
    ]
    wanted = [a @ b for a, b in hosts]

    for _ in range(20):
        results = [funlib.gemm(a, b) for a, b in tensors]
        for result, queue, right in zip(results, queues, wanted, strict=True):
            assert result.queue == queue
            assert np.array_equal(result.to_host(), right)

    first, second = results
    with pytest.raises(ValueError, match=r"device \d"):
        funlib.gemm(first, second)
    with pytest.raises(ValueError, match=r"device \d"):
        funlib.gemm(*tensors[0], out=second)
    moved = DeviceTensor.from_numpy(first.to_host(), queue=queues[1])
    assert np.array_equal(funlib.gemm(moved, tensors[1][0]).to_host(), wanted[0] @ hosts[1][0])


def test_selector_with_a_device(run_python):
    """A selector that fits leaves what it names."""
    wanted = funlib.devices()[0].type
    result = run_python(
        """
import sys
import funlib
assert {d.type for d in funlib.devices()} == {sys.argv[1]}, funlib.devices()
assert (funlib.DeviceTensor.full((3, 3), 1).to_host() == 1).all()
""",
        wanted,
        ONEAPI_DEVICE_SELECTOR=f"*:{wanted}",
    )
    assert result.returncode == 0, result.stderr


def test_interpreter_exit_with_work_in_flight(run_python):
    """A process that ends with tensors, views and operations alive ends in good order."""
    result = run_python(
        """
import numpy as np
import funlib
a = funlib.DeviceTensor.full((400, 400), 1)
events = [(a @ a).event for _ in range(10)]
host = np.empty((400, 400), np.float32)
event = (a @ a).copy_to(host)
view = (a @ a).host_view("rw")
array = np.asarray(view)
queue = funlib.register_queue("late")
"""
    )
    assert (result.returncode, result.stderr) == (0, "")
