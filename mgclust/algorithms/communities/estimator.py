r"""Communities of a graph by modularity: `FastNewman` merges greedily, `Communities` can also move nodes in parallel.

m is the weight of all edges, m_ij the weight between two communities i and j, and d_i the strength of community i: the
sum of its nodes' weighted degrees. Merging i and j changes the modularity by (Newman 2004; Wang 2012, eq. 3)::

    dQ = m_ij / m - resolution d_i d_j / (2 m^2)

Strategy "greedy" gives the same result as these lines::

    every node is a community; the number of a community is its smallest node
    while edges between communities are left:
        (i, j) = the connected pair with the largest dQ; ties: the smallest (i, j)
        merge j into i                                    # i < j, so i stays
    while there is more than one community:
        merge the two communities of least strength       # no edge connects them
    labels = the communities after the merge with the largest modularity

Merging continues to one community, so that `cut` can return any number of communities. Once the largest dQ is not
positive, it never becomes positive again, so the modularity is largest at this point.

Gains are compared as integers, g = 2m m_ij - d_i d_j, if the weights are integers and resolution is 1, up to m = 2^31.
Otherwise gains are float64 values, computed from weights that are rounded to 51 bits of their total, so exact ties may
be lost. A self-loop adds 2 to d and 1 to m. The weights of duplicate edges are summed.

Strategy "parallel" is another algorithm, with larger modularity. It suits graphs for which one merge at a time takes
too long; see `mgclust.algorithms.communities.parallel`. "auto" is "greedy" if a number of clusters is given, else
"parallel".

Parallel execution. Every rank reads its share of the edges, and owns the adjacency of consecutive nodes. Stages::

    graph        each edge goes, in both directions, to the ranks of its nodes; sort; sum duplicate edges
    merge        greedy: on rank 0 only, in memory proportional to the edges
    communities  parallel: on all ranks
    hierarchy    parallel: the merges that lead to the communities, if requested

Cost, for E edges. Memory: 56 to 90 bytes per edge over all ranks to build the graph, and 64 bytes per node on each
rank. Time of "greedy": each merge takes time in proportion to the length of the shorter row. Time of "parallel": see
its module. Communication: each edge is sent twice.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from math import inf
from typing import Any, NamedTuple

import numpy as np
from sklearn.utils.validation import check_is_fitted

from mgclust.algorithms.base import Clusterer, Inputs, WarmUp
from mgclust.algorithms.communities.continuation import KnownCommunities, connected_parts, with_initial_ids
from mgclust.algorithms.communities.hierarchy import greedy_tree, nested_tree
from mgclust.algorithms.communities.initial_labels import fixed_nodes, initial_labels
from mgclust.algorithms.communities.levels import SHARED_ENTRIES, Level, at_resolution, modularity_of, read_level
from mgclust.algorithms.communities.memory import estimate
from mgclust.algorithms.communities.merge_tree import MergeTree
from mgclust.algorithms.communities.objective import Objective, objective_of
from mgclust.algorithms.communities.options import CommunitiesOptions, FastNewmanOptions
from mgclust.algorithms.communities.parallel import communities
from mgclust.algorithms.communities.presentation import CommunitiesPresentation, FastNewmanPresentation
from mgclust.base.dask_arrays import is_dask, reject_lost
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
from mgclust.engine.rows import share_of
from mgclust.engine.spmd import Context, Outcome, RunSpec, Work, run
from mgclust.params import Integer, Real
from mgclust.results.result import Result

__all__ = ["Communities", "FastNewman"]

# Smallest number of edges per rank for which several ranks save time. On CPUs, two and four ranks took 1.5 times as
# long as one rank, and even longer with more edges. Compared with one GPU, two GPUs took 0.8 and 1.05 times as long for
# 20 million edges (two records), 0.8 times for 60 million edges, and 0.6 times for 10^9 edges.
EDGES_OF_A_RANK = {"cpu": inf, "cuda": 3e7}
EDGES_A_SECOND = {"cuda": 2e8}  # speed of one rank, with 10^9 edges
EXACT = {True: "int64", False: "float64"}


class Candidate(NamedTuple):
    """Communities at one resolution."""

    labels: Any  # int32 array of shape (n,)
    n_clusters: int
    quality: float  # value of the objective at the resolution
    modularity: float  # at the resolution; at resolution 1 if the objective is not modularity


@dataclass(frozen=True)
class CommunitiesOutput:
    """Results of rank 0; each rank delivers the labels of its share of the nodes.

    With several resolutions, each rank also delivers ``candidates``, which has a column of labels for each resolution.
    """

    candidates: list[Candidate]  # for each resolution, without the labels
    tree: MergeTree | None
    rounds: list[dict[str, Any]]  # see `communities`
    n_components: int
    exact: bool  # whether gains were integers
    rounding: float  # rounding of weights, see `WeightScale`


def detect_communities(
    context: Context,
    *,
    n: int,
    strategy: str,
    objective: str,
    resolutions: tuple[float, ...],
    n_clusters: int | None,
    hierarchy: bool,
    seed: int,
    device: str,
    init: np.ndarray | None = None,
    fixed: np.ndarray | None = None,
    shared: int = SHARED_ENTRIES,
) -> CommunitiesOutput | None:
    """Run either method on every rank; rank 0 returns the results that `Communities.fit` reports."""
    with context.stage("graph"):
        level, scale = read_level(context, n, shared=shared)
        whole = level.kernels.xp.zeros(n, np.int32)
        n_components = int(connected_parts(level, whole).max()) + 1
    start = None
    if init is not None:
        to_device = level.kernels.memory.to_device
        start = KnownCommunities(to_device(init), None if fixed is None else to_device(fixed))
    found: list[Candidate] = []
    tree, report, exact = None, list[dict[str, Any]](), False
    for resolution in resolutions:
        judged = objective_of(level, scale, objective, resolution)
        first = not found
        labels, merged, rounds = _communities_at(
            context, judged.level, strategy, objective, n_clusters, hierarchy and first, seed, device, start
        )
        if first:
            tree, report = merged, [_in_units(entry, judged, objective) for entry in rounds]
            exact = judged.level.gain.exact if tree is None else tree.gains.dtype.kind == "i"
        quality = judged.quality(labels)
        score = quality if objective == "modularity" else modularity_of(level, labels)
        count = int(labels.max()) + 1
        if start is not None:
            labels = with_initial_ids(level, labels, start)
        found.append(Candidate(labels, count, quality, score))
    begin, stop = share_of(n, context.rank, context.size)
    context.deliver(labels=found[0].labels[begin:stop])
    if len(found) > 1:
        columns = [each.labels[begin:stop] for each in found]
        context.deliver(candidates=level.kernels.xp.stack(columns, axis=1))
    if context.rank != 0:
        return None
    table = [each._replace(labels=None) for each in found]
    return CommunitiesOutput(table, tree, report, n_components, exact, scale.rounding)


def _communities_at(
    context: Context,
    level: Level,
    strategy: str,
    objective: str,
    n_clusters: int | None,
    hierarchy: bool,
    seed: int,
    device: str,
    start: KnownCommunities | None,
) -> tuple[Any, MergeTree | None, list[dict[str, Any]]]:
    """Return the labels at the resolution of `level`, the tree of merges (only on rank 0) and the rounds."""
    tree: MergeTree | None = None
    labels, report = None, list[dict[str, Any]]()
    if strategy == "greedy":
        with context.stage("merge"):
            tree = greedy_tree(context, level, device)
    else:
        with context.stage("communities"):
            moved = level if start is None or start.fixed is None else replace(level, fixed=_mask(level, start.fixed))
            labels, report = communities(context, moved, seed, known=start, matched=objective == "cpm")
        if hierarchy or n_clusters is not None:
            with context.stage("hierarchy"):
                tree = nested_tree(context, level, connected_parts(level, labels), device)
    if tree is not None and (labels is None or n_clusters is not None):
        labels = level.kernels.memory.to_device(
            tree.cut(tree.n_clusters_at(tree.best) if n_clusters is None else n_clusters)
        )
    if strategy == "greedy" or n_clusters is not None:
        labels = context.comm.broadcast(labels if context.rank == 0 else None)
    assert labels is not None  # one of the two strategies has set them
    return labels, tree, report


def _in_units(entry: dict[str, Any], judged: Objective, objective: str) -> dict[str, Any]:
    """Return a round with the quality instead of the modularity, if the objective is not modularity."""
    if objective == "modularity":
        return entry
    kept = {name: value for name, value in entry.items() if name != "modularity"}
    return {**kept, "quality": judged.of_normalized(entry["modularity"])}


def _mask(level: Level, nodes: Any) -> Any:
    """Return 1 for the given nodes and 0 for all others, uint8."""
    mask = level.kernels.xp.zeros(level.n, np.uint8)
    mask[nodes] = 1
    return mask


def hierarchy_of(context: Context, *, n: int, resolution: float, labels: np.ndarray, device: str) -> MergeTree | None:
    """Compute the merges that lead to the communities of an earlier fit, and on to one community."""
    with context.stage("graph"):
        level = at_resolution(read_level(context, n)[0], resolution)
    with context.stage("hierarchy"):
        return nested_tree(context, level, connected_parts(level, level.kernels.memory.to_device(labels)), device)


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
            "hierarchy": inputs.provenance and _objective_in(parameters) == "modularity",
            "seed": self._seed(parameters.get("random_state")),
            "resolutions": self._resolutions_of(parameters),
            "objective": _objective_in(parameters),
            **self._start(parameters, graph),
        }
        need = partial(
            estimate,
            n=graph.n_nodes,
            levels=strategy == "parallel",
            candidates=len(arguments["resolutions"]),
            known="init" in arguments,
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
            "objective": _objective_in(frame["parameters"]),
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
        return Result(
            **frame,
            labels=self.labels_,
            arrays=arrays,
            scores={
                "n_clusters": self.n_clusters_,
                **{name: getattr(value.candidates[0], name) for name in scores},
                "n_nodes": self.n_nodes_,
                "n_edges": self.n_edges_,
            },
            warnings=_warnings(self, value, self._resolutions, _objective_in(frame["parameters"])),
            diagnostics={
                "strategy": self._strategy(frame["parameters"]),
                "computed_in": EXACT[value.exact],
                "weight_rounding": value.rounding,
                "n_components": value.n_components,
                "rounds": value.rounds,
            },
        )

    def _full_tree(self) -> MergeTree:
        check_is_fitted(self, "labels_")
        if self._fitted_with["objective"] != "modularity":
            raise InputError(
                f"objective={self._fitted_with['objective']!r} has no merges, which follow the modularity; fit with "
                "objective='modularity'."
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


class Communities(CommunitiesOptions, ModularityClusterer):
    """Communities of a graph by modularity: local moving in parallel, or greedy merging.

    Parameters
    ----------
    n_clusters : int, optional
        Number of communities, from 1 to n_nodes. By default, the number with the largest modularity that the fit found.
        If `n_clusters` is below the number of connected components, the components of least strength are joined. The
        strength of a component is the sum of its weighted degrees.
    strategy : {"auto", "greedy", "parallel"}, default="auto"
        Algorithm that finds the communities; see `strategy_`.

        - "greedy": the method of `FastNewman`.
        - "parallel": moves nodes as Louvain does, and refines every level. All communities are connected, as in Leiden
          (`fixed` nodes are an exception).
          The communities are the same on any number of ranks. Compared with "greedy", modularity is larger on nearly
          all graphs, and large graphs take far less time.
        - "auto": "greedy" if `n_clusters` is given, else "parallel".
    objective : {"modularity", "cpm"}, default="modularity"
        What communities maximise, see `quality_`: modularity, or the quality of the constant Potts model (CPM; Traag,
        Van Dooren and Nesterov 2011). CPM has no resolution limit: whether nodes form a community does not depend on
        the rest of the graph. "cpm" needs a suitable `resolution`, and has no merges (`cut`, `merges_`, `linkage`).
    resolution : float, default=1.0
        Values above 1 give smaller communities, values below 1 larger communities (Reichardt and Bornholdt 2006). With
        "cpm", the weight that a pair of nodes in a community must have on average; in a graph without weights, the
        fraction of pairs that are edges, so that useful values are far below 1.
    resolutions : sequence of float, optional
        Several resolutions for which "parallel" finds communities in one run that reads the graph once; as text
        "1,0.5,2". `labels_` and all other attributes belong to the first of them; `labels_for` returns the labels of
        the others.
    init : int array of shape (n_nodes,), mapping or path, optional
        Known communities with which "parallel" begins, such as `labels_` of an earlier fit: an id for each node, or -1
        for nodes without a community. A mapping has ids by node name, and nodes that it does not name have no
        community. The path of a result directory or of a file of labels works as well; results of graphs with names are
        matched by name. Communities keep their ids: the largest part of an initial community keeps its id, unless it
        has joined a larger part of another initial community. New communities get the smallest numbers that are not in
        `init`. Ids are below 100,000 or below the number of nodes, whichever is larger.
    fixed : array of nodes, bool array of shape (n_nodes,) or path, optional
        Nodes whose community never changes: node numbers, node names, a mask, or a file of one of these. Integers are
        names if the graph has integers as names. Each fixed node needs a community in `init`. Fixed nodes of one
        community stay together even if it has parts that no edge connects; each such part contains a fixed node.
    device : {"auto", "cpu", "cuda"}, default="auto"
        See `DensityPeaks`. With "auto", "greedy" runs on the host unless nodes have on average 64 neighbours or more.
    client : {"auto", "local"}, None, address or distributed.Client, default="auto"
    n_workers : int, optional
    workers : str, int or sequence of these, optional
    resources : dict of str to float, optional
        See `DensityPeaks`. "greedy" merges on one rank; the other ranks only help to read the graph.
    retries : int, default=0
        See `DensityPeaks`. A run that has lost a worker restarts from its beginning.
    memory_limit : int or str, optional
        Memory by which one rank may grow, in bytes or as text such as "4 GiB".
    random_state : int, Generator or RandomState, optional
        Seed for ties and the order of moves, used only by "parallel". None means 0, so a repeated fit gives the same
        result.
    verbose : bool, default=False
        See `DensityPeaks`.

    Attributes
    ----------
    labels_ : ndarray of shape (n_nodes,), int32
        Community of each node; communities are numbered in the order of their smallest nodes, except with `init`, which
        determines the ids. If the edges are a Dask
        array or data frame and the run uses the caller's client, the labels are a Dask array, and each rank holds its
        part.
    n_clusters_ : int
        Number of communities.
    modularity_ : float
        Modularity of `labels_`; with "cpm", at resolution 1.
    quality_ : float
        Value of the objective: `modularity_`, or with "cpm" the sum over communities of
        ``e - resolution k (k - 1) / 2``, for the weight e of the edges in a community of k nodes. It is half of the
        quality that leidenalg returns for undirected graphs.
    strategy_ : {"greedy", "parallel"}
        Strategy that ran.
    merges_ : ndarray of shape (n_nodes - 1, 2), int32
        All merges in their order, down to one community. Each row holds the community that stays and the community that
        it absorbs. The number of a community is its smallest node. With "parallel", the first ``n_nodes - k`` merges
        lead to the k communities of the fit; if a community of fixed nodes has several parts, to these parts instead.
        In this case, the merges are computed at the first access, which reads the graph again.
    modularity_history_ : ndarray of shape (n_nodes,), float64
        Modularity after 0, 1, ... n_nodes - 1 merges.
    rounds_ : list of dict
        State after each cycle, only with "parallel".
    n_nodes_, n_edges_ : int
        Number of nodes and of edges.
    node_names_ : ndarray of shape (n_nodes,), or None
        Names of the nodes; None if the graph has no names.
    timings_, result_, n_features_in_
        See `DensityPeaks`; the features of a graph are its nodes.

    See Also
    --------
    FastNewman : Merges greedily; the same as ``strategy="greedy"``.

    References
    ----------
    V. D. Blondel et al., Fast unfolding of communities in large networks, J. Stat. Mech. P10008 (2008).
    V. A. Traag, L. Waltman, N. J. van Eck, From Louvain to Leiden, Scientific Reports 9:5233 (2019).
    V. A. Traag, P. Van Dooren, Y. Nesterov, Narrow scope for resolution-limit-free community detection, Phys. Rev. E
    84:016114 (2011).
    M. E. J. Newman, Fast algorithm for detecting community structure in networks, Phys. Rev. E 69:066133 (2004).

    Examples
    --------
    >>> from mgclust import Communities
    >>> model = Communities(client=None).fit([(0, 1), (1, 2), (0, 2), (2, 3), (3, 4), (4, 5), (3, 5)])
    >>> model.labels_.tolist(), round(model.modularity_, 4)
    ([0, 0, 0, 1, 1, 1], 0.3571)
    >>> model.cut(3).tolist()
    [0, 0, 0, 1, 2, 2]

    Continue after two edges were added, with the same ids for the same communities:

    >>> edges = [(0, 1), (1, 2), (0, 2), (2, 3), (3, 4), (4, 5), (3, 5), (5, 6), (4, 6)]
    >>> Communities(init=[7, 7, 7, 3, 3, 3, -1], client=None).fit(edges).labels_.tolist()
    [7, 7, 7, 3, 3, 3, 3]
    """

    presentation = CommunitiesPresentation()

    @classmethod
    def warm_ups(cls) -> tuple[WarmUp, ...]:
        """See `mgclust.algorithms.Method.warm_ups`."""
        return (WarmUp((3000, 2), {"strategy": "parallel"}, seconds=4),)

    @classmethod
    def _strategy(cls, parameters: dict[str, Any]) -> str:
        if parameters["strategy"] != "auto":
            return str(parameters["strategy"])
        return "parallel" if parameters["n_clusters"] is None else "greedy"

    def labels_for(self, resolution: float) -> Any:
        """Return the labels for one of the fitted resolutions.

        Parameters
        ----------
        resolution : float
            Must be in `resolutions`, or be `resolution` if there is only one.

        Returns
        -------
        ndarray or Dask array of shape (n_nodes,), int32
            Community of each node.

        Raises
        ------
        InputError
            The fit had no such resolution.

        Examples
        --------
        >>> from mgclust import Communities
        >>> edges = [(0, 1), (1, 2), (0, 2), (2, 3), (3, 4), (4, 5), (3, 5)]
        >>> model = Communities(resolutions=[1.0, 0.1], client=None).fit(edges)
        >>> model.labels_for(0.1).tolist()
        [0, 0, 0, 0, 0, 0]
        """
        check_is_fitted(self, "labels_")
        value = Real().check("resolution", resolution)
        if value not in self._resolutions:
            raise InputError(
                f"resolution={value:g} should be one of the fitted resolutions: {list(self._resolutions)}."
            )
        if self._candidates is None:
            return self.labels_
        return self._candidates[:, self._resolutions.index(value)].copy()

    def _start(self, parameters: dict[str, Any], graph: Graph) -> dict[str, Any]:
        init, fixed = parameters["init"], parameters["fixed"]
        for name in ("n_clusters", "strategy") if parameters["objective"] == "cpm" else ():
            if parameters[name] not in (None, "auto", "parallel"):
                raise InputError(
                    f"{name}={parameters[name]!r} needs merges, which follow the modularity and not objective='cpm'; "
                    "leave one of them out."
                )
        if parameters["resolutions"] is not None:
            for name in ("n_clusters", "strategy"):
                if parameters[name] is not None and (name == "n_clusters" or parameters[name] == "greedy"):
                    raise InputError(
                        f"{name}={parameters[name]!r} does not go with resolutions, which leave the number of "
                        "communities open; leave one of them out."
                    )
        if init is None and fixed is None:
            return {}
        if init is None:
            raise InputError("fixed nodes keep their community of init, but init is missing; give init.")
        if parameters["n_clusters"] is not None or parameters["strategy"] == "greedy":
            other = "strategy='greedy'" if parameters["strategy"] == "greedy" else f"n_clusters={self.n_clusters}"
            raise InputError(f"{other} merges nodes from the start, so init has no place in it; leave one of them out.")
        labels = initial_labels(init, graph)
        return {"init": labels, "fixed": None if fixed is None else fixed_nodes(fixed, graph, labels)}

    def _publish(self, outcome: Outcome, frame: dict[str, Any], inputs: Inputs) -> Result:
        given = frame["parameters"]
        if isinstance(given["init"], Mapping):  # may have a name for each of millions of nodes
            given["init"] = f"a mapping of {len(given['init'])} node names"
        for name in ("init", "fixed"):
            if is_dask(given[name]):
                given[name] = f"a Dask array of shape {given[name].shape}"
        result = super()._publish(outcome, frame, inputs)
        self.quality_: float = outcome.value.candidates[0].quality
        self.strategy_: str = result.diagnostics["strategy"]
        self.rounds_: list[dict[str, Any]] = result.diagnostics["rounds"]
        return result


class FastNewman(FastNewmanOptions, ModularityClusterer):
    """Communities of a graph by Fast Newman: greedy merging by modularity (Newman 2004).

    The merges are exact: each step merges the best of all pairs of communities, and ties go to the smallest pair of
    nodes. The implementation follows Clauset, Newman and Moore (2004). `Communities` finds larger modularity on
    nearly all graphs, and takes far less time on large graphs.

    Parameters
    ----------
    n_clusters : int, optional
        Number of communities, from 1 to n_nodes. By default, the number with the largest modularity. If `n_clusters`
        is below the number of connected components, the components of least strength are joined.
    resolution : float, default=1.0
        Values above 1 give smaller communities, values below 1 larger communities (Reichardt and Bornholdt 2006).
    device : {"auto", "cpu", "cuda"}, default="auto"
        See `DensityPeaks`. "auto" merges on the host unless nodes have on average 64 neighbours or more.
    client : {"auto", "local"}, None, address or distributed.Client, default="auto"
    n_workers : int, optional
    workers : str, int or sequence of these, optional
    resources : dict of str to float, optional
        See `DensityPeaks`. One rank merges; the other ranks only help to read the graph.
    retries : int, default=0
        See `DensityPeaks`. A run that has lost a worker restarts from its beginning.
    memory_limit : int or str, optional
        Memory by which one rank may grow, in bytes or as text such as "4 GiB".
    verbose : bool, default=False
        See `DensityPeaks`.

    Attributes
    ----------
    labels_, n_clusters_, modularity_, n_nodes_, n_edges_, node_names_
        See `Communities`.
    merges_ : ndarray of shape (n_nodes - 1, 2), int32
        All merges in their order, down to one community. Each row holds the community that stays and the community that
        it absorbs. The number of a community is its smallest node.
    modularity_history_ : ndarray of shape (n_nodes,), float64
        Modularity after 0, 1, ... n_nodes - 1 merges.
    timings_, result_, n_features_in_
        See `DensityPeaks`; the features of a graph are its nodes.

    See Also
    --------
    Communities : Can also move nodes in parallel.

    References
    ----------
    M. E. J. Newman, Fast algorithm for detecting community structure in networks, Phys. Rev. E 69:066133 (2004).
    A. Clauset, M. E. J. Newman, C. Moore, Finding community structure in very large networks, Phys. Rev. E 70:066111.

    Examples
    --------
    >>> from mgclust import FastNewman
    >>> model = FastNewman(client=None).fit([(0, 1), (1, 2), (0, 2), (2, 3), (3, 4), (4, 5), (3, 5)])
    >>> model.labels_.tolist(), round(model.modularity_, 4)
    ([0, 0, 0, 1, 1, 1], 0.3571)
    """

    presentation = FastNewmanPresentation()

    @classmethod
    def warm_ups(cls) -> tuple[WarmUp, ...]:
        """See `mgclust.algorithms.Method.warm_ups`."""
        return (WarmUp((3000, 2), {}, seconds=7),)

    @classmethod
    def _strategy(cls, parameters: dict[str, Any]) -> str:
        return "greedy"


def _graph_of(inputs: Inputs) -> Graph:
    assert isinstance(inputs.dataset, Graph)  # `_check_shape` rejects all other inputs
    return inputs.dataset


def _objective_in(parameters: dict[str, Any]) -> str:
    """Return the objective; methods without this parameter maximise modularity."""
    return str(parameters.get("objective", "modularity"))


def _warnings(
    model: ModularityClusterer, value: CommunitiesOutput, resolutions: tuple[float, ...], objective: str
) -> list[Doubt]:
    doubts = []
    if value.rounding > 1e-6:
        text = f"weights were rounded by up to {value.rounding:.1g} of their mean, because they span many digits; "
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
                remedy = "lower resolution" + (" or give n_clusters" if objective == "modularity" else "")
                remedy = remedy if len(resolutions) == 1 else "leave this resolution out"
                doubts.append(Doubt(f"{text}; {remedy}.", DegenerateClustersWarning))
    if model.n_clusters is not None and model.n_clusters < components:
        text = (
            f"n_clusters={model.n_clusters} is below the number of connected components, {components}: the components "
            f"of least strength were joined, although no edge connects them; request at least {components}."
        )
        doubts.append(Doubt(text, MergedClustersWarning))
    return doubts
