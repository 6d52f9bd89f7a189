"""Ward's merges with connectivity, levels of exemplars, and the criterion of border moves, in plain NumPy."""

from __future__ import annotations

import numpy as np


def ward(rows, edges, groups=None):
    """Merge the two neighbouring clusters of least cost until no two are neighbours; return pairs and costs.

    Equal costs are not decided: every cost within 1e-9 of the least one is a possible merge, and the first is taken.
    With `groups`, lists of rows, the edges are pairs of groups.
    """
    rows = np.asarray(rows, np.float64)
    members = dict(enumerate(groups or [[i] for i in range(len(rows))]))
    first = len(members)
    near = {frozenset(map(int, edge)) for edge in edges if edge[0] != edge[1]}
    merges, costs = [], []

    def cost(pair):
        a, b = (members[i] for i in pair)
        gap = rows[a].mean(axis=0) - rows[b].mean(axis=0)
        return len(a) * len(b) / (len(a) + len(b)) * float(gap @ gap)

    while near:
        best = min(near, key=lambda pair: (cost(pair), sorted(pair)))
        new = first + len(merges)
        merges.append(sorted(best))
        costs.append(cost(best))
        members[new] = [row for i in best for row in members.pop(i)]
        near = {frozenset(new if i in best else i for i in pair) for pair in near}
        near = {pair for pair in near if len(pair) == 2}
    return np.array(merges).reshape(-1, 2), np.array(costs)


def exemplar_levels(rows, edges, k, propagate):
    """Cluster neighbours, then the clusters, down to k groups; return the groups.

    Rows have mean 0 and length 1. `propagate` gives the labels of n nodes by their similarities {(a, b): s}, a != b.
    The last merges, from the last level that has at least k groups, are Ward's.
    """
    rows = np.asarray(rows, np.float64)
    groups = [[i] for i in range(len(rows))]
    while len(groups) > k:
        of = {row: at for at, group in enumerate(groups) for row in group}
        near = sorted({(of[a], of[b]) for i, j in edges for a, b in ((i, j), (j, i)) if of[a] != of[b]})
        means = np.array([rows[group].sum(axis=0) for group in groups])
        means /= np.linalg.norm(means, axis=1, keepdims=True)
        labels = propagate(len(groups), {(a, b): -(1 - means[a] @ means[b]) / 2 for a, b in near})
        labels = [label if label >= 0 else -1 - at for at, label in enumerate(labels)]
        found = [[i for at in np.flatnonzero(labels == label) for i in groups[at]] for label in np.unique(labels)]
        if len(found) == len(groups) or len(found) < k:
            break
        groups = sorted(map(sorted, found))
    of = {row: at for at, group in enumerate(groups) for row in group}
    near = {(of[i], of[j]) for i, j in edges if of[i] != of[j]}
    merged = dict(enumerate(groups))
    for number, pair in enumerate(ward(rows, near, groups)[0][: len(groups) - k]):
        merged[len(groups) + number] = [row for i in pair for row in merged.pop(i)]
    return {frozenset(group) for group in merged.values()}


def likeness(rows, labels):
    """Return the sum over parcels of the lengths of the sums of their rows."""
    rows = np.asarray(rows, np.float64)
    return sum(np.linalg.norm(rows[labels == k].sum(axis=0)) for k in np.unique(labels))


def connected(labels, edges):
    """Return whether each parcel is one piece."""
    for k in np.unique(labels):
        own = set(np.flatnonzero(labels == k).tolist())
        reached, queue = set(), [min(own)]
        while queue:
            i = queue.pop()
            if i not in reached:
                reached.add(i)
                queue += [int(b if a == i else a) for a, b in edges if i in (a, b) and {int(a), int(b)} <= own]
        if reached != own:
            return False
    return True
