"""How far from its limit canopy clustering is on one GPU, with the data already there; and on several.

Normal data about the middle of a cube of side 10 n, t2 = 0.7 t1 (Hayashi and others): two dimensions, n = 1,000,000,
t1 = 0.5 n, the whole fit through the estimator with memberships and labels on the host; and n = 10,000,000 in six
dimensions with t1 = n. Medians after a warm-up. Written before measuring, for one H200
(compare kernels in two dimensions: 3.4e12 pairs/s in float32, taken as 1.7e12 in float64):

    filter        0.5 K n pairs    4.4e8    0.3 ms
    count, list, nearest  3 K n    2.7e9    1.6 ms
    to the host   26 MB: lists, counts, labels, from ordinary memory at 10 GB/s    2.6 ms
    allowed for all of it    15 ms

The six-dimensional case has 1,116,716 canopies, 25.0 of a row: all pairs are 3.9e13 comparisons, 35.8 s. Counted on a
CPU with 1,000,000 of these rows (339,942 canopies, 15.0 of a row), a row is near to

    729 cells of side t1                       1,655 centres, 1.8 in a cell that has any
    15,625 cells of side t1 / 2                  606 centres
    58 panels of 32 halved centres, below 20 of boxes    2,500 comparisons, a ninth of the looks (Morton order: 210)

With 10,000,000, as memberships grow: 130 panels, 4,200 comparisons a row, 4.2e10 a pass; some 17,000 turns of a warp
(all multiprocessors 1.05e12/s), 200 kB of panels from the nearest two caches. Predicted before measuring:

    count, nearest, write    3 passes of 0.2 s    0.6 s
    centres                  boxes of the rows 0.3 s, 275 steps of 1 ms    0.6 s
    to the host              1 GB of lists, from ordinary memory           0.3 s
    allowed for all of it                                                  3 s

Kernels alone, between two events on the device, and with --gpus the same bits from several ranks, which are processes
that this script starts (no Dask).

    python -m benchmarks.canopy.gpu --gpus 1,2,4 --out benchmarks/results/canopy/gpu.json
"""

from __future__ import annotations

import statistics
import time
from typing import Any

import numpy as np

from benchmarks.support import on_ranks, sets
from benchmarks.support import record as bench
from benchmarks.support.rank_processes import Processes
from mgclust import Canopy
from mgclust.algorithms.canopy.centers import threshold_of
from mgclust.algorithms.canopy.ranks import canopy, estimate
from mgclust.data.arrays import ArrayDataset
from mgclust.engine.spmd import RunSpec
from mgclust.kernels import load
from mgclust.kernels.pairs.metrics import METRICS

PAIRS_PER_SECOND = {"float32": 3.4e12, "float64": 1.7e12}
TARGETS = {"2-D": 0.015, "6-D": 3.0}  # seconds
CASES = {
    # name: rows, features, t1 over n, repeats
    "2-D": (1_000_000, 2, 0.5, 15),
    "6-D": (10_000_000, 6, 1.0, 3),
}


def whole_fits(out: bench.Record, options: Any) -> None:
    xp = load(options.device).xp
    for name, (rows, d, share, repeat) in CASES.items():
        n = rows // options.smaller
        X = xp.asarray(sets.normal_cube(n, d))
        for dtype in ("float64", "float32"):
            model = Canopy(share * n, 0.7 * share * n, dtype=dtype, device=options.device, client=None)
            start = time.perf_counter()
            model.fit(X)
            first = time.perf_counter() - start
            runs = []
            for _ in range(repeat):
                start = time.perf_counter()
                model.fit(X)
                runs.append((time.perf_counter() - start, dict(model.timings_)))
            whole = statistics.median(run[0] for run in runs)
            pairs = 3.5 * n * model.n_canopies_
            out.add(
                f"whole fit {name} n={n} {dtype}",
                seconds=whole,
                fastest=min(run[0] for run in runs),
                **({"target": TARGETS[name], "met": whole <= TARGETS[name]} if n == rows else {}),
                first_seconds=first,
                stages={stage: statistics.median(run[1][stage] for run in runs) for stage in runs[0][1]},
                canopies=model.n_canopies_,
                memberships_per_row=model.memberships_.nnz / n,
                steps=model.n_steps_,
                **({"pairs": pairs, "limit_seconds": pairs / PAIRS_PER_SECOND[dtype]} if d == 2 else {}),
                bits=bits_of(model),
            )


def bits_of(model: Canopy) -> str:
    members = model.memberships_
    starts = members.indptr.astype(np.int64)
    return on_ranks.digest(model.cluster_centers_indices_, model.labels_, starts, members.indices.astype(np.int32))


def kernels_alone(out: bench.Record, options: Any) -> None:
    """Each kernel at the sizes of the two-dimensional case, between events on the device."""
    kernels = load(options.device)
    xp = kernels.xp
    n = CASES["2-D"][0] // options.smaller
    X = sets.normal_cube(n, 2)
    model = Canopy(0.5 * n, 0.35 * n, device=options.device, client=None).fit(X)
    rows = range(min(n, 4096))
    for dtype in ("float64", "float32"):
        x = kernels.memory.to_device(X.astype(dtype))
        centers = kernels.memory.to_device(X[model.cluster_centers_indices_].astype(dtype))
        k = len(centers)
        t1, t2 = (threshold_of(METRICS["euclidean"], t, dtype) for t in (0.5 * n, 0.35 * n))
        counts = xp.zeros(n, dtype="int64")
        kernels.pairs.count_within(x, centers, norm="l2", threshold=t1, out=counts)
        starts = xp.cumsum(counts) - counts
        lists = xp.empty(int(counts.sum()), dtype="int32")
        picked, flags, total = xp.empty(len(rows), "uint8"), xp.zeros(n, "uint8"), xp.zeros(n, "int64")
        zeros, ones = xp.zeros(n, "int32"), xp.ones(k, "int32")
        best, index = xp.full(n, xp.inf, dtype), xp.full(n, -1, "int64")
        block = x[: len(rows)]
        tight, loose = {"norm": "l2", "threshold": t2}, {"norm": "l2", "threshold": t1}
        calls = {
            # name: call, pairs
            "first_independent": (lambda: kernels.canopy.first_independent(block, **tight, out=picked), len(rows) ** 2),  # noqa: B023
            "border": (lambda: kernels.pairs.border(x, centers, zeros, ones, **tight, out=flags), n * k),  # noqa: B023
            "count_within": (lambda: kernels.pairs.count_within(x, centers, **loose, out=total), n * k),  # noqa: B023
            "write_within": (lambda: kernels.canopy.write_within(x, centers, **loose, starts=starts, out=lists), n * k),  # noqa: B023
            "nearest_column": (
                lambda: kernels.pairs.nearest_column(
                    x, centers, norm="l2", y_start=0, best=best, best_index=index  # noqa: B023
                ),
                n * k,
            ),
        }  # fmt: skip
        for name, (call, pairs) in calls.items():
            took = statistics.median(on_ranks.clocked(kernels, call, 9))
            limit = pairs / PAIRS_PER_SECOND[dtype]
            figures = {"seconds": took, "limit_seconds": limit, "share_of_limit": limit / took}
            out.add(f"kernel {name} n={n} K={k} {dtype}", **figures, pairs_per_second=pairs / took)


def boxes_alone(out: bench.Record, options: Any) -> None:
    """What the six-dimensional case does, part by part."""
    kernels = load(options.device)
    xp = kernels.xp
    rows, d, share, _ = CASES["6-D"]
    n = rows // options.smaller
    X = sets.normal_cube(n, d)
    model = Canopy(share * n, 0.7 * share * n, device=options.device, client=None).fit(X)
    x, centers = kernels.memory.to_device(X), kernels.memory.to_device(X[model.cluster_centers_indices_])
    k = len(centers)
    loose, tight = (
        {"norm": "l2", "threshold": threshold_of(METRICS["euclidean"], t * share * n, "float64")} for t in (1.0, 0.7)
    )
    counts = xp.zeros(n, dtype="int64")
    kernels.pairs.count_within(x, centers, **loose, out=counts)
    starts, lists = xp.cumsum(counts) - counts, xp.empty(int(counts.sum()), dtype="int32")
    total, index = xp.zeros(n, dtype="int64"), xp.full(n, -1, "int64")
    picked, near = xp.empty(min(n, 4096), "uint8"), xp.zeros(n, "uint8")
    few, boxed = x[: len(picked)], kernels.canopy.row_boxes(x)

    def nearest() -> None:
        best = xp.full(n, tight["threshold"])
        kernels.pairs.nearest_column(x, centers, norm="l2", y_start=0, best=best, best_index=index)

    calls = {
        "count_within": lambda: kernels.pairs.count_within(x, centers, **loose, out=total),
        "nearest_column": nearest,
        "write_within": lambda: kernels.canopy.write_within(x, centers, **loose, starts=starts, out=lists),
        "row_boxes": lambda: kernels.canopy.row_boxes(x),
        "mark_near of 4096": lambda: kernels.canopy.mark_near(boxed, centers[:4096], **tight, out=near),
        "first_independent of 4096": lambda: kernels.canopy.first_independent(few, **tight, out=picked),
        "lists to the host": lambda: kernels.memory.to_host(lists),
    }
    for name, call in calls.items():
        took = statistics.median(on_ranks.clocked(kernels, call, 3))
        out.add(f"6-D {name} n={n} K={k} float64", seconds=took)


def several(out: bench.Record, sizes: list[int], options: Any) -> None:
    """The same data on several ranks: seconds of the stages, and whether all that is found is the same."""
    bits: dict[str, str] = {}
    for size in sizes:
        with Processes(size, options.device) as ranks:
            for name, (rows, d, share, _) in CASES.items():
                n = rows // options.smaller
                data = ArrayDataset(sets.normal_cube(n, d))
                given = {"metric": "euclidean", "t1": share * n, "t2": 0.7 * share * n, "seed": 0}
                for order in ("index", "random"):
                    parameters = {**given, "order": order}
                    spec = RunSpec(canopy, parameters, estimate, "float64")
                    ranks.run(spec, data)
                    outcome = ranks.run(spec, data)
                    value, members = outcome.value, outcome.arrays["memberships"]
                    starts = members.indptr.astype(np.int64)
                    found = on_ranks.digest(value.centers, outcome.arrays["labels"], starts, members.indices)
                    same = bits.setdefault(f"{name} {order}", found) == found
                    stages = {stage: s for stage, s in outcome.timings.items() if stage != "load"}
                    out.add(
                        f"{name} n={n} order={order} on {size}",
                        gpus=size,
                        seconds=sum(stages.values()),
                        stages=stages,
                        canopies=len(value.centers),
                        steps=value.n_steps,
                        bits=found,
                        same_bits=same,
                    )


def main() -> None:
    parser = bench.parser(__doc__)
    parser.add_argument("--gpus", default="", help="numbers of GPUs, e.g. 1,2,4, for the same bits; none by default")
    parser.add_argument("--device", default="cuda", choices=["cuda", "cpu"])
    parser.add_argument("--only", default="", help="names of cases, comma-separated; all by default")
    parser.add_argument("--smaller", type=int, default=1, help="divide the rows by this, to try the script out")
    options = parser.parse_args()
    for name in [name for name in CASES if options.only and name not in options.only.split(",")]:
        del CASES[name]
    out = bench.Record(__doc__, options.out)
    out.note("limits_pairs_per_second", PAIRS_PER_SECOND)
    whole_fits(out, options)
    if "2-D" in CASES:
        kernels_alone(out, options)
    if "6-D" in CASES:
        boxes_alone(out, options)
    several(out, [int(size) for size in options.gpus.split(",") if size], options)


if __name__ == "__main__":
    main()
