"""Moves of rows across the borders of parcels: each move makes the parcels more homogeneous and keeps them connected.

Rows z_i have length 1, so if series have mean 0, the products of rows are correlations. S_p is the sum of the rows of
parcel p, and E is the number of edges inside parcels. Each move raises

    J = sum over p of |S_p| + compactness E.

The first part is the sum of the correlations of all rows with the mean of their parcel (Dhillon and Modha 2001); the
second part favours smooth borders. In outline, if e_q is the number of neighbours of row i in parcel q::

    repeat until no row moves:
        for each row i, with its parcel p and the parcels q of its neighbours:
            rise(q) = |S_q + z_i| - |S_q| + |S_p - z_i| - |S_p| + compactness (e_q - e_p)
            move i to the q of the largest rise, if this rise is above 0 and p stays connected

Parcel p counts as connected without row i if the neighbours of i in p are connected by edges between these neighbours.
This condition is sufficient, and needs only the neighbours of i. The last row of a parcel does not move.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from mgclust.kernels.toolkit.cpu_compiler import called, compiled

__all__ = ["add_rows", "edge_products", "move_borders", "products_with_sums"]

Array = Any
PASSES = 100  # largest number of passes
SLICE = 4096  # rows that are visited between two calls of `on_progress`
LEAST_RISE = 1e-9  # smaller rises may be rounding errors


def move_borders(
    rows: Array,
    starts: Array,
    columns: Array,
    labels: Array,
    on_progress: Callable[[float], None],
    compactness: float = 0.0,
) -> tuple[np.ndarray, int]:
    """Move rows across borders until no move raises J, or until `PASSES` passes are done.

    Parameters
    ----------
    rows : float32 array of shape (n, n_features)
        Rows of length 1, or 0.
    starts : int64 array of shape (n + 1,)
    columns : int32 array
        Neighbours of each row.
    labels : int array of shape (n,)
        Parcel of each row, from 0 without gaps; each parcel is connected.
    on_progress : callable
        Receives the number of passes so far; the visited fraction of the rows counts as a fraction of a pass.
    compactness : float
        Weight in J of the number of edges inside parcels.

    Returns
    -------
    labels : int32 array of shape (n,)
        Parcel of each row after the moves; each parcel is connected.
    passes : int
        Number of passes; `PASSES` if the last one still moved a row.
    """
    labels = np.array(labels, np.int32)
    size = np.bincount(labels)
    sums = np.zeros((len(size), rows.shape[1]))
    add_rows(rows, labels, sums)
    most = int(np.diff(starts).max(initial=0))
    place, listed, queue = np.full(len(labels), -1, np.int32), np.empty(most, np.int32), np.empty(most, np.int32)
    squares = np.empty(len(size))
    for done in range(PASSES):
        write_squares(sums, squares)
        moved = 0
        for first in range(0, len(labels), SLICE):
            last = min(first + SLICE, len(labels))
            on_progress(done + first / len(labels))
            moved += move_once(
                rows, starts, columns, labels, compactness, sums, size, squares, place, listed, queue, first, last
            )
        if not moved:
            return labels, done + 1
    return labels, PASSES


def edge_products(rows: Array, starts: Array, columns: Array) -> np.ndarray:
    """Return the product of the two rows of each entry of `columns`; float64 array of the shape of `columns`."""
    products = np.empty(len(columns))
    multiply_edges(rows, starts, columns, products)
    return products


@compiled
def multiply_edges(rows: Array, starts: Array, columns: Array, products: Array) -> None:
    for row in range(len(starts) - 1):
        for at in range(starts[row], starts[row + 1]):
            other = columns[at]
            low, high = min(row, other), max(row, other)  # so that both directions have equal products
            products[at] = product(rows, low, rows, high)


def products_with_sums(rows: Array, labels: Array, sums: Array) -> np.ndarray:
    """Return the product of each row with the sum of its parcel; float64 array of shape (n,)."""
    products = np.empty(len(rows))
    multiply_sums(rows, labels, sums, products)
    return products


@compiled
def multiply_sums(rows: Array, labels: Array, sums: Array, products: Array) -> None:
    for i in range(len(rows)):
        products[i] = product(sums, labels[i], rows, i)


@compiled
def add_rows(rows: Array, labels: Array, sums: Array) -> None:
    """Add each row to the row of `sums` that its label names."""
    for i in range(len(labels)):
        for t in range(rows.shape[1]):
            sums[labels[i], t] += rows[i, t]


@compiled
def write_squares(sums: Array, squares: Array) -> None:
    """Write the squared length of each row of `sums`."""
    for parcel in range(len(sums)):
        total = 0.0
        for t in range(sums.shape[1]):
            total += sums[parcel, t] * sums[parcel, t]
        squares[parcel] = total


@called
def product(sums: Array, parcel: int, rows: Array, row: int) -> float:
    """Return the product of a row of `sums` and a row of `rows`, from four partial sums in an order that is fixed."""
    first = second = third = fourth = 0.0
    n = sums.shape[1]
    whole = n - n % 4
    for t in range(0, whole, 4):
        first += np.float64(sums[parcel, t]) * np.float64(rows[row, t])
        second += np.float64(sums[parcel, t + 1]) * np.float64(rows[row, t + 1])
        third += np.float64(sums[parcel, t + 2]) * np.float64(rows[row, t + 2])
        fourth += np.float64(sums[parcel, t + 3]) * np.float64(rows[row, t + 3])
    for t in range(whole, n):
        first += np.float64(sums[parcel, t]) * np.float64(rows[row, t])
    return (first + second) + (third + fourth)


@called
def stays_connected(
    starts: Array, columns: Array, labels: Array, row: int, place: Array, listed: Array, queue: Array
) -> bool:
    """Return whether a row has neighbours in its parcel, and edges between these neighbours connect them."""
    count, own = 0, labels[row]
    for at in range(starts[row], starts[row + 1]):
        if labels[columns[at]] == own:
            listed[count] = columns[at]
            place[columns[at]] = count
            count += 1
    reached, at = 0, 0
    if count > 0:
        queue[0], reached = listed[0], 1
        place[listed[0]] = -1
    while at < reached:
        here = queue[at]
        at += 1
        for to in range(starts[here], starts[here + 1]):
            if place[columns[to]] >= 0:
                place[columns[to]] = -1
                queue[reached] = columns[to]
                reached += 1
    for each in range(count):
        place[listed[each]] = -1
    return count > 0 and reached == count


@compiled
def move_once(
    rows: Array,
    starts: Array,
    columns: Array,
    labels: Array,
    compactness: float,
    sums: Array,
    size: Array,
    squares: Array,
    place: Array,
    listed: Array,
    queue: Array,
    first: int,
    last: int,
) -> int:
    """Visit each of the rows first..last-1 once, in order, and move it if a move raises J.

    `squares` are the squared lengths of the sums; a move changes them. `place` must be -1 for each row; its values
    change during the call, and are -1 again at the end. Return the number of rows that moved.
    """
    moved = 0
    for row in range(first, last):
        own = labels[row]
        if size[own] == 1:
            continue
        inside = 0
        for at in range(starts[row], starts[row + 1]):
            inside += labels[columns[at]] == own
        if inside == starts[row + 1] - starts[row]:
            continue
        length = 0.0
        for t in range(rows.shape[1]):
            length += np.float64(rows[row, t]) * np.float64(rows[row, t])
        without = max(squares[own] - 2 * product(sums, own, rows, row) + length, 0.0)
        least = math.sqrt(squares[own]) - math.sqrt(without) + compactness * inside + LEAST_RISE
        best, largest, square = own, least, 0.0
        before = own
        for at in range(starts[row], starts[row + 1]):
            other = labels[columns[at]]
            if other in (own, before, best):  # skips most repeated parcels; to visit one again only costs time
                continue
            before = other
            to = squares[other] + 2 * product(sums, other, rows, row) + length
            there = 0
            for each in range(starts[row], starts[row + 1]):
                there += labels[columns[each]] == other
            rise = math.sqrt(max(to, 0.0)) - math.sqrt(squares[other]) + compactness * there
            if rise > largest or (rise == largest and best != own and other < best):
                best, largest, square = other, rise, to
        if best == own or not stays_connected(starts, columns, labels, row, place, listed, queue):
            continue
        for t in range(rows.shape[1]):
            sums[own, t] -= rows[row, t]
            sums[best, t] += rows[row, t]
        squares[own], squares[best] = without, square
        size[own] -= 1
        size[best] += 1
        labels[row] = best
        moved += 1
    return moved
