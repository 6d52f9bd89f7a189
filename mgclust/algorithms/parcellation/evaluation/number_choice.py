"""The number of parcels that the series support.

`evaluate` makes a table of all scores for several numbers of parcels. For comparison, the table also has scores of the
parcels of `null_parcels`, which ignore the series. `chosen` picks one of these numbers.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise
from typing import Any

import numpy as np
from scipy.sparse.csgraph import connected_components

from mgclust.algorithms.parcellation.evaluation.boundaries import dcbc
from mgclust.algorithms.parcellation.evaluation.given_data import (
    OnProgress,
    checked_labels,
    checked_series,
    ignore,
    part_of,
)
from mgclust.algorithms.parcellation.evaluation.null_parcels import coordinate_parcels, neighbor_matrix, random_parcels
from mgclust.algorithms.parcellation.evaluation.scores import agreement, homogeneities, n_pieces, silhouettes
from mgclust.base.errors import InputError

__all__ = ["chosen", "evaluate", "kept", "random_dcbc"]

MIN_FRACTION = 0.95  # a number of parcels can be chosen if its DCBC is at least this fraction of the best one
N_DRAWS = 20  # random parcellations whose DCBC is compared with the DCBC of the chosen number
NULLS = ("random", "coordinates")
SCORES = ("homogeneity", "held_out", "dcbc", "split_half_ari", "silhouette")
# Ends of the three steps of `evaluate`, as fractions of its time: null parcels; pairs of near rows; homogeneities and
# silhouettes.
STEP_ENDS = (0.05, 0.75, 1.0)


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
    >>> from mgclust.algorithms.parcellation.evaluation.number_choice import chosen, evaluate
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
    halves = [checked_series(first_series, "first_series"), checked_series(second_series, "second_series")]
    n = len(starts) - 1
    if {len(series), *map(len, halves)} != {n}:
        raise InputError(
            f"series: the halves have {len(halves[0])} and {len(halves[1])} rows, the whole series has {len(series)}, "
            f"and the graph has {n}; give the same rows in the same order."
        )
    given = [checked_labels(each, n, name) for each, name in ((whole, "whole"), (first, "first"), (second, "second"))]
    if len({each.shape for each in given}) > 1:
        raise InputError("candidates: whole, first and second have different numbers of columns; give one per scan.")
    sizes = [np.bincount(vector[vector >= 0]) for vector in given[0]]
    islands = connected_components(neighbor_matrix(starts, columns), directed=False, return_labels=False)
    ks = [max(int((each > 0).sum()), islands) for each in sizes]
    seeds = np.random.SeedSequence(seed).generate_state(2).tolist()
    steps = [part_of(on_progress or ignore, *ends) for ends in pairwise((0.0, *STEP_ENDS))]
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
    other = np.mean([homogeneities(halves[1 - h], both[h], quarters[h]) for h in (0, 1)], axis=0)
    ari = np.array([agreement(a, b) for a, b in zip(*both, strict=True)])
    entire = np.concatenate([given[0], random[0], compact[0]])
    own = homogeneities(checked_series(series, "series"), entire, quarters[2])
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
    >>> from mgclust.algorithms.parcellation.evaluation.number_choice import chosen
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
        progress = part_of(on_progress or ignore, half / 2, (half + 1) / 2)
        draws = np.stack([random_parcels(starts, columns, k, each) for each in several], axis=1)
        found.append(dcbc(series, draws, coordinates, on_progress=progress))
    return np.mean(found, axis=0)
