"""Densities from reduced distances that are stored one tile at a time: array expressions, the same on both devices.

These densities are used for weighted rows, and for precomputed distances. The order of every sum depends only on the
numbers of the columns: the terms of 1,024 columns (a group) are added pair by pair in the type of the distances, and
the sums of groups are added one after the other in float64. So the bits depend neither on the rows of a tile nor on the
size of tiles.

Time: about ten passes over a tile that fits into a core's cache.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from mgclust.kernels.masks import any_true
from mgclust.kernels.toolkit.threads import run_tasks

__all__ = ["TILE_BYTES", "add_both_ways", "add_density", "computed_tiles", "density_of", "tile_numbers"]

Array = Any
GROUP = 1024  # columns
TILE_COLUMNS = 2 * GROUP
MIN_TILE, MAX_ON_CPU, MAX_ON_GPU = 64 * TILE_COLUMNS, 1 << 20, 1 << 25  # bounds of the number of distances in a tile
TILE_BYTES = 32 * MIN_TILE  # bytes of a tile and its temporary arrays
TASK_ROWS = 128  # rows of a task: 1,024 columns of these rows fit into a core's cache


def tile_numbers(xp: Any, free: int) -> int:
    """Return the number of distances that a tile may have if `free` bytes are free."""
    return max(MIN_TILE, min(MAX_ON_CPU if xp is np else MAX_ON_GPU, free // 256))


def computed_tiles(kernels: Any, x: Array, y: Array, norm: str, free: int) -> Iterator[tuple[slice, slice, Array]]:
    """Yield rows, columns and reduced distances, tile by tile; columns ascend, and y begins at the start of a group."""
    rows = tile_numbers(kernels.xp, free) // TILE_COLUMNS
    for start in range(0, len(x), rows):
        own = slice(start, min(start + rows, len(x)))
        for first in range(0, len(y), TILE_COLUMNS):
            columns = slice(first, min(first + TILE_COLUMNS, len(y)))
            yield own, columns, kernels.pairs.reduced_distances(x[own], y[columns], norm=norm)


def add_density(
    s: Array, weights: Array | None, *, density: str, cut: float, power: int, equal: Array, others: Array, xp: Any
) -> None:
    """Add to each row the weights of columns at distance 0, and the weights of other columns times their kernel.

    Parameters
    ----------
    s : array of shape (m, k)
        Reduced distances to columns; the first column begins a group.
    weights : array of shape (k,), optional
        Weights of the columns, in the type of s; by default 1.
    density : {"gaussian", "cutoff"}
        The kernel. "gaussian": ``exp(-(s / cut)**power)``, or 0 if this is below the smallest normal number. "cutoff":
        1 if ``s < cut``, with cut rounded to the type of s, else 0.
    cut : float
        Reduced cut-off distance.
    power : {1, 2}
        2 if the distance is proportional to s, 1 if it is proportional to the square root of s.
    equal, others : float64 arrays of shape (m,)
        Sums for columns at distance 0 and for other columns. Terms are added in place, columns in ascending order.
    xp : module
        numpy or cupy.
    """
    cut, most = s.dtype.type(cut), s.dtype.type(np.floor(-np.log(np.finfo(s.dtype).tiny)))

    def kernel(part: Array) -> Array:
        if density == "cutoff":
            return (part < cut).astype(s.dtype)
        values = part / cut
        if power == 2:
            values *= values
        near = values < most  # for larger values, exp is not a normal number, and takes several times as long
        xp.minimum(values, most, out=values)
        values = xp.exp(xp.negative(values, out=values), out=values)
        values *= near
        return values

    def add(start: int, stop: int) -> None:
        for first in range(0, s.shape[1], GROUP):
            part = s[start:stop, first : first + GROUP]
            terms, same = kernel(part), part == 0
            if weights is not None:
                terms *= weights[first : first + GROUP]
            if any_true(same):  # at distance 0 the kernel is 1
                equal[start:stop] += _row_sums(terms * same, xp)
                terms[same] = 0
            others[start:stop] += _row_sums(terms, xp)

    def task(index: int, _: int) -> None:
        with np.errstate(over="ignore"):  # squares overflow far beyond the cut
            add(index * TASK_ROWS, min((index + 1) * TASK_ROWS, len(s)))

    if xp is np:
        run_tasks(-(-len(s) // TASK_ROWS), task)
    else:
        add(0, len(s))


def add_both_ways(
    xp: Any,
    distances: Callable[..., Array],
    x: Array,
    y: Array,
    *,
    scale: float,
    diagonal: bool,
    unit: float,
    x_out: Array,
    y_out: Array,
) -> None:
    """Do the work of `PairKernels.gaussian_both_ways` by direct differences; `distances` is `reduced_distances`."""
    for start in range(0, len(x), MIN_TILE // TILE_COLUMNS):
        rows = slice(start, min(start + MIN_TILE // TILE_COLUMNS, len(x)))
        for first in range(0, len(y), TILE_COLUMNS):
            columns = slice(first, min(first + TILE_COLUMNS, len(y)))
            s = distances(x[rows], y[columns], norm="l2").astype("float64")
            terms = xp.rint(xp.exp(-scale * s) * unit).astype("int64")
            if diagonal:
                terms *= xp.arange(columns.start, columns.stop) > xp.arange(rows.start, rows.stop)[:, None]
            x_out[rows] += terms.sum(axis=1)
            y_out[columns] += terms.sum(axis=0)


def density_of(equal: Array, others: Array, xp: Any) -> Array:
    """Return the total of both sums of `add_density`, without a weight of 1 for the row itself."""
    return xp.maximum(equal - 1.0, 0.0) + others


def _row_sums(terms: Array, xp: Any) -> Array:
    """Sum at most 1,024 columns in a fixed order."""
    if terms.shape[1] < GROUP:
        short, terms = terms, xp.zeros((len(terms), GROUP), terms.dtype)
        terms[:, : short.shape[1]] = short
    while terms.shape[1] > 32:
        half = terms.shape[1] // 2
        terms = terms[:, :half] + terms[:, half:]
    terms = xp.ascontiguousarray(terms.T)  # short rows are slow
    while len(terms) > 1:
        half = len(terms) // 2
        terms = terms[:half] + terms[half:]
    return terms[0]
