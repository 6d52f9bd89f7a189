"""Evidence for communities: random graphs with the same degrees, removed edges, and the consensus of several seeds."""

from __future__ import annotations

import dataclasses
import json
import warnings
from itertools import pairwise
from typing import Any

import networkx as nx
import numpy as np
import pytest
from sklearn.metrics import adjusted_rand_score

from mgclust import Communities, InputError, modularity
from mgclust.algorithms.communities import evidence
from mgclust.algorithms.communities.evidence import agreement, effective_edges, expected_modularity
from mgclust.algorithms.communities.levels import Level, spread
from mgclust.algorithms.communities.random_graphs import entry_rows, exchange_ends, rewired, thinned
from mgclust.base.errors import WeakStructureWarning
from mgclust.cli import run_command
from mgclust.engine.partition import Partition
from mgclust.engine.transport.comm import SoloComm
from mgclust.kernels import load
from mgclust.kernels.graph.adjacency import Gain
from oracles import communities_evidence as oracle
from support.graphs import load_graph

KERNELS = load("cpu")


def edges_of(graph: nx.Graph) -> np.ndarray:
    graph = nx.convert_node_labels_to_integers(graph)
    return np.array(sorted(tuple(sorted(edge)) for edge in graph.edges if edge[0] != edge[1]), np.int32).reshape(-1, 2)


def level_of(edges: np.ndarray, n: int, weights: Any = None, loops: Any = None) -> Level:
    """A graph on one rank; `loops` is what self-loops add to the strengths."""
    weights = None if weights is None else np.asarray(weights, np.int32)
    each = np.ones(len(edges), np.int64) if weights is None else weights.astype(np.int64)
    strength = np.zeros(n, np.int64) if loops is None else np.array(loops, np.int64)
    np.add.at(strength, edges.ravel(), np.repeat(each, 2))
    rows = KERNELS.graph.rows_of_edges([(edges[:, 0].copy(), edges[:, 1].copy(), weights)], count=n)
    gain = Gain(int(strength.sum()), 1.0, True)
    return spread(KERNELS, SoloComm(Partition(1, 1, 1), 1), rows, strength, gain, 0)


def entries(level: Level) -> dict[tuple[int, int], int]:
    weights = np.ones(level.rows.entries, int) if level.rows.weights is None else level.rows.weights
    found = zip(entry_rows(level).tolist(), level.rows.columns.tolist(), weights.tolist(), strict=True)
    return {(row, column): weight for row, column, weight in found}


GRAPHS = {
    "random": nx.gnm_random_graph(40, 120, seed=1),
    "hubs": nx.barabasi_albert_graph(60, 2, seed=1),
    "star": nx.star_graph(9),
    "complete": nx.complete_graph(7),
    "two cliques": nx.barbell_graph(5, 0),
    "tree": nx.random_labeled_tree(30, seed=2),
    "components": nx.disjoint_union_all([nx.cycle_graph(4), nx.complete_graph(4), nx.empty_graph(3)]),
    "two edges": nx.Graph([(0, 1), (2, 3)]),
    "one edge": nx.Graph([(0, 1)]),
    "no edge": nx.empty_graph(3),
}


@pytest.mark.parametrize("name", GRAPHS)
def test_ends_are_exchanged_as_the_oracle_does(name: str) -> None:
    edges = edges_of(GRAPHS[name])
    n = GRAPHS[name].number_of_nodes()
    for seed in range(3):
        u, v, source = exchange_ends(KERNELS, edges[:, 0], edges[:, 1], seed, rounds=3)
        expected, place = oracle.exchange_ends([tuple(edge) for edge in edges.tolist()], seed, rounds=3)
        assert list(zip(u.tolist(), v.tolist(), strict=True)) == expected
        assert source.tolist() == place
        found = {tuple(sorted(edge)) for edge in expected}
        assert len(found) == len(edges)
        assert all(a != b for a, b in found)
        np.testing.assert_array_equal(
            np.bincount(np.concatenate([u, v]), minlength=n), np.bincount(edges.ravel(), minlength=n)
        )


def test_little_of_a_lattice_is_left() -> None:
    edges = edges_of(nx.circulant_graph(2000, [1, 2, 3]))
    u, v, _ = exchange_ends(KERNELS, edges[:, 0], edges[:, 1], 0)
    old = set(map(tuple, edges.tolist()))
    left = sum((min(edge), max(edge)) in old for edge in zip(u.tolist(), v.tolist(), strict=True))
    assert left < 0.01 * len(edges)


def test_weights_stay_with_edges_and_loops_with_nodes() -> None:
    edges = edges_of(GRAPHS["random"])
    weights = np.arange(1, len(edges) + 1)
    loops = np.arange(40) * 2
    level = level_of(edges, 40, weights, loops)
    random = rewired(level, 5)
    assert sorted(entries(random).values()) == sorted(np.repeat(weights, 2).tolist())
    sums = np.zeros(40, np.int64)
    for (row, _), weight in entries(random).items():
        sums[row] += weight
    np.testing.assert_array_equal(random.strength, sums + loops)
    assert random.gain == level.gain
    assert entries(rewired(level, 5)) == entries(random) != entries(rewired(level, 6))


@pytest.mark.parametrize("weighted", [False, True])
def test_random_graphs_do_not_depend_on_the_order_of_columns(weighted: bool) -> None:
    edges = edges_of(GRAPHS["random"])
    level = level_of(edges, 40, np.arange(1, len(edges) + 1) if weighted else None, np.zeros(40, np.int64))
    expected = entries(rewired(level, 5))
    starts, order = level.rows.starts.tolist(), np.arange(level.rows.entries)
    for start, stop in pairwise(starts):
        order[start:stop] = order[start:stop][::-1]
    weights = None if level.rows.weights is None else level.rows.weights[order]
    shuffled = dataclasses.replace(level.rows, columns=level.rows.columns[order], weights=weights, plan={})
    assert entries(rewired(dataclasses.replace(level, rows=shuffled), 5)) == expected


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("removed", [0.0, 0.1, 0.5])
def test_edges_are_removed_as_the_oracle_does(removed: float, weighted: bool) -> None:
    edges = edges_of(GRAPHS["random"])
    weights = np.arange(1, len(edges) + 1) if weighted else np.ones(len(edges), int)
    loops = np.arange(40) * 2
    thin = thinned(level_of(edges, 40, weights if weighted else None, loops), 3, removed)
    kept = oracle.kept([tuple(edge) for edge in edges.tolist()], 3, removed)
    expected = {
        tuple(edge): int(weight) for edge, weight, stays in zip(edges.tolist(), weights, kept, strict=True) if stays
    }
    assert entries(thin) == expected | {edge[::-1]: weight for edge, weight in expected.items()}
    strength = loops.copy()
    for edge, weight in expected.items():
        strength[list(edge)] += weight
    np.testing.assert_array_equal(thin.strength, strength)
    assert thin.gain.two_m == strength.sum()
    assert thin.entries == 2 * len(expected)


def test_agreement_is_that_of_the_oracle_and_of_scikit_learn() -> None:
    rng = np.random.default_rng(0)
    for n, first, second in [(1, 1, 1), (2, 2, 1), (50, 4, 6), (50, 1, 1), (50, 50, 50), (300, 9, 9)]:
        labels, found = (rng.integers(0, most, n).astype(np.int32) for most in (first, second))
        ari, jaccard = agreement(KERNELS, labels, found)
        assert ari == pytest.approx(adjusted_rand_score(labels, found))
        np.testing.assert_allclose(jaccard, oracle.jaccard(labels.tolist(), found.tolist()))
    ari, jaccard = agreement(KERNELS, np.array([3, 3, 0], np.int32), np.array([0, 0, 1], np.int32))
    assert ari == 1
    np.testing.assert_array_equal(jaccard, [1, np.nan, np.nan, 1])


def test_expected_modularity_has_no_unit(monkeypatch: pytest.MonkeyPatch) -> None:
    edges = edges_of(GRAPHS["random"])
    plain = level_of(edges, 40)
    degree = np.bincount(edges.ravel(), minlength=40)
    linked = degree[degree > 0]
    formula = 1.455 * linked.mean() ** -0.15 * np.sqrt(linked).mean() / linked.mean()
    assert expected_modularity(plain) == pytest.approx(formula)
    assert effective_edges(plain) == len(edges)
    monkeypatch.setattr(evidence, "PIECE", 7)
    for scale in (1, 1000, 2**24):
        weighted = level_of(edges, 40, np.full(len(edges), scale))
        weighted = dataclasses.replace(weighted, gain=Gain(weighted.gain.two_m, 1.0, False))
        assert expected_modularity(weighted) == pytest.approx(formula)
        assert effective_edges(weighted) == len(edges)


def fit(graph: Any, **parameters: Any) -> tuple[Communities, list[str]]:
    """Return the fitted estimator, and its warnings about weak communities."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        model = Communities(device="cpu", client=None, **parameters).fit(graph)
    return model, [str(each.message) for each in caught if each.category is WeakStructureWarning]


RANDOM = {
    "mean degree 3": nx.gnm_random_graph(600, 900, seed=1),
    "mean degree 10": nx.gnm_random_graph(500, 2500, seed=2),
    "few nodes": nx.gnm_random_graph(30, 60, seed=3),
    "regular": nx.random_regular_graph(4, 500, seed=4),
    "hubs": nx.barabasi_albert_graph(600, 3, seed=5),
}


@pytest.mark.parametrize("name", RANDOM)
def test_random_graphs_are_doubted(name: str) -> None:
    model, doubts = fit(RANDOM[name])
    assert len(doubts) == 1
    assert "random edges" in doubts[0]
    assert len(model.significance_["rewired"]) in (1, 5)
    assert model.significance_["p_value"] is None
    sure, doubts = fit(RANDOM[name], null=8)
    assert len(doubts) == 1
    found = sure.significance_
    assert len(found["rewired"]) == 8
    assert found["mean"] == pytest.approx(np.mean(found["rewired"]))
    assert found["p_value"] == (1 + sum(each >= sure.modularity_ for each in found["rewired"])) / 9
    assert fit(RANDOM[name], null=0)[1] == []


# 12 groups of 10 nodes; 79% of the edges are inside.
GROUPS = edges_of(nx.planted_partition_graph(12, 10, 0.9, 0.02, seed=1))
KNOWN = {
    "karate": load_graph("karate"),
    "karate with weights": nx.karate_club_graph(),
    "les miserables": nx.les_miserables_graph(),
    "groups": GROUPS,
    "two cliques": nx.barbell_graph(6, 0),
}


@pytest.mark.parametrize("name", KNOWN)
def test_known_communities_are_not_doubted(name: str) -> None:
    assert fit(KNOWN[name])[1] == []
    model, doubts = fit(KNOWN[name], null=8)
    assert doubts == []
    assert model.significance_["p_value"] == 1 / 9
    assert fit(KNOWN[name], null=8)[0].significance_ == model.significance_


@pytest.mark.parametrize("name", ["star", "complete", "components", "one edge", "two edges", "no edge"])
def test_nothing_is_doubted_where_no_communities_were_found(name: str) -> None:
    for parameters in ({}, {"null": 6, "stability": 3, "consensus": 3}):
        model, doubts = fit((edges_of(GRAPHS[name]), GRAPHS[name].number_of_nodes()), **parameters)
        assert doubts == []
        assert np.isfinite(model.modularity_)


def test_large_random_graphs_are_doubted_by_an_estimate(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(evidence, "SHARED_ENTRIES", 100)
    model, doubts = fit(RANDOM["mean degree 10"])
    assert len(doubts) == 1
    assert "estimated" in doubts[0]
    assert model.significance_ is None
    assert fit(GROUPS)[1] == []


def test_the_search_in_random_graphs_is_that_of_the_fit() -> None:
    """With CPM, greedy merging or another resolution, random graphs are judged by the same objective."""
    graph = GROUPS
    for parameters in (
        {"objective": "cpm", "resolution": 0.2},
        {"strategy": "greedy"},
        {"resolution": 2.0},
        {"n_clusters": 9},
        {"resolutions": [0.5, 1.0]},
    ):
        model, _ = fit(graph, null=2, **parameters)
        assert len(model.significance_["rewired"]) == 2
        assert model.significance_["mean"] < model.quality_
        if parameters != {"strategy": "greedy"}:
            assert fit(graph, **parameters)[0].significance_ is None


def test_stability() -> None:
    model, doubts = fit(GROUPS, stability=4)
    assert doubts == []
    found = model.stability_
    assert len(found["ari"]) == len(found["n_clusters"]) == 4
    assert found["mean"] > 0.8
    assert found["jaccard"].shape == (model.n_clusters_,)
    np.testing.assert_array_equal(model.result_.arrays["stability"], found["jaccard"])
    assert model.result_.scores["stability"] == found["mean"]
    random, doubts = fit(RANDOM["mean degree 10"], stability=3)
    assert any("unstable" in text for text in doubts)
    assert random.stability_["mean"] < 0.3


def test_stability_has_the_ids_of_init() -> None:
    edges = edges_of(nx.barbell_graph(8, 0))
    model, _ = fit(edges, init=[7] * 8 + [3] * 8, stability=3)
    assert model.labels_.tolist() == [7] * 8 + [3] * 8
    jaccard = model.stability_["jaccard"]
    assert np.flatnonzero(np.isfinite(jaccard)).tolist() == [3, 7]
    assert jaccard[3] == jaccard[7] == 1


def planted(degree: float, ratio: float, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Four groups of 150 nodes; `ratio` is the distance from the limit of detection."""
    gap = ratio * 4 * degree**0.5
    outside = degree - gap / 4
    graph = nx.planted_partition_graph(4, 150, (outside + gap) / 600, outside / 600, seed=seed)
    return edges_of(graph), np.repeat(np.arange(4), 150)


def test_consensus_depends_less_on_the_seed() -> None:
    edges, truth = planted(16, 1.6, 3)
    single = [fit((edges, 600), random_state=seed)[0].labels_ for seed in range(3)]
    both = [fit((edges, 600), random_state=seed, consensus=10)[0] for seed in range(3)]
    labels = [model.labels_ for model in both]

    def among(each: list[np.ndarray]) -> float:
        return float(np.mean([adjusted_rand_score(each[i], each[j]) for i in range(3) for j in range(i)]))

    assert among(labels) > among(single)
    assert np.mean([adjusted_rand_score(truth, each) for each in labels]) > np.mean(
        [adjusted_rand_score(truth, each) for each in single]
    )
    for model in both:
        assert model.modularity_ == pytest.approx(modularity((edges, 600), model.labels_, client=None, device="cpu"))
        graph = nx.Graph(edges.tolist())
        assert all(
            nx.is_connected(graph.subgraph(np.flatnonzero(model.labels_ == k))) for k in range(model.n_clusters_)
        )
        assert model.rounds_[-1]["unsure"] == 0 or len(model.rounds_) == 10


def test_consensus_of_clear_communities_is_the_single_result() -> None:
    edges = edges_of(nx.connected_caveman_graph(6, 6))
    single, both = fit(edges)[0], fit(edges, consensus=5)[0]
    np.testing.assert_array_equal(single.labels_, both.labels_)
    assert [entry["cycle"] for entry in both.rounds_] == [1]


@pytest.mark.parametrize(
    ("parameters", "told"),
    [
        ({"n_clusters": 2}, "n_clusters=2"),
        ({"strategy": "greedy"}, "strategy='greedy'"),
        ({"objective": "cpm", "resolution": 0.1}, "objective='cpm'"),
        ({"init": [0] * 16}, "cannot be combined with init"),
    ],
)
def test_consensus_needs_searches(parameters: dict[str, Any], told: str) -> None:
    with pytest.raises(InputError, match=f"consensus=3 .*{told}.*; leave one of them out"):
        fit(edges_of(nx.barbell_graph(8, 0)), consensus=3, **parameters)


@pytest.mark.parametrize("name", ["consensus", "null", "stability"])
def test_directions_are_refused(name: str) -> None:
    arcs = nx.gnm_random_graph(30, 90, seed=1, directed=True)
    with pytest.raises(InputError, match=f"{name}=3 cannot be combined with directed=True"):
        fit(arcs, directed=True, **{name: 3})
    assert fit(arcs, directed=True)[0].significance_ is None


@pytest.mark.parametrize("name", ["consensus", "null", "stability"])
@pytest.mark.parametrize("value", [-1, 2.5, "many", 10**6])
def test_bad_numbers_are_refused(name: str, value: Any) -> None:
    with pytest.raises(InputError, match=f"{name}="):
        fit([(0, 1)], **{name: value})


def test_command_line_and_report(tmp_path: Any, capsys: pytest.CaptureFixture[str]) -> None:
    edges = edges_of(nx.connected_caveman_graph(4, 6))
    np.savetxt(tmp_path / "g.csv", edges, fmt="%d", delimiter=",")
    arguments = ["run", "communities", str(tmp_path / "g.csv"), "-o", str(tmp_path / "out"), "--cpu"]
    assert not run_command([*arguments, "--null", "5", "--stability", "4", "--consensus", "3"])
    said = capsys.readouterr().out
    assert "in 5 graphs with the same degrees, p = 0.17" in said
    assert "in 4 graphs without 10% of the edges" in said
    told = json.loads((tmp_path / "out" / "result.json").read_text())
    assert len(told["diagnostics"]["significance"]["rewired"]) == 5
    assert told["diagnostics"]["stability"]["removed"] == 0.1
    assert np.load(tmp_path / "out" / "stability.npy").shape == (4,)
    assert "stability (mean Jaccard index)" in (tmp_path / "out" / "report.html").read_text()
