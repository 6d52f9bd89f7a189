"""How far from its limit is every pass on one GPU, with the data already there.

Whole runs (exact dc, Gaussian rho, delta, labels; all pairs, ``algorithm="brute"``) through the
estimator, and by stage; medians after a warm-up. The limits in two dimensions were measured on one H200 with the
simplest kernel that only does that arithmetic, before these kernels were written; those of many features are the
data sheet's. They are the yardstick, not the result.

    python -m benchmarks.density_peaks.gpu --out benchmarks/results/density_peaks/gpu.json
"""

from __future__ import annotations

import statistics
import time

import numpy as np

from benchmarks.support import record as bench
from benchmarks.support import sets

# Pairs per second. 2-D: a register-tiled loop that sums Gaussians / that only counts.
LIMITS = {"2-D gaussian": 3.0e12, "2-D compare": 3.4e12}
# Many features: operations of the tensor cores on halves, as the data sheet has them. A Gaussian takes three products
# of 2 d operations a pair, a comparison one.
TENSOR = 989e12
# What the whole run may take, and the share of its limit that each pass should reach.
TARGETS = [
    # name, rows, features, centres, whole run in seconds, repeats
    ("2-D", 46_000, 2, 100, 0.025, 20),
    ("2-D", 1_000_000, 2, 100, 1.6, 5),
    ("128-D", 100_000, 128, 50, 0.06, 5),
    ("768-D", 100_000, 768, 50, 0.2, 5),
]
SHARE = 0.6


def pass_limits(n: int, d: int) -> dict[str, float]:
    """The least time of each stage that is a pass over pairs, in seconds."""
    pairs = float(n) * n
    # By descending density, a row's nearest denser row is among those before it.
    delta = pairs if d == 2 else pairs / 2
    return {
        "dc": pairs / 2 / rate("compare", d),
        "rho": pairs / rate("gaussian", d),
        "delta": delta / rate("compare", d),
    }


def rate(kind: str, d: int) -> float:
    """Pairs a second at the limit."""
    return LIMITS[f"2-D {kind}"] if d == 2 else TENSOR / (2 * d * (3 if kind == "gaussian" else 1))


def main() -> None:
    options = bench.parser(__doc__).parse_args()
    out = bench.Record(__doc__, options.out)
    out.note("limits_pairs_per_second", LIMITS)
    out.note("limit_operations_per_second", TENSOR)
    out.note("targets", [{"set": t[0], "rows": t[1], "seconds": t[4], "share_of_limit": SHARE} for t in TARGETS])
    for name, n, d, *_ in TARGETS:
        out.note(f"limit_seconds {name} n={n}", {k: float(f"{v:.4g}") for k, v in pass_limits(n, d).items()})

    import cupy as cp

    from mgclust import DensityPeaks

    for name, n, d, k, target, repeat in TARGETS:
        X = sets.birch_like(n) if d == 2 else sets.gaussians(n, d, k)[0]
        if n == 46_000:
            X = sets.birch_subset(n, options.data)
        device = cp.asarray(X)
        model = DensityPeaks(n_clusters=k, device="cuda", client=None, algorithm="brute")
        start = time.perf_counter()
        model.fit(device)
        first = time.perf_counter() - start
        runs = []
        for _ in range(repeat):
            cp.cuda.Device().synchronize()
            start = time.perf_counter()
            model.fit(device)
            runs.append((time.perf_counter() - start, dict(model.timings_)))
        whole = statistics.median(run[0] for run in runs)
        stages = {s: statistics.median(run[1][s] for run in runs) for s in runs[0][1]}
        limits = pass_limits(n, d)
        out.add(
            f"whole run {name} n={n}",
            seconds=whole,
            fastest=min(run[0] for run in runs),
            target=target,
            met=whole <= target,
            first_seconds=first,
            stages=stages,
            share_of_limit={s: limits[s] / stages[s] for s in limits if s in stages},
            dc=model.dc_,
            exactness=model.exactness_,
        )
    passes(out, options)


def passes(out: bench.Record, options) -> None:
    """Each kernel alone, timed by events: what a pass costs without what surrounds it."""
    import cupy as cp
    from cupyx.profiler import benchmark

    from mgclust.kernels import load

    gpu = load("cuda")
    for name, n, d, *_ in TARGETS:
        X = sets.birch_like(n) if d == 2 else sets.gaussians(n, d)[0]
        x = cp.asarray(X - X.mean(axis=0))
        norm = "l2" if d <= 16 else "l2-dot"
        sample = gpu.memory.to_host(gpu.pairs.reduced_distances(x[:64], x, norm="l2"))
        s = float(np.quantile(sample, 0.02))
        order = cp.asarray(np.random.default_rng(0).permutation(n).astype("int32"))
        sums, counts, flags = cp.zeros(n), cp.zeros(n, dtype="int64"), cp.zeros(n, dtype="uint8")
        labels = cp.zeros(n, dtype="int32")
        histogram = cp.zeros((1 << 20) + 1, dtype="int64")
        low = int(np.float32(s * 0.98).view("int32"))
        shift = max((int(np.float32(s * 1.02).view("int32")) - low).bit_length() - 20, 0)
        within = {"norm": norm, "threshold": s}
        calls = {
            # name: (call, share of the n^2 pairs, kind)
            "pair_histogram": (
                # Half of the rows against all of them: as many pairs as i < j.
                lambda x=x, norm=norm, low=low, shift=shift, out=histogram: gpu.pairs.pair_histogram(
                    x[: len(x) // 2], x, norm=norm, diagonal=False, low=low, shift=shift, out=out
                ),
                0.5,
                "compare",
            ),
            "gaussian_sum": (
                lambda x=x, norm=norm, s=s, out=sums: gpu.pairs.gaussian_sum(
                    x, x, norm=norm, scale=1 / s, power=1, out=out
                ),
                1.0,
                "gaussian",
            ),
            "count_within": (
                lambda x=x, w=within, out=counts: gpu.pairs.count_within(x, x, **w, out=out),
                1.0,
                "compare",
            ),
            "nearest_higher": (
                lambda x=x, o=order, norm=norm, n=n: gpu.pairs.nearest_higher(
                    x,
                    x,
                    o,
                    o,
                    norm=norm,
                    y_start=0,
                    best=cp.full(n, np.inf, dtype="float32"),
                    best_index=cp.full(n, -1, dtype="int64"),
                ),
                1.0 if d == 2 else 0.5,
                "compare",
            ),
            "border": (
                lambda x=x, w=within, y=labels, out=flags: gpu.pairs.border(x, x, y, y, **w, out=out),
                1.0,
                "compare",
            ),
        }
        for kernel, (call, share, kind) in calls.items():
            took = float(np.median(benchmark(call, n_repeat=5, n_warmup=2).gpu_times))
            limit = share * n * n / rate(kind, d)
            out.add(
                f"kernel {kernel} {name} n={n}",
                seconds=took,
                limit_seconds=limit,
                share_of_limit=limit / took,
                pairs_per_second=share * n * n / took,
            )


if __name__ == "__main__":
    main()
