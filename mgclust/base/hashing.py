"""Scrambled 64-bit integers, for random numbers that depend only on a row's number, and hashes of rows and edges."""

from __future__ import annotations

from typing import Any

import numpy as np

__all__ = ["FIRST", "GOLDEN", "SECOND", "splitmix64"]

GOLDEN = 0x9E3779B97F4A7C15  # 2^64 over the golden ratio
FIRST, SECOND = np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)  # multipliers of splitmix64


def splitmix64(z: Any) -> Any:
    """Scramble integers, one to one (Steele, Lea and Flood, OOPSLA 2014).

    Parameters
    ----------
    z : uint64 number or array
        A number, or a NumPy or CuPy array. Compiled loops also call this function.
    """
    z = (z ^ (z >> np.uint64(30))) * FIRST
    z = (z ^ (z >> np.uint64(27))) * SECOND
    return z ^ (z >> np.uint64(31))
