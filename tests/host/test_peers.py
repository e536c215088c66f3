"""perf/compare.py and what it stands on: the method, the ratios, the pipe to a peer's process.

PyTorch is played by a module of a few lines here, and by itself where it is installed. No device is
needed.
"""

import json
import os
import shlex
import statistics
import subprocess
import sys
import threading
import time

import pytest
from helpers import SOURCE

pytest.importorskip("tabulate", reason="perf/ needs tabulate (pip install .[perf])")
sys.path.append(str(SOURCE / "perf"))

import bench_gemm
import common
import compare
import expected
import numpy as np
import peer_process
import peers

# As much of PyTorch as the peer uses. Its product is wrong, or the process ends, on request.
FAKE_TORCH = """
import os
import numpy as np
print("a line that must not come between the answers")
__version__ = "0.0"
float32, float64, int32, int64 = map(np.dtype, ("float32", "float64", "int32", "int64"))
class Tensor(np.ndarray):
    def numpy(self):
        return np.asarray(self)
def from_numpy(array):
    return array.view(Tensor)
def full(shape, value, dtype):
    return from_numpy(np.full(shape, value, dtype))
def matmul(a, b, out=None):
    if os.environ.get("FAKE_TORCH") == "ends":
        os._exit(7)
    if os.environ.get("FAKE_TORCH") == "raises":
        raise RuntimeError("no memory left")
    c = np.matmul(a, b, out=out)
    if os.environ.get("FAKE_TORCH") == "wrong":
        c[-1, -1] += 1
    return c
def set_grad_enabled(enabled):
    assert not enabled
def get_num_threads():
    return 3
class __config__:
    def show():
        return "built with:\\n  - Fake Math Kernel Library Version 1.2.3-Product Build 4\\n"
"""


@pytest.fixture
def torch_python(tmp_path):
    """torch_python(behaviour): an interpreter that has the module above in place of PyTorch."""
    (tmp_path / "torch.py").write_text(FAKE_TORCH)

    def python(behaviour):
        path = tmp_path / "python"
        path.write_text(
            f"#!/bin/sh\nPYTHONPATH={shlex.quote(str(tmp_path))} FAKE_TORCH={behaviour} "
            f'exec {shlex.quote(sys.executable)} "$@"\n'
        )
        path.chmod(0o755)
        return str(path)

    return python


@pytest.fixture
def remote(torch_python):
    """remote(behaviour): a peer in a process with the fake PyTorch, ready."""
    opened = []

    def start(behaviour="right"):
        peer = peer_process.RemotePeer(peers.Torch, "cpu", torch_python(behaviour))
        opened.append(peer)
        assert peer.missing() is None
        return peer

    yield start
    for peer in opened:
        peer.close()


def operands(dtype="float32", shape=(5, 7, 3), transposed=False):
    a, b = bench_gemm.random_inputs(shape, dtype)
    return a, np.ascontiguousarray(b.T).T if transposed else b


# ---- the method ------------------------------------------------------------------------------


class Scripted(peers.Call):
    """A call whose times are given; notes when it is made."""

    def __init__(self, name, log, total_ns):
        self.name, self.log, self.total_ns = name, log, total_ns

    def __call__(self):
        self.log.append(self.name)
        return self.total_ns + len(self.log), None

    def block(self, count):
        return [self() for _ in range(count)]


class Apart(peers.Call):
    """A call that does not tell its kernel time, and products that do."""

    paired = False

    def __init__(self, kernel_ns):
        self.log = []
        self.takes = kernel_ns

    def __call__(self):
        self.log.append("call")
        return 1000 + len(self.log), None

    def kernel_ns(self):
        self.log.append("kernel")
        return self.takes


def test_kernel_times_are_taken_after_the_calls():
    """So that these follow one another, as those of other implementations do."""
    call = Apart(5000)
    assert call.block(3) == [(1001, 5000), (1002, 5000), (1003, 5000)]
    assert call.log == ["call"] * 3 + ["kernel"] * 3


def test_kernel_times_apart_are_plausible():
    """Longer than the calls, which they are not of: by as much as a lowered clock explains."""
    for kernel_ns, plausible in ((1100, True), (5000, False)):
        ((_, samples),) = common.measure_in_blocks({"a": Apart(kernel_ns)}, 1).values()
        assert samples.plausible() == plausible


def test_blocks_alternate_and_rotate():
    log = []
    calls = {name: Scripted(name, log, 1000) for name in "abc"}
    timed = common.measure_in_blocks(calls, budget_seconds=1)
    order = [name for turn, name in enumerate(log[3:]) if turn == 0 or log[2 + turn] != name]
    assert log[:3] == ["a", "b", "c"]
    # abc, bca, cab: neighbours of the same name merge.
    assert order == ["a", "b", "c", "b", "c", "a", "c", "a", "b"]
    for warmups, samples in timed.values():
        assert warmups == common.WARMUPS
        assert len(samples.total_ns) == common.REPETITIONS
        assert samples.kernel_ns == []
    whole = 1 + common.ROUNDS * common.WARMUPS + common.REPETITIONS
    assert {name: log.count(name) for name in "abc"} == dict.fromkeys("abc", whole)


def test_warm_ups_are_not_counted():
    log = []
    ((warmups, samples),) = common.measure_in_blocks({"a": Scripted("a", log, 0)}, 1).values()
    block = warmups + common.REPETITIONS // common.ROUNDS
    # The first call measures its length; then each block begins with warm-ups.
    counted = [1 + t * block + warmups + 1 + i for t in range(3) for i in range(block - warmups)]
    assert samples.total_ns == counted


@pytest.mark.parametrize(
    ("seconds", "calls", "counted"),
    [(0.5, 1 + common.ROUNDS * 3, 6), (common.SINGLE_SECONDS + 1, 1, 1)],
)
def test_long_calls_are_made_less_often(seconds, calls, counted):
    log = []
    timed = common.measure_in_blocks({"a": Scripted("a", log, int(seconds * 1e9))}, 1)
    assert len(log) == calls
    assert len(timed["a"][1].total_ns) == counted


def test_settle_waits_for_threads(monkeypatch):
    monkeypatch.setattr(common, "SETTLE_LIMIT_SECONDS", 0.2)
    stop = threading.Event()

    def spin():
        while not stop.is_set():
            sum(range(1000))

    thread = threading.Thread(target=spin)
    thread.start()
    try:
        # On a busy machine the thread may get too little of a processor to be seen at once.
        assert any(not common.settle() for _ in range(20))
    finally:
        stop.set()
        thread.join()


def test_settle_gives_up(monkeypatch):
    monkeypatch.setattr(common, "SETTLE_LIMIT_SECONDS", 0.1)
    monkeypatch.setattr(common.time, "process_time_ns", time.perf_counter_ns)
    assert not common.settle()


def test_other_programs():
    """Work of this process and of children that ended is its own; all else is others'."""
    others = common.OtherPrograms()
    spin = "import time\nend = time.process_time() + 0.3\nwhile time.process_time() < end: pass"
    exec(spin, {})
    subprocess.run([sys.executable, "-c", spin], check=True)
    passed = time.perf_counter() - others.start[0]
    used = others.processors()
    # The kernel counts in hundredths of a second.
    assert 0 <= used <= os.cpu_count() + 0.1
    wall, before = others.start
    others.start = (wall, before - 10)  # as if ten seconds more had been used
    assert others.processors() == pytest.approx(used + 10 / passed, rel=0.2)


def test_disturbances(monkeypatch):
    monkeypatch.setattr(common, "usable_cpus", lambda: 2)
    quiet = [{"implementation": "numpy", "settled": True}]
    assert compare.disturbances(quiet, 0.0) == []
    noisy = [*quiet, {"implementation": "torch", "settled": False}]
    (spinning, busy) = compare.disturbances([*noisy, *noisy], 1.5)
    assert "torch" in spinning
    assert "1.50 processors" in busy


# ---- ratios ----------------------------------------------------------------------------------


def row(shape, implementation, total_ms):
    m, k, n = map(int, shape.split("x"))
    return {
        "shape": shape,
        "m": m,
        "k": k,
        "n": n,
        "dtype": "float32",
        "implementation": implementation,
        "label": implementation,
        "total_ms": total_ms,
        "kernel_ms": None,
        "total_spread": 0.01,
        "gflops": 2 * m * k * n / total_ms / 1e6,
        "max_error": 0.0,
        "verified": True,
        "plausible": True,
        "repetitions": 21,
    }


@pytest.fixture
def rows():
    """Two large shapes and a small one; torch lacks one of them."""
    measured = {
        "512x512x512": {"funlib": 2.0, "numpy": 4.0, "torch": 3.0},
        "256x256x256": {"funlib": 1.0, "numpy": 0.5},
        "255x256x256": {"funlib": 1.0, "numpy": 0.25, "torch": 0.2},
    }
    return [
        found
        for shape, times in measured.items()
        for found in compare.with_ratios([row(shape, *item) for item in times.items()])
    ]


def test_ratios(rows):
    assert [r["ratio"] for r in rows] == [1.0, 2.0, 1.5, 1.0, 0.5, 1.0, 0.25, 0.2]
    shapes = compare.by_shape(rows)
    assert [compare.fastest(measured) for measured in shapes.values()] == [
        *("torch", "numpy", "torch")
    ]
    names = ["numpy", "torch"]
    assert [compare.ratios(measured, names) for measured in shapes.values()] == [
        [2.0, 1.5, 1.5],
        [0.5, None, 0.5],
        [0.25, 0.2, 0.2],
    ]


def test_geometric_means(rows):
    means = compare.geometric_means(compare.by_shape(rows), ["numpy", "torch"])
    assert [(text, count) for text, count, _ in means] == [
        ("all", 3),
        ("from 256^3 multiply-adds", 2),
        ("below", 1),
    ]
    assert means[0][2] == pytest.approx(
        [0.25 ** (1 / 3), statistics.geometric_mean([1.5, 0.2]), 0.15 ** (1 / 3)]
    )
    assert means[1][2] == pytest.approx([1.0, 1.5, 0.75**0.5])
    assert means[2][2] == pytest.approx([0.25, 0.2, 0.2])


def test_tables(rows):
    text = "\n".join(compare.page(rows))
    cells = ["256x256x256", "33.6", "67.1", "-", "0.50x", "-", "0.50x", "numpy"]
    (line,) = (
        x for x in text.splitlines() if x.startswith("| 256x256x256") and "numpy |" in x[-9:]
    )
    assert line.replace("|", "").split() == cells
    assert "geometric mean, below (1)" in text


# ---- peers -----------------------------------------------------------------------------------


@pytest.mark.parametrize("peer", peers.PEERS.values(), ids=list(peers.PEERS))
@pytest.mark.parametrize("dtype", bench_gemm.DTYPES)
def test_installed_peers(peer, dtype):
    """Each peer that is installed here multiplies, and describes itself in JSON."""
    made = peer("cpu")
    reason = made.missing()
    if reason:
        assert f"-m pip install {peer.package}" in reason
        pytest.skip(reason)
    described = made.describe()
    assert json.loads(json.dumps(described)) == described
    assert all(described["versions"].values())
    if dtype not in peer.dtypes:
        pytest.skip(f"{peer.name} doesn't multiply {dtype}")
    for transposed in (True, False):
        a, b = operands(dtype, transposed=transposed)
        call = made.prepare(a, b)
        total_ns, result = call.checked()
        assert total_ns > 0
        assert result.dtype == a.dtype
        assert bench_gemm.check(result, expected.gemm(a, b))[1]
    samples = call.block(2)
    assert len(samples) == 2
    assert all(total > 0 and kernel is None for total, kernel in samples)
    made.close()


def test_every_peer_has_a_place_and_a_command():
    for name, peer in peers.PEERS.items():
        assert peer.name == name
        assert peer.places
        assert peer.package
        assert set(peer.dtypes) & set(bench_gemm.DTYPES)


# ---- a peer's process ------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", ["float32", "float64", "int32"])
def test_remote_peer(remote, dtype):
    peer = remote()
    described = peer.describe()
    assert described["versions"] == {"PyTorch": "0.0", "MKL": "1.2.3-Product"}
    assert described["threads"] == 3
    assert "process of its own" in described["process"]
    # The later replace the earlier.
    for shape, transposed in (((5, 7, 3), False), ((5, 7, 3), True), ((1, 2, 1), False)):
        a, b = operands(dtype, shape, transposed)
        call = peer.prepare(a, b)
        total_ns, result = call.checked()
        assert total_ns > 0
        assert bench_gemm.check(result, expected.gemm(a, b))[1]
        samples = call.block(4)
        assert len(samples) == 4
        assert all(total > 0 and kernel is None for total, kernel in samples)
        assert call.settled


def test_remote_peer_runs_beside_the_libraries_of_its_own(remote, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", "/nonexistent")
    assert remote().describe()["versions"]["PyTorch"] == "0.0"


def test_remote_wrong_result_is_seen(remote):
    a, b = operands()
    _, result = remote("wrong").prepare(a, b).checked()
    assert not bench_gemm.check(result, expected.gemm(a, b))[1]


def test_remote_errors_name_the_peer(remote):
    call = remote("raises").prepare(*operands())
    for request in (call.checked, call):
        with pytest.raises(peer_process.PeerError, match="torch: RuntimeError: no memory left"):
            request()


def test_remote_end_is_reported(remote):
    call = remote("ends").prepare(*operands())
    for _ in range(2):
        with pytest.raises(peer_process.PeerError, match=r"torch: .* ended with status 7"):
            call.checked()


def test_remote_leaves_nothing_behind(remote):
    peer = remote()
    folder, process = peer.folder.name, peer.process
    peer.close()
    assert process.returncode == 0
    assert not os.path.exists(folder)


def test_remote_peer_that_is_missing(tmp_path):
    peer = peer_process.RemotePeer(peers.Torch, "cpu", str(tmp_path / "nothing"))
    assert "nothing" in peer.missing()
    peer.close()
    peer = peer_process.RemotePeer(peers.Torch, "cpu", "/bin/false")
    assert "/bin/false ended with status 1" in peer.missing()
    peer.close()


# ---- the script ------------------------------------------------------------------------------


def test_open_peers(torch_python, capsys, monkeypatch):
    class Absent(peers.Numpy):
        name = "absent"

        def load(self):
            raise ImportError("No module named 'absent'")

    monkeypatch.setitem(peers.PEERS, "absent", Absent)
    monkeypatch.setattr(peers.Dpnp, "places", ("elsewhere",))
    python = {"torch": torch_python("right")}
    with compare.ExitStack() as stack:
        opened = compare.open_peers("cpu", None, python, stack)
        assert [peer.name for peer in opened] == ["numpy", "torch"]
        assert isinstance(opened[1], peer_process.RemotePeer)
        said = capsys.readouterr().err
        assert "without absent: No module named 'absent'" in said
        assert "without dpnp: computes on elsewhere" in said
        with pytest.raises(ValueError, match=r"absent can't be used: .*pip install numpy"):
            compare.open_peers("cpu", ["absent"], {}, stack)


def test_wrong_rows_fail_the_run(rows, capsys):
    arguments = compare.parse_arguments([])
    assert bench_gemm.conclude("compare", arguments, rows) == 0
    assert bench_gemm.conclude("compare", arguments, rows, failed=True) == 1
    assert bench_gemm.conclude("compare", arguments, []) == 1
    rows[1]["verified"] = False
    assert bench_gemm.conclude("compare", arguments, rows) == 1
    assert "compare: float32 512x512x512 numpy: WRONG" in capsys.readouterr().err


def test_parse_pythons():
    assert compare.parse_pythons(["torch=/a=b"]) == {"torch": "/a=b"}
    for word in ("torch", "torch=", "nothing=/a", "=/a"):
        with pytest.raises(ValueError, match="should be NAME=PATH"):
            compare.parse_pythons([word])


def test_environment_rows_show_peers():
    described = {"versions": {"PyTorch": "0.0"}, "threads": None, "process": "the same process"}
    assert common.peer_text(described) == "PyTorch 0.0, in the same process"
    assert (
        common.peer_text(described | {"threads": 3})
        == "PyTorch 0.0, 3 threads, in the same process"
    )
