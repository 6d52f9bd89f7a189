"""The point sets that the benchmarks run on: those of the repository, those of a folder, generated ones of any size.

R15, D31, BIRCH1 and others whose terms allow research only are in no folder of the repository: ``--data`` names theirs.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np

ROOT = Path(__file__).resolve().parents[2]
EMBEDDINGS_AT_ONCE = 8192
FOLDERS = (ROOT / "mgclust" / "data" / "samples", ROOT / "tests" / "sets")


def load(name: str, data: Path | None = None) -> tuple[np.ndarray, np.ndarray | None] | None:
    """X and the true labels (or None) of a set; None where the set is in none of the folders."""
    for folder in (*FOLDERS, *([data] if data else [])):
        path = folder / f"{name}.npz"
        if path.exists():
            with np.load(path, allow_pickle=False) as archive:
                return archive["X"], archive.get("y")
    print(f"{name}: not here, left out (give its folder with --data)", flush=True)
    return None


def required(name: str, data: Path | None) -> np.ndarray:
    """X of a set without which the benchmark has nothing to measure."""
    found = load(name, data)
    if found is None:
        raise SystemExit(f"{name}.npz is needed; give its folder with --data.")
    return found[0]


def birch_subset(n: int, data: Path | None, seed: int = 0) -> np.ndarray:
    """n points drawn from BIRCH1 without replacement, float32, as the CUDA-DP paper's subsets."""
    X = required("birch1", data)
    return np.ascontiguousarray(X[np.random.default_rng(seed).choice(len(X), n, replace=False)])


def birch_like(n: int, seed: int = 0) -> np.ndarray:
    """Any number of points of BIRCH1's making: 100 Gaussians of one size on a 10 x 10 grid; float32."""
    rng = np.random.default_rng(seed)
    cells = rng.integers(0, 100, n)
    centers = np.stack([cells % 10, cells // 10], axis=1).astype("float32")
    return centers + np.float32(0.25) * rng.standard_normal((n, 2), dtype="float32")


def gaussians(n: int, d: int, k: int = 50, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """A mixture of k unit Gaussians in d dimensions whose centres are normal with deviation 1; float32."""
    rng = np.random.default_rng(seed)
    y = rng.integers(0, k, n)
    centers = rng.standard_normal((k, d), dtype="float32")
    X = rng.standard_normal((n, d), dtype="float32")
    X += centers[y]
    return X, y


def embeddings(n: int, d: int, k: int, seed: int = 0) -> np.ndarray:
    """As `gaussians`, written by all cores: a set of gigabytes takes seconds."""
    centers = np.random.default_rng(seed).standard_normal((k, d), dtype="float32")
    X = np.empty((n, d), dtype="float32")

    def fill(start: int) -> None:
        rng = np.random.default_rng([seed, start])
        part = X[start : start + EMBEDDINGS_AT_ONCE]
        rng.standard_normal(out=part, dtype="float32")
        part += centers[rng.integers(0, k, len(part))]

    with ThreadPoolExecutor() as pool:
        list(pool.map(fill, range(0, n, EMBEDDINGS_AT_ONCE)))
    return X


def normal_cube(n: int, d: int, seed: int = 0) -> np.ndarray:
    """Normal points about the middle of a cube of side 10 n whose deviation is a sixth of it, none cut off; float64.

    The data of the GPU canopy paper, which does not tell its deviation.
    """
    return np.random.default_rng(seed).normal(5.0 * n, 10.0 * n / 6, size=(n, d))
