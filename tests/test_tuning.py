"""Tables of tuned products, and the tuner that makes them: whatever a table says, results are
right. Each probe is a process of its own, since choices are a process's."""

import json
import os
import shutil
import subprocess
import sys
import types
from pathlib import Path

import numpy as np
import pytest
from helpers import COLLECT_LOG, SOURCE, module

import funlib
from funlib import _tuning

# What the package ships for this device must not count.
START = """
import pathlib, sys
import funlib
from funlib import _tuning
_tuning.shipped_path = lambda device: pathlib.Path("/nonexistent")
"""
# One product of whole numbers, whose result is exact.
PROBE = (
    COLLECT_LOG
    + """
import json
import numpy as np
from funlib._gemm import tuning_count

*batch, m, k, n = map(int, sys.argv[1].split("x"))
a = (np.arange(np.prod([*batch, m, k])) % 7).astype(np.float32).reshape(*batch, m, k)
b = (np.arange(np.prod([*batch, k, n])) % 5).astype(np.float32).reshape(*batch, k, n)
A, B = map(funlib.DeviceTensor.from_numpy, (a, b))
choice = funlib.explain(A, B)
c = funlib.gemm(A, B).to_host()
print(json.dumps({
    "source": choice.source, "kernel": choice.kernel, "parameters": choice.parameters,
    "right": bool((c == a @ b).all()), "count": tuning_count(funlib.get_queue()),
    "log": [record for record in records if "compiled" not in record[1]],
}))
"""
)
TUNE = """
import json
arguments = json.loads(sys.argv[1])
print(json.dumps([result._asdict() for result in funlib.tune(**arguments)]))
"""
# Kernels of few candidates: all are measured long before BUDGET is over.
PLAIN = ["gemm", "gemm_blocked2x2"]
BUDGET = 60.0


@pytest.fixture(scope="module")
def cache(tmp_path_factory):
    """A kernel cache for all tests of this file."""
    return tmp_path_factory.mktemp("cache")


@pytest.fixture
def folder(cache, monkeypatch):
    """The folder of the user's tables, without any, in this process and those that it starts."""
    here = funlib.cache_info()  # before: the library reads its environment once
    monkeypatch.setenv("FUNLIB_CACHE_DIR", str(cache))
    monkeypatch.setenv("FUNLIB_TUNING", "on")
    here = here._replace(directory=str(cache), mode="on")
    monkeypatch.setattr(_tuning, "cache_info", lambda: here)
    path = cache / _tuning.FOLDER
    yield path
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


@pytest.fixture
def device(folder):
    return funlib.get_queue().device


@pytest.fixture
def table(folder, device):
    """Where the user's table of the default queue's device lies."""
    return folder / f"{device.identity}.json"


@pytest.fixture
def probe(run_python, folder):
    """probe("MxKxN", **environment) -> what PROBE found, as a namespace."""

    def run(shape="64x64x64", **environment):
        result = run_python(START + PROBE, shape, **environment)
        assert result.returncode == 0, result.stderr
        assert "Traceback" not in result.stderr
        answer = types.SimpleNamespace(**json.loads(result.stdout))
        answer.warnings = [text for level, text in answer.log if level == "WARNING"]
        return answer

    return run


@pytest.fixture
def tune(run_python, folder):
    """tune(environment=..., **arguments of funlib.tune) -> results as namespaces, and stderr."""

    def run(environment=None, **arguments):
        arguments = {"budget": BUDGET, "kernels": PLAIN} | arguments
        result = run_python(START + TUNE, json.dumps(arguments), timeout=300, **(environment or {}))
        assert result.returncode == 0, result.stderr
        return [types.SimpleNamespace(**row) for row in json.loads(result.stdout)], result.stderr

    return run


def entry_for(shape, kernel="gemm_tiled", parameters=None, **changes):
    batches, m, k, n = (1, *shape)[-4:]
    entry = {"dtype": "float32", "batches": batches, "m": m, "k": k, "n": n}
    entry |= {"transpose_a": False, "transpose_b": False, "kernel": kernel}
    return entry | {"parameters": {"EDGE": 8} if parameters is None else parameters} | changes


def write(table, device, entries, **header):
    table.parent.mkdir(parents=True, exist_ok=True)
    table.write_text(json.dumps(_tuning.header_of(device) | {"entries": entries} | header))


# ---- the tuner -----------------------------------------------------------------------------------


def test_a_fresh_process_goes_by_the_results(tune, probe, table):
    (result,), stderr = tune(shapes=["24x40x32"])
    assert stderr == ""
    assert result.candidates >= 2
    assert result.gflops > 0
    assert result.model_gflops > 0
    content = json.loads(table.read_text())
    (entry,) = content["entries"]
    assert entry["kernel"] == result.kernel
    assert entry["parameters"] == result.parameters
    assert content["funlib"] == funlib.__version__
    lines = [line for line in table.read_text().splitlines() if '"kernel"' in line]
    assert [json.loads(line) for line in lines] == [entry]
    answer = probe("24x40x32")
    assert (answer.source, answer.kernel) == ("tuned", result.kernel)
    assert answer.parameters == result.parameters
    assert answer.right
    assert answer.log == []


@pytest.mark.parametrize("shape", ["3x16x16x16", "1x64x48", "64x48x1", "64x48x4", "50x48x5"])
def test_batches_rows_and_columns(tune, probe, shape):
    """The entry is for the product in the form that gemm() looks for."""
    assert len(tune(shapes=[shape], kernels=["gemm"])[0]) == 1
    answer = probe(shape)
    assert answer.source == "tuned"
    assert answer.right


def test_kernels_that_want_whole_vectors(tune):
    """They are checked on a shape that they take, and so can be chosen."""
    (result,), _ = tune(shapes=["4x64x64"], kernels=["gemv_strips"], budget=120.0)
    assert result.candidates > 1


@pytest.mark.parametrize("dtype", ["float16", "int8"])
def test_data_types_and_transposes(tune, dtype):
    (result,), _ = tune(
        shapes=["24x40x32"], dtype=dtype, kernels=["gemm"], transposes=[(True, False)]
    )
    assert (result.dtype, result.transpose_a, result.transpose_b) == (dtype, True, False)
    assert result.candidates > 1


def test_results_apply_at_once_and_need_not_be_kept(run_python, folder):
    result = run_python(
        START
        + """
a = funlib.DeviceTensor.zeros((24, 24))
before = funlib.explain(a, a)
(result,) = funlib.tune([(24, 24, 24)], kernels=["gemm"], save=False)
after = funlib.explain(a, a)
assert (before.source, after.source) == ("model", "tuned"), (before, after)
assert after.kernel == result.kernel
# Measured again, the choice without tuning is still the one to beat.
(again,) = funlib.tune([(24, 24, 24)], kernels=["gemm"], save=False)
assert again.kernel in (before.kernel, "gemm"), again
"""
    )
    assert result.returncode == 0, result.stderr
    assert not list(folder.glob("*"))


def test_budget(tune):
    """Products that no time is left for have no result."""
    shapes = [f"{size}x{size}x{size}" for size in range(64, 256)]
    results, _ = tune(shapes=shapes, kernels=None, budget=1.0)
    assert len(results) < len(shapes)


def faulty_kernels(tmp_path, changes):
    """A copy of the kernel sources with {file: (text, replacement)}."""
    copy = tmp_path / "kernels"
    shutil.copytree(SOURCE / "lib" / "kernels", copy)
    for name, (text, replacement) in changes.items():
        source = (copy / name).read_text()
        assert text in source
        (copy / name).write_text(source.replace(text, replacement))
    return {"FUNLIB_KERNEL_DIR": copy}


def test_wrong_results_are_never_chosen(run_python, folder, tmp_path):
    """Two kernels that are fast since they leave out the work: one always, one for the tuned shape
    only."""
    environment = faulty_kernels(
        tmp_path,
        {
            "gemm_tiled.cpp": ("k0 < K; k0 += edge", "k0 < 1; k0 += edge"),
            "gemm_blocked2x2.cpp": ("k < K; ++k", "k < (M == 200 ? 1 : K); ++k"),
        },
    )
    arguments = {"shapes": ["200x300x200"], "budget": BUDGET}
    arguments["kernels"] = ["gemm_tiled", "gemm_blocked2x2"]
    result = run_python(
        START + "import logging; logging.basicConfig()\n" + TUNE,
        json.dumps(arguments),
        **environment,
    )
    assert result.returncode == 0, result.stderr
    (row,) = json.loads(result.stdout)
    assert row["kernel"] not in ("gemm_tiled", "gemm_blocked2x2")
    assert "gemm_tiled EDGE=16 is left out" in result.stderr
    assert "gemm_blocked2x2 EDGE=16 is left out" in result.stderr


def test_the_model_chooses_a_kernel_that_fails(tune, probe, tmp_path):
    choice = probe("24x40x32")
    (row,) = (row for row in funlib.kernels() if row.name == choice.kernel)
    environment = faulty_kernels(tmp_path, {row.source: ("#include", "int x = unknown;\n#include")})
    (result,), _ = tune(environment, shapes=["24x40x32"])
    assert result.kernel in PLAIN
    assert result.model_gflops is None


def test_no_kernel_is_right(tune, table, tmp_path):
    environment = faulty_kernels(
        tmp_path, {"gemm_common.hpp": ("#pragma once", "#pragma once\nint x = unknown;")}
    )
    assert tune(environment, shapes=["24x40x32"])[0] == []
    assert not table.exists()


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ({"shapes": ["24x40"]}, ValueError),
        ({"shapes": [(0, 4, 4)]}, ValueError),
        ({"shapes": [(4, 4, 4.5)]}, ValueError),
        ({"shapes": ["nonsense"]}, ValueError),
        ({"budget": 0}, ValueError),
        ({"budget": float("nan")}, ValueError),
        ({"kernels": ["nonsense"]}, LookupError),
        ({"dtype": "complex64"}, TypeError),
        ({"queue": "nonsense"}, LookupError),
    ],
)
def test_arguments_that_cannot_be(arguments, error):
    with pytest.raises(error):
        funlib.tune(**({"shapes": ["4x4x4"]} | arguments))


# ---- tables --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("shape", "source"),
    [
        ("64x64x64", "tuned"),
        ("100x70x40", "tuned"),
        ("33x127x65", "tuned"),
        ("2x64x64x64", "tuned"),
        ("200x64x64", "model"),
        ("1x64x64", "model"),
        ("64x1000x64", "model"),
        ("0x5x7", None),
        ("3x0x5", None),
    ],
)
def test_shapes_near_and_far(probe, table, device, shape, source):
    write(table, device, [entry_for((64, 64, 64))])
    answer = probe(shape)
    assert answer.right
    assert answer.count == 1
    assert answer.log == []
    assert source in (None, answer.source)
    assert (answer.kernel == "gemm_tiled") == (answer.source == "tuned")


def test_a_kernel_that_does_not_fit_is_passed_over(probe, table, device):
    """Tuned for few rows, but only a product of more rows comes."""
    name = "gemv_vector"
    if device.type != "cpu":
        pytest.skip(f"{name} is for CPUs")
    write(table, device, [entry_for((4, 64, 64), name, {})])
    assert probe("4x64x64").kernel == name
    answer = probe("8x64x64")
    assert answer.right
    assert answer.kernel != name
    assert answer.warnings == []


def enormous(table, device):
    write(table, device, [entry_for((size, 64, 64)) for size in range(1, 8000)])
    assert table.stat().st_size > _tuning.MOST_BYTES


DAMAGE = {
    "empty": b"",
    "cut": b'{"entries": [',
    "bytes": b"\xff\xfe\x00",
    "list": b"[]",
    "number": b'{"entries": 1}',
    "no header": b'{"entries": []}',
    "deep": b"[" * 100_000,
    "digits": b'{"entries": [' + b"9" * 10_000 + b"]}",
    "folder": lambda table, device: table.mkdir(),
    "pipe": lambda table, device: os.mkfifo(table),
    "enormous": enormous,
    "other device": lambda table, device: write(
        table, device, [entry_for((64, 64, 64))], identity="0" * 32
    ),
}


@pytest.mark.parametrize("damage", DAMAGE.values(), ids=DAMAGE)
def test_damaged_tables_are_one_warning(probe, table, device, damage):
    table.parent.mkdir(parents=True)
    if callable(damage):
        damage(table, device)
    else:
        table.write_bytes(damage)
    answer = probe()
    assert answer.right
    assert answer.source == "model"
    assert len(answer.log) == 1
    assert answer.log[0][0] == "WARNING"
    assert str(table) in answer.log[0][1]


BAD_ENTRIES = {
    "no dict": [],
    "text": "gemm",
    "nothing": {},
    "kernel": entry_for((64, 64, 64), "nonsense"),
    "null character": entry_for((64, 64, 64), "gemm\0"),
    "no parameter": entry_for((64, 64, 64), parameters={"NONSENSE": 8}),
    "illegal value": entry_for((64, 64, 64), parameters={"EDGE": 7}),
    "enormous value": entry_for((64, 64, 64), parameters={"EDGE": 10**30}),
    "text as value": entry_for((64, 64, 64), parameters={"EDGE": "8"}),
    "injected": entry_for((64, 64, 64), parameters={"EDGE=8 EDGE": 7}),
    "negative extent": entry_for((-64, 64, 64)),
    "enormous extent": entry_for((64, 64, 10**30)),
    "real extent": entry_for((64, 64, 64.0)),
    "extent of true": entry_for((64, 64, True)),
    "data type": entry_for((64, 64, 64), dtype="complex64"),
    "layout": entry_for((64, 64, 64), transpose_a=0),
}


@pytest.mark.parametrize("bad", BAD_ENTRIES.values(), ids=BAD_ENTRIES)
def test_bad_entries_are_one_warning(probe, table, device, bad):
    """Those beside them count."""
    write(table, device, [bad, bad, entry_for((60, 64, 64)), bad])
    answer = probe()
    assert answer.right
    assert answer.kernel == "gemm_tiled"
    assert len(answer.log) == 1
    assert answer.log[0][0] == "WARNING"
    assert "3 entries" in answer.warnings[0]


@pytest.mark.parametrize("header", [{"funlib": "0.0.0"}, {"driver": "another"}])
def test_other_versions_and_drivers(probe, tune, table, device, header):
    """Ignored, for kernels change; the next tuning replaces them."""
    write(table, device, [entry_for((64, 64, 64))], **header)
    answer = probe()
    assert answer.right
    assert answer.source == "model"
    assert [level for level, _ in answer.log] == ["INFO"]
    tune(shapes=["24x40x32"], kernels=["gemm"])
    (entry,) = json.loads(table.read_text())["entries"]
    assert entry["m"] == 24


def test_switched_off(probe, tune, table, device):
    write(table, device, [entry_for((64, 64, 64))])
    answer = probe(FUNLIB_TUNING="off")
    assert (answer.source, answer.count, answer.log) == ("model", 0, [])
    answer = probe(FUNLIB_TUNING="nonsense")
    assert answer.source == "tuned"
    assert len(answer.warnings) == 1
    assert "FUNLIB_TUNING" in answer.warnings[0]
    answer = probe(FUNLIB_CACHE="off")
    assert (answer.source, answer.count, answer.log) == ("model", 0, [])


def test_the_model_is_asked_nearby_where_nothing_was_faster(probe, table, device):
    """An entry that equals the model's choice says nothing of the parameters for other shapes."""
    model = probe("64x64x64")
    assert model.source == "model"
    write(table, device, [entry_for((64, 64, 64), model.kernel, model.parameters)])
    assert probe("64x64x64").source == "tuned"
    assert probe("80x64x64").source == "model"


def test_shipped_tables():
    """Each is one that this version reads: for the device in its name, with legal entries."""
    kernels = {kernel.name: kernel for kernel in funlib.kernels()}
    for path in (SOURCE / "funlib" / "tuning").glob("*.json"):
        content = json.loads(path.read_text())
        assert content["identity"] == path.stem
        assert content["funlib"] == funlib.__version__
        assert content["entries"]
        for entry in content["entries"]:
            kernel = kernels[entry["kernel"]]
            assert entry["dtype"] in kernel.dtypes
            assert entry["parameters"].keys() == kernel.parameters.keys()
            for name, value in entry["parameters"].items():
                assert value in kernel.parameters[name][1]


def test_the_users_table_comes_after_the_shipped_one(run_python, table, device, tmp_path):
    write(table, device, [entry_for((64, 64, 64))])
    shipped = tmp_path / table.name
    entries = [entry_for((64, 64, 64), "gemm"), entry_for((8, 8, 8), "gemm")]
    write(shipped, device, entries)
    result = run_python(
        START
        + """
_tuning.shipped_path = lambda device: pathlib.Path(sys.argv[1])
for size in (64, 8):
    a = funlib.DeviceTensor.zeros((size, size))
    print(funlib.explain(a, a).kernel)
""",
        shipped,
    )
    assert result.stdout.split() == ["gemm_tiled", "gemm"], result.stderr


def test_every_way_to_a_first_queue(run_python, table, device):
    write(table, device, [entry_for((64, 64, 64))])
    for way in (
        "funlib.DeviceTensor((64, 64))",
        "funlib.DeviceTensor((64, 64), queue=funlib.get_queue())",
        f"funlib.DeviceTensor((64, 64), queue=funlib.register_queue('q', {device.type!r}))",
    ):
        code = f"{START}a = {way}\nprint(funlib.explain(a, a).source)"
        result = run_python(code)
        assert result.stdout.strip() == "tuned", (way, result.stderr)


# ---- writing -------------------------------------------------------------------------------------


def test_processes_that_write_at_once_lose_nothing(table, device):
    code = """
import sys
import funlib
from funlib import _tuning
sys.path.insert(0, sys.argv[1])
from test_tuning import entry_for
device = funlib.get_queue().device
for m in range(1, 41):
    _tuning.save(device, [entry_for((m, int(sys.argv[2]), 3))])
"""
    tests = Path(__file__).parent
    processes = [
        subprocess.Popen([sys.executable, "-c", code, tests, str(number)], cwd="/")
        for number in range(1, 4)
    ]
    assert [process.wait(120) for process in processes] == [0, 0, 0]
    entries = json.loads(table.read_text())["entries"]
    assert {(entry["m"], entry["k"]) for entry in entries} == {
        (m, k) for m in range(1, 41) for k in (1, 2, 3)
    }
    assert len(entries) == 120


def test_two_tuners_at_once(table, folder):
    commands = [
        [
            sys.executable,
            "-c",
            START + TUNE,
            json.dumps({"shapes": [s], "kernels": ["gemm"]}),
        ]
        for s in ("24x40x32", "64x48x16")
    ]
    processes = [
        subprocess.Popen(command, cwd="/", stdout=subprocess.DEVNULL) for command in commands
    ]
    assert [process.wait(120) for process in processes] == [0, 0]
    assert sorted(entry["m"] for entry in json.loads(table.read_text())["entries"]) == [24, 64]


def test_a_new_result_replaces_the_old(table, device):
    _tuning.save(device, [entry_for((64, 64, 64)), entry_for((8, 8, 8))])
    _tuning.save(device, [entry_for((64, 64, 64), "gemm")])
    entries = json.loads(table.read_text())["entries"]
    assert [(entry["m"], entry["kernel"]) for entry in entries] == [(8, "gemm_tiled"), (64, "gemm")]


def test_tables_stay_small(table, device):
    """The oldest entries go first."""
    for start in (0, 3000):
        _tuning.save(device, [entry_for((64, 64, start + n + 1)) for n in range(3000)])
    assert table.stat().st_size <= _tuning.MOST_BYTES
    kept = [entry["n"] for entry in _tuning.read(table, device)]
    assert kept[-1] == 6000
    assert kept == sorted(kept)
    assert len(kept) > 2000


@pytest.mark.parametrize("how", ["a file in place of the folder", "readonly", "off"])
def test_where_nothing_can_be_written(run_python, folder, how):
    """Results count for the process, and one warning says that they are not kept."""
    environment = {} if " " in how else {"FUNLIB_CACHE": how}
    if not environment:
        folder.write_text("")
    result = run_python(
        START
        + """
import logging
logging.basicConfig(level=logging.WARNING)
results = funlib.tune(["24x24x24", "8x8x8"], kernels=["gemm"])
a = funlib.DeviceTensor.zeros((24, 24))
assert funlib.explain(a, a).source == "tuned"
print(len(results))
""",
        **environment,
    )
    assert result.stdout.strip() == "2", result.stderr
    assert result.stderr.count("can't be kept") == 1
    assert not folder.is_dir()


# ---- command line --------------------------------------------------------------------------------


def test_command_line(table, device):
    shape = ("--shapes", "24x40x32")
    options = (*shape, "--kernels", "gemm", "gemm_tiled")
    result = module("tune", *options, "--dry-run")
    assert result.returncode == 0, result.stderr
    assert "gemm_tiled EDGE=16" in result.stdout
    assert not table.exists()
    result = module("tune", *options, "--budget", "1m", "--queue", device.type)
    assert result.returncode == 0, result.stderr
    assert "1x24x40x32" in result.stdout
    assert "Traceback" not in result.stderr
    result = module("tune", "--show")
    assert result.returncode == 0, result.stderr
    assert str(table) in result.stdout
    assert "1x24x40x32" in result.stdout
    result = module("doctor")
    assert f"{table} (1 entries)" in result.stdout
    result = module("tune", "--clear")
    assert result.returncode == 0, result.stderr
    assert not table.exists()
    assert module("tune", "--clear").returncode == 0


@pytest.mark.parametrize(
    "arguments",
    [
        ("--shapes", "nonsense"),
        ("--shapes", "1x2"),
        ("--dtype", "nonsense"),
        ("--kernels", "nonsense"),
        ("--budget", "nonsense"),
        ("--budget", "0s"),
        ("--queue", "nonsense"),
        ("--transposes", "xx"),
    ],
)
def test_wrong_words(arguments):
    result = module("tune", *arguments)
    assert result.returncode == 2, result.stderr
    assert arguments[1].strip("-") in result.stderr
    assert "Traceback" not in result.stderr


# ---- parts ---------------------------------------------------------------------------------------


def test_identity(device):
    assert len(device.identity) == 32
    assert set(device.identity) <= set("0123456789abcdef")


def test_reference_finds_faults(queue):
    """What counts as a right result: within rounding, each element checked."""
    from funlib._tuner import Candidate, Product

    plain = Candidate("gemm", ())
    for dtype in (np.float32, np.float64, np.float16, np.int8, np.int32):
        product = Product(queue, np.dtype(dtype), (2, 37, 53, 41), (True, False))
        assert product.is_right(plain)
        batches, rows, expected, bound = product._reference
        assert (len(batches), len(rows)) == (2, 37)
        assert expected.shape == (2, 37, 41)
        wrong = expected.copy()
        wrong[1, 36, 40] += max(1, 2 * np.max(bound))
        product._reference = (batches, rows, wrong, bound)
        assert not product.is_right(plain)
