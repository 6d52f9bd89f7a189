"""Neighbour graphs of rows, compared with plain loops over all pairs."""

import itertools
import time
import tracemalloc

import numpy as np
import pytest
from scipy import ndimage, sparse
from scipy.sparse.csgraph import connected_components

from mgclust.base.errors import InputError, InsufficientMemoryError
from mgclust.data import neighbors
from mgclust.data.neighbors import RowNeighbors, checked_neighbors, volume_neighbors


def lists(graph):
    assert graph.starts.dtype == np.int64 and graph.columns.dtype == np.int32
    assert graph.starts[0] == 0 and graph.starts[-1] == len(graph.columns)
    return [graph.columns[a:b].tolist() for a, b in itertools.pairwise(graph.starts)]


def lists_of_pairs(places, touch):
    """Lists by a loop over all pairs of rows."""
    return [[j for j, b in enumerate(places) if touch(a, b)] for a in places]


def touching(connectivity):
    most = {6: 1, 18: 2, 26: 3}[connectivity]  # squared distance in steps

    def touch(a, b):
        steps = [abs(int(x) - int(y)) for x, y in zip(a, b, strict=True)]
        return max(steps) == 1 and sum(steps) <= most

    return touch


def refusal(call, *args, **kwargs):
    with pytest.raises(InputError) as caught:
        call(*args, **kwargs)
    message = str(caught.value)
    assert message.endswith(".") and "\n" not in message
    return message


def islands():
    mask = np.zeros((6, 5, 7), dtype=bool)
    mask[0, 0, 0] = mask[0, 4, 6] = mask[5, 0, 6] = True  # corners, which touch only by wrapping around
    mask[2:4, 2, 3:5] = mask[4, 3, 5] = True
    return mask


def masks():
    rng = np.random.default_rng(3)
    one = np.zeros((3, 4, 5), dtype=bool)
    one[1, 2, 4] = True
    return {
        "random": rng.random((6, 5, 4)) < 0.5,
        "whole": np.ones((3, 4, 5), dtype=bool),
        "islands": islands(),
        "one voxel": one,
        "empty": np.zeros((3, 4, 5), dtype=bool),
        "a slice": rng.random((7, 8, 1)) < 0.7,
        "a line": np.ones((1, 1, 9), dtype=bool),
        "a grid of one voxel": np.ones((1, 1, 1), dtype=bool),
        "two layers": rng.random((2, 6, 5)) < 0.6,
    }


@pytest.mark.parametrize("connectivity", [6, 18, 26])
@pytest.mark.parametrize("name", masks())
def test_voxels_that_touch(name, connectivity):
    mask = masks()[name]
    expected = lists_of_pairs(np.argwhere(mask), touching(connectivity))
    assert lists(volume_neighbors(mask.ravel(), mask.shape, connectivity)) == expected
    assert lists(volume_neighbors(np.asfortranarray(mask), mask.shape, connectivity)) == expected


def test_batches_do_not_show(monkeypatch):
    mask = masks()["random"]
    whole = volume_neighbors(mask, mask.shape)
    monkeypatch.setattr(neighbors, "_ROWS_AT_ONCE", 7)
    parts = volume_neighbors(mask, mask.shape)
    assert np.array_equal(whole.starts, parts.starts) and np.array_equal(whole.columns, parts.columns)


@pytest.mark.parametrize("connectivity", [6, 18, 26])
def test_pieces_are_those_of_ndimage(rng, connectivity):
    mask = rng.random((14, 12, 13)) < 0.25
    graph = volume_neighbors(mask, mask.shape, connectivity)
    n = len(graph.starts) - 1
    pieces, _ = connected_components(
        sparse.csr_array((np.ones(len(graph.columns)), graph.columns, graph.starts), (n, n))
    )
    structure = ndimage.generate_binary_structure(3, {6: 1, 18: 2, 26: 3}[connectivity])
    assert pieces == ndimage.label(mask, structure)[1] > 1


def test_a_whole_brain_is_quick_and_within_its_estimate():
    """236,280 voxels: an ellipsoid on a grid of 2 mm."""
    shape = (91, 109, 91)
    places = np.indices(shape).reshape(3, -1).T
    mask = (((places - np.array(shape) / 2) / (33.5, 43.2, 39)) ** 2).sum(axis=1) < 1
    n = int(mask.sum())
    assert 230_000 < n < 240_000
    tracemalloc.start()
    start = time.process_time()
    graph = volume_neighbors(mask, shape)
    seconds = time.process_time() - start
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert seconds < 5
    grid = np.prod(np.array(shape) + 2)
    assert peak < 5 * grid + (40 + 4 * 26) * n + 12 * 26 * neighbors._ROWS_AT_ONCE
    assert 24 < len(graph.columns) / n < 26


def test_wrong_masks():
    mask = np.ones((2, 3, 4), dtype=bool)
    for connectivity in (7, 0, "26", None, 26.5):
        assert "should be 6, 18 or 26" in refusal(volume_neighbors, mask, mask.shape, connectivity)
    assert "shape=(2, 3) should be 3 numbers" in refusal(volume_neighbors, mask, (2, 3))
    assert "each at least 1" in refusal(volume_neighbors, mask, (2, 3, 0))
    assert "give a bool array of shape (2, 3, 5)" in refusal(volume_neighbors, mask, (2, 3, 5))
    assert "dtype int64" in refusal(volume_neighbors, mask.astype(np.int64), mask.shape)
    assert "shape (4, 3, 2)" in refusal(volume_neighbors, mask.T, mask.shape)


def test_too_little_memory_is_told_before_any_is_taken(monkeypatch):
    monkeypatch.setattr("mgclust.outside.inflation._free", lambda: 1000)
    with pytest.raises(InsufficientMemoryError, match="give a mask of fewer voxels, or a smaller connectivity"):
        volume_neighbors(np.ones((5, 5, 5), dtype=bool), (5, 5, 5))
    with pytest.raises(InsufficientMemoryError, match="give a graph with fewer edges"):
        checked_neighbors(np.zeros((100, 2), dtype=int), 3)


EDGES = np.array([[0, 1], [1, 0], [3, 1], [3, 1], [2, 2], [5, 4], [4, 0]])
EXPECTED = [[1, 4], [0, 3], [], [1], [0, 5], [4], []]


def given_graphs():
    matrix = sparse.coo_array((np.full(len(EDGES), -0.5), EDGES.T), shape=(7, 7))
    zero = sparse.coo_array((np.zeros(1), ([2], [6])), shape=(7, 7)).tocsr()
    listed = volume_neighbors(np.ones(7, dtype=bool), (7, 1, 1))
    return {
        "edges": (EDGES, EXPECTED),
        "small unsigned": (EDGES.astype(np.uint8), EXPECTED),
        "list": (EDGES.tolist(), EXPECTED),
        "csr": (matrix.tocsr(), EXPECTED),
        "csc matrix": (sparse.csc_matrix(matrix), EXPECTED),
        "lil of bool": (matrix.astype(bool).tolil(), EXPECTED),
        "with a stored 0": (sparse.csr_array(matrix.tocsr() + zero), EXPECTED),
        "no edge": ([], [[]] * 7),
        "no edge of two": (np.empty((0, 2)), [[]] * 7),
        "no entry": (sparse.csr_array((7, 7)), [[]] * 7),
        "RowNeighbors": (listed, lists(listed)),
        "one direction": (RowNeighbors(np.array([0, 1, 1, 1, 1, 1, 1, 1]), np.array([6])), [[6], *[[]] * 5, [0]]),
    }


@pytest.mark.parametrize("form", given_graphs())
def test_given_graphs_become_symmetric_lists(form):
    graph, expected = given_graphs()[form]
    assert lists(checked_neighbors(graph, 7)) == expected


def test_a_given_graph_of_all_pairs(rng):
    n = 40
    matrix = sparse.random_array((n, n), density=0.2, rng=rng, format="csr")
    dense = matrix.toarray() != 0
    dense |= dense.T
    np.fill_diagonal(dense, False)
    expected = [np.flatnonzero(row).tolist() for row in dense]
    assert lists(checked_neighbors(matrix, n)) == expected
    assert lists(checked_neighbors(np.argwhere(matrix.toarray()), n)) == expected


def test_wrong_graphs():
    assert "give a sparse matrix of shape (7, 7)" in refusal(checked_neighbors, sparse.csr_array((6, 6)), 7)
    assert "neighbors holds NaN" in refusal(checked_neighbors, sparse.csr_array([[0, np.nan], [0, 0]]), 2)
    assert "names row 5, but there are 5 rows" in refusal(checked_neighbors, EDGES, 5)
    assert "names row -1" in refusal(checked_neighbors, [[0, -1]], 5)
    for wrong in (np.eye(4), [[0.0, 1.0]], [[0, 1], [2]], "x.npz", None, {"a": 1}, np.zeros((3, 3), dtype=int)):
        assert "give a sparse matrix of SciPy of shape (4, 4), or edges" in refusal(checked_neighbors, wrong, 4)
    listed = volume_neighbors(np.ones(7, dtype=bool), (7, 1, 1))
    assert "of 7 rows; give 8 lists" in refusal(checked_neighbors, listed, 8)
    falling = RowNeighbors(np.array([0, 3, 1, 4]), np.array([1, 2, 0, 1]))
    assert "starts should rise" in refusal(checked_neighbors, falling, 3)
    assert "names row 9" in refusal(checked_neighbors, RowNeighbors(np.array([0, 1, 1]), np.array([9])), 2)
