"""Estimator of affinity propagation: checks of its parameters, sparse input, and warnings.

The equations and the computation on the ranks are in `mgclust.algorithms.affinity_propagation.ranks`.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from mgclust.algorithms.affinity_propagation.exemplars import CONVERGENCE_REMEDY, ExemplarClusterer
from mgclust.algorithms.affinity_propagation.options import AffinityPropagationOptions
from mgclust.algorithms.affinity_propagation.preference_search import Tried
from mgclust.algorithms.affinity_propagation.presentation import AffinityPropagationPresentation
from mgclust.algorithms.affinity_propagation.ranks import AffinityPropagationOutput, affinity_propagation
from mgclust.algorithms.affinity_propagation.rows.similarity_matrix import (
    PRECOMPUTED,
)
from mgclust.algorithms.affinity_propagation.rows.sparse_pairs import fewest_exemplars
from mgclust.algorithms.base import Inputs, UnconvergedWarning, WarmUp
from mgclust.base.errors import DataWarning, Doubt, InputError, ParameterWarning, PoorOptimumWarning
from mgclust.data import Dataset
from mgclust.data.sparse import SparseDataset, is_sparse, open_sparse
from mgclust.engine.spmd import Outcome, RunSpec
from mgclust.results.result import Result

__all__ = ["AffinityPropagation"]

# Up to this number, similarities are float64. If messages oscillate, rounding decides when they converge: in one of
# scikit-learn's checks (50 rows, damping 0.5), they converged after 87 iterations in float64, and after 123 iterations
# in float32. float32 saves time and memory only for large matrices.
FEW_SIMILARITIES = 1 << 20


def pairs_of(dataset: Dataset) -> dict[str, np.ndarray] | None:
    """Return the pairs of a sparse data set, for the ranks; None for any other data set."""
    if not isinstance(dataset, SparseDataset):
        return None
    return {"values": dataset.values, "columns": dataset.columns, "bounds": dataset.bounds}


class AffinityPropagation(AffinityPropagationOptions, ExemplarClusterer):
    """Affinity propagation of Frey and Dueck (2007): finds exemplars by messages, on one or many CPUs or GPUs.

    An exemplar is a row that represents its cluster. Parameters and attributes with the same name as in
    ``sklearn.cluster.AffinityPropagation`` have the same meaning.

    Parameters
    ----------
    damping : float, default=0.5
        Weight of the old value in each new message, from 0.5 to below 1. Larger values converge more slowly and
        oscillate less.
    max_iter : int, default=200
        Largest number of iterations.
    convergence_iter : int, default=15
        The run ends when the exemplars have not changed for this number of iterations. With sparse similarities, each
        row must also have a pair with an exemplar. If a row has no such pair, the count starts again.
    copy : bool, default=True
        Has no effect, because the input is never changed.
    preference : float or array of shape (n_samples,), optional
        How suitable rows are as exemplars, in units of the similarity. Larger values give more clusters. The default is
        the median of all similarities. As in scikit-learn, the median includes the zeros of the diagonal, except with
        `n_clusters` or with sparse similarities.
    preference_quantile : float, optional
        Sets the preference to this quantile of the similarities of pairs, without the diagonal (q of R's apcluster).
        From 0 to 1: 0 is the lowest similarity and gives few clusters, 0.5 is about the default. Excludes `preference`.
    n_clusters : int, optional
        Number of clusters. The preference that gives this number is found by bisection, as in R's apclusterK. The
        search starts at `preference` or `preference_quantile` if given, else at the median. Each preference starts with
        new messages, so the result is the same as a fit with ``preference=preference_``. `search_` lists the
        preferences that were tried. If no preference gives the number, the fit warns, and the labels belong to the
        nearest number of clusters that was found.
    affinity : {"euclidean", "cosine", "correlation", "precomputed", "precomputed_nearest_neighbors"}, \
default="euclidean"
        Similarity of two rows.

        - "euclidean": minus the squared Euclidean distance.
        - "cosine": minus half of (1 - cosine).
        - "correlation": minus half of (1 - Pearson's correlation).
        - "precomputed": X holds the similarities, shape (n_samples, n_samples), symmetric or not. If X is a file, each
          rank reads its own rows. X may also be a sparse matrix of SciPy, in memory. In this case, the pairs are all
          stored entries off the diagonal, including stored zeros. All other pairs are impossible (-inf).
        - "precomputed_nearest_neighbors": X is a sparse matrix of distances, such as `mgclust.kneighbors_graph` or
          scikit-learn's function of the same name returns with ``mode="distance"``. The similarity of row i to row k is
          minus the squared entry ``X[i, k]``. Pairs that are not stored are impossible.
    algorithm : {"auto", "dense", "sparse"}, default="auto"
        Which messages are stored. The results are bitwise identical.

        - "dense": the messages of all pairs, in two n x n matrices.
        - "sparse": neighbour lists of the pairs that can affect the result.
        - "auto": neighbour lists from 1,000 rows on (on a GPU from 4,000 rows on). If the lists have become slower than
          matrices and the matrices fit into memory, the run continues with all pairs.
    device, client, n_workers, workers, resources, retries, verbose
        See `DensityPeaks`.
    dtype : {"float32", "float64"}, default="float32"
        Type of similarities and messages. Data of up to 1,024 rows (2^20 similarities) are always computed in float64;
        see `computed_in_`.
    memory_limit : int or str, optional
        Memory by which one rank may grow, in bytes or as text such as "4 GiB". With "dense", two n x n matrices must
        fit into the memory of all ranks together. With "sparse", all rows of X must fit into the memory of each rank.
    random_state : int, Generator or RandomState, optional
        Seed of the noise that breaks ties. Similarities get noise of relative size eps. If rows are equal or nearly
        equal, preferences also get noise of relative size 4e-6. None means 0, so a repeated fit gives the same result.

    Attributes
    ----------
    cluster_centers_indices_ : ndarray of shape (n_clusters,), int64
        Row numbers of the exemplars, ascending. Empty if no exemplar emerged.
    n_clusters_ : int
        Number of exemplars.
    cluster_centers_ : ndarray of shape (n_clusters, n_features)
        Rows of the exemplars. Not available with precomputed similarities.
    labels_ : ndarray of shape (n_samples,), int32
        Position of each row's exemplar in `cluster_centers_indices_`. All labels are -1 if no exemplar has ever
        emerged. With sparse similarities, rows that have no pair with an exemplar also have the label -1.
    affinity_matrix_ : ndarray of shape (n_samples, n_samples), float64
        Similarities with the preference on the diagonal, computed at each access.
    n_iter_ : int
        Number of iterations.
    converged_ : bool
        Whether the exemplars did not change for `convergence_iter` iterations. If False, the fit issued a
        `sklearn.exceptions.ConvergenceWarning`, and the labels belong to the exemplars with the highest net similarity
        in the last 32 iterations; see Notes. If none of these iterations had exemplars, the labels belong to the
        exemplars of the last iteration that had any.
    net_similarity_ : float
        The objective that affinity propagation maximises: the similarities of rows to their exemplars plus the
        preferences of the exemplars, summed. Rows with the label -1 do not count.
    preference_ : float or ndarray of shape (n_samples,)
        Preference that was used.
    computed_in_ : {"float32", "float64"}
        Type of similarities and messages; see `dtype`.
    exactness_ : dict
        Form of the messages. Unlike the results, these values depend on the number of ranks, on memory and on resumed
        checkpoints.

        - ``algorithm``: "dense" or "sparse", the form in which the run began.
        - ``rows_searched``: how often the list of a row was extended by another search.
        - ``pairs_kept``: number of pairs stored at the end; all pairs if the lists were replaced.
        - ``lists_shortened``: how often a rank removed pairs from its lists because no row read them any more.
    search_ : dict of str to ndarray
        With `n_clusters`: ``preference``, ``n_clusters``, ``n_iter`` and ``converged`` for each preference tried, in
        the order of the trials.
    timings_, result_, n_features_in_
        See `DensityPeaks`.

    See Also
    --------
    AdaptiveAffinityPropagation : Chooses the preference and the number of clusters by a scan.

    Notes
    -----
    Messages that do not converge pass through good and bad states. This was measured on 36 runs that did not converge
    (points, noise, duplicates, a grid and random similarities). The best of the last 32 iterations had a higher net
    similarity than the last iteration in 27 runs, and never a lower net similarity. In 26 runs, it was also the best of
    all iterations. One run ended with 69 exemplars and a net similarity of -38,041, although 7 exemplars had reached
    -14,199 shortly before. A check of all iterations would cost as much as the run.

    References
    ----------
    B. J. Frey, D. Dueck, Clustering by passing messages between data points, Science 315:972-976, 2007.

    Examples
    --------
    >>> import numpy as np
    >>> from mgclust import AffinityPropagation
    >>> X = np.array([[1.0, 2], [1, 4], [1, 0], [4, 2], [4, 4], [4, 0]])
    >>> model = AffinityPropagation().fit(X)
    >>> model.labels_.tolist()
    [0, 0, 0, 1, 1, 1]
    >>> model.cluster_centers_indices_.tolist()
    [0, 3]
    >>> model.predict([[0.0, 0.0], [5.0, 3.0]]).tolist()
    [0, 1]
    """

    presentation = AffinityPropagationPresentation()

    @classmethod
    def warm_ups(cls) -> tuple[WarmUp, ...]:
        """See `mgclust.algorithms.Method.warm_ups`."""
        # The first shape compiles kernels of all pairs in float64, the second kernels of neighbour lists in float32.
        return (WarmUp((300, 20), seconds=2.5), WarmUp((1100, 20), seconds=4.0))

    def _problems(self, value: AffinityPropagationOutput) -> list[Doubt]:
        problems = []
        if value.alike:
            text = "all rows are equally similar to each other, so the choice of exemplars is arbitrary: choose "
            problems.append(Doubt(f"{text}another affinity or other features.", DataWarning))
        elif not len(self.cluster_centers_indices_):
            text = f"no exemplar emerged in {self.n_iter_} iterations, so all labels are -1: {CONVERGENCE_REMEDY}."
            problems.append(Doubt(text, UnconvergedWarning))
        elif not self.converged_:
            what = "changed, or had no pair with some rows," if value.missing else "changed"
            text = f"the exemplars still {what} within the last {self.convergence_iter} of max_iter={self.max_iter} "
            problems.append(Doubt(f"{text}iterations: {CONVERGENCE_REMEDY}.", UnconvergedWarning))
        if value.better is not None:
            k = f"{self.n_clusters_} exemplars" if self.n_clusters_ > 1 else "one exemplar"
            text = (
                f"net similarity {self.net_similarity_:.6g} with {k} is a poor optimum, because "
                f"{len(value.better.exemplars)} exemplars give {value.better.net_similarity:.6g}: raise "
                "convergence_iter (for example to 100) and max_iter (to 2000), or change damping."
            )
            problems.append(Doubt(text, PoorOptimumWarning))
        if value.missing and self.n_clusters_:
            text = f"{value.missing} rows have no pair with any exemplar, so their labels are -1: give more pairs or "
            problems.append(Doubt(f"{text}raise preference.", DataWarning))
        return problems

    def _run_spec(self, parameters: dict[str, Any], inputs: Inputs) -> RunSpec:
        preference, share = parameters["preference"], parameters["preference_quantile"]
        if preference is not None and share is not None:
            raise InputError(f"preference_quantile={share} and preference exclude each other; give only one of them.")
        n, n_clusters = inputs.dataset.shape[0], parameters["n_clusters"]
        if n_clusters is not None and n_clusters > n:
            raise InputError(f"n_clusters={n_clusters} should be <= n_samples={n}; request fewer clusters.")
        if n_clusters is not None and isinstance(preference, np.ndarray):
            raise InputError(
                f"n_clusters={n_clusters} starts its search at one preference, not at one per row; give preference as "
                "a number or leave it out."
            )
        if isinstance(inputs.dataset, SparseDataset) and parameters["algorithm"] == "dense":
            raise InputError(
                "algorithm='dense' stores all pairs, but the sparse X has only some pairs; choose 'auto' or 'sparse'."
            )
        few = n**2 <= FEW_SIMILARITIES
        dtype, pairs = "float64" if few else parameters["dtype"], pairs_of(inputs.dataset)
        if pairs is not None and np.abs(pairs["values"]).max() > np.finfo(dtype).max:
            raise InputError(f"dtype='{dtype}' cannot hold the largest similarity; rescale X or use dtype='float64'.")
        return self._spec_of(affinity_propagation, parameters, inputs, dtype, pairs=pairs)

    def _open(self, X: Any) -> Dataset:
        if self.affinity not in PRECOMPUTED or not is_sparse(X):
            return super()._open(X)
        return open_sparse(X, distances=self.affinity != "precomputed")

    def _publish(self, outcome: Outcome, frame: dict[str, Any], inputs: Inputs) -> Result:
        value: AffinityPropagationOutput = outcome.value
        self._keep_exemplars(inputs.dataset, value.exemplars)
        self.labels_ = outcome.arrays["labels"]
        self.n_iter_, self.converged_ = value.n_iter, value.converged
        self.net_similarity_, self.preference_ = value.net_similarity, value.preference
        self.computed_in_, self.exactness_ = value.dtype, value.exactness
        problems: list[Doubt] = []
        arrays = {"centers": self.cluster_centers_indices_}
        self.__dict__.pop("search_", None)  # an earlier fit may have set it
        if value.search is not None:
            columns = zip(*value.search.tried, strict=True)
            self.search_ = {name: np.array(column) for name, column in zip(Tried._fields, columns, strict=True)}
            arrays |= {f"search_{name}": column for name, column in self.search_.items()}
            given = inputs.dataset
            least = (1, "")
            if isinstance(given, SparseDataset) and not value.search.met:
                least = fewest_exemplars(given.columns, given.bounds, value.search.wanted)
            text = value.search.problem(*least)
            problems += [Doubt(text, ParameterWarning)] if text else []
        preference = value.preference
        return Result(
            labels=self.labels_,
            arrays=arrays,
            scores={
                "n_clusters": self.n_clusters_,
                "net_similarity": self.net_similarity_,
                "n_iter": self.n_iter_,
                "converged": self.converged_,
                "preference": float(np.median(preference)),
            },
            diagnostics={"computed_in": self.computed_in_, "exactness": {"algorithm": self.exactness_["algorithm"]}},
            warnings=[*problems, *self._problems(value)],
            **frame,
        )
