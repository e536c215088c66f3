"""The process that perf/startup.py measures: imports, first queue, first GEMM; prints JSON.

It imports nothing beyond what it times. Times are seconds.
"""

import json
import time

clock = time.perf_counter
times = {}


def lap(step, start):
    """Notes the time since `start` under `step`; returns the time now."""
    now = clock()
    times[step] = now - start
    return now


started = clock()
import numpy as np  # noqa: E402

lap("import numpy", started)
host_a = np.random.default_rng(1).uniform(-1, 1, (128, 128)).astype(np.float32)
host_b = host_a[::-1]

mark = clock()
import funlib  # noqa: E402

imported = lap("import funlib", mark)
queue = funlib.get_queue()
mark = lap("first queue", imported)
a = funlib.DeviceTensor.from_numpy(host_a, queue=queue)
b = funlib.DeviceTensor.from_numpy(host_b, queue=queue)
queue.wait()
mark = lap("two inputs to the device", mark)
c = funlib.gemm(a, b)
c.wait()
lap("first GEMM", mark)
lap("first GEMM, from import to result", imported)

# A sum of 128 products of at most 1 is off by less than 128 * 128 * 2^-24 = 1e-3 in float32.
right = bool(np.abs(c.to_host() - host_a.astype(np.float64) @ host_b).max() < 1e-3)
print(json.dumps({"times": times, "right": right}))
