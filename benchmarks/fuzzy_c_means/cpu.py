"""Fuzzy c-means on a CPU beside scikit-fuzzy, fuzzy-c-means, NumPy and scikit-learn's Lloyd: an iteration, memory.

Gaussians, each part in a process of its own. An iteration of the others is the difference of two fits from one
start that run 12 and 2 iterations (NumPy: the median of iterations); mgclust's is taken both ways: batches as the
estimator runs them, and the difference of two fits. mgclust's first run and its last one are on both sides of the
others', the slower one counts. Lloyd's k-means assigns each row to one cluster, without memberships: a lower bar.
scikit-fuzzy and fuzzy-c-means compute in float64, whatever they get; mgclust, NumPy and Lloyd in float32.

Then how close the pass is to the machine: multiply-adds a second (2 n c d of them: a distance and a weighted sum each
take d a row and cluster) over what a loop of nothing but multiply-adds reaches on all cores, measured in the same
process. The load of the machine before each part is in the file: other work moves all sides.

    python -m benchmarks.fuzzy_c_means.cpu --out benchmarks/results/fuzzy_c_means/cpu.json
    python -m venv peers; peers/bin/pip install fuzzy-c-means; ... --peers-python peers/bin/python    (wants NumPy 1)
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
from typing import Any

import numpy as np

from benchmarks.support import record as bench
from benchmarks.support import sets

CASES = {"1M": (1_000_000, 16, 8), "100k": (100_000, 32, 16)}
SMALL = {"1M": (20_000, 16, 8), "100k": (5_000, 32, 16)}
SPEED_UP, LLOYD = 5.0, 1.5  # at the first case: times scikit-fuzzy's speed at least, times Lloyd's time at most
FEW, MANY = 2, 12
PASSES = [
    # rows, features, clusters, m, type
    (1_000_000, 16, 8, 2.0, "float32"), (1_000_000, 16, 8, 1.5, "float32"), (1_000_000, 16, 8, 2.0, "float64"),
    (100_000, 32, 16, 2.0, "float32"), (1_000_000, 2, 4, 2.0, "float32"), (200_000, 2, 1000, 2.0, "float32"),
    (200_000, 64, 64, 2.0, "float32"), (50_000, 128, 1024, 2.0, "float32"), (50_000, 128, 1024, 1.5, "float32"),
    (50_000, 128, 1024, 2.0, "float64"),
]  # fmt: skip
LOOP = 6  # vectors of 32 in a loop of multiply-adds: as many as hide the latency


def work(part: str, small: bool) -> dict[str, Any]:
    """One part, inside a process of its own."""
    warnings.simplefilter("ignore")
    if part == "passes":
        return {"passes": passes(small)}
    kind, whose, case = part.split()
    n, d, c = (SMALL if small else CASES)[case]
    X = sets.gaussians(n, d, c)[0]
    start = X[:c].copy()
    if kind == "memory":
        return memory(PEERS[whose], X, start)
    if whose == "ours":
        return ours(X, start)
    if whose == "NumPy":
        return numpy_iteration(X, start)
    return by_difference(PEERS[whose], X, start)


def fit_ours(X: np.ndarray, start: np.ndarray, iterations: int) -> int:
    from mgclust import FuzzyCMeans

    model = FuzzyCMeans(len(start), m=2.0, init=start, max_iter=iterations, tol=0.0, device="cpu", client=None)
    return model.fit(X).n_iter_


def fit_scikit_fuzzy(X: np.ndarray, start: np.ndarray, iterations: int) -> int:
    import skfuzzy

    return int(skfuzzy.cmeans(X.T, len(start), 2.0, error=0.0, maxiter=iterations, seed=0)[5])


def fit_fuzzy_c_means(X: np.ndarray, start: np.ndarray, iterations: int) -> int:
    import fcmeans

    model = fcmeans.FCM(n_clusters=len(start), max_iter=iterations, error=1e-9, random_state=0)
    model.fit(X)
    return iterations


def fit_lloyd(X: np.ndarray, start: np.ndarray, iterations: int) -> int:
    from sklearn.cluster import KMeans

    model = KMeans(len(start), init=start, n_init=1, max_iter=iterations, tol=0.0, algorithm="lloyd")
    return int(model.fit(X).n_iter_)


PEERS: dict[str, Callable[[np.ndarray, np.ndarray, int], int]] = {
    "ours": fit_ours,
    "scikit-fuzzy": fit_scikit_fuzzy,
    "fuzzy-c-means": fit_fuzzy_c_means,
    "Lloyd": fit_lloyd,
}


def memberships(X: np.ndarray, centers: np.ndarray) -> np.ndarray:
    p = 1 / np.maximum((X * X).sum(axis=1)[:, None] + (centers * centers).sum(axis=1) - 2 * (X @ centers.T), 1e-30)
    return p / p.sum(axis=1, keepdims=True)


def by_difference(fit: Callable[[np.ndarray, np.ndarray, int], int], X: np.ndarray, start: np.ndarray) -> dict:
    """An iteration's time: the least of three fits of many iterations less the least of three of few."""
    fit(X[: len(start) * 50], start, FEW)
    least = {}
    for iterations in (FEW, MANY):
        times = []
        for _ in range(3):
            began = time.perf_counter()
            done = fit(X, start, iterations)
            times.append(time.perf_counter() - began)
        least[done] = min(times)
    (few, low), (many, high) = least.items()
    return {"iteration_ms": 1e3 * (high - low) / (many - few), "iterations": [few, many], "fits_seconds": [low, high]}


def ours(X: np.ndarray, start: np.ndarray) -> dict[str, Any]:
    from benchmarks.support import fuzzy_ranks, on_ranks

    found = on_ranks.on(
        None, 1, "cpu", fuzzy_ranks.passes_timed, X, start=start.astype("float64"), m=2.0, iterations=10, repeat=9,
        parts=True,
    ).value  # fmt: skip
    difference = by_difference(fit_ours, X, start)
    return {
        "iteration_ms": found["ms"],
        "batches_ms": found["batches_ms"],
        "kernel_ms": found["kernel_ms"],
        "iteration_ms_by_difference": difference["iteration_ms"],
        "fits_seconds": difference["fits_seconds"],
    }


def numpy_iteration(X: np.ndarray, centers: np.ndarray, chunk: int = 8192) -> dict[str, Any]:
    """What one writes in NumPy so that nothing of n x c is stored: products, in chunks of rows."""
    times = []
    for _ in range(7):
        began = time.perf_counter()
        sums, counts = np.zeros(centers.shape), np.zeros(len(centers))
        for first in range(0, len(X), chunk):
            x = X[first : first + chunk]
            g = memberships(x, centers) ** 2
            sums += g.T @ x
            counts += g.sum(axis=0)
        centers = (sums / counts[:, None]).astype("float32")
        times.append(time.perf_counter() - began)
    return {"iteration_ms": 1e3 * statistics.median(times)}


def memory(fit: Callable[[np.ndarray, np.ndarray, int], int], X: np.ndarray, start: np.ndarray) -> dict[str, float]:
    """What the process grew by during a fit, from before it; the rows are there already."""
    fit(X[: len(start) * 50], start, FEW)
    before = bench.peak_bytes()
    fit(X, start, FEW)
    grown = bench.peak_bytes() - before
    return {"grown_mib": grown / 2**20, "rows_mib": X.nbytes / 2**20, "grown_over_rows": grown / X.nbytes}


def passes(small: bool) -> list[dict[str, Any]]:
    """The kernel alone, sums of all blocks; and the loop of multiply-adds beside it."""
    from mgclust.engine.partition import Partition
    from mgclust.kernels import load

    cpu = load("cpu")
    found = []
    for n, d, c, m, dtype in PASSES:
        n = n // 50 if small else n
        X = sets.gaussians(n, d, c)[0].astype(dtype)
        centers = X[None, :c].copy()
        plan = Partition.plan(n, 1)
        out = np.zeros((plan.blocks, 1, c * d + c + 3))
        times = []
        for _ in range(15):
            began = time.perf_counter()
            cpu.fuzzy_c_means.fuzzy_sums(
                X, centers, m=m, weights=None, first_row=0, block_rows=plan.block_rows, out=out
            )
            times.append(time.perf_counter() - began)
        took, reached = statistics.median(times[1:]), multiply_adds(dtype, 1 if small else 20)
        rate = 2 * n * c * d / took
        found.append({
            "n": n, "d": d, "c": c, "m": m, "dtype": dtype, "ms": 1e3 * took, "least_ms": 1e3 * min(times[1:]),
            "multiply_adds_per_second": rate, "loop_per_second": reached, "share": rate / reached,
        })  # fmt: skip
    return found


def multiply_adds(dtype: str, millions: int) -> float:
    """Multiply-adds a second that all cores reach, from registers to registers."""
    from numba import njit

    from mgclust.kernels.toolkit.simd import WIDTH, add, load, store
    from mgclust.kernels.toolkit.simd_steps import fma
    from mgclust.kernels.toolkit.threads import run_tasks, thread_count

    @njit(nogil=True)
    def loop(count: int, x: Any) -> None:
        a = b = c = d = e = f = load(x, 0)
        y = load(x, WIDTH)
        for _ in range(count):
            a, b, c = fma(a, y, y), fma(b, y, y), fma(c, y, y)
            d, e, f = fma(d, y, y), fma(e, y, y), fma(f, y, y)
        store(x, 0, add(add(a, add(b, c)), add(d, add(e, f))))

    spaces = [np.zeros(2 * WIDTH, dtype) for _ in range(thread_count())]
    loop(1, spaces[0])
    rates = []
    for _ in range(3):
        count = millions * 1_000_000 // (1 if dtype == "float32" else 2)
        began = time.perf_counter()
        run_tasks(len(spaces), lambda index, _, count=count: loop(count, spaces[index]))
        rates.append(len(spaces) * count * LOOP * WIDTH / (time.perf_counter() - began))
    return max(rates)


def main() -> None:
    parser = bench.parser(__doc__)
    parser.add_argument("--small", action="store_true", help="tiny, to try the script out")
    parser.add_argument("--peers-python", default=sys.executable, help="the interpreter that has fuzzy-c-means")
    parser.add_argument("--work", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.work:
        print(json.dumps(work(options.work, options.small), default=float))
        return
    out = bench.Record(__doc__, options.out)
    out.note("targets", {"times_scikit_fuzzy": SPEED_UP, "share_of_lloyd_at_most": LLOYD, "case": CASES["1M"]})
    order = ("ours", "scikit-fuzzy", "Lloyd", "fuzzy-c-means", "NumPy", "ours")
    parts = [f"iteration {whose} {case}" for case in CASES for whose in order]
    parts += [f"memory {whose} 1M" for whose in PEERS] + ["passes"]
    found: dict[str, dict[str, Any]] = {}
    for part in parts:
        load = os.getloadavg()[0]
        python = options.peers_python if "fuzzy-c-means" in part else sys.executable
        command = [
            python,
            "-m",
            "benchmarks.fuzzy_c_means.cpu",
            "--work",
            part,
            *(["--small"] if options.small else []),
        ]
        done = subprocess.run(command, capture_output=True, text=True)
        item = part if part not in found else f"{part}, again"
        if done.returncode:
            out.add(item, failed=done.stderr.strip().splitlines()[-1])
            continue
        figures = json.loads(done.stdout.splitlines()[-1])
        for row in figures.pop("passes", []):
            out.add(f"pass n={row['n']} d={row['d']} c={row['c']} m={row['m']:g} {row['dtype']}", load=load, **row)
        if figures:
            found[item] = out.add(item, load_before=load, **figures)
    for case in CASES:
        compared(out, found, case)


def compared(out: bench.Record, found: dict[str, dict[str, Any]], case: str) -> None:
    """Ratios to the slower of the runs of mgclust, however it was taken."""
    runs = [found[item] for item in (f"iteration ours {case}", f"iteration ours {case}, again") if item in found]
    mine = max(max(run["iteration_ms"], run["iteration_ms_by_difference"]) for run in runs)
    for whose in ("scikit-fuzzy", "fuzzy-c-means", "NumPy", "Lloyd"):
        theirs = found.get(f"iteration {whose} {case}")
        if theirs is None:
            continue
        ratio = theirs["iteration_ms"] / mine
        targets = {"scikit-fuzzy": SPEED_UP, "Lloyd": 1 / LLOYD} if case == "1M" else {}
        met = {"target": targets[whose], "met": ratio >= targets[whose]} if whose in targets else {}
        out.add(
            f"{case}: {whose} over ours", ours_ms=mine, theirs_ms=theirs["iteration_ms"], times_as_fast=ratio, **met
        )


if __name__ == "__main__":
    main()
