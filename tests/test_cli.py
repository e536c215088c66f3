"""python -m funlib, and the benchmark scripts on small shapes."""

import json
import os
import subprocess
import sys

import numpy as np
import pytest
from helpers import SOURCE, module
from reference import supports

import funlib


def test_devices():
    result = module("devices")
    assert result.returncode == 0, result.stderr
    for device in funlib.devices():
        lines = [line for line in result.stdout.splitlines() if device.name in line]
        assert len(lines) >= 1
        for value in (device.vendor, device.backend, device.driver, str(device.compute_units)):
            assert any(value in line for line in lines), value
        for size in device.sub_group_sizes:
            assert any(str(size) in line for line in lines)
    for column in ("device", "vendor", "backend", "driver", "fp64", "fp16"):
        assert column in result.stdout.splitlines()[0].lower()


def test_doctor():
    result = module("doctor")
    info = funlib.runtime_info()
    for found in (info.library, info.sycl_library, info.compiler):
        assert found
        assert found in result.stdout
    if info.opencl_cpu:
        assert result.returncode == 0, result.stdout + result.stderr
        assert info.opencl_cpu in result.stdout
    else:  # the one problem of a machine that has a GPU only
        assert result.returncode == 1, result.stdout + result.stderr
        assert "problem 1: Intel's OpenCL CPU runtime was not found" in result.stdout
        assert "problem 2" not in result.stdout
    assert funlib.cache_info().directory in result.stdout
    for device in funlib.devices():
        assert device.name in result.stdout


def test_doctor_names_a_missing_compiler(tmp_path):
    result = module("doctor", FUNLIB_COMPILER=tmp_path / "missing")
    assert "Traceback" not in result.stderr
    assert str(tmp_path / "missing") in result.stdout
    assert result.returncode == 1


def test_kernels():
    result = module("kernels")
    assert result.returncode == 0, result.stderr
    for kernel in funlib.kernels():
        assert kernel.name in result.stdout
        assert kernel.idea in result.stdout
        assert kernel.source in result.stdout


def test_usage():
    assert module("--help").returncode == 0
    result = module("nonsense")
    assert result.returncode == 2
    for command in ("devices", "doctor", "kernels"):
        assert command in result.stderr


def script(name, *arguments, timeout=300):
    """A script of perf/ by name. Skips where its requirements are not installed."""
    pytest.importorskip("tabulate", reason="perf/ needs tabulate (pip install .[perf])")
    result = subprocess.run(
        [sys.executable, SOURCE / "perf" / name, *map(str, arguments)],
        env=dict(os.environ),
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
    )
    assert result.returncode == 0, result.stdout + result.stderr
    return result.stdout


def test_bench_gemm(tmp_path):
    out = tmp_path / "result.json"
    # Few rows: a shape that every kernel takes.
    text = script("bench_gemm.py", "--shapes", "3x8x24", "--json", out)
    operands = funlib.DeviceTensor((3, 8)), funlib.DeviceTensor((8, 24))
    for kernel in funlib.kernels():
        assert (kernel.name in text) == supports(*operands, kernel=kernel.name)
    results = json.loads(out.read_text())
    assert "gemm_tiled" in json.dumps(results)
    found = results["environment"]["roofs"]["float32"]
    assert "of roof" in text
    on_cpu = results["environment"]["device_type"] == "cpu"
    for row in results["rows"]:
        if row["kernel"] is None and not on_cpu:
            assert row["roof_fraction"] is None
            continue
        roof = min(found["multiply_add_gflops"], row["intensity"] * found["copy_gb_s"])
        assert row["roof_fraction"] == pytest.approx(row["gflops"] / roof)


def test_bench_gemm_of_small_types():
    """Without NumPy, which has no product of them that would be the same."""
    options = ("--dtype", "float16", "bfloat16", "int8", "--kernels", "gemm", "dispatch", "numpy")
    text = script("bench_gemm.py", "--shapes", "3x8x24", *options)
    assert "all 6 rows verified" in text


def test_roofline(tmp_path):
    """Measured or drawn from results: a table, and a chart in both formats that names what is on
    it."""
    pytest.importorskip("matplotlib", reason="perf/roofline.py needs matplotlib")
    out = tmp_path / "result.json"
    options = ("--picture", tmp_path / "pictures" / "measured")
    kernels = ("gemm", "gemm_tiled", "dispatch")
    options += ("--shapes", "3x8x24", "16x16x16", "--kernels", *kernels)
    text = script("roofline.py", *options, "--json", out)
    results = json.loads(out.read_text())
    assert [row["implementation"] for row in results["rows"]] == [*kernels] * 2
    drawn = script("roofline.py", "--results", out, "--picture", tmp_path / "pictures" / "drawn")
    for name in (*kernels, "3x8x24", "multiply-add"):
        assert name in text
        assert name in drawn
    for name in ("measured", "drawn"):
        png, svg = (tmp_path / "pictures" / f"{name}-float32.{form}" for form in ("png", "svg"))
        assert png.read_bytes().startswith(b"\x89PNG")
        for word in (*kernels, "3x8x24", "copy bandwidth", "multiply-add peak"):
            assert word in svg.read_text()


def test_roofline_needs_roofs(tmp_path):
    """Results of a run that measured none, or of another benchmark."""
    pytest.importorskip("tabulate", reason="perf/ needs tabulate (pip install .[perf])")
    for kind, message in (("gemm", "measured no roofs"), ("startup", "startup")):
        path = tmp_path / f"{kind}.json"
        path.write_text(json.dumps({"kind": kind, "environment": {}, "rows": []}))
        result = subprocess.run(
            [sys.executable, SOURCE / "perf" / "roofline.py", "--results", path],
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        assert result.returncode == 2
        assert message in result.stderr


def test_compare(tmp_path):
    """A peer in the same process, of which the environment tells, and rows that were verified."""
    if not any(device.type == "cpu" for device in funlib.devices()):
        pytest.skip("NumPy computes on the CPU, and no device is one")
    out = tmp_path / "result.json"
    options = ("--queue", "cpu", "--peers", "numpy", "--json", out)
    text = script("compare.py", "--shapes", "3x8x24", *options)
    assert "geometric mean" in text
    results = json.loads(out.read_text())
    assert [row["implementation"] for row in results["rows"]] == ["funlib", "numpy"]
    assert all(row["verified"] for row in results["rows"])
    assert results["environment"]["peers"]["numpy"]["versions"]["NumPy"] == np.__version__


def test_bench_features(tmp_path):
    """Both ways of each pair give the same result, which the exit status says too."""
    out = tmp_path / "features.json"
    text = script("bench_features.py", "--sections", "epilogue", "batch", "--json", out)
    rows = json.loads(out.read_text())["rows"]
    assert [row["section"] for row in rows] == ["epilogue"] * 6 + ["batch"]
    assert all(row["verified"] and row["new_ms"] > 0 for row in rows)
    assert "10000 x 16x16x16" in text


def test_dispatch(tmp_path):
    """The chosen kernel is among those measured. (Whether it is good, the exit status, is no matter
    for a test: the shapes are tiny and the machine may be busy.)"""
    pytest.importorskip("tabulate", reason="perf/ needs tabulate (pip install .[perf])")
    out = tmp_path / "dispatch.json"
    command = [sys.executable, SOURCE / "perf" / "dispatch.py", "--count", "2", "--largest", "40"]
    subprocess.run([*command, "--json", out], check=False, timeout=300)
    rows = json.loads(out.read_text())["rows"]
    assert len(rows) == 2
    for row in rows:
        assert {row["chosen"], row["fastest"]} <= set(row["measured_ms"])
        assert row["behind"] >= 1
        assert row["tried"] >= 4


FAKE_NCU = r"""#!/bin/sh
# ncu ... --log-file LOG python profiler.py ...: launches nothing, and says what each launch took.
while [ "$1" != --log-file ]; do shift; done
{
    echo "==PROF== Connected"
    echo '"ID","Kernel Name","Metric Name","Metric Unit","Metric Value"'
    for kernel in KERNELS; do
        for i in $(seq LAUNCHES); do
            printf '%s,"__sycl_kernel_%s","gpu__time_duration.sum","ns","1,%s"\n' \
                "$i" "$kernel" $((100 + i))
        done
    done
} > "$2"
"""


def test_profiler(tmp_path, monkeypatch, capsys):
    """The profiler's launches are told apart by their order, warm-ups are dropped, missing ones
    told."""
    profiler = pytest.importorskip("profiler", reason="perf/ needs tabulate (pip install .[perf])")
    monkeypatch.setattr(profiler, "SIDE", 64)
    products = profiler.cases(funlib, funlib.get_queue())
    names = [product.kernel for product in products]
    assert {"gemm", "gemm_tiled"} <= {product.kernel for product in products if product.named}
    assert [product.a.shape[0] for product in products if not product.named] == [1, 8]
    ncu, results = tmp_path / "ncu", tmp_path / "results.json"
    for kernels, launches, status in (
        (names, profiler.LAUNCHES, 0),
        (names[1:], profiler.LAUNCHES, 1),
        (names, profiler.LAUNCHES - 1, 1),
    ):
        fake = FAKE_NCU.replace("KERNELS", " ".join(kernels)).replace("LAUNCHES", str(launches))
        ncu.write_text(fake)
        ncu.chmod(0o755)
        arguments = ["--queue", "default", "--ncu", str(ncu), "--json", str(results)]
        assert profiler.main(arguments) == status, capsys.readouterr()
    assert f"30 launches of {names[0]}, not 31" in capsys.readouterr().err
    rows = json.loads(results.read_text())["rows"]
    named = [product.named for product in products]
    for name, kernel, by_name in zip(
        (r["implementation"] for r in rows), names, named, strict=True
    ):
        assert name == (kernel if by_name else f"dispatch ({kernel})")
    for row in rows:
        assert row["profiler_us"] == pytest.approx(1.1215)
        assert row["difference"] == pytest.approx(row["event_us"] / 1.1215 - 1)


def test_report_is_up_to_date():
    """docs/results and the README's figures come from perf/results."""
    script("report.py", "--check")
