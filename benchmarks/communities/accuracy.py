"""Modularity, communities and time of both strategies on real graphs, beside igraph and leidenalg.

Greedy merging has one right answer under its rule; where it is known (KNOWN: modularity to four places, communities,
merges with a positive gain, from another implementation that was checked merge by merge against a search of all pairs)
it has to be found. The parallel strategy should reach igraph's Louvain everywhere and come within 0.003 of Leiden.
Louvain and Leiden depend on chance: each is run with several seeds, its mean and its best are given.

Graphs are those of the repository, and with --data those of a folder: NAME.npz with `edges`, `n` and, where classes are
known, `labels`. Edges count alike: weights are left out. Modularity is computed here, from the labels, the same way for
all. mgclust's times are whole fits from the array of edges, after one that is not counted; the peers' are the search
alone. On a CPU, times are processor times, so that other work on the machine hardly changes them.

    python -m benchmarks.communities.accuracy --data FOLDER --out benchmarks/results/communities/accuracy.json
    python -m benchmarks.communities.accuracy --table NAME.json [OTHER.json ...]
"""

from __future__ import annotations

import json
import statistics
import time
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.support import network_peers, on_ranks, sets
from benchmarks.support import record as bench

KNOWN = {
    "karate": (0.3807, 3, 31),
    "dolphins": (0.4955, 4, 58),
    "lesmis": (0.5006, 5, 72),
    "polbooks": (0.5020, 4, 101),
    "football": (0.5497, 6, 109),
    "celegans-metabolic": (0.4002, 10, 443),
    "netscience": (0.9551, 404, 1185),
    "citeseer": (0.8702, 486, 2841),
    "cora": (0.8068, 106, 2602),
    "power": (0.9341, 42, 4899),
    "ca-GrQc": (0.8197, 416, 4826),
    "hep-th": (0.8102, 1416, 6945),
    "email-Eu-core": (0.3471, 27, 978),
    "as-oregon1": (0.6127, 40, 10630),
    "lastfm-asia": (0.7960, 43, 7581),
    "com-amazon-top": (0.9976, 927, 12251),
    "pubmed": (0.7280, 114, 19603),
    "facebook-ego": (0.7745, 16, 4023),
    "wiki-Vote": (0.3402, 55, 7060),
    "astro-ph": (0.6195, 1168, 15538),
    "facebook-pages": (0.6900, 196, 22274),
    "lfr-100k-mu0.1": (0.9295, 315, 99685),
    "lfr-100k-mu0.3": (0.5518, 110, 99890),
    "lfr-100k-mu0.5": (0.5080, 89, 99911),
    "com-dblp": None,
}
NEAR_LEIDEN = 0.003
ROUNDING = 1e-9


def graphs(data: Path | None) -> dict[str, Path]:
    """Where each graph of KNOWN lies, as far as it is here."""
    found = {}
    for name in KNOWN:
        paths = (folder / f"{name}.npz" for folder in (*sets.FOLDERS, *([data] if data else [])))
        path = next((path for path in paths if path.exists()), None)
        if path is None:
            print(f"{name}: not here, left out (give its folder with --data)", flush=True)
        else:
            found[name] = path
    return found


def measure(out: bench.Record, name: str, path: Path, options: Any) -> None:
    edges, n, truth = network_peers.load(path)
    columns = {}
    for device in options.devices.split(","):
        for strategy in ("greedy", "parallel"):
            columns[f"{strategy} {device}"] = ours(strategy, device, edges, n, truth, options.repeat)
    columns |= theirs(edges, n, truth, options)
    out.add(name, n=n, edges=len(edges), **columns, **verdicts(name, columns))


def ours(strategy: str, device: str, edges: np.ndarray, n: int, truth: Any, repeat: int) -> dict[str, Any]:
    from mgclust import Communities

    model, times = Communities(strategy=strategy, device=device, client=None, random_state=0), []
    clock = time.perf_counter if device == "cuda" else time.process_time
    for _ in range(1 + repeat):
        start = clock()
        model.fit((edges, n))
        times.append(clock() - start)
    figures = _judged(edges, truth, model.labels_)
    figures |= {"seconds": statistics.median(times[1:]), "stages": dict(model.timings_)}
    if strategy == "greedy":
        figures["merges"] = n - model.n_clusters_
        figures["bits"] = on_ranks.digest(model.merges_)
    else:
        figures["bits"] = on_ranks.digest(model.labels_)
    return figures


def theirs(edges: np.ndarray, n: int, truth: Any, options: Any) -> dict[str, Any]:
    """What the peers that are here find: mean over seeds, and the best."""
    names = [name for name in network_peers.here() if name not in options.without.split(",")]
    names = [name for name in names if name != "fastgreedy" or len(edges) <= options.most_edges]
    peers = network_peers.Peers(edges, n) if names else None
    columns = {}
    for name in names:
        seeds = 1 if name == "fastgreedy" else options.seeds
        runs = []
        for seed in range(seeds):
            found = peers.run(name, seed)
            runs.append(_judged(edges, truth, found.labels) | {"seconds": found.seconds})
        means = {key: statistics.fmean(run[key] for run in runs) for key in runs[0]}
        best = {"best_modularity": max(run["modularity"] for run in runs)} if seeds > 1 else {}
        columns[name] = means | best
    return columns


def _judged(edges: np.ndarray, truth: Any, labels: np.ndarray) -> dict[str, Any]:
    figures = {"modularity": network_peers.modularity(edges, labels), "communities": int(labels.max()) + 1}
    if truth is not None:
        figures["nmi"] = network_peers.agreement(truth, labels)
    return figures


def verdicts(name: str, columns: dict[str, Any]) -> dict[str, Any]:
    """Whether what should hold does."""
    out: dict[str, Any] = {}
    greedy = [figures for column, figures in columns.items() if column.startswith("greedy")]
    parallel = [figures for column, figures in columns.items() if column.startswith("parallel")]
    if KNOWN[name] is not None:
        found = [(round(f["modularity"], 4), f["communities"], f["merges"]) for f in greedy]
        out["greedy_as_known"] = all(answer == KNOWN[name] for answer in found)
    if len(greedy) > 1:
        out["same_bits"] = all(len({f["bits"] for f in group}) == 1 for group in (greedy, parallel))
    reached = min(f["modularity"] for f in parallel)
    if "Louvain" in columns:
        louvain = columns["Louvain"]
        out["parallel_above_louvain"] = reached - louvain["modularity"]
        out["parallel_above_best_louvain"] = reached - louvain.get("best_modularity", louvain["modularity"])
    for leiden in ("Leiden", "leidenalg"):
        if leiden in columns:
            out[f"parallel_above_{leiden}"] = reached - columns[leiden]["modularity"]
    return out


def summary(out: bench.Record) -> None:
    items = out.document["items"]
    judged = [item for item in items if "greedy_as_known" in item]
    out.note("greedy_as_known", f"{sum(item['greedy_as_known'] for item in judged)} of {len(judged)}")
    for key, at_least in (
        ("parallel_above_louvain", -ROUNDING),
        ("parallel_above_best_louvain", -ROUNDING),
        ("parallel_above_Leiden", -NEAR_LEIDEN),
        ("parallel_above_leidenalg", -NEAR_LEIDEN),
    ):
        found = [item for item in items if key in item]
        if found:
            missed = [item["item"] for item in found if item[key] < at_least]
            out.note(key, {"bound": at_least, "met": f"{len(found) - len(missed)} of {len(found)}", "missed": missed})


def table(paths: list[Path]) -> None:
    """Print results as Markdown: modularity (communities), seconds."""
    items = [item for path in paths for item in json.loads(path.read_text())["items"]]
    columns = list(dict.fromkeys(key for item in items for key, found in item.items() if isinstance(found, dict)))
    print(f"| graph | nodes | edges | {' | '.join(columns)} |\n|{'---|' * (3 + len(columns))}")
    for item in items:
        cells = []
        for column in columns:
            found = item.get(column)
            spread = f", nmi {found['nmi']:.2f}" if found and "nmi" in found else ""
            shown = (
                f"{found['modularity']:.4f} ({found['communities']:.0f}{spread}) {found['seconds']:.2g} s"
                if found
                else ""
            )
            cells.append(shown)
        print(f"| {item['item']} | {item['n']} | {item['edges']} | {' | '.join(cells)} |")


def main() -> None:
    parser = bench.parser(__doc__)
    parser.add_argument("--devices", default="cpu", help="cpu, cuda or both: cpu,cuda")
    parser.add_argument("--seeds", type=int, default=3, help="runs of Louvain and Leiden")
    parser.add_argument("--repeat", type=int, default=1, help="timed fits; their median is given")
    parser.add_argument("--most-edges", type=int, default=220_000, help="igraph's fastgreedy is left out beyond")
    parser.add_argument("--without", default="", help="peers to leave out, with commas: leidenalg takes minutes")
    parser.add_argument("--graphs", help="only these, with commas")
    parser.add_argument("--small", action="store_true", help="only the graphs under 6,000 edges, to try it out")
    parser.add_argument("--table", type=Path, nargs="+", help="print the table of these files, measure nothing")
    options = parser.parse_args()
    if options.table:
        table(options.table)
        return
    out = bench.Record(__doc__, options.out)
    out.note("known", KNOWN)
    for name, path in graphs(options.data).items():
        if options.graphs and name not in options.graphs.split(","):
            continue
        if options.small and len(network_peers.load(path)[0]) > 6_000:
            continue
        try:
            measure(out, name, path, options)
        except Exception as error:
            out.add(name, failed=f"{type(error).__name__}: {error}")
    summary(out)
    if options.out:
        table([options.out])


if __name__ == "__main__":
    main()
