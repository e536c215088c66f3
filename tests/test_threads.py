"""Threads, fork and spawn."""

import itertools
import threading
import time

import numpy as np
import pytest
import reference

import funlib
from funlib import DeviceTensor


def run_threads(work, count=8):
    """work(index) in that many threads at once; the first exception is raised here."""
    errors = []
    barrier = threading.Barrier(count)

    def body(index):
        barrier.wait()
        try:
            work(index)
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=body, args=(i,), daemon=True) for i in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=300)
        assert not thread.is_alive(), "a thread hangs"
    if errors:
        raise errors[0]


def test_many_threads(queue):
    """Each thread with tensors of its own, every kernel and type, on one queue."""
    kernels = funlib.kernels()

    def work(index):
        rng = np.random.default_rng(index)
        for round_ in range(20):
            kernel = kernels[(index + round_) % len(kernels)]
            dtype = np.dtype(kernel.dtypes[round_ % len(kernel.dtypes)]).name
            if dtype == "float64" and not queue.device.fp64:
                continue
            m, k, n = (int(size) for size in rng.integers(1, 90, 3))
            case = reference.Case(kernel.name, dtype, m, k, n, seed=index, out="c", queue="tests")
            case.check()

    run_threads(work)


def test_shared_operands(queue):
    """Threads that read the same tensors and write their own results."""
    a = DeviceTensor.full((90, 90), 1, queue=queue)

    def work(_):
        for _ in range(50):
            assert ((a @ a).to_host() == 90).all()

    run_threads(work)


def test_shared_weights(queue):
    """Threads with packed weights in common, each with batches and an epilogue of its own."""
    w, bias = reference.random(queue, (40, 30)), reference.random(queue, (30,), seed=1)
    weights = funlib.pack_weights(w[1])

    def work(index):
        for rows in range(1, 20):
            x = reference.random(queue, (index + 1, rows, 40), seed=index)
            options = {"activation": "relu"} if index % 2 else {}
            wanted = reference.gemm(x[0], w[0], bias=bias[0], **options)
            result = funlib.gemm(x[1], weights, bias=bias[1], **options).to_host()
            assert reference.problem(result, *wanted) is None
            result = funlib.gemm(x[1], w[1], bias=bias[1], **options).to_host()
            assert reference.problem(result, *wanted) is None

    run_threads(work)


def test_first_compilation_in_many_threads(run_python, tmp_path):
    """Threads that all need the same kernel for the first time compile it once."""
    result = run_python(
        """
import threading
import funlib
a = funlib.DeviceTensor.full((20, 20), 1)
a.wait()
before = funlib.cache_info().compilations
results = []
threads = [threading.Thread(target=lambda: results.append(
    (funlib.gemm_tiled(a, a).to_host() == 20).all())) for _ in range(8)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
assert len(results) == 8 and all(results), results
assert funlib.cache_info().compilations - before == 1, funlib.cache_info()
""",
        FUNLIB_CACHE_DIR=tmp_path / "cache",
    )
    assert result.returncode == 0, result.stderr


def test_queues_in_many_threads():
    """The registry of queues under contention."""

    def work(index):
        for round_ in range(30):
            name = f"thread {index} {round_}"
            queue = funlib.register_queue(name)
            assert funlib.get_queue(name).name == name
            assert (DeviceTensor.full((5,), index, queue=queue).to_host() == index).all()
            funlib.unregister_queue(name)

    run_threads(work)


def test_errors_stay_in_their_thread(queue):
    """Each thread sees the text of its own error."""
    a = DeviceTensor((3, 3), queue=queue)

    def work(index):
        for _ in range(200):
            with pytest.raises(LookupError, match=f"kernel_{index}") as raised:
                funlib.gemm(a, a, kernel=f"kernel_{index}")
            others = (f"kernel_{i}" for i in range(8) if i != index)
            assert not any(other in str(raised.value) for other in others)

    run_threads(work)


def last_of(count, a):
    """The last of so many products, on its way."""
    for _ in range(count):
        product = a @ a
    return product


def longest_standstill(a, products):
    """How long another thread did not run while this one waited for products, as a part of that."""
    done = threading.Event()
    ticks = []

    def other():
        while not done.wait(0.001):
            ticks.append(time.perf_counter())

    thread = threading.Thread(target=other, daemon=True)
    thread.start()
    product = last_of(products, a)
    begin = time.perf_counter()
    product.wait()
    end = time.perf_counter()
    done.set()
    thread.join(timeout=60)
    assert not thread.is_alive()
    inside = [begin, *(tick for tick in ticks if begin < tick < end), end]
    longest = max(later - earlier for earlier, later in itertools.pairwise(inside))
    return longest / (end - begin)


def test_gil_is_released(queue):
    """A thread that waits for the device does not stop the others.

    On a busy machine the other thread may not get its turn; with the GIL held it never does.
    """
    a = DeviceTensor.full((1000, 1000), 1, queue=queue)
    (a @ a).wait()
    products, seconds = 10, 0.0
    while seconds < 0.05 and products < 2000:  # many times what the other thread sleeps
        products *= 2
        begin = time.perf_counter()
        last_of(products, a).wait()
        seconds = time.perf_counter() - begin
    assert any(longest_standstill(a, products) < 0.5 for _ in range(10))


FORK = """
import os, signal, sys, time, warnings
import numpy as np
import funlib

# Python 3.12 and newer warn of every fork in a process with threads.
warnings.simplefilter("ignore", DeprecationWarning)

def product():
    a = funlib.DeviceTensor.from_numpy(np.ones((20, 20), np.float32))
    return (a @ a).to_host()

def in_child(body):
    # Runs the body in a forked child; its exit status, or "hang" after 60 s.
    sys.stdout.flush()
    pid = os.fork()
    if pid == 0:
        body()
        sys.exit(0)  # the interpreter's normal exit: destructors and exit handlers run
    for _ in range(600):
        done, status = os.waitpid(pid, os.WNOHANG)
        if done:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.1)
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    return "hang"
"""


def test_fork_after_use(run_python):
    """In the child everything that needs the device is a ForkError that names the way out."""
    result = run_python(
        FORK
        + """
tensor = funlib.DeviceTensor.from_numpy(np.ones((20, 20), np.float32))
event = (tensor @ tensor).event
view = (tensor @ tensor).host_view("r")

def child():
    for use in (product, tensor.to_host, event.wait, lambda: tensor @ tensor,
                lambda: tensor.copy_from(np.ones((20, 20), np.float32)),
                lambda: tensor.host_view("r"), lambda: funlib.DeviceTensor((2, 2)),
                lambda: funlib.register_queue("child"), lambda: funlib.get_queue().wait(),
                funlib.devices, funlib.trim):
        try:
            use()
        except funlib.ForkError as error:
            assert "spawn" in str(error), error
        else:
            raise AssertionError("no ForkError")
    assert funlib.kernels()

assert in_child(child) == 0
assert in_child(lambda: None) == 0
assert (product() == 20).all()   # the parent goes on
"""
    )
    assert (result.returncode, result.stderr) == (0, "")


def test_fork_before_use(run_python):
    """A child forked before the first use of a device is like any other process."""
    result = run_python(
        FORK
        + """
def child():
    assert (product() == 20).all()

assert funlib.kernels()
assert in_child(child) == 0
assert (product() == 20).all()
"""
    )
    assert (result.returncode, result.stderr) == (0, "")


POOL = """
import multiprocessing
import numpy as np
import funlib

def product(size):
    a = funlib.DeviceTensor.from_numpy(np.ones((size, size), np.float32))
    return float((a @ a).to_host().sum())

if __name__ == "__main__":
    assert product(3) == 27
    with multiprocessing.get_context("{method}").Pool(2) as pool:
        print(pool.map(product, [2, 4]))
"""


def test_spawn(run_python):
    result = run_python(POOL.format(method="spawn"))
    assert result.returncode == 0, result.stderr
    assert "[8.0, 64.0]" in result.stdout


def test_forked_pool_names_spawn(run_python):
    """multiprocessing's fork after use hands the error to the parent instead of hanging."""
    result = run_python(POOL.format(method="fork"))
    assert result.returncode != 0
    assert "ForkError" in result.stderr
    assert "spawn" in result.stderr
