"""Work of the ranks for both community methods: the graph, the communities at each resolution, and the merges."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from mgclust.algorithms.communities.consensus import consensus_of
from mgclust.algorithms.communities.continuation import KnownCommunities, connected_parts, with_initial_ids
from mgclust.algorithms.communities.evidence import Evidence, evidence_of
from mgclust.algorithms.communities.hierarchy import greedy_tree, nested_tree
from mgclust.algorithms.communities.levels import SHARED_ENTRIES, Level, at_resolution, modularity_of, read_level
from mgclust.algorithms.communities.merge_tree import MergeTree
from mgclust.algorithms.communities.objective import Objective, objective_of
from mgclust.algorithms.communities.parallel import communities
from mgclust.algorithms.communities.search_memory import SearchMemory
from mgclust.engine.rows import share_of
from mgclust.engine.spmd import Context

__all__ = ["CommunitiesOutput", "detect_communities", "hierarchy_of"]


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
    evidence: Evidence


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
    directed: bool = False,
    init: np.ndarray | None = None,
    fixed: np.ndarray | None = None,
    consensus: int = 0,
    null: int | None = 0,
    stability: int = 0,
    shared: int = SHARED_ENTRIES,
) -> CommunitiesOutput | None:
    """Run either method on every rank; rank 0 returns the results that `Communities.fit` reports."""
    with context.stage("graph"):
        level, scale = read_level(context, n, shared=shared, directed=directed)
        whole = level.kernels.xp.zeros(n, np.int32)
        n_components = int(connected_parts(level, whole).max()) + 1
    start = None
    if init is not None:
        to_device = level.kernels.memory.to_device
        start = KnownCommunities(to_device(init), None if fixed is None else to_device(fixed))
    memory = SearchMemory(context)
    found: list[Candidate] = []
    tree, report, exact = None, list[dict[str, Any]](), False
    for resolution in resolutions:
        judged = objective_of(level, scale, objective, resolution)
        first = not found
        labels, merged, rounds = _communities_at(
            context,
            judged.level,
            strategy,
            objective,
            n_clusters,
            hierarchy and first,
            seed,
            device,
            start,
            consensus,
            memory,
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

    def find(graph: Level, other_seed: int, stage: str) -> tuple[Any, float]:
        judged = objective_of(graph, scale, objective, resolutions[0])
        labels, _, _ = _communities_at(
            context,
            judged.level,
            strategy,
            objective,
            n_clusters,
            False,
            other_seed,
            device,
            None,
            consensus,
            memory,
            stage,
        )
        return labels, judged.quality(labels)

    if null is None and found[0].n_clusters <= n_components:
        null = 0  # no communities to doubt
    evidence = evidence_of(
        level,
        find,
        found[0].labels,
        found[0].quality,
        null=null,
        stability=stability,
        seed=seed,
        agree=context.comm.agree,
    )
    begin, stop = share_of(n, context.rank, context.size)
    context.deliver(labels=found[0].labels[begin:stop])
    if len(found) > 1:
        columns = [each.labels[begin:stop] for each in found]
        context.deliver(candidates=level.kernels.xp.stack(columns, axis=1))
    if context.rank != 0:
        return None
    table = [each._replace(labels=None) for each in found]
    return CommunitiesOutput(table, tree, report, n_components, exact, scale.rounding, evidence)


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
    consensus: int,
    memory: SearchMemory,
    stage: str | None = None,
) -> tuple[Any, MergeTree | None, list[dict[str, Any]]]:
    """Return the labels at the resolution of `level`, the tree of merges (only on rank 0) and the rounds.

    `stage` is the name of all stages; by default, they have several names.
    """
    tree: MergeTree | None = None
    labels, report = None, list[dict[str, Any]]()
    if strategy == "greedy":
        with context.stage(stage or "merge"):
            tree = greedy_tree(context, level, device)
    else:
        with context.stage(stage or "communities"):
            if consensus:
                labels, report = consensus_of(
                    level, lambda graph, each: communities(context, graph, each, memory=memory)[0], consensus, seed
                )
            else:
                moved = level
                if start is not None and start.fixed is not None:
                    moved = replace(level, fixed=_mask(level, start.fixed))
                labels, report = communities(
                    context, moved, seed, known=start, matched=objective == "cpm", memory=memory
                )
        if hierarchy or n_clusters is not None:
            with context.stage(stage or "hierarchy"):
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
