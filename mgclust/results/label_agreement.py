"""Agreement of two labellings of the same rows: with ``mgclust compare``, with true labels, and with an atlas."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from mgclust.base.dask_arrays import computed, is_dask
from mgclust.base.errors import InputError
from mgclust.outside.quoting import shortened

__all__ = ["AtlasAgreement", "adjusted_rand", "compare_labels", "compare_with_atlas"]

MAX_PAIRS = 1 << 22  # the best matching is computed for at most this many pairs of clusters
NOISE = ("cluster", "drop")


def adjusted_rand(first: np.ndarray, second: np.ndarray) -> float:
    """Return the adjusted Rand index of two labellings: arrays of shape (n,) of integers or strings."""
    from sklearn.metrics import adjusted_rand_score

    return float(adjusted_rand_score(first, second))


def compare_labels(first: Any, second: Any, *, noise: str = "cluster") -> dict[str, Any]:
    r"""Compare two labellings of the same rows; the first can hold the true labels.

    n(k,l) is the number of rows in cluster k of the first and cluster l of the second labelling. Two rows are a "pair
    together" in a labelling if they are in the same cluster. The scores are::

        ari              (pairs together in both - expected) / (mean of the pairs together in each - expected)
        nmi              mutual information / mean of the two entropies
        fowlkes_mallows  pairs together in both / geometric mean of the pairs together in each
        purity           (sum over l of max over k of n(k,l)) / n
        inverse_purity   (sum over k of max over l of n(k,l)) / n
        error_rate       1 - (largest sum of n(k,l) over a one-to-one matching of clusters) / n

    If the clusters are the same, whatever their labels, the error rate is 0 and all other scores are 1. The purity is
    also 1 if each cluster of the second labelling lies within one cluster of the first. The inverse purity is also 1
    if each cluster of the first lies within one cluster of the second.

    Parameters
    ----------
    first, second : array-like of shape (n,)
        Integers or strings; Dask arrays are computed. A row is in no cluster if its label is a negative integer, None
        or masked.
    noise : {"cluster", "drop"}, default="cluster"
        What to do with rows in no cluster. "cluster": they form one more cluster. "drop": rows that are in no cluster
        of at least one labelling are left out.

    Returns
    -------
    dict
        The scores above, and these entries:

        - "rows": number of rows that were compared.
        - "clusters": list of two: the number of clusters in each labelling, without noise.
        - "noise": list of two: the number of rows in no cluster of each labelling, including rows that were left out.

        "error_rate" is None if there are more than 4 million pairs of clusters.

    Raises
    ------
    InputError
        The labellings have different numbers of rows, or there is no row to compare.

    References
    ----------
    L. Hubert, P. Arabie, Comparing partitions, Journal of Classification 2:193-218, 1985.
    E. B. Fowlkes, C. L. Mallows, A method for comparing two hierarchical clusterings, Journal of the American
    Statistical Association 78:553-569, 1983.

    Examples
    --------
    >>> from mgclust import compare_labels
    >>> found = compare_labels([0, 0, 0, 1, 1, 1], [5, 5, 5, 5, 2, 2])
    >>> round(found["ari"], 3), round(found["purity"], 3), round(found["error_rate"], 3)
    (0.324, 0.833, 0.167)
    """
    from scipy.optimize import linear_sum_assignment
    from scipy.sparse import csr_array
    from sklearn.metrics import fowlkes_mallows_score, normalized_mutual_info_score

    if noise not in NOISE:
        raise InputError(f"noise={shortened(repr(noise))} should be one of 'cluster', 'drop'.")
    arrays = [_one_dimensional(labels, name) for labels, name in ((first, "first"), (second, "second"))]
    if len(arrays[0]) != len(arrays[1]):
        raise InputError(
            f"labels: the first labelling has {len(arrays[0])} rows and the second has {len(arrays[1])}; give two "
            "labellings of the same rows."
        )
    outside = [array < 0 if array.dtype.kind == "i" else np.zeros(len(array), bool) for array in arrays]
    kept = ~(outside[0] | outside[1]) if noise == "drop" else np.ones(len(arrays[0]), bool)
    n = int(kept.sum())
    if not n:
        raise InputError("labels: no row is in a cluster of both labellings; check the labels.")
    codes, clusters = [], []
    for array, none in zip(arrays, outside, strict=True):
        one_noise = np.where(none, array.dtype.type(-1), array) if none.any() else array
        found = np.unique(one_noise[kept], return_inverse=True)
        codes.append(found[1].reshape(-1))
        clusters.append(len(found[0]) - int((none & kept).any()))
    shape = tuple(int(code.max()) + 1 for code in codes)
    counts = csr_array((np.ones(n, np.int64), (codes[0], codes[1])), shape=shape)
    error = None
    if shape[0] * shape[1] <= MAX_PAIRS:
        table = counts.toarray()
        error = 1.0 - int(table[linear_sum_assignment(table, maximize=True)].sum()) / n
    return {
        "rows": n,
        "clusters": clusters,
        "noise": [int(none.sum()) for none in outside],
        "ari": adjusted_rand(*codes),
        "nmi": float(normalized_mutual_info_score(*codes)),
        # If both labellings have only clusters of one row, the quotient is 0 / 0, but the clusters are the same.
        "fowlkes_mallows": 1.0 if shape == (n, n) else float(fowlkes_mallows_score(*codes)),
        "purity": int(counts.max(axis=0).sum()) / n,
        "inverse_purity": int(counts.max(axis=1).sum()) / n,
        "error_rate": error,
    }


class AtlasAgreement(NamedTuple):
    """Agreement of clusters with the labels of an atlas.

    Attributes
    ----------
    ari : float or None
        Adjusted Rand index of the rows that are in a cluster and have a label; None if there is no such row.
    rows : int
        Number of these rows.
    label : ndarray of shape (n_clusters,), int64
        For each cluster, the label that most of its rows have, as a position from 0; the first of equally frequent
        labels. -1 if none of its rows has a label.
    dice : ndarray of shape (n_clusters,), float64
        Dice coefficient of the cluster and this label: twice the number of rows in both, divided by the sum of the
        numbers of rows in each. 0 if none of the rows of the cluster has a label.
    """

    ari: float | None
    rows: int
    label: np.ndarray
    dice: np.ndarray


def compare_with_atlas(labels: np.ndarray, codes: np.ndarray, n_labels: int) -> AtlasAgreement:
    """Compare clusters with the labels of an atlas.

    In a result, `ari` and `rows` are the scores ``atlas_ari`` and ``atlas_rows``. The arrays ``atlas_index``,
    ``atlas_name`` and ``atlas_dice`` have one entry per cluster: the value of the label in the atlas (0 for no label),
    its name, and the Dice coefficient.

    Parameters
    ----------
    labels : ndarray of shape (n,), int
        Cluster of each row: 0, 1, ...; negative for no cluster.
    codes : ndarray of shape (n,), int
        Label of each row in the atlas: 0 to `n_labels` - 1; -1 for no label.
    n_labels : int
        Number of labels.

    Returns
    -------
    AtlasAgreement

    References
    ----------
    L. R. Dice, Measures of the amount of ecologic association between species, Ecology 26:297-302, 1945.

    Examples
    --------
    >>> import numpy as np
    >>> from mgclust.results.label_agreement import compare_with_atlas
    >>> found = compare_with_atlas(np.array([0, 0, 0, 1, 1]), np.array([0, 0, 1, 1, -1]), 2)
    >>> found.rows, found.label.tolist(), found.dice.tolist()
    (4, [0, 1], [0.8, 0.5])
    """
    clusters = int(labels.max(initial=-1)) + 1
    both = (labels >= 0) & (codes >= 0)
    pairs, counts = np.unique(labels[both].astype(np.int64) * n_labels + codes[both], return_counts=True)
    cluster, label = np.divmod(pairs, n_labels)
    order = np.lexsort((label, -counts, cluster))
    first = order[np.flatnonzero(np.diff(cluster[order], prepend=-1))]  # the most frequent label of each cluster
    own, theirs = (np.bincount(each[each >= 0], minlength=1) for each in (labels, codes))
    best, dice = np.full(clusters, -1, np.int64), np.zeros(clusters)
    best[cluster[first]] = label[first]
    dice[cluster[first]] = 2 * counts[first] / (own[cluster[first]] + theirs[label[first]])
    ari = adjusted_rand(labels[both], codes[both]) if both.any() else None
    return AtlasAgreement(ari, int(both.sum()), best, dice)


def _one_dimensional(labels: Any, name: str) -> np.ndarray:
    """Return labels as a one-dimensional array of signed integers or strings."""
    given = computed(labels) if is_dask(labels) else labels
    try:
        array = np.asarray(given)
    except ValueError:
        raise InputError(f"labels: the {name} labelling is a ragged list; give one label per row.") from None
    missing = np.ma.getmaskarray(given) if isinstance(given, np.ma.MaskedArray) else np.zeros(array.shape, bool)
    if array.ndim == 2 and array.shape[1] == 1:
        array, missing = array[:, 0], missing[:, 0]
    if array.ndim != 1:
        raise InputError(f"labels: the {name} labelling has shape {array.shape}, not (n,); give one label per row.")
    if array.dtype.kind == "O":
        missing = missing | np.array([each is None for each in array], bool)
        there = array[~missing].tolist()
        if all(isinstance(each, (int, np.integer)) for each in there):
            whole = np.full(len(array), -1, object)
            whole[~missing] = [int(each) for each in there]
            array = _numbered(whole) if _beyond(whole) else whole.astype(np.int64)
        else:
            array = np.where(missing, "", array).astype(str)
    if array.dtype.kind == "f":
        array = np.where(missing, -1, array)
        if np.isfinite(array).all() and (array == np.rint(array)).all():
            array = _numbered(array) if _beyond(array) else array.astype(np.int64)
    elif array.dtype.kind in "bu":
        array = _numbered(array) if _beyond(array) else array.astype(np.int64)
    if array.dtype.kind not in "iSU":
        raise InputError(f"labels: the {name} labelling has type {array.dtype}; give whole numbers or strings.")
    if not missing.any():
        return array
    # No string means "in no cluster", so strings are replaced by numbers.
    return np.where(missing, -1, array if array.dtype.kind == "i" else _numbered(array))


def _beyond(numbers: np.ndarray) -> bool:
    """Return whether some numbers are out of the range of int64."""
    return bool(len(numbers)) and not (int(numbers.min()) >= -(2**63) and int(numbers.max()) < 2**63)


def _numbered(labels: np.ndarray) -> np.ndarray:
    """Replace labels by the numbers 0, 1, ..., and negative labels by -1."""
    numbers = np.unique(labels, return_inverse=True)[1].reshape(-1).astype(np.int64)
    return numbers if labels.dtype.kind in "SU" else np.where(labels < 0, -1, numbers)
