"""The same bits on 1, 2, 3 and 4 CPU ranks: `Communities` and `modularity`."""

from __future__ import annotations

import hashlib

import numpy as np
import pytest

from mgclust import Communities, modularity
from mgclust.algorithms import base
from mgclust.algorithms.communities import clusterer as communities
from mgclust.datasets import make_random_network
from support import graphs

pytestmark = [pytest.mark.xdist_group("workers"), pytest.mark.filterwarnings("ignore::UserWarning")]


def network():
    made = make_random_network(8, 150, 16, 0.7)
    return made.edges, made.n_nodes


def loops_and_lone_nodes():
    return graphs.random_graph(4, 3_000, 9_000, "integers"), 3_200


def hub():
    leaves = np.arange(1, 5_001)
    return np.vstack([np.column_stack([np.zeros_like(leaves), leaves]), [[1, 2], [3, 4]]]).astype(np.int32), 5_001


# Blocks hold 1,024 edges at least: karate leaves ranks without any.
CASES = {
    "network": network,
    "real": lambda: graphs.load_graph("cora"),
    "integers, loops, lone nodes": loops_and_lone_nodes,
    "floats": lambda: (graphs.random_graph(5, 2_000, 8_000, "floats"), 2_000),
    "hub": hub,
    "fewer blocks than ranks": lambda: graphs.load_graph("karate"),
    "no edges": lambda: (np.zeros((0, 2), np.int32), 10),
}


@pytest.fixture
def fit_on(ranks, monkeypatch):
    """Fit on a number of ranks: what `connect` would open with so many workers."""

    def fit(size, graph, **parameters):
        for module in (base, communities):  # the fit, and the merges where they are asked for later
            monkeypatch.setattr(module, "connect", lambda **_: ranks(size))
        model = Communities(device="cpu", **{"strategy": "greedy", **parameters}).fit(graph)
        assert model.result_.hardware["ranks"] == size
        return model

    return fit


def bits(model) -> dict[str, str]:
    """Hashes of all results of a fit, but for times."""
    values = {
        "labels": model.labels_,
        "merges": model.merges_,
        "history": model.modularity_history_,
        "modularity": model.modularity_,
        "rounds": repr(model.rounds_).encode(),
    }
    return {
        name: hashlib.sha256(value if isinstance(value, bytes) else np.ascontiguousarray(value).tobytes()).hexdigest()
        for name, value in values.items()
    }


@pytest.mark.quick("hub", "no edges")
@pytest.mark.parametrize("case", CASES)
def test_parallel_has_the_same_bits(case, fit_on):
    graph = CASES[case]()
    expected = bits(fit_on(1, graph, strategy="parallel"))
    for size in (2, 3, 4) if case in ("network", "integers, loops, lone nodes") else (3,):
        assert bits(fit_on(size, graph, strategy="parallel")) == expected, f"on {size} ranks"


@pytest.mark.slow
@pytest.mark.parametrize("case", ["integers, loops, lone nodes", "floats"])
def test_greedy_and_other_parameters_have_the_same_bits(case, fit_on):
    graph = CASES[case]()
    for parameters in ({}, {"strategy": "parallel", "resolution": 1.5}, {"strategy": "parallel", "n_clusters": 5}):
        expected = bits(fit_on(1, graph, **parameters))
        assert bits(fit_on(3, graph, **parameters)) == expected


def test_the_order_of_the_edges_is_none_of_the_answer(fit_on):
    edges, n = network()
    turned = np.random.default_rng(0).permutation(edges)[:, ::-1]
    expected = bits(fit_on(1, (edges, n), strategy="parallel"))
    assert bits(fit_on(2, (np.ascontiguousarray(turned), n), strategy="parallel")) == expected


def test_files_and_clients_reach_the_workers(client, tmp_path):
    edges, n = network()
    np.savez(tmp_path / "g.npz", edges=edges, n=n)
    (tmp_path / "g.txt").write_text("".join(f"{u} {v}\n" for u, v in edges.tolist()))
    expected = bits(Communities(strategy="parallel", device="cpu", client=None).fit((edges, n)))
    for source in ("g.npz", "g.txt"):
        there = Communities(strategy="parallel", device="cpu", client=client, n_workers=4).fit(tmp_path / source)
        assert bits(there) == expected, source
    labels = np.arange(n) % 8
    alone = modularity((edges, n), labels, client=None, device="cpu")
    assert modularity(tmp_path / "g.npz", labels, client=client, device="cpu") == alone


@pytest.mark.slow
@pytest.mark.parametrize("numbers", ["by cluster", "in any order"])
def test_levels_that_stay_apart_have_the_same_bits(numbers, ranks):
    """Every rank has a whole copy of small coarse graphs; here no graph is copied, as with large graphs.

    If nodes are numbered by cluster, few groups have nodes of several ranks; in any order, nearly all groups do.
    """
    from mgclust import open_graph
    from mgclust.engine.spmd import RunSpec, run

    edges, n = network()
    if numbers == "in any order":
        edges = np.random.default_rng(0).permutation(n).astype(np.int32)[edges]
    arguments = {
        "strategy": "parallel",
        "objective": "modularity",
        "resolutions": (1.0,),
        "n_clusters": None,
        "hierarchy": True,
        "seed": 0,
    }
    found = []
    for size in (1, 3):
        with ranks(size) as cluster:
            parameters = {**arguments, "n": n, "device": "cpu", "shared": 64}
            outcome = run(
                RunSpec(communities.detect_communities, parameters, dtype="int32"), open_graph((edges, n)), cluster
            )
        found.append((outcome.arrays["labels"].tolist(), outcome.value.tree.merges.tolist()))
    assert found[0] == found[1]


EVIDENCE = {"strategy": "parallel", "null": 1, "stability": 1, "consensus": 2}
SMALL = {  # with self-loops and lone nodes
    weights: (graphs.random_graph(5, 60, 150, weights), 64) for weights in ("integers", "floats")
}


def evidence_of(significance, stability) -> tuple[str, list[float]]:
    jaccard = stability["jaccard"]
    return repr((significance, {**stability, "jaccard": None})), jaccard.tolist()


@pytest.mark.parametrize("weights", SMALL)
def test_evidence_has_the_same_bits(weights, fit_on):
    models = [fit_on(size, SMALL[weights], **EVIDENCE) for size in ((1, 2, 3, 4) if weights == "floats" else (1, 3))]
    for model in models[1:]:
        assert bits(model) == bits(models[0])
        assert evidence_of(model.significance_, model.stability_) == evidence_of(
            models[0].significance_, models[0].stability_
        )


@pytest.mark.parametrize("weights", ["none", "floats"])
def test_evidence_of_levels_that_stay_apart_has_the_same_bits(weights, ranks):
    from mgclust import open_graph
    from mgclust.engine.spmd import RunSpec, run

    edges, n = SMALL["floats"]
    graph = (edges[:, :2].astype(np.int32), n) if weights == "none" else (edges, n)
    arguments = {
        "objective": "modularity",
        "resolutions": (1.0,),
        "n_clusters": None,
        "hierarchy": False,
        "seed": 3,
        "device": "cpu",
        "n": graph[1],
        **EVIDENCE,
    }
    found = []
    for size, shared in ((1, 8), (3, 8), (3, 1 << 20)):
        with ranks(size) as cluster:
            opened = open_graph(graph)
            spec = RunSpec(communities.detect_communities, {**arguments, "shared": shared}, dtype=opened.dtype.name)
            outcome = run(spec, opened, cluster)
        evidence = outcome.value.evidence
        found.append((outcome.arrays["labels"].tolist(), *evidence_of(evidence.significance, evidence.stability)))
    assert all(each == found[0] for each in found)
