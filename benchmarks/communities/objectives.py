"""Constant Potts model and directed modularity beside leidenalg: quality and processor time on real graphs.

Each item is a graph, an objective and its resolution, and weights: 1, or drawn from (0, 1). leidenalg makes ten
iterations with several seeds; the better result counts. Both results are judged by one function, from the labels. For
directed modularity, each edge gets a random direction, and a third of the edges become two arcs. Times are processor
seconds: of leidenalg's search alone, and of whole fits from the array of edges, after one that is not counted.

    python -m benchmarks.communities.objectives --data FOLDER --out benchmarks/results/communities/objectives.json
"""

from __future__ import annotations

import statistics
import time
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from benchmarks.support import network_peers, sets
from benchmarks.support import record as bench

GRAPHS = ("karate", "celegans-metabolic", "netscience", "cora", "citeseer", "power")
RESOLUTIONS = {"cpm": (0.01, 0.1, 0.5), "directed": (1.0,)}
ITERATIONS = 10


class Case(NamedTuple):
    """A graph and what is maximised."""

    edges: np.ndarray
    weights: np.ndarray
    n: int
    objective: str
    resolution: float


def arcs(edges: np.ndarray) -> np.ndarray:
    """Each edge in a random direction, and a third of the edges in both."""
    rng = np.random.default_rng(0)
    turned = np.where(rng.random((len(edges), 1)) < 0.5, edges, edges[:, ::-1])
    return np.concatenate([turned, turned[rng.random(len(edges)) < 1 / 3][:, ::-1]])


def quality(case: Case, labels: np.ndarray) -> float:
    """The objective, from its definition."""
    ends = labels[case.edges]
    inside = case.weights[ends[:, 0] == ends[:, 1]].sum()
    if case.objective == "cpm":
        sizes = np.bincount(labels).astype(float)
        return float(inside - case.resolution * (sizes * (sizes - 1)).sum() / 2)
    m = case.weights.sum()
    leaving, entering = (np.bincount(ends[:, side], case.weights) for side in (0, 1))
    leaving.resize(len(entering) if len(entering) > len(leaving) else len(leaving))
    entering.resize(len(leaving))
    return float(inside / m - case.resolution * (leaving * entering).sum() / m**2)


def ours(case: Case, seeds: int) -> dict[str, Any]:
    from mgclust import Communities

    which = {"directed": True} if case.objective == "directed" else {"objective": "cpm"}
    plain = bool((case.weights == 1).all())
    graph = (case.edges, case.n) if plain else (case.edges, case.weights, case.n)
    found, times = [], []
    for seed in (0, *range(seeds)):
        model = Communities(resolution=case.resolution, random_state=seed, device="cpu", client=None, **which)
        start = time.process_time()
        model.fit(graph)
        times.append(time.process_time() - start)
        found.append(quality(case, model.labels_))
    return {"lowest": min(found[1:]), "mean": statistics.fmean(found[1:]), "seconds": statistics.median(times[1:])}


def theirs(case: Case, seeds: int) -> dict[str, Any]:
    import igraph
    import leidenalg

    graph = igraph.Graph(case.n, case.edges, directed=case.objective == "directed")
    kind, options = leidenalg.ModularityVertexPartition, {}
    if case.objective == "cpm":
        kind, options = leidenalg.CPMVertexPartition, {"resolution_parameter": case.resolution}
    found, times = [], []
    for seed in range(seeds):
        start = time.process_time()
        partition = leidenalg.find_partition(
            graph, kind, weights=case.weights.tolist(), n_iterations=ITERATIONS, seed=seed, **options
        )
        times.append(time.process_time() - start)
        found.append(quality(case, np.asarray(partition.membership)))
    return {"best": max(found), "mean": statistics.fmean(found), "seconds": statistics.median(times)}


def cases(path: Path) -> dict[str, Case]:
    """The objectives, resolutions and weights of a graph."""
    edges, n, _ = network_peers.load(path)
    found = {}
    for objective, resolutions in RESOLUTIONS.items():
        rows = edges if objective == "cpm" else arcs(edges)
        for name, weights in (("", np.ones(len(rows))), (", weights", np.random.default_rng(1).random(len(rows)))):
            for resolution in resolutions:
                found[f"{path.stem}, {objective} {resolution:g}{name}"] = Case(rows, weights, n, objective, resolution)
    return found


def main() -> None:
    parser = bench.parser(__doc__)
    parser.add_argument("--seeds", type=int, default=3, help="seeds of mgclust; leidenalg has two")
    parser.add_argument("--graphs", default=",".join(GRAPHS), help="only these, with commas")
    options = parser.parse_args()
    out = bench.Record(__doc__, options.out, beside=("leidenalg", "igraph"))
    folders = (*sets.FOLDERS, *([options.data] if options.data else []))
    ratios: dict[str, list[float]] = {}
    for name in options.graphs.split(","):
        path = next((folder / f"{name}.npz" for folder in folders if (folder / f"{name}.npz").exists()), None)
        if path is None:
            print(f"{name}: not here, left out (give its folder with --data)", flush=True)
            continue
        for item, case in cases(path).items():
            mine, other = ours(case, options.seeds), theirs(case, 2)
            ratio = mine["lowest"] / other["best"]
            ratios.setdefault(case.objective, []).append(ratio)
            out.add(item, edges=len(case.edges), mgclust=mine, leidenalg=other, lowest_to_best=ratio,
                    mean_to_best=mine["mean"] / other["best"])  # fmt: skip
    for objective, found in ratios.items():
        within = sum(ratio >= 0.997 for ratio in found)
        out.note(objective, {"lowest": min(found), "within 0.3%": f"{within} of {len(found)}"})


if __name__ == "__main__":
    main()
