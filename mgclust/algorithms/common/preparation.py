"""Preparation of rows for the kernels, and the arithmetic that their distances can afford."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from mgclust.engine.rank import not_finite
from mgclust.engine.rows import PIECE_NUMBERS, few_digits
from mgclust.engine.spmd import Context
from mgclust.errors import InputError
from mgclust.kernels.masks import any_true
from mgclust.kernels.pairs.metrics import Metric

__all__ = [
    "Prepared",
    "choose_norm",
    "largest_value",
    "prepare_again",
    "prepare_beside",
    "prepare_rows",
    "refuse_out_of_range",
]

Array = Any
# A product-based distance is used while |x|^2 <= this many squared dc: the float32 error of (d/dc)^2 is then about
# 2e-6 for every pair. Where (d/dc)^2 goes with s^2, the error grows with s: no products there.
DOT_CONDITION = 8.0
MIN_FEATURES_FOR_DOT = 17


class Prepared(NamedTuple):
    """Prepared rows, and the changes that were made to them."""

    radius: float  # largest squared length of a row since
    origin: np.ndarray  # (n_features,) what was subtracted from every row, float64; 0 where rows are scaled instead


def prepare_rows(context: Context, measure: Metric, weights: Array | None = None) -> Prepared:
    """Centre (or normalise) the rows; about the mean of those that have a weight, if some have none."""
    comm, xp, kernels = context.comm, context.kernels.xp, context.kernels
    d = context.dataset_shape[1]
    if measure.unit_rows:
        _refuse_undefined(context, measure)
        center = np.zeros(d)
    else:
        center = round_center(context, weights)
    context.rows.apply(measure.prepare(xp.asarray(center)))
    longest, largest = xp.zeros(1), largest_value(context)
    origin = xp.zeros((1, d), dtype=context.dtype)
    for x in _pieces(context):
        longest = xp.maximum(longest, kernels.pairs.reduced_distances(origin, x, norm="l2").max())
    refuse_out_of_range(context, measure, largest)
    offset = context.rows.offset
    return Prepared(float(comm.all_reduce(longest, "max")[0]), center if offset is None else offset + center)


def prepare_again(context: Context, measure: Metric, prepared: Prepared) -> None:
    """Do to new rows what was done to those of an earlier run."""
    xp, offset = context.kernels.xp, context.rows.offset
    if measure.unit_rows:
        _refuse_undefined(context, measure)
    context.rows.apply(measure.prepare(xp.asarray(prepared.origin if offset is None else prepared.origin - offset)))
    _refuse_far(context, measure, largest_value(context))


def _refuse_far(context: Context, measure: Metric, largest: float) -> None:
    if not largest < (most := _range(context, measure)[1]):
        raise InputError(
            f"rows lie up to {largest:.3g} from those that were fitted, that should be below {most:.1g} with "
            f"dtype='{context.dtype}'; leave such rows out."
        )


def prepare_beside(context: Context, measure: Metric, prepared: Prepared) -> Array:
    """Prepare this rank's share of the rows beside the data as the context's own were; on the device."""
    assert context.beside is not None
    offset = np.zeros(1) if context.rows.offset is None else context.rows.offset
    with np.errstate(over="ignore", invalid="ignore"):
        read = context.beside.read()
        narrow = (read - offset).astype(context.dtype)
    bad = ~np.isfinite(narrow)
    count, first = _over_all_ranks(context, bad.sum(axis=1))
    if count:
        finite = abs(read[np.isfinite(read)]).max(initial=0.0)
        beyond = finite if finite > float(np.finfo(context.dtype).max) else 0.0
        overflown = float(context.comm.all_reduce(np.array([beyond]), "max")[0])
        raise not_finite(count, first, context.beside.source.shape, context.dtype, overflown)
    count, first = _over_all_ranks(context, measure.undefined(narrow).astype(np.int64))
    if count:
        raise _undefined(measure, count, first)
    moved = context.kernels.memory.to_device(narrow)
    moved = measure.prepare(context.kernels.xp.asarray(prepared.origin - offset))(moved)
    largest = float(abs(moved).max()) if len(moved) else 0.0
    _refuse_far(context, measure, float(context.comm.all_reduce(np.array([largest]), "max")[0]))
    return moved


def _over_all_ranks(context: Context, counts: np.ndarray) -> tuple[int, int]:
    """Sum of counts of the rows beside the data, and the first row with one; of this rank's share they are given."""
    assert context.beside is not None
    rows = context.beside.source.shape[0]
    first = context.beside.start + int(np.flatnonzero(counts)[0]) if counts.any() else rows
    total = int(context.comm.all_reduce(np.array([counts.sum()], np.int64), "sum")[0])
    return total, int(context.comm.all_reduce(np.array([first], np.int64), "min")[0])


def _pieces(context: Context) -> Iterator[Array]:
    """Own rows, a few at a time."""
    step = max(1, PIECE_NUMBERS // context.dataset_shape[1])
    for chunk in context.rows.chunks():
        for start in range(0, len(chunk.x), step):
            yield chunk.x[start : start + step]


def largest_value(context: Context) -> float:
    """The largest absolute number of all ranks' rows."""
    xp = context.kernels.xp
    largest = xp.zeros(1)
    for x in _pieces(context):
        largest = xp.maximum(largest, abs(x).max())
    return float(context.comm.all_reduce(largest, "max")[0])


def refuse_out_of_range(context: Context, measure: Metric, largest: float) -> None:
    """Squares (of squares, for some metrics) must neither overflow nor lose digits to underflow."""
    low, high = _range(context, measure)
    # Numbers that became 0 in a narrower type are 0 whatever was subtracted.
    largest = largest or float(context.comm.all_reduce(np.array([context.rows.vanished]), "max")[0])
    if largest and not low < largest < high:
        reach = f"reach {largest:.3g}" if np.isfinite(largest) else "overflow"
        least, most = _range(context, measure, np.float64)
        helps = context.dtype != np.float64 and (least < largest < most or not np.isfinite(largest))
        wider = " or use dtype='float64'" if helps else ""
        raise InputError(
            f"centred values {reach}; with metric='{measure.name}' and dtype='{context.dtype}' that "
            f"should be between {low:.1g} and {high:.1g}; rescale the data{wider}."
        )


def _range(context: Context, measure: Metric, dtype: Any = None) -> tuple[float, float]:
    """Between which the largest number may lie; in the type of the rows, or in another one."""
    limits, power = np.finfo(dtype or context.dtype), 2 * measure.power
    high = float(limits.max) ** (1 / power) / (4 * context.dataset_shape[1] ** 0.5)
    return float(limits.tiny) ** (1 / power) * 2.0**20, high


def _refuse_undefined(context: Context, measure: Metric) -> None:
    count, first = 0, context.dataset_shape[0]
    for chunk in context.rows.chunks():
        bad = measure.undefined(chunk.x)
        if any_true(bad):
            count += int(bad.sum())
            first = min(first, chunk.start + int(bad.argmax()))
    count = int(context.comm.all_reduce(np.array([count]), "sum")[0])
    first = int(context.comm.all_reduce(np.array([first]), "min")[0])
    if count:
        raise _undefined(measure, count, first)


def _undefined(measure: Metric, count: int, first: int) -> InputError:
    what = "constant" if measure.center_rows else "all-zero"
    return InputError(
        f"metric='{measure.name}' is undefined for {what} rows: {count} of them, the first is row {first}; "
        "drop them or choose metric='euclidean'."
    )


def round_center(context: Context, weights: Array | None = None) -> np.ndarray:
    """The (weighted) mean of the rows, of few digits so that integers stay integers; float64."""
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
    """Products where they are accurate enough at the scale s, by the kernels' `PRODUCT_REACH`; else differences."""
    affordable = measure.power == 1 and radius <= reach * DOT_CONDITION * s
    if measure.norm == "l2" and d >= MIN_FEATURES_FOR_DOT and affordable:
        return "l2-dot"
    return measure.norm
