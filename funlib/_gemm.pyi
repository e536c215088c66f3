from collections.abc import Callable
from typing import NamedTuple

from ._queue import Queue
from ._tensor import DeviceTensor

class KernelInfo(NamedTuple):
    name: str
    idea: str
    source: str
    dtypes: tuple[str, ...]
    parameters: dict[str, tuple[int, tuple[int, ...]]]
    work_group: tuple[int, int]
    tile: tuple[int, int]

KERNEL_FUNCTIONS: dict[str, Callable[..., DeviceTensor]]

def gemm(
    a: DeviceTensor,
    b: DeviceTensor,
    *,
    alpha: float = 1.0,
    beta: float = 0.0,
    out: DeviceTensor | None = None,
    transpose_a: bool = False,
    transpose_b: bool = False,
    kernel: str | None = None,
    queue: Queue | str | None = None,
) -> DeviceTensor: ...
def matmul(a: DeviceTensor, b: DeviceTensor) -> DeviceTensor: ...
def select_kernel(
    a: DeviceTensor,
    b: DeviceTensor,
    *,
    alpha: float = 1.0,
    beta: float = 0.0,
    transpose_a: bool = False,
    transpose_b: bool = False,
    kernel: str | None = None,
    queue: Queue | str | None = None,
) -> str: ...
def kernels() -> list[KernelInfo]: ...
