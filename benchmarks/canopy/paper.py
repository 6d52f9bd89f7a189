"""Canopy clustering on a GPU (Hayashi, Kozawa, Amagasa, Kitagawa) again: both experiments, and their figure.

Theirs: one Xeon E5630 against a GTX 460 (1 GB); normal data in a cube of side 10 n, t2 = 0.7 t1.

    Experiment 1    n = 100,000, t1 = n, two to six dimensions
    Experiment 2    two dimensions, t1 = 0.5 n, n = 100 to 1,000,000: at the largest n the GPU is about 15 times as fast
                    as their CPU version with cells; small n lose to the transfers

Ours: the whole fit, memberships and labels included, from rows where the device reads them; on all cores of this
machine's CPU, on one GPU, on several. Beside them, for scale, what one writes without mgclust: the definition in NumPy,
a centre at a time, and with SciPy's k-d tree. All find the same centres, which is checked. The hardware differs by a
decade and a half: compare the shape, how time grows with n and with the dimensions.

    python -m benchmarks.canopy.paper --devices cpu,cuda,cuda:4 --out NAME.json
    python -m benchmarks.canopy.paper --figure NAME.json [OTHER.json ...]
"""

from __future__ import annotations

import json
import statistics
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.support import on_ranks, sets
from benchmarks.support import record as bench
from benchmarks.support.rank_processes import Processes

PAPER = {"speed-up at n = 1,000,000, GTX 460 over cells on one Xeon": 15}
DIMENSIONS = (2, 3, 4, 5, 6)
SIZES = (100, 1_000, 10_000, 100_000, 1_000_000)
NAIVE_PAIRS = 3e9  # the definition in NumPy is left out beyond
NAMES = {"cpu": "CPU", "naive": "NumPy, a centre at a time", "tree": "SciPy k-d tree", "cuda": "1 GPU"}


def experiments() -> Iterator[tuple[int, int, int, float]]:
    """Number of the experiment, rows, features, t1."""
    for d in DIMENSIONS:
        yield 1, 100_000, d, 100_000.0
    for n in SIZES:
        yield 2, n, 2, 0.5 * n


def naive(X: np.ndarray, t1: float, t2: float) -> tuple[np.ndarray, int]:
    """Centres and the number of memberships by the definition, a centre at a time."""
    alive, centers, members = np.ones(len(X), bool), [], 0
    while alive.any():
        centers.append(int(alive.argmax()))
        distance = np.sqrt(((X - X[centers[-1]]) ** 2).sum(axis=1))
        members += len(np.flatnonzero(distance <= t1))
        alive &= distance > t2
    return np.array(centers), members


def tree(X: np.ndarray, t1: float, t2: float) -> tuple[np.ndarray, int]:
    """The same with a k-d tree."""
    from scipy.spatial import cKDTree

    index, alive, centers = cKDTree(X), np.ones(len(X), bool), []
    for i in range(len(X)):
        if alive[i]:
            centers.append(i)
            alive[index.query_ball_point(X[i], t2)] = False
    return np.array(centers), sum(map(len, index.query_ball_point(X[centers], t1)))


def fitted(device: str, X: Any, t1: float, t2: float, repeat: int) -> dict[str, Any]:
    """Seconds, stages and findings of whole fits of this process, after a warm-up."""
    from mgclust import Canopy

    if device == "cuda":
        import cupy

        X = cupy.asarray(X)
    model = Canopy(t1, t2, device=device, client=None)
    model.fit(X)
    runs = []
    for _ in range(repeat):
        start = time.perf_counter()
        model.fit(X)
        runs.append((time.perf_counter() - start, dict(model.timings_)))
    stages = {stage: statistics.median(run[1][stage] for run in runs) for stage in runs[0][1]}
    return {
        "seconds": statistics.median(run[0] for run in runs),
        "stages": stages,
        "canopies": model.n_canopies_,
        "memberships": model.memberships_.nnz,
        "steps": model.n_steps_,
        "bits": on_ranks.digest(model.cluster_centers_indices_),
    }


def on_several(ranks: Processes, X: np.ndarray, t1: float, t2: float, repeat: int) -> dict[str, Any]:
    """The same of several ranks; their rows are loaded before the clock starts."""
    from mgclust.algorithms.canopy.ranks import canopy, estimate
    from mgclust.data.arrays import ArrayDataset
    from mgclust.engine.spmd import RunSpec

    data = ArrayDataset(X)
    parameters = {"metric": "euclidean", "t1": t1, "t2": t2, "order": "index", "seed": 0}
    runs = []
    for _ in range(1 + repeat):
        outcome = ranks.run(RunSpec(canopy, parameters, estimate, "float64"), data)
        stages = {stage: s for stage, s in outcome.timings.items() if stage not in ("load", "connect")}
        runs.append((sum(stages.values()), stages))
    value = outcome.value
    return {
        "seconds": statistics.median(run[0] for run in runs[1:]),
        "stages": {stage: statistics.median(run[1][stage] for run in runs[1:]) for stage in runs[0][1]},
        "canopies": len(value.centers),
        "memberships": value.total,
        "steps": value.n_steps,
        "bits": on_ranks.digest(value.centers),
    }


def by_hand(device: str, X: np.ndarray, t1: float, t2: float, repeat: int) -> dict[str, Any]:
    method = {"naive": naive, "tree": tree}[device]
    times = []
    for _ in range(repeat):
        start = time.perf_counter()
        centers, members = method(X, t1, t2)
        times.append(time.perf_counter() - start)
    found = {"canopies": len(centers), "memberships": members, "bits": on_ranks.digest(centers)}
    return {"seconds": statistics.median(times), **found}


def measure(out: bench.Record, device: str, ranks: Processes | None, options: Any) -> None:
    for experiment, n, d, t1 in experiments():
        if n > options.most:
            continue
        X, t2 = sets.normal_cube(n, d), 0.7 * t1
        if device == "naive" and float(n) * _centers(out, experiment, n, d) > NAIVE_PAIRS:
            continue
        if ranks is not None:
            found = on_several(ranks, X, t1, t2, options.repeat)
        elif device in ("naive", "tree"):
            found = by_hand(device, X, t1, t2, options.repeat if n <= 10_000 else 1)
        else:
            found = fitted(device, X, t1, t2, options.repeat)
        known = _others(out, experiment, n, d)
        same = all(item["bits"] == found["bits"] and item["memberships"] == found["memberships"] for item in known)
        about = {"experiment": experiment, "device": device, "n": n, "d": d, "t1": t1}
        out.add(f"experiment {experiment} n={n} d={d} {device}", **about, **found, same_as_others=same)


def _others(out: bench.Record, experiment: int, n: int, d: int) -> list[dict[str, Any]]:
    """What was found before for the same data."""
    return [item for item in out.document["items"] if (item["experiment"], item["n"], item["d"]) == (experiment, n, d)]


def _centers(out: bench.Record, experiment: int, n: int, d: int) -> int:
    return next((item["canopies"] for item in _others(out, experiment, n, d)), n)


def figure(paths: list[Path]) -> None:
    """Draw the paper's figure from results files, time over dimensions and over rows; a PNG beside the first.

    Of a device that several files measured, the first file's runs are taken.
    """
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    runs: dict[str, list[dict[str, Any]]] = {}
    names: dict[str, str] = {}
    for path in paths:
        document = json.loads(path.read_text())
        for device in dict.fromkeys(item["device"] for item in document["items"]):
            if device in runs:
                continue
            runs[device] = [item for item in document["items"] if item["device"] == device]
            names[device] = NAMES.get(device) or f"{device.partition(':')[2]} GPUs"
            if device == "cpu":
                names[device] = f"CPU, {document['hardware']['cores']} cores"
    drawing, axes = plt.subplots(1, 2, figsize=(10, 4), layout="constrained", sharey=True)
    for device, items in runs.items():
        for plot, experiment, over in ((axes[0], 1, "d"), (axes[1], 2, "n")):
            points = {item[over]: item["seconds"] for item in items if item["experiment"] == experiment}
            by_hand = {"linestyle": ":", "color": "grey", "marker": {"naive": "s", "tree": "^"}.get(device)}
            look = by_hand if device in ("naive", "tree") else {"marker": "o"}
            plot.plot(list(points), list(points.values()), label=names[device], **look)
    axes[0].set(xlabel="dimensions (n = 100,000, t1 = n)", ylabel="whole clustering, seconds", yscale="log")
    axes[0].set_xticks(DIMENSIONS)
    axes[1].set(xlabel="rows (2 dimensions, t1 = 0.5 n)", xscale="log")
    axes[1].legend()
    drawing.savefig(paths[0].with_suffix(".png"), dpi=110)
    print(paths[0].with_suffix(".png").name)


def main() -> None:
    parser = bench.parser(__doc__)
    parser.add_argument("--devices", default="cpu,tree,naive", help="cpu, tree, naive, cuda, cuda:N for N GPUs")
    parser.add_argument("--repeat", type=int, default=5)
    parser.add_argument("--most", type=int, default=max(SIZES), help="leave out what has more rows")
    parser.add_argument(
        "--figure", type=Path, nargs="+", help="draw the figure of these results files, measure nothing"
    )
    options = parser.parse_args()
    if options.figure:
        figure(options.figure)
        return
    out = bench.Record(__doc__, options.out)
    out.note("paper", PAPER)
    for device in options.devices.split(","):
        if ":" in device:
            where, size = device.split(":")
            with Processes(int(size), where) as ranks:
                measure(out, device, ranks, options)
        else:
            measure(out, device, None, options)
    if options.out:
        figure([options.out])


if __name__ == "__main__":
    main()
