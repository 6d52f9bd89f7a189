"""Edges on a GPU: checked where they are, not copied, and random networks the same as on the host."""

from __future__ import annotations

import numpy as np
import pytest

from mgclust import open_graph
from mgclust.base.errors import InputError
from mgclust.datasets import make_random_network, open_random_network, random_network_edges
from mgclust.kernels import load

pytestmark = pytest.mark.gpu

SHAPE = (50, 300, 20, 0.7)
EDGES = np.array([[0, 1], [1, 2], [2, 2]])


@pytest.fixture
def xp():
    return load("cuda").xp


def test_random_networks_are_the_hosts(xp):
    host = make_random_network(*SHAPE, random_state=3)
    device = make_random_network(*SHAPE, random_state=3, device="cuda")
    assert device.edges.dtype == np.int32 and hasattr(device.edges, "__cuda_array_interface__")
    np.testing.assert_array_equal(device.edges.get(), host.edges)
    np.testing.assert_array_equal(random_network_edges(*SHAPE, 3, 100, 100_000, xp).get(), host.edges[100:100_000])
    graph = open_random_network(*SHAPE, random_state=3, device="cuda")
    np.testing.assert_array_equal(graph.read(5, 99).get(), host.edges[5:99])


def test_edges_stay_where_they_are(xp):
    edges = xp.asarray(EDGES.astype(np.int32))
    graph = open_graph((edges, 5))
    rows = graph.read(0, 3)
    assert rows.data.ptr == edges.data.ptr and graph.n_nodes == 5
    assert open_graph(edges).fingerprint() == open_graph(EDGES).fingerprint()
    weighted = open_graph((edges, np.array([1.0, 2.0, 0.5])))
    assert weighted.read(0, 3).get().tolist() == [[0, 1, 1], [1, 2, 2], [2, 2, 0.5]]
    assert weighted.take([2]).tolist() == [[2, 2, 0.5]]


def test_refusals(xp):
    for given, sentence in (
        (([[0, 1], [2, -1]], None), "row 1 .* node id -1 is negative"),
        (([[0, 1], [2, 7]], 5), "row 1 .* node id 7 is out of range"),
        (([[0.5, 1], [2, 1], [2, 0]], None), "row 0 .* 0.5 is not an integer"),
        (([[0, 1, np.nan], [2, 1, 1]], None), "row 0 .* weight nan"),
    ):
        with pytest.raises(InputError, match=sentence):
            graph = open_graph(xp.asarray(given[0]), n_nodes=given[1])
            graph.read(0, graph.shape[0])
