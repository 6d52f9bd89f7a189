"""The silhouette as a method: `Silhouette` for the command line, two functions for Python.

How silhouettes are computed is described in `mgclust.algorithms.silhouette.ranks`.
"""

from __future__ import annotations

import os
from functools import partial
from typing import Any, ClassVar

import numpy as np

from mgclust.algorithms.base import Inputs, Method, WarmUp
from mgclust.algorithms.common.preparation import prepare_rows
from mgclust.algorithms.silhouette.labels import Labeling, encode_labels
from mgclust.algorithms.silhouette.presentation import SilhouettePresentation
from mgclust.algorithms.silhouette.ranks import SilhouetteScores, estimate, has_closed_form, score_labelings
from mgclust.beneath import Beneath
from mgclust.data import open_dataset
from mgclust.data.formats import suffixes
from mgclust.data.labels import labels_location, read_labels
from mgclust.engine.spmd import Context, Outcome, RunSpec
from mgclust.kernels.pairs.metrics import METRICS
from mgclust.params import Choice, Constraint
from mgclust.result import Result

__all__ = ["Silhouette", "SilhouetteScores", "score_labelings", "silhouette_samples", "silhouette_score"]


def silhouette(context: Context, *, metric: str, codes: np.ndarray) -> SilhouetteScores:
    """Run the method on every rank."""
    measure = METRICS[metric]
    with context.stage("prepare"):
        prepare_rows(context, measure)
    with context.stage("silhouette"):
        return score_labelings(context, measure, [codes], keep_samples=True)[0]


class _Labels(Constraint):
    """Labels, or the path of a file that holds some."""

    type = "file"

    @property
    def expected(self) -> str:
        """See `Constraint`."""
        return f"a label for each row, or the path of a file with them ({suffixes('labels')})"

    def _check(self, name: str, value: Any) -> Any:
        return os.fspath(value) if isinstance(value, os.PathLike) else value

    def _read(self, file: Beneath) -> Any:
        return file  # by `read_labels`, once the rows are known


class Silhouette(Method):
    """Silhouette of each row under given labels: near 1 well inside its cluster, below 0 nearer to another one.

    Parameters
    ----------
    labels : sequence of int or str, or path
        Cluster of each row; as a path, a .npy, .npz, .csv, .tsv or result directory (see `read_labels`). From 2 to
        n_samples - 1 clusters; no negative labels.
    metric : {"euclidean", "sqeuclidean", "manhattan", "cosine", "correlation"}, default="euclidean"
    dtype : {"float32", "float64"}, default="float32"
        Type of the distances; sqeuclidean, cosine and correlation take float64 anyway.
    device, client, memory_limit, verbose
        As for `mgclust.DensityPeaks`.

    Attributes
    ----------
    samples_ : ndarray of shape (n_samples,), float64
        Silhouette of each row; 0 in a cluster of one row.
    score_ : float
        Their mean.
    cluster_means_ : ndarray of shape (n_clusters,), float64
        Mean of each cluster, in the order of `classes_`.
    n_clusters_ : int
    classes_ : ndarray of shape (n_clusters,)
        The labels that occur, ascending.
    timings_, result_, n_features_in_
        As for `mgclust.DensityPeaks`.

    References
    ----------
    P. J. Rousseeuw, Silhouettes: a graphical aid to the interpretation and validation of cluster analysis, Journal of
    Computational and Applied Mathematics 20:53-65, 1987.
    """

    method = "silhouette"
    presentation = SilhouettePresentation()
    constraints: ClassVar[dict[str, Constraint]] = {
        "labels": _Labels(
            help=f"Cluster of each row: {suffixes('labels')}.",
            remedy="on the command line, give --labels FILE",
        ),
        "metric": Choice(*METRICS, help="Distance between rows."),
    }

    def __init__(
        self,
        labels: Any = None,
        *,
        metric: str = "euclidean",
        device: str = "auto",
        client: Any = "auto",
        dtype: str = "float32",
        memory_limit: int | str | None = None,
        verbose: bool = False,
    ) -> None:
        self.labels = labels
        self.metric = metric
        self.device = device
        self.client = client
        self.dtype = dtype
        self.memory_limit = memory_limit
        self.verbose = verbose

    @classmethod
    def warm_ups(cls) -> tuple[WarmUp, ...]:
        """See `mgclust.algorithms.Method.warm_ups`."""
        return (WarmUp((3000, 8), {"labels": np.arange(3000) % 4}),)

    def _run_spec(self, parameters: dict[str, Any], inputs: Inputs) -> RunSpec:
        labels, metric = parameters["labels"], parameters["metric"]
        labels = read_labels(labels) if isinstance(labels, (str, Beneath)) else labels
        self._labeling = encode_labels(labels, inputs.dataset.shape[0])
        need = partial(estimate, metric=metric, n_clusters=len(self._labeling.classes))
        arguments = {"metric": metric, "codes": self._labeling.codes}
        # A closed form takes float64 at little cost, and rounding is all that limits it.
        dtype = "float64" if has_closed_form(METRICS[metric]) else parameters["dtype"]
        return RunSpec(silhouette, arguments, need, dtype, shift=not METRICS[metric].unit_rows)

    def _publish(self, outcome: Outcome, frame: dict[str, Any], inputs: Inputs) -> Result:
        scores: SilhouetteScores = outcome.value
        labeling: Labeling = self.__dict__.pop("_labeling")
        assert scores.samples is not None
        self.samples_, self.score_ = scores.samples, scores.score
        self.cluster_means_, self.classes_ = scores.cluster_means, labeling.classes
        self.n_clusters_ = len(self.classes_)
        arrays = {"samples": self.samples_, "cluster_silhouettes": self.cluster_means_}
        if not np.array_equal(labeling.classes, np.arange(len(labeling.classes))):
            arrays["classes"] = labeling.classes
        singletons = int((scores.sizes == 1).sum())
        warnings = []
        if singletons:
            warnings.append(
                f"{singletons} of {len(scores.sizes)} clusters have one row: its silhouette is 0 by definition; ask "
                "for fewer clusters, or leave these rows out."
            )
        lowest = int(np.argmin(scores.cluster_means))
        frame["source"] |= _provenance(frame["parameters"]["labels"])
        frame["parameters"]["labels"] = _named(frame["parameters"]["labels"])
        closed = has_closed_form(METRICS[self.metric])
        return Result(
            labels=labeling.codes,
            arrays=arrays,
            scores={
                "n_clusters": self.n_clusters_,
                "silhouette": scores.score,
                "min_cluster_silhouette": float(scores.cluster_means[lowest]),
            },
            warnings=warnings,
            diagnostics={
                "exactness": {"algorithm": "closed-form" if closed else "pairs"},
                "computed_in": "float64" if closed else self.dtype,
                "negative_rows": int((scores.samples < 0).sum()),
            },
            **frame,
        )


def _provenance(labels: Any) -> dict[str, str]:
    """Hash of the labels' file, where they are one."""
    if not isinstance(labels, (str, Beneath)):
        return {}
    location = labels_location(labels)
    return {} if location.remote or not location.exists() else {"labels_sha256": location.sha256()}


def _named(labels: Any) -> Any:
    """A file by its path, as a result keeps it."""
    return labels.path if isinstance(labels, Beneath) else labels


def silhouette_samples(
    X: Any,
    labels: Any,
    *,
    metric: str = "euclidean",
    device: str = "auto",
    client: Any = "auto",
    dtype: str = "float32",
    memory_limit: int | str | None = None,
) -> np.ndarray:
    """Silhouette of each row, as ``sklearn.metrics.silhouette_samples``.

    Parameters
    ----------
    X : array of shape (n_samples, n_features), path, URL or Dataset
        Whatever `open_dataset` understands.
    labels : sequence of int or str, or path
        Cluster of each row.
    metric : {"euclidean", "sqeuclidean", "manhattan", "cosine", "correlation"}, default="euclidean"
    dtype : {"float32", "float64"}, default="float32"
        Type of the distances; sqeuclidean, cosine and correlation take float64 anyway.
    device, client, memory_limit
        Where to compute; see `mgclust.DensityPeaks`.

    Returns
    -------
    ndarray of shape (n_samples,), float64
        From -1 to 1; 0 in a cluster of one row.

    Examples
    --------
    >>> from mgclust import silhouette_samples
    >>> silhouette_samples([[0.0], [1.0], [10.0], [11.0]], [0, 0, 1, 1], client=None).round(3).tolist()
    [0.905, 0.895, 0.895, 0.905]
    """
    model = Silhouette(labels, metric=metric, device=device, client=client, dtype=dtype, memory_limit=memory_limit)
    model.fit_dataset(open_dataset(X), provenance=False)
    return model.samples_


def silhouette_score(
    X: Any,
    labels: Any,
    *,
    metric: str = "euclidean",
    device: str = "auto",
    client: Any = "auto",
    dtype: str = "float32",
    memory_limit: int | str | None = None,
) -> float:
    """Mean silhouette of all rows; parameters as for `silhouette_samples`.

    Returns
    -------
    float
    """
    options: dict[str, Any] = {"metric": metric, "device": device, "client": client, "dtype": dtype}
    return float(silhouette_samples(X, labels, memory_limit=memory_limit, **options).mean())
