from typing import NamedTuple

from numpy.typing import DTypeLike

from ._queue import Queue

class Roofs(NamedTuple):
    bytes_per_second: float
    operations_per_second: float
    copy_seconds: float
    multiply_add_seconds: float

def measure_roofs(queue: Queue | str | None = None, dtype: DTypeLike = "float32") -> Roofs: ...
