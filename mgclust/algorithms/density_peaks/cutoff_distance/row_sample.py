"""A sample of rows that does not depend on the order of the rows, for the choice of dc and for separated clusters.

Each distinct row has the total weight of its copies, and a random number that depends on its values and the seed.
The sample consists of all distinct rows if there are few, else of the rows with the largest ``weight / number``
(priority sampling: Duffield, Lund, Thorup, J. ACM 54:32, 2007). A row in the sample counts with its own weight, or with
the largest ``weight / number`` outside the sample if that is larger. So a repeated row and a row of weight 2 give the
same sample.

With precomputed distances, the values of a row are its distances in any order, and rows at distance 0 are equal.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from mgclust.algorithms.density_peaks.passes.duplicate_rows import kinds_of_rows
from mgclust.base.hashing import splitmix64
from mgclust.engine.spmd import Context
from mgclust.kernels.masks import occurrences

__all__ = ["COMPARED_ROWS", "MAX_ROWS", "MIN_ROWS", "RowSample", "choice_rows", "draw_sample"]

Array = Any

MIN_ROWS, MAX_ROWS, MAX_GIVEN_ROWS = 3072, 16384, 8192
COMPARED_ROWS = 1024  # size of the sample whose separated clusters are compared with clusters of a given number
UNITS = 2.0**30  # largest distance in the integer units in which the distances of a row are summed


@dataclass(frozen=True)
class RowSample:
    """Distinct rows of a sample, on the device of every rank.

    Attributes
    ----------
    numbers : int64 array of shape (m,)
        Row numbers: among equal rows, the first one with a positive weight. On the host, in random order.
    x : array of shape (m, n_features)
        The rows; with precomputed distances, the distances among them, of shape (m, m).
    weights : float64 array of shape (m,) or None
        Number of rows that each row represents, on the host; None if each row represents only itself.
    complete : bool
        Whether the sample holds all distinct rows of positive weight.
    """

    numbers: np.ndarray
    x: Array
    weights: np.ndarray | None
    complete: bool

    def __len__(self) -> int:
        return len(self.numbers)

    def per_row(self, rho: np.ndarray) -> np.ndarray:
        """Scale densities to a mean weight of 1, because copies of all rows are not evidence."""
        if self.weights is None:
            return rho
        return np.maximum((rho + np.minimum(self.weights, 1.0)) / self.weights.mean() - 1.0, 0.0)


def choice_rows(n: int, *, given: bool = False) -> int:
    """Return the size of the sample of n distinct rows.

    Parameters
    ----------
    n : int
    given : bool
        Whether the rows are precomputed distances.

    Returns
    -------
    int
    """
    return min(n, max(MIN_ROWS, min(n // 3, MAX_GIVEN_ROWS if given else MAX_ROWS)))


def draw_sample(
    context: Context, seed: int, weights: Array | None, *, given: bool, most: int | None = None
) -> RowSample:
    """Draw the sample; every rank gets the same sample.

    Parameters
    ----------
    context : Context
        Its rows are prepared.
    seed : int
        Seed of the random numbers.
    weights : float64 array of shape (n,), optional
        The weights of all rows, on the device; None: 1 each.
    given : bool
        Whether the rows are precomputed distances.
    most : int, optional
        Largest size of the sample.

    Returns
    -------
    RowSample
    """
    xp, host = context.kernels.xp, context.kernels.memory.to_host
    hashes, first = _distance_kinds(context, weights) if given else kinds_of_rows(context)
    # Weights are added on the host, in the order of the rows, because rounding depends on the order.
    if weights is None:
        kind, weight, total = first, None, occurrences(first, len(first), xp)
    else:
        kind, weight = host(first), np.asarray(host(weights), np.float64)
        total = xp.asarray(np.bincount(kind, weight, len(kind)))
    found = xp.flatnonzero(total > 0)
    salt = np.uint64(int(np.random.default_rng(seed).integers(1 << 63)))
    number = (splitmix64(hashes[found] ^ salt).astype("float64") + 0.5) / 2.0**64
    worth = total[found].astype("float64")
    m = min(choice_rows(len(found), given=given), most or len(found))
    complete, least = m == len(found), 0.0
    if not complete:
        priority = worth / number
        at = len(found) - 1 - m
        least = float(xp.partition(priority, at)[at])
        drawn = xp.flatnonzero(priority > least)
        found, number, worth = found[drawn], number[drawn], worth[drawn]
    kinds, number, worth = host(found), host(number), host(worth)
    if not complete:
        worth = np.maximum(worth, least)
        worth = worth / worth.min()
    order = np.lexsort((kinds, number))
    numbers, worth = kinds[order], worth[order]
    if weight is not None:
        some = np.flatnonzero(weight > 0)[::-1]
        representative = np.zeros(len(kind), np.int64)
        representative[kind[some]] = some  # in descending order, so the first row is written last
        numbers = representative[numbers]
    ascending = np.sort(numbers)
    place = xp.asarray(np.searchsorted(ascending, numbers))
    x = _distances_among(context, ascending)[place][:, place] if given else context.gather_rows(ascending)[place]
    return RowSample(numbers, x, None if (worth == 1).all() else worth, complete)


def _distance_kinds(context: Context, weights: Array | None) -> tuple[Array, Array]:
    """Return, for each row, a hash of its distances in any order, and the number of the first row at distance 0."""
    xp, rows = context.kernels.xp, context.rows
    largest = xp.zeros(1)
    for chunk in rows.chunks():
        largest = xp.maximum(largest, chunk.x.max() if len(chunk.x) else 0)
    unit = UNITS / (float(context.comm.all_reduce(largest, "max")[0]) or 1.0)
    counts = 1 if weights is None else xp.rint(weights).astype("int64")
    sums, first = [], []
    for chunk in rows.chunks():
        for start in range(0, len(chunk.x), 256):
            s = chunk.x[start : start + 256]
            sums.append((xp.rint(s * unit).astype("int64") * counts).sum(axis=1).astype("uint64"))
            first.append((s == 0).argmax(axis=1))
    empty = xp.zeros(0, "int64")
    hashes = context.comm.all_gather(xp.concatenate([empty.astype("uint64"), *sums]))
    return splitmix64(hashes), context.comm.all_gather(xp.concatenate([empty, *first]))


def _distances_among(context: Context, numbers: np.ndarray) -> Array:
    """Gather the distances among some rows."""
    xp, parts = context.kernels.xp, []
    columns = xp.asarray(numbers)
    for chunk in context.rows.chunks():
        here = numbers[(numbers >= chunk.start) & (numbers < chunk.stop)] - chunk.start
        parts.append(chunk.x[xp.asarray(here)][:, columns])
    return context.comm.all_gather(xp.concatenate(parts))
