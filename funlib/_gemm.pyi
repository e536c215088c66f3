from collections.abc import Callable, Mapping
from typing import Literal, NamedTuple, NoReturn, final

import numpy
from numpy.typing import DTypeLike

from ._queue import Queue
from ._tensor import DeviceTensor

ACTIVATIONS: tuple[str, ...]

class KernelInfo(NamedTuple):
    name: str
    idea: str
    source: str
    device_type: str
    architecture: str
    dtypes: tuple[str, ...]
    parameters: dict[str, tuple[int, tuple[int, ...]]]
    work_group: tuple[int, int]
    tile: tuple[int, int]

class GemmChoice(NamedTuple):
    kernel: str
    parameters: dict[str, int]
    source: str
    reason: str
    work_group: tuple[int, int]
    tile: tuple[int, int]
    work_groups: int
    slices: int
    workspace_bytes: int
    packs_a: bool
    packs_b: bool
    product: tuple[int, int, int, int]
    transposes: tuple[bool, bool]

@final
class PackedWeights:
    __array_ufunc__: None
    @property
    def shape(self) -> tuple[int, int]: ...
    @property
    def dtype(self) -> numpy.dtype: ...
    @property
    def nbytes(self) -> int: ...
    @property
    def panel_width(self) -> int: ...
    @property
    def queue(self) -> Queue: ...
    def __rmatmul__(self, other: DeviceTensor) -> DeviceTensor: ...
    def __reduce__(self) -> NoReturn: ...

KERNEL_FUNCTIONS: dict[str, Callable[..., DeviceTensor]]

def parameter_text(parameters: Mapping[str, int]) -> str: ...
def parameter_dict(text: str) -> dict[str, int]: ...
def pack_weights(
    b: DeviceTensor, *, transpose_b: bool = False, queue: Queue | str | None = None
) -> PackedWeights: ...
def gemm(
    a: DeviceTensor,
    b: DeviceTensor | PackedWeights,
    *,
    alpha: float = 1.0,
    beta: float = 0.0,
    out: DeviceTensor | None = None,
    bias: DeviceTensor | None = None,
    activation: Literal["none", "relu", "gelu", "gelu_tanh", "silu"] | None = None,
    out_dtype: DTypeLike | None = None,
    precision: Literal["float32", "tf32"] | None = None,
    transpose_a: bool = False,
    transpose_b: bool = False,
    kernel: str | None = None,
    parameters: Mapping[str, int] | None = None,
    queue: Queue | str | None = None,
) -> DeviceTensor: ...
def matmul(a: DeviceTensor, b: DeviceTensor | PackedWeights) -> DeviceTensor: ...
def explain(
    a: DeviceTensor,
    b: DeviceTensor | PackedWeights,
    *,
    alpha: float = 1.0,
    beta: float = 0.0,
    bias: DeviceTensor | None = None,
    activation: Literal["none", "relu", "gelu", "gelu_tanh", "silu"] | None = None,
    out_dtype: DTypeLike | None = None,
    precision: Literal["float32", "tf32"] | None = None,
    transpose_a: bool = False,
    transpose_b: bool = False,
    kernel: str | None = None,
    parameters: Mapping[str, int] | None = None,
    queue: Queue | str | None = None,
) -> GemmChoice: ...
def tuning_add(
    queue: Queue | str | None,
    dtype: DTypeLike,
    shape: tuple[int, int, int, int],
    transposes: tuple[bool, bool],
    kernel: str,
    parameters: Mapping[str, int],
) -> None: ...
def tuning_count(queue: Queue | str | None) -> int: ...
def tuning_clear(queue: Queue | str | None) -> None: ...
def kernels() -> list[KernelInfo]: ...
