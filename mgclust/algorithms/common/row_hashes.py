"""Hashes of rows: equal rows have equal hashes."""

from __future__ import annotations

from typing import Any

import numpy as np

from mgclust.base.hashing import GOLDEN, splitmix64

__all__ = ["row_hashes"]

Array = Any
# How many numbers are hashed at once: they fit into a core's cache, or keep a GPU busy.
PIECE_NUMBERS, PIECE_NUMBERS_ON_GPU = 1 << 16, 1 << 22


def row_hashes(x: Array, xp: Any) -> Array:
    """Return a hash of the values of each row; 0 and -0 count as the same value."""
    m, d = x.shape
    salts = xp.asarray(np.arange(1, d + 1, dtype=np.uint64) * np.uint64(GOLDEN))
    out = xp.empty(m, "uint64")
    step = max(1, (PIECE_NUMBERS if xp is np else PIECE_NUMBERS_ON_GPU) // d)
    for start in range(0, m, step):
        bits = (x[start : start + step] + x.dtype.type(0)).view(f"u{x.itemsize}").astype("uint64")  # -0 + 0 is 0
        bits += salts
        out[start : start + step] = splitmix64(bits).sum(axis=1)
    return out
