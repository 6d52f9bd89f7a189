"""Directed modularity (Leicht and Newman 2008), from the full matrix of arcs."""

from __future__ import annotations

import numpy as np


def modularity(arcs: np.ndarray, weights: np.ndarray, labels: np.ndarray, resolution: float = 1.0) -> float:
    """Q = 1/m sum over all ordered pairs i, j of [A_ij - resolution out_i in_j / m] if i and j have the same label."""
    n = len(labels)
    matrix = np.zeros((n, n))
    np.add.at(matrix, (arcs[:, 0], arcs[:, 1]), weights)
    m = matrix.sum()
    if m == 0:
        return 0.0
    leaving, entering = matrix.sum(axis=1), matrix.sum(axis=0)
    together = labels[:, None] == labels[None, :]
    return float((matrix - resolution * np.outer(leaving, entering) / m)[together].sum() / m)
