"""Tables of tuned products: which kernel was measured to be the fastest for a shape on a device.

Read when the first queue of a device is made: first the table that the package ships for it, then
the user's, which lies beside the kernel cache. docs/tuning.md has the format. Whatever is wrong
with a table is one message of the logger "funlib"; it can make a product slower, never wrong.
"""

from __future__ import annotations

import contextlib
import logging
import os
import stat
import threading
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from ._gemm import tuning_add, tuning_clear
from ._native import cache_info, version
from ._queue import Device, Queue

LOGGER = logging.getLogger("funlib")
FOLDER = "tuning"
# A larger file is not read: its entries would slow the start. The oldest go when one gets this big.
MOST_BYTES = 1 << 20

Entry = dict[str, Any]
# What a table tells of a product, in the order of the file, and what tells products apart.
KEY = ("dtype", "batches", "m", "k", "n", "transpose_a", "transpose_b")
TYPES = {
    "dtype": str,
    "batches": int,
    "m": int,
    "k": int,
    "n": int,
    "transpose_a": bool,
    "transpose_b": bool,
    "kernel": str,
    "parameters": dict,
}

# By index of the device: the entries that choices go by in this process, by key.
_in_use: dict[int, dict[tuple, Entry]] = {}
_lock = threading.Lock()  # of what concerns tables in use


class TableError(Exception):
    """Why a table is ignored."""


class ForeignTableError(TableError):
    """The table was measured with another version of the library or of the driver."""


class Table(NamedTuple):
    """A table that a device has: `entries`, or the `problem` why they are ignored."""

    path: Path
    entries: list[Entry]
    problem: str


def key_of(entry: Entry) -> tuple:
    return tuple(entry[name] for name in KEY)


def enabled() -> bool:
    """Whether FUNLIB_TUNING lets tables be used."""
    value = os.environ.get("FUNLIB_TUNING", "on")
    if value not in ("on", "off"):
        LOGGER.warning('FUNLIB_TUNING is "%s", which is neither on nor off; using on', value)
    return value != "off"


def shipped_path(device: Device) -> Path:
    return Path(__file__).parent / FOLDER / f"{device.identity}.json"


def user_path(device: Device) -> Path | None:
    """Where the user's table of a device lies; None without a directory for it."""
    cache = cache_info()
    if not cache.directory or cache.mode == "off":
        return None
    return Path(cache.directory, FOLDER, f"{device.identity}.json")


# ---- reading ---------------------------------------------------------------------------------


def header_of(device: Device) -> dict[str, Any]:
    return {
        "funlib": version(),
        "driver": device.driver,
        "identity": device.identity,
        "name": device.name,
        "vendor": device.vendor,
        "backend": device.backend,
        "compute_units": device.compute_units,
    }


def read_text(path: Path) -> str:
    # Without O_NONBLOCK, a named pipe in the file's place would be waited for.
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    try:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            raise TableError("it is not a file")
        if status.st_size > MOST_BYTES:
            raise TableError(f"it has {status.st_size} bytes; at most {MOST_BYTES} are read")
        with open(descriptor, encoding="utf-8", closefd=False) as file:
            return file.read()
    finally:
        os.close(descriptor)


def valid(entry: object) -> bool:
    return (
        isinstance(entry, dict)
        # Not isinstance: True is no extent.
        and all(type(entry.get(name)) is kind for name, kind in TYPES.items())
        and all(type(value) is int for value in entry["parameters"].values())
    )


def read(path: Path, device: Device) -> list[Entry]:
    """The entries of a table, [] if there is none. What single entries say is checked as far as
    types go. Raises TableError if the table is damaged or not for this device, driver and library.
    """
    try:
        text = read_text(path)
    except FileNotFoundError:
        return []
    except OSError as error:
        raise TableError(f"it can't be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise TableError("it is not text") from None
    # Imported where it is needed: most processes have no table.
    import json

    try:
        content = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise TableError(f"it is damaged: {error}") from None
    if not isinstance(content, dict) or not isinstance(content.get("entries"), list):
        raise TableError("it has no list of entries")
    here = header_of(device)
    if content.get("identity") != here["identity"]:
        raise TableError(f"it is for another device: {content.get('name')}")
    for name in ("funlib", "driver"):
        if content.get(name) != here[name]:
            raise ForeignTableError(f"it is for {name} {content.get(name)}, this is {here[name]}")
    return content["entries"]


def tables(device: Device) -> list[Table]:
    """The tables that there are for a device, shipped first."""
    found = []
    for path in (shipped_path(device), user_path(device)):
        if path is not None and os.path.lexists(path):
            try:
                found.append(Table(path, read(path, device), ""))
            except TableError as error:
                found.append(Table(path, [], str(error)))
    return found


# ---- use -------------------------------------------------------------------------------------


def add(queue: Queue, entry: Entry) -> None:
    tuning_add(
        queue,
        entry["dtype"],
        (entry["batches"], entry["m"], entry["k"], entry["n"]),
        (entry["transpose_a"], entry["transpose_b"]),
        entry["kernel"],
        entry["parameters"],
    )


def use(queue: Queue, entries: Iterable[Entry]) -> list[str]:
    """Makes choices on the queue's device go by the entries. Returns what is wrong with those that
    are left out."""
    problems = []
    with _lock:
        known = _in_use.setdefault(queue.device.index, {})
        for entry in entries:
            if not valid(entry):
                problems.append(f"{str(entry)[:200]} is no entry")
                continue
            try:
                add(queue, entry)
            except (LookupError, OverflowError, TypeError, ValueError) as error:
                problems.append(str(error))
            else:
                known[key_of(entry)] = entry
    return problems


def load(queue: Queue) -> None:
    """Reads the tables of a queue's device and goes by them. Raises nothing: what is wrong with a
    table is one warning."""
    if not enabled():
        return
    device = queue.device
    for path in (shipped_path(device), user_path(device)):
        if path is None:
            continue
        try:
            problems = use(queue, read(path, device))
        except ForeignTableError as error:
            LOGGER.info(
                "ignoring the tuning table %s: %s; `python -m funlib tune` makes another",
                path,
                error,
            )
        except TableError as error:
            LOGGER.warning("ignoring the tuning table %s: %s", path, error)
        else:
            if problems:
                LOGGER.warning(
                    "ignoring %d entries of the tuning table %s; the first: %s",
                    len(problems),
                    path,
                    problems[0],
                )


def in_use(device: Device) -> list[Entry]:
    """The entries that choices on a device go by in this process."""
    return list(_in_use.get(device.index, {}).values())


@contextlib.contextmanager
def without_tables(queue: Queue) -> Iterator[None]:
    """While it lasts, choices on the queue's device are those of the model."""
    with _lock:
        tuning_clear(queue)
        try:
            yield
        finally:
            for entry in in_use(queue.device):
                add(queue, entry)


# ---- writing ---------------------------------------------------------------------------------


def text_of(device: Device, entries: Iterable[Entry]) -> str:
    """A table as JSON, one entry a line."""
    import json

    head = json.dumps(header_of(device), indent=1).removesuffix("\n}")
    lines = ",\n".join("  " + json.dumps(entry) for entry in entries)
    return f'{head},\n "entries": [\n{lines}\n ]\n}}\n'


@contextlib.contextmanager
def locked(path: Path) -> Iterator[None]:
    """Keeps other processes from writing the table meanwhile. Makes its folder."""
    import fcntl

    # The kernel cache is used only as long as nobody else can write to its directory.
    for folder in (path.parents[1], path.parent):
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    with open(path.with_suffix(".lock"), "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def save(device: Device, entries: Iterable[Entry]) -> Path:
    """Merges entries into the user's table of a device; those of other processes stay, those of
    another version or driver go. Returns the table's path. Raises OSError where it can't be
    written."""
    path = user_path(device)
    if path is None or cache_info().mode != "on":
        raise OSError(f"the directory of the kernel cache is not written to: {cache_info().mode}")
    with locked(path):
        try:
            known = [entry for entry in read(path, device) if valid(entry)]
        except TableError:
            known = []
        merged = {key_of(entry): entry for entry in known}
        for entry in entries:
            # At the end, so that the oldest come first.
            merged.pop(key_of(entry), None)
            merged[key_of(entry)] = entry
        kept = list(merged.values())
        while len(text := text_of(device, kept)) > MOST_BYTES:
            del kept[: len(kept) // 10 + 1]
        unfinished = path.with_suffix(".new")
        unfinished.write_text(text, encoding="utf-8")
        os.replace(unfinished, path)
    return path


def clear(device: Device) -> Path | None:
    """Deletes the user's table of a device. Returns its path, None if there was none. Raises
    OSError where that can't be done."""
    path = user_path(device)
    if path is None or not path.exists():
        return None
    with locked(path):
        path.unlink(missing_ok=True)
    return path
