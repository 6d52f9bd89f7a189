"""Evidence for parcels: homogeneity, boundaries, silhouettes, agreement of halves; choice of the number of parcels.

Parcels of one half of a series are judged by the other half, so that parcels that follow the noise of their own half
score lower. `evaluate` makes a table of all scores for several numbers of parcels, also for the parcels of
`null_parcels`, which ignore the series. `chosen` picks one of these numbers.

The graph of neighbours is in compressed form: the neighbours of row i are ``columns[starts[i]:starts[i + 1]]``,
ascending, and each edge is in the lists of both its rows. An island is a connected component of this graph.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from scipy.sparse import csr_array
from scipy.sparse.csgraph import connected_components

from mgclust.algorithms.parcellation.null_parcels import coordinate_parcels, neighbor_matrix, random_parcels
from mgclust.algorithms.parcellation.unit_rows import means_and_lengths, unit_rows
from mgclust.base.errors import InputError
from mgclust.data.neighbors import checked_coordinates
from mgclust.kernels import load
from mgclust.kernels.parcels.borders import add_rows
from mgclust.kernels.parcels.pair_correlations import correlations_by_distance
from mgclust.results.label_agreement import adjusted_rand

__all__ = [
    "DistanceProfile",
    "agreement",
    "chosen",
    "dcbc",
    "distance_profile",
    "evaluate",
    "homogeneity",
    "kept",
    "n_pieces",
    "part_of",
    "random_dcbc",
    "silhouettes",
]

SLICE = 64  # points in time that are standardised at a time
ROUNDING = 32  # distances of at most this many machine epsilons count as 0
DISTANCES = 1 << 20  # distances of rows to parcels that are computed at a time
BATCH_LABELS = 1 << 23  # labels of the candidates whose sums are computed together
MAX_BINS = 10_000
MAX_LABELS = 1 << 20  # bounds labels with gaps, because sums are kept for each number up to the largest label
MIN_FRACTION = 0.95  # a number of parcels can be chosen if its DCBC is at least this fraction of the best one
N_DRAWS = 20  # random parcellations whose DCBC is compared with the DCBC of the chosen number
NULLS = ("random", "coordinates")
SCORES = ("homogeneity", "held_out", "dcbc", "split_half_ari", "silhouette")
# Ends of the three steps of `evaluate`, as fractions of its time: null parcels; pairs of near rows; homogeneities and
# silhouettes.
STEP_ENDS = (0.05, 0.75, 1.0)

OnProgress = Callable[[float], None]


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


def homogeneity(series: Any, labels: Any) -> float:
    """Return the mean correlation of rows in the same parcel.

    For each parcel of at least two rows, the correlations of all pairs of its rows are averaged. The result is the mean
    over these parcels, weighted by their numbers of rows. Parcels of one row have no pair, and are left out.

    If a parcel has m rows, and u_i is row i with mean 0 and length 1, then the mean correlation of the parcel is::

        (|sum of u_i|^2 - sum of |u_i|^2) / (m (m - 1))

    The function computes these sums instead of all pairs, so its time is proportional to the size of the series.
    Homogeneity grows with the number of parcels. If the parcels come from another series of the same rows, such as the
    other half of a run, the result is the held-out homogeneity.

    Parameters
    ----------
    series : array of shape (n, n_timepoints), float32 or float64
        Series of each row. A constant row has correlation 0 with all rows.
    labels : array of shape (n,), int
        Parcel of each row; -1 for rows in no parcel.

    Returns
    -------
    float
        Mean correlation; NaN if no parcel has two rows.

    Raises
    ------
    InputError
        The series are not finite, or their number differs from the number of labels.

    Examples
    --------
    >>> from mgclust.algorithms.parcellation.evaluation import homogeneity
    >>> series = [[1.0, 2.0, 3.0], [2.0, 4.0, 6.0], [3.0, 2.0, 1.0], [1.0, 0.0, 0.0]]
    >>> round(homogeneity(series, [0, 0, 1, 1]), 3)
    0.933
    """
    rows = _checked_series(series, "series")
    return float(_homogeneities(rows, _checked_labels(labels, len(rows), "labels"))[0])


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
    >>> from mgclust.algorithms.parcellation.evaluation import distance_profile
    >>> series = [[1.0, 2.0, 3.0], [2.0, 4.0, 6.0], [3.0, 2.0, 1.0]]
    >>> profile = distance_profile(series, [0, 0, 1], [[0, 0, 0], [2, 0, 0], [4, 0, 0]], 4.0, 2.0)
    >>> profile.n_within.tolist(), profile.n_between.tolist(), profile.within.round(3).tolist()
    ([[1, 0]], [[1, 1]], [[1.0, nan]])
    """
    rows = _checked_series(series, "series")
    labels = _checked_labels(candidates, len(rows), "candidates")
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
    vectors, on_progress = np.concatenate([labels, unions]), on_progress or _ignore
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
    >>> from mgclust.algorithms.parcellation.evaluation import dcbc
    >>> series = [[1.0, 2.0, 3.0], [2.0, 4.0, 6.0], [3.0, 2.0, 1.0], [3.0, 2.0, 1.0]]
    >>> line = [[0, 0, 0], [1, 0, 0], [2, 0, 0], [3, 0, 0]]
    >>> dcbc(series, [[0, 0], [0, 1], [1, 1], [1, 0]], line).round(3).tolist()
    [2.0, -2.0]
    """
    return distance_profile(series, candidates, coordinates, max_distance, bin_width, on_progress).dcbc


def silhouettes(series: Any, candidates: Any, on_progress: OnProgress | None = None) -> np.ndarray:
    """Return the mean silhouette of the rows of each candidate, for the distance 1 - r of two rows with correlation r.

    The silhouette of a row is (b - a) / max(a, b). a is the mean distance of the row to the other rows of its parcel,
    and b is the smallest mean distance of the row to the rows of another parcel. The silhouette of a row that is the
    only row of its parcel is 0. Let z_i be row i, scaled to mean 0 and length 1. The mean distance of row i to parcel p
    with n_p rows needs only the sum S_p of the rows z_j of p. So no distance between two rows is computed::

        mean over j in p of (1 - z_i . z_j) = 1 - z_i . S_p / n_p

    Parameters
    ----------
    series : array of shape (n, n_timepoints), float32 or float64
        Series of each row. A constant row has correlation 0 with all rows. Products are computed in the type of the
        series.
    candidates : array of shape (n,) or (n, n_candidates), int
        One label vector per candidate; -1 for rows in no parcel, which are left out.
    on_progress : callable, optional
        Receives the completed fraction.

    Returns
    -------
    ndarray of shape (n_candidates,), float64
        Mean silhouette, from -1 to 1; NaN if there are fewer than two parcels.

    Raises
    ------
    InputError
        The series are not finite, or their number differs from the number of labels.

    Notes
    -----
    All parcels are compared, including distant parcels. A brain has several regions with similar series, so connected
    parcels have silhouettes near or below 0.

    References
    ----------
    P. J. Rousseeuw, Silhouettes: a graphical aid to the interpretation and validation of cluster analysis, Journal of
    Computational and Applied Mathematics 20:53-65, 1987.

    Examples
    --------
    >>> from mgclust.algorithms.parcellation.evaluation import silhouettes
    >>> series = [[1.0, 2.0, 3.0], [2.0, 4.0, 6.0], [3.0, 2.0, 1.0], [3.0, 2.0, 1.0]]
    >>> silhouettes(series, [[0, 0], [0, 1], [1, 1], [1, 0]]).round(3).tolist()
    [1.0, -0.5]
    """
    rows = _checked_series(series, "series")
    labels = _checked_labels(candidates, len(rows), "candidates")
    unit, found = unit_rows(rows, dtype=rows.dtype), []
    for at, each in enumerate(labels):
        (on_progress or _ignore)(at / len(labels))
        found.append(_silhouette(unit, each))
    return np.array(found)


def n_pieces(labels: Any, starts: Any, columns: Any) -> np.ndarray:
    """Count the pieces of each parcel, which are the connected components of the graph of its rows.

    Parameters
    ----------
    labels : array of shape (n,), int
        Parcel of each row; -1 for rows in no parcel.
    starts : array of shape (n + 1,), int64
    columns : array, int32
        Neighbours of each row.

    Returns
    -------
    ndarray of shape (labels.max() + 1,), int64
        Number of pieces of each parcel: 1 for a connected parcel, 0 for a label without rows.

    Examples
    --------
    >>> from mgclust.algorithms.parcellation.evaluation import n_pieces
    >>> n_pieces([0, 1, 0], [0, 1, 3, 4], [1, 0, 2, 1]).tolist()  # three rows in a line
    [2, 1]
    """
    n = len(starts) - 1
    own = _checked_labels(labels, n, "labels")[0]
    other = np.asarray(columns, np.int32)
    row = np.repeat(np.arange(n, dtype=np.int32), np.diff(starts))
    kept = (own[row] == own[other]) & (row < other)  # each pair of neighbours once
    ends = np.concatenate([[0], np.cumsum(np.bincount(row[kept], minlength=n))])
    inner = csr_array((np.ones(int(kept.sum()), np.int8), other[kept], ends), shape=(n, n))
    count, piece = connected_components(inner, directed=False)
    of = np.full(count, -1, np.int64)
    of[piece] = own
    return np.bincount(of[of >= 0], minlength=int(own.max(initial=-1)) + 1)


def agreement(a: Any, b: Any) -> float:
    """Return the adjusted Rand index of two label vectors, over the rows that are in a parcel of both.

    Parameters
    ----------
    a, b : array of shape (n,), int
        Parcel of each row; -1 for rows in no parcel.

    Returns
    -------
    float
        Adjusted Rand index: 1 for the same parcels, near 0 for unrelated parcels.

    Raises
    ------
    InputError
        The lengths differ, or no row is in a parcel of both.

    References
    ----------
    L. Hubert, P. Arabie, Comparing partitions, Journal of Classification 2:193-218, 1985.

    Examples
    --------
    >>> from mgclust.algorithms.parcellation.evaluation import agreement
    >>> agreement([0, 0, 1, 1, -1], [5, 5, 2, 2, 2])
    1.0
    """
    one, other = np.asarray(a), np.asarray(b)
    if one.ndim != 1 or one.shape != other.shape:
        raise InputError(
            f"labels: the label vectors have shapes {one.shape} and {other.shape}; give two of the same rows."
        )
    kept = (one >= 0) & (other >= 0)
    if not kept.any():
        raise InputError("labels: no row is in a parcel of both label vectors; check the labels.")
    return adjusted_rand(one[kept], other[kept])


def evaluate(
    whole: Any,
    first: Any,
    second: Any,
    series: Any,
    first_series: Any,
    second_series: Any,
    starts: Any,
    columns: Any,
    coordinates: Any,
    *,
    seed: int = 0,
    max_distance: float = 35.0,
    bin_width: float = 1.0,
    on_progress: OnProgress | None = None,
) -> dict[str, np.ndarray]:
    """Make a table with the scores of parcels and of null parcels, for several numbers of parcels.

    Parameters
    ----------
    whole, first, second : array of shape (n, n_candidates), int
        Parcels of the whole series, of its first half, and of its second half; -1 for rows in no parcel. Column c has
        the same requested number of parcels in all three.
    series, first_series, second_series : array of shape (n, n_timepoints), float32 or float64
        The whole series, and the series of its two halves.
    starts : array of shape (n + 1,), int64
    columns : array, int32
        Neighbours of each row.
    coordinates : array of shape (n, 3), float64
        Coordinates of each row in mm.
    seed : int, default=0
        Seed of the null parcels.
    max_distance, bin_width : float
        See `distance_profile`.
    on_progress : callable, optional
        Receives the completed fraction, often. If it raises an error, the evaluation ends.

    Returns
    -------
    dict of str to ndarray of shape (n_candidates,)
        Integers:

        - ``scan_n_clusters``: number of parcels of the whole series.
        - ``scan_pieces``: number of connected pieces of these parcels.
        - ``scan_smallest``, ``scan_largest``: number of rows of the smallest and the largest of these parcels.

        Real numbers:

        - ``scan_homogeneity``, ``scan_silhouette``: homogeneity and mean silhouette of the parcels of the whole series
          on the whole series.
        - ``scan_held_out``, ``scan_dcbc``: homogeneity and DCBC of each half's parcels on the other half; each is the
          mean of the values of both halves.
        - ``scan_split_half_ari``: adjusted Rand index of the parcels of the two halves.

        The same keys except ``scan_pieces`` for null parcels: ``scan_random_*`` for `random_parcels`, and
        ``scan_coordinates_*`` for `coordinate_parcels` with a seed. The null parcels of the two halves have
        different seeds. Homogeneity and silhouette are computed for the null parcels of the first half, on the whole
        series. There are as many null parcels as parcels of the whole series, but at least one per island.

    Raises
    ------
    InputError
        Shapes differ, or values are not finite.

    Examples
    --------
    >>> import numpy as np
    >>> from mgclust.algorithms.parcellation.evaluation import chosen, evaluate
    >>> rng = np.random.default_rng(0)
    >>> line = np.arange(40)
    >>> starts, columns = np.r_[0, 1 + 2 * line[:-1], 78], np.c_[line - 1, line + 1].ravel()[1:-1]
    >>> series = rng.standard_normal((2, 100))[line // 20] + 0.1 * rng.standard_normal((40, 100))
    >>> labels = np.stack([line // 20, line // 10], axis=1)
    >>> given = labels, labels, labels, series, series[:, :50], series[:, 50:]
    >>> table = evaluate(*given, starts, columns, np.c_[line, 0 * line, 0 * line])
    >>> table["scan_n_clusters"].tolist(), table["scan_pieces"].tolist(), chosen(table)
    ([2, 4], [2, 4], 2)
    """
    halves = [_checked_series(first_series, "first_series"), _checked_series(second_series, "second_series")]
    n = len(starts) - 1
    if {len(series), *map(len, halves)} != {n}:
        raise InputError(
            f"series: the halves have {len(halves[0])} and {len(halves[1])} rows, the whole series has {len(series)}, "
            f"and the graph has {n}; give the same rows in the same order."
        )
    given = [_checked_labels(each, n, name) for each, name in ((whole, "whole"), (first, "first"), (second, "second"))]
    if len({each.shape for each in given}) > 1:
        raise InputError("candidates: whole, first and second have different numbers of columns; give one per scan.")
    sizes = [np.bincount(vector[vector >= 0]) for vector in given[0]]
    islands = connected_components(neighbor_matrix(starts, columns), directed=False, return_labels=False)
    ks = [max(int((each > 0).sum()), islands) for each in sizes]
    seeds = np.random.SeedSequence(seed).generate_state(2).tolist()
    steps = [part_of(on_progress or _ignore, *ends) for ends in pairwise((0.0, *STEP_ENDS))]
    random, compact = [], []
    for at, each in enumerate(seeds):
        steps[0](at / 2)
        random.append(random_parcels(starts, columns, ks, each).T)
        steps[0]((2 * at + 1) / 4)
        compact.append(coordinate_parcels(coordinates, starts, columns, ks, each).T)
    table = {
        "scan_n_clusters": np.array([(each > 0).sum() for each in sizes], np.int64),
        "scan_pieces": np.array([n_pieces(vector, starts, columns).sum() for vector in given[0]], np.int64),
        "scan_smallest": np.array([each[each > 0].min(initial=n) for each in sizes], np.int64),
        "scan_largest": np.array([each.max(initial=0) for each in sizes], np.int64),
    }
    for name, made in zip(NULLS, (random, compact), strict=True):
        rows = [np.bincount(vector) for vector in made[0]]
        table[f"scan_{name}_n_clusters"] = np.array(ks, np.int64)
        table[f"scan_{name}_smallest"] = np.array([each.min() for each in rows], np.int64)
        table[f"scan_{name}_largest"] = np.array([each.max() for each in rows], np.int64)
    # One array has the parcels and the null parcels of a half, so that each pair of rows is visited once per half.
    both = [np.concatenate(each) for each in zip(given[1:], random, compact, strict=True)]
    quarters = [part_of(steps[2], i / 4, (i + 1) / 4) for i in range(4)]
    edges = []
    for h in (0, 1):
        progress = part_of(steps[1], h / 2, (h + 1) / 2)
        edges.append(dcbc(halves[1 - h], both[h].T, coordinates, max_distance, bin_width, progress))
    other = np.mean([_homogeneities(halves[1 - h], both[h], quarters[h]) for h in (0, 1)], axis=0)
    ari = np.array([agreement(a, b) for a, b in zip(*both, strict=True)])
    entire = np.concatenate([given[0], random[0], compact[0]])
    own = _homogeneities(_checked_series(series, "series"), entire, quarters[2])
    shape = silhouettes(series, entire.T, quarters[3])
    for score, values in zip(SCORES, (own, other, np.mean(edges, axis=0), ari, shape), strict=True):
        for name, part in zip(("", *(f"{null}_" for null in NULLS)), np.split(values, 3), strict=True):
            table[f"scan_{name}{score}"] = part
    return table


def chosen(table: Mapping[str, np.ndarray]) -> int:
    """Return the number of parcels with the best evidence, from the table of `evaluate`.

    Only the held-out DCBC decides. It is near 0 for null parcels, whatever their number. The other scores do not suit:
    homogeneity grows with the number, and halves can agree on a few parcels and on very many.

    First, `kept` finds the numbers whose DCBC is positive and exceeds the DCBC of both nulls. The result is the
    smallest kept number whose DCBC is at least 95 % of the best DCBC of the kept numbers. Small numbers are preferred,
    because on real series the DCBC rises to a plateau, where more parcels add boundaries that the other half hardly
    supports.

    If the result is the largest number of the table, larger numbers may be better. If no number is kept, the series
    show no parcels, and the result is the smallest number of the table.

    Parameters
    ----------
    table : mapping of str to ndarray
        The result of `evaluate`.

    Returns
    -------
    int
        One of the values of ``scan_n_clusters``.

    Examples
    --------
    >>> import numpy as np
    >>> from mgclust.algorithms.parcellation.evaluation import chosen
    >>> table = {"scan_n_clusters": np.array([50, 100, 200, 400]), "scan_dcbc": np.array([0.18, 0.239, 0.25, 0.24])}
    >>> chosen(table | {"scan_random_dcbc": np.zeros(4), "scan_coordinates_dcbc": np.zeros(4)})
    100
    """
    numbers, scores = np.asarray(table["scan_n_clusters"]), np.asarray(table["scan_dcbc"])
    above = kept(table)
    if not above.any():
        return int(numbers.min())
    return int(numbers[above & (scores >= MIN_FRACTION * scores[above].max())].min())


def kept(table: Mapping[str, np.ndarray]) -> np.ndarray:
    """Return for each number of parcels whether its DCBC is positive and exceeds the DCBC of both nulls.

    Parameters
    ----------
    table : mapping of str to ndarray
        The result of `evaluate`.

    Returns
    -------
    bool array of shape (n_candidates,)
    """
    scores = np.asarray(table["scan_dcbc"])
    above = scores > 0  # false for NaN
    for null in NULLS:
        above &= ~(scores <= table[f"scan_{null}_dcbc"])  # true if the null has no DCBC (NaN)
    return above


def random_dcbc(
    k: int,
    first_series: Any,
    second_series: Any,
    starts: Any,
    columns: Any,
    coordinates: Any,
    *,
    seed: int = 0,
    on_progress: OnProgress | None = None,
) -> np.ndarray:
    """Return the DCBC of several draws of random parcels, which show how high a DCBC can be by chance.

    A single null parcellation is not enough for weak series: on noise, the best DCBC of several numbers of parcels
    often exceeds the DCBC of this null parcellation.

    Parameters
    ----------
    k : int
        Number of parcels.
    first_series, second_series, starts, columns, coordinates
        See `evaluate`.
    seed : int, default=0
        Seed of the parcels, which differ from the random parcels of `evaluate` with the same seed.
    on_progress : callable, optional
        Receives the completed fraction.

    Returns
    -------
    float64 array of shape (20,)
        For each draw, the mean of two values: the DCBC of random parcels on one half, and the DCBC of other random
        parcels on the other half. NaN if one of them is undefined.
    """
    seeds = np.random.SeedSequence([seed, 1]).generate_state(2 * N_DRAWS).reshape(2, N_DRAWS).tolist()
    found = []
    for half, (series, several) in enumerate(zip((first_series, second_series), seeds, strict=True)):
        progress = part_of(on_progress or _ignore, half / 2, (half + 1) / 2)
        draws = np.stack([random_parcels(starts, columns, k, each) for each in several], axis=1)
        found.append(dcbc(series, draws, coordinates, on_progress=progress))
    return np.mean(found, axis=0)


def _ignore(fraction: float) -> None:
    pass


def part_of(on_progress: OnProgress, begin: float, end: float) -> OnProgress:
    """Return a function that receives the completed fraction of a part; the part is `begin` to `end` of the whole."""
    return lambda fraction: on_progress(begin + (end - begin) * fraction)


def _checked_series(series: Any, name: str) -> np.ndarray:
    rows = np.asarray(series)
    if rows.dtype not in (np.float32, np.float64):
        rows = rows.astype(np.float64)
    if rows.ndim != 2 or not rows.size:
        raise InputError(f"{name}: shape {rows.shape} should be (n, n_timepoints); give one series per row.")
    if not np.isfinite([rows.min(), rows.max()]).all():
        raise InputError(f"{name}: some values are not finite; leave out these rows or points in time.")
    return rows


def _checked_labels(labels: Any, n: int, name: str) -> np.ndarray:
    """Return label vectors as an int32 array of shape (n_candidates, n)."""
    given = np.asarray(labels)
    if given.ndim not in (1, 2) or len(given) != n:
        raise InputError(
            f"{name}: shape {given.shape} should be ({n},) or ({n}, n_candidates); give one label per row."
        )
    if given.dtype.kind not in "iu":
        raise InputError(f"{name}: type {given.dtype} should be an integer type; give whole numbers.")
    if given.size and int(given.max()) >= max(n, MAX_LABELS):
        raise InputError(
            f"{name}: the label {int(given.max())} should be below {max(n, MAX_LABELS)}; number the parcels from 0 on."
        )
    return np.ascontiguousarray(np.maximum(given.reshape(n, -1), -1).T, np.int32)


def _number_of_bins(max_distance: float, bin_width: float) -> int:
    if not (0 < bin_width <= max_distance < np.inf):
        raise InputError(
            f"bin_width={bin_width} should be positive and at most max_distance={max_distance}; give both in mm."
        )
    n_bins = int(max_distance / bin_width + 1e-6)
    if n_bins > MAX_BINS:
        raise InputError(f"bin_width={bin_width} gives {n_bins} bins, more than {MAX_BINS}; give wider bins.")
    return n_bins


def _silhouette(unit: np.ndarray, labels: np.ndarray) -> float:
    """Return the mean silhouette of one label vector; `unit` has rows of length 1, or 0."""
    kept = np.flatnonzero(labels >= 0)
    parcel, size = np.unique(labels[kept], return_inverse=True, return_counts=True)[1:]
    if len(size) < 2:
        return np.nan
    unit = unit if len(kept) == len(unit) else unit[kept]
    sums = np.zeros((len(size), unit.shape[1]))
    add_rows(unit, parcel, sums)
    means = (sums / size[:, None]).astype(unit.dtype)
    reduced_distances = load("cpu").pairs.reduced_distances
    of_means = np.einsum("ij,ij->i", means, means)
    a, b = np.empty((2, len(kept)))
    step = max(1, DISTANCES // len(size))
    for start in range(0, len(kept), step):
        part = slice(start, start + step)
        rows, own = unit[part], parcel[part]
        place = np.arange(len(rows)), own
        # 1 - z . m = 1 + (|z - m|^2 - |m|^2 - |z|^2) / 2
        distances = reduced_distances(rows, means, norm="l2")
        distances -= of_means
        of_rows, others = np.einsum("ij,ij->i", rows, rows, dtype=np.float64), size[own] - 1
        within = 1 + (distances[place] - of_rows) / 2
        a[part] = ((others + 1) * within - (1 - of_rows)) / np.maximum(others, 1)  # the row itself does not count
        distances[place] = np.inf
        b[part] = 1 + (distances.min(axis=1) - of_rows) / 2
    larger = np.maximum(a, b)
    # Distances that are rounding errors count as 0, so duplicates in different parcels have silhouette 0.
    defined = (larger > ROUNDING * np.finfo(unit.dtype).eps) & (size[parcel] > 1)
    values = np.divide(b - a, larger, out=np.zeros(len(kept)), where=defined)
    return float(values.mean())


def _homogeneities(rows: np.ndarray, labels: np.ndarray, on_progress: OnProgress = _ignore) -> np.ndarray:
    """Return the homogeneity of each label vector, an int32 array of shape (n_candidates, n)."""
    on_progress(0.0)
    (means, lengths), batch, count = means_and_lengths(rows), max(1, BATCH_LABELS // len(rows)), len(labels)
    scaling = means, np.divide(1, lengths, out=np.zeros(len(rows)), where=lengths > 0)
    parts = [
        _homogeneities_of(
            rows, *scaling, labels[at : at + batch], part_of(on_progress, at / count, min(at + batch, count) / count)
        )
        for at in range(0, count, batch)
    ]
    return np.concatenate(parts)


def _homogeneities_of(
    rows: np.ndarray, means: np.ndarray, scales: np.ndarray, labels: np.ndarray, on_progress: OnProgress
) -> np.ndarray:
    counts = [np.bincount(vector[vector >= 0]) for vector in labels]
    ends = np.cumsum([len(each) for each in counts])
    begins = ends - [len(each) for each in counts]
    which, member = np.nonzero(labels >= 0)
    # This matrix has one row for each parcel of each candidate.
    parcels = csr_array(
        (np.ones(len(member)), (labels[which, member] + begins[which], member)), shape=(int(ends[-1]), len(rows))
    )
    squares = np.zeros(parcels.shape[0])
    for at in range(0, rows.shape[1], SLICE):
        on_progress(at / rows.shape[1])
        sums = parcels @ ((rows[:, at : at + SLICE] - means[:, None]) * scales[:, None])
        squares += np.einsum("ij,ij->i", sums, sums)
    varying = parcels @ (scales > 0).astype(np.float64)
    size = np.concatenate(counts)
    several = size > 1
    # For each parcel, the mean correlation times the number of rows.
    weighted = np.where(several, (squares - varying) / np.where(several, size - 1, 1), 0.0)
    found = np.full(len(labels), np.nan)
    for c, (begin, end) in enumerate(zip(begins, ends, strict=True)):
        if several[begin:end].any():
            found[c] = weighted[begin:end].sum() / size[begin:end][several[begin:end]].sum()
    return found
