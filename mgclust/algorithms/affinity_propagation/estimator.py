"""Affinity propagation as an estimator: its parameters, sparse input, and what to warn of.

The equations and what the ranks compute are in `mgclust.algorithms.affinity_propagation.ranks`.
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

# Where messages oscillate, rounding decides when they settle: in a check of scikit-learn's (50 rows, damping 0.5) after
# 87 iterations in float64, after 123 in float32. float32 is for matrices that are large enough for it to matter.
FEW_SIMILARITIES = 1 << 20


def pairs_of(dataset: Dataset) -> dict[str, np.ndarray] | None:
    """The pairs of a sparse data set, for the ranks; None of any other."""
    if not isinstance(dataset, SparseDataset):
        return None
    return {"values": dataset.values, "columns": dataset.columns, "bounds": dataset.bounds}


class AffinityPropagation(AffinityPropagationOptions, ExemplarClusterer):
    """Affinity propagation of Frey and Dueck (2007): exemplars by message passing, on one or many CPUs or GPUs.

    Parameters, attributes and meaning are those of ``sklearn.cluster.AffinityPropagation``.

    Parameters
    ----------
    damping : float, default=0.5
        From 0.5 to below 1: the share of the old value in each new message. Larger is slower and oscillates less.
    max_iter : int, default=200
    convergence_iter : int, default=15
        The run ends when the exemplars have stayed the same for so many iterations. With sparse similarities each row
        must also have a pair with one; otherwise the iterations are counted anew.
    copy : bool, default=True
        Has no effect: what is given is never changed.
    preference : float or array of shape (n_samples,), optional
        How suitable rows are as exemplars, in units of the similarity: the larger, the more clusters. By default the
        median of all similarities, in which the zeros of the diagonal count, as in scikit-learn.
    preference_quantile : float, optional
        From 0 to 1, in place of `preference`: this quantile of the similarities of pairs, without the diagonal, as q of
        R's apcluster. 0, the least similarity, gives few clusters, 0.5 about the default.
    n_clusters : int, optional
        The preference is found by bisection, as by R's apclusterK, from the one given or the median on; `search_` tells
        which were tried. Each has new messages, so that the result is that of a fit with ``preference=preference_``.
        Where no preference gives the number, the labels are those of the nearest one found, and there is a warning.
    affinity : {"euclidean", "cosine", "correlation", "precomputed", "precomputed_nearest_neighbors"}, \
default="euclidean"
        Similarity: minus the squared distance; minus half of one minus the cosine, or Pearson's correlation; or the
        rows given are the similarities, shape (n_samples, n_samples), symmetric or not. From a file each rank reads
        its own rows. Of a sparse matrix of SciPy, in memory, what is stored counts, zeros too, but for the diagonal;
        all other pairs are impossible, -inf. "precomputed_nearest_neighbors": a sparse matrix of distances, as
        `mgclust.kneighbors_graph` or scikit-learn's makes with ``mode="distance"``; the similarity of row i to row k is
        minus the squared distance in row i, column k, and what is not stored is impossible.
    algorithm : {"auto", "dense", "sparse"}, default="auto"
        Which messages are kept: of all pairs, two n x n matrices; or neighbour lists of the pairs that can matter. The
        result is the same, bit for bit. "auto" takes lists from 1,000 rows on, on a GPU from 4,000, and goes over to
        all pairs where lists have become slower and the matrices fit; "sparse" keeps to lists.
    device, client, n_workers, workers, resources, retries, verbose
        As in `DensityPeaks`.
    dtype : {"float32", "float64"}, default="float32"
        Of similarities and messages. Up to 1,024 rows (2^20 similarities) take float64 whatever is asked for; see
        `computed_in_`.
    memory_limit : int or str, optional
        Memory by which one rank may grow. With all pairs, two n x n matrices must fit into that of all ranks; with
        lists, the rows into that of each.
    random_state : int, Generator or RandomState, optional
        Seed of the noise that breaks ties: of relative size eps on similarities and, where rows are equal or nearly so,
        4e-6 on preferences. None is 0: a fit again is the same.

    Attributes
    ----------
    cluster_centers_indices_ : ndarray of shape (n_clusters,), int64
        The exemplars, ascending; empty if none emerged.
    n_clusters_ : int
    cluster_centers_ : ndarray of shape (n_clusters, n_features)
        Their rows; not with precomputed similarities.
    labels_ : ndarray of shape (n_samples,), int32
        Position of each row's exemplar; -1 if none has ever emerged, and with sparse similarities for rows that have no
        pair with any.
    affinity_matrix_ : ndarray of shape (n_samples, n_samples), float64
        Computed when it is asked for.
    n_iter_ : int
    converged_ : bool
        Whether the exemplars stayed for `convergence_iter` iterations. If not, there was a
        `sklearn.exceptions.ConvergenceWarning`, and the labels are those of the exemplars with the highest net
        similarity among those of the last 32 iterations (or, if none of these had any, of the last iteration that had);
        see Notes.
    net_similarity_ : float
        Sum of the similarities of rows to their exemplars and of the exemplars' preferences: what is maximised. Without
        rows whose label is -1.
    preference_ : float or ndarray
        As it was used.
    computed_in_ : {"float32", "float64"}
        The type of similarities and messages; see `dtype`.
    exactness_ : dict
        How the messages were kept: ``algorithm``, "dense" or "sparse", with which the run began; how often a row had to
        be searched again for a longer list (``rows_searched``); how many pairs were kept at the end (``pairs_kept``:
        all of them where lists have given way); how often a rank made its lists shorter, which held what no row read
        any more (``lists_shortened``). These numbers, unlike results, depend on the number of ranks, on memory and on
        resumed checkpoints.
    search_ : dict of str to ndarray
        With `n_clusters`: ``preference``, ``n_clusters``, ``n_iter`` and ``converged`` of each preference tried, in
        that order.
    timings_, result_, n_features_in_
        As in `DensityPeaks`.

    Notes
    -----
    Messages that do not settle go through good and bad states. In 36 runs that did not converge, on points, noise,
    duplicates, a grid and random similarities, the best of the last 32 iterations was better than the last one in
    27 and never worse: one run ended with 69 exemplars and a net similarity of -38,041, where 7 exemplars shortly
    before had -14,199. In 26 it was the best of all iterations; to look at all of them would cost as much as the run.

    References
    ----------
    B. J. Frey, D. Dueck, Clustering by passing messages between data points, Science 315:972-976, 2007.

    Examples
    --------
    >>> import numpy as np
    >>> from mgclust import AffinityPropagation
    >>> X = np.array([[1.0, 2], [1, 4], [1, 0], [4, 2], [4, 4], [4, 0]])
    >>> AffinityPropagation().fit(X).labels_.tolist()
    [0, 0, 0, 1, 1, 1]
    """

    presentation = AffinityPropagationPresentation()

    @classmethod
    def warm_ups(cls) -> tuple[WarmUp, ...]:
        """See `mgclust.algorithms.Method.warm_ups`."""
        # All pairs in float64; lists, where there are some, in float32.
        return (WarmUp((300, 20), seconds=2.5), WarmUp((1100, 20), seconds=4.0))

    def _problems(self, value: AffinityPropagationOutput) -> list[Doubt]:
        problems = []
        if value.alike:
            text = "all rows are equally similar to each other: which of them is an exemplar is arbitrary; choose "
            problems.append(Doubt(f"{text}another affinity, or other features.", DataWarning))
        elif not len(self.cluster_centers_indices_):
            text = f"no exemplar emerged in {self.n_iter_} iterations, all labels are -1: {CONVERGENCE_REMEDY}."
            problems.append(Doubt(text, UnconvergedWarning))
        elif not self.converged_:
            what = "changed, or left rows without any," if value.missing else "changed"
            text = f"the exemplars still {what} within the last {self.convergence_iter} of max_iter={self.max_iter} "
            problems.append(Doubt(f"{text}iterations: {CONVERGENCE_REMEDY}.", UnconvergedWarning))
        if value.better is not None:
            k = f"{self.n_clusters_} exemplars" if self.n_clusters_ > 1 else "one exemplar"
            text = (
                f"net similarity {self.net_similarity_:.6g} with {k} is a poor optimum, since "
                f"{len(value.better.exemplars)} exemplars give {value.better.net_similarity:.6g}: raise "
                "convergence_iter (100, say) and max_iter (2000), or change damping."
            )
            problems.append(Doubt(text, PoorOptimumWarning))
        if value.missing and self.n_clusters_:
            text = f"{value.missing} rows have no pair with any exemplar, their labels are -1: give more pairs, or "
            problems.append(Doubt(f"{text}raise preference.", DataWarning))
        return problems

    def _run_spec(self, parameters: dict[str, Any], inputs: Inputs) -> RunSpec:
        preference, share = parameters["preference"], parameters["preference_quantile"]
        if preference is not None and share is not None:
            raise InputError(f"preference_quantile={share} takes the place of preference; give one.")
        n, n_clusters = inputs.dataset.shape[0], parameters["n_clusters"]
        if n_clusters is not None and n_clusters > n:
            raise InputError(f"n_clusters={n_clusters} should be <= n_samples={n}; ask for fewer clusters.")
        if n_clusters is not None and isinstance(preference, np.ndarray):
            raise InputError(
                f"n_clusters={n_clusters} needs one preference to begin with, not one per row; give a number or leave "
                "preference out."
            )
        if isinstance(inputs.dataset, SparseDataset) and parameters["algorithm"] == "dense":
            raise InputError("algorithm='dense' keeps all pairs, X holds some of them; choose 'auto' or 'sparse'.")
        few = n**2 <= FEW_SIMILARITIES
        dtype, pairs = "float64" if few else parameters["dtype"], pairs_of(inputs.dataset)
        if pairs is not None and np.abs(pairs["values"]).max() > np.finfo(dtype).max:
            raise InputError(f"similarities are too large for dtype='{dtype}'; rescale them or use dtype='float64'.")
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
        self.__dict__.pop("search_", None)  # of an earlier fit
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
