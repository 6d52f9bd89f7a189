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
from dataclasses import replace
from typing import Any

from sklearn.utils.validation import check_is_fitted

from mgclust.algorithms.base import Inputs, WarmUp
from mgclust.algorithms.communities.clusterer import ModularityClusterer, without_merges
from mgclust.algorithms.communities.directions import check_directions
from mgclust.algorithms.communities.initial_labels import fixed_nodes, initial_labels
from mgclust.algorithms.communities.options import RESOLUTION, CommunitiesOptions, FastNewmanOptions
from mgclust.algorithms.communities.presentation import CommunitiesPresentation, FastNewmanPresentation
from mgclust.base.dask_arrays import is_dask
from mgclust.base.errors import Doubt, InputError
from mgclust.data import Dataset, Graph
from mgclust.engine.spmd import Outcome
from mgclust.params import Real
from mgclust.results.result import Result

__all__ = ["Communities", "FastNewman"]


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
    directed : bool, default=False
        Whether edges have a direction, from their first to their second node (in a matrix, from row to column). Then
        directed modularity is maximised (Leicht and Newman 2008), which expects ``out in / m`` for the edges from one
        node to another, with the weights that leave the first and enter the second node. It has no merges, and is only
        for the objective "modularity" and graphs of at most 2^30 edges. By default, directions are dropped.
    resolution : float, default=1.0
        Values above 1 give smaller communities, values below 1 larger communities (Reichardt and Bornholdt 2006); at
        most 10^6. With "cpm", the weight that a pair of nodes in a community must have on average; in a graph without
        weights, the fraction of pairs that are edges, so that useful values are far below 1.
    resolutions : sequence of float, optional
        Several resolutions for which "parallel" finds communities in one run that reads the graph once; as text
        "1,0.5,2". `labels_` and all other attributes belong to the first of them; `labels_for` returns the labels of
        the others.
    init : int array of shape (n_nodes,), mapping or path, optional
        Known communities with which "parallel" begins, such as `labels_` of an earlier fit: an id for each node, or -1
        for nodes without a community. A mapping has ids by node name, and nodes that it does not name have no
        community. The path of a result directory or of a file of labels works as well; results of graphs with names,
        and tables with a column ``node``, are matched by name. Communities keep their ids: the largest part of an
        initial community keeps its id, unless it has joined a larger part of another initial community. New communities
        get the smallest numbers that are not in `init`. Ids are below 100,000 or below the number of nodes, whichever
        is larger.
    fixed : array of nodes, bool array of shape (n_nodes,) or path, optional
        Nodes whose community never changes: node numbers, node names, a mask, or a file of one of these. Integers are
        names if the graph has integers as names. Each fixed node needs a community in `init`. Fixed nodes of one
        community stay together even if it has parts that no edge connects; each such part contains a fixed node.
    consensus : int, default=0
        Number of seeds whose communities are combined (Lancichinetti and Fortunato 2012); 0 means one search. Compared
        with one search, communities depend less on the seed, and are closer to planted communities that are hard to
        find; modularity may be lower. Takes several times as long as this number of searches. Needs "parallel" and
        "modularity", without `init`.
    null : int, optional
        Number of rewired graphs, in which the same search is made: random graphs in which every node has the same
        degree; see `significance_`. By default, none if the modularity is clearly higher than in a random graph, else
        1 to 5. Takes as long as this number of fits. 0 switches the comparison off.
    stability : int, default=0
        Number of graphs without a random tenth of the edges, in which the same search is made with other seeds; see
        `stability_`. Takes as long as this number of fits.
    device : {"auto", "cpu", "cuda"}, default="auto"
        See `DensityPeaks`. With "auto", "greedy" runs on the host unless nodes have on average 64 neighbours or more.
    client : {"auto", "local"}, None, address or distributed.Client, default="auto"
    n_workers : int, optional
    workers : str, int or sequence of these, optional
    resources : dict of str to float, optional
        See `DensityPeaks`. "greedy" merges on one rank; the other ranks only help to read the graph.
    retries : int, default=0
        See `DensityPeaks`. With "parallel", a run that has lost a worker resumes from the last cycle that was saved.
    memory_limit : int or str, optional
        Memory by which one rank may grow, in bytes or as text such as "4 GiB".
    random_state : int, Generator or RandomState, optional
        Seed for ties and the order of moves, used only by "parallel", and for the random graphs of `null` and
        `stability`. None means 0, so a repeated fit gives the same result.
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
        Modularity of `labels_`; with "cpm", at resolution 1. With ``directed=True``, directed modularity.
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
        State after each cycle, only with "parallel"; with `consensus`, after each round of partitions.
    significance_ : dict or None
        Quality in rewired graphs; None if there are none. A weight stays with its edge, so nodes of weighted graphs
        keep their degree, but not their strength. With `resolutions`, for the first of them.

        - "rewired": list of the qualities; "mean", "std": their mean and standard deviation (divisor: their number).
        - "p_value": ``(1 + number of qualities that are at least quality_) / (1 + null)``; None if `null` is None.
        - "seed": seed of the random graphs.

        The fit warns unless `quality_` exceeds the mean by more than three standard deviations. With fewer than five
        rewired graphs, it warns unless the difference is more than ``1 / sqrt(m)``, for m edges. Random graphs with
        more than 524,288 edges are not made by default: an estimate of their modularity decides about the warning.
    stability_ : dict or None
        Agreement with the communities of graphs without some edges; None without `stability`.

        - "ari": list of the adjusted Rand indices; "mean", "std": their mean and standard deviation.
        - "jaccard": float64 array. For each community, the mean over the graphs of the largest Jaccard index with a
          community of the graph: 1 if the community is always found, near 0 if it never is; NaN for unused ids.
        - "n_clusters": list of the numbers of communities.
        - "removed": probability with which an edge is removed; "seed": seed of the random graphs.

        The fit warns if the mean adjusted Rand index is below 0.6.
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
    E. A. Leicht, M. E. J. Newman, Community structure in directed networks, Phys. Rev. Lett. 100:118703 (2008).

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
        self._doubts: list[Doubt] = []
        if parameters["directed"]:
            if parameters["objective"] == "cpm":
                raise InputError(
                    "directed=True cannot be combined with objective='cpm', which ignores directions; leave one of "
                    "them out."
                )
            check_directions(graph)
        if parameters["objective"] == "modularity":
            RESOLUTION.check("resolution", parameters["resolution"])
            for each in parameters["resolutions"] or ():
                RESOLUTION.check("resolutions", each)
        reason = without_merges(parameters)
        for name in ("n_clusters", "strategy") if reason else ():
            if parameters[name] not in (None, "auto", "parallel"):
                raise InputError(
                    f"{name}={parameters[name]!r} needs merges, but {reason} has none; leave one of them out."
                )
        if parameters["resolutions"] is not None:
            for name in ("n_clusters", "strategy"):
                if parameters[name] is not None and (name == "n_clusters" or parameters[name] == "greedy"):
                    raise InputError(
                        f"{name}={parameters[name]!r} cannot be combined with resolutions, because each resolution "
                        "gives its own number of communities; leave one of them out."
                    )
        if init is None and fixed is None:
            return {}
        if init is None:
            raise InputError("fixed nodes keep their community of init, but init is missing; give init.")
        if parameters["n_clusters"] is not None or parameters["strategy"] == "greedy":
            other = "strategy='greedy'" if parameters["strategy"] == "greedy" else f"n_clusters={self.n_clusters}"
            raise InputError(f"{other} merges single nodes, so it cannot use init; leave one of them out.")
        labels, self._doubts = initial_labels(init, graph)
        return {"init": labels, "fixed": None if fixed is None else fixed_nodes(fixed, graph, labels)}

    def _warnings_of(self, dataset: Dataset) -> list[str]:
        said = super()._warnings_of(dataset)
        if not self.directed:
            return said
        assert isinstance(dataset, Graph)
        return [text for text in said if text not in dataset.direction_warnings]

    def _evidence(self, arguments: dict[str, Any], parameters: dict[str, Any]) -> dict[str, Any]:
        consensus, null = parameters["consensus"], parameters["null"]
        for name in ("consensus", "null", "stability") if parameters["directed"] else ():
            if parameters[name]:
                raise InputError(
                    f"{name}={parameters[name]} cannot be combined with directed=True, because it works only on edges "
                    "without a direction; leave one of them out."
                )
        unfit = {
            "n_clusters": parameters["n_clusters"] is not None,
            "init": parameters["init"] is not None,
            "objective": parameters["objective"] != "modularity",
            "strategy": arguments["strategy"] == "greedy",
            "directed": parameters["directed"],
        }
        if consensus and any(unfit.values()):
            name = next(name for name, wrong in unfit.items() if wrong)
            other = name if name == "init" else f"{name}={parameters[name]!r}"
            raise InputError(
                f"consensus={consensus} cannot be combined with {other}, because it combines searches for large "
                "modularity that start at single nodes; leave one of them out."
            )
        usual = not any(unfit.values()) and arguments["resolutions"][0] == 1.0
        if null is None and not usual:
            null = 0  # the modularity to expect in a random graph is known only for the usual search
        return {"consensus": consensus, "null": null, "stability": parameters["stability"]}

    def _publish(self, outcome: Outcome, frame: dict[str, Any], inputs: Inputs) -> Result:
        given = frame["parameters"]
        if isinstance(given["init"], Mapping):  # may have a name for each of millions of nodes
            given["init"] = f"a mapping of {len(given['init'])} node names"
        for name in ("init", "fixed"):
            if is_dask(given[name]):
                given[name] = f"a Dask array of shape {given[name].shape}"
        result = super()._publish(outcome, frame, inputs)
        result = replace(result, warnings=[*self._doubts, *result.warnings])
        self.quality_: float = outcome.value.candidates[0].quality
        self.strategy_: str = result.diagnostics["strategy"]
        self.rounds_: list[dict[str, Any]] = result.diagnostics["rounds"]
        self.significance_: dict[str, Any] | None = result.diagnostics.get("significance")
        self.stability_: dict[str, Any] | None = outcome.value.evidence.stability
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
