"""Tests of local moving on levels with many neighbours per node: moves at the same time raise the modularity."""

from __future__ import annotations

import numpy as np

from mgclust.algorithms.communities import local_moving
from mgclust.algorithms.communities.levels import Level, contract, modularity_of
from mgclust.datasets import make_random_network
from mgclust.engine.partition import Partition
from mgclust.engine.transport.comm import SoloComm
from mgclust.kernels import load
from mgclust.kernels.graph.adjacency import Gain

KERNELS = load("cpu")


def network() -> tuple[Level, np.ndarray]:
    """Return a network of 4,000 communities so small that joining many of them gives the largest modularity."""
    edges, truth = make_random_network(n_clusters=4000, cluster_size=30, degree=24, p_in=0.6, random_state=1)
    edges, n = edges.astype(np.int32), len(truth)
    rows = KERNELS.graph.rows_of_edges([(edges[:, 0].copy(), edges[:, 1].copy(), None)], count=n)
    strength = np.bincount(edges.ravel(), minlength=n)
    alone = SoloComm(Partition(1, 1, 1), 1)
    return Level(KERNELS, alone, n, rows.entries, rows, strength, Gain(int(strength.sum()), 1.0, True)), truth


def test_moves_of_connected_communities_raise_the_modularity(monkeypatch):
    level, truth = network()
    plain, found = KERNELS.graph.sweep_alone, []

    def noted(rows, strength, labels, *state, **options):
        done = plain(rows, strength, labels, *state, **options)
        found.append(modularity_of(level, labels))
        return done

    monkeypatch.setattr(KERNELS.graph, "sweep_alone", noted)
    labels = truth.astype(np.int32)
    for _ in range(2):
        level = contract(level, *local_moving.compact(level, labels))
        assert level.entries > 250 * level.n  # a node has many neighbours
        labels = local_moving.move_nodes(level, np.arange(level.n, dtype=np.int32), salt=0, classes=4)
    assert len(found) > 8
    assert (np.diff(found) > 0).all()
