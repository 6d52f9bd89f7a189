"""Communities from end to end on one rank, against the definition, stored figures, and igraph and networkx."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.base import clone

from mgclust import Communities, FastNewman, load_result, modularity
from mgclust.base.errors import InputError
from oracles import fast_newman as reference
from support import graphs

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")


def fit(graph, n_clusters=None, device="cpu", **parameters):
    """Fit `Communities` with a strategy, `FastNewman` without."""
    method = Communities if "strategy" in parameters else FastNewman
    return method(n_clusters, device=device, client=None, **parameters).fit(graph)


def check_consistent(model, edges, n, resolution=1.0):
    """What holds for either strategy: every part of a fit says the same."""
    k = model.n_clusters_
    assert model.labels_.shape == (n,) and model.labels_.dtype == np.int32
    assert model.merges_.shape == (n - 1, 2) and model.modularity_history_.shape == (n,)
    assert sorted([0, *model.merges_[:, 1].tolist()]) == list(range(n)), "every node but the first is absorbed once"
    assert len(np.unique(model.labels_)) == k == model.labels_.max() + 1
    np.testing.assert_array_equal(model.labels_, graphs.cut_of(model.merges_, n, k))
    for at in {1, 2, k, (k + n) // 2, n}:
        labels = model.cut(at)
        np.testing.assert_array_equal(labels, graphs.cut_of(model.merges_, n, at))
        q = float(reference.modularity(edges, labels, n, resolution))
        assert model.modularity_history_[n - at] == pytest.approx(q, abs=1e-12)
    assert model.modularity_ == pytest.approx(model.modularity_history_[n - k], abs=1e-12)


def test_fast_newman_is_the_greedy_strategy():
    edges, n = graphs.load_graph("karate")
    for parameters in ({}, {"n_clusters": 5}, {"resolution": 0.7}):
        greedy = Communities(strategy="greedy", device="cpu", client=None, **parameters).fit((edges, n))
        model = FastNewman(device="cpu", client=None, **parameters).fit((edges, n))
        np.testing.assert_array_equal(model.labels_, greedy.labels_)
        np.testing.assert_array_equal(model.merges_, greedy.merges_)
        assert model.modularity_ == greedy.modularity_ and not hasattr(model, "strategy_")


@pytest.mark.parametrize("name", graphs.KNOWN)
def test_the_stored_figures(name, device):
    q, k, merges, _ = graphs.KNOWN[name]
    edges, n = graphs.load_graph(name)
    model = fit((edges, n), device=device)
    assert (round(model.modularity_, 4), model.n_clusters_) == (q, k)
    assert model.modularity_history_.argmax() == merges


@pytest.mark.slow
@pytest.mark.parametrize("name", graphs.KNOWN)
def test_parallel_is_as_good_as_louvain(name, device):
    edges, n = graphs.load_graph(name)
    model = fit((edges, n), device=device, strategy="parallel")
    assert model.modularity_ >= graphs.KNOWN[name][3] - 5e-5
    assert model.modularity_ == pytest.approx(modularity((edges, n), model.labels_, client=None), abs=1e-12)
    assert graphs.connected_communities(edges, model.labels_)
    assert max(entry["modularity"] for entry in model.rounds_) <= model.modularity_ + 1e-12


@pytest.mark.quick("none-1.0-*", "integers-1.0-*")
@pytest.mark.parametrize("strategy", ["greedy", "parallel"])
@pytest.mark.parametrize(("weights", "resolution"), [("none", 1.0), ("integers", 1.0), ("floats", 1.0), ("none", 1.7)])
def test_a_fit_is_consistent(strategy, weights, resolution):
    edges, n = graphs.random_graph(3, 60, 90, weights), 66
    model = fit((edges, n), strategy=strategy, resolution=resolution)
    check_consistent(model, edges, n, resolution)
    assert (model.n_nodes_, model.n_edges_, model.node_names_) == (n, 90, None)
    again = fit((edges, n), strategy=strategy, resolution=resolution)
    np.testing.assert_array_equal(again.merges_, model.merges_)
    assert again.modularity_ == model.modularity_
    for k in (1, 4, 30, n):
        some = fit((edges, n), k, strategy=strategy, resolution=resolution)
        assert some.n_clusters_ == k
        check_consistent(some, edges, n, resolution)
        np.testing.assert_array_equal(some.labels_, some.cut(k))
    if strategy == "greedy":
        np.testing.assert_array_equal(some.merges_, model.merges_)
    else:
        assert graphs.connected_communities(edges, model.labels_)


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("weights", ["none", "integers", "floats"])
def test_greedy_is_the_definition(seed, weights):
    """Merge for merge; gains of general weights are compared in float64, where other ties than exact ones are rare."""
    n = 8 + 7 * seed
    edges = graphs.random_graph(seed, n, 2 * n, weights)
    expected = graphs.whole_reference(edges, n)
    model = fit((edges, n))
    np.testing.assert_array_equal(model.merges_, expected.merges)
    np.testing.assert_allclose(model.modularity_history_, [float(q) for q in expected.history], rtol=0, atol=1e-13)
    assert model.result_.diagnostics["computed_in"] == ("float64" if weights == "floats" else "int64")


def test_linkage_is_what_scipy_and_igraph_take():
    import igraph
    from scipy.cluster import hierarchy

    edges, n = graphs.load_graph("karate")
    model = fit((edges, n))
    linkage = model.linkage()
    assert hierarchy.is_valid_linkage(linkage) and hierarchy.is_monotonic(linkage)
    assert linkage[-1, 3] == n
    tree = igraph.VertexDendrogram(igraph.Graph(n, edges.tolist()), merges=linkage[:, :2].astype(int).tolist())
    for k in (1, 2, 3, 10, n):
        np.testing.assert_array_equal(graphs.numbered(hierarchy.cut_tree(linkage, k)[:, 0]), model.cut(k))
        np.testing.assert_array_equal(graphs.numbered(np.array(tree.as_clustering(k).membership)), model.cut(k))


@pytest.mark.parametrize("resolution", [0.5, 1.0, 2.5])
def test_modularity_is_that_of_networkx_and_igraph(resolution):
    import igraph
    import networkx

    edges = graphs.random_graph(5, 40, 100, "floats")
    labels = np.arange(40) % 7
    expected = float(reference.modularity(edges, labels, 40, resolution))
    found = modularity((edges, 40), labels, resolution=resolution, client=None, device="cpu")
    assert found == pytest.approx(expected, abs=1e-14)
    g = igraph.Graph(40, edges[:, :2].astype(int).tolist())
    assert g.modularity(labels.tolist(), weights=edges[:, 2].tolist(), resolution=resolution) == pytest.approx(found)
    many = networkx.MultiGraph()
    many.add_nodes_from(range(40))
    many.add_weighted_edges_from((int(u), int(v), w) for u, v, w in edges)
    parts = [np.flatnonzero(labels == k).tolist() for k in range(7)]
    assert networkx.community.modularity(many, parts, resolution=resolution) == pytest.approx(found)


def test_modularity_of_labels_of_any_kind():
    edges, n = graphs.load_graph("karate")
    labels = np.arange(n) % 3
    expected = modularity((edges, n), labels, client=None)
    for same in (labels * 1000 - 7, labels.astype(np.uint8), labels.tolist()):
        assert modularity((edges, n), same, client=None) == expected
    assert modularity((edges[:0], n), labels, client=None) == 0.0


def test_greedy_is_near_the_peers():
    import igraph
    import networkx

    for seed in range(3):
        edges = graphs.planted(seed, 4, 25, 0.4, 0.03)
        model = fit((edges, 100))
        g = igraph.Graph(100, edges.tolist())
        theirs = g.community_fastgreedy().as_clustering().modularity
        greedy = networkx.community.greedy_modularity_communities(networkx.Graph(edges.tolist()))
        also = networkx.community.modularity(networkx.Graph(edges.tolist()), greedy)
        assert model.modularity_ == pytest.approx(theirs, abs=0.03) and model.modularity_ == pytest.approx(
            also, abs=0.03
        )


@pytest.mark.parametrize("strategy", ["greedy", "parallel"])
def test_planted_communities_are_found(strategy):
    edges = graphs.planted(1, 6, 30, 0.5, 0.01)
    np.testing.assert_array_equal(fit((edges, 180), strategy=strategy).labels_, np.arange(180) // 30)
    np.testing.assert_array_equal(fit((edges, 180), 6, strategy=strategy).labels_, np.arange(180) // 30)


@pytest.mark.parametrize("strategy", ["greedy", "parallel"])
def test_edges_in_any_form_are_the_same_graph(strategy):
    """Another order, other directions, repeated edges for weights, weights times a power of two."""
    rng = np.random.default_rng(0)
    edges = graphs.random_graph(8, 50, 120, "integers")
    expected = fit((edges, 50), strategy=strategy)
    shuffled = rng.permutation(edges)
    turned = np.where(rng.random((120, 1)) < 0.5, edges, edges[:, [1, 0, 2]])
    repeated = np.repeat(edges[:, :2].astype(np.int32), edges[:, 2].astype(int), axis=0)
    scaled = edges * [1, 1, 0.125]
    for same in (shuffled, turned, repeated, scaled):
        model = fit((same, 50), strategy=strategy)
        np.testing.assert_array_equal(model.labels_, expected.labels_)
        np.testing.assert_array_equal(model.merges_, expected.merges_)
        assert model.modularity_ == pytest.approx(expected.modularity_, abs=1e-14)


@pytest.mark.parametrize("half", [2**29, 2**30 - 1, 2**30, 2**31 + 1, 2**33])
def test_squares_of_heavy_communities_are_not_cut_off(half):
    """Their sum needs more than 63 bits from twice a weight of about 2^31 on; one community has modularity 0."""
    heavy = np.array([[0, 1, half]], float)
    assert modularity((heavy, 2), [0, 0], client=None, device="cpu") == 0
    assert modularity((heavy, 2), [0, 1], client=None, device="cpu") == -0.5
    for strategy in ("greedy", "parallel"):
        model = fit((heavy, 2), strategy=strategy)
        assert model.labels_.tolist() == [0, 0] and model.modularity_ == 0


@pytest.mark.parametrize("strategy", ["greedy", "parallel"])
def test_gains_at_another_resolution_are_not_integers(strategy):
    graph = graphs.load_graph("karate")
    kinds = [fit(graph, strategy=strategy, resolution=r).result_.diagnostics["computed_in"] for r in (1.0, 1.5)]
    assert kinds == ["int64", "float64"]


@pytest.mark.parametrize("strategy", ["greedy", "parallel"])
def test_higher_resolution_gives_more_communities(strategy):
    graph = graphs.load_graph("netscience")
    found = [fit(graph, strategy=strategy, resolution=r).n_clusters_ for r in (0.2, 1.0, 5.0)]
    assert found == sorted(found) and found[0] < found[2]


def test_resolution_one_as_a_float_and_a_near_one_agree():
    edges, n = graphs.load_graph("karate")
    near = fit((edges, n), resolution=1.0 + 1e-12)
    np.testing.assert_array_equal(near.labels_, fit((edges, n)).labels_)
    expected = graphs.whole_reference(edges, n, 1.75)
    np.testing.assert_array_equal(fit((edges, n), resolution=1.75).merges_, expected.merges)


@pytest.mark.parametrize("strategy", ["greedy", "parallel"])
def test_graphs_with_hardly_anything_in_them(strategy):
    no_edges = np.zeros((0, 2), np.int32)
    cases = {
        "no edges": ((no_edges, 5), [0, 1, 2, 3, 4], 0.0),
        "one node": ((no_edges, 1), [0], 0.0),
        "only loops": ((np.array([[0, 0], [1, 1]]), 3), [0, 1, 2], 0.5),
        "one edge": ((np.array([[0, 1]]), 2), [0, 0], 0.0),
        "weights of zero": ((np.array([[0.0, 1.0, 0.0]]), 2), [0, 1], 0.0),
        "two pairs": ((np.array([[0, 2], [1, 3]]), 4), [0, 1, 0, 1], 0.5),
    }
    for name, (graph, labels, q) in cases.items():
        model = fit(graph, strategy=strategy)
        assert model.labels_.tolist() == labels, name
        assert model.modularity_ == pytest.approx(q), name
        assert len(model.cut(1)) == graph[1] and not model.cut(1).any(), name
        assert len(np.unique(model.cut(graph[1]))) == graph[1], name


def test_what_is_odd_is_said():
    edges, n = graphs.load_graph("netscience")
    for graph, parameters, words in (
        ((edges[:0], 4), {}, "edge"),
        ((edges, n), {"n_clusters": 3}, "component"),
    ):
        with pytest.warns(UserWarning, match=words):
            model = fit(graph, **parameters)
        assert any(words in line for line in model.result_.warnings)
    rounded = graphs.random_graph(1, 30, 60, "floats") * [1, 1, 1 / 3]
    assert 0 <= fit((rounded, 30)).result_.diagnostics.get("weight_rounding", 0) < 1e-10


def test_names_come_from_the_source_and_go_into_the_result(tmp_path):
    import networkx

    g = networkx.relabel_nodes(networkx.karate_club_graph(), lambda i: f"member {i}")
    model = fit(g)
    assert model.node_names_.tolist() == list(g.nodes)
    loaded = load_result(model.result_.save(tmp_path / "out"))
    assert np.asarray(loaded.arrays["names"]).tolist() == list(g.nodes)


def test_a_result_says_everything_and_is_read_back(tmp_path):
    from mgclust.output.report import draw_pictures, write_report

    edges, n = graphs.load_graph("karate")
    model = fit((edges, n))
    result = model.result_
    assert result.method == "fast-newman" and result.source["n_nodes"] == n and result.source["n_edges"] == 78
    assert result.scores == {"n_clusters": 3, "modularity": model.modularity_, "n_nodes": n, "n_edges": 78}
    assert result.diagnostics["strategy"] == "greedy" and result.diagnostics["n_components"] == 1
    assert result.parameters["resolution"] == 1.0 and "strategy" not in result.parameters
    loaded = load_result(result.save(tmp_path / "out"))
    np.testing.assert_array_equal(loaded.labels, model.labels_)
    np.testing.assert_array_equal(loaded.arrays["merges"], model.merges_)
    np.testing.assert_array_equal(loaded.arrays["modularity_history"], model.modularity_history_)
    pictures = draw_pictures(loaded)
    assert list(pictures) == ["modularity", "dendrogram"]
    assert "Communities" in write_report(loaded, tmp_path / "report.html", pictures).read_text("utf-8")


def test_sources_of_every_kind_give_the_same(tmp_path):
    import dask.array
    import igraph
    import networkx
    from scipy.sparse import coo_array

    edges, n = graphs.load_graph("karate")
    matrix = coo_array((np.ones(len(edges)), edges.T), shape=(n, n))
    np.savez(tmp_path / "g.npz", edges=edges, n=n)
    (tmp_path / "g.txt").write_text("# karate\n" + "".join(f"{u}\t{v}\n" for u, v in edges))
    g = networkx.Graph()
    g.add_nodes_from(range(n))
    g.add_edges_from(edges.tolist())
    sources = {
        "array": edges,
        "path": tmp_path / "g.npz",
        "text": str(tmp_path / "g.txt"),
        "matrix": (matrix + matrix.T).toarray(),
        "sparse": (matrix + matrix.T).tocsr(),
        "networkx": g,
        "igraph": igraph.Graph(n, edges.tolist()),
        "Dask": dask.array.from_array(edges, chunks=(20, 2)),
    }
    expected = fit((edges, n))
    for name, source in sources.items():
        model = fit(source)
        np.testing.assert_array_equal(model.merges_, expected.merges_, err_msg=name)
        np.testing.assert_array_equal(
            Communities(strategy="greedy", device="cpu", client=None).fit_predict(source), expected.labels_
        )


def test_an_estimator_as_others():
    model = Communities(4, strategy="parallel", resolution=2.0)
    assert clone(model).get_params() == model.get_params()
    assert model.set_params(n_clusters=None).n_clusters is None
    assert "strategy='parallel'" in repr(model)


@pytest.mark.parametrize("weights", [[2**60, 1, 1], [1.0, 1.0, 1e-16], [1e300, 1e-300, 1.0]])
def test_weights_too_small_to_count_still_connect(weights):
    edges = np.array([[0, 1], [1, 2], [2, 3]])
    for strategy in ("greedy", "parallel"):
        model = Communities(1, strategy=strategy, client=None, device="cpu").fit((edges, np.array(weights)))
        assert model.result_.diagnostics["n_components"] == 1
        assert not model.result_.warnings


def test_merges_are_exact_up_to_a_total_weight_of_2_to_the_31():
    rng = np.random.default_rng(4)
    for _ in range(40):
        n, k = int(rng.integers(4, 25)), int(rng.integers(2, 60))
        edges, weights = rng.integers(0, n, (k, 2)), rng.integers(1, 5, k)
        factor = (2**31 - 1) // int(weights.sum())
        small, large = (
            Communities(strategy="greedy", client=None, device="cpu").fit((edges, weights * f, n)) for f in (1, factor)
        )
        np.testing.assert_array_equal(small.merges_, large.merges_)
        assert large.result_.diagnostics["computed_in"] == "int64"


@pytest.mark.parametrize("resolution", ["a", None, [1], 1e12, 0, float("nan")])
def test_resolution_is_a_number(resolution):
    with pytest.raises(InputError, match="resolution="):
        Communities(resolution=resolution, client=None).fit([(0, 1)])
