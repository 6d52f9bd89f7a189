"""How density peaks in two and three dimensions grows with the rows, on one GPU: 1 to 100 million.

Clusters on a grid, rows made on the device. Whole runs through the estimator (exact dc, Gaussian rho, delta, labels),
medians after a warm-up; ``growth`` is the exponent between a size and the one before, 1 where time grows with n.

    python -m benchmarks.density_peaks.near_linear --out NAME.json
"""

from __future__ import annotations

import math
import statistics
import time

from benchmarks.support import record as bench

CASES = {2: [1_000_000, 10_000_000, 50_000_000, 100_000_000], 3: [1_000_000, 10_000_000, 50_000_000]}
TARGETS = {(50_000_000, 2): 2.5}
SIDE = {2: 10, 3: 5}  # clusters along each axis


def main() -> None:
    parser = bench.parser(__doc__)
    parser.add_argument("--repeat", type=int, default=3)
    options = parser.parse_args()
    out = bench.Record(__doc__, options.out)

    import cupy as cp

    from mgclust import DensityPeaks

    for d, sizes in CASES.items():
        before = None
        for n in sizes:
            rng = cp.random.default_rng(0)
            X = rng.integers(0, SIDE[d], (n, d)).astype("float32") * 4
            X += rng.standard_normal((n, d), dtype="float32")
            model = DensityPeaks(n_clusters=SIDE[d] ** d, device="cuda", client=None)
            model.fit(X)
            runs = []
            for _ in range(options.repeat):
                start = time.perf_counter()
                model.fit(X)
                runs.append((time.perf_counter() - start, dict(model.timings_)))
            whole = statistics.median(took for took, _ in runs)
            figures = {"seconds": whole, "rows_per_second": n / whole}
            if before:
                figures["growth"] = math.log(whole / before[1]) / math.log(n / before[0])
            if (n, d) in TARGETS:
                figures |= {"target": TARGETS[n, d], "met": whole <= TARGETS[n, d]}
            stages = {stage: statistics.median(each[stage] for _, each in runs) for stage in runs[0][1]}
            out.add(f"{d}-D n={n}", **figures, stages=stages, dc=model.dc_, exactness=model.exactness_)
            before = n, whole
            del X, model
            cp.get_default_memory_pool().free_all_blocks()


if __name__ == "__main__":
    main()
