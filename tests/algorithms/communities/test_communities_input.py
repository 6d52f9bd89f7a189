"""What is refused, in one sentence, before anything is computed."""

from __future__ import annotations

import numpy as np
import pytest

from mgclust import Communities, modularity
from mgclust.base.errors import InputError

EDGES = np.array([[0, 1], [1, 2], [2, 3], [0, 3]])


def weights(*values):
    return np.column_stack([EDGES.astype(float), values])


@pytest.mark.parametrize(
    ("graph", "words"),
    [
        (weights(1, -2, 1, -3), "row 1 .*-2"),
        (weights(1, 1, np.nan, 1), "row 2 .*nan"),
        (weights(np.inf, 1, 1, 1), "row 0 .*inf"),
        ((EDGES, 3), "row 2 .*3.*n_nodes=3"),
        (EDGES - 1, "row 0 .*-1"),
        (EDGES * 1_500_000_000, "row 1 .*3000000000"),
        (EDGES + 0.5, "integer"),
        (np.zeros((0, 2), int), "empty|no nodes"),
        ((np.zeros((0, 2), int), 0), "n_nodes=0|empty"),
        (np.arange(5), "shape"),
        (np.zeros((3, 5)), "shape|square"),
        (np.zeros((4, 2), complex), "numbers"),
        ("missing.mtx", "does not exist"),
        ("points.xyz", "xyz"),
        (None, "graph"),
        (42, "graph"),
    ],
)
def test_a_graph_that_is_none(graph, words, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "points.xyz").write_text("1 2")
    with pytest.raises(InputError, match=words):
        Communities(device="cpu", client=None).fit(graph)


@pytest.mark.parametrize("strategy", ["greedy", "parallel"])
@pytest.mark.parametrize(
    ("parameters", "words"),
    [
        ({"n_clusters": 5}, r"n_clusters=5 should be .*4"),
        ({"n_clusters": 0}, "n_clusters=0 should be"),
        ({"n_clusters": 2.5}, "n_clusters=2.5 should be"),
        ({"resolution": -1.0}, "resolution=-1"),
        ({"resolution": np.nan}, "resolution=nan"),
        ({"device": "tpu"}, "device='tpu' should be one of"),
        ({"memory_limit": "much"}, "memory_limit"),
    ],
)
def test_parameters_that_do_not_go(strategy, parameters, words):
    options = {"device": "cpu", "client": None, "strategy": strategy, **parameters}
    with pytest.raises(InputError, match=words):
        Communities(**options).fit(EDGES)


def test_other_wrong_uses():
    with pytest.raises(InputError, match="strategy='fast' should be one of 'auto', 'greedy'"):
        Communities(strategy="fast", client=None).fit(EDGES)
    for name in ("leiden", "Louvain"):
        with pytest.raises(InputError, match=f"strategy='{name}' .* use 'parallel', the nearest value in mgclust"):
            Communities(strategy=name, client=None).fit(EDGES)
    with pytest.raises(TypeError, match=r"weight='km' is not a parameter of Communities; .* open_graph\(G, weight="):
        Communities(weight="km")
    model = Communities(device="cpu", client=None).fit(EDGES)
    for k in (0, 5, -1, 2.5):
        with pytest.raises(InputError, match=f"k={k}"):
            model.cut(k)
    for labels, words in (([0, 1], "labels"), ([[0, 0], [1, 1]], "labels"), ([0, 0, np.nan, 1], "labels")):
        with pytest.raises(InputError, match=words):
            modularity(EDGES, labels, client=None)


def test_a_gpu_where_there_is_none(monkeypatch):
    from mgclust.engine import devices

    monkeypatch.setattr(devices, "gpus", lambda: ())
    with pytest.raises(InputError, match="device='cuda'"):
        Communities(device="cuda", client=None).fit(EDGES)


def test_more_than_fits_is_refused_with_what_would():
    from mgclust.base.errors import InsufficientMemoryError

    edges = np.column_stack([np.arange(200_000), np.arange(1, 200_001)]).astype(np.int32)
    with pytest.raises(InsufficientMemoryError, match="would fit"):
        Communities(strategy="parallel", device="cpu", client=None, memory_limit="100 kB").fit(edges)


@pytest.mark.parametrize("labels", [{0: 0, 1: 0, 2: 1}, [{0, 1}, {2}], [[0, 1], [2]], [frozenset({0}), (1, 2)]])
def test_modularity_of_named_nodes_is_refused_by_a_sentence(labels):
    with pytest.raises(InputError, match="of node names; give one integer for each of the graph's n_nodes=3 nodes"):
        modularity([(0, 1), (1, 2)], labels, client=None)


@pytest.mark.filterwarnings("error")
def test_weights_whose_sum_overflows_are_rejected_without_a_warning_of_numpy():
    with pytest.raises(InputError, match="the sum of all weights overflows float64; rescale the weights"):
        Communities(device="cpu", client=None).fit(weights(1e308, 1e308, 1e308, 1e308))
