"""How density peaks in two and three dimensions grows with the rows, on one GPU: 1 million to a thousand million.

Clusters on a grid, rows made on the device. Whole runs through the estimator (exact dc, Gaussian rho, delta, labels),
medians after a warm-up; of more one run, after all others. ``growth`` is the exponent between a size and
the one before, 1 where time grows with n. A thousand million rows take dc from a sample: the exact one takes n^1.5 and
more of the time.

    python -m benchmarks.density_peaks.near_linear --out NAME.json
"""

from __future__ import annotations

import math
import statistics
import time
from typing import Any

from benchmarks.support import record as bench

CASES = {2: [1_000_000, 10_000_000, 50_000_000, 100_000_000], 3: [1_000_000, 10_000_000, 50_000_000]}
ONCE = {2: [300_000_000], 3: [100_000_000]}
SAMPLED = {2: [1_000_000_000], 3: [300_000_000, 1_000_000_000]}
TARGETS = {(50_000_000, 2): 2.5}
SIDE = {2: 10, 3: 5}  # clusters along each axis
PIECE = 50_000_000  # rows made at a time


def main() -> None:
    parser = bench.parser(__doc__)
    parser.add_argument("--repeat", type=int, default=3)
    options = parser.parse_args()
    out = bench.Record(__doc__, options.out)
    for d, sizes in CASES.items():
        before = None
        for n in sizes:
            runs, figures = measure(n, d, 1 + options.repeat)
            whole = statistics.median(took for took, _ in runs[1:])
            if before:
                figures["growth"] = math.log(whole / before[1]) / math.log(n / before[0])
            if (n, d) in TARGETS:
                figures |= {"target": TARGETS[n, d], "met": whole <= TARGETS[n, d]}
            stages = {stage: statistics.median(each[stage] for _, each in runs[1:]) for stage in runs[0][1]}
            out.add(f"{d}-D n={n}", seconds=whole, rows_per_second=n / whole, stages=stages, **figures)
            before = n, whole
    for sizes, dc_method in ((ONCE, "exact"), (SAMPLED, "sample")):
        for d in sizes:
            for n in sizes[d]:
                [(took, stages)], figures = measure(n, d, 1, dc_method=dc_method)
                sampled = ", dc of a sample" if dc_method == "sample" else ""
                out.add(f"{d}-D n={n}, once{sampled}", seconds=took, rows_per_second=n / took, stages=stages, **figures)


def measure(
    n: int, d: int, times: int, **parameters: Any
) -> tuple[list[tuple[float, dict[str, float]]], dict[str, Any]]:
    """Seconds and stages of each run, and what the last one found."""
    import cupy as cp

    from mgclust import DensityPeaks

    rng = cp.random.default_rng(0)
    X = cp.empty((n, d), dtype="float32")
    for start in range(0, n, PIECE):
        piece = X[start : start + PIECE]
        piece[:] = rng.integers(0, SIDE[d], piece.shape).astype("float32") * 4
        piece += rng.standard_normal(piece.shape, dtype="float32")
    pool = cp.get_default_memory_pool()
    pool.free_all_blocks()
    model = DensityPeaks(n_clusters=SIDE[d] ** d, device="cuda", client=None, **parameters)
    runs = []
    for _ in range(times):
        start = time.perf_counter()
        model.fit(X)
        runs.append((time.perf_counter() - start, dict(model.timings_)))
    figures = {"dc": model.dc_, "dc_error": model.dc_error_, "exactness": model.exactness_}
    figures["device_gib"] = pool.total_bytes() / 2**30
    del X, piece, model
    pool.free_all_blocks()
    return runs, figures


if __name__ == "__main__":
    main()
