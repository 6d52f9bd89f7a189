"""The point sets of the tests: generated ones, whose truth is exact, and real ones that travel with the repository."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import numpy as np

from mgclust.datasets import make_gaussian_clusters, make_gaussian_grid, make_gaussian_rings

TESTS = Path(__file__).resolve().parents[1]
FOLDERS = (TESTS / "sets", TESTS.parent / "mgclust" / "data" / "samples")

GENERATED = {"rings": make_gaussian_rings, "clusters": make_gaussian_clusters, "grid": make_gaussian_grid}

TRUE_CLUSTERS = {
    "rings": 15,
    "clusters": 31,
    "aggregation": 7,
    "s1": 15,
    "s2": 15,
    "s3": 15,
    "spiral": 3,
    "flame": 2,
    **{f"dim{d:03d}": 16 for d in (32, 64, 128, 256, 512, 1024)},
    "pendigits": 10,
    "grid": 100,
}


@cache
def load_points(name: str) -> tuple[np.ndarray, np.ndarray]:
    """X and the true labels; both read-only, because tests share them."""
    if name in GENERATED:
        X, y, _ = GENERATED[name]()
        X.flags.writeable = y.flags.writeable = False
        return X, y
    for folder in FOLDERS:
        path = folder / f"{name}.npz"
        if path.exists():
            with np.load(path, allow_pickle=False) as archive:
                X, y = archive["X"], archive["y"]
            X.flags.writeable = y.flags.writeable = False
            return X, y
    raise FileNotFoundError(f"no {name}.npz in {', '.join(map(str, FOLDERS))}")
