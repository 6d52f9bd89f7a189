"""The point sets of the tests: generated ones, whose truth is exact, and real ones that travel with the repository."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np

from mgclust.datasets import make_gaussian_clusters, make_gaussian_grid, make_gaussian_rings

TESTS = Path(__file__).resolve().parents[1]
FOLDERS = (TESTS / "sets", TESTS.parent / "mgclust" / "data" / "samples")


def make_overlap(separation: float) -> tuple[np.ndarray, np.ndarray, None]:
    """15 clusters of 334 points in the plane, whole numbers up to about a million; close centres overlap."""
    X, y, _ = make_gaussian_clusters(15, 334, separation, random_state=3)
    return np.rint(35_000 * (X - X.min(axis=0))).astype(np.float32), y, None


def make_wide(d: int) -> tuple[np.ndarray, np.ndarray, None]:
    """16 clusters of 64 points, far apart: whole numbers from 0 to 255."""
    rng = np.random.Generator(np.random.PCG64(d))
    y = np.repeat(np.arange(16, dtype=np.int32), 64)
    X = rng.uniform(32, 224, (16, d))[y] + 5 * rng.standard_normal((len(y), d))
    return np.rint(X).astype(np.float32), y, None


def make_blobs() -> tuple[np.ndarray, np.ndarray, None]:
    """Seven clusters of 34 to 273 points: round ones of several sizes, two pairs that nearly touch."""
    rng = np.random.Generator(np.random.PCG64(7))
    sizes = [45, 170, 102, 273, 34, 130, 34]
    centers = np.array([[8, 6], [10, 23], [21, 7], [32, 22], [33.5, 9.5], [21.5, 24], [37, 6.5]])
    radii = np.array([2.2, 4.6, 3.4, 5.2, 1.6, 3.6, 1.6])
    y = np.repeat(np.arange(7, dtype=np.int32), sizes)
    angle, share = rng.uniform(0, 2 * np.pi, len(y)), np.sqrt(rng.uniform(size=len(y)))
    X = centers[y] + (radii[y] * share)[:, None] * np.stack([np.cos(angle), np.sin(angle)], axis=1)
    return np.round(X, 2), y, None


def make_spirals() -> tuple[np.ndarray, np.ndarray, None]:
    """Three arms of 104 points that wind around each other."""
    turn = np.tile(np.linspace(1.0, 4.2, 104), 3) * np.pi / 2
    y = np.repeat(np.arange(3, dtype=np.int32), 104)
    angle = turn + 2 * np.pi / 3 * y
    return np.round(3 * turn[:, None] * np.stack([np.cos(angle), np.sin(angle)], axis=1), 2), y, None


def make_moons() -> tuple[np.ndarray, np.ndarray, None]:
    """Two half rings of 120 points that reach into each other."""
    rng = np.random.Generator(np.random.PCG64(2))
    y = np.repeat(np.arange(2, dtype=np.int32), 120)
    angle = np.pi * (rng.uniform(size=240) + y)
    X = np.stack([np.cos(angle) + y, np.sin(angle) + 0.5 * y], axis=1) + 0.08 * rng.standard_normal((240, 2))
    return np.round(X, 3), y, None


GENERATED: dict[str, Callable[[], tuple[np.ndarray, np.ndarray, Any]]] = {
    "rings": make_gaussian_rings,
    "clusters": make_gaussian_clusters,
    "grid": make_gaussian_grid,
    "blobs": make_blobs,
    "spirals": make_spirals,
    "moons": make_moons,
    **{f"overlap{i}": partial(make_overlap, separation) for i, separation in ((1, 4.8), (2, 3.6), (3, 2.5))},
    **{f"wide{d:03d}": partial(make_wide, d) for d in (32, 64, 128, 256, 512, 1024)},
}

TRUE_CLUSTERS = {
    "rings": 15,
    "clusters": 31,
    "blobs": 7,
    "overlap1": 15,
    "overlap2": 15,
    "overlap3": 15,
    "spirals": 3,
    "moons": 2,
    **{f"wide{d:03d}": 16 for d in (32, 64, 128, 256, 512, 1024)},
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
