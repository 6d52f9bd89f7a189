"""How much the client's memory grows while rows of a Dask array are clustered, and where the arrays of the result are.

Two workers of one thread, or of one GPU each; rows are made on them, in float32, around eight points of a plane. The
process that is looked at has the client and the scheduler, so what passes either counts. Its resident memory is read
every 5 ms; what it reached above that before the fit stands beside the bytes of the result's arrays. Each item runs in
a process of its own, after a small fit, which imports and compiles.

    python -m benchmarks.engine.client_memory --out client_memory_cpu.json
    python -m benchmarks.engine.client_memory --gpus 2 --rows 1000000000 --only "fuzzy c-means" --out NAME.json
"""

from __future__ import annotations

import functools
import gc
import json
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil

from benchmarks.support import record as bench

ROOT = Path(__file__).resolve().parents[2]
SMALL = 20_000
CHUNK = 1 << 20
MAX_GATHERED = 20_000_000
# Item: rows.
ITEMS = {
    "fuzzy c-means": 20_000_000,
    "fuzzy c-means, weights": 20_000_000,
    "fuzzy c-means, predict": 20_000_000,
    "fuzzy c-means, memberships": 20_000_000,
    "canopies": 20_000_000,
    "canopies, predict": 20_000_000,
    "silhouettes (sqeuclidean)": 20_000_000,
    "density peaks": 20_000_000,
    "density peaks of 20,000 rows, predict": 1_000_000,
    "nearest neighbours": 200_000,
}


class Peak:
    """The most resident memory of this process in a block, above that before it; bytes."""

    def __enter__(self) -> Peak:
        gc.collect()
        self._process, self._over = psutil.Process(), threading.Event()
        self._before = self._most = self._process.memory_info().rss
        self._thread = threading.Thread(target=self._look, daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()
        self.grown = self._most - self._before

    def _look(self) -> None:
        while not self._over.wait(0.005):
            self._most = max(self._most, self._process.memory_info().rss)


def rows(client: Any, n: int) -> Any:
    """Points of the plane on the workers."""
    import dask.array as da
    from distributed import wait

    lengths = da.core.normalize_chunks(CHUNK, (n,))
    X = client.persist(da.map_blocks(_block, chunks=(*lengths, (2,)), dtype="float32", meta=_block(block_info=None)))
    wait(X)
    return X


def _block(block_info: Any) -> Any:
    import numpy as np

    if block_info is None:
        return np.empty((0, 2), np.float32)
    (start, stop), _ = block_info[None]["array-location"]
    # Drawing a million rows once, and moving them a little for each block, takes seconds for a thousand millions.
    shift = np.random.default_rng(start).normal(scale=0.01, size=2).astype(np.float32)
    return _drawn()[: stop - start] + shift


@functools.cache
def _drawn() -> Any:
    import numpy as np

    rng = np.random.default_rng(0)
    angle = rng.integers(0, 8, CHUNK) * (2 * np.pi / 8)
    rows = 8 * np.stack([np.cos(angle), np.sin(angle)], axis=1) + rng.normal(scale=0.5, size=(CHUNK, 2))
    return rows.astype(np.float32)


def measured(item: str, n: int, gpus: int) -> dict[str, Any]:
    """Figures of one item of so many rows, on CPU workers where there are no `gpus`."""
    import numpy as np
    from distributed import Client, LocalCluster, futures_of, wait

    if gpus:
        from dask_cuda import LocalCUDACluster

    from mgclust import Canopy, DensityPeaks, FuzzyCMeans, nearest_neighbors, silhouette_samples

    method, _, what = item.partition(", ")
    workers = {"n_workers": gpus or 2, "threads_per_worker": 1, "dashboard_address": None}
    with (LocalCUDACluster if gpus else LocalCluster)(**workers) as cluster, Client(cluster) as client:
        few, X = rows(client, SMALL), rows(client, n)
        steps: dict[str, Callable[[Any], list[Any]]] = {
            "canopies": lambda X: _arrays(Canopy(4.0, 2.0, dtype="float32").fit(X), "labels_", "memberships_"),
            "fuzzy c-means": lambda X: _arrays(FuzzyCMeans(8, m=2.0, random_state=0, max_iter=5).fit(X), "labels_"),
            "density peaks": lambda X: _arrays(
                DensityPeaks(8, dc=0.3).fit(X), "labels_", "rho_", "delta_", "nearest_higher_"
            ),
            "nearest neighbours": lambda X: list(nearest_neighbors(X, 5)),
            "silhouettes (sqeuclidean)": lambda X: [silhouette_samples(X, _quadrants(X), metric="sqeuclidean")],
        }
        call = steps.get(method, steps["density peaks"])
        if what == "weights":
            weights = {each.shape: client.persist(each[:, 0] ** 2) for each in (few, X)}
            wait(list(weights.values()))
            heavy = FuzzyCMeans(8, m=2.0, random_state=0, max_iter=5)
            call = lambda X: _arrays(heavy.fit(X, sample_weight=weights[X.shape]), "labels_")  # noqa: E731
        elif what:
            model = {"canopies": Canopy(4.0, 2.0), "fuzzy c-means": FuzzyCMeans(8, m=2.0, random_state=0, max_iter=5)}
            fitted = model.get(method, DensityPeaks(8, dc=0.3)).fit(few)
            call = {
                "predict": lambda X: [fitted.predict(X)],
                "memberships": lambda X: [fitted.predict_memberships(X)],
            }[what]
        call(few)
        with Peak() as peak:
            began = time.perf_counter()
            arrays = call(X)
            seconds = time.perf_counter() - began
        part = arrays[0][: min(n, MAX_GATHERED)]
        with Peak() as gathering:  # what the same look says where something does pass
            part.compute()
        holders = client.who_has(futures_of(arrays))
        return {
            "rows": n,
            "seconds": seconds,
            "client_grew_mb": peak.grown / 1e6,
            "client_grew_mb_by_gathering_the_first_array": gathering.grown / 1e6,
            "gathered_rows": len(part),
            "dense_arrays_mb": sum(array.nbytes for array in arrays if isinstance(array._meta, np.ndarray)) / 1e6,
            "workers_that_hold_them": len({address for each in holders.values() for address in each}),
            "first_and_last": [np.asarray(arrays[0][at].compute()).ravel()[:2].tolist() for at in (0, n - 1)],
        }


def _arrays(model: Any, *names: str) -> list[Any]:
    return [getattr(model, name) for name in names]


def _quadrants(X: Any) -> Any:
    return (X[:, 0] > 0) * 2 + (X[:, 1] > 0)


def main() -> None:
    parser = bench.parser(__doc__)
    parser.add_argument("--only", help="items, separated by semicolons")
    parser.add_argument("--rows", type=int, help="in place of the number that each item has")
    parser.add_argument("--gpus", type=int, default=0, help="so many workers with a GPU each")
    options = parser.parse_args()
    record = bench.Record(__doc__, options.out)
    for item in options.only.split(";") if options.only else ITEMS:
        code = (
            "import json, warnings\n"
            "if __name__ == '__main__':\n"
            "    warnings.simplefilter('ignore')\n"
            "    from benchmarks.engine.client_memory import measured\n"
            f"    print('found', json.dumps(measured({item!r}, {options.rows or ITEMS[item]}, {options.gpus})))"
        )
        out = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False)
        lines = [line for line in out.stdout.splitlines() if line.startswith("found ")]
        if not lines:
            sys.exit(out.stderr)
        record.add(item, **json.loads(lines[0][6:]))


if __name__ == "__main__":
    main()
