"""How much a process grows in a fit under a memory limit, for every method: resident rows, streamed rows, or a refusal.

Each item runs in a process of its own. A small fit of the same kind comes first, which imports, loads and compiles;
then the process gives back what it can, and the kernel forgets the largest resident memory so far (``clear_refs``).
What it reaches above that in the fit is the growth; rows are read from a file. An item holds if the growth is at most
the limit and a tenth of it. This also holds for a fit that is rejected, and its message must state what would fit.

    python -m benchmarks.engine.memory_limits --out benchmarks/results/engine/memory_limits_cpu.json
"""

from __future__ import annotations

import ctypes
import gc
import json
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).resolve().parents[2]
LIMITS = (150, 250, 400)  # MiB
TOLERANCE = 1.1
SMALL = 3000
# Item: method, rows, features.
ITEMS = {
    "fuzzy c-means, 6M x 16": ("fuzzy c-means", 6_000_000, 16),
    "fuzzy c-means, 1M x 64": ("fuzzy c-means", 1_000_000, 64),
    "fuzzy c-means, range, 2M x 8": ("fuzzy c-means, range", 2_000_000, 8),
    "fuzzy c-means, covariances, 1M x 16": ("fuzzy c-means, covariances", 1_000_000, 16),
    "fuzzy c-means, noise, 1M x 8": ("fuzzy c-means, noise", 1_000_000, 8),
    "canopies, 3M x 6": ("canopies", 3_000_000, 6),
    "canopies, 1M x 32": ("canopies", 1_000_000, 32),
    "canopies, overlapping, 300,000 x 8": ("canopies, overlapping", 300_000, 8),
    "silhouettes of means, 2M x 16": ("silhouettes of means", 2_000_000, 16),
    "silhouettes of pairs, 15,000 x 2,048": ("silhouettes of pairs", 15_000, 2048),
    "nearest neighbours, 15,000 x 2,048": ("nearest neighbours", 15_000, 2048),
    "nearest neighbours, 60,000 x 16": ("nearest neighbours", 60_000, 16),
    "density peaks, 15,000 x 2,048": ("density peaks", 15_000, 2048),
    "density peaks, 200,000 x 2": ("density peaks", 200_000, 2),
    "density peaks, automatic, 60,000 x 8": ("density peaks, automatic", 60_000, 8),
    "density peaks, nearest rows, 100,000 x 8": ("density peaks, nearest rows", 100_000, 8),
    "affinity propagation, 4,000 x 8": ("affinity propagation", 4000, 8),
    "affinity propagation, elements, 4,000 x 8": ("affinity propagation, elements", 4000, 8),
    "adaptive affinity propagation, 3,000 x 8": ("adaptive affinity propagation", 3000, 8),
    "communities, 1M edges": ("communities", 1_000_000, 2),
    "communities, greedy, 200,000 edges": ("communities, greedy", 200_000, 2),
}


def method(name: str) -> Callable[..., Any]:
    """Fit, of a path and of options."""
    import mgclust

    if name.startswith("silhouettes"):
        metric = "sqeuclidean" if name.endswith("means") else "euclidean"
        return lambda path, n, **where: mgclust.silhouette_samples(path, np.arange(n) % 7, metric=metric, **where)
    if name == "nearest neighbours":
        return lambda path, n, **where: mgclust.nearest_neighbors(path, 10, **where)
    kinds: dict[str, tuple[str, dict[str, Any]]] = {
        "fuzzy c-means": ("FuzzyCMeans", {"n_clusters": 8, "max_iter": 3}),
        "fuzzy c-means, range": ("FuzzyCMeans", {"n_clusters_range": (2, 5), "max_iter": 3}),
        "fuzzy c-means, covariances": (
            "FuzzyCMeans",
            {"n_clusters": 4, "max_iter": 3, "covariance_type": "full", "shrinkage": 0.1},
        ),
        "fuzzy c-means, noise": ("FuzzyCMeans", {"n_clusters": 4, "max_iter": 3, "noise_distance": 10.0}),
        "canopies": ("Canopy", {}),
        "canopies, overlapping": ("Canopy", {"t1": 60.0, "t2": 5.0}),
        "density peaks": ("DensityPeaks", {"n_clusters": 5}),
        "density peaks, automatic": ("DensityPeaks", {}),
        "density peaks, nearest rows": ("DensityPeaks", {"n_clusters": 5, "density": "knn", "k": 20}),
        "affinity propagation": ("AffinityPropagation", {"max_iter": 30}),
        "affinity propagation, elements": ("AffinityPropagation", {"max_iter": 30, "algorithm": "dense"}),
        "adaptive affinity propagation": ("AdaptiveAffinityPropagation", {"max_iter": 60}),
        "communities": ("Communities", {}),
        "communities, greedy": ("FastNewman", {}),
    }
    kind, parameters = kinds[name]
    return lambda path, n, **where: getattr(mgclust, kind)(**parameters, **where).fit(path)


def write(path: Path, name: str, n: int, d: int, seed: int) -> None:
    """Write rows around eight points, or edges, as a .npy."""
    rng = np.random.default_rng(seed)
    if name.startswith("communities"):
        np.save(path, rng.integers(0, max(10, n // 10), (n, 2)))
        return
    points = 5 * rng.normal(size=(8, d)).astype(np.float32)
    rows = np.lib.format.open_memmap(path, "w+", np.float32, (n, d))
    for start in range(0, n, step := max(1, (1 << 20) // d)):
        stop = min(start + step, n)
        rows[start:stop] = rng.standard_normal((stop - start, d), np.float32) + points[rng.integers(0, 8, stop - start)]
    rows.flush()


def resident(key: str = "VmRSS") -> int:
    """Bytes of resident memory of this process; with "VmHWM" the most since `forget`."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) << 10 for line in lines if line.startswith(key))


def forget() -> int:
    """Give back what can be given back, and forget the peak; what is resident then."""
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)
    Path("/proc/self/clear_refs").write_text("5")
    return resident()


def child(name: str, n: int, d: int, limits: list[float], folder: str) -> None:
    """Print the growth under each limit in turn."""
    warnings.simplefilter("ignore")
    fit, where = method(name), {"client": None, "device": "cpu"}
    small, path = Path(folder) / "small.npy", Path(folder) / f"{n}x{d}.npy"
    write(small, name, SMALL, min(d, 64), 0)
    for _ in range(2):
        fit(str(small), SMALL, **where)
    for limit in limits:
        before, refused = forget(), ""
        try:
            fit(str(path), n, memory_limit=int(limit * 2**20), **where)
        except Exception as error:
            refused = f"{type(error).__name__}: {error}"
        grown = (resident("VmHWM") - before) / 2**20
        print(json.dumps({"limit_mib": limit, "grown_mib": round(grown, 1), "refused": refused}), flush=True)


def growth(name: str, n: int, d: int, limits: list[float], timeout: float = 600.0) -> list[dict[str, Any]]:
    """Measure in a process of its own: what it grew by in MiB under each limit, and the message of a refusal."""
    with tempfile.TemporaryDirectory() as folder:
        write(Path(folder) / f"{n}x{d}.npy", name, n, d, 1)
        command = [sys.executable, "-m", "benchmarks.engine.memory_limits", "child", name, str(n), str(d), folder]
        done = subprocess.run(
            [*command, *map(str, limits)], cwd=ROOT, capture_output=True, text=True, timeout=timeout, check=False
        )
    if done.returncode:
        raise RuntimeError(done.stderr)
    return [json.loads(line) for line in done.stdout.splitlines()]


def holds(found: dict[str, Any]) -> bool:
    """Whether an item is within its limit, or was refused with what would fit."""
    refused = "What would fit" in found["refused"] if found["refused"] else True
    return refused and found["grown_mib"] <= TOLERANCE * found["limit_mib"]


def main() -> None:
    from benchmarks.support import record as bench

    parser = bench.parser(__doc__ or "")
    parser.add_argument("--only", default="", help="items whose name contains this")
    arguments = parser.parse_args()
    record = bench.Record(__doc__ or "", arguments.out)
    record.note("tolerance", TOLERANCE)
    for item, (name, n, d) in ITEMS.items():
        if arguments.only in item:
            for limit in LIMITS:  # each in a process of its own: what one leaves behind is not the next one's
                (found,) = growth(name, n, d, [limit])
                record.add(item, **found, holds=holds(found))


if __name__ == "__main__":
    if sys.argv[1:2] == ["child"]:
        _, _, name, n, d, folder, *limits = sys.argv
        child(name, int(n), int(d), [float(limit) for limit in limits], folder)
    else:
        main()
