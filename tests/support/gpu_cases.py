"""What the GPU tests compare on."""

from __future__ import annotations

import numpy as np

DIMENSIONS = (1, 2, 3, 5, 16, 17, 64, 128, 300)
NORMS = ("l2", "l2-dot", "l1")


def rows(kind: str, m: int, k: int, d: int, dtype: str) -> tuple[np.ndarray, np.ndarray]:
    """m and k rows of one distribution."""
    rng = np.random.default_rng([m, k, d])
    if kind == "lattice":
        points = rng.integers(-6, 7, (m + k, d))
    else:
        # Two groups, so that near and far pairs both occur in many dimensions.
        points = rng.normal(size=(m + k, d)) * rng.choice([0.05, 1.0], (m + k, 1))
    points = points.astype(dtype)
    return np.ascontiguousarray(points[:m]), np.ascontiguousarray(points[m:])


def order_of(m: int, k: int) -> tuple[np.ndarray, np.ndarray]:
    """Unique positions for m rows and k columns."""
    order = np.random.default_rng(7).permutation(m + k).astype(np.int32)
    return order[:m], order[m:]
