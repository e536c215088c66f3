"""The roofs of a device (copy bandwidth, multiply-add peak) and where GEMM rows lie below them.

An environment block keeps what was measured under "roofs"::

    {"float32": {"copy_gb_s": 20.1, "multiply_add_gflops": 79.3, "engines": False}}

"engines" says that the device has matrix engines for the type, whose own peak is not measured.
"""

import expected
import numpy as np

# Data types that engines take as they are, and what a device's matrix_types call them.
ENGINES = {"float64": "fp64", "float16": "fp16", "bfloat16": "bf16", "int8": "int8"}


def measure(funlib, queue, dtypes):
    """The roofs of the queue's device for each data type, as an environment block keeps them. Takes
    one to two seconds a type. Raises what funlib.measure_roofs raises."""
    found = {}
    for dtype in dtypes:
        roofs = funlib.measure_roofs(queue, dtype)
        found[dtype] = {
            "copy_gb_s": roofs.bytes_per_second / 1e9,
            "multiply_add_gflops": roofs.operations_per_second / 1e9,
            "engines": ENGINES.get(dtype) in queue.device.matrix_types,
        }
    return found


def intensity(m, k, n, dtype):
    """Operations of a product for each byte that it has to move: M K and K N elements read, M N
    written, each once."""
    read, written = (m * k + k * n) * np.dtype(dtype).itemsize, m * n
    return 2 * m * k * n / (read + written * expected.output_of(dtype).itemsize)


def attainable(roofs, operations_per_byte):
    """GFLOP/s under both roofs of one data type. None where engines may be above the flat one."""
    slope = operations_per_byte * roofs["copy_gb_s"]
    if roofs.get("engines") and slope > roofs["multiply_add_gflops"]:
        return None
    return min(roofs["multiply_add_gflops"], slope)


def with_roofs(rows, block):
    """The rows of a GEMM run with "intensity" (operations a byte), "roof_gflops" and
    "roof_fraction", GFLOP/s from call to result over those of the roof. The last two are None where
    engines may be above it, and for NumPy beside a device that is not NumPy's processor."""
    found = []
    for row in rows:
        operations_per_byte = intensity(row["m"], row["k"], row["n"], row["dtype"])
        roof = None
        if row["kernel"] is not None or block["device_type"] == "cpu":
            roof = attainable(block["roofs"][row["dtype"]], operations_per_byte)
        fraction = row["gflops"] / roof if roof else None
        found.append(
            row | {"intensity": operations_per_byte, "roof_gflops": roof, "roof_fraction": fraction}
        )
    return found


def warnings(rows, block):
    """What rows above the multiply-add peak say of the run, as texts for the environment block.

    Products that fit into caches may be faster than the copy bandwidth allows; nothing that funlib
    computes in plain code is faster than multiply-adds.
    """
    above = {
        dtype
        for dtype, found in block["roofs"].items()
        for row in rows
        if row["dtype"] == dtype and row["roof_gflops"]
        if row["gflops"] > found["multiply_add_gflops"]
    }
    return [
        f"some results are above the multiply-add peak of {dtype}, which other programs must have "
        "disturbed when it was measured"
        for dtype in sorted(above)
    ]
