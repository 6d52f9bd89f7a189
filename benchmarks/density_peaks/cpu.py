"""What the ideas buy on a CPU: birch1 (100,000 x 2), skin (245,057 x 3) and Gaussians (20,000 x 64) by stage.

"grid" (a tree of boxes for dc and delta, a non-uniform FFT for the Gaussian rho) against "brute" (all pairs), each
in a process of its own, so that peak memory is its own; then how far the two agree. In 64 dimensions: all pairs with
the nearest rows kept in the density pass, so that delta needs no second one, against two passes.

    python -m benchmarks.density_peaks.cpu --out benchmarks/results/density_peaks/cpu.json
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

from benchmarks.support import record as bench
from benchmarks.support import sets

TWO_PASSES = "brute, nearest rows not kept"
CASES = [
    # name, centres, algorithm, rows (None: all), limit in seconds
    ("birch1", 100, "grid", None, 10.0),
    ("birch1", 100, "brute", None, None),
    ("skin", 2, "grid", None, None),
    ("birch1", 100, "grid", 20_000, None),
    ("birch1", 100, "brute", 20_000, None),
    ("gaussians64", 20, "brute", None, None),
    ("gaussians64", 20, TWO_PASSES, None, None),
]


def work(path: str, k: str, algorithm: str) -> None:
    """Inside a process of its own: a run that includes reading compiled kernels, then a median of three."""
    from mgclust import DensityPeaks

    if algorithm == TWO_PASSES:
        from mgclust.kernels import load

        cpu = load("cpu")
        cpu.pairs.NEIGHBORS, algorithm = 0, "brute"
    X = np.load(path)
    before = bench.peak_bytes()
    options = {"n_clusters": int(k), "device": "cpu", "client": None, "algorithm": algorithm}
    runs = []
    for _ in range(4):
        start = time.perf_counter()
        model = DensityPeaks(**options).fit(X)
        runs.append((time.perf_counter() - start, model.timings_))
        if runs[0][0] > 60:
            break
    first = runs[0][0]
    warm = sorted(runs[1:] or runs, key=lambda run: run[0])
    took, stages = warm[(len(warm) - 1) // 2]
    np.savez(path, rho=model.rho_, delta=model.delta_, higher=model.nearest_higher_, labels=model.labels_)
    figures = {"seconds": took, "first_seconds": first, "stages": stages, "dc": model.dc_}
    peak = bench.peak_bytes()
    memory = {"peak_mib": peak / 2**20, "grown_mib": (peak - before) / 2**20}
    print(json.dumps({**figures, **memory, "exactness": model.exactness_}, default=float))


def main() -> None:
    options = bench.parser(__doc__).parse_args()
    out = bench.Record(__doc__, options.out)
    results: dict[tuple, dict] = {}
    with tempfile.TemporaryDirectory() as folder:
        for name, k, algorithm, rows, limit in CASES:
            loaded = sets.gaussians(20_000, 64, k) if name == "gaussians64" else sets.load(name, options.data)
            if loaded is None:
                continue
            X = loaded[0] if rows is None else sets.birch_subset(rows, options.data)
            path = Path(folder) / "points.npz"
            with path.open("wb") as file:
                np.save(file, X)
            command = [sys.executable, "-m", "benchmarks.density_peaks.cpu", "--work", str(path), str(k), algorithm]
            done = subprocess.run(command, capture_output=True, text=True)
            if done.returncode:
                out.add(f"{name} n={len(X)} {algorithm}", failed=done.stderr.strip().splitlines()[-1])
                continue
            figures = json.loads(done.stdout.splitlines()[-1])
            if limit is not None:
                figures["limit_seconds"] = limit
            out.add(f"{name} n={len(X)} {algorithm}", **figures, rows_bytes=int(X.nbytes))
            with np.load(path) as arrays:
                mine = {key: arrays[key] for key in arrays.files}
            other = results.setdefault((name, len(X)), mine)
            if other is not mine:
                compare(out, f"{name} n={len(X)}, the first against {algorithm}", other, mine)


def compare(out: bench.Record, item: str, grid: dict, brute: dict) -> None:
    same = grid["higher"] == brute["higher"]
    out.add(
        item,
        rho_largest_relative_difference=float(np.max(np.abs(grid["rho"] - brute["rho"]) / brute["rho"])),
        nearest_higher_that_differ=int((~same).sum()),
        delta_largest_relative_difference_of_the_others=float(
            np.max(np.abs(grid["delta"] - brute["delta"])[same] / np.maximum(brute["delta"][same], 1e-30))
        ),
        labels_that_differ=int((grid["labels"] != brute["labels"]).sum()),
    )


if __name__ == "__main__":
    if sys.argv[1:2] == ["--work"]:
        work(*sys.argv[2:])
    else:
        main()
