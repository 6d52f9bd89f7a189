"""The strategy that is taken by default, and which attribute of edges is their weight."""

import re
import warnings

import dask.dataframe as dd
import igraph
import networkx as nx
import numpy as np
import pandas as pd
import polars as pl
import pytest

from mgclust import Communities, modularity, open_graph
from mgclust.base.errors import ClusteringWarning, InputError
from mgclust.data import samples


def fit(graph, **parameters):
    return Communities(device="cpu", client=None, **parameters).fit(graph)


@pytest.mark.parametrize(
    ("given", "taken"),
    [({}, "parallel"), ({"n_clusters": 4}, "greedy"), ({"strategy": "parallel", "n_clusters": 4},) * 2],
)
def test_auto_says_what_it_took(given, taken):
    graph = samples.load("lesmis")
    taken = taken if isinstance(taken, str) else taken["strategy"]
    model, named = fit(graph, **given), fit(graph, **{**given, "strategy": taken})
    assert (model.strategy_, named.strategy_) == (taken, taken)
    assert model.result_.diagnostics["strategy"] == taken and model.get_params()["strategy"] in ("auto", taken)
    assert model.labels_.tolist() == named.labels_.tolist() and model.modularity_ == named.modularity_
    assert model.merges_.tolist() == named.merges_.tolist()


def test_the_default_has_the_larger_modularity():
    graph = samples.load("lesmis")
    assert fit(graph).modularity_ > fit(graph, strategy="greedy").modularity_


def test_strategies_that_are_asked_for_are_greedy_merges_as_before():
    model = fit([(0, 1), (1, 2), (0, 2), (2, 3), (3, 4), (4, 5), (3, 5)], strategy="greedy")
    assert model.merges_[:2].tolist() == [[0, 1], [0, 2]] and model.cut(3).tolist() == [0, 0, 0, 1, 2, 2]


def _networkx(edges):
    graph = nx.Graph()
    graph.add_nodes_from(range(4))
    for u, v, data in edges:
        graph.add_edge(u, v, **data)
    return graph


def _igraph(edges):
    graph = igraph.Graph(n=4, edges=[(u, v) for u, v, _ in edges])
    for name in dict.fromkeys(key for *_, data in edges for key in data):
        graph.es[name] = [data.get(name) for *_, data in edges]
    return graph


EDGES = [(0, 1, {"strength": 2.0, "note": "a"}), (1, 2, {"strength": 5, "km": 3, "open": True}), (2, 3, {"note": "b"})]


@pytest.mark.parametrize("make", [_networkx, _igraph])
def test_an_attribute_is_the_weight(make):
    graph = make(EDGES)
    assert open_graph(graph, weight="strength").read(0, 3)[:, 2].tolist() == [2, 5, 1]
    assert not open_graph(graph, weight=None).weighted
    with pytest.raises(
        InputError, match=r"weight='mass' is not an attribute of .*attributes that are numbers: 'km', 'strength'"
    ):
        open_graph(graph, weight="mass")
    with pytest.raises(InputError, match=r"edge \d+ of .*: weight .* is not a number"):
        open_graph(graph, weight="note")
    labels = [0, 0, 1, 1]
    plain, weighted = (modularity(graph, labels, weight=name, client=None) for name in (None, "strength"))
    assert plain == pytest.approx(nx.community.modularity(_networkx(EDGES), [{0, 1}, {2, 3}], weight=None))
    assert weighted == pytest.approx(nx.community.modularity(_networkx(EDGES), [{0, 1}, {2, 3}], weight="strength"))


@pytest.mark.parametrize("make", [_networkx, _igraph])
def test_numbers_that_could_be_weights_are_mentioned(make):
    with pytest.warns(ClusteringWarning, match="every edge of .* has weight 1.*'km', 'strength'.*weight='km'"):
        fit(make(EDGES))
    with warnings.catch_warnings():
        warnings.simplefilter("error", ClusteringWarning)
        fit(open_graph(make([(u, v, {**data, "strength": 2.0}) for u, v, data in EDGES]), weight="strength"))
        fit(open_graph(make(EDGES), weight=None))
        fit(make([(u, v, {"weight": 1.0, **data}) for u, v, data in EDGES]))


@pytest.mark.parametrize("make", [_networkx, _igraph])
def test_edges_without_a_weight_are_mentioned(make):
    """They count as one, as in networkx."""
    edges = [(u, v, {"km": 2.0} if u == 0 else {}) for u, v, _ in EDGES]
    missing = sum(u != 0 for u, _, _ in edges)
    graph = open_graph(make(edges), weight="km")
    assert sorted(graph.read(0, len(edges))[:, 2].tolist()) == [1.0] * missing + [2.0] * (len(edges) - missing)
    (said,) = graph.warnings
    assert re.match(rf"{missing} of {len(edges)} edges of .* have no 'km' and have weight 1: give it to all", said)


@pytest.mark.parametrize("make", ["pandas", "polars", "pyarrow", "dask", "parquet"])
def test_columns_that_could_be_weights_are_mentioned(make, tmp_path):
    table = pd.DataFrame({"source": [0, 1], "target": [1, 2], "note": ["a", "b"], "km": [1.5, 2], "year": [1, 2]})
    pl.from_pandas(table).write_parquet(tmp_path / "e.parquet")
    source = {
        "pandas": lambda: table,
        "polars": lambda: pl.from_pandas(table),
        "pyarrow": lambda: pl.from_pandas(table).to_arrow(),
        "dask": lambda: dd.from_pandas(table, npartitions=1),
        "parquet": lambda: tmp_path / "e.parquet",
    }[make]()
    (warning,) = open_graph(source).warnings
    assert "('km', 'year'): weight='km' uses it as weights" in warning
    assert open_graph(source, columns=["source", "target"]).warnings == []
    weighted = open_graph(source, columns=["source", "target", "km"])
    assert weighted.warnings == [] and weighted.read(0, 2)[:, 2].tolist() == [1.5, 2]


def test_what_has_no_attributes_takes_no_weight(tmp_path):
    np.save(tmp_path / "e.npy", np.array([[0, 1]]))
    for source in (np.array([[0, 1]]), tmp_path / "e.npy"):
        with pytest.raises(InputError, match="weight='km' applies to tables"):
            open_graph(source, weight="km")
