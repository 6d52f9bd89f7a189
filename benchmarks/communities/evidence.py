"""Which graphs are doubted, and what a consensus gives: random graphs, others without communities, and planted ones.

Each graph is fitted with the default parameters, and with null=10 and stability=5. `doubted` says whether the default
fit warns, and `sure` whether the fit with null=10 warns; `z` is the distance from the mean of the rewired graphs in
their standard deviations. Times are processor seconds of whole fits. Where communities are known, three seeds with and
without consensus=10 are compared with them, and with each other, by the adjusted Rand index.

    python -m benchmarks.communities.evidence --data FOLDER --out benchmarks/results/communities/evidence.json
"""

from __future__ import annotations

import time
import warnings
from itertools import combinations
from pathlib import Path
from typing import Any

import networkx as nx
import numpy as np
from sklearn.metrics import adjusted_rand_score

from benchmarks.support import network_peers, sets
from benchmarks.support import record as bench
from mgclust import Communities
from mgclust.base.errors import WeakStructureWarning

RANDOM = {
    "Erdos-Renyi, mean degree 2": lambda seed: nx.gnm_random_graph(400, 400, seed=seed),
    "Erdos-Renyi, mean degree 4": lambda seed: nx.gnm_random_graph(400, 800, seed=seed),
    "Erdos-Renyi, mean degree 10": lambda seed: nx.gnm_random_graph(400, 2000, seed=seed),
    "Erdos-Renyi, mean degree 30": lambda seed: nx.gnm_random_graph(400, 6000, seed=seed),
    "Erdos-Renyi, 30 nodes": lambda seed: nx.gnm_random_graph(30, 60, seed=seed),
    "regular, degree 3": lambda seed: nx.random_regular_graph(3, 400, seed=seed),
    "regular, degree 8": lambda seed: nx.random_regular_graph(8, 400, seed=seed),
    "Barabasi-Albert": lambda seed: nx.barabasi_albert_graph(400, 3, seed=seed),
    "configuration model, power law": lambda seed: configuration(seed),
    "Erdos-Renyi, lognormal weights": lambda seed: lognormal(seed),
}
SEEDS = 5
REAL = (
    "karate",
    "football",
    "dolphins",
    "polbooks",
    "lesmis",
    "celegans-metabolic",
    "email-Eu-core",
    "netscience",
    "power",
    "cora",
)
WITHOUT = {
    "ring lattice, degree 6": lambda: nx.circulant_graph(500, [1, 2, 3]),
    "grid": lambda: nx.convert_node_labels_to_integers(nx.grid_2d_graph(22, 22)),
    "random tree": lambda: nx.random_labeled_tree(500, seed=1),
    "binary tree": lambda: nx.balanced_tree(2, 8),
    "path": lambda: nx.path_graph(300),
    "star": lambda: nx.star_graph(300),
    "random points in a square": lambda: nx.random_geometric_graph(500, 0.08, seed=1),
}


def configuration(seed: int) -> nx.Graph:
    degrees = np.minimum((np.random.default_rng(seed).pareto(1.8, 400) + 1) * 3, 60).astype(int)
    degrees[0] += degrees.sum() % 2
    graph = nx.Graph(nx.configuration_model(degrees.tolist(), seed=seed))
    graph.remove_edges_from(list(nx.selfloop_edges(graph)))
    return graph


def lognormal(seed: int) -> nx.Graph:
    graph = nx.gnm_random_graph(400, 2000, seed=seed)
    for number, (u, v) in enumerate(graph.edges):
        graph[u][v]["weight"] = float(np.exp(np.random.default_rng((seed, number)).normal()))
    return graph


def lfr(mu: float) -> tuple[nx.Graph, np.ndarray]:
    graph = nx.LFR_benchmark_graph(
        1000, 3, 1.5, mu, average_degree=15, max_degree=50, min_community=20, max_community=50, seed=1
    )
    return plain(graph), np.array([min(graph.nodes[node]["community"]) for node in graph])


def planted(ratio: float) -> tuple[nx.Graph, np.ndarray]:
    """Four groups of 250 nodes; they cannot be detected if `ratio` is below 1 (Decelle et al. 2011)."""
    gap = ratio * 4 * 16**0.5
    outside = 16 - gap / 4
    graph = nx.planted_partition_graph(4, 250, (outside + gap) / 1000, outside / 1000, seed=2)
    return plain(graph), np.repeat(np.arange(4), 250)


def plain(graph: nx.Graph) -> nx.Graph:
    """The same nodes and edges, without attributes and self-loops."""
    out = nx.Graph()
    out.add_nodes_from(graph)
    out.add_edges_from((u, v) for u, v in graph.edges if u != v)
    return out


def graphs_of(data: Path | None) -> dict[str, nx.Graph]:
    found = {}
    for folder in (*sets.FOLDERS, *([data] if data else [])):
        for name in REAL:
            if name not in found and (folder / f"{name}.npz").exists():
                edges, n, _ = network_peers.load(folder / f"{name}.npz")
                graph = nx.empty_graph(n)
                graph.add_edges_from(edges.tolist())
                found[name] = plain(graph)
    return found


def fit(graph: Any, **parameters: Any) -> tuple[Communities, bool, float]:
    began = time.process_time()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        model = Communities(device="cpu", client=None, **parameters).fit(graph)
    doubted = any(each.category is WeakStructureWarning for each in caught)
    return model, doubted, time.process_time() - began


def judged(graph: nx.Graph) -> dict[str, Any]:
    off, _, plain_seconds = fit(graph, null=0)
    model, doubted, default_seconds = fit(graph)
    sure, surely_doubted, null_seconds = fit(graph, null=10)
    stable, _, _ = fit(graph, null=0, stability=5)
    found = sure.significance_
    return {
        "nodes": graph.number_of_nodes(),
        "edges": graph.number_of_edges(),
        "communities": model.n_clusters_,
        "modularity": off.modularity_,
        "rewired": found["mean"],
        "z": (off.modularity_ - found["mean"]) / found["std"] if found["std"] > 1e-12 else 0.0,
        "doubted": doubted,
        "sure": surely_doubted,
        "draws_by_default": len((model.significance_ or {"rewired": []})["rewired"]),
        "stability": stable.stability_["mean"],
        "seconds": plain_seconds,
        "seconds_by_default": default_seconds,
        "seconds_null_10": null_seconds,
    }


def consensus(graph: nx.Graph, truth: np.ndarray) -> dict[str, Any]:
    out = {}
    for name, parameters in {"single": {}, "consensus": {"consensus": 10}}.items():
        runs = [fit(graph, null=0, random_state=seed, **parameters) for seed in range(3)]
        labels = [model.labels_ for model, _, _ in runs]
        out |= {
            f"{name}_truth": float(np.mean([adjusted_rand_score(truth, each) for each in labels])),
            f"{name}_seeds": float(np.mean([adjusted_rand_score(*pair) for pair in combinations(labels, 2)])),
            f"{name}_modularity": float(np.mean([model.modularity_ for model, _, _ in runs])),
            f"{name}_communities": [model.n_clusters_ for model, _, _ in runs],
            f"{name}_seconds": float(np.median([seconds for _, _, seconds in runs])),
        }
    return out


def main() -> None:
    arguments = bench.parser(__doc__).parse_args()
    record = bench.Record(__doc__, arguments.out, beside=("networkx",))
    fit(nx.karate_club_graph(), null=1, stability=1)
    for name, make in RANDOM.items():
        all_of = [judged(make(seed)) for seed in range(SEEDS)]
        means = {key: float(np.mean([each[key] for each in all_of])) for key in all_of[0]}
        means |= {key: sum(each[key] for each in all_of) for key in ("doubted", "sure")}
        record.add(f"random: {name}", graphs=SEEDS, **means, z_largest=max(each["z"] for each in all_of))
    for name, make in WITHOUT.items():
        record.add(f"without communities: {name}", **judged(make()))
    for name, graph in graphs_of(arguments.data).items():
        record.add(f"real: {name}", **judged(graph))
    for mu in (0.3, 0.5, 0.8):
        graph, truth = lfr(mu)
        record.add(f"known: LFR, mu {mu}", **judged(graph), **consensus(graph, truth))
    for ratio in (0.9, 1.2, 1.5, 2.0):
        graph, truth = planted(ratio)
        record.add(f"known: four groups, {ratio} times the limit", **judged(graph), **consensus(graph, truth))


if __name__ == "__main__":
    main()
