"""Sums of fuzzy c-means with few centres by products of warps: how ``few_centers.cu`` is started.

For m = 2 and float32 rows of 17 to 64 features: by the data alone, since the bits differ from those of direct
differences.
"""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from mgclust.kernels.toolkit.gpu_compiler import Module, compiled, or_null

__all__ = ["module", "start", "supports"]

Array = Any
FEWEST_FEATURES, MAX_FEATURES = 17, 64
FEWEST_CENTERS = 9  # of fewer, half a tile is empty, and differences are as fast
TILE_CENTERS, PART_FEATURES = 16, 32  # CENTERS come in tiles, features in parts
MAX_TILES = 2  # parts times tiles of centres: what the registers of a warp hold
STAGES, STAGE_ROWS = 3, 16
BLOCKS = {1: 16, 2: 8}  # warps of a multiprocessor, by parts times tiles


def _sizes(d: int, c: int) -> tuple[int, int]:
    """Parts of features, tiles of centres."""
    return -(-d // PART_FEATURES), -(-c // TILE_CENTERS)


def supports(dtype: Any, d: int, c: int, power: int) -> bool:
    """Return whether this kernel is for such rows and so many centres."""
    parts, tiles = _sizes(d, c)
    return (
        not power
        and dtype == np.float32
        and FEWEST_FEATURES <= d <= MAX_FEATURES
        and c >= FEWEST_CENTERS
        and parts * tiles <= MAX_TILES
    )


@functools.cache
def module(d: int, c: int) -> Module:
    """Return the kernel for so many features and centres."""
    parts, tiles = _sizes(d, c)
    sizes = {"DIM": d, "CENTER_TILES": tiles, "STAGES": STAGES, "BLOCKS": BLOCKS[parts * tiles]}
    return compiled("fuzzy_c_means/few_centers.cu", "float32", "l2", **sizes)


def start(x: Array, centers: Array, weights: Array | None, group: int, partial: Array) -> None:
    """Queue the sums of groups of rows: `partial` has shape (groups, models, c * d + c + 3), float32."""
    (k, d), (models, c, _) = x.shape, centers.shape
    parts, tiles = _sizes(d, c)
    shared = 4 * PART_FEATURES * parts * (STAGES * STAGE_ROWS + TILE_CENTERS * tiles)
    arguments = (x, np.int64(k), centers, np.int32(c), or_null(weights), np.int32(group), partial)
    module(d, c).get_function("warp_sums")((models, len(partial)), (32,), arguments, shared_mem=shared)
