"""Chen and Zeng's experiment again: similarities, silhouettes and the whole adaptive scan of voxels, over their number.

Theirs: single-subject fMRI, 120 time points, subsets of 10,000 voxels; a Xeon E5-2650 and a Quadro 4000, MATLAB; the
similarities and the silhouette on the GPU, the messages on the CPU; each timing the mean of 15 runs without the largest
and the smallest. Ours: all three parts on the device, all cores of this machine's CPU or one GPU, averaged in the same
way (fewer runs where `--budget` seconds a size do not suffice; the file says how many). The hardware differs by more
than a decade: compare how the parts grow, and which of them is left.

Rows are z-scored voxels of a .npy file (`brain.py --prepare` writes one), their first 120 time points, or
made up by `mgclust.datasets.make_bold`. S is minus the squared distance; the paper's silhouette is of S. Here it is of
all candidates of a scan together: in closed form, and as plain distances of all pairs.

    python -m benchmarks.affinity_propagation.paper --devices cpu --rows brain.npy --out NAME.json
    python -m benchmarks.affinity_propagation.paper --devices cuda --rows brain.npy --out NAME.json
    python -m benchmarks.affinity_propagation.paper --figure NAME.json [OTHER.json ...]
"""

from __future__ import annotations

import json
import statistics
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.support import on_ranks
from benchmarks.support import record as bench

TIMES, VOXELS, RUNS = 120, 10_000, 15
SIZES = (100, 200, 400, 800, 1_600, 3_200, 6_400, 10_000)
# n: GPU, CPU. Of the whole method the paper gives a figure only: more than twice as fast, growing with n.
PAPER_S_MS = {100: (0.7, 12.4), 400: (4.1, 191.5), 1600: (55.4, 3038.9), 3200: (216.7, 12141)}
PAPER_SILHOUETTE_S = {100: (0.53, 4.41), 200: (1.63, 32.35), 400: (6.6, 213.7), 800: (38.3, 1987.9)}
SEED = 0


def voxels(path: Path | None) -> tuple[np.ndarray, str]:
    """10,000 rows of 120 time points in random order, z-scored, and where they are from."""
    if path is None:
        from mgclust.datasets import make_bold

        bold, mask, _ = make_bold((28, 32, 26), n_parcels=40, n_timepoints=TIMES, noise=1.0, random_state=SEED)
        X, name = bold[mask], "make_bold, 40 parcels"
    else:
        X, name = np.load(path)[:, :TIMES], path.name
    X = X[np.random.default_rng(SEED).permutation(len(X))[:VOXELS]].astype("float64")
    X -= X.mean(axis=1, keepdims=True)
    time_axis = np.linspace(-1, 1, X.shape[1])
    X -= np.outer(X @ time_axis, time_axis) / (time_axis @ time_axis)
    X /= X.std(axis=1, keepdims=True)
    return np.ascontiguousarray(X, "float32"), name


def trimmed(times: list[float]) -> float:
    """The paper's mean, without the largest and the smallest."""
    kept = sorted(times)[1:-1] if len(times) > 2 else times
    return statistics.fmean(kept)


def similarities(context: Any, *, runs: int) -> list[float]:
    """Seconds of computing all similarities, noise included, from rows on the device."""
    from mgclust.algorithms.affinity_propagation.rows.similarity_matrix import similarity_matrix

    def call() -> None:
        similarity_matrix(context, "euclidean", SEED)

    call()
    times = []
    for _ in range(runs):
        context.kernels.memory.synchronize()
        start = time.perf_counter()
        call()
        context.kernels.memory.synchronize()
        times.append(time.perf_counter() - start)
    return times


def kernel(context: Any, *, runs: int) -> dict[str, Any]:
    """The same, the kernel alone by device events."""
    return on_ranks.matrices_timed(context, repeat=runs)


def silhouettes(context: Any, *, metric: str, labelings: list[np.ndarray], runs: int) -> list[float]:
    """Seconds of scoring all candidates together."""
    from mgclust.algorithms.common.preparation import prepare_rows
    from mgclust.algorithms.silhouette.ranks import score_labelings
    from mgclust.kernels.pairs.metrics import METRICS

    prepare_rows(context, METRICS[metric])
    times = []
    for _ in range(runs + 1):
        context.kernels.memory.synchronize()
        start = time.perf_counter()
        score_labelings(context, METRICS[metric], labelings)
        context.kernels.memory.synchronize()
        times.append(time.perf_counter() - start)
    return times[1:]


def scans(X: np.ndarray, device: str, budget: float) -> tuple[Any, list[float], list[dict[str, float]]]:
    """The last fitted model, and wall times and stages of up to 15 whole runs after one that warms up."""
    from mgclust import AdaptiveAffinityPropagation

    model = AdaptiveAffinityPropagation(silhouette_metric="sqeuclidean", device=device, client=None, random_state=SEED)
    walls: list[float] = []
    stages = []
    began = time.perf_counter()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        while len(walls) < 1 + RUNS:
            start = time.perf_counter()
            model.fit(X)
            walls.append(time.perf_counter() - start)
            stages.append(dict(model.timings_))
            if time.perf_counter() - began + walls[-1] > budget:
                break
    return (model, walls[1:], stages[1:]) if len(walls) > 1 else (model, walls, stages)


def measure(out: bench.Record, device: str, X: np.ndarray, options: Any) -> None:
    for n in options.sizes:
        rows = np.ascontiguousarray(X[:n])
        runs = RUNS if n <= 3200 or device == "cuda" else 5
        found = on_ranks.on(None, 1, device, similarities, rows, runs=runs).value
        alone = on_ranks.on(None, 1, device, kernel, rows, runs=runs).value
        out.add(
            f"S n={n} {device}",
            part="S",
            device=device,
            n=n,
            ms=1e3 * trimmed(found),
            kernel_ms=alone["similarities_ms"],
            runs=runs,
            paper_gpu_cpu_ms=PAPER_S_MS.get(n),
        )
    before = (0, 0.0)  # n, seconds
    for n in options.sizes:
        if before[0] and before[1] * (n / before[0]) ** 2 > 3 * options.budget:
            out.add(f"adAP n={n} {device}", left_out=f"one run would take longer than {3 * options.budget:g} s")
            break
        rows = np.ascontiguousarray(X[:n])
        try:
            model, walls, stages = scans(rows, device, options.budget)
        except Exception as error:
            out.add(f"adAP n={n} {device}", failed=f"{type(error).__name__}: {error}")
            continue
        took = trimmed(walls)
        before = (n, took)
        out.add(
            f"adAP n={n} {device}",
            part="adAP",
            device=device,
            n=n,
            seconds=took,
            runs=len(walls),
            stages={name: trimmed([stage[name] for stage in stages]) for name in stages[0]},
            iterations=model.n_iter_,
            ended_by_itself=model.converged_,
            candidates=len(model.scan_["n_clusters"]),
            best_k=model.n_clusters_,
            silhouette=model.silhouette_,
        )
        candidates = [int(k) for k in model.scan_["n_clusters"] if 1 < k < n]
        if not candidates:
            continue
        labelings = [model.labels_for(k) for k in candidates]
        once = trimmed([stage["silhouette"] for stage in stages])
        arguments = {"labelings": labelings, "runs": max(1, min(RUNS, int(options.budget / 4 / max(once, 1e-3))))}
        kinds = (("sqeuclidean", "float64"), ("euclidean", "float32"))
        times = {
            metric: trimmed(
                on_ranks.on(
                    None, 1, device, silhouettes, rows, metric=metric, options={"dtype": dtype}, **arguments
                ).value
            )
            for metric, dtype in kinds
        }
        out.add(
            f"silhouette n={n} {device}",
            part="silhouette",
            device=device,
            n=n,
            candidates=len(candidates),
            runs=arguments["runs"],
            seconds_closed_form=times["sqeuclidean"],
            seconds_all_pairs=times["euclidean"],
            paper_gpu_cpu_seconds=PAPER_SILHOUETTE_S.get(n),
        )


def figure(paths: list[Path]) -> None:
    """Draw time over n as the paper does, from results files; a PNG beside the first."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    drawing, axes = plt.subplots(1, 3, figsize=(13, 4.2), layout="constrained")
    parts = [
        ("S", "ms", 1e-3, "similarities", "mgclust"),
        ("silhouette", "seconds_closed_form", 1.0, "silhouettes of all candidates", "mgclust, closed form"),
        ("adAP", "seconds", 1.0, "whole adaptive scan", "mgclust"),
    ]
    documents = [json.loads(path.read_text()) for path in paths]
    drawn: set[tuple[str, str]] = set()
    for document in documents:
        items = [item for item in document["items"] if "part" in item]
        names = {"cpu": f"CPU, {document['hardware']['cores']} cores", "cuda": "1 GPU"}
        for plot, (part, key, unit, _, label) in zip(axes, parts, strict=True):
            for device in dict.fromkeys(item["device"] for item in items):
                found = [i for i in items if i["part"] == part and i["device"] == device]
                if not found or (part, device) in drawn:
                    continue
                drawn.add((part, device))
                sizes = [i["n"] for i in found]
                line = plot.loglog(sizes, [unit * i[key] for i in found], "o-", label=f"{label}, {names[device]}")[0]
                if part == "silhouette":
                    pairs = [i["seconds_all_pairs"] for i in found]
                    plot.loglog(sizes, pairs, "o:", color=line.get_color(), label=f"mgclust, pairs, {names[device]}")
                if part == "adAP":
                    scan = [i["stages"]["scan"] for i in found]
                    plot.loglog(sizes, scan, ":", color=line.get_color(), label=f"its iterations, {names[device]}")
    for plot, paper, unit in ((axes[0], PAPER_S_MS, 1e-3), (axes[1], PAPER_SILHOUETTE_S, 1.0)):
        for which, name, style in ((1, "paper, Xeon E5-2650", "s--"), (0, "paper, Quadro 4000", "^--")):
            values = [unit * pair[which] for pair in paper.values()]
            plot.loglog(list(paper), values, style, color="grey", alpha=0.8, label=name)
    for plot, (*_, title, _) in zip(axes, parts, strict=True):
        plot.set(xlabel="voxels (120 time points each)", ylabel="seconds", title=title)
        plot.legend(fontsize=7)
    drawing.savefig(paths[0].with_suffix(".png"), dpi=110)
    print(paths[0].with_suffix(".png").name)


def main() -> None:
    parser = bench.parser(__doc__)
    parser.add_argument("--devices", default="cpu", help="cpu, cuda; comma-separated")
    parser.add_argument("--rows", type=Path, help=".npy of z-scored voxels; default: made up")
    parser.add_argument("--budget", type=float, default=60, help="seconds for the runs of one size")
    parser.add_argument("--sizes", help="numbers of voxels, comma-separated")
    parser.add_argument("--small", action="store_true", help="tiny, to try the script out")
    parser.add_argument("--figure", type=Path, nargs="+", help="draw the figure of these files, measure nothing")
    options = parser.parse_args()
    if options.figure:
        figure(options.figure)
        return
    options.sizes = [int(n) for n in options.sizes.split(",")] if options.sizes else list(SIZES)
    if options.small:
        options.sizes, options.budget = [100, 200], 5
    X, name = voxels(options.rows)
    out = bench.Record(__doc__, options.out)
    out.note("data", {"name": name, "voxels": len(X), "time_points": X.shape[1]})
    out.note("paper_s_gpu_cpu_ms", PAPER_S_MS)
    out.note("paper_silhouette_gpu_cpu_seconds", PAPER_SILHOUETTE_S)
    for device in options.devices.split(","):
        measure(out, device, X, options)
    if options.out:
        figure([options.out])


if __name__ == "__main__":
    main()
