"""Functions that make the rows of a graph as several ranks do: each rank sends the rows that other ranks own."""

from __future__ import annotations

import itertools

import numpy as np

from mgclust.kernels.graph.adjacency import Adjacency


def part(rows: Adjacency, first: int, stop: int) -> Adjacency:
    """Return rows first .. stop - 1."""
    starts = rows.starts[first : stop + 1]
    entries = slice(int(starts[0]), int(starts[-1]))
    weights = None if rows.weights is None else rows.weights[entries].copy()
    return Adjacency(rows.first + first, starts - starts[0], rows.columns[entries].copy(), weights)


def joined(xp, parts):
    """Return the arrays of all ranks, one after the other, or None if the ranks have no arrays."""
    return None if parts[0] is None else xp.concatenate(parts)


def read_by_owners(kernels, edges: list[tuple], n: int, bounds: list[int]) -> list[Adjacency]:
    """Return the rows of each rank's nodes; `edges` has the edges that each rank reads."""
    xp, made = kernels.xp, []
    there = [kernels.graph.rows_of_edges([each], count=n, summed=False) for each in edges]
    for first, stop in itertools.pairwise(bounds):
        sent = [part(each, first, stop) for each in there]
        lengths = joined(xp, [xp.diff(each.starts).astype(np.int32) for each in sent])
        columns, weights = joined(xp, [each.columns for each in sent]), joined(xp, [each.weights for each in sent])
        made.append(kernels.graph.join_rows(lengths, columns, weights, count=n, first=first, rows=stop - first))
    return made


def contracted_by_owners(
    kernels, rows: Adjacency, ids, count: int, bounds: list[int], group_bounds: list[int]
) -> list[Adjacency]:
    """Return the rows of each rank's groups; each rank has the rows of the nodes between two bounds."""
    xp, made = kernels.xp, []
    for rank, (first, stop) in enumerate(itertools.pairwise(group_bounds)):
        sent, nodes = [], []
        for other, (begin, end) in enumerate(itertools.pairwise(bounds)):
            own, groups = part(rows, begin, end), ids[begin:end]
            listed = xp.arange(begin, end)
            if other == rank:
                sent.append((xp.diff(own.starts).astype(np.int32), own.columns, own.weights))
            else:
                listed = listed[(groups >= first) & (groups < stop)]
                sent.append(kernels.graph.crossing_rows(own, ids, first=first, stop=stop))
                assert (len(sent[-1][0]), sent[-1][0].dtype) == (len(listed), np.int32)
            nodes.append(listed)
        lengths, columns, weights = (joined(xp, [each[index] for each in sent]) for index in range(3))
        starts = xp.concatenate([xp.zeros(1, np.int64), xp.cumsum(lengths, dtype=np.int64)])
        received, groups = Adjacency(0, starts, columns, weights), ids[joined(xp, nodes)]
        made.append(kernels.graph.contract(received, ids, count=count, groups=groups, first=first, stop=stop))
    return made
