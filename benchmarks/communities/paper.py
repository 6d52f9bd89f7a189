"""Fast Newman on a GPU (Wang) again: accuracy over pin and time over the scale of the network, with both figures.

Networks RN(C, s, d, pin): C clusters of s nodes, s d C / 2 edges, each inside a cluster with probability pin.

    Accuracy    RN(5, 100, 16, pin), 100 networks a pin. The paper: high for pin > 0.8, low for pin < 0.4.
    Speed       RN(5, s, 16, .8); the scale is the number of edges counted in both directions. The paper's largest,
                scale 7e4, took its GPU 195 s, its CPU at least 10.5 times as long; best speed-up 16.8 at 2.5e4 to 4e4.

Counted as right: the share of the nodes that the best one-to-one matching of communities with clusters puts where they
belong, with as many communities as modularity is largest with, and with five, as the paper asks for. Times are whole
fits from the array of edges; of igraph, if it is here, the search alone. Devices have to find the same merges, which
is checked.

    python -m benchmarks.communities.paper --devices cpu,cuda --out NAME.json
    python -m benchmarks.communities.paper --figure NAME.json [OTHER.json ...]
"""

from __future__ import annotations

import importlib.util
import json
import statistics
import time
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.support import network_peers, on_ranks
from benchmarks.support import record as bench

PAPER = {"largest scale": 7e4, "seconds on its GPU": 195.0, "speed-up over its CPU, at least": 10.5}
PINS = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9)
SIZES = (125, 312, 500, 824, 2_000, 5_000, 25_000, 125_000)  # s; 824 is the paper's largest, 4,120 nodes
DEGREE, CLUSTERS, SPEED_PIN = 16, 5, 0.8
METHODS = ("greedy", "parallel")
LOOKS = {
    "greedy cpu": ("greedy, CPU", "#3566b0", "o", "-"),
    "greedy cuda": ("greedy, 1 GPU", "#3566b0", "s", "--"),
    "parallel cpu": ("parallel, CPU", "#2f9560", "o", "-"),
    "parallel cuda": ("parallel, 1 GPU", "#2f9560", "s", "--"),
    "igraph fastgreedy": ("igraph fastgreedy", "#8f99a8", "^", ":"),
    "igraph Louvain": ("igraph Louvain", "#22262b", "v", ":"),
}


def accuracy(out: bench.Record, pin: float, options: Any) -> None:
    """What each method gets right of the networks of one pin."""
    runs: dict[str, list[dict[str, Any]]] = {}
    for seed in range(options.graphs):
        edges, truth = _network(100, pin, seed)
        for method in METHODS:
            for device in options.devices.split(","):
                runs.setdefault(f"{method} {device}", []).append(_ours(method, device, edges, truth, seed))
        for name, found in _theirs(edges, len(truth), seed).items():
            five = found.dendrogram.as_clustering(n=CLUSTERS).membership if found.dendrogram else None
            figures = _judged(edges, truth, found.labels, five) | {"seconds": found.seconds}
            runs.setdefault(f"igraph {name}", []).append(figures)
    first: dict[str, list[str]] = {}
    for name, run in runs.items():
        figures = _means(run)
        if "bits" in run[0]:
            bits = [figures["bits"] for figures in run]
            figures["same_bits"] = first.setdefault(name.split()[0], bits) == bits
        out.add(f"accuracy pin={pin} {name}", experiment="accuracy", method=name, pin=pin, graphs=len(run), **figures)


def _means(runs: list[dict[str, Any]]) -> dict[str, Any]:
    keys = ("right", "right_of_five", "nmi", "modularity", "communities", "seconds")
    means = {key: statistics.fmean(run[key] for run in runs) for key in keys if key in runs[0]}
    if len(runs) > 1:
        means["standard_error"] = statistics.stdev(run["right"] for run in runs) / len(runs) ** 0.5
    return means


def speed(out: bench.Record, size: int, options: Any) -> None:
    """How long each method takes for a network of five clusters of `size` nodes."""
    edges, truth = _network(size, SPEED_PIN, 0)
    n, m = len(truth), len(edges)
    about = {"experiment": "speed", "n": n, "edges": m, "scale": 2 * m}
    bits: dict[str, str] = {}
    for method in METHODS:
        for device in options.devices.split(","):
            runs = [_ours(method, device, edges, truth, 0) for _ in range(1 + options.repeat)][1:]
            runs.sort(key=lambda figures: figures["seconds"])
            figures = runs[len(runs) // 2]
            same = bits.setdefault(method, figures["bits"]) == figures["bits"]
            out.add(
                f"speed n={n} m={m} {method} {device}", method=f"{method} {device}", **about, **figures, same_bits=same
            )
    for name, found in _theirs(edges, n, 0, most=options.most_edges_fastgreedy).items():
        figures = _judged(edges, truth, found.labels, None) | {"seconds": found.seconds}
        out.add(f"speed n={n} m={m} igraph {name}", method=f"igraph {name}", **about, **figures)


def _network(size: int, pin: float, seed: int) -> tuple[np.ndarray, np.ndarray]:
    from mgclust.datasets import make_random_network

    edges, labels = make_random_network(CLUSTERS, size, DEGREE, pin, random_state=seed)
    return edges, labels


def _ours(method: str, device: str, edges: np.ndarray, truth: np.ndarray, seed: int) -> dict[str, Any]:
    from mgclust import Communities

    model = Communities(strategy=method, device=device, client=None, random_state=seed)
    start = time.perf_counter()
    model.fit((edges, len(truth)))
    seconds = time.perf_counter() - start
    found = model.merges_ if method == "greedy" else model.labels_
    five = model.cut(CLUSTERS) if len(truth) <= 100 * CLUSTERS else None
    stages = {"seconds": seconds, "stages": dict(model.timings_), "bits": on_ranks.digest(found)}
    return _judged(edges, truth, model.labels_, five) | stages


def _theirs(edges: np.ndarray, n: int, seed: int, most: int | None = None) -> dict[str, network_peers.Found]:
    names = [name for name in ("fastgreedy", "Louvain") if name in network_peers.here()]
    if most is not None and len(edges) > most:
        names = [name for name in names if name != "fastgreedy"]
    peers = network_peers.Peers(edges, n) if names else None
    return {name: peers.run(name, seed) for name in names}


def _judged(edges: np.ndarray, truth: np.ndarray, labels: np.ndarray, five: Any) -> dict[str, Any]:
    figures = {
        "right": network_peers.fraction_right(truth, labels),
        "nmi": network_peers.agreement(truth, labels),
        "modularity": network_peers.modularity(edges, labels),
        "communities": int(labels.max()) + 1,
    }
    if five is not None:
        figures["right_of_five"] = network_peers.fraction_right(truth, np.asarray(five))
    return figures


def figure(paths: list[Path]) -> None:
    """Draw accuracy over pin and time over scale from results files; a PNG beside the first."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    items = [item for path in paths for item in json.loads(path.read_text())["items"]]
    drawing, (left, right) = plt.subplots(1, 2, figsize=(11, 4.4), layout="constrained")
    for name, (label, color, marker, line) in LOOKS.items():
        look = {"label": label, "color": color, "marker": marker, "linestyle": line, "markersize": 5}
        mine = [item for item in items if item.get("method") == name]
        for plot, experiment, x, y in ((left, "accuracy", "pin", "right"), (right, "speed", "scale", "seconds")):
            points = {item[x]: item[y] for item in reversed(mine) if item["experiment"] == experiment}
            if points:
                plot.plot(sorted(points), [points[at] for at in sorted(points)], **look)
    right.plot(
        PAPER["largest scale"], PAPER["seconds on its GPU"], "*", color="#c8453b", ms=13, label="the paper's GPU"
    )
    left.set(xlabel="pin, RN(5, 100, 16, pin)", ylabel="nodes put where they belong", ylim=(0, 1.03))
    right.set(xlabel="edges in both directions, RN(5, s, 16, .8)", ylabel="seconds", xscale="log", yscale="log")
    right.legend(fontsize=8)
    drawing.savefig(paths[0].with_suffix(".png"), dpi=110)
    print(paths[0].with_suffix(".png").name)


def main() -> None:
    parser = bench.parser(__doc__)
    parser.add_argument("--devices", default="cpu", help="cpu, cuda or both: cpu,cuda")
    parser.add_argument("--graphs", type=int, default=100, help="networks a pin")
    parser.add_argument("--repeat", type=int, default=3, help="timed fits, after one that is not")
    parser.add_argument("--most-edges", type=int, default=1_000_000)
    parser.add_argument("--most-edges-fastgreedy", type=int, default=200_000, help="igraph's takes minutes beyond")
    parser.add_argument("--only", choices=["accuracy", "speed"])
    parser.add_argument("--small", action="store_true", help="three networks a pin, small scales, to try it out")
    parser.add_argument("--figure", type=Path, nargs="+", help="draw the figure of these files, measure nothing")
    options = parser.parse_args()
    if options.figure:
        figure(options.figure)
        return
    if options.small:
        options.graphs, options.most_edges = 3, 10_000
    out = bench.Record(__doc__, options.out)
    out.note("paper", PAPER)
    out.note("peers", network_peers.here())
    if options.only != "speed":
        _ours("greedy", "cpu", *_network(100, 0.5, 0), 0)  # compiles
        for pin in PINS:
            accuracy(out, pin, options)
    if options.only != "accuracy":
        for size in SIZES:
            if CLUSTERS * size * DEGREE // 2 <= options.most_edges:
                speed(out, size, options)
    if options.out and importlib.util.find_spec("matplotlib"):
        figure([options.out])


if __name__ == "__main__":
    main()
