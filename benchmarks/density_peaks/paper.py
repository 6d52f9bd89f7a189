"""CUDA-DP (Ge et al. 2017) again: BIRCH subsets of 1,000 to 46,000 points, and the search for dc.

Theirs: one Xeon E5-2620 core against a Tesla K40m (12 GB), with the n x n matrix stored. Ours: all cores
of this machine's CPU, one GPU, and several; nothing of size n x n. The hardware differs by a decade and a
half, so compare the *shape*: how the speed-up grows with n, and that the GPU's memory no longer ends the
curve at 46,000.

Their structure of arrays (5.4x over an array of structures at 32 dimensions, 9.2x at 1024, on the Dim
sets) is a question of how rows are read from global memory. Here both layouts are the same: tiles are
staged in shared memory or registers with one coalesced read of the row-major input. The Dim sets are
timed to show that cost per pair and feature stays level from 32 to 1024 dimensions.

    python -m benchmarks.density_peaks.paper --devices cpu,cuda --out NAME.json
    python -m benchmarks.density_peaks.paper --figure NAME.json [OTHER.json ...]
"""

from __future__ import annotations

import json
import statistics
import time
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
DIMS = (32, 64, 128, 256, 512, 1024)


def timed(device: str, client, X, k: int, repeat: int, **options):
    """Median time and stages of a run whose data is already where the device reads it."""
    from mgclust import DensityPeaks

    where = "cuda" if device.startswith("cuda") else "cpu"
    if device == "cuda":
        import cupy

        X = cupy.asarray(X)
    model = DensityPeaks(n_clusters=k, device=where, client=client, algorithm="brute", **options)
    model.fit(X)
    runs = []
    for _ in range(repeat):
        start = time.perf_counter()
        model.fit(X)
        runs.append((time.perf_counter() - start, dict(model.timings_)))
    stages = {s: statistics.median(run[1][s] for run in runs) for s in runs[0][1]}
    return statistics.median(run[0] for run in runs), stages, model


def measure(out: bench.Record, device: str, client, repeat: int, data: Path | None) -> None:
    for n in (*SIZES, *(BEYOND if device != "cpu" else ())):
        took, stages, model = timed(device, client, sets.birch_subset(n, data), min(100, n // 20), repeat)
        out.add(f"birch n={n} {device}", device=device, n=n, seconds=took, stages=stages, dc=model.dc_)
    if client is not None:
        return
    dc_sets = [("r15", sets.required("r15", data), 15), ("d31", sets.required("d31", data), 31)]
    dc_sets.append(("birch 5,000", sets.birch_subset(5000, data), 100))
    for name, X, k in dc_sets:
        figures = {}
        labels = {}
        for method in ("exact", "sample"):
            _, stages, model = timed(device, client, X, k, 5, dc_method=method, random_state=0)
            figures |= {f"{method}_ms": 1e3 * stages["dc"], f"{method}_dc": model.dc_}
            labels[method] = model.labels_
        from sklearn.metrics import adjusted_rand_score

        agree = adjusted_rand_score(labels["exact"], labels["sample"])
        out.add(f"dc {name} {device}", device=device, **figures, labels_agree_ari=agree, paper=PAPER_DC[name])
    for d in DIMS:
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
    parser.add_argument("--repeat", type=int, default=5)
    parser.add_argument(
        "--figure", type=Path, nargs="+", help="draw the figure of these results files, measure nothing"
    )
    options = parser.parse_args()
    if options.figure:
        figure(options.figure)
        return
    out = bench.Record(__doc__, options.out)
    out.note("paper_speed_up_over_one_core", PAPER_SPEED_UP)
    for device in options.devices.split(","):
        if ":" in device:
            from benchmarks.density_peaks.scaling import cluster

            with cluster(int(device.split(":")[1]), cpu=False) as client:
                measure(out, device, client, options.repeat, options.data)
        else:
            measure(out, device, None, options.repeat if device == "cuda" else min(3, options.repeat), options.data)
    if options.out:
        figure([options.out])


if __name__ == "__main__":
    main()
