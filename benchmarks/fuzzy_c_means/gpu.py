"""How far an iteration of fuzzy c-means is from its limits on one GPU, and beside the formulas written in CuPy.

m = 2, float32, mixtures of Gaussians that are already on the device. An iteration is what the estimator does in one,
the sum over blocks and the host's update of the centres included: batches of them, the median of the batches after a
first one. The least time: each row read once (4 n d bytes at 4.25 TB/s, what a copy moves), 4 n c d float32 operations
(a distance and a weighted sum for each row, cluster and feature) at 50 TFLOP/s, what float32 gives; on tensor cores
4 ms for the second case. Written before measuring:

    n, d, c           bytes      operations   allowed    predicted
    10M, 32, 16       0.30 ms    0.41 ms      1.0 ms     0.6 ms    both at once, neither fully hidden
    1M, 128, 1024     0.12 ms    10.5 ms      8 ms       5.5 ms    by products: 2.4e12 operations at 600e12 a second
    100k, 500, 8      0.05 ms    0.03 ms      0.3 ms     0.15 ms   0.1 ms of it launches, sums, and the host

The last is the write-up's sample, 50 iterations from given random memberships; the whole fit is timed, too. Beside
it, in this process and on the same arrays, the same formulation written directly in CuPy with U stored: `as_written`,
each formula by broadcasting (differences of n c d numbers written and read three times: about 2.5 ms an iteration), and
`by_products`, as cuBLAS makes it easy (X read twice, about 0.3 ms). Requested for: 20 times as fast as the
former. No program can be 20 times as fast as the latter, which is within 6 times of reading X once.

    python -m benchmarks.fuzzy_c_means.gpu --out benchmarks/results/fuzzy_c_means/gpu.json
"""

from __future__ import annotations

import statistics
import warnings
from typing import Any

import numpy as np

from benchmarks.support import fuzzy_ranks, made_rows, on_ranks
from benchmarks.support import record as bench

CASES = [
    # rows, features, clusters; milliseconds that an iteration may take; iterations of a batch
    (10_000_000, 32, 16, 1.0, 50),
    (1_000_000, 128, 1024, 8.0, 10),
    (100_000, 500, 8, 0.3, 50),
]
SMALL = [(5_000, 8, 4, None, 5), (3_000, 20, 70, None, 3)]
SAMPLE, SMALL_SAMPLE = (100_000, 500, 8), (3_000, 20, 4)
SAMPLE_ITERATIONS, SAMPLE_MS, OVER_CUPY = 50, 15.0, 20.0


def iteration(out: bench.Record, case: tuple, options: Any) -> None:
    n, d, c, target, count = case
    made = made_rows.Made(n, d, c, options.device)
    found = on_ranks.on(
        None,
        1,
        options.device,
        fuzzy_ranks.passes_timed,
        made,
        start=made.read(0, c).astype("float64") if options.device == "cpu" else made.read(0, c).get().astype("float64"),
        m=2.0,
        iterations=count,
        repeat=options.repeat,
        copy_count=1 << (20 if options.small else 28),
        parts=True,
    ).value
    least = fuzzy_ranks.limits(n, d, c)
    limit = max(least.values())
    out.add(
        f"FCM iteration n={n} d={d} c={c}",
        ms=found["ms"],
        kernel_ms=found["kernel_ms"],
        sum_parts_ms=found["sum_parts_ms"],
        rest_ms=found["ms"] - found["kernel_ms"] - found["sum_parts_ms"],
        **least,
        share_of_limit=limit / found["ms"],
        kernel_share_of_limit=limit / found["kernel_ms"],
        target_ms=target,
        met=None if target is None else found["ms"] <= target,
        first_ms=found["first_ms"],
        batches_ms=found["batches_ms"],
        copy_bytes_per_second=found["copy_bytes_per_second"],
        device_gib=found["device_bytes"] / 2**30,
        objective=found["objective"],
    )


def sample(out: bench.Record, options: Any) -> None:
    """The write-up's sample, ours and CuPy's, from the same memberships."""
    from mgclust import kernels
    from mgclust.algorithms import FuzzyCMeans

    module = kernels.load(options.device)
    xp = module.xp
    n, d, c = SMALL_SAMPLE if options.small else SAMPLE
    X = made_rows.Made(n, d, c, options.device).read(0, n)
    U = np.random.default_rng(0).random((n, c))
    U /= U.sum(axis=1, keepdims=True)
    count = SAMPLE_ITERATIONS
    model = FuzzyCMeans(c, m=2.0, init=U, max_iter=count, tol=0.0, device=options.device, client=None)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        stages: list[dict[str, float]] = []

        def fit() -> None:
            model.fit(X)
            stages.append(dict(model.timings_))

        whole, _ = fuzzy_ranks.whole_seconds(module.memory.synchronize, fit, options.repeat)
    took = 1e3 * statistics.median(stage["iterate"] for stage in stages[1:])
    # Rounding may bring the centres to rest exactly, before all iterations are done: count those that were not.
    ours = took / (model.n_iter_ + 1) * (count + 1)
    out.add(
        f"FCM sample n={n} d={d} c={c}",
        ms_iterations=ours,
        iterations=model.n_iter_,
        ms_iteration=took / (model.n_iter_ + 1),
        ms_whole_fit=1e3 * statistics.median(whole),
        stages_ms={name: 1e3 * statistics.median(stage[name] for stage in stages[1:]) for name in stages[-1]},
        target_ms=None if options.small else SAMPLE_MS,
        met=ours <= SAMPLE_MS,
        objective=float(model.objective_),
    )
    start = module.memory.to_device(U.astype("float32"))
    for formulas in (fuzzy_ranks.as_written, fuzzy_ranks.by_products):
        on_ranks.free_pool()
        times, (_, history) = fuzzy_ranks.whole_seconds(
            module.memory.synchronize,
            lambda formulas=formulas: formulas(xp, X, start, 2.0, count),
            max(1, options.repeat // 2),
        )
        took = 1e3 * statistics.median(times)
        # Their iteration t ends with J at the centres that ours began iteration t with.
        expected = model.objective_history_[: len(history)]
        out.add(
            f"FCM sample in {'NumPy' if xp is np else 'CuPy'}, {formulas.__name__}",
            ms_iterations=took,
            ms_iteration=took / count,
            ratio=took / ours,
            target_ratio=OVER_CUPY if formulas is fuzzy_ranks.as_written else None,
            met=took >= OVER_CUPY * ours if formulas is fuzzy_ranks.as_written else None,
            objective=history[-1],
            largest_difference_of_objective=float(np.max(np.abs(np.array(history[: len(expected)]) / expected - 1))),
        )


def main() -> None:
    parser = bench.parser(__doc__)
    parser.add_argument("--device", default="cuda", choices=["cpu", "cuda"])
    parser.add_argument("--repeat", type=int, default=7, help="batches timed after a first one")
    parser.add_argument("--small", action="store_true", help="tiny, to try the script out")
    options = parser.parse_args()
    if options.small:
        options.repeat = 2
    out = bench.Record(__doc__, options.out)
    out.note("limit", {"bytes_per_second": fuzzy_ranks.BANDWIDTH, "operations_per_second": fuzzy_ranks.FLOPS})
    for case in SMALL if options.small else CASES:
        try:
            iteration(out, case, options)
        except Exception as error:
            out.add(f"FCM iteration n={case[0]} d={case[1]} c={case[2]}", failed=f"{type(error).__name__}: {error}")
        on_ranks.free_pool()
    sample(out, options)


if __name__ == "__main__":
    main()
