"""Arrays of so few rows that ranks go without any: all methods, on CPUs and on GPUs."""

from __future__ import annotations

import warnings

import numpy as np

from mgclust import (
    AdaptiveAffinityPropagation,
    AffinityPropagation,
    Canopy,
    Communities,
    DensityPeaks,
    FuzzyCMeans,
    Parcellation,
    nearest_neighbors,
    silhouette_samples,
)
from mgclust.base.errors import InputError

# A block holds 1,024 rows: a single rank has all of them.
SIZES = (1, 2, 3, 5, 1000)


def estimator(kind, **parameters):
    """A function of rows and of where to run that gives all that a fit finds, but for times."""

    def found(X, **where):
        model = kind(**parameters, **where).fit(X)
        names = [name for name in vars(model) if name.endswith("_") and name not in ("result_", "timings_")]
        if kind is FuzzyCMeans:
            names.append("memberships_")
        return {name: getattr(model, name) for name in names}

    return found


def silhouettes(X, **where):
    return {"samples": silhouette_samples(X, np.arange(len(X)) % 2, **where)}


def neighbors(X, **where):
    return nearest_neighbors(X, 2, **where)._asdict()


def network(X, **where):
    """The rows as edges."""
    edges = np.abs(X * 20).astype(np.int64) % max(2, len(X) // 2)
    return estimator(Communities, strategy="parallel")(edges, **where)


def parcels(algorithm):
    """Parcels of rows in a line."""

    def found(X, **where):
        series = np.random.default_rng(0).normal(size=(len(X), 24)) + np.repeat(X, 12, axis=1)
        line = np.arange(1, len(X))[:, None] - [1, 0]
        model = Parcellation([1, 2], algorithm=algorithm, **where).fit(
            series, neighbors=line, coordinates=np.arange(len(X))[:, None] * [1, 0, 0]
        )
        return {"labels": model.labels_, "candidates": model._candidates, **model.evaluation_}

    return found


METHODS = {
    "density peaks": estimator(DensityPeaks, n_clusters=1, halo=True, algorithm="brute"),
    "density peaks, grid": estimator(DensityPeaks, n_clusters=1, halo=True, algorithm="grid"),
    "density peaks, cutoff": estimator(DensityPeaks, n_clusters=1, density="cutoff", dc=1.0),
    "density peaks, nearest rows": estimator(DensityPeaks, n_clusters=1, density="knn", k=2),
    "density peaks, float64": estimator(DensityPeaks, n_clusters=1, dtype="float64", metric="manhattan"),
    "fuzzy c-means": estimator(FuzzyCMeans, n_clusters=2),
    "canopy": estimator(Canopy, t1=1.0, t2=0.5),
    "affinity propagation": estimator(AffinityPropagation, damping=0.8),
    "adaptive affinity propagation": estimator(AdaptiveAffinityPropagation, max_iter=100),
    "communities": network,
    "silhouettes": silhouettes,
    "nearest neighbours": neighbors,
    "parcels": parcels("ward"),
    "parcels, communities": parcels("communities"),
    "parcels, affinity propagation": parcels("affinity-propagation"),
}


def rows(n: int) -> np.ndarray:
    return np.random.default_rng(n).normal(size=(n, 2))


def outcome(method: str, n: int, **where) -> dict[str, object]:
    """What a method finds in n rows, or the sentence with which it refuses them; comparable bit for bit."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            found = METHODS[method](rows(n), **where)
        except InputError as error:
            return {"refused": str(error)}
    return {name: bits(value) for name, value in found.items()}


def bits(value) -> tuple[str, bytes] | str:
    array = np.asarray(value)
    return repr(value) if array.dtype.kind == "O" else (array.dtype.str, array.tobytes())
