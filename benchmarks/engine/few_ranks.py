"""From which work on several workers are faster than one: warm fits of one client on the workers of one host.

Each time is the fastest of some fits on 1, 2, 4, ... ranks, by turns; a CPU rank has its worker's share of the cores,
however many ranks there are. Rows and edges are NumPy arrays of the client, which the workers have been sent by the fit
before.

    python -m benchmarks.engine.few_ranks --workers 2 --out few_ranks_cpu.json
    python -m benchmarks.engine.few_ranks --gpus 2 --seconds 1.5 --out few_ranks_gpu.json
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np

from benchmarks.support import record as bench
from benchmarks.support import sets


def cases(gpus: int) -> Iterator[tuple[str, float, Callable[..., Any], Any]]:
    """Name, work, estimator without its place, and rows; larger ones for GPUs."""
    from mgclust import AffinityPropagation, Canopy, Communities, DensityPeaks, FuzzyCMeans

    rng = np.random.default_rng(0)
    for edges in (5_000_000, 20_000_000, 60_000_000) if gpus else (50_000, 200_000, 1_000_000, 4_000_000):
        nodes = edges // 10
        ends = rng.integers(0, nodes, (edges, 2))
        ends[: 4 * edges // 5, 1] = ends[: 4 * edges // 5, 0] // 100 * 100 + ends[: 4 * edges // 5, 1] % 100
        ends = np.minimum(ends, nodes - 1)
        yield f"communities, {edges} edges", edges, partial(Communities, random_state=0), ends
    for n in (10_000, 30_000, 60_000) if gpus else (500, 1000, 2000, 4000):
        x = rng.normal(size=(n, 8))
        model = partial(AffinityPropagation, max_iter=100, preference_quantile=0.1)
        yield f"affinity propagation, {n} x 8", n * n, model, x
    for n in (300_000, 3_000_000, 30_000_000) if gpus else (3_000, 30_000, 300_000, 3_000_000):
        x = rng.standard_normal((n, 8), dtype=np.float32)
        model = partial(FuzzyCMeans, 8, m=2.0, max_iter=20, random_state=0)
        yield f"fuzzy c-means, {n} x 8, 8 clusters", n * 64, model, x
    for d in (8, 128) if gpus else (8,):
        for n in (30_000, 100_000, 300_000) if gpus else (1_000, 3_000, 10_000, 30_000):
            x = rng.standard_normal((n, d), dtype=np.float32)
            yield f"density peaks, {n} x {d}", n * n * (d if gpus else 1), partial(DensityPeaks, 5, dc_fraction=0.02), x
    for n in (100_000, 1_000_000, 10_000_000) if gpus else ():
        yield f"density peaks, {n} x 2", n, partial(DensityPeaks, 5, dc_fraction=0.02), sets.birch_like(n)
    for n in (300_000, 3_000_000, 30_000_000) if gpus else (3_000, 30_000, 300_000, 3_000_000):
        x = rng.random((n, 2), dtype=np.float32)
        yield f"canopies, {n} x 2", n, partial(Canopy, 0.1, 0.05), x


def main() -> None:
    parser = bench.parser(__doc__)
    parser.add_argument("--seconds", type=float, default=3.0, help="of a case")
    parser.add_argument("--workers", type=int, default=2, help="a power of two")
    parser.add_argument("--gpus", type=int, default=0, help="so many workers with a GPU each in their place")
    options = parser.parse_args()
    record = bench.Record(__doc__, options.out)
    workers, device = options.gpus or options.workers, "cuda" if options.gpus else "cpu"
    numbers = [1 << i for i in range(workers.bit_length())]
    from distributed import Client, LocalCluster

    if options.gpus:
        from dask_cuda import LocalCUDACluster
    with (
        (LocalCUDACluster if options.gpus else LocalCluster)(
            n_workers=workers, threads_per_worker=1, dashboard_address=None
        ) as cluster,
        Client(cluster, set_as_default=False) as client,
    ):
        for name, work, model, rows in cases(options.gpus):
            taken: dict[int, list[float]] = {ranks: [] for ranks in numbers}
            end = time.monotonic() + options.seconds
            while time.monotonic() < end or len(taken[1]) < 4:
                for ranks, seconds in taken.items():
                    place = {"client": client, "device": device, "n_workers": ranks}
                    began = time.perf_counter()
                    model(**place).fit(rows)
                    seconds.append(time.perf_counter() - began)
            best = {ranks: 1e3 * min(seconds[1:]) for ranks, seconds in taken.items()}
            gains = {ranks: best[1] / ms for ranks, ms in best.items()}
            record.add(name, work=work, ms=best, gain=gains, fits=len(taken[1]))


if __name__ == "__main__":
    main()
