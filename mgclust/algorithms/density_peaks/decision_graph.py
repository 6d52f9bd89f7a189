"""Choice of the centres from a decision graph, and the assignment of the other rows to clusters.

gamma is ``rho * delta``. The drop after k centres is the ratio of the k-th largest gamma to the next one. These lines
define the labels::

    for row in rows by decreasing rho:
        label[row] = number of the centre, if row is a centre, else label[nearest_higher[row]]
"""

from __future__ import annotations

from typing import Any

import numpy as np

from mgclust.base.errors import InputError
from mgclust.kernels.masks import all_true, any_true, count_true

__all__ = [
    "FEW_ROWS",
    "MAX_AUTOMATIC_CENTERS",
    "assign_labels",
    "automatic_count",
    "choose_centers",
    "clear_drop",
    "density_order",
    "gamma_drop",
    "largest_gamma",
    "log_drops",
    "most_centers",
    "number_of_different",
]

Array = Any

MAX_AUTOMATIC_CENTERS = 256  # the automatic choice considers at most this number of centres
PART = 1024  # values per part in `_nth_largest`
# On published sets, the automatic choice found the true number of clusters in 15 of 16 cases with a larger drop (not
# worms_2), and in 1 of 9 cases with a smaller drop (htru2).
CLEAR_DROP = 2.5
# The few largest of many values lie far apart even without clusters: after k of them, a drop of x is about as rare as a
# drop of x^k after the first.
CLEAR_POWER = 50.0
# Noise with one feature has larger drops. In 5,400 draws (uniform, normal and exponential, 50 to 3,000 rows, the three
# densities), 85 drops exceed the limit that holds for more features, and none exceeds twice that limit.
ONE_FEATURE = 2.0
# With fewer rows, noise can have any drop. In 900 draws of 20 rows (uniform, normal, exponential, 1 to 10 features),
# one in 100 drops is more than a thousand times the limit. With 50 rows, one drop in 1000 is 1.9 times the limit. With
# 100 rows, one in 1000 is 1.4 times the limit. With 200 rows, no drop is 1.1 times the limit.
FEW_ROWS = 50


def choose_centers(
    xp: Any,
    rho: Array,
    delta: Array,
    *,
    n_clusters: int | None = None,
    rho_min: float | None = None,
    delta_min: float | None = None,
    rho_max: float | None = None,
    delta_max: float | None = None,
    indices: Any = None,
) -> np.ndarray:
    """Choose the centres; return their row numbers on the host, by decreasing gamma, and equal gamma by index.

    The first rule that applies decides:

    1. `indices`: these rows.
    2. Any limit: the rows with ``rho_min < rho <= rho_max`` and ``delta_min < delta <= delta_max``; with `n_clusters`,
       at most `n_clusters` of them.
    3. `n_clusters`: the rows with the largest gamma.
    4. Otherwise: the rows with the largest gamma, in the number that `automatic_count` finds.
    """
    n = rho.shape[0]
    gamma = rho * delta
    if indices is not None:
        return _by_gamma(gamma, _given_centers(xp.asarray(indices), rho))
    if n_clusters is not None and n_clusters > n:
        raise InputError(f"n_samples={n} should be >= n_clusters={n_clusters}; request fewer clusters.")
    if any(limit is not None for limit in (rho_min, delta_min, rho_max, delta_max)):
        above = xp.ones(n, dtype=bool)
        if rho_min is not None:
            above &= rho > rho_min
        if delta_min is not None:
            above &= delta > delta_min
        if not any_true(above):
            densest = int(rho.argmax())
            raise InputError(
                f"rho_min={rho_min}, delta_min={delta_min}: no row lies above both; the densest row has "
                f"rho={float(rho[densest]):g} and delta={float(delta[densest]):g}; choose lower thresholds."
            )
        if rho_max is not None or delta_max is not None:
            _leave_out_beyond(above, rho, delta, rho_max, delta_max)
        return _by_gamma(gamma, above.nonzero()[0])[:n_clusters]
    most = n_clusters if n_clusters is not None else min(n, MAX_AUTOMATIC_CENTERS + 1)
    ranked = largest_gamma(xp, gamma, most)
    if n_clusters is not None:
        return ranked[:most]
    return ranked[: automatic_count(np.array(gamma[xp.asarray(ranked)].tolist()), number_of_different(delta))]


def number_of_different(delta: Array) -> int:
    """Return the number of distinct rows, from delta: the first of several equal rows has a positive delta.

    If all rows are equal, every delta is 0, and the number is 1.
    """
    return max(1, count_true(delta != 0))


def largest_gamma(xp: Any, gamma: Array, most: int) -> np.ndarray:
    """Return the rows with the `most` largest gamma, and rows equal to the last; by decreasing gamma, then by index."""
    return _by_gamma(gamma, (gamma >= _nth_largest(xp, gamma, most)).nonzero()[0])


def _leave_out_beyond(above: Array, rho: Array, delta: Array, rho_max: float | None, delta_max: float | None) -> None:
    """Clear the marks of the rows that exceed an upper limit; reject limits that exclude the densest row."""
    if rho_max is not None:
        above &= rho <= rho_max
    if delta_max is not None:
        above &= delta <= delta_max
    densest = int(rho.argmax())
    if not above[densest]:
        raise InputError(
            f"rho_max={rho_max}, delta_max={delta_max}: the densest row, {densest}, should lie within both limits, "
            f"because every chain of nearest denser rows ends there; it has rho={float(rho[densest]):g} and "
            f"delta={float(delta[densest]):g}; choose wider limits."
        )


def _nth_largest(xp: Any, values: Array, nth: int) -> float:
    """Return the nth largest value. The maxima of parts bound it from below, so few of many values are partitioned."""
    largest = values[: len(values) // PART * PART].reshape(-1, PART).max(axis=1)
    if len(largest) >= nth:
        values = values[values >= xp.partition(largest, len(largest) - nth)[len(largest) - nth]]
    return float(xp.partition(values, len(values) - nth)[len(values) - nth])


def _by_gamma(gamma: Array, rows: Array) -> np.ndarray:
    values, numbers = (each.get() if hasattr(each, "get") else each for each in (gamma[rows], rows))
    return np.asarray(numbers[np.argsort(-values, kind="stable")])


def _given_centers(indices: Array, rho: Array) -> Array:
    n = rho.shape[0]
    if int(indices.max()) >= n:
        raise InputError(f"indices should be row numbers from 0 to {n - 1}; remove larger numbers.")
    densest = int(rho.argmax())
    if densest not in indices.tolist():
        raise InputError(
            f"indices should contain the densest row, {densest}, because every chain of nearest denser rows ends "
            "there; add it."
        )
    indices.sort()
    return indices


def automatic_count(gamma: np.ndarray, n: int) -> int:
    """Return the number of centres that stand out: the k >= 2 after which the sorted gamma falls most.

    Parameters
    ----------
    gamma : ndarray
        The largest ``rho * delta``, in descending order. Only the first 2 sqrt(n) values, at most 256, are considered:
        later values belong to rows within clusters.
    n : int
        Number of distinct rows.

    Returns
    -------
    int
        The number of centres. It is 2 if there are two distinct rows; else 1 if fewer than three rows have a positive
        gamma.
    """
    if n == 2:
        return 2
    drops = log_drops(gamma, n)
    return int(np.argmax(drops)) + 2 if len(drops) else 1


def log_drops(gamma: np.ndarray, n: int) -> np.ndarray:
    """Return logs of the factors by which the sorted gamma falls after 2, 3, ... centres; see `automatic_count`."""
    positive = int(np.count_nonzero(gamma > 0))
    most = min(most_centers(n), positive - 1)
    logs = np.log(gamma[1 : max(most, 0) + 1])
    return np.asarray(logs[:-1] - logs[1:])


def gamma_drop(xp: Any, rho: Array, delta: Array, centers: np.ndarray) -> float:
    """Return the ratio of the smallest ``rho * delta`` of the centres to the largest of all other rows."""
    gamma, chosen = rho * delta, xp.asarray(centers)
    least = float(gamma[chosen].min())
    gamma[chosen] = 0.0
    largest = float(gamma.max())
    return least / largest if largest > 0 else float("inf")


def clear_drop(n_clusters: int, n: int, *, n_features: int = 2, squares: bool = False) -> float:
    """Return the least drop of ``rho * delta`` after `n_clusters` centres that counts as clear for n distinct rows.

    squares: whether the distances are squares, such as with "cosine". If so, delta falls by the square of the factor.
    """
    least = max(CLEAR_DROP, CLEAR_POWER ** (1 / n_clusters)) * (1 + FEW_ROWS / n)
    if n_features == 1:
        least *= ONE_FEATURE
    return least**2 if squares else least


def most_centers(n: int) -> int:
    """Return the largest number of centres that the automatic choice considers for n distinct rows."""
    return min(MAX_AUTOMATIC_CENTERS, int(2 * np.sqrt(n)))


def density_order(xp: Any, rho: Array) -> Array:
    """Return the position of each row by decreasing rho; rows of equal rho are ordered by index; int32."""
    order = xp.empty(rho.shape[0], dtype="int32")
    order[xp.argsort(-rho, kind="stable")] = xp.arange(rho.shape[0], dtype="int32")
    return order


def assign_labels(xp: Any, nearest_higher: Array, centers: np.ndarray) -> Array:
    """Return the cluster of each row, int32: follow nearest_higher to a centre by pointer jumping (doubled strides)."""
    root = nearest_higher.copy()
    where = xp.asarray(centers)
    root[where] = where
    while True:
        further = root[root]
        if all_true(further == root):
            break
        root = further
    number = xp.full(root.shape[0], -1, dtype="int32")
    number[where] = xp.arange(len(centers), dtype="int32")
    return number[root]
