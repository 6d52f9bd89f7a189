"""Parcels from communities of the graph of neighbours: the search for the resolution, and the merges after it."""

import networkx
import numpy as np
import pytest
from networkx.algorithms.community import louvain_communities, modularity

from mgclust.algorithms.parcellation.voxel_communities import POWER, STEPS, VoxelCommunities
from mgclust.data.neighbors import volume_neighbors
from oracles import parcels as oracle
from support.parcels import context_of, edges_of, smooth


def searched(rows, graph, seed=0):
    return VoxelCommunities(context_of(rows), rows, graph.starts, graph.columns, seed)


def test_parcels_do_not_depend_on_the_order_of_the_numbers():
    rows, graph = smooth((6, 6, 6))
    down, up = searched(rows, graph), searched(rows, graph)
    found = {k: down.parcels(k).tobytes() for k in (90, 30, 8, 1)}
    assert {k: up.parcels(k).tobytes() for k in (1, 8, 30, 90)} == found


@pytest.mark.parametrize(("k", "steps"), [(5, STEPS), (12, STEPS), (40, 5)])  # small numbers have to be exact
def test_a_search_is_short_and_its_parcels_consist_of_communities(k, steps):
    rows, graph = smooth((9, 8, 7))
    search = searched(rows, graph)
    labels = search.parcels(k)
    assert labels.dtype == np.int32 and np.unique(labels).tolist() == list(range(k))
    assert oracle.connected(labels, edges_of(graph))
    assert len(search._found) <= steps
    counts = {resolution: int(each.max()) + 1 for resolution, each in search._found.items()}
    communities = search._found[min((r for r in counts if counts[r] >= k), key=counts.__getitem__)]
    assert len({(a, b) for a, b in zip(communities.tolist(), labels.tolist(), strict=True)}) == communities.max() + 1


def test_the_modularity_is_near_that_of_another_program():
    rows, graph = smooth((9, 8, 7))
    search = searched(rows, graph)
    search.parcels(12)
    network = networkx.Graph()
    for a, b in edges_of(graph).tolist():
        network.add_edge(a, b, weight=max(float(rows[a].astype(float) @ rows[b]), 1e-9) ** POWER)
    for resolution, labels in search._found.items():
        if labels.max() < 60:
            own = [set(np.flatnonzero(labels == k).tolist()) for k in range(labels.max() + 1)]
            theirs = louvain_communities(network, resolution=resolution, seed=0)
            reached, expected = (modularity(network, each, resolution=resolution) for each in (own, theirs))
            assert reached > expected - 0.02


def test_equal_series_give_the_exact_number():
    graph = volume_neighbors(np.ones((5, 5, 5), bool), (5, 5, 5), 26)
    for rows in (np.zeros((125, 20), np.float32), np.full((125, 20), 20**-0.5, np.float32)):
        for k in (1, 2, 17, 125):
            labels = searched(rows, graph).parcels(k)
            assert np.unique(labels).tolist() == list(range(k)) and oracle.connected(labels, edges_of(graph))
