"""Affinity propagation on a CPU beside scikit-learn: an iteration, memory, whole fits.

n = 10,000, d = 120, 60 Gaussians, each part in a process of its own. An iteration of scikit-learn's is a fit of 12 less
one of 2 with given similarities and preference; mgclust's, of all pairs and on neighbour lists, is the median of
batches as the estimator runs them, and, of all pairs, in the same way as theirs, the difference of two fits. Then what
a fit of 20,000 rows on lists grows by, and whole adaptive scans of 1,200 rows. Memory is the most that the process ever
held during a fit of two iterations that has to compute similarities and preference, and what it grew by from before the
fit. Then whole fits of smaller sets, the same damping, medians of three. The load of the machine before each part is in
the file: other work moves both sides.

    python -m benchmarks.affinity_propagation.cpu --out benchmarks/results/affinity_propagation/cpu.json
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
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.support import on_ranks, sets
from benchmarks.support import record as bench

N, FEATURES = 10_000, 120
SPEED_UP, MEMORY_SHARE = 5.0, 0.25
MEMORY_ROWS = ("float64", "float32")  # scikit-learn keeps S, but not its messages, in the type of the rows
FITS = {"r15": None, "d31": None, "pendigits": 3_000}


def work(part: str, n: int, data: Path | None) -> dict[str, Any]:
    """One part, inside a process of its own."""
    warnings.simplefilter("ignore")
    if part in FITS:
        return whole(part, data)
    X = sets.gaussians(n, FEATURES, 60)[0]
    if part == "iteration ours":
        return ours_iteration(X)
    if part == "iteration on lists":
        return lists_iteration(X)
    if part == "memory on lists":
        return lists_memory(2 * n)
    if part.startswith("scan"):
        return scan(part.split()[1], part.split()[2], 12 * n // 100)
    if part == "iteration scikit-learn":
        from benchmarks.affinity_propagation.gpu import sklearn_iteration

        return sklearn_iteration(X)
    _, whose, dtype, _ = part.split()
    X, model = X.astype(dtype), estimator(whose, max_iter=2)
    model.fit(X[:300])
    before = bench.peak_bytes()
    start = time.perf_counter()
    model.fit(X)
    took = time.perf_counter() - start
    peak = bench.peak_bytes()
    return {"seconds": took, "peak_gib": peak / 2**30, "grown_gib": (peak - before) / 2**30}


def estimator(whose: str, **options: Any) -> Any:
    if whose == "ours":
        from mgclust import AffinityPropagation

        return AffinityPropagation(device="cpu", client=None, random_state=0, **options)
    from sklearn.cluster import AffinityPropagation

    return AffinityPropagation(random_state=0, **options)


def ours_iteration(X: np.ndarray) -> dict[str, Any]:
    on_ranks.on(None, 1, "cpu", on_ranks.messages_timed, X[:1024], iterations=32, copy_count=1 << 20)
    found = on_ranks.on(None, 1, "cpu", on_ranks.messages_timed, X, iterations=96, settle=64, copy_count=1 << 26).value
    batches = found["first_batches_ms"] + found["settled_batches_ms"]
    times = []
    for count in (2, 34):
        model = estimator("ours", algorithm="dense", max_iter=count)
        start = time.perf_counter()
        model.fit(X)
        times.append(time.perf_counter() - start)
    limit = 1e3 * on_ranks.BYTES * len(X) ** 2 / found["copy_bytes_per_second"]
    return {
        "iteration_ms": statistics.median(batches),
        "batches_ms": batches,
        "iteration_ms_by_difference": 1e3 * (times[1] - times[0]) / 32,
        "limit_ms": limit,
        "share_of_limit": limit / statistics.median(batches),
        "copy_bytes_per_second": found["copy_bytes_per_second"],
        "similarities_seconds": found["similarities_first_seconds"],
        "preference_seconds": found["preference_seconds"],
        "fit_of_2_seconds": times[0],
    }


def lists_iteration(X: np.ndarray) -> dict[str, Any]:
    from mgclust.algorithms.affinity_propagation.message_passing import MessagePassing

    batches, original = [], MessagePassing.iterate

    def iterate(self: Any, dampings: list[float]) -> Any:
        start = time.perf_counter()
        found = original(self, dampings)
        batches.append(1e3 * (time.perf_counter() - start) / len(dampings))
        return found

    model = estimator("ours", algorithm="sparse", max_iter=200, convergence_iter=199)
    model.fit(X[:1024])
    MessagePassing.iterate = iterate  # type: ignore[method-assign]
    batches.clear()
    start = time.perf_counter()
    model.fit(X)
    return {
        "iteration_ms": statistics.median(batches),
        "batches_ms": batches,
        "fit_of_200_seconds": time.perf_counter() - start,
        "stages": model.timings_,
        "n_clusters": model.n_clusters_,
        **model.exactness_,
    }


def lists_memory(n: int) -> dict[str, Any]:
    X, model = sets.gaussians(n, FEATURES, 60)[0].astype("float32"), estimator("ours", algorithm="sparse")
    model.fit(X[:1024])
    before = bench.peak_bytes()
    start = time.perf_counter()
    model.fit(X)
    took = time.perf_counter() - start
    grown = (bench.peak_bytes() - before) / 2**30
    return {"n": n, "seconds": took, "iterations": model.n_iter_, "grown_gib": grown, **model.exactness_}


def scan(profile: str, algorithm: str, n: int) -> dict[str, Any]:
    from mgclust import AdaptiveAffinityPropagation

    X = sets.gaussians(n, 10, 12)[0]
    model = AdaptiveAffinityPropagation(device="cpu", client=None, random_state=0, profile=profile, algorithm=algorithm)
    AdaptiveAffinityPropagation(device="cpu", client=None, algorithm=algorithm, max_iter=120).fit(X[:200])
    start = time.perf_counter()
    model.fit(X)
    took = time.perf_counter() - start
    return {"n": n, "seconds": took, "iterations": model.n_iter_, "best": model.n_clusters_, "stages": model.timings_}


def whole(name: str, data: Path | None) -> dict[str, Any]:
    X = sets.required(name, data)[: FITS[name]]
    out: dict[str, Any] = {"n": len(X), "d": X.shape[1]}
    labels = {}
    for whose in ("ours", "scikit-learn"):
        model = estimator(whose, damping=0.9, max_iter=400)
        out[f"{whose}_seconds"], _ = bench.seconds(lambda model=model: model.fit(X))
        out[f"{whose}_iterations"] = model.n_iter_
        labels[whose] = model.labels_
    out["ratio"] = out["scikit-learn_seconds"] / out["ours_seconds"]
    out["labels_that_differ"] = int((labels["ours"] != labels["scikit-learn"]).sum())
    return out


def main() -> None:
    parser = bench.parser(__doc__)
    parser.add_argument("--rows", type=int, default=N)
    parser.add_argument("--small", action="store_true", help="tiny, to try the script out")
    parser.add_argument("--work", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.small:
        options.rows = 1_500
    if options.work:
        print(json.dumps(work(options.work, options.rows, options.data), default=float))
        return
    out = bench.Record(__doc__, options.out)
    out.note("targets", {"speed_up": SPEED_UP, "share_of_memory": MEMORY_SHARE})
    out.note("load_before_any_part", os.getloadavg()[0])
    parts = [
        "iteration ours", "iteration on lists", "iteration scikit-learn", "iteration ours", "iteration on lists",
        "memory on lists", *(f"scan {profile} {each}" for profile in ("code", "fast") for each in ("dense", "sparse")),
        *(f"memory {whose} {dtype} rows" for dtype in MEMORY_ROWS for whose in ("ours", "scikit-learn")), *FITS,
    ]  # fmt: skip
    found: dict[str, dict[str, Any]] = {}
    for part in parts:
        load = os.getloadavg()[0]
        command = [
            sys.executable,
            "-m",
            "benchmarks.affinity_propagation.cpu",
            "--work",
            part,
            "--rows",
            str(options.rows),
        ]
        command += ["--data", str(options.data)] if options.data else []
        done = subprocess.run(command, capture_output=True, text=True)
        item = part if part not in found else f"{part}, again"
        if done.returncode:
            out.add(item, failed=done.stderr.strip().splitlines()[-1])
            continue
        figures = json.loads(done.stdout.splitlines()[-1])
        found[item] = out.add(item, load_before=load, **figures)
    compared(out, found)


def compared(out: bench.Record, found: dict[str, dict[str, Any]]) -> None:
    """Ratios, with the slower of the two runs of mgclust."""
    ours = [found[item]["iteration_ms"] for item in ("iteration ours", "iteration ours, again") if item in found]
    theirs = found.get("iteration scikit-learn")
    if ours and theirs:
        ratio = theirs["iteration_ms"] / max(ours)
        out.add(
            "iteration, ratio", ours_ms=max(ours), sklearn_ms=theirs["iteration_ms"], ratio=ratio, met=ratio >= SPEED_UP
        )
    for dtype in MEMORY_ROWS:
        mine, other = (found.get(f"memory {whose} {dtype} rows") for whose in ("ours", "scikit-learn"))
        if mine and other:
            shares = {key: mine[key] / other[key] for key in ("peak_gib", "grown_gib")}
            met = {key: share <= MEMORY_SHARE for key, share in shares.items()}
            out.add(f"memory, share, {dtype} rows", **shares, target=MEMORY_SHARE, met=met)


if __name__ == "__main__":
    main()
