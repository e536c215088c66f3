"""funlib: matrix work on any SYCL device.

Operands live on a device as DeviceTensor; gemm() and its relatives multiply them there. Start with
`python -m funlib doctor`, which says what this machine has and what is missing.
"""

import sys

from . import _runtime
from .errors import (
    CompileError,
    DeviceError,
    DeviceNotFoundError,
    ForkError,
    FunlibError,
    UnsupportedError,
)

_load_error = None
try:
    _runtime.check_built()
    _runtime.preload()

    from ._event import Event, EventTimes
    from ._gemm import KERNEL_FUNCTIONS as _KERNEL_FUNCTIONS
    from ._gemm import (
        GemmChoice,
        KernelInfo,
        PackedWeights,
        explain,
        gemm,
        kernels,
        matmul,
        pack_weights,
    )
    from ._native import CacheInfo, RuntimeInfo, cache_info, runtime_info
    from ._native import version as _version
    from ._queue import (
        Device,
        MemoryInfo,
        Queue,
        devices,
        get_queue,
        memory_info,
        register_queue,
        trim,
        unregister_queue,
    )
    from ._roof import Roofs, measure_roofs
    from ._tensor import DeviceTensor, HostView
    from ._tuner import TuneResult, tune
except ImportError as error:
    # `python -m funlib` (sys.argv[0] is "-m" while Python looks for the module) goes on without,
    # so that its doctor can say what is missing.
    if sys.argv[:1] != ["-m"] or not {"funlib", "-mfunlib"}.intersection(sys.orig_argv):
        raise
    _load_error = error
else:
    __version__ = _version()
    globals().update(_KERNEL_FUNCTIONS)

    __all__ = [
        "CacheInfo",
        "CompileError",
        "Device",
        "DeviceError",
        "DeviceNotFoundError",
        "DeviceTensor",
        "Event",
        "EventTimes",
        "ForkError",
        "FunlibError",
        "GemmChoice",
        "HostView",
        "KernelInfo",
        "MemoryInfo",
        "PackedWeights",
        "Queue",
        "Roofs",
        "RuntimeInfo",
        "TuneResult",
        "UnsupportedError",
        "cache_info",
        "devices",
        "explain",
        "gemm",
        "get_queue",
        "kernels",
        "matmul",
        "measure_roofs",
        "memory_info",
        "pack_weights",
        "register_queue",
        "runtime_info",
        "trim",
        "tune",
        "unregister_queue",
    ]
    __all__ += list(_KERNEL_FUNCTIONS)
