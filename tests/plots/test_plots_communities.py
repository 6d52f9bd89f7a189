"""Pictures of communities: modularity along the merges, the tree of the merges, the adjacency matrix."""

from __future__ import annotations

import time

import numpy as np
import pytest
from matplotlib.collections import LineCollection
from matplotlib.figure import Figure

from mgclust import plots
from mgclust.base.errors import InputError
from mgclust.results.result import Result

# Two triangles that one edge joins, and a node by itself: two components.
MERGES = np.array([[0, 1], [3, 4], [0, 2], [3, 5], [0, 3], [0, 6]], np.int32)
HISTORY = np.array([-0.17, -0.05, 0.07, 0.2, 0.35, 0.0, -0.1])
LABELS = np.array([0, 0, 0, 1, 1, 1, 2])
EDGES = np.array([[0, 1], [1, 2], [0, 2], [3, 4], [4, 5], [3, 5], [2, 3]])


def triangles(k=3, components=2, **arrays):
    labels = {3: LABELS, 2: np.array([0] * 6 + [1]), 1: np.zeros(7, int), 7: np.arange(7)}[k]
    given = {"merges": MERGES, "modularity_history": HISTORY, **arrays}
    scores = {"n_clusters": k, "modularity": float(HISTORY[7 - k])}
    return Result("communities", labels, given, scores=scores, diagnostics={"n_components": components})


def texts(ax):
    return [text.get_text().strip() for text in ax.texts]


def brackets(ax):
    """Lines of a tree as (x, y of one end, x, y of the other), with their colours and styles."""
    found = [c for c in ax.collections if isinstance(c, LineCollection)]
    lines = np.concatenate([np.reshape([path.vertices.ravel() for path in c.get_paths()], (-1, 4)) for c in found])
    return lines, np.concatenate([c.get_colors()[: len(c.get_paths())] for c in found])


def test_modularity_is_drawn_for_every_number_of_communities():
    ax = plots.modularity(triangles())
    x, y = ax.lines[0].get_data()
    np.testing.assert_array_equal(x, np.arange(1, 8))
    np.testing.assert_array_equal(y, HISTORY[::-1])
    assert texts(ax) == ["2 components", "K = 3: Q = 0.3500"]
    assert ax.get_title() == "Modularity: 0.3500 with 3 communities of 7 nodes"
    assert texts(plots.modularity(triangles(2, components=1))) == ["best: 3", "K = 2: Q = 0.0000"]
    assert texts(plots.modularity(HISTORY)) == ["K = 3: Q = 0.3500"]
    given = Figure().subplots()
    assert plots.modularity(HISTORY, ax=given) is given
    assert plots.png(plots.modularity([0.0]), dpi=40)


def test_modularity_of_millions_is_thinned_but_keeps_the_best():
    history = np.linspace(0, 0.1, 1_000_000)
    history[999_321] = 0.9
    ax = plots.modularity(history)
    x, y = ax.lines[0].get_data()
    assert len(x) < 2_100 and y.max() == 0.9 and x[y.argmax()] == 1_000_000 - 999_321
    assert plots.png(ax, dpi=40)


def test_modularity_of_rounds_where_merges_were_not_kept():
    rounds = [{"start": 0, "cycle": cycle, "modularity": q} for cycle, q in enumerate((0.2, 0.5))]
    ax = plots.modularity(Result("communities", LABELS, diagnostics={"rounds": rounds}))
    assert ax.lines[0].get_ydata().tolist() == [0.2, 0.5] and ax.get_title() == "Modularity: 0.5000 in 2 rounds"
    for wrong in (Result("canopy"), np.zeros((2, 2)), []):
        with pytest.raises(InputError, match=r"should be|give a result of"):
            plots.modularity(wrong)


def test_dendrogram_has_a_fork_for_each_merge_and_the_colours_of_the_communities():
    names = np.array(list("abcdefg"))
    ax = plots.dendrogram(triangles(names=names))
    assert ax.get_title() == "All merges, cut into 3 communities"
    assert [tick.get_text() for tick in ax.get_xticklabels()] == list("abcdef")  # g is a component of its own
    lines, colors = brackets(ax)
    bars = lines[:, 1] == lines[:, 3]
    assert bars.sum() == 5 and len(lines) == 15
    # From the first merge to the last: five communities in excess of the two components' last one, ... 1.
    np.testing.assert_array_equal(lines[bars][:, 1], [5, 4, 3, 2, 1])
    blue, orange = plots.cluster_colors(3)[:2]
    np.testing.assert_allclose(colors[bars][:4, :3], [blue, orange, blue, orange])
    assert not any(np.allclose(colors[bars][4, :3], color) for color in (blue, orange))
    (cut,) = (line for line in ax.lines if line.get_linestyle() == "--")
    assert 1 < cut.get_ydata()[0] < 2
    assert plots.png(ax, dpi=40)


def test_dendrogram_joins_components_only_where_the_communities_do():
    assert len(brackets(plots.dendrogram(triangles(3)))[0]) == 3 * 5
    assert len(brackets(plots.dendrogram(triangles(1)))[0]) == 3 * 6
    assert "components" not in plots.dendrogram(triangles(1)).get_ylabel()
    assert "(2 components)" in plots.dendrogram(triangles(7)).get_ylabel()


def test_dendrogram_of_the_last_merges_has_leaves_of_many_nodes():
    ax = plots.dendrogram(triangles(components=1), last=2)
    assert ax.get_title() == "The last 2 of 6 merges"
    assert [tick.get_text() for tick in ax.get_xticklabels()] == ["3", "3", "1"]
    for last in (0, 7):
        with pytest.raises(InputError, match=f"last={last} should be from 1 to the number of merges, 6"):
            plots.dendrogram(triangles(), last=last)
    for wrong in (MERGES[:3], MERGES.T):
        with pytest.raises(InputError, match="merges"):
            plots.dendrogram(triangles(merges=wrong))
    with pytest.raises(InputError, match="holds no merges"):
        plots.dendrogram(Result("communities", LABELS))


@pytest.mark.parametrize("seed", range(3))
def test_dendrogram_branches_do_not_cross(seed):
    rng = np.random.default_rng(seed)
    alive, merges = list(range(60)), []
    while len(alive) > 1:
        pair = sorted(rng.choice(alive, 2, replace=False).tolist())
        merges.append(pair)
        alive.remove(pair[1])
    given = Figure().subplots()
    assert plots.dendrogram(np.array(merges), ax=given) is given
    lines, _ = brackets(given)
    bars, legs = lines[lines[:, 1] == lines[:, 3]], lines[lines[:, 0] == lines[:, 2]]
    for left, height, right, _ in bars:
        inside = (legs[:, 0] > left) & (legs[:, 0] < right)
        assert not (inside & (legs[:, 3] < height) & (height < legs[:, 1])).any()


def test_dendrogram_of_a_million_nodes_in_a_chain_is_quick():
    n = 1_000_000
    merges = np.column_stack([np.zeros(n - 1, int), np.arange(1, n)])
    started = time.process_time()
    for chain in (merges, np.column_stack([np.arange(1, n), np.arange(n - 1)])):
        ax = plots.dendrogram(chain)
        assert ax.get_title() == "The last 40 of 999,999 merges" and len(ax.get_xticklabels()) == 41
    assert time.process_time() - started < 10  # 0.2 s on an idle machine


def image_of(ax):
    return np.asarray(ax.images[0].get_array(), float)


def test_adjacency_of_a_small_graph_has_a_cell_for_each_pair():
    ax = plots.adjacency(EDGES, LABELS, names=np.array(list("abcdefg")))
    image = image_of(ax)
    assert image.shape == (7, 7, 3)
    np.testing.assert_array_equal(image, image.transpose(1, 0, 2))
    filled = (image < 1).any(axis=2)
    assert filled.sum() == 2 * len(EDGES) and not np.diag(filled).any()
    # Within a community those with most edges come first: c before a and b, d before e and f.
    assert [tick.get_text() for tick in ax.get_yticklabels()] == list("cabdefg")
    blue, orange = plots.cluster_colors(3)[:2]
    np.testing.assert_allclose(image[0, 1], blue)
    np.testing.assert_allclose(image[3, 4], orange)
    assert np.ptp(image[0, 3]) < 0.1  # grey
    assert ax.get_title() == "3 communities hold 86% of the edges"
    assert plots.png(ax, dpi=40)


def test_adjacency_shows_weights_and_self_loops():
    weighted = np.column_stack([EDGES, [8.0, 1, 1, 1, 1, 1, 0.5]])
    ax = plots.adjacency(np.vstack([weighted, [6, 6, 1]]), LABELS)
    image = image_of(ax)
    assert (image[6, 6] < 1).any()
    assert image[1, 2].sum() < image[0, 1].sum() < 3  # 8 is darker than 1: nodes 0 and 1 stand at 1 and 2
    assert ax.get_title() == "3 communities hold 97% of the edge weight"


def test_adjacency_of_many_edges_is_binned():
    rng = np.random.default_rng(0)
    n, k = 50_000, 20
    edges = rng.integers(0, n, (1_000_000, 2))
    labels = np.arange(n) % k
    own = rng.random(len(edges)) < 0.8
    edges[own, 1] = edges[own, 1] // k * k + edges[own, 0] % k
    started = time.process_time()
    ax = plots.adjacency(edges.astype(np.int32), labels, total=5_000_000)
    assert time.process_time() - started < 5  # 0.2 s on an idle machine
    image = image_of(ax)
    assert image.shape == (720, 720, 3)
    within = np.kron(np.eye(k), np.ones((36, 36))) > 0
    assert image[within].mean() < image[~within].mean() - 0.1
    assert "5,000,000 edges\n(1,000,000 of them drawn)" in ax.get_xlabel() and "81%" in ax.get_title()
    np.testing.assert_array_equal(image, image_of(plots.adjacency(edges[::-1], labels)))


def test_adjacency_of_nothing_and_of_what_does_not_fit():
    assert plots.png(plots.adjacency(np.zeros((0, 2), int), np.arange(3)), dpi=40)
    assert plots.png(plots.adjacency([[0, 0]], [0]), dpi=40)
    for edges, words in ((EDGES + 5, "labels has 7 nodes"), (EDGES - 1, "-1"), (EDGES.T, "shape"), ([1, 2], "shape")):
        with pytest.raises(InputError, match=words):
            plots.adjacency(edges, LABELS)
