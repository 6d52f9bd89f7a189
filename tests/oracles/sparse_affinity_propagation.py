"""Affinity propagation on some pairs, as its equations say it: one pair after the other, float64.

An oracle that shares no code with mgclust; a pair that is not there is never looked at.
"""

from __future__ import annotations

import math
from collections import defaultdict

import numpy as np


def sparse_affinity_propagation(n, pairs, preference, damping=0.5, max_iter=200, convergence_iter=15):
    """`pairs` maps (i, k), i != k, to a similarity. Exemplars, labels (-1: none), iterations, converged.

    What leaves a row without an exemplar is no solution, however long it has stayed: its iterations count from there.
    """
    s = {**pairs, **{(i, i): preference for i in range(n)}}
    of_row, of_column = defaultdict(list), defaultdict(list)
    for i, k in sorted(s):
        of_row[i].append(k)
        of_column[k].append(i)
    r, a = dict.fromkeys(s, 0.0), dict.fromkeys(s, 0.0)
    states, begun = [], 0
    for done in range(1, max_iter + 1):
        for i in range(n):
            values = sorted(((a[i, k] + s[i, k], -k) for k in of_row[i]), reverse=True)
            values.append((-math.inf, 0))
            for k in of_row[i]:
                most = values[1][0] if -values[0][1] == k else values[0][0]
                r[i, k] = damping * r[i, k] + (1 - damping) * (s[i, k] - most)
        for k in range(n):
            total = sum(max(0.0, r[i, k]) for i in of_column[k] if i != k)
            for i in of_column[k]:
                update = total if i == k else min(0.0, r[k, k] + total - max(0.0, r[i, k]))
                a[i, k] = damping * a[i, k] + (1 - damping) * update
        states.append([k for k in range(n) if a[k, k] + r[k, k] > 0])
        last = states[-convergence_iter:]
        still = done - begun >= convergence_iter - 1 and all(state == last[-1] for state in last)
        if states[-1] and done > convergence_iter and still and min(assign(n, s, states[-1])) < 0:
            begun = done
        elif states[-1] and done > convergence_iter and still:
            exemplars = refine(n, s, states[-1])
            return exemplars, assign(n, s, exemplars), done, True
    return states[-1], assign(n, s, states[-1]), max_iter, False


def assign(n, s, exemplars) -> list[int]:
    """Position of each row's most similar exemplar among its pairs, the lowest of equals."""
    labels = []
    for i in range(n):
        there = [(-s[i, k], at) for at, k in enumerate(exemplars) if (i, k) in s]
        labels.append(exemplars.index(i) if i in exemplars else min(there)[1] if there else -1)
    return labels


def refine(n, s, exemplars) -> list[int]:
    """In each cluster the member that the others, all of which have a pair with it, are most similar to."""
    labels, chosen = np.array(assign(n, s, exemplars)), []
    for cluster in range(len(exemplars)):
        members = np.flatnonzero(labels == cluster).tolist()
        able = [k for k in members if all((i, k) in s for i in members)]
        chosen.append(max(able, key=lambda k: (sum(s[i, k] for i in members), -k)))
    return sorted(chosen)
