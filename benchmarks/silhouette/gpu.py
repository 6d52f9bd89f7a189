"""The exact silhouette of a million rows on one GPU and on several: pairs a second against the limit, and efficiency.

50 Gaussians and their labels. Euclidean, n^2 distances: the limit in two dimensions is the square root, 16 a clock and
multiprocessor (H200: 132 x 1.98 GHz x 16 = 4.2e12 pairs a second); in 120 dimensions two float32 operations a feature
(33.5e12 a second / 240 = 1.4e11 pairs a second). Correlation has a closed form, which passes over the rows three
times and over no pairs: its limit is those reads in float64. Times are of the stage, data on the devices, the median
of some after a first one in the same run. scikit-learn's silhouette_samples runs on 20,000 rows, same data and host.

    python -m benchmarks.silhouette.gpu --gpus 1 --out NAME.json
    python -m benchmarks.silhouette.gpu --gpus 1,4 --no-sklearn --out NAME.json
"""

from __future__ import annotations

import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.density_peaks.scaling import cluster
from benchmarks.support import on_ranks, sets
from benchmarks.support import record as bench

CLUSTERS = 50
# Pairs a second and GPU: square roots; three products of halves, of 128 features, on tensor cores.
LIMITS = {2: 4.2e12, 120: 989e12 / (3 * 2 * 128)}
BANDWIDTH = 4.25e12  # bytes a second and GPU, of a copy
SHARE, EFFICIENCY = 0.5, 0.85
CASES = [("euclidean", 2), ("euclidean", 120), ("correlation", 120)]
SKLEARN_ROWS = 20_000


def score(context: Any, *, metric: str, codes: np.ndarray, repeat: int = 1) -> dict[str, Any]:
    """The method's stages; the silhouettes again and again, because a communicator's first use takes its time."""
    from mgclust.algorithms.common.preparation import prepare_rows
    from mgclust.algorithms.silhouette.ranks import score_labelings
    from mgclust.kernels.pairs.metrics import METRICS

    on_ranks.free_pool()
    with context.stage("prepare"):
        prepare_rows(context, METRICS[metric])
    times = []
    for _ in range(repeat):
        context.comm.barrier()
        before = context.timings.get("silhouette", 0.0)
        with context.stage("silhouette"):
            scores = score_labelings(context, METRICS[metric], [codes], keep_samples=True)[0]
        times.append(context.timings["silhouette"] - before)
    return {
        "seconds": times,
        "score": scores.score,
        "bits": on_ranks.digest(scores.samples),
        "device_bytes": on_ranks.device_bytes(),
    }


def measure(out: bench.Record, client: Any, size: int, metric: str, path: Path, y: np.ndarray, options: Any, one: dict):
    device = "cpu" if options.cpu else "cuda"
    n, d = np.load(path, mmap_mode="r").shape
    closed = metric != "euclidean"
    kind = {"dtype": "float64" if closed else "float32", "metric": "" if closed else "euclidean"}
    arguments = {"metric": metric, "codes": y, "repeat": 1 + options.repeat}
    outcome = on_ranks.on(client, size, device, score, str(path), options=kind, **arguments)
    first_use, *times = outcome.value["seconds"]
    took = statistics.median(times)
    if closed:
        limit = 3 * 8.0 * n * d / BANDWIDTH / size
    else:
        limit = float(n) * n / LIMITS.get(d, 33.5e12 / (2 * d)) / size
    first = one.setdefault((metric, d), (size, took, outcome.value["bits"]))
    efficiency = first[0] * first[1] / (size * took)
    out.add(
        f"{metric} n={n} d={d} on {size}",
        metric=metric,
        n=n,
        d=d,
        gpus=size,
        seconds=took,
        first_use_seconds=first_use,
        runs=times,
        limit_seconds=limit,
        share_of_limit=limit / took,
        target_share=None if closed else SHARE,
        pairs_per_second=None if closed else float(n) * n / took,
        efficiency=efficiency,
        target_efficiency=EFFICIENCY if size > 1 and not closed else None,
        same_bits=outcome.value["bits"] == first[2],
        bits=outcome.value["bits"],
        score=outcome.value["score"],
        timings=outcome.timings,
        device_gib_of_rank_0=outcome.value["device_bytes"] / 2**30,
    )


def beside_sklearn(out: bench.Record, metric: str, X: np.ndarray, y: np.ndarray, device: str) -> None:
    from sklearn.metrics import silhouette_samples as theirs

    from mgclust import silhouette_samples as ours

    def run() -> tuple[float, np.ndarray]:
        start = time.perf_counter()
        values = ours(X, y, metric=metric, device=device, client=None)
        return time.perf_counter() - start, values

    run()
    took, values = min((run() for _ in range(3)), key=lambda pair: pair[0])
    start = time.perf_counter()
    expected = theirs(X, y, metric=metric)
    other = time.perf_counter() - start
    out.add(
        f"scikit-learn {metric} n={len(X)} d={X.shape[1]}",
        sklearn_seconds=other,
        our_seconds_whole_call=took,
        ratio=other / took,
        largest_difference=float(np.abs(values - expected).max()),
    )


def main() -> None:
    parser = bench.parser(__doc__)
    parser.add_argument("--gpus", default="1", help="numbers of GPUs, comma-separated (default 1)")
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--repeat", type=int, default=2, help="timed after the first use")
    parser.add_argument("--cpu", action="store_true", help="CPU ranks instead, to try the script out")
    parser.add_argument("--no-sklearn", action="store_true")
    parser.add_argument("--small", action="store_true", help="tiny, to try the script out")
    options = parser.parse_args()
    if options.small:
        options.rows = 6_000
    sizes = sorted(int(size) for size in options.gpus.split(","))
    device = "cpu" if options.cpu else "cuda"
    out = bench.Record(__doc__, options.out)
    out.note("limits_pairs_per_second_and_gpu", LIMITS)
    out.note("closed_form_limit", "the rows in float64 read three times at 4.25e12 bytes a second and GPU")
    out.note("targets", {"share_of_limit": SHARE, "efficiency": EFFICIENCY})
    one: dict[tuple[str, int], tuple[int, float, str]] = {}
    with tempfile.TemporaryDirectory() as folder:
        data = {}
        for d in sorted({d for _, d in CASES}):
            X, y = sets.gaussians(options.rows, d, CLUSTERS)
            y = y.astype(np.int32)
            path, head = Path(folder) / f"{d}.npy", Path(folder) / f"{d}-head.npy"
            np.save(path, X)
            few = X[: 4096 * sizes[-1]]
            np.save(head, few)
            data[d] = (path, y, head, X[:SKLEARN_ROWS].copy())
            del X
        for size in sizes:
            with Clients(size, options.cpu) as client:
                for metric, d in CASES:
                    path, y, head, _ = data[d]
                    known = np.unique(y[: 4096 * sizes[-1]], return_inverse=True)[1].astype(np.int32)
                    kind = {"dtype": "float64" if metric != "euclidean" else "float32"}
                    try:
                        on_ranks.on(client, size, device, score, str(head), metric=metric, codes=known, options=kind)
                        measure(out, client, size, metric, path, y, options, one)
                    except Exception as error:
                        out.add(f"{metric} d={d} on {size}", failed=f"{type(error).__name__}: {error}")
        for metric, d in () if options.no_sklearn else CASES:
            _, y, _, few = data[d]
            beside_sklearn(out, metric, few, y[: len(few)], device)
    efficiencies = [i["efficiency"] for i in out.document["items"] if i.get("target_efficiency")]
    if efficiencies:
        out.note("lowest_efficiency", min(efficiencies))
        print(f"lowest efficiency {min(efficiencies):.2f}", flush=True)


class Clients:
    """A client of so many workers, or None for one: then the run is in this process, without Dask."""

    def __init__(self, size: int, cpu: bool) -> None:
        self.both = None if size == 1 else cluster(size, cpu)

    def __enter__(self) -> Any:
        return None if self.both is None else self.both.__enter__()

    def __exit__(self, *arguments: object) -> None:
        if self.both is not None:
            self.both.__exit__(*arguments)


if __name__ == "__main__":
    main()
