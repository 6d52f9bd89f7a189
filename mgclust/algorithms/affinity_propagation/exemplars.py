"""Common parts of the two affinity propagations: exemplars, their rows, and the row nearest to which exemplar."""

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

# On CPUs two ranks are faster than one from some 1,500 rows on, on GPUs of 30,000 rows, and slower of 10,000.
PAIRS_OF_A_RANK = {"cpu": 2e6, "cuda": 4e8}
PAIRS_A_SECOND = {"cpu": 2e7, "cuda": 1e9}  # of a rank, in some hundred iterations of these measurements
CONVERGENCE_REMEDY = "raise max_iter or damping (0.9, say), or change preference"


class ExemplarClusterer(Clusterer):
    """Base of estimators whose clusters have exemplars."""

    affinity: str
    cluster_centers_indices_: np.ndarray
    n_clusters_: int
    preference_: float | np.ndarray

    def _check_shape(self, dataset: Dataset) -> None:
        if self.affinity == "precomputed_nearest_neighbors" and not isinstance(dataset, SparseDataset):
            raise InputError(
                "affinity='precomputed_nearest_neighbors' takes a sparse matrix of distances in memory, as of "
                "kneighbors_graph(mode='distance'), in Python alone; give one, or the rows with "
                "affinity='euclidean'."
            )
        if self.affinity == "precomputed":
            check_square(dataset, "affinity", "similarities")
        super()._check_shape(dataset)

    def _rows_of_run(self, dataset: Dataset) -> Dataset:
        if not isinstance(dataset, SparseDataset):
            return dataset
        # Ranks are given the pairs; as rows they read how many each row has.
        return ArrayDataset(np.diff(dataset.bounds)[:, None])

    def _spec_of(
        self, ranks: Callable[..., Any], parameters: dict[str, Any], inputs: Inputs, dtype: str, **beside: Any
    ) -> RunSpec:
        """Make the ranks' run: a function of all parameters that are the method's own."""
        preference, n = parameters["preference"], inputs.dataset.shape[0]
        if isinstance(preference, np.ndarray) and len(preference) != n:
            raise InputError(f"preference has {len(preference)} values, should have n_samples={n}; give one per row.")
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
        """Keep the exemplars, and what other rows and `affinity_matrix_` will be compared with."""
        self._keep_data(dataset)
        self.cluster_centers_indices_, self.n_clusters_ = indices, len(indices)
        if self.affinity not in PRECOMPUTED:
            self.cluster_centers_ = dataset.take(indices)

    def predict(self, X: Any) -> np.ndarray:
        """Find the exemplar that each row is most similar to.

        Parameters
        ----------
        X : array of shape (n_samples, n_features), path, URL or Dataset
            Ranks read their own rows; those of a Dask array stay with the workers that have them.

        Returns
        -------
        ndarray of shape (n_samples,), int32
            Labels as in `labels_`; -1 where the fit found no exemplar. Computed in float64.

        Raises
        ------
        InputError
            Another number of features than in the fit, or NaN; or similarities were given, which say nothing of others.
        """
        check_is_fitted(self, "cluster_centers_indices_")
        dataset = self._open_more(X)
        if self.affinity in PRECOMPUTED:
            raise InputError(
                f"predict needs rows, which affinity={self.affinity!r} has not seen; fit the rows themselves, or look "
                "up which of cluster_centers_indices_ is the most similar."
            )
        if not self.n_clusters_:
            warn_caller("the fit found no exemplar: all labels are -1.", ConvergenceWarning)
            return np.full(dataset.shape[0], -1, np.int32)
        limit, metric = self._checked()["memory_limit"], AFFINITIES[self.affinity][0]
        centers: Any = self.cluster_centers_
        centers = centers.toarray() if is_sparse(centers) else centers
        return labels_by_centers(dataset, centers, metric, self._place(), limit)

    @property
    def affinity_matrix_(self) -> np.ndarray:
        """Similarities of all rows, shape (n_samples, n_samples); the preference is on the diagonal.

        Computed when it is asked for (a fit on several ranks never has it in one place), in float64 and without the
        noise that breaks ties. It reads the data again: they must still be there, and as they were in the fit.
        """
        check_is_fitted(self, "cluster_centers_indices_")
        n, d = self._dataset.shape
        kernels = load("cpu")
        needed, there = 8 * n * (n + 2 * d), kernels.memory.free_memory()
        if needed > there:
            raise InsufficientMemoryError(
                f"affinity_matrix_ of n_samples={n} needs {human(needed)}, there is {human(there)}."
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
        """Say that rows may be similarities."""
        tags = super().__sklearn_tags__()
        tags.input_tags.pairwise = self.affinity in PRECOMPUTED
        return tags
