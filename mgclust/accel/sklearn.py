"""Calls of scikit-learn: affinity propagation and silhouettes.

If scikit-learn or mgclust rejects the arguments of a call, the call runs on scikit-learn, which raises its own error.
"""

from __future__ import annotations

from numbers import Integral
from typing import Any

import numpy as np

from mgclust.accel.calls import AccelSettings, Call, Unsupported

__all__ = ["CALLS"]

# Metric names of scikit-learn, and the corresponding names of mgclust.
METRICS = {
    "euclidean": "euclidean", "l2": "euclidean", "sqeuclidean": "sqeuclidean", "manhattan": "manhattan",
    "cityblock": "manhattan", "l1": "manhattan", "cosine": "cosine", "correlation": "correlation",
    "precomputed": "precomputed",
}  # fmt: skip
HOW_TO_COMPUTE = {"n_jobs", "working_memory"}  # arguments that do not change what is computed
# Up to this many rows, the script's generator draws as many numbers as scikit-learn would draw, so that later draws are
# the same. With more rows, the draws would take longer than the fit.
MAX_ROWS_TO_DRAW = 2048
ROWS = "_mgclust_rows"  # attribute with the fitted rows, from which `affinity_matrix_` is computed at its first access


def fit_affinity_propagation(settings: AccelSettings, self: Any, X: Any, y: Any = None) -> Any:
    """Fit scikit-learn's estimator, and set the same attributes; mgclust computes in float64."""
    from sklearn.utils import check_random_state
    from sklearn.utils.validation import validate_data

    from mgclust.algorithms import AffinityPropagation
    from mgclust.data import open_dataset

    _reject_array_api()
    # scikit-learn rejects these values, but mgclust's estimator would accept them or does not have the parameter.
    for name, good in (
        ("affinity", self.affinity in ("euclidean", "precomputed")),
        ("max_iter", isinstance(self.max_iter, Integral)),
        ("convergence_iter", isinstance(self.convergence_iter, Integral)),
        ("copy", isinstance(self.copy, (bool, np.bool_))),
        ("verbose", isinstance(self.verbose, Integral) and int(self.verbose) >= 0),
    ):
        if not good:
            raise Unsupported(f"mgclust does not support {name}={getattr(self, name)!r}")
    given = self.affinity == "precomputed"
    if self.convergence_iter < 2:
        raise Unsupported(f"convergence_iter={self.convergence_iter} ends runs before they converge")
    if given:
        X = validate_data(self, X, copy=self.copy, force_writeable=True)
    else:
        X = validate_data(self, X, accept_sparse="csr")
    seed = self.random_state
    generator = check_random_state(seed)
    model = AffinityPropagation(
        damping=self.damping,
        max_iter=self.max_iter,
        convergence_iter=self.convergence_iter,
        preference=None if self.preference is None else np.asarray(self.preference, np.float64)[()],
        affinity=self.affinity,
        dtype="float64",
        random_state=int(seed) if isinstance(seed, (int, np.integer)) else 0,
        **settings.place,
    )
    result = model.fit_dataset(open_dataset(X), provenance=False)
    if not model.converged_:
        raise Unsupported(f"no convergence within max_iter={self.max_iter}, so mgclust would return other labels")
    if result.warnings:
        raise Unsupported(result.warnings[0])
    n = len(model.labels_)
    if not isinstance(seed, (int, np.integer)) and n <= MAX_ROWS_TO_DRAW:
        generator.standard_normal((n, n))
    if self.verbose:
        print(f"Converged after {model.n_iter_ - 1} iterations.")
    for name in ("affinity_matrix_", "cluster_centers_", ROWS):
        vars(self).pop(name, None)
    self.cluster_centers_indices_ = model.cluster_centers_indices_.astype(np.int64)
    self.labels_ = model.labels_.astype(np.int64)
    self.n_iter_ = model.n_iter_
    if given:
        self.affinity_matrix_ = _with_preference(X, model.preference_)
    else:
        self.cluster_centers_ = X[self.cluster_centers_indices_].copy()
        vars(self)[ROWS] = (X.copy(), model.preference_)
    return self


def _with_preference(similarities: np.ndarray, preference: Any) -> np.ndarray:
    np.fill_diagonal(similarities, preference)
    return similarities


def _affinity_matrix(self: Any) -> np.ndarray:
    """Return the n x n similarities with the preference on the diagonal; they are computed at the first access."""
    from sklearn.metrics import euclidean_distances

    own = vars(self)
    if "affinity_matrix_" not in own:
        if ROWS not in own:
            raise AttributeError(f"{type(self).__name__!r} object has no attribute 'affinity_matrix_'")
        rows, preference = own.pop(ROWS)
        own["affinity_matrix_"] = _with_preference(-euclidean_distances(rows, squared=True), preference)
    matrix: np.ndarray = own["affinity_matrix_"]
    return matrix


def _keep_affinity_matrix(self: Any, matrix: np.ndarray) -> None:
    vars(self)["affinity_matrix_"] = matrix


def _state(self: Any) -> dict[str, Any]:
    """Return a state for pickling that scikit-learn can load without mgclust."""
    from sklearn.base import BaseEstimator

    if ROWS in vars(self):
        _affinity_matrix(self)
    state: dict[str, Any] = BaseEstimator.__getstate__(self)
    return state


def silhouette_samples(
    settings: AccelSettings, X: Any, labels: Any, *, metric: Any = "euclidean", **options: Any
) -> np.ndarray:
    """Compute the silhouettes of rows: in float32 if X is float32, else in float64."""
    from sklearn.preprocessing import LabelEncoder
    from sklearn.utils import check_X_y

    from mgclust.algorithms.silhouette.estimator import Silhouette
    from mgclust.data import open_dataset

    _reject_array_api()
    if not isinstance(metric, str) or metric not in METRICS:
        raise Unsupported(f"metric={metric!r} is not a metric of mgclust: {', '.join(map(repr, METRICS))}")
    if unknown := sorted(set(options) - HOW_TO_COMPUTE):
        raise Unsupported(f"{unknown[0]}={options[unknown[0]]!r}: mgclust does not have this argument")
    X, labels = check_X_y(X, labels, accept_sparse=["csr"])
    if X.dtype.kind not in "iu" and X.dtype not in (np.float32, np.float64):
        raise Unsupported(f"X has dtype {X.dtype}; mgclust accepts integers, float32 and float64")
    dtype = "float32" if X.dtype == np.float32 else "float64"
    model = Silhouette(LabelEncoder().fit_transform(labels), metric=METRICS[metric], dtype=dtype, **settings.place)
    model.fit_dataset(open_dataset(X), provenance=False)
    return model.samples_.astype(dtype)


def _reject_array_api() -> None:
    from sklearn import get_config

    if get_config().get("array_api_dispatch"):
        raise Unsupported("array_api_dispatch=True is set, which mgclust does not support")


CALLS = (
    Call(
        home="sklearn.cluster",
        path="AffinityPropagation.fit",
        shown="sklearn.cluster.AffinityPropagation.fit",
        ours=fit_affinity_propagation,
        alias="affinity_propagation",
        beside={"affinity_matrix_": property(_affinity_matrix, _keep_affinity_matrix), "__getstate__": _state},
    ),
    Call(
        home="sklearn.metrics",
        path="silhouette_samples",
        shown="sklearn.metrics.silhouette_samples",
        ours=silhouette_samples,
        alias="silhouette_score",
    ),
)
