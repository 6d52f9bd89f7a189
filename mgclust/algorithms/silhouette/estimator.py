"""Silhouettes: the method `Silhouette` for the command line, and two functions for Python.

The computation on the ranks is described in `mgclust.algorithms.silhouette.ranks`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from mgclust.algorithms.base import Inputs, Method, WarmUp
from mgclust.algorithms.common.pair_matrix import check_square
from mgclust.algorithms.common.preparation import prepare_rows, warnings_of_distances
from mgclust.algorithms.silhouette.labels import Labeling, encode_labels
from mgclust.algorithms.silhouette.options import SilhouetteOptions
from mgclust.algorithms.silhouette.presentation import SilhouettePresentation
from mgclust.algorithms.silhouette.ranks import (
    SilhouetteScores,
    estimate,
    has_closed_form,
    score_distances,
    score_labelings,
)
from mgclust.base.errors import DataWarning, DegenerateClustersWarning, Doubt, warn_caller
from mgclust.data import Dataset, open_dataset
from mgclust.data.labels import labels_location, read_labels
from mgclust.data.location import is_path
from mgclust.data.sparse import SparseRows
from mgclust.engine.spmd import Context, Outcome, RunSpec
from mgclust.kernels.pairs.metrics import METRICS
from mgclust.outside.rooted_files import RootedFile
from mgclust.params import Integer, Seed
from mgclust.results.result import Result

__all__ = ["Silhouette", "SilhouetteScores", "score_labelings", "silhouette_samples", "silhouette_score"]

SCIKIT_LEARN_NAMES = {"l2": "euclidean", "l1": "manhattan", "cityblock": "manhattan"}
DIAGONAL_ROUNDING = 100  # tolerance for the distance of a row to itself, in units of the rounding error of its type


@dataclass(frozen=True)
class SilhouetteOutput:
    """Findings, equal on every rank."""

    scores: SilhouetteScores  # without the silhouettes of the rows
    negative: int  # number of rows whose silhouette is below 0


def silhouette(context: Context, *, metric: str, codes: np.ndarray, largest_diagonal: float = 0.0) -> SilhouetteOutput:
    """Run the method on every rank; each rank delivers "samples", the silhouettes of its rows."""
    if metric == "precomputed":
        with context.stage("silhouette"):
            scores = score_distances(context, codes, largest_diagonal)
    else:
        measure = METRICS[metric]
        with context.stage("prepare"):
            prepared = prepare_rows(context, measure)
        with context.stage("silhouette"):
            scores = score_labelings(context, measure, [codes], keep_samples=True, prepared=prepared)[0]
    assert scores.samples is not None
    context.deliver(samples=scores.samples[context.rows.start : context.rows.stop])
    return SilhouetteOutput(replace(scores, samples=None), int((scores.samples < 0).sum()))


class Silhouette(SilhouetteOptions, Method):
    """Silhouette of each row under given labels: near 1 well inside its cluster, below 0 nearer to another one.

    Parameters
    ----------
    labels : sequence of int or str of length n_samples, or path
        Cluster of each row: from 2 to n_samples - 1 clusters, without negative labels. A path may name a .npy, .npz,
        .csv, .tsv or .txt file, a volume (.nii, .nii.gz), or a result directory (see `read_labels`).
    metric : {"euclidean", "sqeuclidean", "manhattan", "cosine", "correlation", "precomputed"}, default="euclidean"
        Distance between rows. "precomputed": X is the matrix of distances between all pairs, of shape
        (n_samples, n_samples). Each rank reads its own rows of the matrix. Entries that a sparse matrix does not store
        are 0.
    dtype : {"float32", "float64"}, default="float32"
        Number type of the distances. Only "euclidean" and "manhattan" use it; the other metrics compute in float64.
    device, client, n_workers, workers, resources, retries, memory_limit, verbose
        See `mgclust.DensityPeaks`.

    Attributes
    ----------
    samples_ : ndarray of shape (n_samples,), float64
        Silhouette of each row, from -1 to 1; 0 in a cluster of one row.
    score_ : float
        Mean silhouette of all rows.
    cluster_means_ : ndarray of shape (n_clusters,), float64
        Mean silhouette of each cluster, in the order of `classes_`.
    n_clusters_ : int
        Number of clusters.
    classes_ : ndarray of shape (n_clusters,)
        The distinct labels, ascending.
    timings_, result_, n_features_in_
        See `mgclust.DensityPeaks`.

    See Also
    --------
    mgclust.silhouette_samples : Silhouettes of the rows, as a function.
    mgclust.silhouette_score : Mean silhouette, as a function.

    References
    ----------
    P. J. Rousseeuw, Silhouettes: a graphical aid to the interpretation and validation of cluster analysis, Journal of
    Computational and Applied Mathematics 20:53-65, 1987.

    Examples
    --------
    >>> from mgclust.algorithms import Silhouette
    >>> from mgclust.data import open_dataset
    >>> method = Silhouette([0, 0, 1, 1], client=None)
    >>> result = method.fit_dataset(open_dataset([[0.0], [1.0], [10.0], [11.0]]))
    >>> round(method.score_, 3), method.cluster_means_.round(3).tolist()
    (0.9, [0.9, 0.9])
    """

    presentation = SilhouettePresentation()

    @classmethod
    def warm_ups(cls) -> tuple[WarmUp, ...]:
        """See `mgclust.algorithms.Method.warm_ups`."""
        return (WarmUp((3000, 8), {"labels": np.arange(3000) % 4}),)

    def _run_spec(self, parameters: dict[str, Any], inputs: Inputs) -> RunSpec:
        labels, metric = parameters["labels"], parameters["metric"]
        labels = read_labels(labels, inputs.dataset) if isinstance(labels, (str, RootedFile)) else labels
        self._labeling = encode_labels(labels, inputs.dataset.shape[0])
        closed, given = _is_closed(metric), metric == "precomputed"
        need = partial(estimate, closed=closed, n_clusters=len(self._labeling.classes))
        arguments = {"metric": metric, "codes": self._labeling.codes}
        if given:
            arguments["largest_diagonal"] = DIAGONAL_ROUNDING * float(np.finfo(inputs.dataset.dtype).eps)
        # float64 costs little in the closed form, whose only error is rounding.
        dtype = "float64" if closed or given else parameters["dtype"]
        return RunSpec(silhouette, arguments, need, dtype, metric=metric, first_calls={"pairs.reduced_distances": {}})

    def _check_shape(self, dataset: Dataset) -> None:
        if self.metric == "precomputed":
            check_square(dataset, "metric", "distances", sparse=True)
        super()._check_shape(dataset)

    def _publish(self, outcome: Outcome, frame: dict[str, Any], inputs: Inputs) -> Result:
        value: SilhouetteOutput = outcome.value
        scores = value.scores
        labeling: Labeling = self.__dict__.pop("_labeling")
        self.samples_, self.score_ = outcome.arrays["samples"], scores.score
        self.cluster_means_, self.classes_ = scores.cluster_means, labeling.classes
        self.n_clusters_ = len(self.classes_)
        arrays = {"samples": self.samples_, "cluster_silhouettes": self.cluster_means_}
        if not np.array_equal(labeling.classes, np.arange(len(labeling.classes))):
            arrays["classes"] = labeling.classes
        singletons = int((scores.sizes == 1).sum())
        sentences = []
        if singletons:
            text = f"{singletons} of {len(scores.sizes)} clusters have one row, whose silhouette is 0 by definition: "
            text += "request fewer clusters, or leave these rows out."
            sentences.append(Doubt(text, DegenerateClustersWarning))
        algorithm = "given" if self.metric == "precomputed" else "closed-form" if _is_closed(self.metric) else "pairs"
        computed_in = self.dtype if algorithm == "pairs" else "float64"
        self._doubts = [
            *(distances_left_out(inputs.dataset) if algorithm == "given" else ()),
            *warnings_of_distances(scores.distance_error, self.metric, computed_in),
        ]
        lowest = int(np.argmin(scores.cluster_means))
        frame["source"] |= _provenance(frame["parameters"]["labels"])
        frame["parameters"]["labels"] = _named(frame["parameters"]["labels"])
        return Result(
            labels=labeling.codes,
            arrays=arrays,
            scores={
                "n_clusters": self.n_clusters_,
                "silhouette": scores.score,
                "min_cluster_silhouette": float(scores.cluster_means[lowest]),
            },
            warnings=sentences + self._doubts,
            diagnostics={
                "exactness": {"algorithm": algorithm},
                "computed_in": computed_in,
                "negative_rows": value.negative,
            },
            **frame,
        )


def _is_closed(metric: str) -> bool:
    return metric != "precomputed" and has_closed_form(METRICS[metric])


def distances_left_out(dataset: Dataset) -> list[Doubt]:
    """Return a warning if a sparse matrix does not store all distances."""
    if not isinstance(dataset, SparseRows):
        return []
    matrix, n = dataset.matrix, dataset.shape[0]
    missing = n * (n - 1) - int((np.repeat(np.arange(n), np.diff(matrix.indptr)) != matrix.indices).sum())
    if not missing:
        return []
    text = f"{missing:,} distances are not stored and count as 0, but a neighbour graph omits large distances: "
    return [Doubt(f"{text}give the distances of all pairs of distinct rows.", DataWarning)]


def _provenance(labels: Any) -> dict[str, str]:
    """Return the hash of the labels' file, if the labels come from a file."""
    if not isinstance(labels, (str, RootedFile)):
        return {}
    location = labels_location(labels)
    return {} if location.remote or location.once or not location.exists() else {"labels_sha256": location.sha256()}


def _named(labels: Any) -> Any:
    """Replace a file by its name, which the result keeps."""
    return labels.called if isinstance(labels, RootedFile) else labels


def silhouette_samples(
    X: Any,
    labels: Any,
    *,
    metric: str = "euclidean",
    device: str = "auto",
    client: Any = "auto",
    n_workers: int | None = None,
    workers: Any = None,
    resources: dict[str, float] | None = None,
    retries: int = 0,
    dtype: str = "float32",
    memory_limit: int | str | None = None,
) -> Any:
    """Compute the silhouette of each row, like ``sklearn.metrics.silhouette_samples``.

    Parameters
    ----------
    X : array of shape (n_samples, n_features), path, URL or Dataset
        The rows: anything that `open_dataset` accepts.
    labels : sequence of int or str of length n_samples, or path
        Cluster of each row: from 2 to n_samples - 1 clusters, without negative labels.
    metric : {"euclidean", "sqeuclidean", "manhattan", "cosine", "correlation", "precomputed"}, default="euclidean"
        Distance between rows. The names "l2", "l1" and "cityblock" of scikit-learn are also accepted. "precomputed":
        `X` is the matrix of distances between all pairs, of shape (n_samples, n_samples). Entries that a sparse matrix
        does not store are 0.
    dtype : {"float32", "float64"}, default="float32"
        Number type of the distances. Only "euclidean" and "manhattan" use it; the other metrics compute in float64.
    device, client, n_workers, workers, resources, retries, memory_limit
        Where to compute; see `mgclust.DensityPeaks`.

    Returns
    -------
    ndarray or Dask array of shape (n_samples,), float64
        Silhouette of each row, from -1 to 1; 0 in a cluster of one row. A Dask array if `X` is one and the run is on a
        Dask cluster.

    Raises
    ------
    InputError
        If the labels do not fit the rows, or form fewer than 2 or more than n_samples - 1 clusters.

    See Also
    --------
    silhouette_score : Mean of these values.
    sklearn.metrics.silhouette_samples : The same values from a distance matrix in memory.

    Examples
    --------
    >>> from mgclust import silhouette_samples
    >>> silhouette_samples([[0.0], [1.0], [10.0], [11.0]], [0, 0, 1, 1], client=None).round(3).tolist()
    [0.905, 0.895, 0.895, 0.905]
    """
    place: dict[str, Any] = {"client": client, "device": device, "n_workers": n_workers}
    place.update(workers=workers, resources=resources, retries=retries)
    return _fitted(X, labels, metric=metric, dtype=dtype, memory_limit=memory_limit, **place).samples_


def _fitted(X: Any, labels: Any, **options: Any) -> Silhouette:
    """Fit a model for a function of this module; warnings point to the caller of that function."""
    metric = options.pop("metric")
    metric = SCIKIT_LEARN_NAMES.get(metric, metric) if isinstance(metric, str) else metric
    model = Silhouette(labels, metric=metric, **options)
    model.fit_dataset(open_dataset(X), provenance=False)
    for text in model._doubts:
        warn_caller(text)
    return model


def _permutation(random_state: Any, n: int) -> np.ndarray:
    draw = 0 if random_state is None else Seed().check("random_state", random_state)
    rows: np.ndarray = (np.random.RandomState(draw) if isinstance(draw, int) else draw).permutation(n)
    return rows


def silhouette_score(
    X: Any,
    labels: Any,
    *,
    metric: str = "euclidean",
    sample_size: int | None = None,
    random_state: Any = None,
    device: str = "auto",
    client: Any = "auto",
    n_workers: int | None = None,
    workers: Any = None,
    resources: dict[str, float] | None = None,
    retries: int = 0,
    dtype: str = "float32",
    memory_limit: int | str | None = None,
) -> float:
    """Compute the mean silhouette of all rows, like ``sklearn.metrics.silhouette_score``.

    Parameters
    ----------
    X, labels, metric, device, client, n_workers, workers, resources, retries, dtype, memory_limit
        See `silhouette_samples`.
    sample_size : int, optional
        Number of rows to draw, in the same way as in scikit-learn. Only distances between these rows are used. By
        default, all rows are used.
    random_state : int, RandomState or Generator, optional
        Seed of the draw. None means 0.

    Returns
    -------
    float
        Mean silhouette, from -1 to 1.

    Raises
    ------
    InputError
        If the labels do not fit the rows, or form fewer than 2 or more than n_samples - 1 clusters.

    See Also
    --------
    silhouette_samples : Silhouettes of the rows.

    Examples
    --------
    >>> from mgclust import silhouette_score
    >>> round(silhouette_score([[0.0], [1.0], [10.0], [11.0]], [0, 0, 1, 1], client=None), 3)
    0.9
    """
    place: dict[str, Any] = {"client": client, "device": device, "n_workers": n_workers}
    place.update(workers=workers, resources=resources, retries=retries)
    sample_size = Integer(at_least=1, optional=True).check("sample_size", sample_size)
    if sample_size is not None:
        dataset = open_dataset(X)
        given = encode_labels(read_labels(labels, dataset) if is_path(labels) else labels, dataset.shape[0])
        drawn = _permutation(random_state, dataset.shape[0])[:sample_size]
        X, labels = dataset.take(drawn), given.codes[drawn]
        if metric == "precomputed":
            X = X[:, drawn]
    return float(_fitted(X, labels, metric=metric, dtype=dtype, memory_limit=memory_limit, **place).score_)
