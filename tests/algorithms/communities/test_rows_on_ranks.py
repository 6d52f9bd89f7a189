"""Tests of graphs whose rows are on several ranks: communities are the same, and memory is within the estimate."""

from __future__ import annotations

import tracemalloc
from types import SimpleNamespace

import numpy as np
import pytest

from mgclust.algorithms.communities import levels
from mgclust.algorithms.communities.levels import contract, read_level
from mgclust.algorithms.communities.memory import estimate
from mgclust.algorithms.communities.objective import objective_of
from mgclust.algorithms.communities.parallel import communities
from mgclust.datasets import make_random_network
from mgclust.kernels import load
from support import graphs
from support.thread_ranks import on_ranks

KERNELS = load("cpu")
SHARED = 64  # the rows of graphs with more entries stay distributed over the ranks


def network(order: str) -> tuple[np.ndarray, int]:
    made = make_random_network(30, 150, 16, 0.8)
    if order == "by cluster":
        return made.edges, made.n_nodes
    return np.random.default_rng(0).permutation(made.n_nodes).astype(np.int32)[made.edges], made.n_nodes


def context_of(comm, edges: np.ndarray) -> SimpleNamespace:
    """Return what `read_level` and `communities` need on a rank that has its part of the edges."""
    own = np.array_split(edges, comm.size)[comm.rank]
    rows = SimpleNamespace(
        chunks=lambda: (SimpleNamespace(x=each) for each in np.array_split(own, 2)), release=lambda: None
    )
    return SimpleNamespace(
        kernels=KERNELS, comm=comm, rows=rows, dataset_shape=edges.shape, progress=lambda *_, **__: None,
        sum_over_blocks=lambda function: function(edges[None]).sum(axis=0),
    )  # fmt: skip


def search(comm, edges, n):
    context = context_of(comm, edges)
    level, _ = read_level(context, n, SHARED)
    labels, report = communities(context, level, 0)
    return labels.tolist(), report


CASES = {
    "by cluster": lambda: network("by cluster"),
    "in any order": lambda: network("in any order"),
    "equal edges and loops": lambda: (np.random.default_rng(0).integers(0, 150, (4000, 2)).astype(np.int32), 151),
    "floats": lambda: (graphs.random_graph(5, 500, 2500, "floats"), 510),
    "hub": lambda: (np.column_stack([np.zeros(3000), np.arange(1, 3001)]).astype(np.int32), 3001),
}


@pytest.mark.parametrize("case", CASES)
def test_the_number_of_ranks_changes_nothing(case):
    edges, n = CASES[case]()
    expected = on_ranks(1, lambda comm: search(comm, edges, n))[0]
    for size in (2, 3, 4):
        assert all(found == expected for found in on_ranks(size, lambda comm: search(comm, edges, n)))


@pytest.mark.parametrize("weighted", [False, True])
def test_ranks_need_no_more_memory_than_estimated(weighted):
    edges, n = network("in any order")
    if weighted:
        edges = np.column_stack([edges, np.random.default_rng(0).random(len(edges))])
    for size in (1, 2, 4):
        on_ranks(size, lambda comm: search(comm, edges, n))  # so that kernels are loaded
        tracemalloc.start()
        on_ranks(size, lambda comm: search(comm, edges, n))
        most = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert most <= size * estimate(edges.shape, edges.itemsize, size, 0, n=n, levels=True).needed


@pytest.mark.parametrize("objective", ["modularity", "cpm"])
def test_a_graph_of_lone_nodes_needs_no_more_memory_than_estimated(objective):
    n = 50_000
    edges = np.random.default_rng(0).integers(0, n, (1000, 2)).astype(np.int32)

    def work(comm):
        context = context_of(comm, edges)
        level, scale = read_level(context, n, SHARED)
        communities(context, objective_of(level, scale, objective, 0.1).level, 0, matched=objective == "cpm")

    for size in (1, 3):
        on_ranks(size, work)  # kernels are loaded
        tracemalloc.start()
        on_ranks(size, work)
        most = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert most <= size * estimate(edges.shape, edges.itemsize, size, 0, n=n, levels=True).needed


@pytest.mark.parametrize("weights", ["equal", "one heavy edge", "light groups"])
def test_ranks_have_equal_numbers_of_entries_whatever_the_weights(weights):
    """If ranks had equal weights, one of them would have nearly all entries."""
    edges, n = network("in any order")
    heavy = np.where(np.arange(len(edges)) < (0 if weights == "equal" else 1), 1e9, 1.0)
    if weights == "light groups":
        heavy = np.where(edges.min(axis=1) < 1000, 1e9, 1.0)
    edges = np.column_stack([edges, heavy])
    ids = (np.arange(n) // 3).astype(np.int32)

    def work(comm):
        level, _ = read_level(context_of(comm, edges), n, SHARED)
        return level.rows.entries, contract(level, ids, n // 3).rows.entries

    for entries in zip(*on_ranks(4, work), strict=True):
        assert max(entries) <= 1.1 * sum(entries) / 4


@pytest.mark.parametrize("objective", ["modularity", "cpm"])
@pytest.mark.parametrize("inside", [False, True])
def test_the_owner_of_a_large_group_receives_sums(inside, objective):
    """If the owner of a large group received all entries, it would need memory for most of the graph."""
    rng = np.random.default_rng(0)
    u, v = rng.integers(0, 1000, 20_000), rng.integers(0, 1000, 20_000) + (0 if inside else 1000)
    edges, n = np.column_stack([u, v]).astype(np.int32), 2000
    ids = np.maximum(np.arange(n) - 999, 0).astype(np.int32)  # group 0 has 1,000 nodes, and each other group has one

    def work(comm):
        level, scale = read_level(context_of(comm, edges), n, SHARED)
        level = objective_of(level, scale, objective, 1.0).level
        before = comm.sent
        return contract(level, ids, 1001).entries, comm.sent - before

    entries, sent = zip(*on_ranks(3, work), strict=True)
    assert set(entries) == {0 if inside else 2000}
    lengths, sums = 3 * 1001, 3 * 2000
    assert sum(sent) <= 4 * lengths + 8 * sums  # there are 20 times as many entries as sums


def test_directions_and_fixed_nodes_survive_a_contraction_on_ranks():
    edges, n = network("in any order")
    ids = (np.arange(n) % 100).astype(np.int32)

    def work(comm):
        level, _ = read_level(context_of(comm, edges), n, SHARED, directed=True)
        level.fixed = (np.arange(n) == 7).astype(np.uint8)
        after = contract(level, ids, 100)
        return after.strength.tolist(), after.fixed.tolist(), after.entries, levels.modularity_of(after, np.arange(100))

    expected = on_ranks(1, work)[0]
    assert all(found == expected for found in on_ranks(3, work))
    assert expected[1] == [number == 7 for number in range(100)]
