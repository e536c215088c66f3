"""Where results lie below the roofs: arithmetic of perf/roofs.py, no device needed."""

import itertools
import sys

import pytest
from helpers import SOURCE

pytest.importorskip("tabulate", reason="perf/ needs tabulate (pip install .[perf])")
sys.path.append(str(SOURCE / "perf"))

import roofline
import roofs

BLOCK = {
    "device_type": "cpu",
    "roofs": {"float32": {"copy_gb_s": 10.0, "multiply_add_gflops": 100.0}},
}


def row(m, k, n, gflops, kernel="gemm"):
    return {"m": m, "k": k, "n": n, "dtype": "float32", "gflops": gflops, "kernel": kernel}


def test_intensity():
    # 2 * 8 operations; 4 + 4 + 4 elements.
    assert roofs.intensity(2, 2, 2, "float32") == pytest.approx(16 / 48)
    assert roofs.intensity(2, 2, 2, "float64") == pytest.approx(16 / 96)
    assert roofs.intensity(1, 4096, 4096, "float32") == pytest.approx(0.5, rel=1e-3)


def test_the_lower_roof_counts():
    slope, flat = roofs.with_roofs([row(1, 4096, 4096, 2.5), row(1024, 1024, 1024, 50)], BLOCK)
    assert slope["roof_gflops"] == pytest.approx(5, rel=1e-3)
    assert slope["roof_fraction"] == pytest.approx(0.5, rel=1e-3)
    assert flat["roof_gflops"] == 100
    assert flat["roof_fraction"] == 0.5


def test_engines_have_no_measured_peak():
    roof = BLOCK["roofs"]["float32"] | {"engines": True}
    block = BLOCK | {"roofs": {"float32": roof}}
    slope, flat = roofs.with_roofs([row(1, 4096, 4096, 2.5), row(1024, 1024, 1024, 500)], block)
    assert slope["roof_fraction"] == pytest.approx(0.5, rel=1e-3)
    assert flat["roof_gflops"] is None
    assert flat["roof_fraction"] is None
    assert roofs.warnings([slope, flat], block) == []


def test_chart_of_engines(tmp_path):
    """Results that have no roof are drawn all the same."""
    pytest.importorskip("matplotlib", reason="charts need matplotlib")
    roof = BLOCK["roofs"]["float32"] | {"engines": True}
    block = BLOCK | {"roofs": {"float32": roof}, "device": "a device", "backend": "cuda"}
    one = row(1024, 1024, 1024, 500) | {"implementation": "gemm", "shape": "1024x1024x1024"}
    picture = tmp_path / "chart.svg"
    roofline.draw(roofs.with_roofs([one], block), block, "float32", [picture])
    assert "not of matrix engines" in picture.read_text(encoding="utf-8")


def test_numpy_has_the_roofs_of_its_own_processor_only():
    rows = [row(64, 64, 64, 10, kernel=None)]
    assert roofs.with_roofs(rows, BLOCK)[0]["roof_fraction"] > 0
    (beside,) = roofs.with_roofs(rows, BLOCK | {"device_type": "gpu"})
    assert beside["roof_gflops"] is None
    assert beside["roof_fraction"] is None


def test_results_above_the_peak_are_a_warning():
    def warnings(gflops):
        return roofs.warnings(roofs.with_roofs([row(512, 512, 512, gflops)], BLOCK), BLOCK)

    assert warnings(99) == []
    assert len(warnings(101)) == 1
    assert "float32" in warnings(101)[0]


@pytest.mark.parametrize("positions", [[], [0.5], [0.1, 0.9], [0.5, 0.5, 0.5], [0.99, 0.99, 1.0]])
def test_names_are_moved_apart(positions):
    moved = roofline.spaced(positions, 0.1)
    assert len(moved) == len(positions)
    assert all(b - a > 0.1 - 1e-9 for a, b in itertools.pairwise(moved))
    assert all(-1e-9 <= place <= 1 + 1e-9 for place in moved)


def test_names_without_room():
    moved = roofline.spaced([0.5] * 21, 0.1)
    assert moved == sorted(moved)
    assert moved[-1] - moved[0] == pytest.approx(1)
