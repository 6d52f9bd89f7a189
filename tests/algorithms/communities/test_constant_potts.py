"""Communities of the constant Potts model (`objective="cpm"`)."""

from __future__ import annotations

import itertools

import networkx as nx
import numpy as np
import pytest

from mgclust import Communities, InputError, load_result, modularity
from mgclust.algorithms import base
from mgclust.base.errors import DegenerateClustersWarning
from support import graphs

# The qualities that leidenalg 0.12 reached, halved: the better of two seeds with ten iterations.
LEIDEN = {
    ("karate", 0.1): 43.1,
    ("cora", 0.01): 3745.11,
    ("cora", 0.1): 2430.6,
    ("cora", 0.5): 819.0,
    ("netscience", 0.1): 2117.9,
    ("power", 0.1): 3445.5,
    ("power", 0.5): 1109.5,
}


def fit(graph, **parameters):
    return Communities(device="cpu", client=None, objective="cpm", **parameters).fit(graph)


def quality(edges, labels, resolution) -> float:
    """The definition, in plain Python."""
    weight = edges[:, 2] if edges.shape[1] == 3 else np.ones(len(edges))
    inside = sum(w for (u, v), w in zip(edges[:, :2].astype(int), weight, strict=True) if labels[u] == labels[v])
    sizes = np.unique(labels, return_counts=True)[1]
    return float(inside - resolution * sum(k * (k - 1) / 2 for k in sizes.tolist()))


@pytest.mark.parametrize(("name", "resolution"), LEIDEN)
def test_the_quality_is_that_of_leidenalg(name, resolution):
    model = fit(graphs.load_graph(name), resolution=resolution)
    assert model.quality_ > LEIDEN[name, resolution] * 0.997
    assert graphs.connected_communities(graphs.load_graph(name)[0], model.labels_)


@pytest.mark.parametrize("weights", ["none", "integers", "floats"])
@pytest.mark.parametrize("resolution", [0.02, 0.3, 3.0])
def test_quality_is_the_definition(weights, resolution):
    edges, n = graphs.random_graph(1, 200, 500, weights), 220
    model = fit((edges, n), resolution=resolution)
    assert model.quality_ == pytest.approx(quality(edges, model.labels_, resolution), rel=1e-9, abs=1e-9)
    assert model.modularity_ == modularity((edges, n), model.labels_, client=None, device="cpu")
    assert model.result_.scores["quality"] == model.quality_
    assert model.rounds_[-1]["quality"] <= model.quality_ + 1e-9


def partitions(n: int):
    """All partitions of n nodes."""
    for labels in itertools.product(*(range(v + 1) for v in range(n))):
        if all(label <= max(labels[:v], default=-1) + 1 for v, label in enumerate(labels)):
            yield np.array(labels)


@pytest.mark.parametrize("seed", range(4))
def test_small_graphs_reach_the_best_of_all_partitions(seed):
    rng = np.random.default_rng(seed)
    edges = rng.integers(0, 6, (9, 2))
    for resolution in (0.1, 0.6, 1.3):
        best = max(quality(edges, labels, resolution) for labels in partitions(6))
        assert fit((edges, 6), resolution=resolution).quality_ == pytest.approx(best)


def test_the_rest_of_the_graph_does_not_count():
    for count in (4, 40, 400):
        ring = nx.ring_of_cliques(count, 4)
        assert fit(ring, resolution=0.1).n_clusters_ == count


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize(
    ("edges", "n", "expected"),
    [
        ([(0, i) for i in range(1, 6)], 6, 0.4),  # a star: pairs, above the density of a path
        ([(i, i + 1) for i in range(6)], 7, 0.9),
        (np.zeros((0, 2), np.int32), 5, 0.5),
        ([(0, 1)] * 100_000 + [(1, 2)], 3, 0.5),
        (np.array([(0.0, 1.0, 0.0), (1.0, 2.0, 1e-12), (2.0, 3.0, 1.0)]), 5, 0.5),
        ([(0, 0), (0, 1)], 2, 2.0),
    ],
)
def test_odd_graphs(edges, n, expected):
    for start in ({}, {"init": np.zeros(n, int)}, {"init": np.arange(n) % 2, "fixed": [0, n - 1]}):
        model = fit((edges, n), resolution=expected, **start)
        found = quality(np.asarray(edges, float), model.labels_, expected)
        assert model.quality_ == pytest.approx(found, rel=1e-9, abs=1e-9)
        if "fixed" in start:
            assert model.labels_[[0, n - 1]].tolist() == [0, (n - 1) % 2]
        else:
            best = max(quality(np.asarray(edges, float), labels, expected) for labels in partitions(n))
            assert model.quality_ == pytest.approx(best, rel=1e-9, abs=1e-9)


def test_a_start_that_is_far_too_large_falls_apart():
    edges, n = graphs.load_graph("cora")
    model = fit((edges, n), resolution=1e6, init=np.zeros(n, int))
    assert model.n_clusters_ == n
    assert np.array_equal(np.sort(model.labels_), np.arange(n))


def test_the_bound_of_the_resolution_follows_the_weights():
    edges = np.array([(0, 1), (1, 2), (0, 2), (2, 3)])
    for scale in (1e-310, 1e-30, 1.0, 1e12, 1e200):
        weights = np.array([3.0, 2.0, 3.0, 1.0]) * scale
        model = fit((edges, weights), resolution=2 * scale)
        assert model.labels_.tolist() == [0, 0, 0, 1]
        assert model.quality_ == pytest.approx(2 * scale, rel=1e-6)
        with pytest.warns(DegenerateClustersWarning):
            assert fit((edges, weights), resolution=1e9 * scale).n_clusters_ == 4
        too_much = min(1e60 * scale, 1e300)
        with pytest.raises(InputError, match=r"resolution=.* should be at most .* for weights of this size"):
            fit((edges, weights), resolution=too_much)
    for wrong in ({"resolution": 2e6}, {"resolutions": [1.0, 2e6]}):
        with pytest.raises(InputError, match=r"resolutions?=2000000.0 should be a finite number > 0 and <= 1000000"):
            Communities(client=None, **wrong).fit(edges)


def test_several_resolutions_and_what_does_not_go(tmp_path):
    edges, n = graphs.load_graph("karate")
    model = fit((edges, n), resolutions=[0.1, 0.05, 0.3])
    for at, resolution in enumerate([0.1, 0.05, 0.3]):
        alone = fit((edges, n), resolution=resolution)
        assert np.array_equal(model.labels_for(resolution), alone.labels_)
        assert model.result_.arrays["scan_quality"][at] == alone.quality_
    model.result_.save(tmp_path / "out")
    tables = model.presentation.tables(load_result(tmp_path / "out"))
    assert "CPM quality" in tables[1].columns
    assert "constant Potts model (Traag et al. 2011)" in model.result_.methods_text()
    for ask in (lambda: model.merges_, lambda: model.cut(3), model.linkage):
        with pytest.raises(InputError, match="objective='cpm' has no merges"):
            ask()
    for parameters, words in (
        ({"n_clusters": 2}, "n_clusters=2 needs merges"),
        ({"strategy": "greedy"}, "needs merges"),
    ):
        with pytest.raises(InputError, match=words):
            fit((edges, n), **parameters)
    with pytest.warns(DegenerateClustersWarning, match="no merge raises the quality at resolution=3"):
        fit((edges, n), resolution=3)


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.xdist_group("workers")
@pytest.mark.parametrize("weights", ["none", "integers", "floats"])
def test_the_same_bits_on_any_number_of_ranks(weights, ranks, monkeypatch):
    edges, n = graphs.random_graph(4, 3_000, 9_000, weights), 3_200
    init = np.random.default_rng(0).integers(-1, 300, n)
    for start in ({}, {"init": init, "fixed": np.flatnonzero(init >= 0)[:50]}):
        found = []
        for size in (1, 2, 3, 4):
            monkeypatch.setattr(base, "connect", lambda size=size, **_: ranks(size))
            model = Communities(device="cpu", objective="cpm", resolution=0.1, **start).fit((edges, n))
            found.append((model.labels_.tobytes(), model.quality_, repr(model.rounds_)))
        assert found[0] == found[1] == found[2] == found[3]


@pytest.mark.parametrize(
    ("graph", "resolution", "least"),
    [
        (nx.star_graph(300), 0.1, 4.0),
        (nx.star_graph(1000), 0.2, 2.0),
        (nx.star_graph(1000), 0.05, 9.5),
        (nx.balanced_tree(30, 2), 0.4, 20.0),
        (nx.complete_bipartite_graph(3, 200), 0.4, 2.5),
    ],
)
def test_leaves_that_join_a_hub_at_once_do_not_overshoot(graph, resolution, least):
    """All leaves of a class joined the hub, and the quality was far below that of single nodes, which is 0."""
    for seed in range(3):
        settings = {"objective": "cpm", "resolution": resolution, "client": None, "device": "cpu"}
        assert Communities(random_state=seed, **settings).fit(graph).quality_ >= least
        alone = list(range(graph.number_of_nodes()))
        assert Communities(init=alone, random_state=seed, **settings).fit(graph).quality_ >= 0
