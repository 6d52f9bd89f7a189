"""Estimate of the memory that a rank of density peaks needs in addition to its rows."""

from __future__ import annotations

from mgclust.algorithms.density_peaks.cutoff_distance.fraction_choice import BYTES_PER_ROW as CHOICE_BYTES_PER_ROW
from mgclust.algorithms.density_peaks.cutoff_distance.pair_quantile import BINS, sample_sizes
from mgclust.algorithms.density_peaks.cutoff_distance.random_pairs import random_pairs_bytes
from mgclust.algorithms.density_peaks.cutoff_distance.row_sample import COMPARED_ROWS, choice_rows
from mgclust.algorithms.density_peaks.passes import near_linear
from mgclust.algorithms.density_peaks.passes.precomputed_pairs import measure_of
from mgclust.algorithms.density_peaks.topography.adaptive_density import PIECE_BYTES
from mgclust.engine.memory import Estimate
from mgclust.engine.partition import Partition
from mgclust.kernels.pairs.density import TILE_BYTES

__all__ = ["estimate", "estimate_choice"]


def estimate(
    shape: tuple[int, int],
    itemsize: int,
    size: int,
    room: int,
    *,
    metric: str,
    algorithm: str,
    k: int,
    with_errors: bool,
    weighted: bool,
    choice: bool,
    compared: bool = False,
    pairs: int,
) -> Estimate:
    """Estimate the memory of a rank in addition to its rows.

    k: length of the lists of nearest rows that are kept for densities, or 0.
    with_errors: whether the densities have errors.
    choice: whether a sample of rows is drawn for dc or for separated clusters.
    compared: whether a small sample is drawn, to compare clusters of a given number with separated clusters.
    pairs: number of random pairs that are drawn for dc.
    """
    n, d = shape
    near = near_linear.is_taken(shape, measure_of(metric), algorithm)
    # rho, delta, nearest_higher, order, labels, and one copy while they are gathered. `DuplicateRows` sorts in the same
    # memory earlier.
    what = {"vectors of all rows": 64 * n}
    if weighted or metric == "precomputed":
        what["tile"] = TILE_BYTES
    if with_errors:
        # The lists of another rank's rows, the vectors that find the borders of clusters, and the current block.
        what["nearest rows of another rank"] = k * (2 * itemsize + 16) * -(-n // size)
        what["densities"] = 40 * n + PIECE_BYTES * Partition.plan(n, size).block_rows
    if metric == "precomputed":
        if choice or compared:
            rows = choice_rows(n, given=True) if choice else min(n, COMPARED_ROWS)
            what["sample that chooses dc_fraction"] = rows * (4 * rows * itemsize + CHOICE_BYTES_PER_ROW)
        if with_errors:
            what["nearest rows"] = k * (itemsize + 8) * -(-n // size)
            what["sorted tile"] = TILE_BYTES * (2 + 8 // itemsize)
        return Estimate(what)
    what["histogram"] = 2 * 8 * BINS
    sample = sample_sizes(n, d, near_linear=near)[-1]
    what["sample"] = sample * d * itemsize
    if pairs:
        what["random pairs"] = random_pairs_bytes(pairs, d, itemsize)
    if k:
        what["nearest rows"] = k * (itemsize + 8) * -(-n // size)
    if choice or compared:
        rows = choice_rows(n) if choice else min(n, COMPARED_ROWS)
        what["sample that chooses dc_fraction"] = rows * (d * itemsize + CHOICE_BYTES_PER_ROW)
    if near:
        vectors = what["vectors of all rows"] + (8 + itemsize) * n  # plus gamma, and the reduced distances of delta
        what["tree"] = near_linear.tree_bytes(n, sample, d, itemsize, vectors=vectors) - what["vectors of all rows"]
        what["grid"] = near_linear.BYTES_PER_CELL * near_linear.most_cells(n)
    return Estimate(what)


def estimate_choice(shape: tuple[int, int], itemsize: int, size: int, room: int) -> Estimate:
    """Estimate the memory of a rank that chooses other centres for a finished fit."""
    return Estimate({"vectors of all rows": 64 * shape[0]})
