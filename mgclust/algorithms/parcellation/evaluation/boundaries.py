"""The distance-controlled boundary coefficient, which shows whether parcels end where the series change."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from mgclust.algorithms.parcellation.evaluation.given_data import OnProgress, checked_labels, checked_series, ignore
from mgclust.algorithms.parcellation.unit_rows import unit_rows
from mgclust.base.errors import InputError
from mgclust.data.neighbors import checked_coordinates
from mgclust.kernels.parcels.pair_correlations import correlations_by_distance

__all__ = ["DistanceProfile", "dcbc", "distance_profile"]

MAX_BINS = 10_000


class DistanceProfile(NamedTuple):
    """Correlation within and between parcels, by distance; see `distance_profile`.

    Attributes
    ----------
    upper : ndarray of shape (n_bins,), float64
        Largest distance of each bin, in mm.
    within, between : ndarray of shape (n_candidates, n_bins), float64
        Mean correlation of the pairs of rows in the same parcel, and of the pairs in different parcels; NaN if there
        are no pairs.
    n_within, n_between : ndarray of shape (n_candidates, n_bins), int64
        Number of pairs in the same parcel, and in different parcels; each pair counts once.
    """

    upper: np.ndarray
    within: np.ndarray
    between: np.ndarray
    n_within: np.ndarray
    n_between: np.ndarray

    @property
    def dcbc(self) -> np.ndarray:
        """The distance-controlled boundary coefficient of each candidate, shape (n_candidates,); see `dcbc`."""
        both = (self.n_within > 0) & (self.n_between > 0)
        pairs = np.where(both, self.n_within + self.n_between, 1)
        weights = np.where(both, self.n_within * (self.n_between / pairs), 0.0)  # 1 / (1 / n_within + 1 / n_between)
        gains = np.where(both, self.within - self.between, 0.0)
        total = weights.sum(axis=1)
        return np.where(total > 0, (weights * gains).sum(axis=1) / np.where(total > 0, total, 1.0), np.nan)


def distance_profile(
    series: Any,
    candidates: Any,
    coordinates: Any,
    max_distance: float = 35.0,
    bin_width: float = 1.0,
    on_progress: OnProgress | None = None,
) -> DistanceProfile:
    """Average the correlations within and between parcels in bins of distance, for many label vectors at once.

    All pairs of rows at a distance of at most `max_distance` are used. The correlation of each pair is computed once,
    whatever the number of candidates, and no pair is stored. The results do not depend on the number of threads.

    Parameters
    ----------
    series : array of shape (n, n_timepoints), float32 or float64
        Series of each row. A constant row has correlation 0 with all rows. Products are computed in the type of the
        series.
    candidates : array of shape (n,) or (n, n_candidates), int
        One label vector per candidate; -1 for rows in no parcel, whose pairs are left out.
    coordinates : array of shape (n, 3), float64
        Coordinates of each row in mm; distances are Euclidean.
    max_distance : float, default=35.0
        Largest distance in mm. Distances beyond the last complete bin are left out.
    bin_width : float, default=1.0
        Width of a bin in mm. Bin b has the distances from ``b * bin_width`` (excluded) to ``(b + 1) * bin_width``
        (included, with a tolerance of a millionth of a bin), so rows at the same place form no pair.
    on_progress : callable, optional
        Receives the completed fraction, often. If it raises an error, the work ends.

    Returns
    -------
    DistanceProfile
        Mean correlations and numbers of pairs for each candidate and bin.

    Raises
    ------
    InputError
        Series or coordinates are not finite, shapes differ, or the distances give no bin or more than 10,000 bins.

    Examples
    --------
    >>> from mgclust.algorithms.parcellation.evaluation.boundaries import distance_profile
    >>> series = [[1.0, 2.0, 3.0], [2.0, 4.0, 6.0], [3.0, 2.0, 1.0]]
    >>> profile = distance_profile(series, [0, 0, 1], [[0, 0, 0], [2, 0, 0], [4, 0, 0]], 4.0, 2.0)
    >>> profile.n_within.tolist(), profile.n_between.tolist(), profile.within.round(3).tolist()
    ([[1, 0]], [[1, 1]], [[1.0, nan]])
    """
    rows = checked_series(series, "series")
    labels = checked_labels(candidates, len(rows), "candidates")
    places = checked_coordinates(coordinates, len(rows))
    n_bins = _number_of_bins(max_distance, bin_width)
    # The pairs between parcels are all pairs minus the pairs within parcels. All pairs are computed as the pairs of one
    # large parcel, which consists of all rows in parcels. Candidates share it if the same rows are in no parcel.
    large: dict[bytes, int] = {}
    which = np.empty(len(labels), np.int64)
    for c, vector in enumerate(labels):
        which[c] = large.setdefault((vector < 0).tobytes(), len(large))
    first = [int(np.flatnonzero(which == number)[0]) for number in range(len(large))]
    unions = np.where(labels[first] < 0, np.int32(-1), np.int32(0))
    vectors, on_progress = np.concatenate([labels, unions]), on_progress or ignore
    unit = unit_rows(rows, dtype=rows.dtype)
    sums, counts = correlations_by_distance(unit, places, vectors, bin_width, n_bins, on_progress)
    inside, n_inside = sums[: len(labels)], counts[: len(labels)]
    across, n_across = sums[len(labels) :][which] - inside, counts[len(labels) :][which] - n_inside
    return DistanceProfile(
        np.arange(1, n_bins + 1) * float(bin_width),
        np.where(n_inside > 0, inside / np.maximum(n_inside, 1), np.nan),
        np.where(n_across > 0, across / np.maximum(n_across, 1), np.nan),
        n_inside,
        n_across,
    )


def dcbc(
    series: Any,
    candidates: Any,
    coordinates: Any,
    max_distance: float = 35.0,
    bin_width: float = 1.0,
    on_progress: OnProgress | None = None,
) -> np.ndarray:
    """Return the distance-controlled boundary coefficient (DCBC) of each candidate.

    Near rows correlate more than distant rows, so even arbitrary parcels are homogeneous. The DCBC compares only pairs
    of rows at the same distance: it is the mean correlation of pairs within parcels minus the mean correlation of pairs
    between parcels. The DCBC is near 0 for arbitrary parcels, whatever their number. With n_within and n_between pairs
    in a bin of distance::

        DCBC = sum over bins of w * (mean correlation within - mean correlation between)
        w    = 1 / (1 / n_within + 1 / n_between), divided by the sum of w over the bins

    Bins without pairs of both kinds are left out. If the parcels come from another series of the same rows, the result
    is the held-out DCBC.

    Parameters
    ----------
    series, candidates, coordinates, max_distance, bin_width, on_progress
        See `distance_profile`.

    Returns
    -------
    ndarray of shape (n_candidates,), float64
        The DCBC; NaN if no bin has pairs of both kinds, for example if a candidate has only one parcel.

    Raises
    ------
    InputError
        See `distance_profile`.

    Notes
    -----
    The authors' program divides the mean covariance of a bin by the mean product of standard deviations. For series of
    equal variance, this is the mean correlation.

    References
    ----------
    D. Zhi, M. King, C. R. Hernandez-Castillo, J. Diedrichsen, Evaluating brain parcellations using the
    distance-controlled boundary coefficient, Human Brain Mapping 43:3706-3720, 2022.

    Examples
    --------
    >>> from mgclust.algorithms.parcellation.evaluation.boundaries import dcbc
    >>> series = [[1.0, 2.0, 3.0], [2.0, 4.0, 6.0], [3.0, 2.0, 1.0], [3.0, 2.0, 1.0]]
    >>> line = [[0, 0, 0], [1, 0, 0], [2, 0, 0], [3, 0, 0]]
    >>> dcbc(series, [[0, 0], [0, 1], [1, 1], [1, 0]], line).round(3).tolist()
    [2.0, -2.0]
    """
    return distance_profile(series, candidates, coordinates, max_distance, bin_width, on_progress).dcbc


def _number_of_bins(max_distance: float, bin_width: float) -> int:
    if not (0 < bin_width <= max_distance < np.inf):
        raise InputError(
            f"bin_width={bin_width} should be positive and at most max_distance={max_distance}; give both in mm."
        )
    n_bins = int(max_distance / bin_width + 1e-6)
    if n_bins > MAX_BINS:
        raise InputError(f"bin_width={bin_width} gives {n_bins} bins, more than {MAX_BINS}; give wider bins.")
    return n_bins
