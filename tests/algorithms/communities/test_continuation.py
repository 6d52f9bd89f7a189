"""Fits that begin with known communities (`init`), some of whose nodes are fixed (`fixed`)."""

from __future__ import annotations

import hashlib
import json
from collections import Counter

import networkx as nx
import numpy as np
import pytest

from mgclust import Communities, InputError, load_result, modularity
from mgclust.algorithms import base
from mgclust.algorithms.communities import clusterer
from mgclust.base.errors import DataWarning
from mgclust.datasets import make_random_network
from mgclust.kernels import load
from mgclust.outside.rooted_files import RootedFile
from support import graphs

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")


def fit(graph, **parameters):
    return Communities(device="cpu", client=None, **parameters).fit(graph)


def connected(edges, labels, nodes) -> bool:
    """Whether the given nodes of one community are connected inside it."""
    inside = nx.Graph()
    inside.add_nodes_from(nodes)
    inside.add_edges_from((u, v) for u, v in np.asarray(edges)[:, :2].astype(int).tolist() if {u, v} <= set(nodes))
    return nx.is_connected(inside)


def ids_by_definition(labels, init) -> np.ndarray:
    """The rules of `mgclust.algorithms.communities.continuation`, without fixed nodes, in plain Python."""
    labels, init = labels.tolist(), init.tolist()
    groups = sorted({label: [v for v, other in enumerate(labels) if other == label] for label in labels}.values())
    initial = {c: {v for v, other in enumerate(init) if other == c} for c in sorted(set(init) - {-1})}
    goes = {c: max(range(len(groups)), key=lambda g: (len(nodes & set(groups[g])), -g)) for c, nodes in initial.items()}
    free = (number for number in range(len(labels) + len(initial)) if number not in initial)
    out = np.empty(len(labels), np.int32)
    for g, nodes in enumerate(groups):
        mine = [c for c in initial if goes[c] == g]
        out[nodes] = max(mine, key=lambda c: (len(initial[c] & set(nodes)), -c)) if mine else next(free)
    return out


def updated(edges, n, share, seed):
    """Replace a share of the edges by random ones."""
    rng = np.random.default_rng(seed)
    k = int(len(edges) * share)
    return np.concatenate([edges[rng.permutation(len(edges))[k:]], rng.integers(0, n, (k, 2)).astype(edges.dtype)])


@pytest.mark.parametrize("name", ["karate", "cora", "netscience"])
def test_a_fit_that_begins_with_its_own_labels_keeps_them(name):
    edges, n = graphs.load_graph(name)
    whole = fit((edges, n))
    again = fit((edges, n), init=whole.labels_)
    assert again.modularity_ >= whole.modularity_
    assert (again.labels_ == whole.labels_).mean() > 0.99
    renamed = whole.labels_ * 7 + 3
    assert np.array_equal(fit((edges, n), init=renamed).labels_, again.labels_ * 7 + 3)


@pytest.mark.parametrize("share", [0.01, 0.1])
def test_an_update_is_nearly_as_good_as_a_whole_run(share):
    edges, n = graphs.load_graph("cora")
    before = fit((edges, n))
    edges = updated(edges, n, share, 0)
    whole, update = fit((edges, n)), fit((edges, n), init=before.labels_)
    assert update.modularity_ > whole.modularity_ - 0.004
    assert (update.labels_ == before.labels_).mean() > 1 - 3 * share
    assert update.modularity_ == modularity((edges, n), update.labels_, client=None, device="cpu")
    assert update.n_clusters_ == len(np.unique(update.labels_))
    assert graphs.connected_communities(edges, update.labels_)


def test_an_update_reads_the_edges_few_times(monkeypatch):
    """The edges are read for components, parts before and after, a sweep, a contraction, and the modularity twice."""
    made = make_random_network(50, 40, 12, p_in=0.7)
    before = fit((made.edges, made.n_nodes))
    edges, passes = updated(made.edges, made.n_nodes, 0.01, 0), Counter()
    kernels = load("cpu").graph

    def counted(name):
        original = getattr(kernels, name)

        def call(rows, *arguments, **others):
            passes[name] += rows.rows == made.n_nodes
            return original(rows, *arguments, **others)

        return call

    for name in ("propagate_roots", "cross_weight", "contract", "best_partners"):
        monkeypatch.setattr(kernels, name, counted(name))
    model = fit((edges, made.n_nodes), init=before.labels_)
    assert passes == {"propagate_roots": 3, "cross_weight": 2, "contract": 1}
    assert model.modularity_ == modularity((edges, made.n_nodes), model.labels_, client=None, device="cpu")


@pytest.mark.parametrize("share", [0.01, 0.03])
def test_nodes_stay_where_they_moved_if_communities_should_not_join(share):
    """In these graphs, communities that join at once lower the modularity together, after nodes have raised it."""
    made = make_random_network(300, 8, 5, p_in=0.8)
    before = fit((made.edges, made.n_nodes), random_state=3)
    update = fit((updated(made.edges, made.n_nodes, share, 3), made.n_nodes), init=before.labels_, random_state=3)
    assert update.modularity_ > {0.01: 0.82693, 0.03: 0.81033}[share]
    assert (update.labels_ != before.labels_).sum() < 50


@pytest.mark.parametrize("seed", range(8))
def test_ids_follow_the_rules(seed):
    rng = np.random.default_rng(seed)
    n = int(rng.integers(2, 60))
    edges = graphs.random_graph(seed, n, 2 * n, ["none", "integers", "floats"][seed % 3])
    init = rng.choice([-1, 0, 3, 4, 9], n)
    model = fit((edges, n), init=init)
    assert np.array_equal(model.labels_, ids_by_definition(model.labels_, init))
    assert model.n_clusters_ == len(np.unique(model.labels_))
    assert model.result_.scores["n_clusters"] == model.n_clusters_
    assert graphs.connected_communities(edges[edges[:, 2] > 0] if edges.shape[1] == 3 else edges, model.labels_)
    assert len(model.merges_) == n - 1
    assert np.array_equal(model.cut(n), np.arange(n))


@pytest.mark.parametrize("first", ["one", "random", "none", "alone"])
def test_bad_communities_at_the_start_do_not_last(first):
    edges, n = graphs.load_graph("cora")
    labels = {
        "one": np.zeros(n, int),
        "random": np.random.default_rng(0).integers(0, 50, n),
        "none": np.full(n, -1),
        "alone": np.arange(n),
    }
    assert fit((edges, n), init=labels[first]).modularity_ > fit((edges, n)).modularity_ - 0.006


CLIQUES = [(i, j) for i in range(5) for j in range(i)] + [(i + 5, j + 5) for i in range(5) for j in range(i)] + [(0, 5)]
SHAPES = {
    "star": ([(0, i) for i in range(1, 9)], 9),
    "path": ([(i, i + 1) for i in range(9)], 10),
    "cliques joined by an edge": (CLIQUES, 10),
    "isolated nodes": ([(0, 1), (1, 2)], 10),
    "no edges": (np.zeros((0, 2), np.int32), 10),
    "zero weights": (np.array([(0.0, 1.0, 0.0), (1.0, 2.0, 0.0), (2.0, 3.0, 1.0)]), 6),
    "repeated edges and loops": ([(0, 1)] * 1000 + [(1, 2)] + [(5, 5)] * 3, 6),
}


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("start", ["one", "two", "gaps", "mixed"])
@pytest.mark.parametrize("fixed", [None, [0, 4, 5]])
def test_odd_graphs(shape, start, fixed):
    edges, n = SHAPES[shape]
    edges = np.asarray(edges)
    init = {
        "one": np.zeros(n, int),
        "two": np.arange(n) % 2,
        "gaps": np.arange(n) * 1000 % 7000,
        "mixed": np.where(np.arange(n) % 3 == 1, -1, np.arange(n) % 3),
    }[start]
    if fixed is not None:
        fixed = np.array([v for v in fixed if init[v] >= 0])
    model = fit((edges, n), init=init, fixed=fixed)
    assert model.n_clusters_ == len(np.unique(model.labels_))
    assert model.labels_.min() >= 0
    held = set() if fixed is None else set(fixed.tolist())
    for v in held:
        assert model.labels_[v] == init[v]
    used = edges[edges[:, 2] > 0] if edges.shape[1] == 3 else edges
    for label in np.unique(model.labels_):
        nodes = np.flatnonzero(model.labels_ == label)
        if held & set(nodes.tolist()):  # every part has a fixed node
            inside = nx.Graph()
            inside.add_nodes_from(nodes.tolist())
            inside.add_edges_from((u, v) for u, v in used[:, :2].astype(int).tolist() if u in inside and v in inside)
            assert all(part & held for part in nx.connected_components(inside))
        else:
            assert connected(used, model.labels_, nodes.tolist())


def test_fixed_nodes_of_one_community_may_be_apart():
    init = [0, 1, 1, 1, 1, 1, 1, 1, 1, 0]
    model = fit((CLIQUES, 10), init=init, fixed=[0, 9])
    assert model.labels_[0] == model.labels_[9] == 0
    free = fit((CLIQUES, 10), init=init)
    assert len(set(free.labels_[:5])) == len(set(free.labels_[5:])) == 1
    assert free.labels_[0] != free.labels_[9]


def test_all_nodes_fixed_is_the_start():
    edges, n = graphs.load_graph("karate")
    init = np.random.default_rng(0).integers(0, 4, n)
    for fixed in (np.arange(n), np.ones(n, bool), set(range(n))):
        assert np.array_equal(fit((edges, n), init=init, fixed=fixed).labels_, init)
    assert np.array_equal(
        fit((edges, n), init=init, fixed=[]).labels_, fit((edges, n), init=init, fixed=np.zeros(n, bool)).labels_
    )


def test_names_are_matched(tmp_path):
    graph = nx.relabel_nodes(nx.les_miserables_graph(), str)
    before = fit(graph)
    grown = graph.copy()
    grown.remove_node("Myriel")
    grown.add_edges_from([("Newcomer", "Valjean", {"weight": 9}), ("Newcomer", "Cosette", {"weight": 9})])
    mapping = dict(zip(before.node_names_.tolist(), before.labels_.tolist(), strict=True))
    model = fit(grown, init=mapping, fixed=["Valjean", "Javert"])
    found = dict(zip(model.node_names_.tolist(), model.labels_.tolist(), strict=True))
    assert found["Newcomer"] == found["Valjean"] == mapping["Valjean"]
    assert (
        np.mean([found[name] == mapping[name] for name in mapping if name != "Myriel"]) > 0.85
    )  # its leaves are alone
    assert json.dumps(model.result_.to_dict())
    before.result_.save(tmp_path / "before")
    (tmp_path / "fixed.txt").write_text("Valjean\nJavert\n")
    read = fit(grown, init=tmp_path / "before", fixed=str(tmp_path / "fixed.txt"))
    assert np.array_equal(read.labels_, model.labels_)
    np.save(tmp_path / "labels.npy", before.labels_)
    with pytest.warns(DataWarning, match="init has no node names, so its labels were taken in the order of the"):
        assert np.array_equal(fit(graph, init=tmp_path / "labels.npy").labels_, fit(graph, init=mapping).labels_)


@pytest.mark.parametrize("kind", ["text", "integers", "numbers"])
def test_a_table_is_matched_by_its_names(kind, tmp_path):
    """The lines of a table may be in any order, and may name nodes that the graph does not have."""
    graph = nx.karate_club_graph()
    if kind != "numbers":
        graph = nx.relabel_nodes(graph, {node: f"member {node}" if kind == "text" else 7 * node + 1 for node in graph})
    before = fit(graph, random_state=1)
    names = before.node_names_ if kind != "numbers" else np.arange(34)
    lines = [f"{name},{label}" for name, label in zip(names.tolist(), before.labels_.tolist(), strict=True)]
    expected = fit(graph, init=before.labels_).labels_
    for title, separator in (("node,label", ","), ("Label;Name", ";"), ("id , label", " , "), (",label", ",")):
        shuffled = [*np.random.default_rng(0).permutation(lines[1:]).tolist(), "stranger,3"]
        if separator == ";":
            shuffled = [";".join(line.split(",")[::-1]) for line in shuffled]
        shuffled = [line.replace(",", separator) for line in shuffled]
        (tmp_path / "labels.csv").write_text("\n".join([title, *shuffled]))
        model = fit(graph, init=str(tmp_path / "labels.csv"))
        assert np.array_equal(model.labels_[1:], expected[1:])  # the first node had no label
        assert model.result_.warnings == []
    (tmp_path / "twice.csv").write_text("\n".join(["node,label", *lines, lines[3]]))
    with pytest.raises(InputError, match=r"init names node .* more than once; give each node one label"):
        fit(graph, init=tmp_path / "twice.csv")
    (tmp_path / "others.csv").write_text("node,label\nx,0\ny,1\n")
    with pytest.raises(InputError, match="init names 2 nodes, such as 'x', but the graph has none of them"):
        fit(graph, init=tmp_path / "others.csv")
    (tmp_path / "others.csv").write_text("\n".join(["node,label", *lines[:3], *(f"x{i},0" for i in range(4))]))
    with pytest.warns(DataWarning, match="init names 7 nodes, but the graph has only 3 of them"):
        fit(graph, init=tmp_path / "others.csv")


@pytest.mark.parametrize(
    "content, message",
    [
        ("vertex,label\n0,1\n", "has the columns vertex, label, none of them called 'node'; name the column of nodes"),
        ("node,label\n", "has no labels below its first line"),
    ],
)
def test_a_table_without_nodes_or_labels_is_rejected(content, message, tmp_path):
    (tmp_path / "labels.csv").write_text(content)
    with pytest.raises(InputError, match=message):
        fit(nx.karate_club_graph(), init=tmp_path / "labels.csv")


def test_the_result_of_a_job_is_matched_by_name(tmp_path):
    """In a job of the service, the result of another job is a directory under a root."""
    graph = nx.relabel_nodes(nx.karate_club_graph(), lambda node: f"member {node}")
    before = fit(graph)
    before.result_.save(tmp_path / "before")
    (tmp_path / "before" / "labels.csv").write_text(
        "node,label\n" + "".join(f"{n},{k}\n" for n, k in zip(before.node_names_, before.labels_, strict=True))
    )
    turned = nx.Graph()
    turned.add_nodes_from(list(graph)[::-1])
    turned.add_edges_from(graph.edges(data=True))
    model = fit(turned, init=RootedFile(str(tmp_path), "before"))
    assert np.array_equal(model.labels_[::-1], before.labels_)


def test_integer_names_are_names():
    edges = np.array([(10, 20), (20, 30), (10, 30), (30, 40), (40, 50), (50, 60), (40, 60)])
    graph = nx.Graph(edges.tolist())
    model = fit(graph, init={10: 0, 20: 0, 30: 5, 40: 5, 50: 5, 60: 5}, fixed=[30])
    assert model.labels_.tolist()[2] == 5
    with pytest.raises(InputError, match="fixed=2 is not the name of a node"):
        fit(graph, init=[0] * 6, fixed=[2])


@pytest.mark.parametrize(
    ("parameters", "words"),
    [
        ({"init": [0, 0, 0]}, "init has 3 labels and should have one for each of the graph's n_nodes=10"),
        ({"init": [0] * 11}, "init has 11 labels"),
        ({"init": [-2] * 10}, "init=-2 for node 0 should be from -1 to 99999"),
        ({"init": [0] * 9 + [10**9]}, "init=1000000000 for node 9 should be"),
        ({"init": [0.5] * 10}, "init has values of dtype float64"),
        ({"init": ["a"] * 10}, "init has values of dtype <U1"),
        ({"init": [[0] * 10]}, r"init=.* should be an integer for each node"),
        ({"init": 3}, "init=3 should be an integer for each node"),
        ({"init": {"x": 0}}, "the graph has none of them"),
        ({"init": {0: "a"}}, "init has values of dtype"),
        ({"init": "missing.npy"}, r"init \(--init\): 'missing.npy' is not a whole .npy array .* does not exist"),
        ({"init": "missing.csv"}, r"init \(--init\): missing.csv does not exist; check the path"),
        ({"init": [0] * 10, "fixed": "missing.csv"}, r"fixed \(--fixed\): missing.csv does not exist"),
        ({"init": [0] * 10, "fixed": {0: True}}, r"fixed=\{0: True\} should be a list of node numbers or node names"),
        ({"fixed": [0]}, "init is missing"),
        ({"init": [-1] * 10, "fixed": [0]}, "fixed node 0 has no community in init"),
        ({"init": [0] * 10, "fixed": [10]}, "fixed=10 should be a node number from 0 to 9"),
        ({"init": [0] * 10, "fixed": [-1]}, "fixed=-1 should be a node number"),
        ({"init": [0] * 10, "fixed": [True]}, "fixed has 1 Booleans"),
        ({"init": [0] * 10, "fixed": ["a"]}, "fixed has values of dtype <U1"),
        ({"init": [0] * 10, "n_clusters": 2}, "n_clusters=2 merges single nodes"),
        ({"init": [0] * 10, "strategy": "greedy"}, "strategy='greedy' merges single nodes"),
    ],
)
def test_wrong_starts_are_refused(parameters, words):
    with pytest.raises(InputError, match=words):
        fit((CLIQUES, 10), **parameters)


def network():
    made = make_random_network(8, 150, 16, 0.7)
    return made.edges, made.n_nodes


CASES = {
    "network": (network, 0.05),
    "many changes": (network, 0.6),
    "integers, loops, lone nodes": (lambda: (graphs.random_graph(4, 3_000, 9_000, "integers"), 3_200), 0.05),
    "floats": (lambda: (graphs.random_graph(5, 2_000, 8_000, "floats"), 2_000), 0.05),
    "no edges": (lambda: (np.zeros((0, 2), np.int32), 10), 0.0),
}


@pytest.mark.xdist_group("workers")
@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("held", [False, True])
def test_the_same_bits_on_any_number_of_ranks(case, held, ranks, monkeypatch):
    make, changed = CASES[case]
    edges, n = make()
    rng = np.random.default_rng(1)
    init = np.where(rng.random(n) < changed, rng.integers(-1, 12, n), fit((edges, n)).labels_)
    fixed = np.flatnonzero((init >= 0) & (rng.random(n) < 0.1)) if held else None
    found = {}
    for size in (1, 2, 3, 4):
        for module in (base, clusterer):
            monkeypatch.setattr(module, "connect", lambda size=size, **_: ranks(size))
        model = Communities(device="cpu", init=init, fixed=fixed).fit((edges, n))
        assert model.result_.hardware["ranks"] == size
        values = model.labels_, model.modularity_, repr(model.rounds_), model.merges_, model.modularity_history_
        found[size] = [hashlib.sha256(np.asarray(value).tobytes()).hexdigest() for value in values]
    assert found[1] == found[2] == found[3] == found[4]


def test_a_result_says_how_it_began(tmp_path):
    edges, n = graphs.load_graph("karate")
    model = fit((edges, n), init=np.arange(n) % 3, fixed=[0])
    model.result_.save(tmp_path / "out")
    kept = load_result(tmp_path / "out")
    assert kept.parameters["init"] == (np.arange(n) % 3).tolist()
    assert kept.parameters["fixed"] == [0]
    assert "initial communities" in model.result_.methods_text()


def test_candidates_of_a_scan_are_matched_by_name_too(tmp_path):
    from mgclust.results.candidates import candidate_results

    before = fit(nx.les_miserables_graph(), resolutions=[1.0, 2.0])
    candidate_results(before.result_)[2.0].save(tmp_path / "2.0")
    renamed = nx.relabel_nodes(nx.les_miserables_graph(), {"Valjean": "Aaron"})
    others = [name for name in renamed if name != "Aaron"]
    after = fit(renamed, init=tmp_path / "2.0", fixed=others)
    old = dict(zip(before.node_names_.tolist(), before.labels_for(2.0).tolist(), strict=True))
    new = dict(zip(after.node_names_.tolist(), after.labels_.tolist(), strict=True))
    assert all(new[name] == old[name] for name in others)


def test_results_with_names_do_not_go_with_graphs_without(tmp_path):
    named = nx.les_miserables_graph()
    plain = nx.convert_node_labels_to_integers(named)
    fit(named).result_.save(tmp_path / "named")
    fit(plain).result_.save(tmp_path / "plain")
    with pytest.raises(InputError, match="the result of a graph with node names, but this graph has no names"):
        fit(plain, init=tmp_path / "named")
    with pytest.raises(InputError, match="the result of a graph without node names, but this graph has names"):
        fit(named, init=tmp_path / "plain")
