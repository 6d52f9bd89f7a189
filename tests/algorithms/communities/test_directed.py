"""Directed modularity (`directed=True`)."""

from __future__ import annotations

import itertools

import networkx as nx
import numpy as np
import pytest
from scipy.sparse import coo_array

from mgclust import Communities, FastNewman, InputError, load_result, modularity, open_graph
from mgclust.algorithms import base
from mgclust.algorithms.communities import directions, levels
from mgclust.base.errors import PrecisionWarning
from oracles import directed_modularity as oracle
from support import graphs

# Modularity that leidenalg 0.12 reached on the arcs of `web`: the better of two seeds with ten iterations.
LEIDEN = {"karate": 0.434343, "cora": 0.830236, "power": 0.944043, "hep-th": 0.860949}


def fit(graph, **parameters):
    return Communities(device="cpu", client=None, directed=True, **parameters).fit(graph)


def arcs_of(edges: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    return edges[:, :2].astype(int), edges[:, 2] if edges.shape[1] == 3 else np.ones(len(edges))


def web(name: str) -> tuple[np.ndarray, int]:
    """A stored graph, each edge in a random direction; a third of the edges in both."""
    edges, n = graphs.load_graph(name)
    rng = np.random.default_rng(0)
    turned = np.where(rng.random((len(edges), 1)) < 0.5, edges, edges[:, ::-1])
    return np.concatenate([turned, turned[rng.random(len(edges)) < 1 / 3][:, ::-1]]), n


@pytest.mark.parametrize("name", LEIDEN)
def test_modularity_is_that_of_leidenalg(name):
    arcs, n = web(name)
    model = fit((arcs, n))
    assert model.modularity_ > LEIDEN[name] * 0.997
    assert graphs.connected_communities(arcs, model.labels_)
    found = nx.DiGraph()
    found.add_nodes_from(range(n))
    found.add_edges_from(arcs.tolist())
    groups = [set(np.flatnonzero(model.labels_ == k).tolist()) for k in range(model.n_clusters_)]
    assert model.modularity_ == pytest.approx(nx.community.modularity(found, groups), abs=1e-12)


@pytest.mark.parametrize("weights", ["none", "integers", "floats"])
@pytest.mark.parametrize("resolution", [1.0, 0.4, 3.0])
def test_modularity_is_the_definition(weights, resolution):
    edges, n = graphs.random_graph(1, 200, 500, weights), 220
    model = fit((edges, n), resolution=resolution)
    expected = oracle.modularity(*arcs_of(edges), model.labels_, resolution)
    assert model.modularity_ == pytest.approx(expected, abs=1e-6 if weights == "floats" else 1e-12)
    assert model.quality_ == model.modularity_ == model.result_.scores["modularity"]
    options = {"directed": True, "client": None, "device": "cpu"}
    assert modularity((edges, n), model.labels_, resolution, **options) == model.modularity_
    anything = np.random.default_rng(0).integers(0, 9, n)
    expected = oracle.modularity(*arcs_of(edges), anything, resolution)
    assert modularity((edges, n), anything, resolution, **options) == pytest.approx(expected, abs=1e-6)


def partitions(n: int):
    """All partitions of n nodes."""
    for labels in itertools.product(*(range(v + 1) for v in range(n))):
        if all(label <= max(labels[:v], default=-1) + 1 for v, label in enumerate(labels)):
            yield np.array(labels)


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("seed", range(6))
def test_small_graphs_reach_the_best_of_all_partitions(seed):
    edges = graphs.random_graph(seed, 6, 10, ["none", "integers", "floats"][seed % 3])
    best = max(oracle.modularity(*arcs_of(edges), labels) for labels in partitions(6))
    assert fit((edges, 6)).modularity_ == pytest.approx(best, abs=1e-6)


def test_directions_decide():
    """Two rings of the same edges: arcs between them that all lead one way hold the rings together less."""
    rings = [(i, (i + 1) % 4) for i in range(4)] + [(4 + i, 4 + (i + 1) % 4) for i in range(4)]
    arcs = np.array(rings + [(0, 4), (1, 5), (6, 2), (7, 3)] * 2)
    for turned in (arcs, arcs[:, ::-1]):
        assert fit(turned).modularity_ == pytest.approx(oracle.modularity(*arcs_of(turned), fit(turned).labels_))
    hub = np.array([(i, 0) for i in range(1, 9)] + [(0, 9), (9, 10), (10, 9)])
    assert modularity(hub, np.zeros(11, int), client=None) == modularity(
        hub, np.zeros(11, int), directed=True, client=None
    )
    apart = np.array([0] * 9 + [1, 1])
    assert modularity(hub, apart, client=None) != modularity(hub, apart, directed=True, client=None)


def test_arcs_in_both_directions_are_the_undirected_graph():
    edges, n = graphs.load_graph("cora")
    model = fit((np.concatenate([edges, edges[:, ::-1]]), n))
    whole = Communities(device="cpu", client=None).fit((edges, n))
    assert np.array_equal(model.labels_, whole.labels_)
    assert model.modularity_ == pytest.approx(whole.modularity_, abs=1e-15)


def test_sources_with_and_without_directions(tmp_path):
    arcs = [(0, 1), (1, 2), (2, 0), (3, 4), (4, 5), (5, 3), (2, 3)]
    expected = fit(arcs).labels_
    sources = [nx.DiGraph(arcs), coo_array((np.ones(7), np.transpose(arcs)), shape=(6, 6)), np.array(arcs)]
    (tmp_path / "arcs.txt").write_text("# Directed graph\n" + "".join(f"{u} {v}\n" for u, v in arcs))
    (tmp_path / "arcs.mtx").write_text(
        "%%MatrixMarket matrix coordinate pattern general\n6 6 7\n" + "".join(f"{u + 1} {v + 1}\n" for u, v in arcs)
    )
    for source in [*sources, str(tmp_path / "arcs.txt"), str(tmp_path / "arcs.mtx")]:
        model = fit(source)
        assert np.array_equal(model.labels_, expected)
        assert model.result_.warnings == []
        assert Communities(client=None).fit(source).modularity_ != model.modularity_
    triangle = coo_array(([1.0, 1.0, 1.0], ([0, 0, 1], [1, 2, 2])), shape=(3, 3))  # may be arcs, which lead upwards
    assert fit(triangle).n_clusters_ == 1
    matrix = nx.to_scipy_sparse_array(nx.karate_club_graph())
    (tmp_path / "u.mtx").write_text("%%MatrixMarket matrix coordinate pattern symmetric\n3 3 2\n2 1\n3 1\n")
    (tmp_path / "g.mtx").write_text("%%MatrixMarket matrix coordinate pattern general\n3 3 4\n2 1\n1 2\n1 3\n3 1\n")
    (tmp_path / "u.graph").write_text("3 2\n2\n1 3\n2\n")
    files = [str(tmp_path / name) for name in ("u.mtx", "g.mtx", "u.graph")]
    for source in (nx.karate_club_graph(), matrix, matrix.toarray(), *files):
        assert open_graph(source).undirected
        for ask in (fit, lambda source: modularity(source, np.zeros(3, int), directed=True, client=None)):
            with pytest.raises(InputError, match=r"directed=True needs edges with a direction, but .* is undirected"):
                ask(source)


def test_what_does_not_go(monkeypatch, tmp_path):
    arcs, n = web("karate")
    model = fit((arcs, n))
    for ask in (lambda: model.merges_, lambda: model.cut(3), model.linkage):
        with pytest.raises(InputError, match="directed=True has no merges"):
            ask()
    for parameters, words in (
        ({"n_clusters": 2}, "n_clusters=2 needs merges"),
        ({"strategy": "greedy"}, "strategy='greedy' needs merges"),
        ({"objective": "cpm"}, "cannot be combined with objective='cpm'"),
    ):
        with pytest.raises(InputError, match=words):
            fit((arcs, n), **parameters)
    with pytest.raises(InputError, match="directed='maybe' should be"):
        modularity((arcs, n), model.labels_, directed="maybe")
    with pytest.raises(TypeError):
        FastNewman(directed=True)
    model.result_.save(tmp_path / "out")
    assert load_result(tmp_path / "out").parameters["directed"] is True
    assert "directed modularity (Leicht and Newman 2008)" in model.result_.methods_text()
    monkeypatch.setattr(directions, "MAX_ARCS", 50)
    with pytest.raises(InputError, match="directed=True takes at most 50 edges"):
        fit((arcs, n))


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize(
    ("edges", "n"),
    [
        ([(0, i) for i in range(1, 6)], 6),
        ([(i, 0) for i in range(1, 6)], 6),
        ([(i, i + 1) for i in range(5)], 7),
        (np.zeros((0, 2), np.int32), 5),
        ([(0, 1)] * 100_000 + [(1, 2)], 3),
        ([(0, 0), (0, 1), (1, 1)], 3),
        (np.array([(0.0, 1.0, 0.0), (1.0, 2.0, 1e-12), (2.0, 3.0, 1.0), (3.0, 2.0, 0.3)]), 5),
        (np.array([(0, 1, 2.0**30), (1, 0, 2.0**30 - 1), (2, 3, 5.0), (3, 4, 7.0)]), 5),  # integers, float64 gains
        (np.array([(0, 1, 2.0**40), (1, 2, 2.0**41 + 1), (3, 4, 2.0**39), (2, 1, 3.0)]), 5),  # scaled
    ],
)
def test_odd_graphs(edges, n):
    arcs, weights = arcs_of(np.asarray(edges, float))
    best = max(oracle.modularity(arcs, weights, labels) for labels in partitions(n))
    for start in ({}, {"init": np.zeros(n, int)}, {"init": np.arange(n) % 2, "fixed": [0, n - 1]}):
        model = fit((edges, n), **start)
        assert model.modularity_ == pytest.approx(oracle.modularity(arcs, weights, model.labels_), abs=1e-8)
        if "fixed" in start:
            assert model.labels_[[0, n - 1]].tolist() == [0, (n - 1) % 2]
        elif not start:
            assert model.modularity_ == pytest.approx(best, abs=1e-8)


def test_weights_are_rounded_to_fewer_bits(monkeypatch):
    edges, n = graphs.random_graph(3, 300, 2_000, "floats"), 300
    assert fit((edges, n)).result_.warnings == []
    monkeypatch.setattr(levels, "DIRECTED_BITS", 18)
    with pytest.warns(PrecisionWarning, match="because directed=True rounds to 30 bits"):
        model = fit((edges, n))
    assert 1e-4 < model.result_.diagnostics["weight_rounding"] < 0.05
    assert model.modularity_ == pytest.approx(oracle.modularity(*arcs_of(edges), model.labels_), abs=1e-2)


def test_several_resolutions_share_the_graph():
    arcs, n = web("karate")
    model = fit((arcs, n), resolutions=[1.0, 0.3, 2.0])
    for at, resolution in enumerate([1.0, 0.3, 2.0]):
        alone = fit((arcs, n), resolution=resolution)
        assert np.array_equal(model.labels_for(resolution), alone.labels_)
        assert model.result_.arrays["scan_modularity"][at] == alone.modularity_


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.xdist_group("workers")
@pytest.mark.parametrize("weights", ["none", "integers", "floats"])
def test_the_same_bits_on_any_number_of_ranks(weights, ranks, monkeypatch):
    edges, n = graphs.random_graph(4, 3_000, 9_000, weights), 3_200
    edges = np.concatenate([edges, edges[:200]])
    edges[:2_000, 1] = edges[:2_000, 1] % 5  # nodes that many arcs enter and few leave
    init = np.random.default_rng(0).integers(-1, 300, n)
    for start in ({}, {"init": init, "fixed": np.flatnonzero(init >= 0)[:50]}):
        found = []
        for size in (1, 2, 3, 4):
            monkeypatch.setattr(base, "connect", lambda size=size, **_: ranks(size))
            model = Communities(device="cpu", directed=True, **start).fit((edges, n))
            found.append((model.labels_.tobytes(), model.modularity_, repr(model.rounds_)))
        assert found[0] == found[1] == found[2] == found[3]
