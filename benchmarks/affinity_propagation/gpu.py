"""How far an iteration of the message passing, the similarities and the preference are from their limits on one GPU.

d = 120, float32, 60 Gaussians, preference at the median similarity, damping 0.5. Milliseconds an iteration are medians
of batches as the estimator queues them, everything included (the sparse E, the columns' pass, the host's loop): in the
first iterations, where nearly all rows are exemplars, and after the exemplars have settled. The limit is 12 bytes an
element (S and A read, A written) at the bandwidth that a copy on the same device reaches.

Then one iteration of scikit-learn on the same host and data: a fit of 12 iterations less one of 2, similarities and
preference given, so low that it has no exemplars to assign at the end.

    python -m benchmarks.affinity_propagation.gpu --out benchmarks/results/affinity_propagation/gpu.json
"""

from __future__ import annotations

import statistics
import time
import warnings
from typing import Any

import numpy as np

from benchmarks.support import on_ranks, sets
from benchmarks.support import record as bench

FEATURES = 120
# Rows: milliseconds an iteration may take; 12 bytes an element at 4.25 TB/s, an H200's copy, take 0.28, 1.13, 4.5 ms.
TARGETS = {10_000: 0.45, 20_000: 1.5, 40_000: 6.3}
SIMILARITIES_OVER_WRITING = 1.5  # at the largest n
OVER_SKLEARN = 2000
ORDER_PASSES = 3  # over S, 11 of 32 bits each


def sklearn_iteration(X: np.ndarray, counts: tuple[int, int] = (2, 12)) -> dict[str, float]:
    """Seconds of one iteration, and of all the rest that a fit does with given similarities and preference."""
    from sklearn.cluster import AffinityPropagation
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.metrics import euclidean_distances

    S = -euclidean_distances(X.astype("float64"), squared=True)
    took = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        for count in (counts[0], *counts):  # the first one warms up
            model = AffinityPropagation(
                affinity="precomputed", preference=-1e9, max_iter=count, random_state=0, copy=False
            )
            start = time.perf_counter()
            model.fit(S)
            took.append(time.perf_counter() - start)
            print(f"scikit-learn, max_iter={count}: {took[-1]:.1f} s", flush=True)
    took = took[1:]
    each = (took[1] - took[0]) / (counts[1] - counts[0])
    return {"iteration_ms": 1e3 * each, "rest_of_fit_seconds": took[0] - counts[0] * each, "fits_seconds": took}


def median(batches: list[float]) -> float:
    return statistics.median(batches)


def messages(out: bench.Record, n: int, X: np.ndarray, options: Any) -> float:
    """Iterations of one size; milliseconds of the slower of the two states."""
    extra = {"copy_count": 1 << 20, "repeat": 3} if options.small else {}
    found = on_ranks.on(
        None,
        1,
        options.device,
        on_ranks.messages_timed,
        X,
        iterations=options.iterations,
        settle=options.settle,
        **extra,
    ).value
    bandwidth = found["copy_bytes_per_second"]
    limit = 1e3 * on_ranks.BYTES * n * n / bandwidth
    first, settled = median(found["first_batches_ms"]), median(found["settled_batches_ms"])
    slower = max(first, settled)
    target = TARGETS.get(n)
    out.add(
        f"iteration n={n}",
        ms_first=first,
        ms_settled=settled,
        ms_slowest_batch=max(found["first_batches_ms"] + found["settled_batches_ms"]),
        limit_ms=limit,
        share_of_limit_first=limit / first,
        share_of_limit_settled=limit / settled,
        bytes_per_second=on_ranks.BYTES * n * n / settled * 1e3,
        copy_bytes_per_second=bandwidth,
        target_ms=target,
        met=None if target is None else slower <= target,
        pass_columns_ms=found["pass_columns_ms"],
        clusters=found["clusters"],
        recent_places=[found["recent_places_first"], found["recent_places_later"]],
        device_gib=found["device_bytes"] / 2**30,
        stages_seconds={k: found[k] for k in ("similarities_first_seconds", "preference_seconds")},
        batches_ms={k: found[k] for k in ("first_batches_ms", "settled_batches_ms")},
    )
    return slower


def matrices(out: bench.Record, n: int, X: np.ndarray, options: Any, bandwidth: float) -> None:
    found = on_ranks.on(None, 1, options.device, on_ranks.matrices_timed, X, repeat=3 if options.small else 7).value
    out.add(
        f"matrices n={n}",
        **found,
        similarities_over_fill=found["similarities_ms"] / found["fill_ms"],
        target_over_fill=SIMILARITIES_OVER_WRITING,
        met=found["similarities_ms"] <= SIMILARITIES_OVER_WRITING * found["fill_ms"],
        pairs_per_second=n * n / found["similarities_ms"] * 1e3,
        fill_bytes_per_second=4.0 * n * n / found["fill_ms"] * 1e3,
        order_statistic_limit_ms=1e3 * ORDER_PASSES * 4.0 * n * n / bandwidth,
    )


def main() -> None:
    parser = bench.parser(__doc__)
    parser.add_argument("--device", default="cuda", choices=["cpu", "cuda"])
    parser.add_argument("--rows", default=",".join(map(str, TARGETS)), help="numbers of rows, comma-separated")
    parser.add_argument("--iterations", type=int, default=320, help="timed in each of the two states")
    parser.add_argument("--settle", type=int, default=320, help="iterations between the two states")
    parser.add_argument("--no-sklearn", action="store_true")
    parser.add_argument("--small", action="store_true", help="tiny, to try the script out")
    options = parser.parse_args()
    if options.small:
        options.rows, options.iterations, options.settle = "1500", 64, 64
    out = bench.Record(__doc__, options.out)
    out.note(
        "limit", "12 n^2 bytes an iteration at the bandwidth of a copy; S: n^2 numbers written once, as a fill does"
    )
    out.note("targets_ms", TARGETS)
    # Kernels are compiled, and the clocks of the device awake, before anything is timed.
    on_ranks.on(
        None, 1, options.device, on_ranks.messages_timed, sets.gaussians(2048, FEATURES, 60)[0], iterations=64,
        copy_count=1 << 20,
    )  # fmt: skip
    slower: dict[int, float] = {}
    for n in map(int, options.rows.split(",")):
        X = sets.gaussians(n, FEATURES, 60)[0]
        try:
            slower[n] = messages(out, n, X, options)
            bandwidth = out.document["items"][-1]["copy_bytes_per_second"]
            matrices(out, n, X, options, bandwidth)
        except Exception as error:
            out.add(f"n={n}", failed=f"{type(error).__name__}: {error}")
        on_ranks.free_pool()
    if options.no_sklearn or not slower:
        return
    n = min(slower)
    theirs = sklearn_iteration(sets.gaussians(n, FEATURES, 60)[0])
    out.add(
        f"scikit-learn n={n}",
        **theirs,
        ours_ms=slower[n],
        ratio=theirs["iteration_ms"] / slower[n],
        target_ratio=OVER_SKLEARN,
        met=theirs["iteration_ms"] / slower[n] >= OVER_SKLEARN,
    )


if __name__ == "__main__":
    main()
