"""Pairs of rows in which most numbers are 0, such as counts of words: products of shared features, on a CPU.

Each feature has a list of its columns, so the products of a row with all columns need additions only for shared
features. The bounds of `cpu_products` then decide most pairs::

    x_i . y_j    for each feature of row i: for each column j in the list of that feature: dots[j] += x y
    decided      dots[j] above or below `Lengths.limits`, else by the direct difference

A feature that both rows lack adds ``fma(0, 0, s) = s`` to the direct difference. So the sum over the features that at
least one row has, in ascending order, is bitwise identical to the sum over all features, as `cpu_loops` computes it.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from mgclust.kernels.pairs.cpu_tasks import by_rows
from mgclust.kernels.pairs.products.cpu_products import Lengths
from mgclust.kernels.toolkit.cpu_compiler import compiled, inlined
from mgclust.kernels.toolkit.simd_steps import fma

__all__ = ["SparseColumns", "sparse_columns"]

Array = Any
MIN_FEATURES = 128
MIN_WORK = 1 << 24  # multiply-adds of all pairs and features: for fewer, listing the columns takes longer
SPARSITY = 16  # rows are sparse if at most one in SPARSITY numbers differs from 0
SAMPLE = 64  # number of rows from which sparsity is estimated
NONE = np.int32(np.iinfo(np.int32).max)  # a number that is larger than all feature numbers
FEATURES_A_PAIR = 8  # cost of a pair, as the number of features that take the same time


class Columns(NamedTuple):
    """Values that differ from 0, listed by feature with their columns, and by column with their features."""

    starts: Array  # (d + 1,) int64
    columns: Array  # (number of values,) int32, ascending within a feature
    values: Array
    row_starts: Array  # (k + 1,) int64
    features: Array  # (number of values,) int32, ascending within a column
    row_values: Array


def sparse_columns(x: Array, y: Array, norm: str) -> SparseColumns | None:
    """Prepare columns y for rows x; return None if other kernels are faster."""
    if norm == "l1" or x.shape[1] < MIN_FEATURES or x.size * len(y) < MIN_WORK or not (_is_sparse(x) and _is_sparse(y)):
        return None
    lengths = Lengths(x, y)
    return SparseColumns(x, y, lengths) if lengths.fit else None


class SparseColumns:
    """Columns for the kernels of sparse rows.

    Parameters
    ----------
    x, y : arrays of shape (m, d) and (k, d)
        Rows and columns.
    lengths : Lengths
        The lengths of rows and columns.
    """

    def __init__(self, x: Array, y: Array, lengths: Lengths) -> None:
        self._x, self._d, self._k = x.reshape(-1), x.shape[1], len(y)
        self._m, self._lengths, self._real = len(x), lengths, x.dtype
        row, feature = np.nonzero(y)
        values = y[row, feature]
        order = np.argsort(feature, kind="stable")
        self._columns = Columns(
            _starts(feature, self._d), row[order].astype(np.int32), values[order],
            _starts(row, self._k), feature.astype(np.int32), values,
        )  # fmt: skip

    def count(self, threshold: Any, out: Array, labels: tuple[Array, Array] | None = None) -> None:
        """Add to out the number of columns with s < threshold; if labels are given, only columns with another label."""
        self._near(threshold, out, np.empty(0, np.int32), labels or self._different())

    def write(self, threshold: Any, starts: Array, out: Array) -> None:
        """Write each row's columns with s < threshold to `out`, from the row's position in `starts` on."""
        self._near(threshold, np.array(starts, np.int64), out, self._different())

    def nearest(self, y_start: int, best: Array, best_index: Array) -> None:
        """Update each row's nearest column so far; ties go to the first column."""
        (rows, columns), share = self._lengths.lower()

        def body(start: int, stop: int, _: int) -> None:
            nearest(
                self._x, self._d, start, stop, self._columns, rows, columns, self._real.type(share), y_start, best,
                best_index, *self._room(),
            )  # fmt: skip

        by_rows(self._m, FEATURES_A_PAIR, self._k, body)

    def pick(self, threshold: Any, out: Array) -> None:
        """Pick rows in order, but skip rows near an earlier picked row; the columns must be the rows themselves."""
        limits = self._lengths.limits(float(threshold), float(threshold))
        ruled = np.zeros(self._m, np.uint8)
        pick(self._x, self._d, self._m, self._columns, limits, threshold, ruled, out, *self._room())

    def _near(self, threshold: Any, ends: Array, out: Array, labels: tuple[Array, Array]) -> None:
        limits = self._lengths.limits(float(threshold), float(threshold))

        def body(start: int, stop: int, _: int) -> None:
            near(
                self._x, self._d, start, stop, self._columns, limits, threshold, *labels, ends, len(out) > 0, out,
                *self._room(),
            )  # fmt: skip

        by_rows(self._m, FEATURES_A_PAIR, self._k, body)

    def _different(self) -> tuple[Array, Array]:
        return np.zeros(self._m, np.int32), np.ones(self._k, np.int32)

    def _room(self) -> tuple[Array, Array, Array]:
        """Allocate arrays for one call: for the products of a row, for its features and for their values."""
        return np.empty(self._k, self._real), np.empty(self._d, np.int32), np.empty(self._d, self._real)


def _is_sparse(x: Array) -> bool:
    some = x[:: max(1, len(x) // SAMPLE)]
    return bool(np.count_nonzero(some) * SPARSITY <= some.size)


def _starts(numbers: Array, count: int) -> Array:
    return np.concatenate([[0], np.cumsum(np.bincount(numbers, minlength=count))]).astype(np.int64)


@inlined
def _products(x: Any, i: int, d: int, listed: Any, dots: Any, features: Any, values: Any) -> int:
    """Compute the products of row i with all columns, and list the row's features; return the number of features."""
    starts, columns, entries = listed.starts, listed.columns, listed.values
    for j in range(dots.size):
        dots[j] = 0
    count = 0
    for k in range(d):
        value = x[i * d + k]
        if value != 0:
            features[count], values[count] = k, value
            count += 1
            for q in range(starts[k], starts[k + 1]):
                dots[columns[q]] += value * entries[q]
    return count


@inlined
def _distance(features: Any, values: Any, count: int, listed: Any, j: int) -> Any:
    """Return the reduced distance of a row to column j, over the features that either has, in ascending order."""
    others, entries = listed.features, listed.row_values
    p, q, last = 0, listed.row_starts[j], listed.row_starts[j + 1]
    zero = values.dtype.type(0)
    s = zero
    while p < count or q < last:
        own = features[p] if p < count else NONE
        other = others[q] if q < last else NONE
        a, b = zero, zero
        if own <= other:
            a = values[p]
            p += 1
        if other <= own:
            b = entries[q]
            q += 1
        s = fma(a - b, a - b, s)
    return s


@inlined
def _is_near(
    i: int, j: int, limits: Any, threshold: Any, listed: Any, dots: Any, features: Any, values: Any, count: int
) -> bool:
    below, above = limits
    if dots[j] > below[0][i] + below[1][j]:
        return True
    if dots[j] < above[0][i] + above[1][j]:
        return False
    return bool(_distance(features, values, count, listed, j) < threshold)


@compiled
def near(
    x: Any, d: int, start: int, stop: int, listed: Any, limits: Any, threshold: Any, own: Any, others: Any, ends: Any,
    listing: bool, out: Any, dots: Any, features: Any, values: Any,
) -> None:  # fmt: skip
    """Add to `ends` the number of near columns with another label.

    With `listing`, these columns are also written to `out`, for row i from position ends[i] on.
    """
    for i in range(start, stop):
        count = _products(x, i, d, listed, dots, features, values)
        for j in range(others.size):
            if own[i] != others[j] and _is_near(i, j, limits, threshold, listed, dots, features, values, count):
                if listing:
                    out[ends[i]] = j
                ends[i] += 1


@compiled
def nearest(
    x: Any, d: int, start: int, stop: int, listed: Any, rows: Any, columns: Any, share: Any, number: int, best: Any,
    index: Any, dots: Any, features: Any, values: Any,
) -> None:  # fmt: skip
    """Find each row's nearest column.

    The column with the smallest bound is compared first, then the columns whose bounds are not larger than the smallest
    distance so far.
    """
    for i in range(start, stop):
        count = _products(x, i, d, listed, dots, features, values)
        first = 0
        for j in range(dots.size):
            dots[j] = (rows[i] + columns[j]) - 2 * dots[j]
            if dots[j] < dots[first]:
                first = j
        reach = min(best[i], _distance(features, values, count, listed, first))
        for j in range(dots.size):
            if dots[j] * share <= reach:
                s = _distance(features, values, count, listed, j)
                if s < best[i] or (s == best[i] and number + j < index[i]):
                    best[i], index[i], reach = s, number + j, s


@compiled
def pick(
    x: Any, d: int, m: int, listed: Any, limits: Any, threshold: Any, ruled: Any, out: Any, dots: Any, features: Any,
    values: Any,
) -> None:  # fmt: skip
    """Set out to 1 for rows that are picked, and to 0 for others."""
    for i in range(m):
        out[i] = 0
        if ruled[i]:
            continue
        out[i] = 1
        count = _products(x, i, d, listed, dots, features, values)
        for j in range(i + 1, m):
            if not ruled[j] and _is_near(i, j, limits, threshold, listed, dots, features, values, count):
                ruled[j] = 1
