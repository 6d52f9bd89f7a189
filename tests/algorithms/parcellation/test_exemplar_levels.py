"""Levels of affinity propagation: the clusters of plain messages, each one an exemplar and some of its neighbours."""

import warnings
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.sparse import csr_array
from scipy.sparse.csgraph import connected_components

from mgclust import AffinityPropagation, Parcellation
from mgclust.algorithms.parcellation import exemplar_levels
from mgclust.algorithms.parcellation.exemplar_levels import ExemplarLevels
from mgclust.base.errors import InsufficientMemoryError, RunCancelled
from mgclust.data.neighbors import checked_neighbors, volume_neighbors
from mgclust.engine.abort import Abort
from oracles import parcels as oracle
from support.parcels import context_of, edges_of, matrix_of, smooth, unit


def levels(rows, graph, seed=0, abort=None, emit=None):
    """The levels of rows on one CPU rank."""
    return ExemplarLevels(context_of(rows, abort, emit), rows, graph.starts, graph.columns, seed)


def are_stars(labels, graph):
    """Whether in each cluster some row is a neighbour of all other rows."""
    for k in np.unique(labels):
        own = np.flatnonzero(labels == k)
        if not any(set(own) <= {i, *graph.columns[graph.starts[i] : graph.starts[i + 1]]} for i in own):
            return False
    return True


@pytest.mark.parametrize(("shape", "connectivity", "seed"), [((1, 1, 40), 6, 0), ((6, 6, 1), 6, 1), ((4, 3, 4), 18, 2)])
@pytest.mark.parametrize("k", [1, 2, 5, 11])
def test_parcels_are_those_of_the_estimator_on_sparse_similarities(shape, connectivity, seed, k):
    def propagate(n, pairs):
        (first, second), values = np.array(list(pairs)).T, list(pairs.values())
        means = np.array([np.mean([s for pair, s in pairs.items() if pair[0] == a]) for a in range(n)])
        model = AffinityPropagation(
            preference=0.7 * np.median(values) + 0.3 * means,
            damping=0.9,
            affinity="precomputed",
            random_state=7,
            client=None,
            device="cpu",
        )
        return model.fit(csr_array((values, (first, second)), shape=(n, n))).labels_

    rows, graph = smooth(shape, connectivity, seed)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        expected = oracle.exemplar_levels(rows, edges_of(graph).tolist(), k, propagate)
    labels = levels(rows, graph, seed=7).parcels(k)
    assert {frozenset(np.flatnonzero(labels == i).tolist()) for i in range(k)} == expected


def test_the_series_decide_and_not_the_seed():
    rows, graph = smooth((8, 8, 8))
    first, second = (levels(rows, graph, seed) for seed in (0, 1))
    for k in (150, 20):
        np.testing.assert_array_equal(first.parcels(k), second.parcels(k))


def test_levels_do_not_depend_on_the_order_of_the_numbers():
    rows, graph = smooth((5, 5, 5))
    down, up = levels(rows, graph), levels(rows, graph)
    found = {k: down.parcels(k).tobytes() for k in (90, 30, 8, 1)}
    assert {k: up.parcels(k).tobytes() for k in (1, 8, 30, 90)} == found


@given(
    st.integers(1, 40).flatmap(
        lambda n: st.tuples(
            st.just(n), st.lists(st.tuples(*[st.integers(0, n - 1)] * 2).filter(lambda e: e[0] != e[1]), max_size=80)
        )
    ),
    st.sampled_from(["noise", "duplicates", "constant", "opposite"]),
    st.integers(0, 5),
)
@settings(max_examples=60, deadline=None)
def test_every_cluster_of_a_level_is_an_exemplar_with_neighbours(nodes, kind, seed):
    n, edges = nodes
    graph = checked_neighbors(edges, n)
    rows = np.random.default_rng(seed).normal(size=(n, 12))
    if kind == "duplicates":
        rows = rows[np.arange(n) // 5]
    elif kind == "constant":
        rows[:] = 1
    elif kind == "opposite":
        rows = rows[np.arange(n) // 2] * np.where(np.arange(n) % 2, 1, -1)[:, None]
    found = levels(unit(rows), graph)
    pieces = connected_components(matrix_of(graph), directed=False)[0]
    for k in range(n, pieces - 1, -3):
        labels = found.parcels(k)
        assert labels.dtype == np.int32 and oracle.connected(labels, edges_of(graph))
        assert np.unique(labels).tolist() == list(range(k))
    for level, following in pairwise(found.levels):
        cluster = np.empty(len(level.size), np.int32)
        cluster[level.labels] = following.labels
        assert (cluster[level.labels] == following.labels).all() and len(following.size) < len(level.size)
        assert are_stars(cluster, level)
        assert (np.bincount(following.labels) == following.size).all()
        np.testing.assert_array_equal(following.starts[-1], len(following.columns))


def test_the_nodes_of_a_level_are_the_means_of_rows_and_keep_the_neighbours():
    rows, graph = smooth((5, 4, 3))
    found = levels(rows, graph)
    found.parcels(1)
    assert len(found.levels) > 2
    for level in found.levels[1:]:
        sums = np.array([rows[level.labels == k].sum(axis=0, dtype=np.float64) for k in range(len(level.size))])
        np.testing.assert_allclose(level.sums, sums, atol=1e-6)
        near = {tuple(sorted(level.labels[edge].tolist())) for edge in edges_of(graph)}
        assert {pair for pair in near if pair[0] < pair[1]} == set(map(tuple, edges_of(level).tolist()))


def test_equal_similarities_give_the_same_parcels_for_the_same_seed():
    graph = volume_neighbors(np.ones((5, 5, 5), bool), (5, 5, 5), 26)
    rows = np.zeros((125, 20), np.float32)
    first = [levels(rows, graph, seed).parcels(7).tobytes() for seed in (0, 0, 1)]
    assert first[0] == first[1]
    assert all(oracle.connected(np.frombuffer(each, np.int32), edges_of(graph)) for each in first)


def test_levels_that_have_not_converged_are_used_and_reported(monkeypatch):
    monkeypatch.setitem(exemplar_levels.MESSAGES, "max_iter", 3)
    rows, graph = smooth((6, 6, 6))
    model = Parcellation(20, algorithm="affinity-propagation", client=None, device="cpu").fit(
        rows, neighbors=matrix_of(graph)
    )
    assert model.result_.diagnostics["unconverged_levels"][0] == 216
    assert oracle.connected(model.labels_, edges_of(graph)) and len(np.unique(model.labels_)) == 20


def test_a_cancelled_run_ends():
    abort = Abort()
    rows, graph = smooth((6, 6, 6))
    found = levels(rows, graph, abort=abort)
    abort.set("it was cancelled")
    with pytest.raises(RunCancelled, match="it was cancelled"):
        found.parcels(5)


def test_progress_grows_from_level_to_level():
    events = []
    rows, graph = smooth((6, 6, 6))
    found = levels(rows, graph, emit=events.append)
    found._context.progress = lambda fraction, **details: events.append((fraction, details["n_clusters"]))
    found.parcels(2)
    assert events[0] == (0.0, 216) and all(0 <= fraction <= 1 for fraction, _ in events)
    assert len({n for _, n in events}) == len(found.levels) - (len(found.levels[-1].size) <= 2)


def test_messages_are_counted_before_the_rows_are_collected():
    line = np.arange(1, 5000)[:, None] - [1, 0]
    rows = np.random.default_rng(0).normal(size=(5000, 20))
    with pytest.raises(InsufficientMemoryError, match="sums of all levels"):
        Parcellation(5, algorithm="affinity-propagation", memory_limit="2 MiB", client=None).fit(rows, neighbors=line)
