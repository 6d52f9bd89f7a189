"""Ward's merges of the nodes of a graph: repeatedly merge the two neighbouring clusters whose merge costs the least.

Clusters a and b have n_a and n_b rows with the means m_a and m_b. The cost of their merge is (Ward 1963)

    d(a, b) = n_a n_b / (n_a + n_b) |m_a - m_b|^2

which is the increase of the sum of squared distances of the rows to the means of their clusters. In outline::

    clusters = {each row}
    while any two clusters are neighbours:
        a, b = the pair of neighbours with the least d(a, b)
        replace a and b by their union, whose neighbours are the neighbours of a and of b

A pair is in the list of its younger cluster. The costs of the pairs in a cluster's list are computed once, when the
cluster is made. A heap has the best pair of each cluster. When a pair whose other cluster was already merged comes to
the top of the heap, the next best pair of the same list replaces it. For each merge, about as many distances are
computed as the new cluster has neighbours, whatever the number of rows.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from mgclust.kernels.toolkit.cpu_compiler import called, compiled

__all__ = ["ward_merges"]

Array = Any
SLICE = 4096  # rows whose pairs are listed, or merges, between two calls of `on_progress`
NONE = np.int64(-1)


class WardState(NamedTuple):
    """State of the merges, by the number of a cluster: 0 .. n - 1 are the rows, and n + i is the result of merge i."""

    starts: Array  # graph of the rows
    columns: Array
    sums: Array  # float64 array of shape (n, n_features): sum of the rows of each cluster, in the order of `place`
    place: Array  # position of each cluster in `sums`
    size: Array  # number of rows of each cluster
    parent: Array  # cluster into which a cluster was merged directly or later; the cluster itself if it was not merged
    begin: Array  # position of the first pair of each cluster's list
    count: Array  # number of pairs in each cluster's list
    best: Array  # position of the best pair in each cluster's list
    seen: Array  # newest cluster that listed this cluster as its neighbour
    heap_cost: Array
    heap_cluster: Array
    heap_size: Array  # shape (1,)


def ward_merges(
    sums: Array, starts: Array, columns: Array, on_progress: Callable[[int], None], size: Array | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """Merge neighbouring clusters, cheapest first, until no two clusters are neighbours.

    Parameters
    ----------
    sums : float32 or float64 array of shape (n, n_features)
        The rows; with `size`, the sum of the rows of each node.
    starts : int64 array of shape (n + 1,)
    columns : int32 array
        Neighbours of each row or node.
    on_progress : callable
        Receives the number of merges so far; 0 while the pairs of rows are listed.
    size : int array of shape (n,), optional
        Number of rows of each node; by default 1.

    Returns
    -------
    merges : int32 array of shape (n_merges, 2)
        The two clusters of each merge. A number below n is a row; n + i is the result of merge i. The number of merges
        is n minus the number of connected components.
    costs : float64 array of shape (n_merges,)
        Cost d(a, b) of each merge. A later merge may have a lower cost.
    """
    n = len(sums)
    most = max(n - 1, 0)
    merges, costs = np.empty((most, 2), np.int32), np.empty(most)
    clusters = WardState(
        starts,
        columns,
        np.array(sums, np.float64, order="C"),
        np.concatenate([np.arange(n, dtype=np.int32), np.zeros(most, np.int32)]),
        np.concatenate([np.ones(n, np.int32) if size is None else size.astype(np.int32), np.zeros(most, np.int32)]),
        np.arange(n + most, dtype=np.int32),
        np.zeros(n + most, np.int64),
        np.zeros(n + most, np.int32),
        np.full(n + most, NONE, np.int32),
        np.full(n + most, NONE, np.int32),
        np.empty(n + most),
        np.empty(n + most, np.int32),
        np.zeros(1, np.int64),
    )
    # Lists of pairs of all clusters: the older cluster of each pair, and the cost of the pair.
    others, values = np.empty(len(columns) // 2 + n, np.int32), np.empty(len(columns) // 2 + n)
    used, done = 0, 0
    for first in range(0, n, SLICE):
        on_progress(done)
        used = pair_rows(clusters, others, values, used, first, min(first + SLICE, n))
    while clusters.heap_size[0]:
        done, used, short = advance(clusters, others, values, used, merges, costs, done, done + SLICE)
        on_progress(done)
        if short:  # the pairs of the next cluster do not fit into `others` and `values`
            more = max(short, len(others) // 2)
            others = np.concatenate([others, np.empty(more, np.int32)])
            values = np.concatenate([values, np.empty(more)])
    return merges[:done].copy(), costs[:done].copy()


@called
def cost_of(sums: Array, a: int, size_a: int, b: int, size_b: int) -> float:
    """Return the cost of a merge, from four partial sums in an order that is fixed."""
    by_a, by_b = 1.0 / size_a, 1.0 / size_b
    first = second = third = fourth = 0.0
    n = sums.shape[1]
    whole = n - n % 4
    for t in range(0, whole, 4):
        u = sums[a, t] * by_a - sums[b, t] * by_b
        v = sums[a, t + 1] * by_a - sums[b, t + 1] * by_b
        w = sums[a, t + 2] * by_a - sums[b, t + 2] * by_b
        x = sums[a, t + 3] * by_a - sums[b, t + 3] * by_b
        first += u * u
        second += v * v
        third += w * w
        fourth += x * x
    for t in range(whole, n):
        u = sums[a, t] * by_a - sums[b, t] * by_b
        first += u * u
    return (size_a * size_b) / (size_a + size_b) * ((first + second) + (third + fourth))


@called
def put(clusters: WardState, cost: float, cluster: int) -> None:
    """Put the best pair of a cluster into the heap; ties go to the cluster with the lower number."""
    costs, numbers = clusters.heap_cost, clusters.heap_cluster
    at = clusters.heap_size[0]
    clusters.heap_size[0] += 1
    while at > 0:
        above = (at - 1) >> 1
        if costs[above] < cost or (costs[above] == cost and numbers[above] < cluster):
            break
        costs[at], numbers[at] = costs[above], numbers[above]
        at = above
    costs[at], numbers[at] = cost, cluster


@called
def take(clusters: WardState) -> int:
    """Take the cluster with the best pair out of the heap, and return the cluster."""
    costs, numbers = clusters.heap_cost, clusters.heap_cluster
    found = numbers[0]
    clusters.heap_size[0] -= 1
    size = clusters.heap_size[0]
    cost, cluster, at = costs[size], numbers[size], 0
    while 2 * at + 1 < size:
        below = 2 * at + 1
        right = below + 1
        if right < size and (
            costs[right] < costs[below] or (costs[right] == costs[below] and numbers[right] < numbers[below])
        ):
            below = right
        if cost < costs[below] or (cost == costs[below] and cluster < numbers[below]):
            break
        costs[at], numbers[at] = costs[below], numbers[below]
        at = below
    costs[at], numbers[at] = cost, cluster
    return found


@called
def put_best(clusters: WardState, others: Array, values: Array, cluster: int) -> None:
    """Find the best pair in a cluster's list whose other cluster was not merged yet, and put it into the heap."""
    begin, found = clusters.begin[cluster], -1
    for at in range(begin, begin + clusters.count[cluster]):
        other = others[at]
        if clusters.parent[other] == other and (
            found < 0 or values[at] < values[found] or (values[at] == values[found] and other < others[found])
        ):
            found = at
    clusters.best[cluster] = found
    if found >= 0:
        put(clusters, values[found], cluster)


@compiled
def pair_rows(clusters: WardState, others: Array, values: Array, used: int, first: int, last: int) -> int:
    """List the pairs of rows first..last-1 with earlier rows that an edge joins to them, and the costs of the pairs.

    Return the number of pairs so far.
    """
    for row in range(first, last):
        clusters.begin[row] = used
        for at in range(clusters.starts[row], clusters.starts[row + 1]):
            other = clusters.columns[at]
            if other < row:
                others[used], values[used] = (
                    other,
                    cost_of(clusters.sums, row, clusters.size[row], other, clusters.size[other]),
                )
                used += 1
        clusters.count[row] = used - clusters.begin[row]
        put_best(clusters, others, values, row)
    return used


@called
def merged_into(parent: Array, cluster: int) -> int:
    """Return the current cluster that contains a cluster; `parent` is shortened to make later searches faster."""
    last = cluster
    while parent[last] != last:
        last = parent[last]
    while parent[cluster] != last:
        parent[cluster], cluster = last, parent[cluster]
    return last


@called
def most_pairs(clusters: WardState, cluster: int) -> int:
    """Return an upper bound of the number of neighbours that one part contributes to a merged cluster."""
    if cluster < len(clusters.starts) - 1:
        return clusters.starts[cluster + 1] - clusters.starts[cluster]
    return clusters.count[cluster]


@called
def pair_up(clusters: WardState, others: Array, values: Array, used: int, part: int, whole: int) -> int:
    """List the neighbours that a new cluster gets from one of its two parts, with the costs of merging them.

    Return the number of pairs so far.
    """
    rows = len(clusters.starts) - 1
    first = clusters.starts[part] if part < rows else clusters.begin[part]
    for at in range(first, first + most_pairs(clusters, part)):
        other = merged_into(clusters.parent, clusters.columns[at] if part < rows else others[at])
        if other != whole and clusters.seen[other] != whole:
            clusters.seen[other] = whole
            others[used] = other
            values[used] = cost_of(
                clusters.sums, clusters.place[whole], clusters.size[whole], clusters.place[other], clusters.size[other]
            )
            used += 1
    return used


@compiled
def advance(
    clusters: WardState, others: Array, values: Array, used: int, merges: Array, costs: Array, done: int, stop: int
) -> tuple[int, int, int]:
    """Merge until `stop` merges are done, no pair is left, or the arrays of pairs are full.

    Returns
    -------
    done : int
        Number of merges so far.
    used : int
        Number of pairs so far.
    short : int
        Number of pairs for which the arrays must grow; 0 if they need not grow.
    """
    rows = len(clusters.starts) - 1
    while clusters.heap_size[0] > 0 and done < stop:
        younger = clusters.heap_cluster[0]
        if clusters.parent[younger] != younger:
            take(clusters)
            continue
        older = others[clusters.best[younger]]
        if clusters.parent[older] != older:
            take(clusters)
            put_best(clusters, others, values, younger)
            continue
        need = most_pairs(clusters, younger) + most_pairs(clusters, older)
        if used + need > len(others):
            return done, used, need
        cost, whole = clusters.heap_cost[0], rows + done
        take(clusters)
        clusters.parent[younger] = clusters.parent[older] = whole
        clusters.size[whole] = clusters.size[younger] + clusters.size[older]
        place, freed = clusters.place[older], clusters.place[younger]
        clusters.place[whole] = place
        for t in range(clusters.sums.shape[1]):
            clusters.sums[place, t] += clusters.sums[freed, t]
        clusters.begin[whole] = used
        used = pair_up(clusters, others, values, used, younger, whole)
        used = pair_up(clusters, others, values, used, older, whole)
        clusters.count[whole] = used - clusters.begin[whole]
        put_best(clusters, others, values, whole)
        merges[done, 0], merges[done, 1], costs[done] = older, younger, cost
        done += 1
    return done, used, 0
