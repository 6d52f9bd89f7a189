"""Greedy modularity and modularity as their definitions say, in exact numbers; shares no code with mgclust.

Edges are (u, v) or (u, v, w), each undirected edge once, in any order: equal ones add up, a loop adds twice its weight
to its node's strength. Python's integers, or fractions of the very floating-point numbers given: nothing is rounded.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np


@dataclass(frozen=True)
class GreedyReference:
    merges: list[tuple[int, int]]  # (kept, absorbed)
    gains: list[Any]  # 2m * m_ij - resolution * d_i * d_j
    two_m: Any
    start: Fraction  # modularity of the nodes by themselves

    @property
    def history(self) -> list[Fraction]:
        """Modularity after 0, 1, ... merges, each exact."""
        out = [self.start]
        for gain in self.gains:
            out.append(out[-1] + (2 * Fraction(gain) / Fraction(self.two_m) ** 2 if self.two_m else 0))
        return out


def exact(weight: Any) -> Any:
    """An integer where the number is one, else a fraction: both without rounding."""
    fraction = Fraction(weight)
    return fraction.numerator if fraction.denominator == 1 else fraction


def tables(edges: Any, n: int) -> tuple[list[dict[int, Any]], list[Any]]:
    """Each node's neighbours with their weights, loops left out, and its strength."""
    rows: list[dict[int, Any]] = [{} for _ in range(n)]
    strength: list[Any] = [0] * n
    for u, v, *w in np.asarray(edges).tolist():
        u, v, weight = int(u), int(v), exact(w[0]) if w else 1
        strength[u] += weight
        strength[v] += weight
        if u != v:
            rows[u][v] = rows[u].get(v, 0) + weight
            rows[v][u] = rows[v].get(u, 0) + weight
    return rows, strength


def greedy(edges: Any, n: int, resolution: Any = 1) -> GreedyReference:
    """Look at every connected pair before every merge: the largest gain, of equals the smallest (i, j)."""
    rows, strength = tables(edges, n)
    two_m, factor = sum(strength), exact(resolution)
    start = modularity(edges, range(n), n, resolution)
    merges, gains = [], []
    while True:
        pairs = [
            (factor * strength[i] * strength[j] - two_m * w, i, j)
            for i, row in enumerate(rows)
            for j, w in row.items()
            if i < j
        ]
        if not pairs:
            return GreedyReference(merges, gains, two_m, start)
        loss, i, j = min(pairs)
        merges.append((i, j))
        gains.append(-loss)
        for k, w in rows[j].items():
            del rows[k][j]
            if k != i:
                rows[i][k] = rows[k][i] = rows[i].get(k, 0) + w
        rows[j] = {}
        strength[i] += strength[j]
        strength[j] = 0


def greedy_in_arrays(edges: Any, n: int) -> GreedyReference:
    """The same for integer weights in int64, all pairs at once: thousands of nodes in a second."""
    rows, strength = tables(edges, n)
    pairs = np.array([(i, j, w) for i, row in enumerate(rows) for j, w in row.items() if i < j]).reshape(-1, 3)
    low, high, weight = pairs.T.copy()
    d = np.array(strength)
    two_m, merges, gains = int(d.sum()), [], []
    while len(low):
        gain = two_m * weight - d[low] * d[high]
        best = np.flatnonzero(gain == gain.max())
        best = best[np.lexsort((high[best], low[best]))[0]]
        i, j = int(low[best]), int(high[best])
        merges.append((i, j))
        gains.append(int(gain[best]))
        d[i] += d[j]
        low[low == j] = i
        high[high == j] = i
        near = np.flatnonzero((low == i) | (high == i))
        other, first, number = np.unique(low[near] + high[near] - i, return_index=True, return_inverse=True)
        sums = np.zeros(len(other), np.int64)
        np.add.at(sums, number, weight[near])
        keep = np.ones(len(low), bool)
        keep[near] = False
        kept = other != i
        keep[near[first[kept]]] = True
        at = near[first[kept]]
        low[at], high[at], weight[at] = np.minimum(i, other[kept]), np.maximum(i, other[kept]), sums[kept]
        low, high, weight = low[keep], high[keep], weight[keep]
    return GreedyReference(merges, gains, two_m, modularity(edges, range(n), n))


def modularity(edges: Any, labels: Any, n: int, resolution: Any = 1) -> Fraction:
    """Sum over communities of m_c / m - resolution * (d_c / 2m)^2; 0 where there is no edge."""
    labels = [int(label) for label in labels]
    inside, total = {}, {}
    for u, v, *w in np.asarray(edges).tolist():
        u, v, weight = int(u), int(v), exact(w[0]) if w else 1
        total[labels[u]] = total.get(labels[u], 0) + weight
        total[labels[v]] = total.get(labels[v], 0) + weight
        if labels[u] == labels[v]:
            inside[labels[u]] = inside.get(labels[u], 0) + weight
    two_m = Fraction(sum(total.values()))
    if not two_m:
        return Fraction(0)
    squares = sum(Fraction(d) ** 2 for d in total.values())
    return 2 * Fraction(sum(inside.values())) / two_m - Fraction(resolution) * squares / two_m**2


def rows_of(edges: Any, n: int, dtype: Any = np.int64) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """The same as compressed rows: starts, columns ascending in each row, weights, strength."""
    rows, strength = tables(edges, n)
    starts = np.cumsum([0, *map(len, rows)], dtype=np.int64)
    columns = np.array([j for row in rows for j in sorted(row)], np.int32)
    weights = np.array([row[j] for row in rows for j in sorted(row)], dtype)
    return starts, columns, weights, np.array(strength, dtype)
