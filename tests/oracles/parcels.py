"""Ward's merges with connectivity and the criterion of border moves, in plain NumPy."""

from __future__ import annotations

import numpy as np


def ward(rows, edges):
    """Merge the two neighbouring clusters of least cost until no two are neighbours; return pairs and costs.

    Equal costs are not decided: every cost within 1e-9 of the least one is a possible merge, and the first is taken.
    """
    rows = np.asarray(rows, np.float64)
    members = {i: [i] for i in range(len(rows))}
    near = {frozenset(map(int, edge)) for edge in edges if edge[0] != edge[1]}
    merges, costs = [], []

    def cost(pair):
        a, b = (members[i] for i in pair)
        gap = rows[a].mean(axis=0) - rows[b].mean(axis=0)
        return len(a) * len(b) / (len(a) + len(b)) * float(gap @ gap)

    while near:
        best = min(near, key=lambda pair: (cost(pair), sorted(pair)))
        new = len(rows) + len(merges)
        merges.append(sorted(best))
        costs.append(cost(best))
        members[new] = [row for i in best for row in members.pop(i)]
        near = {frozenset(new if i in best else i for i in pair) for pair in near}
        near = {pair for pair in near if len(pair) == 2}
    return np.array(merges).reshape(-1, 2), np.array(costs)


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
