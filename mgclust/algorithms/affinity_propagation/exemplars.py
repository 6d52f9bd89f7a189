"""Base class of the two affinity propagation estimators: exemplars, labels of new rows, and the run on the ranks."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils.validation import check_is_fitted

from mgclust.algorithms.affinity_propagation.ranks import FIRST_CALLS
from mgclust.algorithms.affinity_propagation.rows.row_choice import estimate, estimate_of_either, estimate_of_lists
from mgclust.algorithms.affinity_propagation.rows.similarity_matrix import AFFINITIES, PRECOMPUTED
from mgclust.algorithms.affinity_propagation.rows.sparse_pairs import estimate_of_pairs
from mgclust.algorithms.base import Clusterer, Inputs
from mgclust.algorithms.common.nearest_centers import labels_by_centers
from mgclust.algorithms.common.pair_matrix import check_square
from mgclust.base.errors import InputError, InsufficientMemoryError, warn_caller
from mgclust.data import Dataset
from mgclust.data.arrays import ArrayDataset
from mgclust.data.sparse import SparseDataset, is_sparse
from mgclust.engine.memory import EstimateFunction, human
from mgclust.engine.spmd import RunSpec, Work
from mgclust.kernels import load
from mgclust.kernels.pairs.metrics import METRICS

__all__ = ["CONVERGENCE_REMEDY", "ExemplarClusterer"]

# Smallest number of pairs per rank for which several ranks save time. Two CPU ranks are faster than one rank from about
# 1,500 rows on. Two GPUs are faster than one GPU with 30,000 rows, and slower with 10,000 rows.
PAIRS_OF_A_RANK = {"cpu": 2e6, "cuda": 4e8}
PAIRS_A_SECOND = {"cpu": 2e7, "cuda": 1e9}  # speed of one rank in these measurements, which took about 100 iterations
CONVERGENCE_REMEDY = "raise max_iter or damping (for example to 0.9), or change preference"


class ExemplarClusterer(Clusterer):
    """Base class of estimators whose clusters have exemplars."""

    affinity: str
    cluster_centers_indices_: np.ndarray
    n_clusters_: int
    preference_: float | np.ndarray

    def _check_shape(self, dataset: Dataset) -> None:
        if self.affinity == "precomputed_nearest_neighbors" and not isinstance(dataset, SparseDataset):
            raise InputError(
                "affinity='precomputed_nearest_neighbors' needs a sparse matrix of distances in memory (only in "
                "Python), such as kneighbors_graph(mode='distance') returns; give that matrix, or the rows with "
                "affinity='euclidean'."
            )
        if self.affinity == "precomputed":
            check_square(dataset, "affinity", "similarities")
        super()._check_shape(dataset)

    def _rows_of_run(self, dataset: Dataset) -> Dataset:
        if not isinstance(dataset, SparseDataset):
            return dataset
        # The ranks get the pairs as an argument. The data set that they read holds each row's number of pairs.
        return ArrayDataset(np.diff(dataset.bounds)[:, None])

    def _spec_of(
        self, ranks: Callable[..., Any], parameters: dict[str, Any], inputs: Inputs, dtype: str, **beside: Any
    ) -> RunSpec:
        """Describe the run on the ranks: the function `ranks` with all parameters of the method."""
        preference, n = parameters["preference"], inputs.dataset.shape[0]
        if isinstance(preference, np.ndarray) and len(preference) != n:
            raise InputError(f"preference has {len(preference)} values for n_samples={n} rows; give one value per row.")
        arguments = {name: parameters[name] for name in self.constraints} | beside
        arguments["seed"] = self._seed(parameters["random_state"])
        rows = self.affinity not in PRECOMPUTED
        kept: dict[str, EstimateFunction] = {"auto": estimate_of_either, "dense": estimate, "sparse": estimate_of_lists}
        needed = kept[parameters["algorithm"]] if rows else estimate
        if isinstance(inputs.dataset, SparseDataset):
            needed = partial(estimate_of_pairs, pairs=len(inputs.dataset.values))
        work = Work(n**2, "pairs of rows", PAIRS_OF_A_RANK, PAIRS_A_SECOND)
        return RunSpec(
            ranks,
            arguments,
            needed,
            dtype,
            metric=parameters["affinity"],
            resident=rows,
            work=work,
            first_calls=FIRST_CALLS,
        )

    def _keep_exemplars(self, dataset: Dataset, indices: np.ndarray) -> None:
        """Keep the exemplars, and the data that `predict` and `affinity_matrix_` will need."""
        self._keep_data(dataset)
        self.cluster_centers_indices_, self.n_clusters_ = indices, len(indices)
        if self.affinity not in PRECOMPUTED:
            self.cluster_centers_ = dataset.take(indices)

    def predict(self, X: Any) -> np.ndarray:
        """Label new rows by their most similar exemplar.

        Parameters
        ----------
        X : array of shape (n_samples, n_features), path, URL or Dataset
            New rows. Each rank reads its own rows; the rows of a Dask array stay on the workers that hold them.

        Returns
        -------
        ndarray or Dask array of shape (n_samples,), int32
            Labels as in `labels_`; ties go to the first exemplar. All labels are -1 if the fit found no exemplar.
            Similarities are computed in float64. The labels are a Dask array if X is a Dask array and the run uses the
            caller's client.

        Raises
        ------
        InputError
            X has another number of features than the fitted rows, or contains NaN; or the estimator was fitted on
            precomputed similarities.

        Examples
        --------
        >>> from mgclust import AffinityPropagation
        >>> model = AffinityPropagation(client=None).fit([[1.0, 2], [1, 4], [1, 0], [4, 2], [4, 4], [4, 0]])
        >>> model.predict([[0.0, 0.0], [5.0, 3.0]]).tolist()
        [0, 1]
        """
        check_is_fitted(self, "cluster_centers_indices_")
        dataset = self._open_more(X)
        if self.affinity in PRECOMPUTED:
            raise InputError(
                f"affinity={self.affinity!r}: predict needs the fitted rows, but the fit had only similarities; fit "
                "the rows themselves, or find the most similar row of cluster_centers_indices_ in your similarities."
            )
        if not self.n_clusters_:
            warn_caller(f"the fit found no exemplar, so all labels are -1: {CONVERGENCE_REMEDY}.", ConvergenceWarning)
            return np.full(dataset.shape[0], -1, np.int32)
        limit, metric = self._checked()["memory_limit"], AFFINITIES[self.affinity][0]
        centers: Any = self.cluster_centers_
        centers = centers.toarray() if is_sparse(centers) else centers
        return labels_by_centers(dataset, centers, metric, self._place(), limit)

    @property
    def affinity_matrix_(self) -> np.ndarray:
        """Similarities of all rows, shape (n_samples, n_samples), float64; the diagonal holds the preference.

        The matrix is computed at each access, because no rank holds the whole matrix if there are several ranks. It
        does not include the noise that breaks ties. The data are read again, so they must still exist and be unchanged
        since the fit.

        Raises
        ------
        InsufficientMemoryError
            The matrix does not fit into the free memory.
        """
        check_is_fitted(self, "cluster_centers_indices_")
        n, d = self._dataset.shape
        kernels = load("cpu")
        needed, there = 8 * n * (n + 2 * d), kernels.memory.free_memory()
        if needed > there:
            raise InsufficientMemoryError(
                f"not enough memory: affinity_matrix_ of n_samples={n} needs {human(needed)}, {human(there)} is free; "
                "give fewer rows."
            )
        rows = self._kept_data().read(0, n)
        x = np.asarray(rows.get() if hasattr(rows, "get") else rows, np.float64)
        if self.affinity in PRECOMPUTED:
            s = np.array(x)
        else:
            name, factor = AFFINITIES[self.affinity]
            x = METRICS[name].prepare(x.mean(axis=0))(x)
            s = -factor * kernels.pairs.reduced_distances(x, x, norm="l2")
        s[np.arange(n), np.arange(n)] = self.preference_
        return s

    def __sklearn_tags__(self) -> Any:
        """Return the tags of scikit-learn, with `pairwise` set for precomputed similarities."""
        tags = super().__sklearn_tags__()
        tags.input_tags.pairwise = self.affinity in PRECOMPUTED
        return tags
