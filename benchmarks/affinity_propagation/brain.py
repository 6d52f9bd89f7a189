"""The complete adaptive scan of a whole brain: iterations, candidates, best K, time by stage, on one GPU and several.

The rows are the voxels of a NIfTI series, each detrended and z-scored, or a .npy file of such rows; similarities are
correlations. A machine with GPUs but without nibabel is given rows that were prepared elsewhere:

    python -m benchmarks.affinity_propagation.brain bold.nii.gz mask.nii.gz --prepare brain.npy
    python -m benchmarks.affinity_propagation.brain brain.npy --out benchmarks/results/affinity_propagation/brain.json
    python -m benchmarks.affinity_propagation.brain brain.npy --gpus 1,2,4 --out NAME.json

Two short scans (`--probe` iterations) come first: one compiles, one tells how many iterations fit into `--seconds`,
which together with `--max-iter` bounds the scan, on all numbers of GPUs alike. Progress goes into the JSON file.
The limit of an iteration is 12 n^2 bytes at the bandwidth of a copy on the device.
"""

from __future__ import annotations

import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.silhouette.gpu import Clients
from benchmarks.support import on_ranks
from benchmarks.support import record as bench

PROGRESS_EVERY = 5.0  # seconds


def prepare(path: str, mask: str | None, to: Path) -> None:
    """Write the rows that the method would see, float32."""
    from mgclust.data import open_dataset

    dataset = open_dataset(path, mask=mask, standardize="zscore", detrend=True)
    rows = np.asarray(dataset.read(0, dataset.shape[0]), np.float32)
    np.save(to, rows)
    print(f"{to.name}: {rows.shape[0]} voxels x {rows.shape[1]} time points; {dataset.warnings}")


def opened(path: str, mask: str | None) -> Any:
    from mgclust.data import open_dataset

    if path.endswith(".npy"):
        return open_dataset(path)
    return open_dataset(path, mask=mask, standardize="zscore", detrend=True)


class Progress:
    """Prints what the scan says of itself, and keeps it in the JSON file."""

    def __init__(self, out: bench.Record, name: str) -> None:
        self.out, self.name = out, name
        self.began = self.said = time.perf_counter()
        self.seen: list[dict[str, Any]] = []

    def __call__(self, event: dict[str, Any]) -> None:
        """Take one event."""
        now = time.perf_counter()
        if now - self.said < PROGRESS_EVERY:
            return
        self.said = now
        event = {"seconds": now - self.began, **event}
        print("  " + "  ".join(f"{k}={bench._short(v)}" for k, v in event.items()), flush=True)
        self.seen.append({k: bench._plain(v) for k, v in event.items()})
        self.out.note(f"progress {self.name}", self.seen)


def fitted(dataset: Any, client: Any, max_iter: int, progress: Any, options: Any) -> tuple[Any, float]:
    """A fitted model and the wall time of its fit."""
    from mgclust import AdaptiveAffinityPropagation

    device = "cpu" if options.cpu else "cuda"
    model = AdaptiveAffinityPropagation(
        affinity="correlation", profile=options.profile, max_iter=max_iter, device=device, client=client, random_state=0
    )
    on_ranks.free_pool()
    start = time.perf_counter()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model.fit_dataset(dataset, progress, provenance=False)
    return model, time.perf_counter() - start


def bits(model: Any) -> str:
    """A hash of what must not depend on the ranks: iterations, candidates, their labels and scores."""
    candidates = model.scan_["n_clusters"]
    labels = [model.labels_for(int(k)) for k in candidates]
    return on_ranks.digest(np.array([model.n_iter_]), *model.scan_.values(), model.labels_, *labels)


def report(out: bench.Record, size: int, model: Any, wall: float, limit: float, memory: int, first: dict) -> None:
    timings = dict(model.timings_)
    n = len(model.labels_)
    seconds = timings["scan"] / max(1, model.n_iter_)
    found = bits(model)
    one_bits, one_seconds, one_size = first.setdefault("one", (found, seconds, size))
    sizes = np.bincount(model.labels_[model.labels_ >= 0])
    out.add(
        f"adaptive scan n={n} on {size}",
        gpus=size,
        wall_seconds=wall,
        timings=timings,
        iterations=model.n_iter_,
        ended_by_itself=model.converged_,
        stopped=model.result_.diagnostics["stopped"],
        iterations_per_second=1 / seconds,
        ms_iteration=1e3 * seconds,
        limit_ms=limit / size,
        share_of_limit=limit / size / (1e3 * seconds),
        candidates=len(model.scan_["n_clusters"]),
        best_k=model.n_clusters_,
        silhouette=model.silhouette_,
        net_similarity=model.net_similarity_,
        cluster_sizes={"smallest": int(sizes.min()), "median": float(np.median(sizes)), "largest": int(sizes.max())}
        if len(sizes)
        else {},
        peak_device_gib=memory / 2**30,
        efficiency=one_seconds * one_size / (seconds * size),
        same_bits=found == one_bits,
        bits=found,
    )
    out.note(f"scan on {size}", {name: bench._plain(column.tolist()) for name, column in model.scan_.items()})
    out.note(f"log on {size}", {"lines": len(model.log_), "first": model.log_[:40], "last": model.log_[-40:]})


def main() -> None:
    parser = bench.parser(__doc__)
    parser.add_argument("rows", help="a NIfTI series, or a .npy file of rows")
    parser.add_argument("mask", nargs="?", help="its mask")
    parser.add_argument("--prepare", type=Path, metavar="OUT.npy", help="only write the rows")
    parser.add_argument("--gpus", default="1", help="numbers of GPUs, comma-separated (default 1)")
    parser.add_argument("--max-iter", type=int, default=50_000)
    parser.add_argument("--seconds", type=float, default=420, help="what the scan on the first number of GPUs may take")
    parser.add_argument("--probe", type=int, default=200, help="iterations of the short scan")
    parser.add_argument("--profile", default="code", choices=["code", "paper", "fast"])
    parser.add_argument("--labels", type=Path, metavar="OUT.npy", help="write the labels of the best candidate")
    parser.add_argument("--cpu", action="store_true", help="CPU ranks instead")
    parser.add_argument("--small", action="store_true", help="every 40th row only, to try the script out")
    options = parser.parse_args()
    if options.prepare:
        prepare(options.rows, options.mask, options.prepare)
        return
    dataset = opened(options.rows, options.mask)
    if options.small:
        from mgclust.data import open_dataset

        dataset = open_dataset(np.ascontiguousarray(dataset.read(0, dataset.shape[0])[::40]))
    n, d = dataset.shape
    out = bench.Record(__doc__, options.out)
    out.note("data", {"name": Path(options.rows).name, "rows": n, "features": d})
    sizes = [int(size) for size in options.gpus.split(",")]
    limit, max_iter, first = None, options.max_iter, {}
    for size in sizes:
        with Clients(size, options.cpu) as client:
            try:
                if limit is None:
                    limit = 1e3 * on_ranks.BYTES * float(n) * n / bandwidth(options)
                    out.note("limit_ms_iteration", float(f"{limit:.4g}"))
                for _ in range(2):  # the first one compiles
                    probe, wall = fitted(dataset, client, min(options.probe, max_iter), None, options)
                rate = probe.n_iter_ / probe.timings_["scan"]
                fits = int(rate * options.seconds)
                out.add(f"probe on {size}", wall_seconds=wall, iterations_per_second=rate, timings=dict(probe.timings_))
                if size == sizes[0]:
                    max_iter = max(options.probe, min(max_iter, fits))
                    out.note("max_iter", max_iter)
                del probe
                model, wall = fitted(dataset, client, max_iter, Progress(out, f"on {size}"), options)
                report(out, size, model, wall, limit, memory_of(client), first)
                if options.labels and size == sizes[0]:
                    np.save(options.labels, model.labels_)
            except Exception as error:
                out.add(f"adaptive scan n={n} on {size}", failed=f"{type(error).__name__}: {error}")


def bandwidth(options: Any) -> float:
    from mgclust.kernels import load

    return on_ranks.copy_bandwidth(load("cpu" if options.cpu else "cuda"), 1 << (20 if options.cpu else 28))


def memory_of(client: Any) -> int:
    """Device bytes of the process that holds most."""
    if client is None:
        return on_ranks.device_bytes()
    return max(client.run(on_ranks.device_bytes).values())


if __name__ == "__main__":
    main()
