"""Base class of both community methods: from parameters and a graph to a result, and the merges of a fit."""

from __future__ import annotations

from functools import partial
from math import inf
from typing import Any

import numpy as np
from sklearn.utils.validation import check_is_fitted

from mgclust.algorithms.base import Clusterer, Inputs
from mgclust.algorithms.communities.evidence import doubts_of
from mgclust.algorithms.communities.levels import SHARED_ENTRIES
from mgclust.algorithms.communities.memory import estimate
from mgclust.algorithms.communities.merge_tree import MergeTree
from mgclust.algorithms.communities.ranks import CommunitiesOutput, detect_communities, hierarchy_of
from mgclust.base.dask_arrays import reject_lost
from mgclust.base.errors import (
    DataWarning,
    DegenerateClustersWarning,
    Doubt,
    InputError,
    MergedClustersWarning,
    PrecisionWarning,
)
from mgclust.data import Dataset, Graph, open_graph
from mgclust.engine.dask.cluster import connect
from mgclust.engine.spmd import Outcome, RunSpec, Work, run
from mgclust.params import Integer
from mgclust.results.result import Result

__all__ = ["ModularityClusterer", "without_merges"]

# Smallest number of edges per rank for which several ranks save time. On CPUs, two and four ranks took 1.5 times as
# long as one rank, and even longer with more edges. Compared with one GPU, two GPUs took 0.8 and 1.05 times as long for
# 20 million edges (two records), 0.8 times for 60 million edges, and 0.6 times for 10^9 edges.
EDGES_OF_A_RANK = {"cpu": inf, "cuda": 3e7}
EDGES_A_SECOND = {"cuda": 2e8}  # speed of one rank, with 10^9 edges
EXACT = {True: "int64", False: "float64"}


class ModularityClusterer(Clusterer):
    """Base class of methods that find communities by modularity and have a tree of merges.

    Parameters
    ----------
    n_clusters, resolution
        See `Communities`.
    """

    n_clusters: int | None
    resolution: float

    @classmethod
    def _strategy(cls, parameters: dict[str, Any]) -> str:
        """Return "greedy" or "parallel"."""
        raise NotImplementedError

    @staticmethod
    def _resolutions_of(parameters: dict[str, Any]) -> tuple[float, ...]:
        """Return all resolutions; the first gives the labels."""
        return parameters.get("resolutions") or (float(parameters["resolution"]),)

    def _start(self, parameters: dict[str, Any], graph: Graph) -> dict[str, Any]:
        """Return the arguments `init` and `fixed` of `detect_communities`, if the method has these parameters."""
        return {}

    def _evidence(self, arguments: dict[str, Any], parameters: dict[str, Any]) -> dict[str, Any]:
        """Return the arguments `consensus`, `null` and `stability` of `detect_communities`, if the method has them."""
        return {}

    @property
    def merges_(self) -> np.ndarray:
        """All merges in their order, shape (n_nodes - 1, 2), int32: the kept and the absorbed community."""
        return self._full_tree().merges

    @property
    def modularity_history_(self) -> np.ndarray:
        """Modularity after 0, 1, ... n_nodes - 1 merges, shape (n_nodes,), float64."""
        return self._full_tree().history

    def cut(self, k: int) -> np.ndarray:
        """Return the labels of k communities, from the merges of this fit.

        Parameters
        ----------
        k : int
            Number of communities, from 1 to n_nodes.

        Returns
        -------
        ndarray of shape (n_nodes,), int32
            Community of each node; communities are numbered in the order of their smallest nodes.

        Raises
        ------
        InputError
            k is not an integer from 1 to n_nodes.

        Examples
        --------
        >>> from mgclust import FastNewman
        >>> model = FastNewman(client=None).fit([(0, 1), (1, 2), (0, 2), (2, 3), (3, 4), (4, 5), (3, 5)])
        >>> model.cut(2).tolist()
        [0, 0, 0, 1, 1, 1]
        """
        tree = self._full_tree()
        return tree.cut(Integer(at_least=1, at_most=self.n_nodes_, help="").check("k", k))

    def linkage(self) -> np.ndarray:
        """Return the merges in the format of `scipy.cluster.hierarchy`.

        Returns
        -------
        ndarray of shape (n_nodes - 1, 4), float64
            One row per merge: the two communities, the number of the merge as height, and the number of nodes in the
            merged community.

        Examples
        --------
        >>> from mgclust import FastNewman
        >>> FastNewman(client=None).fit([(0, 1), (1, 2), (3, 4)]).linkage().shape
        (4, 4)
        """
        return self._full_tree().linkage()

    def _open(self, X: Any) -> Graph:
        return open_graph(X)

    def _check_shape(self, dataset: Dataset) -> None:
        if not isinstance(dataset, Graph):
            raise InputError(f"{dataset!r} is not a graph; open it with mgclust.open_graph.")
        if self.n_clusters is not None and self.n_clusters > dataset.n_nodes:
            raise InputError(
                f"n_clusters={self.n_clusters} should be <= n_nodes={dataset.n_nodes}, because a community has at "
                "least one node; request fewer clusters."
            )

    def _run_spec(self, parameters: dict[str, Any], inputs: Inputs) -> RunSpec:
        graph = _graph_of(inputs)
        strategy = self._strategy(parameters)
        arguments = {name: parameters[name] for name in ("n_clusters", "device")}
        arguments |= {
            "strategy": strategy,
            "n": graph.n_nodes,
            # A saved result needs all merges; a fitted estimator can compute them later.
            "hierarchy": inputs.provenance and not without_merges(parameters),
            "seed": self._seed(parameters.get("random_state")),
            "resolutions": self._resolutions_of(parameters),
            "objective": _objective_in(parameters),
            "directed": bool(parameters.get("directed")),
            **self._start(parameters, graph),
        }
        arguments |= self._evidence(arguments, parameters)
        need = partial(
            estimate,
            n=graph.n_nodes,
            levels=strategy == "parallel",
            candidates=len(arguments["resolutions"]),
            known="init" in arguments,
            rewired=_rewired_edges(graph, arguments.get("null", 0)),
            thinned=bool(arguments.get("stability")),
        )
        work = Work(graph.shape[0], "edges", EDGES_OF_A_RANK, EDGES_A_SECOND)
        return RunSpec(detect_communities, arguments, need, graph.dtype.name, work=work)

    def _publish(self, outcome: Outcome, frame: dict[str, Any], inputs: Inputs) -> Result:
        graph = _graph_of(inputs)
        value: CommunitiesOutput = outcome.value
        self._dataset = graph
        self._resolutions = self._resolutions_of(frame["parameters"])
        frame["parameters"]["resolution"] = self._resolutions[0]
        self._fitted_with = {
            "device": self.device,
            "resolution": self._resolutions[0],
            "without_merges": without_merges(frame["parameters"]),
        }
        self._tree: MergeTree | None = value.tree
        self.labels_, self.n_clusters_ = outcome.arrays["labels"], value.candidates[0].n_clusters
        self.modularity_ = value.candidates[0].modularity
        scores = ("modularity",) if _objective_in(frame["parameters"]) == "modularity" else ("quality", "modularity")
        self.n_nodes_, self.n_edges_, self.node_names_ = graph.n_nodes, graph.shape[0], graph.names
        self.n_features_in_ = graph.n_nodes
        arrays: dict[str, Any] = {}
        if self._tree is not None:
            arrays = {"merges": self._tree.merges, "modularity_history": self._tree.history}
        if graph.names is not None:
            arrays["names"] = graph.names
        self._candidates = outcome.arrays.get("candidates")
        if self._candidates is not None:
            arrays |= {
                "candidates": self._candidates,
                "scan_resolution": np.array(self._resolutions),
            }
            for name in ("n_clusters", *scores):
                arrays[f"scan_{name}"] = np.array([getattr(each, name) for each in value.candidates])
        stable = value.evidence.stability
        findings = {}
        if value.evidence.significance is not None:
            findings["significance"] = value.evidence.significance
        if stable is not None:
            findings["stability"] = {name: each for name, each in stable.items() if name != "jaccard"}
            arrays["stability"] = stable["jaccard"]
        return Result(
            **frame,
            labels=self.labels_,
            arrays=arrays,
            scores={
                "n_clusters": self.n_clusters_,
                **{name: getattr(value.candidates[0], name) for name in scores},
                "n_nodes": self.n_nodes_,
                "n_edges": self.n_edges_,
                **({"stability": stable["mean"]} if stable else {}),
            },
            warnings=_warnings(self, value, self._resolutions, _objective_in(frame["parameters"])),
            diagnostics={
                "strategy": self._strategy(frame["parameters"]),
                "computed_in": EXACT[value.exact],
                "weight_rounding": value.rounding,
                "n_components": value.n_components,
                "rounds": value.rounds,
                **findings,
            },
        )

    def _full_tree(self) -> MergeTree:
        check_is_fitted(self, "labels_")
        if self._fitted_with["without_merges"]:
            raise InputError(
                f"{self._fitted_with['without_merges']} has no merges, because merges need the modularity of an "
                "undirected graph; fit without it."
            )
        if self._tree is None:
            place = self._fitted_with
            arguments = {
                "n": self.n_nodes_,
                "resolution": place["resolution"],
                "labels": self.labels_,
                "device": place["device"],
            }
            need = partial(estimate, n=self.n_nodes_, levels=True)
            spec = RunSpec(hierarchy_of, arguments, need, self._dataset.dtype.name)
            reject_lost(self._dataset.dask_array)
            with connect(**{**self._place(), "device": place["device"]}, optional=True) as cluster:
                self._tree = run(spec, self._dataset, cluster).value
        assert self._tree is not None
        return self._tree

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.pairwise = True  # an array must be square: it holds the weights between the nodes
        tags.input_tags.sparse = True
        tags.input_tags.positive_only = True
        return tags


def _graph_of(inputs: Inputs) -> Graph:
    assert isinstance(inputs.dataset, Graph)  # `_check_shape` rejects all other inputs
    return inputs.dataset


def _rewired_edges(graph: Graph, null: int | None) -> int:
    """Return the largest number of edges that a fit rewires."""
    if null is None:  # larger graphs are not rewired by default
        return min(graph.shape[0], SHARED_ENTRIES // 2)
    return graph.shape[0] if null else 0


def _objective_in(parameters: dict[str, Any]) -> str:
    """Return the objective; methods without this parameter maximise modularity."""
    return str(parameters.get("objective", "modularity"))


def without_merges(parameters: dict[str, Any]) -> str:
    """Return the parameter for which a fit has no merges, or an empty text."""
    if parameters.get("directed"):
        return "directed=True"
    return "" if _objective_in(parameters) == "modularity" else f"objective={_objective_in(parameters)!r}"


def _warnings(
    model: ModularityClusterer, value: CommunitiesOutput, resolutions: tuple[float, ...], objective: str
) -> list[Doubt]:
    doubts = []
    directed = getattr(model, "directed", False)
    if value.rounding > (1e-4 if directed else 1e-6):
        reason = "directed=True rounds to 30 bits of their total" if directed else "they span many digits"
        text = f"weights were rounded by up to {value.rounding:.1g} of their mean, because {reason}; "
        doubts.append(Doubt(f"{text}rescale the weights to integers for exact gains.", PrecisionWarning))
    components = value.n_components
    if components == model.n_nodes_:
        text = "no edge connects two nodes, so there are no communities; give a graph with edges between nodes."
        doubts.append(Doubt(text, DataWarning))
    elif model.n_clusters is None:
        score = "modularity" if objective == "modularity" else "quality"
        for resolution, each in zip(resolutions, value.candidates, strict=True):
            if each.n_clusters == model.n_nodes_:
                text = f"no merge raises the {score} at resolution={resolution:g}, so every node is its own community"
                merges = objective == "modularity" and not directed
                remedy = "lower resolution" + (" or give n_clusters" if merges else "")
                remedy = remedy if len(resolutions) == 1 else "leave this resolution out"
                doubts.append(Doubt(f"{text}; {remedy}.", DegenerateClustersWarning))
    if model.n_clusters is not None and model.n_clusters < components:
        text = (
            f"n_clusters={model.n_clusters} is below the number of connected components, {components}: the components "
            f"of least strength were joined, although no edge connects them; request at least {components}."
        )
        doubts.append(Doubt(text, MergedClustersWarning))
    if value.candidates[0].n_clusters > components:
        score = "modularity" if objective == "modularity" else "quality"
        doubts += doubts_of(value.evidence, value.candidates[0].quality, score)
    return doubts
