"""What is measured beside one another: funlib and its peers, behind one interface.

A peer is a class with a row in PEERS. It says where it can compute and on which data types, what it
is made of, and prepares calls on its own copies of the inputs. Nothing here needs funlib or more
than NumPy to be imported, so that a process without either the one or the other peer can use it
(perf/peer_process.py).
"""

import os
import sys
from pathlib import Path

import common
import expected
import numpy as np

# float32 that may be rounded to TF32, as a data type of `Peer.dtypes`.
TF32 = "tf32"


def stored(array, make):
    """make(array) of a matrix that is C-contiguous; of one whose transpose is, make(array.T).T, so
    that what is made lies as the matrix does."""
    return make(array) if array.flags.c_contiguous else make(array.T).T


# ---- calls -----------------------------------------------------------------------------------


class Call:
    """One product, ready to be made again and again."""

    settled = True  # False once threads did not go to sleep after a block
    paired = True  # whether kernel times are those of the calls that were timed

    def checked(self):
        """The first call, into a poisoned output: (total ns, result as an ndarray)."""
        raise NotImplementedError

    def __call__(self):
        """One measured call, to its end: (total ns, kernel ns or None). The result is allocated and
        freed within the total."""
        raise NotImplementedError

    def kernel_ns(self):
        """The kernel time of a product that is made apart from the calls, where it is not `paired`
        with theirs."""
        raise NotImplementedError

    def block(self, count):
        """So many measured calls in a row, as a list; then waits until the threads sleep."""
        with common.no_collection():
            samples = [self() for _ in range(count)]
            if not self.paired:
                samples = [(total, self.kernel_ns()) for total, _ in samples]
        self.settled = common.settle() and self.settled
        return samples


class FunlibCall(Call):
    """One way to multiply on the device: a kernel by name, or (kernel None) the dispatch.

    On a device other than the CPU, an event starts when an idle device gets to it, before the
    kernel itself has been submitted. So there, calls don't tell the kernel time; it is taken apart
    from them, of products that were submitted while the device was busy with a product of few
    work-groups on little data, `hold`.
    """

    HOLD = (64, 8192)

    def __init__(self, funlib, queue, a, b, kernel, precision=None):
        self.funlib, self.queue, self.a, self.b = funlib, queue, a, b
        self.wish = {"kernel": kernel, "precision": precision}
        self.paired = place_of(queue.device) == "cpu"
        if not self.paired:
            self.hold = funlib.DeviceTensor.full(self.HOLD, 1.0, "float32", queue)

    def checked(self):
        dtype = expected.output_of(self.a.dtype)
        shape = (self.a.shape[0], self.b.shape[1])
        out = self.funlib.DeviceTensor.full(shape, expected.poison(dtype), dtype, self.queue)
        out.wait()
        start = common.now_ns()
        self.funlib.gemm(self.a, self.b, out=out, **self.wish).wait()
        return common.now_ns() - start, out.to_host()

    def __call__(self):
        gemm, a, b, wish = self.funlib.gemm, self.a, self.b, self.wish
        start = common.now_ns()
        c = gemm(a, b, **wish)
        c.wait()
        event = c.event
        del c
        total = common.now_ns() - start
        return total, event.times.kernel_ns if self.paired else None

    def kernel_ns(self):
        gemm, hold = self.funlib.gemm, self.hold
        held = gemm(hold, hold, transpose_b=True, kernel="gemm")
        c = gemm(self.a, self.b, **self.wish)
        c.wait()
        del held
        return c.event.times.kernel_ns


class NumpyCall(Call):
    """NumPy's product on the host."""

    def __init__(self, a, b):
        self.a, self.b = a, b

    def checked(self):
        shape, dtype = (self.a.shape[0], self.b.shape[1]), self.a.dtype
        out = np.full(shape, expected.poison(dtype), dtype)
        start = common.now_ns()
        np.matmul(self.a, self.b, out=out)
        return common.now_ns() - start, out

    def __call__(self):
        a, b = self.a, self.b
        start = common.now_ns()
        c = a @ b
        del c
        return common.now_ns() - start, None


class TorchCall(Call):
    """PyTorch's product on the CPU, which is done when the call returns."""

    def __init__(self, torch, a, b):
        self.torch, self.dtype = torch, a.dtype
        self.a, self.b = self.tensor(a), stored(b, self.tensor)

    def bits(self):
        """Name of the integers as wide as the elements. Elements pass between the two libraries as
        such, since NumPy lacks types that PyTorch has."""
        return f"int{8 * self.dtype.itemsize}"

    def tensor(self, array):
        """A tensor with a copy of the ndarray."""
        integers = self.torch.from_numpy(array.view(self.bits()).copy())
        return integers.view(getattr(self.torch, self.dtype.name))

    def checked(self):
        torch = self.torch
        shape = (self.a.shape[0], self.b.shape[1])
        out = torch.full(shape, float(expected.poison(self.dtype)), dtype=self.a.dtype)
        start = common.now_ns()
        torch.matmul(self.a, self.b, out=out)
        total = common.now_ns() - start
        return total, out.view(getattr(torch, self.bits())).numpy().view(self.dtype)

    def __call__(self):
        matmul, a, b = self.torch.matmul, self.a, self.b
        start = common.now_ns()
        c = matmul(a, b)
        del c
        return common.now_ns() - start, None


class TorchCudaCall(TorchCall):
    """PyTorch's product (cuBLAS) on the current NVIDIA GPU. Its kernel time is that of replays of a
    CUDA graph with many products, for each: without gaps between launches."""

    paired = False
    GRAPH_SECONDS = 1e-3  # of products in a graph, about
    MOST_PRODUCTS = 50

    def __init__(self, torch, a, b, precision=None):
        super().__init__(torch, a, b)
        self.precision = precision
        self.graph = None

    def tensor(self, array):
        return super().tensor(array).cuda()

    def allow(self):
        """PyTorch's switch is a global one."""
        self.torch.backends.cuda.matmul.allow_tf32 = self.precision == "tf32"

    def checked(self):
        torch = self.torch
        self.allow()
        shape = (self.a.shape[0], self.b.shape[1])
        poison = float(expected.poison(self.dtype))
        out = torch.full(shape, poison, dtype=self.a.dtype, device="cuda")
        torch.cuda.synchronize()
        start = common.now_ns()
        torch.matmul(self.a, self.b, out=out)
        torch.cuda.synchronize()
        total = common.now_ns() - start
        return total, out.cpu().view(getattr(torch, self.bits())).numpy().view(self.dtype)

    def __call__(self):
        matmul, synchronize, a, b = self.torch.matmul, self.torch.cuda.synchronize, self.a, self.b
        start = common.now_ns()
        c = matmul(a, b)
        synchronize()
        del c
        return common.now_ns() - start, None

    def capture(self, seconds):
        """Records a graph of products that take `seconds` each, about."""
        torch = self.torch
        self.products = max(1, min(self.MOST_PRODUCTS, int(self.GRAPH_SECONDS / seconds)))
        self.out = torch.matmul(self.a, self.b)
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            torch.matmul(self.a, self.b, out=self.out)
        torch.cuda.current_stream().wait_stream(side)
        self.graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self.graph):
            for _ in range(self.products):
                torch.matmul(self.a, self.b, out=self.out)
        self.start = torch.cuda.Event(enable_timing=True)
        self.end = torch.cuda.Event(enable_timing=True)

    def kernel_ns(self):
        """Nanoseconds of a product, of one replay."""
        self.start.record()
        self.graph.replay()
        self.end.record()
        self.end.synchronize()
        return int(self.start.elapsed_time(self.end) * 1e6 / self.products)

    def block(self, count):
        self.allow()
        if self.graph is None:
            self.capture(min(total for total, _ in (self() for _ in range(count))) / 1e9)
        return super().block(count)


class DpnpCall(Call):
    """dpnp's product on a SYCL queue of its own."""

    def __init__(self, dpnp, queue, a, b):
        self.dpnp, self.queue = dpnp, queue
        self.a = dpnp.asarray(a, sycl_queue=queue)
        self.b = stored(b, lambda array: dpnp.asarray(array, sycl_queue=queue))
        queue.wait()

    def checked(self):
        shape = (self.a.shape[0], self.b.shape[1])
        poison = expected.poison(self.a.dtype)
        out = self.dpnp.full(shape, poison, dtype=self.a.dtype, sycl_queue=self.queue)
        self.queue.wait()
        start = common.now_ns()
        self.dpnp.matmul(self.a, self.b, out=out)
        self.queue.wait()
        return common.now_ns() - start, self.dpnp.asnumpy(out)

    def __call__(self):
        matmul, wait, a, b = self.dpnp.matmul, self.queue.wait, self.a, self.b
        start = common.now_ns()
        c = matmul(a, b)
        wait()
        del c
        return common.now_ns() - start, None


# ---- implementations -------------------------------------------------------------------------


class Peer:
    """An implementation to compare with. One object stands for it in this process, on one place.

    place: where it computes, see `place_of`.
    """

    name = None
    package = None  # what pip installs
    places = ()  # where it can compute
    dtypes = ()

    def __init__(self, place):
        self.place = place

    def load(self):
        """Imports what the peer needs. Raises ImportError or OSError where that can't be used."""

    def missing(self):
        """None; or why the peer can't be used, with the command that installs it."""
        try:
            self.load()
        except (ImportError, OSError) as error:
            return f"{error} ({sys.executable} -m pip install {self.package})"
        return None

    def describe(self):
        """{"versions": {what: version}, "threads": number or None, "process": text}, for the
        environment block. As all below, only where `missing` found nothing."""
        versions, threads = self.parts()
        return {"versions": versions, "threads": threads, "process": "the same process"}

    def parts(self):
        """({what: version}, number of threads or None)."""
        raise NotImplementedError

    def prepare(self, a, b, precision=None):
        """A Call that forms a @ b. a, b: C-contiguous ndarrays of one of `dtypes`, or b the
        transpose of one, which are copied where the peer does not compute on them as they are.
        precision: "tf32" lets float32 be rounded to TF32."""
        raise NotImplementedError

    def close(self):
        """Gives back what the peer holds."""


class Numpy(Peer):
    """NumPy, with the BLAS that its package brings."""

    name = "numpy"
    package = "numpy"
    places = ("cpu",)
    dtypes = ("float32", "float64", "int32")

    def parts(self):
        return {"NumPy": np.__version__, "BLAS": common.numpy_blas()}, common.numpy_threads()

    def prepare(self, a, b, precision=None):
        return NumpyCall(a, b)


class Torch(Peer):
    """PyTorch."""

    name = "torch"
    package = "torch"
    places = ("cpu", "cuda")
    dtypes = ("float16", "bfloat16", "float32", "float64", "int32")

    def __init__(self, place):
        super().__init__(place)
        if place == "cuda":  # cuBLAS has no product of int32
            self.dtypes = ("float16", "bfloat16", "float32", "float64", TF32)

    def load(self):
        import torch

        torch.set_grad_enabled(False)
        if self.place == "cuda" and not torch.cuda.is_available():
            raise OSError(f"PyTorch {torch.__version__} sees no NVIDIA GPU")
        self.torch = torch

    def parts(self):
        versions = {"PyTorch": self.torch.__version__}
        if self.place == "cuda":
            return versions | {"CUDA": self.torch.version.cuda}, None
        for line in self.torch.__config__.show().splitlines():
            _, found, version = line.partition("Math Kernel Library Version ")
            if found:
                versions["MKL"] = version.split()[0]
        return versions, self.torch.get_num_threads()

    def prepare(self, a, b, precision=None):
        if self.place == "cuda":
            return TorchCudaCall(self.torch, a, b, precision)
        return TorchCall(self.torch, a, b)


class Dpnp(Peer):
    """dpnp, NumPy's interface on SYCL devices, with oneMKL."""

    name = "dpnp"
    package = "dpnp"
    places = ("cpu",)
    dtypes = ("float32", "float64", "int32")

    def load(self):
        # The OpenCL CPU runtime beside it, which no registry of the system names.
        library = Path(sys.prefix, "lib", "libintelocl.so")
        if library.exists():
            os.environ.setdefault("OCL_ICD_FILENAMES", str(library))
        import dpctl
        import dpnp

        try:
            self.queue = dpctl.SyclQueue(self.place)
        except (dpctl.SyclDeviceCreationError, dpctl.SyclQueueCreationError) as error:
            raise OSError(f"dpctl finds no SYCL device {self.place!r}: {error}") from error
        self.dpnp, self.dpctl = dpnp, dpctl

    def parts(self):
        device = self.queue.sycl_device
        versions = {
            "dpnp": self.dpnp.__version__,
            "dpctl": self.dpctl.__version__,
            "driver": device.driver_version,
        }
        return versions, device.max_compute_units

    def prepare(self, a, b, precision=None):
        return DpnpCall(self.dpnp, self.queue, a, b)


PEERS = {peer.name: peer for peer in (Numpy, Torch, Dpnp)}


def place_of(device):
    """Where a funlib device computes, in the words of `Peer.places`: "cpu", or its backend."""
    return "cpu" if device.type == "cpu" else device.backend
