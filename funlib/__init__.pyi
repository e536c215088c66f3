from collections.abc import Mapping
from typing import Protocol

from numpy.typing import DTypeLike

from ._event import Event as Event
from ._event import EventTimes as EventTimes
from ._gemm import GemmChoice as GemmChoice
from ._gemm import KernelInfo as KernelInfo
from ._gemm import PackedWeights as PackedWeights
from ._gemm import explain as explain
from ._gemm import gemm as gemm
from ._gemm import kernels as kernels
from ._gemm import matmul as matmul
from ._gemm import pack_weights as pack_weights
from ._native import CacheInfo as CacheInfo
from ._native import RuntimeInfo as RuntimeInfo
from ._native import cache_info as cache_info
from ._native import runtime_info as runtime_info
from ._queue import Device as Device
from ._queue import MemoryInfo as MemoryInfo
from ._queue import Queue as Queue
from ._queue import devices as devices
from ._queue import get_queue as get_queue
from ._queue import memory_info as memory_info
from ._queue import register_queue as register_queue
from ._queue import trim as trim
from ._queue import unregister_queue as unregister_queue
from ._roof import Roofs as Roofs
from ._roof import measure_roofs as measure_roofs
from ._tensor import DeviceTensor as DeviceTensor
from ._tensor import HostView as HostView
from ._tuner import TuneResult as TuneResult
from ._tuner import tune as tune
from .errors import CompileError as CompileError
from .errors import DeviceError as DeviceError
from .errors import DeviceNotFoundError as DeviceNotFoundError
from .errors import ForkError as ForkError
from .errors import FunlibError as FunlibError
from .errors import UnsupportedError as UnsupportedError

__all__: list[str]
__version__: str
_load_error: ImportError | None

# gemm() bound to one row of the registry, which alone knows the names.
class _Kernel(Protocol):
    def __call__(
        self,
        a: DeviceTensor,
        b: DeviceTensor | PackedWeights,
        *,
        alpha: float = 1.0,
        beta: float = 0.0,
        out: DeviceTensor | None = None,
        bias: DeviceTensor | None = None,
        activation: str | None = None,
        out_dtype: DTypeLike | None = None,
        transpose_a: bool = False,
        transpose_b: bool = False,
        parameters: Mapping[str, int] | None = None,
        queue: Queue | str | None = None,
    ) -> DeviceTensor: ...

def __getattr__(name: str) -> _Kernel: ...
