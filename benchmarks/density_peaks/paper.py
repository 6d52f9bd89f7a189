"""CUDA-DP (Ge et al. 2017) again: BIRCH subsets of 1,000 to 46,000 points, and dc searched for and sampled.

Theirs: one Xeon E5-2620 core against a Tesla K40m (12 GB), with the n x n matrix stored. Ours: all cores
of this machine's CPU, one GPU, and several; nothing of size n x n. The hardware differs by a decade and a
half, so compare the *shape*: how the speed-up grows with n, and that the GPU's memory no longer ends the
curve at 46,000.

Their structure of arrays (5.4x over an array of structures at 32 dimensions, 9.2x at 1024, on the Dim
sets) is a question of how rows are read from global memory. Here both layouts are the same: tiles are
staged in shared memory or registers with one coalesced read of the row-major input. The Dim sets are
timed to show that cost per pair and feature stays level from 32 to 1024 dimensions.

Their Table 3 has dc by search and from a sample of x entries of each row of the matrix, x not told, and their figures 8
to 11 the decision graphs and clusters of both. Here the sample is of random pairs, 20 a row: 7% of the pairs of R15,
1.3% of D31's, 0.8% of those of 5,000 points, 0.04% of all 100,000 of BIRCH1 (by trees and grids, as its pairs would
take minutes); the picture NAME_graphs.png has the graphs and clusters of both. (The sample of rows,
`dc_method="sample"` alone, has all rows of sets below 32,768.) Their counting rule is another one, see
`docs/design/density-peaks.md`: values of dc differ for that reason, too.

    python -m benchmarks.density_peaks.paper --devices cpu,cuda --out NAME.json
    python -m benchmarks.density_peaks.paper --devices cpu --only dc --out NAME.json
    python -m benchmarks.density_peaks.paper --figure NAME.json [OTHER.json ...]
"""

from __future__ import annotations

import json
import statistics
import time
import warnings
from pathlib import Path

import numpy as np

from benchmarks.support import record as bench
from benchmarks.support import sets

SIZES = (1_000, 2_000, 5_000, 10_000, 20_000, 30_000, 46_000)
BEYOND = (100_000,)
# Speed-ups that the paper reports on BIRCH, over one core; its dc searches in ms and its values.
PAPER_SPEED_UP = {"whole run": 45, "distance matrix": 45, "dc": 22, "delta": 64, "rho": 150}
PAPER_DC = {
    "r15": {"search_ms": 1.3, "sample_ms": 1.0, "search_dc": 0.347, "sample_dc": 0.393},
    "d31": {"search_ms": 3.8, "sample_ms": 1.1, "search_dc": 1.151, "sample_dc": 1.073},
    "birch 5,000": {"search_ms": 11.8, "sample_ms": 1.4, "search_dc": 7.653, "sample_dc": 7.364},
}
PAIRS_A_ROW, SEEDS, RUNS = 20, 20, 15
DIMS = (32, 64, 128, 256, 512, 1024)


def prepared(device: str, client, X, k: int, **options):
    """An estimator, and the rows where the device reads them."""
    from mgclust import DensityPeaks

    if device == "cuda":
        import cupy

        X = cupy.asarray(X)
    where = "cuda" if device.startswith("cuda") else "cpu"
    return DensityPeaks(n_clusters=k, device=where, client=client, **{"algorithm": "brute", **options}), X


def timed(device: str, client, X, k: int, repeat: int, **options):
    """Median time and stages of a run whose data is already where the device reads it."""
    model, X = prepared(device, client, X, k, **options)
    model.fit(X)
    runs = []
    for _ in range(repeat):
        start = time.perf_counter()
        model.fit(X)
        runs.append((time.perf_counter() - start, dict(model.timings_)))
    stages = {s: statistics.median(run[1][s] for run in runs) for s in runs[0][1]}
    return statistics.median(run[0] for run in runs), stages, model


def measure(out: bench.Record, device: str, client, options) -> None:
    data, parts = options.data, options.only.split(",")
    repeat = options.repeat if device.startswith("cuda") else min(3, options.repeat)
    for n in (*SIZES, *(BEYOND if device != "cpu" else ())) if "birch" in parts else ():
        took, stages, model = timed(device, client, sets.birch_subset(n, data), min(100, n // 20), repeat)
        out.add(f"birch n={n} {device}", device=device, n=n, seconds=took, stages=stages, dc=model.dc_)
    if client is not None:
        return
    if "dc" in parts:
        dc_sets = [("r15", sets.required("r15", data), 15), ("d31", sets.required("d31", data), 31)]
        dc_sets += [(f"birch {n:,}", sets.birch_subset(n, data), 100) for n in (5_000, 100_000)]
        found = [(name, X, sampled_dc(out, device, name, X, k)) for name, X, k in dc_sets]
        if out.out is not None:
            draw(out.out.with_name(f"{out.out.stem}_graphs.png"), found)
    for d in DIMS if "dims" in parts else ():
        X = np.tile(sets.required(f"dim{d:03d}", data), (8, 1))  # 8,192 rows, so that the device is busy
        took, stages, _ = timed(device, client, X + np.arange(len(X))[:, None] % 7 * np.float32(1e-3), 16, 5)
        per = (stages["rho"] + stages["delta"]) / (2 * len(X) ** 2 * d)
        out.add(
            f"dim{d} x8 {device}",
            device=device,
            d=d,
            seconds=took,
            stages=stages,
            ns_per_pair_feature=1e9 * per,
        )


def sampled_dc(out: bench.Record, device: str, name: str, X: np.ndarray, k: int) -> dict:
    """Least time and value of dc: exact, from rows, from random pairs; how often the stated error holds. The models."""
    from sklearn.metrics import adjusted_rand_score

    n = len(X)
    pairs = PAIRS_A_ROW * n
    rest = {"algorithm": "brute" if n <= max(SIZES) else "auto"}
    random_pairs = rest | {"dc_method": "sample", "sample_size": pairs}
    ways = {"exact": rest, "rows": rest | {"dc_method": "sample"}, "pairs": random_pairs}
    found, models = {}, {}
    for way, options in ways.items():
        model, rows = prepared(device, None, X, k, random_state=0, **options)
        least = min(model.fit(rows).timings_["dc"] for _ in range(RUNS))
        models[way] = model
        found |= {f"{way}_least_ms": 1e3 * least, f"{way}_dc": model.dc_, f"{way}_error": model.dc_error_}
    held = []
    for seed in range(SEEDS):
        model, rows = prepared(device, None, X, k, random_state=seed, **random_pairs)
        model.fit(rows)
        held.append(abs(model.dc_ - models["exact"].dc_) <= model.dc_error_)
    agree = {way: adjusted_rand_score(models["exact"].labels_, models[way].labels_) for way in ("rows", "pairs")}
    out.add(
        f"dc {name} {device}",
        device=device,
        n=n,
        algorithm=models["exact"].exactness_["algorithm"],
        pairs=pairs,
        share_of_pairs=pairs / (n * (n - 1) / 2),
        **found,
        labels_agree_ari=agree,
        error_held=f"{sum(held)} of {SEEDS} seeds",
        paper=PAPER_DC.get(name),
    )
    return models


def draw(path: Path, found: list[tuple[str, np.ndarray, dict]]) -> None:
    """Draw decision graphs and clusters with dc exact and from random pairs, as the paper's figures 8 to 11."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    plt.rcParams["font.size"] = 8
    drawing, axes = plt.subplots(len(found), 4, figsize=(13, 3.2 * len(found)), layout="constrained")
    for row, (name, X, models) in zip(axes, found, strict=True):
        for at, (way, words) in enumerate((("exact", "exact"), ("pairs", "random pairs"))):
            model, graph, plane = models[way], row[at], row[2 + at]
            centers = model.cluster_centers_indices_
            graph.plot(model.rho_, model.delta_, ".", markersize=2, color="grey", rasterized=True)
            graph.plot(model.rho_[centers], model.delta_[centers], "o", markersize=3, color="C3")
            graph.set(xlabel="rho", ylabel="delta", title=f"{name}: dc {model.dc_:.4g}, {words}")
            plane.scatter(X[:, 0], X[:, 1], s=1 if len(X) < 10_000 else 0.05, c=model.labels_ % 20, cmap="tab20")
            plane.plot(X[centers, 0], X[centers, 1], "k+", markersize=4)
            plane.set(xticks=[], yticks=[], title=f"{name}, {words}")
    drawing.savefig(path, dpi=70)
    print(path.name)


def figure(paths: list[Path]) -> None:
    """Draw the paper's figure, run time over points, from results files; a PNG beside the first.

    Of a device that several files measured, the first file's runs are taken.
    """
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    runs: dict[str, dict[int, float]] = {}
    names: dict[str, str] = {}
    for path in paths:
        document = json.loads(path.read_text())
        items = [item for item in document["items"] if item["item"].startswith("birch n=")]
        for device in dict.fromkeys(item["device"] for item in items):
            if device not in runs:
                runs[device] = {item["n"]: item["seconds"] for item in items if item["device"] == device}
                names[device] = device.replace("cuda:", "GPUs: ").replace("cuda", "1 GPU")
                if device == "cpu":
                    names[device] = f"CPU, {document['hardware']['cores']} cores"
    base = runs.get("cpu", {})
    drawing, axes = plt.subplots(1, 2 if len(runs) > 1 and base else 1, figsize=(10, 4), layout="constrained")
    left, *right = np.atleast_1d(axes)
    for device, points in runs.items():
        left.loglog(list(points), list(points.values()), "o-", label=names[device])
        both = {n: base[n] / took for n, took in points.items() if n in base}
        if right and device != "cpu":
            right[0].semilogx(list(both), list(both.values()), "o-", label=f"{names[device]} over {names['cpu']}")
    left.axvline(46_000, color="grey", linestyle=":", label="end of the paper's GPU memory")
    left.set(xlabel="points (BIRCH1 subsets)", ylabel="whole run, seconds")
    for plot in right:
        plot.axhline(45, color="grey", linestyle="--", label="paper: K40m over one Xeon core")
        plot.set(xlabel="points (BIRCH1 subsets)", ylabel="speed-up")
    for plot in (left, *right):
        plot.legend()
    drawing.savefig(paths[0].with_suffix(".png"), dpi=110)
    print(paths[0].with_suffix(".png").name)


def main() -> None:
    parser = bench.parser(__doc__)
    parser.add_argument("--devices", default="cpu", help="cpu, cuda, cuda:N for N GPUs; comma-separated")
    parser.add_argument("--only", default="birch,dc,dims", help="parts to measure, comma-separated")
    parser.add_argument("--repeat", type=int, default=5)
    parser.add_argument(
        "--figure", type=Path, nargs="+", help="draw the figure of these results files, measure nothing"
    )
    options = parser.parse_args()
    if options.figure:
        figure(options.figure)
        return
    warnings.simplefilter("ignore")  # that dc was sampled
    out = bench.Record(__doc__, options.out)
    out.note("paper_speed_up_over_one_core", PAPER_SPEED_UP)
    for device in options.devices.split(","):
        if ":" in device:
            from benchmarks.density_peaks.scaling import cluster

            with cluster(int(device.split(":")[1]), cpu=False) as client:
                measure(out, device, client, options)
        else:
            measure(out, device, None, options)
    if options.out and "birch" in options.only:
        figure([options.out])


if __name__ == "__main__":
    main()
