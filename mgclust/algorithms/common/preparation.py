"""Preparation of rows for the kernels, and choice of the arithmetic for their distances."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np

from mgclust.base.errors import Doubt, InputError, PrecisionWarning
from mgclust.engine.rank import not_finite
from mgclust.engine.rows import few_digits
from mgclust.engine.spmd import Context
from mgclust.kernels.masks import any_true, count_true
from mgclust.kernels.pairs.metrics import METRICS, Metric

__all__ = [
    "Prepared",
    "choose_norm",
    "doubtful",
    "largest_value",
    "prepare_again",
    "prepare_beside",
    "prepare_rows",
    "reject_out_of_range",
    "warnings_of_distances",
]

Array = Any
# Distances are computed by products if |x|^2 is at most this many times dc^2. The float32 error of (d / dc)^2 is then
# about 2e-6 for every pair. If (d / dc)^2 is proportional to s^2, the error grows with s, so products are not used.
DOT_CONDITION = 8.0
MIN_FEATURES_FOR_DOT = 17
# If rounding causes larger relative errors, it is in doubt which of several close rows is the nearest. The first limit
# is for rows of unit length, and for the error of a typical distance. The second limit is for all other rows, and for
# the error that only the fraction SHARE_OF_ROWS of the distances to nearest rows exceeds.
DOUBTFUL_DISTANCES = 1e-4
DOUBTFUL_NEAREST = 3e-3
SHARE_OF_ROWS = 0.01


class Prepared(NamedTuple):
    """Prepared rows, and the changes that were made to them."""

    radius: float  # largest squared length of a prepared row
    origin: np.ndarray  # (n_features,), float64: it was subtracted from every row; 0 if rows are scaled instead
    moved: float = 0.0  # largest distance by which rounding to the rows' type has moved a row, in the metric's norm
    distance_error: float = 0.0  # for rows of unit length: relative error of a typical distance, caused by rounding

    def error_of(self, measure: Metric, distances: np.ndarray) -> float:
        """Return the relative error that 99% of these distances do not exceed; at most 1.

        Rounding moves both rows of a pair, and the relative error of a square is twice the relative error of its root.
        Distances of 0 are left out, because nearly all of them are between equal rows. For rows of unit length, return
        `distance_error`.
        """
        if measure.unit_rows or not self.moved:
            return self.distance_error
        near = np.asarray(distances, np.float64)
        positive = near[near > 0]
        if not len(positive):
            return 0.0
        lengths, times = (np.sqrt(positive / measure.factor), 4.0) if measure.is_square else (positive, 2.0)
        return min(1.0, times * self.moved / float(np.quantile(lengths, SHARE_OF_ROWS)))


def prepare_rows(context: Context, measure: Metric, weights: Array | None = None, *, gaussian: bool = True) -> Prepared:
    """Centre the rows about their (weighted) mean, or normalise them.

    gaussian: whether the type of the rows must also hold the squares of distances.
    """
    comm, xp, kernels = context.comm, context.kernels.xp, context.kernels
    d = context.dataset_shape[1]
    narrowed = _any(context, context.rows.rounded)
    if measure.unit_rows:
        _reject_undefined(context, measure)
        center = np.zeros(d)
        if narrowed:
            _reject_faint(context, measure)
    else:
        center = round_center(context, weights)
    watched = _Watched(measure.prepare(xp.asarray(center)), xp.asarray(center), measure.unit_rows)
    context.rows.apply(watched)
    longest, largest = xp.zeros(1), largest_value(context)
    origin = xp.zeros((1, d), dtype=context.dtype)
    for x in _pieces(context):
        longest = xp.maximum(longest, kernels.pairs.reduced_distances(origin, x, norm="l2").max())
    reject_out_of_range(context, measure, largest, gaussian=gaussian)
    offset = context.rows.offset
    radius = float(comm.all_reduce(longest, "max")[0])
    # Each rounding changes a number by at most half a unit in its last place, so a row moves by at most the fraction
    # `unit` of its length.
    unit = float(np.finfo(context.dtype).eps) / 2
    if measure.unit_rows:
        moved = unit * (1.0 + narrowed)
        return Prepared(radius, center, moved, _distance_error(context, moved))
    before = radius**0.5 + float(np.linalg.norm(center))
    moved = unit * (radius**0.5 * _any(context, watched.rounded) + before * narrowed)
    if measure.norm == "l1":
        moved *= d**0.5
    return Prepared(radius, center if offset is None else offset + center, moved)


class _Watched:
    """Transform of rows that records whether the subtraction of a centre was rounded for any row."""

    def __init__(self, transform: Callable[[Array], Array], center: Array, rounded: bool) -> None:
        self._transform, self._center, self.rounded = transform, center, rounded

    def __call__(self, x: Array) -> Array:
        y = self._transform(x)
        if not self.rounded:  # a sum in float64 shows rounding of narrower types; float64 rows count as rounded
            self.rounded = any_true(y + self._center != x) if x.dtype.itemsize < 8 else True
        return y


def _any(context: Context, mine: bool) -> bool:
    """Return whether a condition holds on at least one rank. Collective."""
    return bool(context.comm.all_reduce(np.array([int(mine)]), "max")[0])


def _distance_error(context: Context, moved: float) -> float:
    """Return the relative error of the mean squared distance between unit rows if each row has moved by `moved`."""
    n, column_sums = context.dataset_shape[0], context.kernels.exact_sums.column_sums
    about = context.kernels.xp.asarray(context.sum_over_blocks(column_sums) / n)
    variance = float((context.sum_over_blocks(lambda x: column_sums(x, about)) / n).sum())
    # Both rows of a pair move, and the relative error of a square is twice the relative error of its root. The mean
    # squared distance of all pairs is twice the variance.
    return 4.0 * moved / (2.0 * variance) ** 0.5 if variance > 0 else 0.0


def doubtful(error: float, measure: Metric) -> bool:
    """Return whether an error from `Prepared.error_of` needs a warning."""
    return error > (DOUBTFUL_DISTANCES if measure.unit_rows else DOUBTFUL_NEAREST)


def warnings_of_distances(error: float, metric: str, dtype: str, option: str = "metric") -> list[Doubt]:
    """Return a warning if rows are so near each other that their number type holds few digits of their distances.

    option: the parameter that names the metric.
    """
    if not error:  # precomputed distances also have the error 0; they have no entry in `METRICS`
        return []
    measure, which = METRICS[metric], "a typical distance"
    if not doubtful(error, measure):
        return []
    why = "the rows have nearly one direction"
    if not measure.unit_rows:
        why, which = "some rows lie very near each other compared with the spread of all rows", "their distances"
    remedy = "use dtype='float64'." if dtype == "float32" else "leave out far rows."
    text = f"{option}='{metric}' in {dtype}: {why}, so rounding may change {which} by a relative {error:.1g}; {remedy}"
    return [Doubt(text, PrecisionWarning)]


def prepare_again(context: Context, measure: Metric, prepared: Prepared) -> None:
    """Prepare new rows in the same way as the rows of an earlier run."""
    xp, offset = context.kernels.xp, context.rows.offset
    if measure.unit_rows:
        _reject_undefined(context, measure)
    context.rows.apply(measure.prepare(xp.asarray(prepared.origin if offset is None else prepared.origin - offset)))
    _reject_far(context, measure, largest_value(context))


def _reject_far(context: Context, measure: Metric, largest: float, *, gaussian: bool = True) -> None:
    if not largest < (most := _range(context, measure, gaussian=gaussian)[1]):
        raise InputError(
            f"rows lie up to {largest:.3g} from the fitted rows; this distance should be below {most:.1g} with "
            f"dtype='{context.dtype}'; leave such rows out."
        )


def prepare_beside(
    context: Context, measure: Metric, prepared: Prepared, *, gaussian: bool = True, name: str = "X"
) -> Array:
    """Prepare this rank's part of the rows in `context.beside` like the rows of the data; return them on the device.

    name: the parameter of the public function that takes these rows. gaussian: see `prepare_rows`.
    """
    assert context.beside is not None
    offset = np.zeros(1) if context.rows.offset is None else context.rows.offset
    read = context.beside.read()
    narrow = context.rows.narrowed(read)[1]
    bad = ~np.isfinite(narrow)
    count, first = _over_all_ranks(context, bad.sum(axis=1))
    if count:
        finite = abs(read[np.isfinite(read)]).max(initial=0.0)
        beyond = finite if finite > float(np.finfo(context.dtype).max) else 0.0
        overflown = float(context.comm.all_reduce(np.array([beyond]), "max")[0])
        raise not_finite(count, first, context.beside.source.shape, context.dtype, overflown, name)
    count, first = _over_all_ranks(context, measure.undefined(narrow).astype(np.int64))
    if count:
        raise _undefined(measure, count, first)
    moved = context.kernels.memory.to_device(narrow)
    moved = measure.prepare(context.kernels.xp.asarray(prepared.origin - offset))(moved)
    largest = float(abs(moved).max()) if len(moved) else 0.0
    largest = float(context.comm.all_reduce(np.array([largest]), "max")[0])
    _reject_far(context, measure, largest, gaussian=gaussian)
    return moved


def _over_all_ranks(context: Context, counts: np.ndarray) -> tuple[int, int]:
    """Return the sum of counts over the rows in `context.beside`, and the first row with a positive count. Collective.

    `counts` has one number for each row of this rank's part.
    """
    assert context.beside is not None
    rows = context.beside.source.shape[0]
    first = context.beside.start + int(np.flatnonzero(counts)[0]) if counts.any() else rows
    total = int(context.comm.all_reduce(np.array([counts.sum()], np.int64), "sum")[0])
    return total, int(context.comm.all_reduce(np.array([first], np.int64), "min")[0])


def _pieces(context: Context) -> Iterator[Array]:
    """Yield the local rows, a few at a time."""
    step = max(1, context.rows.piece // context.dataset_shape[1])
    for chunk in context.rows.chunks():
        for start in range(0, len(chunk.x), step):
            yield chunk.x[start : start + step]


def largest_value(context: Context) -> float:
    """Return the largest absolute value in the rows of all ranks. Collective."""
    xp = context.kernels.xp
    largest = xp.zeros(1)
    for x in _pieces(context):
        largest = xp.maximum(largest, abs(x).max())
    return float(context.comm.all_reduce(largest, "max")[0])


def reject_out_of_range(context: Context, measure: Metric, largest: float, *, gaussian: bool = True) -> None:
    """Reject rows whose squares (for some metrics, squares of squares) overflow, or lose digits to underflow."""
    low, high = _range(context, measure, gaussian=gaussian)
    # If all numbers became 0 in a narrower type, all centred values are 0, so check the original numbers.
    largest = largest or float(context.comm.all_reduce(np.array([context.rows.vanished]), "max")[0])
    if largest and not low < largest < high:
        reach = f"reach {largest:.3g}" if np.isfinite(largest) else "overflow"
        least, most = _range(context, measure, np.float64, gaussian=gaussian)
        helps = context.dtype != np.float64 and (least < largest < most or not np.isfinite(largest))
        wider = " or use dtype='float64'" if helps else ""
        raise InputError(
            f"centred values {reach}; with metric='{measure.name}' and dtype='{context.dtype}' they "
            f"should be between {low:.1g} and {high:.1g}; rescale the data{wider}."
        )


def _range(context: Context, measure: Metric, dtype: Any = None, *, gaussian: bool = True) -> tuple[float, float]:
    """Return the limits of the largest absolute value, for the type of the rows or for `dtype`.

    Gaussian densities raise reduced distances to the metric's power; all other results use reduced distances unchanged.
    """
    limits, d = np.finfo(dtype or context.dtype), context.dataset_shape[1]
    sums_squares = measure.norm == "l2"
    power = 2 * measure.power if gaussian else 1 + sums_squares
    high = float(limits.max) ** (1 / power) / (4 * (d**0.5 if power > 1 else d))
    return float(limits.tiny) ** (1 / power) * 2.0**20, high


def _reject_undefined(context: Context, measure: Metric) -> None:
    """Reject rows without a direction, including rows that have lost it by conversion to a narrower type."""
    narrowed = _any(context, context.rows.rounded)
    count, first = _rows_that(context, measure.undefined)
    if count:
        raise _undefined(measure, count, first, str(context.dtype) if narrowed else "")


def _undefined(measure: Metric, count: int, first: int, narrowed: str = "") -> InputError:
    what = "constant" if measure.center_rows else "all-zero"
    in_it, wider = (
        (f" in dtype='{narrowed}'", ", use dtype='float64' if rounding is the cause,") if narrowed else ("", "")
    )
    return InputError(
        f"metric='{measure.name}' is undefined for {what} rows: {count} of them{in_it}, the first is row {first}; "
        f"drop them{wider} or choose metric='euclidean'."
    )


def _reject_faint(context: Context, measure: Metric) -> None:
    """Reject rows whose numbers are so small that a narrower type holds fewer digits of them than of other numbers."""
    least = float(np.finfo(context.dtype).tiny / np.finfo(context.dtype).eps)
    count, first = _rows_that(context, lambda x: abs(x).max(axis=1) < least)
    if count:
        raise InputError(
            f"metric='{measure.name}': all numbers of {count} rows are within {least:.1g} of 0, the first is row "
            f"{first}, so dtype='{context.dtype}' holds few digits of them; rescale the data or use dtype='float64'."
        )


def _rows_that(context: Context, marks: Callable[[Array], Array]) -> tuple[int, int]:
    """Count the rows of all ranks that a function marks, and find the first marked row.

    The function gets a few rows at a time.
    """
    count, first = 0, context.dataset_shape[0]
    step = max(1, context.rows.piece // context.dataset_shape[1])
    for chunk in context.rows.chunks():
        for start in range(0, len(chunk.x), step):
            marked = marks(chunk.x[start : start + step])
            if any_true(marked):
                count += count_true(marked)
                first = min(first, chunk.start + start + int(marked.argmax()))
    count = int(context.comm.all_reduce(np.array([count]), "sum")[0])
    return count, int(context.comm.all_reduce(np.array([first]), "min")[0])


def round_center(context: Context, weights: Array | None = None) -> np.ndarray:
    """Return the (weighted) mean of the rows in float64, rounded to few digits so that integers stay integers."""
    beside = [] if weights is None else [weights.astype("float64")[:, None]]
    total = (
        context.dataset_shape[0]
        if weights is None
        else context.sum_over_blocks(lambda _, w: w.sum(axis=(1, 2)), *beside)
    )
    column_sums = context.kernels.exact_sums.column_sums
    mean = context.sum_over_blocks(lambda x, *w: column_sums(math.prod(w, start=x)), *beside) / total
    about = context.kernels.xp.asarray(mean)
    variance = (
        context.sum_over_blocks(
            lambda x, *w: column_sums(w[0] * (x - about) ** 2) if w else column_sums(x, about), *beside
        )
        / total
    )
    return few_digits(mean, np.sqrt(variance))


def choose_norm(measure: Metric, d: int, radius: float, s: float, reach: float) -> str:
    """Choose how to compute distances: by products if these are accurate enough at the scale s, else by differences.

    reach: the `PRODUCT_REACH` of the kernels.
    """
    affordable = measure.power == 1 and radius <= reach * DOT_CONDITION * s
    if measure.norm == "l2" and d >= MIN_FEATURES_FOR_DOT and affordable:
        return "l2-dot"
    return measure.norm
