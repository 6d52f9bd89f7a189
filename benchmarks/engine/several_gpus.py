"""Whole warm fits on a Dask cluster of GPUs: by one worker, by all of them, and by as many as the run chooses itself.

Rows of 128 features are a Dask array that lies on the workers, other data a NumPy array of the client, which workers
have been sent by the fit before. Seconds are medians of the whole call, by turns after a first call of each; results
of Dask arrays stay with the workers. Beside them the same call without Dask, in this process on one GPU. One hash over
labels, scores and centres says whether all have the same bits. Wanted on two GPUs of one host:

    density peaks 20,000 x 2        0.09 s
    density peaks 300,000 x 128     1.8 times as fast as one GPU
    silhouettes, fuzzy c-means, canopies of the same rows    1.7, 1.5, 1.2 times
    affinity propagation 30,000, 400 iterations    1.5 times, or one GPU chosen by itself
    communities of 20 million edges    1.3 times, or one GPU chosen by itself
    canopies 10,000,000 x 6    1.7 times

Since these figures were set, one GPU has become three to eight times as fast in all but communities, so what a call
costs beside its work counts for more: the same methods with as much work as they then had stand beside them.

    python -m benchmarks.engine.several_gpus --gpus 2 --out benchmarks/results/engine/several_gpus.json
"""

from __future__ import annotations

import hashlib
import statistics
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import scipy.sparse

from benchmarks.support import record as bench
from benchmarks.support import sets

WANTED = {
    "density peaks, 300k x 128": 1.8,
    "silhouettes, 300k x 128": 1.7,
    "fuzzy c-means, 300k x 128": 1.5,
    "canopies, 300k x 128": 1.2,
    "affinity propagation, 30k x 64": 1.5,
    "communities, 20M edges": 1.3,
    "canopies, 10M x 6": 1.7,
    "density peaks, 1.2M x 128": 1.8,
    "silhouettes, 1M x 128": 1.7,
    "fuzzy c-means, 3M x 128": 1.5,
}


def cases(smaller: int) -> Iterator[tuple[str, bool, Any, Callable[..., Any]]]:
    """Name, whether the rows lie on the workers, data, and a call of the data and the place that returns results."""
    from mgclust import AffinityPropagation, Canopy, Communities, DensityPeaks, FuzzyCMeans
    from mgclust.algorithms.silhouette.estimator import Silhouette
    from mgclust.data import open_dataset

    def attributes(model: Any, *names: str) -> list[Any]:
        return [model.timings_, *(getattr(model, name) for name in names)]

    def density(k: int) -> Callable[..., Any]:
        def call(x: Any, **place: Any) -> Any:
            model = DensityPeaks(n_clusters=k, dc_fraction=0.02, **place).fit(x)
            return attributes(model, "labels_", "rho_", "delta_")

        return call

    yield "density peaks, 20k x 2", False, sets.birch_like(20_000 // smaller), density(20)
    n = 300_000 // smaller
    x, labels = sets.gaussians(n, 128, 50)
    yield "density peaks, 300k x 128", True, x, density(50)

    def silhouettes(x: Any, **place: Any) -> Any:
        model = Silhouette(labels[: x.shape[0]], metric="euclidean", **place)
        model.fit_dataset(open_dataset(x), provenance=False)
        return attributes(model, "samples_")

    yield "silhouettes, 300k x 128", True, x, silhouettes

    def fuzzy(x: Any, **place: Any) -> Any:
        model = FuzzyCMeans(256, m=2.0, max_iter=40, tol=0.0, random_state=0, **place).fit(x)
        return attributes(model, "labels_", "cluster_centers_")

    yield "fuzzy c-means, 300k x 128", True, x, fuzzy

    def canopies(t1: float, t2: float) -> Callable[..., Any]:
        def call(x: Any, **place: Any) -> Any:
            model = Canopy(t1, t2, **place).fit(x)
            return attributes(model, "labels_", "cluster_centers_indices_", "memberships_")

        return call

    few = x[: min(n, 2000)].astype(np.float64)
    squares = np.einsum("ij,ij->i", few, few)
    apart = np.sqrt(np.maximum(squares[:, None] + squares - 2 * few @ few.T, 0))
    near = float(np.quantile(apart[apart > 1e-3], 0.01))  # half of a cluster's pairs: some thousand canopies
    yield "canopies, 300k x 128", True, x, canopies(1.05 * near, near)

    def affinity(x: Any, **place: Any) -> Any:
        import warnings

        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            model = AffinityPropagation(max_iter=400, convergence_iter=400, random_state=0, **place).fit(x)
        return attributes(model, "labels_", "cluster_centers_indices_")

    yield "affinity propagation, 30k x 64", False, sets.gaussians(30_000 // smaller, 64, 60)[0], affinity

    rng = np.random.default_rng(0)
    edges = 20_000_000 // smaller
    nodes = edges // 10
    ends = rng.integers(0, nodes, (edges, 2))
    near = rng.random(edges) < 0.8
    ends[near, 1] = np.minimum(ends[near, 0] // 100 * 100 + ends[near, 1] % 100, nodes - 1)

    def communities(x: Any, **place: Any) -> Any:
        model = Communities(strategy="parallel", random_state=0, **place).fit(x)
        return attributes(model, "labels_", "modularity_")

    yield "communities, 20M edges", False, ends.astype(np.int32), communities
    n = 10_000_000 // smaller
    yield "canopies, 10M x 6", True, sets.normal_cube(n, 6), canopies(float(n), 0.7 * n)
    x, labels = sets.gaussians(3_000_000 // smaller, 128, 50)
    yield "density peaks, 1.2M x 128", True, x[: 1_200_000 // smaller], density(50)
    yield "silhouettes, 1M x 128", True, x[: 1_000_000 // smaller], silhouettes
    yield "fuzzy c-means, 3M x 128", True, x, fuzzy


def digest(values: list[Any]) -> str:
    out = hashlib.sha256()
    for value in values[1:]:
        value = value.compute() if hasattr(value, "compute") else value
        if scipy.sparse.issparse(value):
            out.update(np.ascontiguousarray(value.indptr, np.int64).tobytes())
            value = value.indices.astype(np.int64)
        out.update(np.ascontiguousarray(value).tobytes())
    return out.hexdigest()[:16]


def main() -> None:
    parser = bench.parser(__doc__)
    parser.add_argument("--gpus", type=int, default=2)
    parser.add_argument("--cpu", action="store_true", help="CPU workers in their place, to try the script out")
    parser.add_argument("--smaller", type=int, default=1, help="divide the rows by this, to try the script out")
    parser.add_argument("--only", help="beginnings of the names of cases, separated by semicolons")
    parser.add_argument("--repeat", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=30.0, help="of a case, after its first calls")
    options = parser.parse_args()
    record = bench.Record(__doc__, options.out)
    import dask.array as da
    from distributed import Client, LocalCluster, wait

    if options.cpu:
        local = LocalCluster(n_workers=options.gpus, threads_per_worker=1, dashboard_address=None)
    else:
        from dask_cuda import LocalCUDACluster

        local = LocalCUDACluster(n_workers=options.gpus, dashboard_address=None)
    device = "cpu" if options.cpu else "cuda"
    with local as cluster, Client(cluster) as client:
        for name, on_workers, data, call in cases(options.smaller):
            if options.only and not name.startswith(tuple(options.only.split(";"))):
                continue
            given = data
            if on_workers:
                given = client.persist(da.from_array(data, chunks=(-(-len(data) // (4 * options.gpus)), -1)))
                wait(given)
            place = {"client": client, "device": device}
            ways: dict[str, Callable[[], Any]] = {
                "in process": lambda: call(data, client=None, device=device),  # noqa: B023
                "1": lambda: call(given, n_workers=1, **place),  # noqa: B023
                str(options.gpus): lambda: call(given, n_workers=options.gpus, **place),  # noqa: B023
                "chosen": lambda: call(given, **place),  # noqa: B023
            }
            try:
                taken: dict[str, list[float]] = {way: [] for way in ways}
                stages, bits = {}, {}
                for way, run in ways.items():
                    bits[way] = digest(run())
                end = time.monotonic() + options.seconds
                while len(taken["in process"]) < options.repeat and time.monotonic() < end:
                    for way, run in ways.items():
                        began = time.perf_counter()
                        found = run()
                        taken[way].append(time.perf_counter() - began)
                        stages[way] = found[0]
                medians = {way: statistics.median(each) for way, each in taken.items()}
                gain = medians["1"] / medians[str(options.gpus)]
                record.add(
                    name, seconds=medians, fits=len(taken["1"]), gain=gain,
                    gain_over_in_process=medians["in process"] / medians[str(options.gpus)],
                    chosen_over_one=medians["1"] / medians["chosen"], wanted=WANTED.get(name),
                    same_bits=len(set(bits.values())) == 1, stages=stages,
                )  # fmt: skip
            except Exception as error:  # one case that fails does not take the others with it
                record.add(name, failed=f"{type(error).__name__}: {error}"[:500])
            given = None


if __name__ == "__main__":
    main()
