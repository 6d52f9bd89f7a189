r"""Silhouettes (Rousseeuw, J. Comput. Appl. Math. 20:53, 1987), exact, on any number of ranks.

a_i is the mean distance of row i to the other rows of its cluster. b_i is the mean distance of row i to the rows of
another cluster, for the cluster with the smallest mean::

    s_i = (b_i - a_i) / max(a_i, b_i),      0 in a cluster of one row

The silhouette of a row needs only the sums of its distances to the rows of every cluster. There is never an n x n
array.

sqeuclidean, cosine, correlation
    Reduced distances are squares, so their sums have a closed form about the mean mu of the cluster, without
    cancellation::

        sum over j in C of |x - x_j|^2 = |C| |x - mu|^2 + W,      W = sum over j in C of |x_j - mu|^2

    This takes three passes over the rows (means, W, distances to the means) and n K d multiply-adds, all in float64.
    Communication per rank: K d sums and 8 n bytes.
euclidean, manhattan
    One pass over all pairs, with n^2 d operations, serves any number of labelings. For every labeling, the distance of
    each pair is added to the sum of the cluster of the pair's column. If products are faster than differences on the
    device, distances are computed by products about the mean of the column's cluster. A sample shows how many pairs
    would need differences anyway.
precomputed
    The precomputed distances are added unchanged.

A pass over all pairs takes batches of rows whose sums (rows x clusters of all labelings x 8 bytes) fit into memory.
Every batch reads all columns, so more batches cost communication, but no arithmetic. Sums across rows are integers in
fixed point, and the sums of a row do not depend on batches or ranks. So the result is bitwise identical on any number
of ranks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import numpy as np

from mgclust.algorithms.common.preparation import Prepared, largest_value
from mgclust.base.errors import InputError
from mgclust.engine.memory import Estimate
from mgclust.engine.spmd import Context
from mgclust.kernels.masks import any_true, count_true
from mgclust.kernels.pairs.metrics import Metric

__all__ = [
    "SilhouetteScores",
    "estimate",
    "has_closed_form",
    "score_distances",
    "score_labelings",
    "score_with_matrix",
]

Array = Any

FIXED_POINT_BITS = 60  # less than 63, because sums of rounded terms can exceed the bound by their rounding
MIN_PIECE = 256  # least number of rows in a batch, whose sums must fit into memory
MEANS_BYTES = {"cpu": 16 << 20, "cuda": 256 << 20}  # distances of rows to means in a step; more are not faster
SAMPLE = 1024  # rows of the sample that shows whether products are faster
MAX_DOUBTFUL = 1 / 500  # largest fraction of pairs that need differences; each costs as much as some hundred others
FAR = 256  # limit, relative to a row's mean squared distance to a cluster; see `near_share`
LOOKS = 50  # a pass over the rows counts as 1 / LOOKS of the progress if a pass over all pairs follows


@dataclass(frozen=True)
class SilhouetteScores:
    """Summary of the silhouettes of one labeling.

    Attributes
    ----------
    score : float
        Mean silhouette of all rows.
    cluster_means : ndarray of shape (n_clusters,), float64
        Mean silhouette of each cluster.
    sizes : ndarray of shape (n_clusters,), int64
        Number of rows of each cluster.
    samples : ndarray of shape (n_samples,), float64, or None
        Silhouette of each row, if requested.
    distance_error : float
        Relative error of distances, if requested, from the larger of a and b of each row; see `Prepared.error_of`.
    """

    score: float
    cluster_means: np.ndarray
    sizes: np.ndarray
    samples: np.ndarray | None = None
    distance_error: float = 0.0


def score_labelings(
    context: Context,
    measure: Metric,
    labelings: list[np.ndarray],
    *,
    keep_samples: bool = False,
    prepared: Prepared | None = None,
) -> list[SilhouetteScores]:
    """Compute the silhouettes of several labelings of the same rows together, on every rank.

    Parameters
    ----------
    context : Context
        Its rows are prepared by `prepare_rows` with `measure`.
    measure : Metric
    labelings : list of int32 ndarrays of shape (n_samples,)
        Clusters 0 to K - 1, with K >= 2 and no empty cluster; equal on all ranks.
    keep_samples : bool
        Whether to also return the silhouette of each row.
    prepared : Prepared, optional
        Return value of `prepare_rows`, from which the error of distances is found.

    Returns
    -------
    list of SilhouetteScores
        One per labeling; equal on all ranks.
    """
    if not labelings:
        return []
    scorer = _Scorer(context, labelings, watched=prepared is not None)
    if has_closed_form(measure):
        scorer.closed_form(measure)
    else:
        scorer.all_pairs(measure)
    scores = scorer.scores(keep_samples)
    if prepared is None:
        return scores
    # If rounding has made two clusters the same point, their distance has no correct digit.
    least = float(np.finfo(np.float64).tiny) if prepared.moved else 0.0
    prepared = prepared._replace(moved=prepared.moved + scorer.rounding)
    gathered = (context.kernels.memory.to_host(context.comm.all_gather(each)) for each in scorer.larger)
    errors = (prepared.error_of(measure, np.maximum(scorer.unit * each, least)) for each in gathered)
    return [replace(score, distance_error=error) for score, error in zip(scores, errors, strict=True)]


def score_with_matrix(
    context: Context, s: Array, highest: float, labelings: list[np.ndarray], *, keep_samples: bool = False
) -> list[SilhouetteScores]:
    """Compute the silhouettes of labelings from given similarities, on every rank.

    Dissimilarities are ``-S``. If some similarity is positive, they are ``highest + 1 - S``, which is at least 1.

    Parameters
    ----------
    context : Context
    s : array of shape (m, at least n_samples), float32 or float64
        Similarities of this rank's rows; -inf on the diagonal.
    highest : float
        Largest similarity of all ranks.
    labelings, keep_samples
        As in `score_labelings`.

    Returns
    -------
    list of SilhouetteScores
        One per labeling; equal on all ranks.
    """
    if not labelings:
        return []
    scorer = _Scorer(context, labelings)
    first = context.rows.start
    scorer.matrix(lambda start, stop: s[start - first : stop - first], highest + 1 if highest > 0 else 0.0)
    return scorer.scores(keep_samples)


def score_distances(context: Context, labeling: np.ndarray, largest_diagonal: float) -> SilhouetteScores:
    """Compute the silhouettes of a labeling from rows that are precomputed distances, on every rank.

    Parameters
    ----------
    context : Context
        Its rows are the distances.
    labeling : int32 ndarray of shape (n_samples,)
        As in `score_labelings`.
    largest_diagonal : float
        Largest distance of a row to itself that counts as rounding.

    Returns
    -------
    SilhouetteScores
        With the silhouette of each row.

    Raises
    ------
    InputError
        If the rows cannot be distances.
    """

    def read(start: int, stop: int) -> Array:
        return -context.rows.read(start, stop)

    _reject_no_distances(context, largest_diagonal)
    scorer = _Scorer(context, [labeling])
    scorer.matrix(read, 0.0)
    return scorer.scores(keep_samples=True)[0]


def _reject_no_distances(context: Context, largest_diagonal: float) -> None:
    xp, n = context.kernels.xp, context.dataset_shape[0]
    found = np.full(2, n, np.int64)  # the first row with each fault
    for start, stop in context.cut_rows(16 * n):
        if stop > start:
            s = context.rows.read(start, stop)
            rows = xp.arange(stop - start)
            bad = ((s < 0).any(axis=1), abs(s[rows, start + rows]) > largest_diagonal)
            found = np.minimum(found, [start + int(each.argmax()) if any_true(each) else n for each in bad])
    negative, diagonal = context.comm.all_reduce(found, "min").tolist()
    if negative < n:
        raise InputError(f"metric='precomputed': row {negative} has negative distances; give distances >= 0.")
    if diagonal < n:
        raise InputError(
            f"metric='precomputed': the matrix contains non-zero elements on the diagonal, the first in row "
            f"{diagonal}; give distances that are 0 from a row to itself (np.fill_diagonal(D, 0))."
        )


def has_closed_form(measure: Metric) -> bool:
    """Return whether the sums of distances have a closed form about the means of the clusters.

    Parameters
    ----------
    measure : Metric

    Returns
    -------
    bool
    """
    return measure.norm == "l2" and measure.squared


class _Scorer:
    """Labelings on one rank, numbered together: labeling l has the clusters ``edges[l]`` to ``edges[l + 1] - 1``."""

    def __init__(self, context: Context, labelings: list[np.ndarray], *, watched: bool = False) -> None:
        self.context = context
        self.sizes = [np.bincount(codes) for codes in labelings]
        self.edges = np.cumsum([0, *map(len, self.sizes)]).tolist()
        numbered = [codes + np.int32(first) for codes, first in zip(labelings, self.edges, strict=False)]
        xp, own = context.kernels.xp, len(context.rows)
        self.labels = xp.asarray(np.stack(numbered).astype(np.int32))
        self.all_sizes = xp.asarray(np.concatenate(self.sizes))
        self.samples = [xp.zeros(own, dtype="float64") for _ in labelings]
        # For each row, the larger of a and b in multiples of `unit`. `rounding` is the distance by which a row seems to
        # move because sums are rounded.
        self.larger = [xp.zeros(own, dtype="float64") for _ in labelings if watched]
        self.unit, self.rounding = 1.0, 0.0

    def scores(self, keep_samples: bool) -> list[SilhouetteScores]:
        """Summarize the silhouettes of all ranks."""
        results = []
        for first, labels, values, sizes in zip(self.edges, self.labels, self.samples, self.sizes, strict=False):
            samples = self.context.kernels.memory.to_host(self.context.comm.all_gather(values))
            codes = self.context.kernels.memory.to_host(labels) - first
            means = np.bincount(codes, weights=samples) / sizes
            results.append(SilhouetteScores(float(samples.mean()), means, sizes, samples if keep_samples else None))
        return results

    def matrix(self, read: Callable[[int, int], Array], shift: float) -> None:
        """Compute silhouettes of local rows in each labeling, from the dissimilarities ``shift - s``.

        ``read(start, stop)`` returns s for these local rows and all columns.
        """
        context, xp = self.context, self.context.kernels.xp
        n = context.dataset_shape[0]
        clusters, widest = self.edges[-1], max(map(len, self.sizes))
        pieces = context.cut_rows(8 * clusters + 32 * widest + 8 * n)
        parts = (read(a, b) for a, b in pieces if b > a)
        finite = (xp.where(s > -xp.inf, abs(s), 0) for s in parts)
        largest = xp.stack([xp.zeros((), context.dtype), *(part.max() for part in finite)]).max().reshape(1)
        scale = _fixed_point(n * float(context.comm.all_reduce(largest, "max")[0]))
        for done, (a, b) in enumerate(pieces):
            sums = xp.zeros((b - a, clusters), dtype="int64")
            context.kernels.label_sums.add_by_label(read(a, b), self.labels, n=n, scale=scale, out=sums)
            for labeling, (first, last) in enumerate(pairwise(self.edges)):
                sizes, own = self.all_sizes[first:last], self.labels[labeling, a:b] - first
                means = shift - sums[:, first:last] / (scale * sizes)
                means[xp.arange(b - a), own] -= shift / sizes[own]  # a row is not its own neighbour
                self._keep(labeling, a, b, means, 0.0)
            context.progress((done + 1) / len(pieces))

    def all_pairs(self, measure: Metric) -> None:
        """Compute silhouettes of local rows in each labeling, from the distances of all pairs."""
        context, xp = self.context, self.context.kernels.xp
        n, d = context.dataset_shape
        root = not measure.squared and measure.norm == "l2"
        longest = 2 * largest_value(context) * (d**0.5 if root else d)
        scale = _fixed_point(n * longest)
        self.unit, self.rounding = 1 / scale, 0.25 / scale  # half a unit per pair, shared by its two rows
        clusters = self.edges[-1]
        about = self._centres(measure.norm, root)
        pieces = context.cut_rows(8 * clusters + 32 * max(map(len, self.sizes)))
        done, total = 0, len(pieces) * context.comm.stream_length()
        for start, stop in pieces:
            x = context.rows.read(start, stop)
            sums = xp.zeros((stop - start, clusters), dtype="int64")
            for block in context.comm.stream(context.rows):
                columns = xp.ascontiguousarray(self.labels[:, block.start : block.stop])
                context.kernels.label_sums.cluster_sums(
                    x,
                    block.x,
                    columns,
                    norm=measure.norm,
                    root=root,
                    scale=scale,
                    y_start=block.start,
                    out=sums,
                    about=about,
                )
                done += 1
                context.progress(done / total)
            for labeling, (first, last) in enumerate(pairwise(self.edges)):
                means = sums[:, first:last] / self.all_sizes[first:last]
                self._keep(labeling, start, stop, means, 0.0)

    def closed_form(self, measure: Metric) -> None:
        """Compute silhouettes of local rows in each labeling, from squared distances to the means of the clusters."""
        context = self.context
        n, d = context.dataset_shape
        means, spread = self._means_and_spread(3)
        # Largest value that a squared distance of 0 can have by rounding.
        floor = d * (largest_value(context) * (n * 2.0**-FIXED_POINT_BITS + 2.0**-50)) ** 2
        self.unit, self.rounding = measure.factor, floor**0.5 / 2
        most = min(MEANS_BYTES[context.kernels.device], context.spare // 4)
        pieces = context.cut_rows(16 * d)
        for done, (start, stop) in enumerate(pieces):
            x = context.rows.read(start, stop).astype("float64")
            for labeling, (first, last) in enumerate(pairwise(self.edges)):
                step = max(1, most // (32 * (last - first)))
                for a in range(start, stop, step):
                    b = min(a + step, stop)
                    to_means = context.kernels.pairs.reduced_distances(
                        x[a - start : b - start], means[first:last], norm="l2"
                    )
                    to_means += spread[first:last]
                    self._keep(labeling, a, b, to_means, floor)
                context.progress((2 + (done + (labeling + 1) / len(self.samples)) / len(pieces)) / 3)

    def _centres(self, norm: str, root: bool) -> tuple[Array, Array] | None:
        """Return mean and spread of each cluster, or None if they do not make sums faster; equal on all ranks."""
        context, xp, kernels = self.context, self.context.kernels.xp, self.context.kernels
        n, first = context.dataset_shape[0], context.rows.start
        few, shape = context.rows.read(first, first), {"labelings": len(self.labels), "clusters": self.edges[-1]}
        near = kernels.label_sums.near_share(few, n=n, norm=norm, root=root, **shape)
        if not near:
            return None
        means, spread = self._means_and_spread(LOOKS)
        numbers = np.unique(np.linspace(0, n - 1, SAMPLE).astype("int64"))
        some = context.gather_rows(numbers)
        s = kernels.pairs.reduced_distances(some, some, norm="l2")
        to_means = kernels.pairs.reduced_distances(some, means.astype(some.dtype), norm="l2")
        doubtful = 0.0
        for labels in self.labels[:, xp.asarray(numbers)]:
            to_mean = to_means[:, labels]  # squared distance of each row to the mean of each column's cluster
            pairs = (s < near * (to_mean + to_mean.diagonal())) | (s > FAR * (to_mean + spread[labels]))
            xp.fill_diagonal(pairs, False)
            doubtful += count_true(pairs) / pairs.size / len(self.labels)
        return (means, spread) if doubtful <= MAX_DOUBTFUL else None

    def _means_and_spread(self, looks: int) -> tuple[Array, Array]:
        """Return each cluster's mean, and its rows' mean squared distance to the mean, in two of `looks` passes."""
        context, xp, rows = self.context, self.context.kernels.xp, self.context.rows
        total = context.sum_over_blocks(lambda x: abs(x).sum(axis=1, dtype="float64"))
        scale = _fixed_point(float(total.max()))
        sums = xp.zeros((self.edges[-1], rows.n_features), dtype="int64")
        for x, _, _, own in self._labeled_pieces(8 * rows.n_features, 0, looks):
            context.kernels.label_sums.group_sums(x, own, scale=scale, out=sums)
        means = context.comm.all_reduce(sums, "sum") / (scale * self.all_sizes[:, None])
        squares = xp.empty((len(self.labels), len(rows)), dtype="float64")
        for x, at, labeling, own in self._labeled_pieces(32 * rows.n_features, 1, looks):
            differences = x - means[own]
            squares[labeling, at] = _row_sums(differences * differences)
        spread = []
        for labels, mine, first, sizes in zip(self.labels, squares, self.edges, self.sizes, strict=False):
            # Added on the host, in the order of the rows, so that a few large values cost the others no digits.
            weights = context.kernels.memory.to_host(context.comm.all_gather(mine))
            codes = context.kernels.memory.to_host(labels) - first
            spread.append(np.bincount(codes, weights=weights, minlength=len(sizes)) / sizes)
        return means, xp.asarray(np.concatenate(spread))

    def _labeled_pieces(self, row_bytes: int, look: int, looks: int) -> Iterator[tuple[Array, slice, int, Array]]:
        """Yield batches of local rows, their positions, and the number and the labels of each labeling."""
        pieces, first = self.context.cut_rows(row_bytes), self.context.rows.start
        for done, (start, stop) in enumerate(pieces):
            x = self.context.rows.read(start, stop)
            for labeling in range(len(self.labels)) if stop > start else ():
                own = self.context.kernels.xp.ascontiguousarray(self.labels[labeling, start:stop])
                yield x, slice(start - first, stop - first), labeling, own
            self.context.progress((look + (done + 1) / len(pieces)) / looks)

    def _keep(self, labeling: int, start: int, stop: int, means: Array, floor: float) -> None:
        """Keep the silhouettes of local rows, from their mean distances to each cluster, which are overwritten."""
        context, xp = self.context, self.context.kernels.xp
        first, last = self.edges[labeling : labeling + 2]
        own = self.labels[labeling, start:stop] - first
        rows, sizes = xp.arange(stop - start), self.all_sizes[first:last][own]
        others = xp.maximum(sizes - 1, 1)
        a = means[rows, own] * sizes / others
        means[rows, own] = xp.inf
        b = means.min(axis=1)
        larger = xp.maximum(a, b)
        part = slice(start - context.rows.start, stop - context.rows.start)
        if self.larger:
            self.larger[labeling][part] = larger
        defined = (larger > floor) & (sizes > 1)
        values = xp.where(defined, (b - a) / xp.where(defined, larger, 1.0), 0.0)
        self.samples[labeling][part] = values


def _row_sums(x: Array) -> Array:
    """Return the sum of each row of a scratch array, added in an order that depends only on the width."""
    width = x.shape[1]
    while width > 1:
        half = -(-width // 2)
        x[:, : width - half] += x[:, half:width]
        width = half
    return x[:, 0]


def _fixed_point(bound: float) -> float:
    """Return the largest power of two by which sums up to a bound can be multiplied without exceeding int64."""
    return float(2.0 ** np.floor(FIXED_POINT_BITS - np.log2(bound))) if bound > 0 else 1.0


def estimate(shape: tuple[int, int], itemsize: int, size: int, room: int, *, closed: bool, n_clusters: int) -> Estimate:
    """Estimate the memory of a rank in addition to its rows; closed: see `has_closed_form`."""
    n, d = shape
    what = {"labels and silhouettes": 56 * n}
    piece = MIN_PIECE * 40 * n_clusters
    if closed:
        what["means of the clusters"] = 3 * 8 * n_clusters * d
        piece += MIN_PIECE * 48 * d
    what["sums of a batch of rows"] = piece
    return Estimate(what)
