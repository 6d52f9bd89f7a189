"""Ward's merges and moves across borders, beside plain NumPy and scikit-learn."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.cluster import ward_tree

from mgclust.algorithms.parcellation.merge_cuts import labels_after
from mgclust.data.neighbors import checked_neighbors, volume_neighbors
from mgclust.kernels.parcels import borders, pair_correlations, ward
from mgclust.kernels.parcels.borders import PASSES, edge_products, move_borders
from mgclust.kernels.parcels.ward import ward_merges
from mgclust.kernels.toolkit.threads import share
from oracles import parcels as oracle


def nothing(done):
    pass


def edges_of(graph):
    own = np.repeat(np.arange(len(graph.starts) - 1), np.diff(graph.starts))
    return np.stack([own, graph.columns], axis=1)[own < graph.columns]


def grid(shape, connectivity=26, seed=0, density=1.0):
    mask = np.random.default_rng(seed).random(shape) < density
    return volume_neighbors(mask, shape, connectivity), int(mask.sum())


def unit(rows):
    rows = rows - rows.mean(axis=1, keepdims=True)
    return (rows / np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1e-12)).astype(np.float32)


@pytest.mark.parametrize("features", [1, 3, 4, 7, 64])
@pytest.mark.parametrize(
    ("shape", "connectivity", "density"),
    [((4, 4, 3), 26, 1.0), ((5, 4, 3), 6, 0.6), ((3, 3, 5), 18, 0.3), ((1, 1, 9), 6, 1.0)],
)
def test_merges_are_those_of_plain_ward(shape, connectivity, density, features):
    graph, n = grid(shape, connectivity, 1, density)
    rows = np.random.default_rng(2).normal(size=(n, features))
    merges, costs = ward_merges(rows, *graph, nothing)
    expected, values = oracle.ward(rows, edges_of(graph))
    np.testing.assert_array_equal(np.sort(merges, axis=1), expected)
    np.testing.assert_allclose(costs, values, rtol=1e-12)


def test_merges_are_those_of_scikit_learn():
    graph, n = grid((12, 11, 10), seed=3, density=0.8)
    rows = np.random.default_rng(4).normal(size=(n, 20))
    from scipy.sparse import csr_matrix

    matrix = csr_matrix((np.ones(len(graph.columns)), graph.columns, graph.starts), (n, n))
    children, parts, _, _, heights = ward_tree(rows, connectivity=matrix, return_distance=True)
    merges, costs = ward_merges(rows, *graph, nothing)
    assert parts == 1
    np.testing.assert_array_equal(np.sort(merges, axis=1), np.sort(children, axis=1))
    np.testing.assert_allclose(np.sqrt(2 * costs), heights, rtol=1e-9)


def test_equal_rows_merge_first_and_in_order():
    graph, n = grid((4, 4, 1))
    rows = np.repeat([[0.0, 1.0], [5.0, 5.0]], 8, axis=0)
    merges, costs = ward_merges(rows, *graph, nothing)
    assert (costs[: n - 2] == 0).all() and costs[-1] == pytest.approx(16 / 4 * 41)
    assert labels_after(merges, n, 2).tolist() == [0] * 8 + [1] * 8


@pytest.mark.parametrize(
    ("n", "edges"), [(1, []), (2, []), (2, [(0, 1)]), (5, [(0, 4)]), (6, [(0, 1), (2, 3), (4, 5)])]
)
def test_pieces_are_never_merged(n, edges):
    graph = checked_neighbors(edges, n)
    merges, _ = ward_merges(np.zeros((n, 3)), *graph, nothing)
    assert len(merges) == len(edges)
    for k in range(n - len(merges), n + 1):
        labels = labels_after(merges, n, k)
        assert len(np.unique(labels)) == k and oracle.connected(labels, edges_of(graph))


def test_nodes_of_several_rows_merge_as_their_rows_would():
    graph, n = grid((3, 3, 3), 6)
    rows = np.random.default_rng(5).normal(size=(n, 6))
    merges, costs = ward_merges(rows, *graph, nothing)
    labels, count = labels_after(merges, n, 9), 9
    sums = np.stack([rows[labels == k].sum(axis=0) for k in range(count)])
    pairs = {tuple(sorted(pair)) for pair in labels[edges_of(graph)].tolist() if pair[0] != pair[1]}
    again, rest = ward_merges(sums, *checked_neighbors(sorted(pairs), count), nothing, np.bincount(labels))
    np.testing.assert_allclose(rest, costs[n - count :], rtol=1e-9)
    np.testing.assert_array_equal(labels_after(again, count, 3)[labels], labels_after(merges, n, 3))


def test_a_star_with_many_neighbours_has_room():
    n = 3000
    graph = checked_neighbors([(0, i) for i in range(1, n)], n)
    rows = np.random.default_rng(6).normal(size=(n, 2))
    merges, _ = ward_merges(rows, *graph, nothing)
    assert len(merges) == n - 1 and len(np.unique(labels_after(merges, n, 7))) == 7


@settings(deadline=None)  # the first example compiles
@given(seed=st.integers(0, 10_000), k=st.integers(1, 12), connectivity=st.sampled_from([6, 18, 26]))
def test_moves_raise_the_likeness_and_keep_parcels_connected(seed, k, connectivity):
    rng = np.random.default_rng(seed)
    graph, n = grid((4, 3, 3), connectivity, seed, 0.9)
    rows = unit(rng.integers(-1, 2, (n, 5)).astype(float))  # some are 0, and many equal
    merges, _ = ward_merges(rows, *graph, nothing)
    before = labels_after(merges, n, max(k, n - len(merges)))
    after, passes = move_borders(rows, *graph, before, nothing)
    edges = edges_of(graph)
    assert passes < PASSES and oracle.connected(after, edges)
    assert len(np.unique(after)) == len(np.unique(before))
    assert oracle.likeness(rows, after) >= oracle.likeness(rows, before) - 1e-6
    # No single move raises it, if the parcel that the row leaves stays connected as its neighbours see it.
    reached = oracle.likeness(rows, after)
    for i, j in np.concatenate([edges, edges[:, ::-1]]):
        own = [int(a) for a in graph.columns[graph.starts[i] : graph.starts[i + 1]] if after[a] == after[i]]
        local = [(a, b) for a, b in edges.tolist() if a in own and b in own]
        alone = {a: m for m, a in enumerate(own)}
        if after[i] == after[j] or not own:
            continue
        small = np.zeros(len(own), int)
        if not oracle.connected(small, [(alone[a], alone[b]) for a, b in local]):
            continue
        moved = after.copy()
        moved[i] = after[j]
        assert oracle.likeness(rows, moved) <= reached + 1e-6


def test_moves_mend_borders_that_were_drawn_wrongly():
    graph, n = grid((10, 4, 4))
    truth = np.arange(n) // 80
    rng = np.random.default_rng(7)
    rows = unit(rng.normal(size=(2, 30))[truth] + 0.3 * rng.normal(size=(n, 30)))
    wrong = (np.arange(n) >= 48).astype(int)
    labels, passes = move_borders(rows, *graph, wrong, nothing)
    assert labels.tolist() == truth.tolist() and 1 < passes < 10


def test_work_is_cut_into_slices_that_change_no_bit(monkeypatch):
    graph, n = grid((9, 8, 6), density=0.8)
    rows = unit(np.random.default_rng(10).normal(size=(n, 12)))
    merges, costs = ward_merges(rows, *graph, nothing)
    before = labels_after(merges, n, 20)
    labels, passes = move_borders(rows, *graph, before, nothing, 0.01)
    for module in (ward, borders):
        monkeypatch.setattr(module, "SLICE", 16)
    calls = []
    again = ward_merges(rows, *graph, calls.append)
    np.testing.assert_array_equal(again[0], merges)
    np.testing.assert_array_equal(again[1], costs)
    slices = -(-n // 16)
    assert calls[:slices] == [0] * slices and calls == sorted(calls) and len(calls) >= 2 * slices - 1
    calls.clear()
    moved, count = move_borders(rows, *graph, before, calls.append, 0.01)
    np.testing.assert_array_equal(moved, labels)
    assert count == passes and calls == sorted(calls) and len(calls) == passes * slices


class Stopped(Exception):
    pass


@pytest.mark.parametrize("after", [0, 1, 5])
def test_an_error_of_the_progress_ends_the_work(monkeypatch, after):
    """A run is cancelled in this way."""
    monkeypatch.setattr(ward, "SLICE", 16)
    monkeypatch.setattr(borders, "SLICE", 16)
    monkeypatch.setattr(pair_correlations, "TASK_BLOCKS", 1)
    graph, n = grid((9, 8, 6))
    rows = unit(np.random.default_rng(11).normal(size=(n, 12)))
    labels, places = np.zeros(n, np.int32), np.argwhere(np.ones((9, 8, 6), bool)) * 3.0
    seen = []

    def stop(done):
        seen.append(done)
        if len(seen) > after:
            raise Stopped

    for work in (
        lambda: ward_merges(rows, *graph, stop),
        lambda: move_borders(rows, *graph, np.arange(n) // (n // 2), stop),
        lambda: pair_correlations.correlations_by_distance(rows, places, labels[None], 1.0, 20, stop),
    ):
        seen.clear()
        with share(1), pytest.raises(Stopped):
            work()
        assert len(seen) == after + 1


def test_products_of_neighbours_are_correlations():
    graph, n = grid((4, 5, 3), seed=8, density=0.7)
    rows = unit(np.random.default_rng(9).normal(size=(n, 11)))
    own = np.repeat(np.arange(n), np.diff(graph.starts))
    expected = np.einsum("ij,ij->i", rows[own].astype(float), rows[graph.columns].astype(float))
    np.testing.assert_allclose(edge_products(rows, *graph), expected, atol=1e-12)


def test_cuts_number_clusters_by_their_smallest_nodes():
    merges = np.array([[2, 3], [0, 4], [1, 5]])
    assert labels_after(merges, 4, 4).tolist() == [0, 1, 2, 3]
    assert labels_after(merges, 4, 3).tolist() == [0, 1, 2, 2]
    assert labels_after(merges, 4, 2).tolist() == [0, 1, 0, 0]
    assert labels_after(merges, 4, 1).tolist() == [0, 0, 0, 0]
