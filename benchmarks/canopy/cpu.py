"""Canopy clustering on a CPU beside a sequential k-d tree and NumPy: time, memory, the same answer.

The paper's data (`papers_data` of the oracle): normal in a cube of side 10 n, t1 = 0.5 n (in 6-D t1 = n, as nearly
every row is a centre otherwise), t2 = 0.7 t1. Each part in a process of its own, memberships included, rows in the
order of the file and, for ours, sorted and in random order too. The median of three runs after a first one; a method
slower than a minute runs once. The others:

- k-d tree: SciPy's cKDTree; candidates one after the other, each centre's ball of t2 taken from the candidates; then
  the balls of t1 around all centres, and the transpose of their lists.
- NumPy: the distances of each centre to the candidates that are left; then those of all rows to all centres, in blocks.

Nothing may differ: a hash over centres and memberships of the same rows stands beside every time. Memory is what the
process grew by during a fit, over the rows: for n that doubles at the same number of canopies it must not rise.

    python -m benchmarks.canopy.cpu --out benchmarks/results/canopy/cpu.json
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse
from scipy.spatial import cKDTree

from benchmarks.support import on_ranks
from benchmarks.support import record as bench

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tests"))
from oracles import canopy as reference

CASES = [(100_000, 2), (1_000_000, 2), (100_000, 6)]
SMALL = [(5_000, 2), (20_000, 2), (5_000, 6)]
GROWTH = [250_000, 500_000, 1_000_000, 2_000_000]
METHODS = ("ours", "k-d tree", "NumPy", "ours, sorted rows", "ours, order=random", "ours, float32", "ours")
SLOW = 60.0

Answer = tuple[np.ndarray, Any]  # centres, memberships as compressed sparse rows


def ours(X: np.ndarray, t1: float, t2: float, **options: Any) -> Answer:
    from mgclust import Canopy

    model = Canopy(t1, t2, device="cpu", client=None, random_state=0, **options).fit(X)
    return model.cluster_centers_indices_, model.memberships_


def tree(X: np.ndarray, t1: float, t2: float) -> Answer:
    points, candidate, centers = cKDTree(X), np.ones(len(X), bool), []
    at = 0
    while at < len(X):
        centers.append(at)
        candidate[points.query_ball_point(X[at], t2)] = False
        left = candidate[at:]
        step = int(left.argmax())
        at = at + step if left[step] else len(X)
    balls = points.query_ball_point(X[centers], t1)
    ends = np.cumsum([0, *map(len, balls)])
    members = scipy.sparse.csr_array(
        (np.ones(ends[-1], bool), np.concatenate(balls), ends), shape=(len(centers), len(X))
    )
    return np.array(centers), members.T.tocsr()


def plain(X: np.ndarray, t1: float, t2: float) -> Answer:
    found = reference.canopy(X, t1, t2)
    return found.centers, found.memberships


def method_of(name: str) -> Callable[[np.ndarray, float, float], Answer]:
    if name == "ours, order=random":
        return lambda X, t1, t2: ours(X, t1, t2, order="random")
    if name == "ours, float32":
        return lambda X, t1, t2: ours(X, t1, t2, dtype="float32")
    return {"k-d tree": tree, "NumPy": plain}.get(name, ours)


def work(part: str, n: int, d: int) -> dict[str, Any]:
    """One part, inside a process of its own."""
    warnings.simplefilter("ignore")
    t1 = 0.5 * n if d == 2 else 1.0 * n
    X, t2 = reference.papers_data(n, d), 0.7 * t1
    if part == "memory":
        return memory(X, t1, t2)
    import mgclust  # noqa: F401  (what importing takes is not asked)

    if part == "ours, sorted rows":
        X = X[np.argsort(X[:, 0], kind="stable")]
    method, times = method_of(part), []
    for _ in range(4):
        began = time.perf_counter()
        centers, members = method(X, t1, t2)
        times.append(time.perf_counter() - began)
        if times[0] > SLOW:
            break
    members.sort_indices()
    return {
        "seconds": statistics.median(times[1:] or times),
        "first_seconds": times[0],
        "n_canopies": len(centers),
        "memberships_per_row": members.nnz / n,
        "bits": on_ranks.digest(
            centers.astype(np.int64), members.indptr.astype(np.int64), members.indices.astype("i4")
        ),
    }


def memory(X: np.ndarray, t1: float, t2: float) -> dict[str, Any]:
    ours(X[:1000], t1, t2)
    before = bench.peak_bytes()
    began = time.perf_counter()
    centers, members = ours(X, t1, t2)
    took, grown = time.perf_counter() - began, bench.peak_bytes() - before
    kept = members.data.nbytes + members.indices.nbytes + members.indptr.nbytes
    return {
        "seconds": took,
        "n_canopies": len(centers),
        "memberships_per_row": members.nnz / len(X),
        "grown_mib": grown / 2**20,
        "grown_bytes_a_row": grown / len(X),
        "memberships_bytes_a_row": kept / len(X),
    }


def main() -> None:
    parser = bench.parser(__doc__)
    parser.add_argument("--small", action="store_true", help="tiny, to try the script out")
    parser.add_argument("--work", nargs=3, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.work:
        print(json.dumps(work(options.work[0], *map(int, options.work[1:])), default=float))
        return
    out = bench.Record(__doc__, options.out)
    out.note("target", "2-D, n = 1,000,000: at least as fast as the k-d tree; memory grows as n")
    for n, d in SMALL if options.small else CASES:
        found: dict[str, list[dict[str, Any]]] = {}
        for name in METHODS:
            figures = part(out, f"{d}-D n={n} {name}", name, n, d)
            if figures is not None:
                found.setdefault(name, []).append(figures)
        compared(out, f"{d}-D n={n}", found, target=n == 1_000_000)
    rows = [n // 50 if options.small else n for n in GROWTH]
    grown = [part(out, f"memory 2-D n={n}", "memory", n, 2) for n in rows]
    if all(grown):
        least, most = grown[0]["grown_bytes_a_row"], grown[-1]["grown_bytes_a_row"]
        out.add("memory, bytes a row", first=least, last=most, rows=[rows[0], rows[-1]], met=most <= 1.1 * least)


def part(out: bench.Record, item: str, name: str, n: int, d: int) -> dict[str, Any] | None:
    load = os.getloadavg()[0]
    command = [sys.executable, "-m", "benchmarks.canopy.cpu", "--work", name, str(n), str(d)]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        out.add(item, failed=done.stderr.strip().splitlines()[-1])
        return None
    return out.add(item, load_before=load, **json.loads(done.stdout.splitlines()[-1]))


def compared(out: bench.Record, item: str, found: dict[str, list[dict[str, Any]]], target: bool) -> None:
    """Ratios to the slower of the two runs of mgclust, and whether all found the same."""
    mine = max(found["ours"], key=lambda run: run["seconds"])
    for name in ("k-d tree", "NumPy"):
        for theirs in found.get(name, []):
            ratio = theirs["seconds"] / mine["seconds"]
            met = {"met": ratio >= 1} if target and name == "k-d tree" else {}
            same = theirs["bits"] == mine["bits"]
            out.add(f"{item}: {name} over ours", times_as_fast=ratio, same_answer=same, **met)


if __name__ == "__main__":
    main()
