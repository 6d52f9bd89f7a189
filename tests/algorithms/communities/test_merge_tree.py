"""`MergeTree`: the curve in exact numbers, every cut, trees as SciPy and igraph have them, joined components."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from scipy.cluster import hierarchy

from mgclust.algorithms.communities.merge_tree import MergeTree
from mgclust.base.errors import InputError
from oracles import fast_newman as reference


def tree_of(edges, n: int, resolution: float = 1, dtype=np.int64) -> tuple[MergeTree, reference.GreedyReference]:
    found = reference.greedy(edges, n, resolution)
    tree = MergeTree(n, found.merges, np.array(found.gains, dtype), dtype(found.two_m), float(found.start))
    return tree, found


def graph(seed: int) -> tuple[np.ndarray, int]:
    rng = np.random.default_rng([11, seed])
    n = int(rng.integers(2, 40))
    m = int(rng.integers(0, 2 * n))
    return np.column_stack([rng.integers(0, n, (m, 2)), rng.integers(1, 4, m)]), n


@pytest.mark.parametrize(("dtype", "resolution"), [(np.int64, 1), (np.float64, 1), (np.float64, 1.5)])
def test_curve_and_cuts(dtype, resolution):
    for seed in range(20):
        edges, n = graph(seed)
        tree, found = tree_of(edges, n, resolution, dtype)
        assert np.abs(tree.history - np.array(found.history, float)).max() < 4e-16
        assert tree.best == found.history.index(max(found.history))
        strength = reference.tables(edges, n)[1]
        tree = tree.join_components(strength, resolution)
        labels = list(range(n))
        for t, (kept, absorbed) in enumerate([(None, None), *tree.merges.tolist()]):
            labels = [kept if label == absorbed else label for label in labels]
            exact = reference.modularity(edges, labels, n, resolution)
            assert abs(tree.history[t] - float(exact)) < 1e-15
            assert tree.n_clusters_at(t) == n - t
            expected = [sorted(set(labels)).index(label) for label in labels]
            assert tree.cut(n - t).tolist() == expected and tree.cut(n - t).dtype == np.int32


def test_joining_takes_the_smallest_strengths():
    tree = MergeTree(7, [(1, 2), (3, 5)], np.array([9, 8]), 20, -0.5)
    joined = tree.join_components([0, 2, 1, 4, 3, 4, 6])
    # strengths 0: 0, 1: 3, 3: 8, 4: 3, 6: 6
    assert joined.merges[2:].tolist() == [[0, 1], [0, 4], [0, 6], [0, 3]]
    assert joined.gains.tolist() == [9, 8, 0, -9, -36, -96]
    assert joined.best == tree.best == 2
    assert joined.merges[:2].tolist() == tree.merges.tolist()
    halved = tree.join_components([0, 2, 1, 4, 3, 4, 6], resolution=1.0)
    assert halved.gains.tolist() == joined.gains.tolist()


def test_sums_beyond_int64():
    """Each gain fits int64, their sum does not, and a float64 sum would lose the small ones."""
    two_m = 2**32 - 2
    gains = np.array([2**61 + 1, 2**61 + 3, 2**61 + 5, 2**61 - 1, -(2**62), -(2**61)], np.int64)
    merges = [(0, i) for i in range(1, 7)]
    tree = MergeTree(7, merges, gains, two_m, -0.25)
    sums = np.cumsum(gains.astype(object)).tolist()
    exact = [float(Fraction(-1, 4) + Fraction(2 * int(s), two_m**2)) for s in sums]
    assert np.abs(tree.history[1:] - exact).max() < 4e-16
    assert tree.best == 4


def test_best_is_the_first_maximum():
    assert MergeTree(4, [(0, 1), (0, 2), (0, 3)], np.array([5, 0, -1]), 10, -0.3).best == 1
    assert MergeTree(4, [(0, 1), (0, 2), (0, 3)], np.array([5, -1, 7]), 10, -0.3).best == 3
    assert MergeTree(4, [(0, 1), (0, 2), (0, 3)], np.array([5, -7, 7]), 10, -0.3).best == 1
    assert MergeTree(4, [], np.array([], int), 0, 0.0).best == 0


def test_trees_of_others():
    igraph = pytest.importorskip("igraph")
    for seed in range(10):
        edges, n = graph(seed)
        tree, _ = tree_of(edges, n)
        full = tree.join_components(reference.tables(edges, n)[1])
        Z = full.linkage()
        assert Z.shape == (n - 1, 4) and hierarchy.is_valid_linkage(Z) and hierarchy.is_monotonic(Z)
        theirs = igraph.VertexDendrogram(igraph.Graph(n), full.joins().tolist())
        for k in {1, 2, n // 2 + 1, n}:
            expected = full.cut(k)
            assert same(hierarchy.fcluster(Z, k, "maxclust"), expected)
            assert same(theirs.as_clustering(k).membership, expected)


def same(one, other) -> bool:
    """Whether two labellings are one partition."""
    pairs = set(zip(list(one), list(other), strict=True))
    return len(pairs) == len(set(one)) == len(set(other))


def test_small_and_wrong_ones():
    single = MergeTree(1, [], np.array([], np.int64), 0, 0.0)
    assert single.cut(1).tolist() == [0] and single.linkage().shape == (0, 4) and single.joins().shape == (0, 2)
    assert single.history.tolist() == [0.0]
    tree = MergeTree(4, [(0, 1)], np.array([3]), 4, -0.5)
    for k in (0, 5, -1):
        with pytest.raises(InputError, match=rf"n_clusters={k} should be from 3 to 4"):
            tree.cut(k)
    with pytest.raises(InputError, match="because the graph has"):
        tree.cut(2)
    with pytest.raises(InputError, match="join_components"):
        tree.linkage()
    with pytest.raises(InputError, match="n_clusters=5 should be from 1 to 4"):
        tree.join_components([1, 1, 0, 0]).cut(5)
    with pytest.raises(ValueError, match="kept < absorbed"):
        MergeTree(4, [(1, 0)], np.array([3]), 4, -0.5)
    with pytest.raises(ValueError, match="do not fit"):
        MergeTree(2, [(0, 1), (0, 1)], np.array([3, 3]), 4, -0.5)
