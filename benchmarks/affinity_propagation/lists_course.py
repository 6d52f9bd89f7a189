"""The course of an adaptive scan on neighbour lists: what an iteration takes, and what lists hold, by clusters left.

    python -m benchmarks.affinity_propagation.lists_course brain.npy --every 5 --cpu --out NAME.json
    python -m benchmarks.affinity_propagation.lists_course brain.npy finer.npy --out NAME.json
    python -m benchmarks.affinity_propagation.lists_course blobs:10000 --cpu --out NAME.json

Rows are those of a brain (correlation), or so many generated ones in 8 dimensions (Euclidean). Of each range of numbers
of clusters: iterations, milliseconds of one by the clock and of processor time of all threads, and, a row, the means
of the elements with an A of their own, of those read behind them, of what lists hold and of what arrays have room for.
Limit: 12 bytes (float32) for each element with an A of its own; `lists_gib` is the most that arrays took.
"""

from __future__ import annotations

import hashlib
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise
from typing import Any

import numpy as np

from benchmarks.support import on_ranks
from benchmarks.support import record as bench

RANGES = (1 << 30, 2000, 500, 200, 100, 50, 25, 12, 6, 3, 0)  # of numbers of clusters: above the next one
LOOK_EVERY = 4  # batches of iterations: a look at lists waits for a device
FIGURES = ("own", "read", "by_active", "held", "room", "active")


class Course:
    """What the iterations of a fit were like."""

    def __init__(self) -> None:
        self.batches: list[tuple[int, int, float, float]] = []  # clusters, iterations, seconds, of processors
        self.looks: list[tuple[float, ...]] = []
        self.most = 0

    @contextmanager
    def watched(self) -> Iterator[None]:
        """Watch fits of this process."""
        from mgclust.algorithms.affinity_propagation.message_passing import MessagePassing

        original = MessagePassing.iterate

        def iterate(messages: Any, dampings: list[float]) -> list[tuple[int, bool]]:
            clock, processors = time.perf_counter(), time.process_time()
            found = original(messages, dampings)
            clock, processors = time.perf_counter() - clock, time.process_time() - processors
            self.batches.append((found[-1][0], len(dampings), clock, processors))
            if len(self.batches) % LOOK_EVERY == 0 and hasattr(messages.messages, "own"):
                self._look(found[-1][0], messages.messages)
            return found

        MessagePassing.iterate = iterate
        try:
            yield
        finally:
            MessagePassing.iterate = original

    def _look(self, clusters: int, m: Any) -> None:
        rows, read = len(m.own), m.read
        self.most = max(self.most, m.column.nbytes + m.s.nbytes + m.a.nbytes)
        figures = (m.own.sum(), read[read > 0].sum(), (read < 0).sum(), m.length.sum())
        self.looks.append((clusters, *(float(each) / rows for each in figures), len(m.column) / rows, len(m.active)))

    def table(self) -> list[dict[str, Any]]:
        """A line for each range."""
        batches, looks = np.array(self.batches), np.array(self.looks).reshape(-1, 1 + len(FIGURES))
        lines = []
        for most, least in pairwise(RANGES):
            part = batches[(batches[:, 0] <= most) & (batches[:, 0] > least)]
            seen = looks[(looks[:, 0] <= most) & (looks[:, 0] > least), 1:]
            if not len(part):
                continue
            iterations, seconds, processors = part[:, 1:].sum(axis=0)
            line = {"clusters": f"{least + 1} to {most}" if most < RANGES[0] else f"> {least}"}
            line |= {"iterations": int(iterations), "ms_iteration": float(1e3 * seconds / iterations)}
            line |= {"processor_ms_iteration": float(1e3 * processors / iterations)}
            if len(seen):
                line |= dict(zip(FIGURES, seen.mean(axis=0).round(3).tolist(), strict=True))
            lines.append(line)
        return lines


def rows_of(name: str, every: int) -> tuple[np.ndarray, str]:
    """Rows, and their affinity."""
    if not name.startswith("blobs:"):
        return np.ascontiguousarray(np.load(name)[::every]), "correlation"
    n, rng = int(name.partition(":")[2]), np.random.default_rng(0)
    X = 3 * rng.normal(size=(60, 8))[rng.integers(60, size=n)] + rng.normal(size=(n, 8))
    return X.astype("float32"), "euclidean"


def main() -> None:
    parser = bench.parser(__doc__)
    parser.add_argument("rows", nargs="+", help=".npy files of rows of brains, or blobs:NUMBER")
    parser.add_argument("--every", type=int, default=1, help="of each file only every so many rows")
    parser.add_argument("--profile", default="fast", choices=["code", "paper", "fast"])
    parser.add_argument("--max-iter", type=int, default=50_000)
    parser.add_argument("--low", type=int, default=2, help="number of clusters at which scans end")
    parser.add_argument("--cpu", action="store_true", help="the CPU instead")
    parser.add_argument("--small", action="store_true", help="few rows only, to try the script out")
    options = parser.parse_args()
    from mgclust import AdaptiveAffinityPropagation

    out = bench.Record(__doc__, options.out)
    common = {"device": "cpu" if options.cpu else "cuda", "client": None, "random_state": 0, "algorithm": "sparse"}
    for name in options.rows:
        X, affinity = rows_of(name, options.every * (16 if options.small else 1))
        given = {**common, "affinity": affinity, "profile": options.profile}
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            AdaptiveAffinityPropagation(**given, max_iter=300).fit(X[:3000])  # compiles
            on_ranks.free_pool()
            course = Course()
            model = AdaptiveAffinityPropagation(
                **given, max_iter=options.max_iter, n_clusters_range=(options.low, len(X))
            )
            start, failed = time.perf_counter(), None
            with course.watched():
                try:
                    model.fit(X)
                except Exception as error:
                    failed = f"{type(error).__name__}: {error}"
        wall = time.perf_counter() - start
        ended = {"failed": failed} if failed else result_of(model)
        out.add(
            f"{name.rpartition('/')[2]}, {len(X)} rows, to K = {options.low}",
            rows=len(X),
            parameters={"profile": options.profile, "every": options.every, "affinity": affinity},
            wall_seconds=wall,
            lists_gib=course.most / 2**30,
            device_gib=on_ranks.device_bytes() / 2**30,
            course=course.table(),
            **ended,
        )
        for line in course.table():
            print("   ", line, flush=True)


def result_of(model: Any) -> dict[str, Any]:
    """What came out, and a hash of what must not depend on how long lists are."""
    parts = [model.labels_, *(np.asarray(column) for column in model.scan_.values())]
    return {
        "iterations": model.n_iter_,
        "n_clusters": model.n_clusters_,
        "timings": dict(model.timings_),
        "exactness": dict(model.exactness_),
        "bits": hashlib.sha256(b"".join(part.tobytes() for part in parts)).hexdigest()[:16],
    }


if __name__ == "__main__":
    main()
