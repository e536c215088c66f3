"""DeviceTensor: construction, transfers, views, host views, lifetime and memory."""

import copy
import gc
import pickle

import hypothesis
import hypothesis.extra.numpy as hnp
import hypothesis.strategies as st
import numpy as np
import pytest
from reference import expected

import funlib
from funlib import DeviceTensor

DTYPES = expected.DTYPES
SHAPES = [(), (1,), (7,), (3, 5), (2, 3, 4), (1, 2, 1, 3), (2, 1, 2, 1, 2, 1, 2, 3)]
EMPTY_SHAPES = [(0,), (0, 3), (3, 0), (2, 0, 4)]

no_deadline = hypothesis.settings(
    deadline=None,
    suppress_health_check=[hypothesis.HealthCheck.function_scoped_fixture],
)


def counted(shape, dtype="float32"):
    return np.arange(np.prod(shape, dtype=int)).reshape(shape).astype(dtype)


def same(tensor, array):
    """Equal in shape, data type and bits."""
    host = tensor.to_host()
    return (
        tensor.shape == array.shape
        and host.shape == array.shape
        and host.dtype == tensor.dtype
        and host.tobytes() == np.ascontiguousarray(array, tensor.dtype).tobytes()
    )


# ---- construction --------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", SHAPES + EMPTY_SHAPES, ids=str)
def test_attributes(queue, shape, dtype):
    tensor = DeviceTensor(shape, dtype, queue=queue)
    like = np.empty(shape, dtype)
    assert tensor.shape == like.shape
    assert tensor.dtype == like.dtype
    assert isinstance(tensor.dtype, np.dtype)
    assert tensor.ndim == like.ndim
    assert tensor.size == like.size
    assert tensor.nbytes == like.nbytes
    assert tensor.is_contiguous
    if like.size:
        assert tensor.strides == like.strides
    assert tensor.queue.name == queue.name
    assert tensor.device == queue.device
    if shape:
        assert len(tensor) == shape[0]
    else:
        with pytest.raises(TypeError):
            len(tensor)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", SHAPES + EMPTY_SHAPES, ids=str)
def test_zeros_full_from_numpy(queue, shape, dtype):
    assert same(DeviceTensor.zeros(shape, dtype, queue=queue), np.zeros(shape, dtype))
    assert same(DeviceTensor.full(shape, -3, dtype, queue=queue), np.full(shape, -3, dtype))
    values = counted(shape, dtype)
    assert same(DeviceTensor.from_numpy(values, queue=queue), values)


def test_full_with_special_values(queue):
    for value in (np.nan, np.inf, -0.0, 1e-45, 0.1):
        for dtype in ("float32", "float64", "float16", "bfloat16"):
            tensor = DeviceTensor.full((5,), value, dtype, queue=queue)
            assert same(tensor, np.full((5,), value, dtype))
    for value in (2**31 - 1, -(2**31)):
        assert same(DeviceTensor.full(3, value, "int32", queue=queue), np.full(3, value, "int32"))
    for value in (2**64, -(10**30)):  # NumPy has no integer type for them
        assert same(DeviceTensor.full(3, value, queue=queue), np.full(3, float(value), np.float32))
        with pytest.raises(ValueError, match="represented"):
            DeviceTensor.full(3, value, "int32", queue=queue)
    for dtype, outside in (("int32", 2**31), ("int8", 128), ("int8", -129)):
        for value in (0.5, outside, np.nan):
            with pytest.raises((ValueError, TypeError, OverflowError)):
                DeviceTensor.full(3, value, dtype, queue=queue)


@pytest.mark.parametrize("dtype", DTYPES)
def test_fill_of_any_size(queue, dtype):
    """Each element and nothing beside them."""
    for size in (1, 2, 3, 31, 64, 65, 1000, 100_001):
        base = DeviceTensor.from_numpy(np.full(size + 130, 5, dtype), queue=queue)
        base[64 : 64 + size].fill(-3)
        wanted = np.full(size + 130, 5, dtype)
        wanted[64 : 64 + size] = -3
        assert same(base, wanted)
        base[::2].fill(7)
        wanted[::2] = 7
        assert same(base, wanted)


def test_shape_arguments(queue):
    assert DeviceTensor(5, queue=queue).shape == (5,)
    assert DeviceTensor([2, np.int64(3)], queue=queue).shape == (2, 3)
    assert DeviceTensor((2, 3), queue=queue).dtype == np.float32
    assert DeviceTensor((2, 3), np.float64, queue=queue).dtype == np.float64
    with pytest.raises(ValueError, match="-1"):
        DeviceTensor((2, -1), queue=queue)
    with pytest.raises(ValueError, match="8"):
        DeviceTensor((1,) * 9, queue=queue)
    with pytest.raises(TypeError):
        DeviceTensor((2, 1.5), queue=queue)
    with pytest.raises((ValueError, MemoryError, OverflowError)):
        DeviceTensor((2**40, 2**40), queue=queue)


@pytest.mark.parametrize("dtype", ["uint8", "complex64", "int64", "bool", "U3", object])
def test_unsupported_dtypes(queue, dtype):
    for make in (
        lambda: DeviceTensor((2,), dtype, queue=queue),
        lambda: DeviceTensor.zeros((2,), dtype, queue=queue),
        lambda: DeviceTensor.from_numpy(np.zeros(2, dtype), queue=queue),
    ):
        with pytest.raises(TypeError) as raised:
            make()
        for name in DTYPES:
            assert name in str(raised.value)


def test_default_queue():
    tensor = DeviceTensor((2, 2))
    assert tensor.queue.name == funlib.get_queue().name
    assert DeviceTensor.zeros((2, 2)).queue.name == tensor.queue.name


# ---- transfers -----------------------------------------------------------------------------------


def numpy_views():
    """One array of each memory layout that NumPy can make, by name."""
    base = counted((4, 6, 5))
    read_only = counted((4, 3))
    read_only.flags.writeable = False
    unaligned = np.frombuffer(b"x" + counted((4, 3)).tobytes(), np.uint8)[1:].view(np.float32)
    record = np.zeros(5, [("a", "i1"), ("b", "f4")])
    record["b"] = counted(5)
    return {
        "fortran": np.asfortranarray(counted((4, 6))),
        "transposed": base.transpose(2, 0, 1),
        "every_second": base[:, ::2, ::3],
        "negative": base[::-1, :, ::-1],
        "negative_step": base[::-2, ::-3],
        "zero_stride": np.broadcast_to(counted(5), (3, 5)),
        "zero_stride_inside": np.broadcast_to(counted((3, 1)), (3, 4)),
        "scalar_broadcast": np.broadcast_to(np.float32(7), (2, 3)),
        "big_endian": counted((4, 6), ">f4"),
        "big_endian_int": counted((4, 6), ">i4")[:, ::-1],
        "big_endian_double": counted((4, 6), ">f8").T,
        "read_only": read_only,
        "unaligned": unaligned.reshape(4, 3),
        "field": record["b"],
        "zero_dimensional": np.array(3.5, np.float32),
        "empty_slice": base[:, 3:3],
        "sliding": np.lib.stride_tricks.sliding_window_view(counted(9), 4),
    }


@pytest.mark.parametrize("name", numpy_views())
def test_any_numpy_layout(queue, name):
    array = numpy_views()[name]
    before = array.copy()
    tensor = DeviceTensor.from_numpy(array, queue=queue)
    assert tensor.dtype == array.dtype.newbyteorder("=")
    assert same(tensor, array)
    other = DeviceTensor(array.shape, tensor.dtype, queue=queue)
    other.copy_from(array).wait()
    assert same(other, array)
    assert np.array_equal(array, before)
    if array.flags.writeable:
        target = np.zeros_like(array)
        other.copy_to(target).wait()
        assert np.array_equal(target, array)


def test_copy_to_strided_host(queue):
    """copy_to writes the elements of a strided, byte-swapped target, and nothing beside them."""
    values = counted((3, 4))
    tensor = DeviceTensor.from_numpy(values, queue=queue)
    for dtype in ("<f4", ">f4"):
        for find in (
            lambda x: x[:3, :4],
            lambda x: x[5::-2, 8:4:-1],
            lambda x: x.T[1:4, 2:6],
            lambda x: x[:6:2, ::2][:, :4],
        ):
            base = np.full((8, 9), -1, dtype)
            expected = base.copy()
            find(expected)[...] = values
            tensor.copy_to(find(base)).wait()
            assert np.array_equal(base, expected)


@no_deadline
@hypothesis.given(
    array=hnp.arrays(
        st.sampled_from(["<f4", ">f4", "<f8", ">f8", "<i4", ">i4"]),
        hnp.array_shapes(min_dims=0, max_dims=4, min_side=0, max_side=6),
    ),
    data=st.data(),
)
def test_round_trip(queue, array, data):
    if array.ndim:
        array = array.transpose(data.draw(st.permutations(range(array.ndim))))
        array = array[data.draw(hnp.basic_indices(array.shape, allow_ellipsis=True))]
    array = np.asarray(array)
    assert same(DeviceTensor.from_numpy(array, queue=queue), array)


def test_copy_errors(queue):
    tensor = DeviceTensor.zeros((3, 4), queue=queue)
    with pytest.raises(ValueError, match=r"4\D{1,3}3\b.*3\D{1,3}4\b|3\D{1,3}4\b.*4\D{1,3}3\b"):
        tensor.copy_from(np.zeros((4, 3), np.float32))
    with pytest.raises(ValueError, match=r"3"):
        tensor.copy_to(np.zeros((3, 5), np.float32))
    with pytest.raises(TypeError, match=r"float64.*float32|float32.*float64"):
        tensor.copy_from(np.zeros((3, 4), np.float64))
    with pytest.raises(TypeError, match=r"float64.*float32|float32.*float64"):
        tensor.copy_to(np.zeros((3, 4), np.float64))
    read_only = np.zeros((3, 4), np.float32)
    read_only.flags.writeable = False
    with pytest.raises(ValueError, match="read-only"):
        tensor.copy_to(read_only)
    for wrong in ([1.0], None, 5):
        with pytest.raises(TypeError):
            tensor.copy_to(wrong)


def test_copy_events(queue):
    source, target = counted((300, 300)), np.zeros((300, 300), np.float32)
    tensor = DeviceTensor(source.shape, queue=queue)
    written = tensor.copy_from(source)
    read = tensor.copy_to(target)
    assert isinstance(written, funlib.Event)
    read.wait()
    assert read.is_complete
    assert written.is_complete  # an in-order queue
    assert np.array_equal(target, source)
    assert tensor.event is not None
    if queue.profiling:
        assert read.kernel_time >= 0
        times = read.times
        assert times.submit_ns <= times.start_ns <= times.end_ns


def test_copy_keeps_host_memory_alive(queue):
    """Neither the array nor the event needs to be kept until the copy is done."""
    tensors = [DeviceTensor((1000, 1000), queue=queue) for _ in range(5)]
    for value, tensor in enumerate(tensors):
        tensor.copy_from(np.full((1000, 1000), value, np.float32))
    for value, tensor in enumerate(tensors):
        assert (tensor.to_host() == value).all()


def test_to_host_is_a_copy(queue):
    tensor = DeviceTensor.zeros((3, 3), queue=queue)
    host = tensor.to_host()
    assert host.flags.c_contiguous
    assert host.flags.owndata or host.base is not None
    host[...] = 5
    assert (tensor.to_host() == 0).all()


def test_copy_from_view_and_to_view(queue):
    """Transfers of strided views touch the elements of the view only."""
    base_values = counted((6, 8))
    for find in (lambda x: x[::2, 1:5], lambda x: x.T[2:4], lambda x: x[::-1, ::-3]):
        base = DeviceTensor.from_numpy(base_values, queue=queue)
        expected = base_values.copy()
        view, view_values = find(base), find(expected)
        assert same(view, view_values)
        new = -counted(view_values.shape) - 1
        view.copy_from(new).wait()
        view_values[...] = new
        assert same(base, expected)


# ---- no hidden transfers -------------------------------------------------------------------------


def test_no_implicit_conversion(queue):
    tensor = DeviceTensor.zeros((2, 2), queue=queue)
    for convert in (np.asarray, np.array):
        with pytest.raises(TypeError, match=r"to_host.*host_view"):
            convert(tensor)
    for convert in (memoryview, np.sum, lambda t: np.zeros((2, 2)) + t, lambda t: t * 2):
        with pytest.raises(TypeError):
            convert(tensor)
    for convert in (float, int):
        with pytest.raises(TypeError):
            convert(DeviceTensor.zeros((1,), queue=queue))
    with pytest.raises(TypeError, match="to_host"):
        pickle.dumps(tensor)
    with pytest.raises(TypeError):
        copy.deepcopy(tensor)


def test_repr(queue):
    text = repr(DeviceTensor.zeros((3, 4), "int32", queue=queue))
    for part in ("DeviceTensor", "(3, 4)", "int32", "tests"):
        assert part in text
    assert "\n" not in text


# ---- views ---------------------------------------------------------------------------------------


def test_reshape(queue):
    values = counted((4, 6))
    tensor = DeviceTensor.from_numpy(values, queue=queue)
    for shape in ((24,), (2, 12), (2, 3, 4), (-1,), (3, -1), (1, 24, 1)):
        assert same(tensor.reshape(*shape), values.reshape(shape))
        assert same(tensor.reshape(shape), values.reshape(shape))
    view = tensor.reshape(24)
    view.copy_from(-counted(24)).wait()
    assert same(tensor, -values)
    assert same(DeviceTensor.zeros((0, 3), queue=queue).reshape(3, 0), np.zeros((3, 0), "f4"))
    assert DeviceTensor.zeros((1, 1), queue=queue).reshape(()).shape == ()
    for shape in ((5, 5), (-1, -1), (-1, 7), (25,), (-2, -12)):
        with pytest.raises(ValueError, match=r"."):
            tensor.reshape(*shape)
    with pytest.raises(ValueError, match="contiguous"):
        tensor.T.reshape(24)


def test_transpose(queue):
    values = counted((2, 3, 4))
    tensor = DeviceTensor.from_numpy(values, queue=queue)
    assert same(tensor.T, values.T)
    assert tensor.T.strides == values.T.strides
    assert not tensor.T.is_contiguous
    assert tensor.T.T.is_contiguous
    for axes in ((), (0, 1, 2), (2, 0, 1), (1, 0, 2), (-1, 0, 1)):
        assert same(tensor.transpose(*axes), values.transpose(axes or None))
    for axes in ((0, 1), (0, 0, 1), (0, 1, 3)):
        with pytest.raises(ValueError, match=r"."):
            tensor.transpose(*axes)


def test_indexing(queue):
    values = counted((5, 6, 7))
    tensor = DeviceTensor.from_numpy(values, queue=queue)
    for index in (
        0,
        -1,
        (1, 2),
        (1, 2, 3),
        slice(None),
        slice(1, 4),
        slice(None, None, 2),
        slice(None, None, -1),
        slice(4, 0, -3),
        slice(10, 20),
        slice(-100, 100),
        (slice(None), 3),
        (..., 3),
        (0, ..., slice(2, 5)),
        (slice(3), slice(None, None, -2), slice(1, None, 3)),
        ...,
        (),
        np.int64(2),
    ):
        assert same(tensor[index], values[index]), index
        assert tensor[index].strides == values[index].strides or not values[index].size
    for index in (5, -6, (0, 6), (0, 0, 0, 0)):
        with pytest.raises(IndexError):
            tensor[index]
    for index in ([0, 1], np.array([0]), "a", 1.0, True, (..., ...)):
        with pytest.raises((TypeError, IndexError)):
            tensor[index]
    with pytest.raises(ValueError, match=r"."):
        tensor[::0]


@no_deadline
@hypothesis.given(data=st.data())
def test_views_like_numpy(queue, data):
    """Chains of views have NumPy's shape, strides and contents."""
    shape = data.draw(hnp.array_shapes(min_dims=1, max_dims=4, min_side=1, max_side=6))
    array = counted(shape)
    tensor = DeviceTensor.from_numpy(array, queue=queue)
    for _ in range(data.draw(st.integers(1, 4))):
        if array.ndim == 0:
            break
        if data.draw(st.booleans()):
            axes = data.draw(st.permutations(range(array.ndim)))
            array, tensor = array.transpose(axes), tensor.transpose(*axes)
        else:
            index = data.draw(hnp.basic_indices(array.shape, allow_ellipsis=True))
            array, tensor = array[index], tensor[index]
            array = np.asarray(array)
        assert tensor.shape == array.shape
        if array.size > 1:
            assert all(
                mine == theirs
                for mine, theirs, size in zip(
                    tensor.strides, array.strides, array.shape, strict=True
                )
                if size > 1
            )
    assert same(tensor, array)
    assert same(tensor.contiguous(), array)


def test_contiguous(queue):
    values = counted((4, 6))
    tensor = DeviceTensor.from_numpy(values, queue=queue)
    packed = tensor.T.contiguous()
    assert packed.is_contiguous
    assert same(packed, values.T)
    tensor.copy_from(np.zeros_like(values)).wait()
    assert same(packed, values.T)


# ---- host views ----------------------------------------------------------------------------------


def test_host_view_reads(queue):
    values = counted((4, 5))
    tensor = DeviceTensor.from_numpy(values, queue=queue)
    with tensor.host_view("r") as view:
        array = np.asarray(view)
        assert array.dtype == np.float32
        assert np.array_equal(array, values)
        assert not array.flags.writeable
        assert memoryview(view).readonly
        del array
    with tensor.host_view() as view:
        assert memoryview(view).readonly


def test_host_view_writes(queue):
    tensor = DeviceTensor.zeros((4, 5), queue=queue)
    with tensor.host_view("w") as view:
        array = np.asarray(view)
        array[...] = counted((4, 5))
        del array
    assert same(tensor, counted((4, 5)))
    with tensor.host_view("rw") as view:
        array = np.asarray(view)
        array += 1
        del array
    assert same(tensor, counted((4, 5)) + 1)


@pytest.mark.parametrize("dtype", DTYPES)
def test_host_view_of_views(queue, dtype):
    """Strided tensors have host views too; what is written through them reaches the tensor."""
    for find in (lambda x: x[::2, 1:5], lambda x: x.T, lambda x: x[::-1, ::-3], lambda x: x[2]):
        values = counted((6, 8), dtype)
        tensor = DeviceTensor.from_numpy(values, queue=queue)
        with find(tensor).host_view("rw") as view:
            array = np.asarray(view)
            if dtype == "bfloat16":
                # The buffer protocol has no name for it.
                assert array.dtype == np.uint16
                array = array.view(dtype)
            assert array.dtype == dtype
            assert np.array_equal(array, find(values))
            array *= 2
            del array
        find(values)[...] *= 2
        assert same(tensor, values)


def test_host_view_of_empty_and_scalar(queue):
    with DeviceTensor((0, 3), queue=queue).host_view("rw") as view:
        assert np.asarray(view).shape == (0, 3)
    tensor = DeviceTensor.full((), 2.5, queue=queue)
    with tensor.host_view("rw") as view:
        assert np.asarray(view).shape == ()
        assert np.asarray(view)[()] == 2.5


def test_released_view(queue):
    tensor = DeviceTensor.zeros((4, 5), queue=queue)
    view = tensor.host_view("r")
    view.release()
    view.release()
    with pytest.raises(ValueError, match="released"):
        memoryview(view)
    with pytest.raises(ValueError, match="released"):
        view.__enter__()


def test_release_with_exports(queue):
    tensor = DeviceTensor.zeros((4, 5), queue=queue)
    view = tensor.host_view("rw")
    array = np.asarray(view)
    with pytest.raises(BufferError):
        view.release()
    array[0, 0] = 7
    del array
    view.release()
    assert tensor.to_host()[0, 0] == 7


def test_view_keeps_tensor_alive(queue):
    gc.collect()
    queue.wait()  # what earlier tests left on its way
    before = funlib.memory_info(queue).live_bytes
    tensor = DeviceTensor.from_numpy(counted((100, 100)), queue=queue)
    view = tensor.host_view("r")
    array = np.asarray(view)
    del tensor, view
    gc.collect()
    assert funlib.memory_info(queue).live_bytes > before
    assert np.array_equal(array, counted((100, 100)))
    del array
    gc.collect()
    assert funlib.memory_info(queue).live_bytes == before


def test_dropped_view_writes_back(queue):
    """A view that is dropped without release() ends like a released one."""
    tensor = DeviceTensor.zeros((4, 5), queue=queue)
    np.asarray(tensor.host_view("rw"))[...] = 3
    gc.collect()
    assert (tensor.to_host() == 3).all()


def test_busy_while_writable(queue):
    """No operation and no other view on a tensor, or a view of it, with an open writable view."""
    tensor = DeviceTensor.zeros((4, 4), queue=queue)
    other = DeviceTensor.zeros((4, 4), queue=queue)
    host = np.zeros((4, 4), np.float32)
    for mode in ("w", "rw"):
        with tensor.host_view(mode):
            for operation in (
                lambda: tensor @ other,
                lambda: other @ tensor,
                lambda: funlib.gemm(other, other, out=tensor),
                lambda: tensor[1:].copy_from(host[1:]),
                lambda: tensor.copy_from(host),
                lambda: tensor.copy_to(host),
                lambda: tensor.T.to_host(),
                lambda: tensor.host_view("r"),
                lambda: tensor.T.host_view("rw"),
                lambda: tensor.T.contiguous(),
            ):
                with pytest.raises(BufferError, match="view"):
                    operation()
        (tensor @ other).wait()


def test_shared_while_readable(queue):
    """With a readable view open, reading goes on and writing does not."""
    tensor = DeviceTensor.zeros((4, 4), queue=queue)
    other = DeviceTensor.zeros((4, 4), queue=queue)
    with tensor.host_view("r"), tensor.host_view("r"):
        (tensor @ other).wait()
        tensor.to_host()
        for operation in (
            lambda: tensor.copy_from(np.zeros((4, 4), np.float32)),
            lambda: funlib.gemm(other, other, out=tensor),
            lambda: tensor.host_view("rw"),
        ):
            with pytest.raises(BufferError, match="view"):
                operation()
    tensor.copy_from(np.ones((4, 4), np.float32)).wait()


def test_host_view_mode(queue):
    for mode in ("x", "", "wr", "r+", None, 1):
        with pytest.raises((ValueError, TypeError)):
            DeviceTensor.zeros(3, queue=queue).host_view(mode)


def test_host_view_waits(queue):
    """A view shows what the operations before it wrote."""
    a = DeviceTensor.full((200, 200), 1, queue=queue)
    c = a @ a
    with c.host_view("r") as view:
        assert (np.asarray(view) == 200).all()


def test_staging(run_python):
    """The same host views where the device's memory can't be reached from the host."""
    result = run_python(
        """
import sys
import pytest
sys.exit(pytest.main(["-q", "-p", "no:cacheprovider", "-k", "host_view or view or busy or copy",
                      "--deselect", sys.argv[1] + "::test_staging", sys.argv[1]]))
""",
        __file__,
        FUNLIB_HOST_ACCESS="staging",
        timeout=600,
    )
    assert result.returncode == 0, result.stdout + result.stderr
    result = run_python(
        """
import funlib
assert not any(device.host_accessible for device in funlib.devices())
""",
        FUNLIB_HOST_ACCESS="staging",
    )
    assert result.returncode == 0, result.stderr


# ---- lifetime and memory -------------------------------------------------------------------------


def test_memory_returns(queue):
    """After 1,000 tensors and 1,000 GEMMs, as much is in use as before."""
    a = DeviceTensor.zeros((64, 64), queue=queue)
    (a @ a).wait()
    queue.wait()
    gc.collect()
    before = funlib.memory_info(queue)
    for i in range(1000):
        DeviceTensor.zeros((100, i % 100 + 1), queue=queue)
    for _ in range(1000):
        a = a @ a
    queue.wait()
    gc.collect()
    after = funlib.memory_info(queue)
    assert after.live_bytes == before.live_bytes
    assert after.allocations - before.allocations >= 2000
    assert after.driver_allocations - before.driver_allocations < 200
    funlib.trim(queue)
    assert funlib.memory_info(queue).cached_bytes == 0


def test_process_memory_returns(run_python):
    """The same for the memory of the whole process, transfers, views and events included."""
    result = run_python(
        """
import gc, resource
import numpy as np
import funlib

def resident():
    with open("/proc/self/statm") as statm:
        return int(statm.read().split()[1]) * resource.getpagesize()

def work():
    host = np.ones((128, 128), np.float32)
    for _ in range(1000):
        a = funlib.DeviceTensor.from_numpy(host)
        c = funlib.gemm(a, a.T, kernel="gemm_tiled")
        event = c.copy_to(np.empty_like(host))
        with c.host_view("r") as view:
            assert np.asarray(view)[0, 0] == 128
        event.wait()
    del a, c, view, event
    funlib.get_queue().wait()
    gc.collect()
    funlib.trim()
    assert funlib.memory_info().live_bytes == 0, funlib.memory_info()
    assert funlib.memory_info().cached_bytes == 0, funlib.memory_info()

work()
before = resident()
for _ in range(3):
    work()
grown = resident() - before
# 3,000 rounds; a leak of one 64 KiB tensor in each would be 200 MB.
assert grown < 16 << 20, grown
"""
    )
    assert result.returncode == 0, result.stderr


def test_allocator_statistics(queue):
    gc.collect()
    queue.wait()
    funlib.trim(queue)
    start = funlib.memory_info(queue)
    assert start.cached_bytes == 0
    tensor = DeviceTensor((1000, 1000), queue=queue)
    held = funlib.memory_info(queue)
    assert held.live_bytes - start.live_bytes >= 4_000_000
    assert held.peak_bytes >= held.live_bytes
    assert held.driver_allocations == start.driver_allocations + 1
    assert held.free_bytes > 0
    del tensor
    dropped = funlib.memory_info(queue)
    assert dropped.live_bytes == start.live_bytes
    assert dropped.cached_bytes >= 4_000_000
    again = DeviceTensor((1000, 1000), queue=queue)
    reused = funlib.memory_info(queue)
    assert reused.allocations == held.allocations + 1
    assert reused.driver_allocations == held.driver_allocations
    del again
    assert funlib.trim(queue) >= 4_000_000
    assert funlib.memory_info(queue).cached_bytes == 0


def test_operand_dropped_in_flight(queue):
    """Inputs live until the kernels that read them are done, whoever drops them and whichever queue
    gets their memory next."""
    other = funlib.register_queue("reuser", device=queue.device.type)
    try:
        ones = np.ones((300, 300), np.float32)
        results = []
        for _ in range(50):
            a = DeviceTensor.from_numpy(ones, queue=queue)
            b = DeviceTensor.from_numpy(ones, queue=queue)
            results.append(a @ b)
            del a, b
            # Would overwrite what the allocator took back too early.
            DeviceTensor.full((300, 300), np.nan, queue=other)
        assert all((c.to_host() == 300).all() for c in results)
    finally:
        funlib.unregister_queue("reuser")


def test_empty_operation_after_one_in_flight(queue):
    """An operation on nothing does not hide the one that still writes."""
    a = DeviceTensor.full((800, 800), 1, queue=queue)
    out = DeviceTensor.full((800, 800), 0, queue=queue)
    (a @ a).wait()
    funlib.gemm(a, a, out=out)
    label = out.event.label
    out[0:0].fill(5)
    funlib.gemm(a[0:0], a, out=out[0:0])
    assert out.event.label == label
    with out.host_view("r") as view:
        assert (np.asarray(view) == 800).all()


def test_event_without_tensor(queue):
    event = (DeviceTensor.zeros((200, 200), queue=queue) @ DeviceTensor.zeros((200, 200))).event
    gc.collect()
    event.wait()
    assert event.is_complete


def test_view_outlives_tensor(queue):
    tensor = DeviceTensor.from_numpy(counted((10, 10)), queue=queue)
    view = tensor[2:5].T
    del tensor
    gc.collect()
    DeviceTensor.full((10, 10), np.nan, queue=queue).wait()
    assert same(view, counted((10, 10))[2:5].T)


def test_dropping_the_last_name_frees(queue):
    """Tensors, views and events take part in no cycles: no garbage collection is needed."""
    gc.collect()
    queue.wait()
    before = funlib.memory_info(queue).live_bytes
    gc.disable()
    try:
        tensor = DeviceTensor((100, 100), queue=queue)
        view, event = tensor.T, tensor.copy_from(counted((100, 100)))
        with tensor.host_view("r") as host:
            np.asarray(host)
        event.wait()
        assert funlib.memory_info(queue).live_bytes > before
        del tensor, view, event, host
        assert funlib.memory_info(queue).live_bytes == before
    finally:
        gc.enable()


def test_out_of_memory(queue):
    too_much = queue.device.global_memory * 4
    before = funlib.memory_info(queue).live_bytes
    for _ in range(3):
        with pytest.raises(MemoryError) as raised:
            DeviceTensor((too_much // 4,), "float32", queue=queue)
        assert str(too_much // 4 * 4) in str(raised.value)
        assert "free" in str(raised.value)
        assert (DeviceTensor.full((3, 3), 2, queue=queue).to_host() == 2).all()
    assert funlib.memory_info(queue).live_bytes == before


def test_out_of_memory_step_by_step(queue):
    """Allocating until it fails: the failure is clean, and everything can be had back."""
    if queue.device.type == "cpu":
        pytest.skip("device memory is the machine's own, which other programs need too")
    held = []
    size = queue.device.max_allocation // 16

    def allocate_for_ever():
        while True:
            held.append(DeviceTensor((size,), "float32", queue=queue))

    with pytest.raises(MemoryError):
        allocate_for_ever()
    held.clear()
    DeviceTensor((size,), "float32", queue=queue)
    funlib.trim(queue)
