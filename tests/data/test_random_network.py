"""RN(C, s, d, pin): the right numbers of the right edges, the same however they are made."""

import pickle

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mgclust import open_graph
from mgclust.base.errors import InputError
from mgclust.data.graphs.random_network import _permute
from mgclust.datasets import make_random_network, open_random_network, random_network_edges


def within(network):
    return network.labels[network.edges[:, 0]] == network.labels[network.edges[:, 1]]


@settings(max_examples=40, deadline=None)
@given(size=st.integers(1, 3000), keys=st.lists(st.integers(0, 2**63 - 1), min_size=6, max_size=6))
def test_a_permutation_takes_every_place_once(size, keys):
    numbers = _permute(np.arange(size, dtype=np.uint64), size, keys)
    np.testing.assert_array_equal(np.sort(numbers), np.arange(size))


@settings(max_examples=40, deadline=None)
@given(data=st.data(), seed=st.integers(0, 2**40))
def test_edges_are_simple_and_of_the_right_kind(data, seed):
    clusters, size = data.draw(st.integers(2, 6)), data.draw(st.integers(2, 9))
    degree = data.draw(st.integers(0, max(1, min(size - 1, (clusters - 1) * size) // 2)))
    network = make_random_network(clusters, size, degree, 0.5, random_state=seed)
    edges = network.edges
    assert edges.dtype == np.int32 and edges.shape == (clusters * size * degree // 2, 2)
    assert len(np.unique(edges, axis=0)) == len(edges)
    assert (edges[:, 0] < edges[:, 1]).all() and (edges >= 0).all() and (edges < clusters * size).all()
    assert network.labels.tolist() == [i // size for i in range(clusters * size)]


def test_the_share_within_clusters_and_the_degrees():
    network = make_random_network(20, 500, 16, 0.8)
    m = len(network.edges)
    assert m == 80_000
    assert abs(within(network).mean() - 0.8) < 4 * np.sqrt(0.16 / m)
    degrees = np.bincount(network.edges.ravel(), minlength=network.n_nodes)
    # Pairs are drawn without regard to nodes: degrees are as good as Poisson.
    assert degrees.mean() == 16 and abs(degrees.std() - 4) < 0.1
    # Every cluster, pair of clusters and place in a cluster gets its share.
    inside = network.edges[within(network)]
    per_cluster = np.bincount(inside[:, 0] // 500)
    assert abs(per_cluster - 3200).max() < 5 * np.sqrt(3200)
    across = network.labels[network.edges[~within(network)]]
    per_pair = np.bincount(across[:, 0] * 20 + across[:, 1], minlength=400).reshape(20, 20)[np.triu_indices(20, 1)]
    assert abs(per_pair - per_pair.mean()).max() < 5 * np.sqrt(per_pair.mean())
    assert abs(np.bincount(inside.ravel() % 500) - len(inside) / 250).max() < 5 * np.sqrt(len(inside) / 250)


def test_all_pairs_there_are():
    assert len(np.unique(make_random_network(4, 10, 9, 1.0).edges, axis=0)) == 4 * 45
    assert len(np.unique(make_random_network(4, 10, 30, 0.0).edges, axis=0)) == 6 * 100


def test_any_range_by_itself_gives_the_same_edges():
    shape = (7, 300, 10, 0.6)
    whole = make_random_network(*shape, random_state=5).edges
    m = len(whole)
    parts = [random_network_edges(*shape, 5, start, min(start + 999, m)) for start in range(0, m, 999)]
    np.testing.assert_array_equal(np.concatenate(parts), whole)
    graph = pickle.loads(pickle.dumps(open_random_network(*shape, random_state=5)))
    np.testing.assert_array_equal(graph.read(1000, m), whole[1000:])
    assert graph.n_nodes == 2100 and len(graph.labels) == 2100 and graph.fingerprint() and "RN(7, 300" in repr(graph)
    assert not np.array_equal(make_random_network(*shape, random_state=6).edges, whole)
    np.testing.assert_array_equal(
        make_random_network(*shape, random_state=np.random.default_rng(1)).edges,
        make_random_network(*shape, random_state=np.random.default_rng(1)).edges,
    )


def test_the_same_network_for_good():
    """Figures in papers and reports name a seed: the edges of a seed do not change."""
    edges = make_random_network(5, 100, 16, 0.8).edges
    assert edges[[0, 1, -1]].tolist() == [[198, 199], [200, 293], [120, 491]]
    assert int((edges.astype(np.int64) @ [1000, 1]).sum()) == 862_749_803


def test_save_and_open(tmp_path):
    network = make_random_network(3, 20, 4, 0.9)
    graph = open_graph(network.save(tmp_path / "rn.npz"))
    for opened in (graph, open_graph(network)):
        assert (opened.n_nodes, opened.shape) == (60, (120, 2))
        np.testing.assert_array_equal(opened.read(0, 120), network.edges)
        np.testing.assert_array_equal(opened.labels, network.labels)
    with pytest.raises(InputError, match=r"should end in \.npz"):
        network.save(tmp_path / "rn.txt")


@pytest.mark.parametrize(
    ("shape", "sentence"),
    [
        ((0, 10, 2, 0.5), "n_clusters=0 should be an integer >= 1"),
        ((2, 1.5, 2, 0.5), "cluster_size=1.5 should be an integer >= 1"),
        ((2, 10, -1, 0.5), "degree=-1 should be"),
        ((2, 10, 2, 1.5), "p_in=1.5 should be a probability"),
        ((2, 10, 2, float("nan")), "p_in=nan should be"),
        ((2**16, 2**16, 2, 0.5), "at most 2147483647 nodes"),
        ((3, 4, 8, 1.0), "need 48 different edges within clusters, but there are only 18 pairs"),
        ((1, 10, 4, 0.0), "need 20 different edges between clusters, but there are only 0 pairs"),
    ],
)
def test_networks_that_cannot_be(shape, sentence):
    with pytest.raises(InputError, match=sentence):
        make_random_network(*shape)


def test_other_refusals():
    with pytest.raises(InputError, match="device='tpu'"):
        make_random_network(2, 10, 2, 0.5, device="tpu")
    with pytest.raises(InputError, match="should lie within 0 to 20"):
        random_network_edges(2, 10, 2, 0.5, 0, 5, 21)
