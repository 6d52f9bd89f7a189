"""Launches of ``few_centers.cu``: the sums of fuzzy c-means with few centres, by products of warps.

These kernels are used for m = 2 and float32 rows with 17 to 64 features. The choice depends only on the data, because
the sums are not bitwise identical to sums by direct differences.
"""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from mgclust.kernels.toolkit.gpu_compiler import Module, compiled, or_null

__all__ = ["module", "start", "supports"]

Array = Any
FEWEST_FEATURES, MAX_FEATURES = 17, 64
FEWEST_CENTERS = 9  # with fewer centres, half a tile is empty, and direct differences are as fast
TILE_CENTERS, PART_FEATURES = 16, 32  # centres per tile, and features per part
MAX_TILES = 2  # maximum of parts times tiles of centres, which the registers of a warp can hold
STAGES, STAGE_ROWS = 3, 16
BLOCKS = {1: 16, 2: 8}  # warps per multiprocessor, by parts times tiles


def _sizes(d: int, c: int) -> tuple[int, int]:
    """Return the number of parts of features, and the number of tiles of centres."""
    return -(-d // PART_FEATURES), -(-c // TILE_CENTERS)


def supports(dtype: Any, d: int, c: int, power: int) -> bool:
    """Return whether this kernel supports rows of this type with d features, c centres, and POWER in ``fuzzy.cu``."""
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
    """Return the kernel for d features and c centres."""
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
