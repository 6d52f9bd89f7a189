"""Clusters after a given number of merges from a list."""

from __future__ import annotations

import numpy as np

__all__ = ["labels_after", "numbered"]


def labels_after(merges: np.ndarray, n: int, k: int) -> np.ndarray:
    """Return the clusters after the first n - k merges.

    Parameters
    ----------
    merges : int array of shape (n_merges, 2)
        The two clusters of each merge. A number below n is a node; n + i is the result of merge i.
    n : int
        Number of nodes.
    k : int
        Number of clusters, at least n - n_merges.

    Returns
    -------
    ndarray of shape (n,), int32
        Cluster of each node, from 0; clusters are numbered in the order of their smallest nodes.
    """
    done = n - k
    parent = np.arange(n + done)
    parent[merges[:done].ravel()] = np.repeat(np.arange(n, n + done), 2)
    while (parent != (above := parent[parent])).any():  # pointer jumping: each pass doubles the length of a step
        parent = above
    return numbered(parent[:n])


def numbered(groups: np.ndarray) -> np.ndarray:
    """Number groups from 0 in the order of their smallest members; int32."""
    _, first, inverse = np.unique(groups, return_index=True, return_inverse=True)
    rank = np.empty(len(first), np.int32)
    rank[np.argsort(first)] = np.arange(len(first), dtype=np.int32)
    return rank[inverse]
