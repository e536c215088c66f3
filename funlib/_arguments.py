"""Shapes of products and queues as they are written on command lines."""

from __future__ import annotations

import operator
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ._queue import Queue

SQUARE = ("128x128x128", "256x256x256", "512x512x512")
RECTANGULAR = ("127x512x512", "512x64x512", "512x512x2048")
TRANSFORMER = (
    "256x384x384",
    "256x384x1536",
    "1024x768x768",
    "1024x768x3072",
    "1024x3072x768",
    "1x4096x4096",
    "333x777x555",
)
LARGE = ("1024x1024x1024", "2048x2048x2048", "4096x4096x4096")
GROUPS = {
    "square": SQUARE,
    "rectangular": RECTANGULAR,
    "transformer": TRANSFORMER,
    "all": SQUARE + RECTANGULAR + TRANSFORMER,
    "large": LARGE,  # not in "all", since plain kernels take minutes
}


def extents_of(shape: str | Sequence[int]) -> tuple[int, int, int, int]:
    """(batches, M, K, N) of "MxKxN", "BATCHESxMxKxN" or as many ints. Raises ValueError."""
    parts = shape.lower().split("x") if isinstance(shape, str) else shape
    try:
        numbers = [int(p) if isinstance(p, str) else operator.index(p) for p in parts]
    except (TypeError, ValueError):
        numbers = []
    if len(numbers) == 3:
        numbers.insert(0, 1)
    if len(numbers) != 4 or min(numbers) < 1:
        raise ValueError(
            f"shape {shape!r}: should be MxKxN or BATCHESxMxKxN, each at least 1, or one of "
            f"{', '.join(GROUPS)}"
        )
    batches, m, k, n = numbers
    return batches, m, k, n


def parse(shapes: Iterable[str | Sequence[int]]) -> list[tuple[int, int, int, int]]:
    """[(batches, M, K, N)] of shapes and names of groups, each once. Commas separate texts too.
    Raises ValueError for others."""
    found: dict[tuple[int, int, int, int], None] = {}
    for shape in shapes:
        words: Iterable[str | Sequence[int]] = [shape]
        if isinstance(shape, str):
            words = [
                text for word in shape.split(",") if word for text in GROUPS.get(word, (word,))
            ]
        for word in words:
            found[extents_of(word)] = None
    return list(found)


def select_queue(selector: str, name: str) -> Queue:
    """The queue that a command runs on.

    selector: "default" (the library's own choice), or a device type with optional restrictions,
    "cpu", "gpu,backend=cuda", "any,vendor=intel"; such a queue is registered under `name`.
    Profiling is on. Raises ValueError on other words and what register_queue() raises.
    """
    # The library may be missing where only --help is asked for.
    from ._queue import get_queue, register_queue

    if selector == "default":
        return get_queue()
    device, *restrictions = selector.split(",")
    options: dict[str, Any] = {}
    for restriction in restrictions:
        key, _, value = restriction.partition("=")
        if key not in ("vendor", "backend") or not value:
            raise ValueError(
                f"queue {selector!r}: {restriction!r} should be vendor=NAME or backend=NAME"
            )
        options[key] = value
    return register_queue(name, device=device, **options)
