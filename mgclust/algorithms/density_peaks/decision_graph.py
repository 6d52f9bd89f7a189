"""Choice of centres from a decision graph, and the clusters that it gives to the other rows."""

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

# The automatic choice of centres looks no further than this.
MAX_AUTOMATIC_CENTERS = 256
PART = 1024  # values
# On published sets, 15 of 16 automatic choices with a larger drop found the true number of clusters (not worms_2), and
# 1 of 9 with a smaller one (htru2).
CLEAR_DROP = 2.5
# Of the few largest of many values without clusters, the first ones lie far apart: behind k of them a factor of x is
# about as rare as one of x^k behind the first.
CLEAR_POWER = 50.0
# With one feature noise has larger drops: of 5,400 draws (uniform, normal and exponential, 50 to 3,000 rows, the three
# densities) 85 exceed what counts as clear with more features, none of these by twice as much.
ONE_FEATURE = 2.0
# Of fewer rows noise has any drop: of 900 draws of 20 rows (uniform, normal, exponential, 1 to 10 features) one in 100
# is more than a thousand times what counts as clear. Of 50 rows one in 1000 is 1.9 times that, of 100 rows 1.4, of 200
# rows none 1.1.
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
    """Row numbers of the centres, on the host, by decreasing gamma = rho * delta, equal gamma by index.

    `indices` as given; else the rows with ``rho_min < rho <= rho_max`` and ``delta_min < delta <= delta_max`` where
    any of these is given (the first `n_clusters` of them if that is given too); else the `n_clusters` largest gamma;
    else the automatic rule of `automatic_count`.
    """
    n = rho.shape[0]
    gamma = rho * delta
    if indices is not None:
        return _by_gamma(gamma, _given_centers(xp.asarray(indices), rho))
    if n_clusters is not None and n_clusters > n:
        raise InputError(f"n_samples={n} should be >= n_clusters={n_clusters}; ask for fewer clusters.")
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
    """Number of different rows: of equal rows all but the first have one at distance 0, of one kind all have."""
    return max(1, count_true(delta != 0))


def largest_gamma(xp: Any, gamma: Array, most: int) -> np.ndarray:
    """Rows of the `most` largest gamma, and those that tie with the last one, largest first, equal ones by index."""
    return _by_gamma(gamma, (gamma >= _nth_largest(xp, gamma, most)).nonzero()[0])


def _leave_out_beyond(above: Array, rho: Array, delta: Array, rho_max: float | None, delta_max: float | None) -> None:
    """Clear the marks of rows beyond upper limits; the densest row, where every link ends, has to be one of them."""
    if rho_max is not None:
        above &= rho <= rho_max
    if delta_max is not None:
        above &= delta <= delta_max
    densest = int(rho.argmax())
    if not above[densest]:
        raise InputError(
            f"rho_max={rho_max}, delta_max={delta_max}: the densest row, {densest}, should lie within "
            f"(rho={float(rho[densest]):g}, delta={float(delta[densest]):g}): the links of some rows lead nowhere "
            "else; choose wider limits."
        )


def _nth_largest(xp: Any, values: Array, nth: int) -> float:
    """The nth largest value; of many, only those that the largest ones of parts do not rule out are looked at again."""
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
        raise InputError(f"indices should be different row numbers from 0 to {n - 1}.")
    densest = int(rho.argmax())
    if densest not in indices.tolist():
        raise InputError(
            f"indices should contain the densest row, {densest}: the links of some rows lead nowhere else."
        )
    indices.sort()
    return indices


def automatic_count(gamma: np.ndarray, n: int) -> int:
    """Number of centres that stand out: the k, from 2 on, where the sorted gamma falls by the largest factor.

    Parameters
    ----------
    gamma : ndarray
        The largest ``rho * delta``, largest first. Of these only the first 2 sqrt(n), at most 256, are looked at:
        behind them come the rows within clusters.
    n : int
        Number of different rows.

    Returns
    -------
    int
        Of two different rows both; else 1 where fewer than three rows have a positive gamma.
    """
    if n == 2:
        return 2
    drops = log_drops(gamma, n)
    return int(np.argmax(drops)) + 2 if len(drops) else 1


def log_drops(gamma: np.ndarray, n: int) -> np.ndarray:
    """Logarithm of the factor by which the sorted gamma falls behind 2, 3, ... centres; see `automatic_count`."""
    positive = int(np.count_nonzero(gamma > 0))
    most = min(most_centers(n), positive - 1)
    logs = np.log(gamma[1 : max(most, 0) + 1])
    return np.asarray(logs[:-1] - logs[1:])


def gamma_drop(xp: Any, rho: Array, delta: Array, centers: np.ndarray) -> float:
    """Ratio of the least ``rho * delta`` of the centres to the largest of any other row."""
    gamma, chosen = rho * delta, xp.asarray(centers)
    least = float(gamma[chosen].min())
    gamma[chosen] = 0.0
    largest = float(gamma.max())
    return least / largest if largest > 0 else float("inf")


def clear_drop(n_clusters: int, n: int, *, n_features: int = 2, squares: bool = False) -> float:
    """The factor by which ``rho * delta`` of n different rows has to fall behind so many centres that are clusters.

    Where the distances are `squares`, such as those of "cosine", delta falls by the square of what it would.
    """
    least = max(CLEAR_DROP, CLEAR_POWER ** (1 / n_clusters)) * (1 + FEW_ROWS / n)
    if n_features == 1:
        least *= ONE_FEATURE
    return least**2 if squares else least


def most_centers(n: int) -> int:
    """The number of centres up to which the automatic choice looks among n different rows."""
    return min(MAX_AUTOMATIC_CENTERS, int(2 * np.sqrt(n)))


def density_order(xp: Any, rho: Array) -> Array:
    """Each row's position by decreasing rho, equal rho by index; int32."""
    order = xp.empty(rho.shape[0], dtype="int32")
    order[xp.argsort(-rho, kind="stable")] = xp.arange(rho.shape[0], dtype="int32")
    return order


def assign_labels(xp: Any, nearest_higher: Array, centers: np.ndarray) -> Array:
    """Each row's cluster: follow nearest_higher up to a centre, doubling the stride at every step; int32."""
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
