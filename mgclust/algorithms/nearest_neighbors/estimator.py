"""Nearest neighbours: the method `NearestNeighbors` for the command line, and two functions for Python.

The search on the ranks is described in `mgclust.algorithms.nearest_neighbors.ranks`.
"""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

import numpy as np
from scipy.sparse import csr_matrix

from mgclust.algorithms.base import Inputs, Method, WarmUp
from mgclust.algorithms.common.preparation import warnings_of_distances
from mgclust.algorithms.common.weights import on_host
from mgclust.algorithms.nearest_neighbors.options import NearestNeighborsOptions
from mgclust.algorithms.nearest_neighbors.presentation import NearestNeighborsPresentation
from mgclust.algorithms.nearest_neighbors.ranks import NearestNeighborsOutput, estimate, search_neighbors
from mgclust.base.errors import InputError, warn_caller
from mgclust.data import Dataset, open_dataset
from mgclust.engine.spmd import Outcome, RunSpec
from mgclust.params import Choice
from mgclust.results.result import Result

__all__ = ["NearestNeighbors", "Neighborhoods", "kneighbors_graph", "nearest_neighbors"]


class Neighborhoods(NamedTuple):
    """The nearest rows of each row.

    Attributes
    ----------
    distances : ndarray of shape (n_samples, n_neighbors)
        Distances to the nearest rows, ascending.
    indices : ndarray of shape (n_samples, n_neighbors), int64
        Indices of the nearest rows; among equal distances, the lower index comes first. If several rows at the same
        distance compete for the last places, the squared distances decide, and then the lower index.
    """

    distances: np.ndarray
    indices: np.ndarray


class NearestNeighbors(NearestNeighborsOptions, Method):
    """The nearest rows of each row, exact, on one or many CPUs or GPUs.

    Parameters
    ----------
    n_neighbors : int, default=5
        Number of nearest rows, without the row itself; less than n_samples.
    metric : {"euclidean", "sqeuclidean", "manhattan", "cosine", "correlation"}, default="euclidean"
        Distance between rows.
    dtype : {"float32", "float64"}, default="float32"
        Number type of the distances.
    device, client, n_workers, workers, resources, retries, memory_limit, verbose
        As for `mgclust.DensityPeaks`.

    Attributes
    ----------
    distances_ : ndarray of shape (n_samples, n_neighbors), of `dtype`
        Distances to the nearest rows, ascending.
    indices_ : ndarray of shape (n_samples, n_neighbors), int64
        Indices of the nearest rows; among equal distances, the lower index comes first. If several rows at the same
        distance compete for the last places, the sums under the roots of the distances decide, and then the lower
        index.
    timings_, result_, n_features_in_
        As for `mgclust.DensityPeaks`.

    See Also
    --------
    mgclust.nearest_neighbors : The same search as a function.
    mgclust.kneighbors_graph : The nearest rows as a sparse matrix.

    Examples
    --------
    >>> from mgclust.algorithms import NearestNeighbors
    >>> from mgclust.data import open_dataset
    >>> method = NearestNeighbors(1, client=None)
    >>> result = method.fit_dataset(open_dataset([[0.0], [1.0], [3.0]]))
    >>> method.indices_.tolist(), method.distances_.tolist()
    ([[1], [0], [1]], [[1.0], [1.0], [2.0]])
    """

    presentation = NearestNeighborsPresentation()
    _links = False  # whether the caller makes a graph, so that the memory estimate includes the graph

    @classmethod
    def warm_ups(cls) -> tuple[WarmUp, ...]:
        """See `mgclust.algorithms.Method.warm_ups`."""
        return WarmUp((6000, 2), seconds=1.5), WarmUp((8000, 20))

    def _run_spec(self, parameters: dict[str, Any], inputs: Inputs) -> RunSpec:
        n, n_neighbors, metric = inputs.dataset.shape[0], parameters["n_neighbors"], parameters["metric"]
        queries = inputs.queries
        if queries is not None and n_neighbors > n:
            raise InputError(f"n_neighbors={n_neighbors} should be <= n_samples={n}; give a smaller n_neighbors.")
        if queries is None and n_neighbors >= n:
            raise InputError(
                f"n_neighbors={n_neighbors} should be < n_samples={n}, because a row is not its own neighbour; give a "
                "smaller n_neighbors."
            )
        arguments = {"metric": metric, "n_neighbors": n_neighbors}
        rows = None if queries is None else queries.shape[0]
        need = partial(estimate, n_neighbors=n_neighbors, queries=rows, links=self._links)
        calls: dict[str, dict[str, Any]] = {"pairs.nearest_rows": {}}
        return RunSpec(search_neighbors, arguments, need, parameters["dtype"], metric=metric, first_calls=calls)

    def _publish(self, outcome: Outcome, frame: dict[str, Any], inputs: Inputs) -> Result:
        found: NearestNeighborsOutput = outcome.value
        self.distances_, self.indices_ = outcome.arrays["distances"], outcome.arrays["indices"]
        return Result(
            arrays={"distances": self.distances_, "indices": self.indices_},
            scores={"median_distance": found.median, "max_distance": found.largest},
            warnings=warnings_of_distances(found.distance_error, self.metric, self.dtype),
            **frame,
        )


def nearest_neighbors(
    X: Any,
    n_neighbors: int,
    *,
    queries: Any = None,
    metric: str = "euclidean",
    device: str = "auto",
    client: Any = "auto",
    n_workers: int | None = None,
    workers: Any = None,
    resources: dict[str, float] | None = None,
    retries: int = 0,
    dtype: str = "float32",
    memory_limit: int | str | None = None,
) -> Neighborhoods:
    """Find the nearest rows of each row, as ``sklearn.neighbors.NearestNeighbors(n_neighbors).fit(X).kneighbors()``.

    The search is exact: it compares the distances of all pairs, and does not store them.

    Parameters
    ----------
    X : array of shape (n_samples, n_features), path, URL or Dataset
        The rows: anything that `open_dataset` accepts.
    n_neighbors : int
        Number of nearest rows; less than n_samples. A row is never its own neighbour, but a duplicate of it is a
        neighbour at distance 0.
    queries : array of shape (n_queries, n_features), path, URL or Dataset, optional
        Rows whose nearest rows in `X` are searched. By default, these are the rows of `X` themselves. With `queries`,
        each row of `X` may be a neighbour, so `n_neighbors` may be n_samples. Each rank searches the neighbours of a
        part of the queries.
    metric : {"euclidean", "sqeuclidean", "manhattan", "cosine", "correlation"}, default="euclidean"
        Distance between rows.
    dtype : {"float32", "float64"}, default="float32"
        Number type of the distances.
    device, client, n_workers, workers, resources, retries, memory_limit
        Where to compute; see `mgclust.DensityPeaks`.

    Returns
    -------
    Neighborhoods
        A named tuple with two arrays of shape (n_samples, n_neighbors), or (n_queries, n_neighbors) with `queries`:

        - `distances`, of `dtype`: distances to the nearest rows, ascending;
        - `indices`, int64: indices of these rows in `X`; among equal distances, the lower index comes first.

        The result is bitwise identical on any number of workers. On a cluster, both arrays are Dask arrays if `queries`
        is a Dask array, or, without `queries`, if `X` is a Dask array.

    Raises
    ------
    InputError
        If `n_neighbors` is too large, or the features of `queries` differ from the features of `X`.

    See Also
    --------
    kneighbors_graph : The nearest rows as a sparse matrix.
    sklearn.neighbors.NearestNeighbors : The same search on one machine.

    Examples
    --------
    >>> from mgclust import nearest_neighbors
    >>> distances, indices = nearest_neighbors([[0.0], [1.0], [3.0], [3.0]], 2, client=None)
    >>> indices.tolist()
    [[1, 2], [0, 2], [3, 1], [2, 1]]
    >>> distances.tolist()
    [[1.0, 3.0], [1.0, 2.0], [0.0, 2.0], [0.0, 2.0]]
    """
    place = {
        "client": client,
        "device": device,
        "n_workers": n_workers,
        "workers": workers,
        "resources": resources,
        "retries": retries,
    }
    return _search(
        X, queries, NearestNeighbors(n_neighbors, metric=metric, dtype=dtype, memory_limit=memory_limit, **place)
    )


def _search(X: Any, queries: Any, model: NearestNeighbors) -> Neighborhoods:
    """Fit a model for a public function of this module; warnings point to the caller of the public function."""
    dataset, others = open_dataset(X), None
    if queries is not None:
        others = _open_queries(queries)
        if others.shape[1] != dataset.shape[1]:
            raise InputError(
                f"queries: n_features={others.shape[1]} should be {dataset.shape[1]} as in X; give rows with the same "
                "features."
            )
        model._keep_features(dataset)
        try:
            model._check_feature_names(queries, others)
        except ValueError as error:  # its message is about a fit, which the user did not call
            said = str(error).replace("those that were passed during fit", "those of X")
            said = said.replace(" as they were in fit", "").strip()
            said = said.replace("unseen at fit time", "that X does not have").replace("seen at fit time", "of X")
            raise InputError(f"queries: {said}") from None
    for text in model._run(Inputs(dataset, False, queries=others), None, None).warnings:
        warn_caller(text)
    return Neighborhoods(model.distances_, model.indices_)


def _open_queries(queries: Any) -> Dataset:
    """Open the queries. Errors begin with "queries", because data in memory have no name."""
    try:
        return open_dataset(queries)
    except InputError as error:
        words = str(error)
        for name in ("array ", "X "):
            words = words.removeprefix(name)
        said = f"queries: {words}" if words == str(error) else f"queries {words}"
        raise type(error)(said) from error


def kneighbors_graph(
    X: Any,
    n_neighbors: int,
    *,
    mode: str = "connectivity",
    queries: Any = None,
    metric: str = "euclidean",
    device: str = "auto",
    client: Any = "auto",
    n_workers: int | None = None,
    workers: Any = None,
    resources: dict[str, float] | None = None,
    retries: int = 0,
    dtype: str = "float32",
    memory_limit: int | str | None = None,
) -> csr_matrix:
    """Join each row to its nearest rows in a sparse matrix, as ``sklearn.neighbors.kneighbors_graph`` does.

    Parameters
    ----------
    X, n_neighbors
        As for `nearest_neighbors`.
    mode : {"connectivity", "distance"}, default="connectivity"
        Values of the entries. "connectivity": 1. "distance": the distance to the neighbour; distances of 0 are also
        stored.
    queries, metric, device, client, n_workers, workers, resources, retries, dtype, memory_limit
        As for `nearest_neighbors`.

    Returns
    -------
    csr_matrix of shape (n_samples, n_samples) or (n_queries, n_samples), of `dtype`
        Row i has `n_neighbors` entries, nearest first, so its columns are not sorted.

    Raises
    ------
    InputError
        If `mode` is unknown, `n_neighbors` is too large, or the features of `queries` differ from the features of `X`.

    See Also
    --------
    nearest_neighbors : The nearest rows as two arrays.
    Communities : Communities of a graph.

    Notes
    -----
    To find communities, use ``mode="connectivity"``, and make the graph symmetric by ``graph.maximum(graph.T)``. Do not
    use ``mode="distance"``: `Communities` would read distances as strengths of edges, and ``maximum`` drops edges of
    distance 0.

    Examples
    --------
    >>> from mgclust import kneighbors_graph
    >>> kneighbors_graph([[0.0], [1.0], [3.0]], 1, mode="distance", client=None).toarray().tolist()
    [[0.0, 1.0, 0.0], [1.0, 0.0, 0.0], [0.0, 2.0, 0.0]]
    """
    mode = Choice("connectivity", "distance").check("mode", mode)
    dataset = open_dataset(X)
    place = {
        "client": client,
        "device": device,
        "n_workers": n_workers,
        "workers": workers,
        "resources": resources,
        "retries": retries,
    }
    model = NearestNeighbors(n_neighbors, metric=metric, dtype=dtype, memory_limit=memory_limit, **place)
    model._links = True
    weights, columns = map(on_host, _search(dataset, queries, model))
    del model  # the model also holds both arrays
    m, k = columns.shape
    # Convert to the narrow type first, so that SciPy does not make more copies at once than the memory estimate counts.
    kind = np.int32 if max(m * k, dataset.shape[0]) < 2**31 else np.int64
    columns = columns.astype(kind).reshape(-1)
    if mode == "connectivity":
        weights = np.ones_like(weights)
    ends = np.arange(0, m * k + 1, k, dtype=kind)
    return csr_matrix((weights.reshape(-1), columns, ends), shape=(m, dataset.shape[0]))
