"""What must hold for any graph: drawn by hypothesis, small, so that ties, loops and lone nodes abound."""

from __future__ import annotations

import networkx as nx
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from mgclust import Communities, modularity
from oracles import directed_modularity as oracle
from oracles import fast_newman as reference
from support import graphs

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")
quick = settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck), derandomize=True)


@st.composite
def any_graph(draw):
    n = draw(st.integers(1, 24))
    m = draw(st.integers(0, 60))
    edges = draw(arrays(np.int32, (m, 2), elements=st.integers(0, n - 1)))
    if draw(st.booleans()):
        edges = np.column_stack(
            [edges.astype(float), draw(arrays(np.float64, m, elements=st.integers(0, 6).map(float)))]
        )
    return edges, n


def fit(graph, **parameters):
    return Communities(**{"strategy": "greedy", "device": "cpu", "client": None, **parameters}).fit(graph)


@quick
@given(any_graph())
def test_greedy_equals_the_oracle(graph):
    edges, n = graph
    expected = graphs.whole_reference(edges, n)
    model = fit(graph)
    np.testing.assert_array_equal(model.merges_, np.reshape(expected.merges, (-1, 2)))
    history = [float(q) for q in expected.history]
    np.testing.assert_allclose(model.modularity_history_, history, rtol=0, atol=1e-14)
    positive = next((t for t, gain in enumerate(expected.gains) if gain <= 0), len(expected.gains))
    assert model.n_clusters_ == n - positive


@pytest.mark.slow
@quick
@given(any_graph(), st.sampled_from([0.5, 1.0, 1.5]), st.integers(1, 24))
def test_parallel_is_sound(graph, resolution, k):
    edges, n = graph
    model = fit(graph, strategy="parallel", resolution=resolution)
    assert graphs.connected_communities(edges, model.labels_)
    np.testing.assert_array_equal(model.labels_, graphs.cut_of(model.merges_, n, model.n_clusters_))
    q = float(reference.modularity(edges, model.labels_, n, resolution))
    assert model.modularity_ == pytest.approx(q, abs=1e-12)
    # No worse than every node for itself, and no merge of two of its communities is better.
    assert q >= float(reference.modularity(edges, np.arange(n), n, resolution)) - 1e-12
    rest = model.modularity_history_[n - model.n_clusters_ :]
    assert (rest <= rest[0] + 1e-12).all()
    k = min(k, n)
    np.testing.assert_array_equal(model.cut(k), graphs.cut_of(model.merges_, n, k))
    given_k = fit(graph, strategy="parallel", resolution=resolution, n_clusters=k)
    assert given_k.n_clusters_ == k == len(np.unique(given_k.labels_))


@quick
@given(any_graph(), st.integers(1, 5), st.floats(0.1, 4.0))
def test_modularity_equals_the_definition(graph, k, resolution):
    edges, n = graph
    labels = np.arange(n) * 7 % k
    expected = float(reference.modularity(edges, labels, n, resolution))
    assert modularity(graph, labels, resolution=resolution, client=None) == pytest.approx(expected, abs=1e-13)


def parts_of(edges: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """The connected parts of communities."""
    found = nx.Graph()
    found.add_nodes_from(range(len(labels)))
    for u, v, *weight in edges.tolist():
        if weight != [0.0] and labels[int(u)] == labels[int(v)]:
            found.add_edge(int(u), int(v))
    parts = np.empty(len(labels), int)
    for number, part in enumerate(nx.connected_components(found)):
        parts[list(part)] = number
    return parts


def quality(which: str, edges: np.ndarray, labels: np.ndarray, resolution: float) -> float:
    ends, weights = edges[:, :2].astype(int), edges[:, 2] if edges.shape[1] == 3 else np.ones(len(edges))
    if which == "directed":
        return oracle.modularity(ends, weights, labels, resolution)
    if which == "modularity":
        return float(reference.modularity(edges, labels, len(labels), resolution))
    sizes = np.unique(labels, return_counts=True)[1]
    inside = weights[labels[ends[:, 0]] == labels[ends[:, 1]]].sum()
    return float(inside - resolution * (sizes * (sizes - 1) / 2).sum())


@quick
@given(
    any_graph(),
    st.sampled_from(["modularity", "cpm", "directed"]),
    st.sampled_from([0.2, 1.0, 2.5]),
    st.integers(0, 3),
    st.booleans(),
)
def test_what_the_page_guarantees(graph, which, resolution, seed, started):
    """Each community is connected, and none of the partitions with which a fit begins is better."""
    edges, n = graph
    init = np.random.default_rng(seed).integers(-1, 4, n) if started else None
    objective = {"directed": True} if which == "directed" else {"objective": which}
    model = fit(graph, strategy="parallel", resolution=resolution, random_state=seed, init=init, **objective)
    assert graphs.connected_communities(edges, model.labels_)
    found = quality(which, edges, model.labels_, resolution)
    assert model.quality_ == pytest.approx(found, abs=1e-9)
    known = np.arange(n) if init is None else np.where(init < 0, n + np.arange(n), init)
    begin = parts_of(edges, known)
    assert found >= quality(which, edges, begin, resolution) - 1e-9
