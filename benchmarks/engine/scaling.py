"""What scales from one GPU to all GPUs of a host: every method on 1, 2, 4, ... of them, and the same bits on each.

A Dask cluster for each number of GPUs. Rows and edges are made on the device that owns them, functions of their
numbers; results are hashed where they are. Every case runs once on all GPUs before anything is measured, because the
first run of its size compiles kernels. On each cluster a case is warmed up with few rows, and then runs once, or three
times if it is short (the median counts). `seconds` are those of the method's stages: without making rows, connecting
and placing. Efficiency is that of the fewest GPUs that could run the case. A case that does not fit into the devices is
kept as the refusal. At the largest number a worker is killed in the middle of a run, which goes on without its user.

Wanted at 4 and 8 GPUs: 0.9 and 0.8 for comparisons of all pairs, 0.85 and 0.7 for the others.

Sizes: "full", as many rows as one H100 can hold and more; "small", at most 10 s a case on one; "tiny", to try the
script out. `predicted` seconds are those of one H100, from the records of one GPU. Cases are in the order of their
worth: those that do not fit into the budget with all that comes before them are left out on all numbers of GPUs, and a
case is skipped once too little time is left. The record is written after each case.

    python -m benchmarks.engine.scaling --gpus 1,2,4 --sizes small --budget-seconds 560 --out NAME.json
    python -m benchmarks.engine.scaling --table NAME.json
"""

from __future__ import annotations

import json
import logging
import math
import os
import signal
import statistics
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from benchmarks.support import networks, on_ranks, result_bits
from benchmarks.support import record as bench
from benchmarks.support.made_rows import Made, OnGrid, Voxels

Made_ = tuple[Any, str, dict[str, Any]]  # data, name of the method, parameters
WANTED = {"pairs": {4: 0.9, 8: 0.8}, "others": {4: 0.85, 8: 0.7}}
NOT_COUNTED = ("place", "load", "connect", "dask", "bits")  # stages
SHORT = 4.0  # seconds: a case that takes less runs three times
START = 12.0  # seconds predicted of a cluster and its small fits
WARM, AGAIN = 8.0, 3.0  # seconds predicted of a case beside its runs: with kernels to compile, and later
CHECKPOINT = 1.0  # seconds between checkpoints of the run whose worker is killed; 5 by default
WORKERS_BACK = 120.0  # seconds that a killed worker has to come back


def peaks(device: str, n: int, d: int, k: int) -> Made_:
    return Made(n, d, k, device), "DensityPeaks", {"n_clusters": k, "dc_fraction": 0.02, "algorithm": "brute"}


def grid(device: str, n: int, d: int, side: int) -> Made_:
    return OnGrid(n, d, side, device), "DensityPeaks", {"n_clusters": side**d, "dc_method": "sample"}


def neighbors(device: str, n: int, d: int, k: int) -> Made_:
    return Made(n, d, 50, device), "NearestNeighbors", {"n_neighbors": k}


def silhouettes(device: str, n: int, d: int, k: int) -> Made_:
    made = Made(n, d, k, device)
    return made, "Silhouette", {"labels": made.groups(0, n).astype(np.int32), "metric": "euclidean"}


def exemplars(device: str, n: int, d: int, k: int) -> Made_:
    given = {"algorithm": "sparse", "damping": 0.9, "max_iter": 1000, "random_state": 0}
    return Made(n, d, k, device, 2.0), "AffinityPropagation", given


def scan(device: str, n: int, d: int, max_iter: int) -> Made_:
    given = {"affinity": "correlation", "profile": "fast", "max_iter": max_iter, "n_clusters_range": (100, n)}
    return Voxels(n, d, device), "AdaptiveAffinityPropagation", {**given, "algorithm": "sparse", "random_state": 0}


def fuzzy(device: str, n: int, d: int, c: int, iterations: int, groups: int = 0, m: float = 2.0) -> Made_:
    given = {"n_clusters": c, "m": m, "max_iter": iterations, "tol": 0.0, "random_state": 0}
    return Made(n, d, groups or c, device), "FuzzyCMeans", given


def canopies(device: str, n: int, d: int) -> Made_:
    # As the canopy paper's data, which are 6 deviations wide and whose t1 is a tenth of that.
    return Made(n, d, 1, device, 0.0), "Canopy", {"t1": 0.6, "t2": 0.42, "dtype": "float32"}


def communities(device: str, *shape: Any) -> Made_:
    from mgclust.data import open_graph

    return open_graph(networks.MadeNetwork(shape, device)), "Communities", {"strategy": "parallel", "random_state": 0}


class Size(NamedTuple):
    """A shape, the seconds predicted on one H100, and the GiB that all devices together need, if one may lack them."""

    shape: tuple[Any, ...]
    seconds: float
    gib: float = 0.0


@dataclass(frozen=True)
class Case:
    """What is measured: its kind (of `WANTED`), how it is made, and how large."""

    name: str
    kind: str
    make: Callable[..., Made_]
    warm: tuple[Any, ...]  # few rows of the same kind
    sizes: dict[str, Size]

    @classmethod
    def of(cls, name: str, kind: str, make: Any, warm: Any, tiny: Any, small: tuple[Any, ...], full: Any) -> Case:
        """A case from the shapes to warm it up and to try it out, and its two sizes."""
        return cls(name, kind, make, warm, {"tiny": Size(tiny, 1.0), "small": Size(*small), "full": Size(*full)})


CASES = [
    Case.of("density peaks, 1,024 features", "pairs", peaks, (20_000, 1024, 50), (3000, 16, 10),
            ((640_000, 1024, 1000), 6.0), ((1_280_000, 1024, 1000), 23.0)),
    Case.of("nearest neighbours", "pairs", neighbors, (50_000, 128, 16), (3000, 16, 16),
            ((2_000_000, 128, 16), 8.0), ((4_000_000, 128, 16), 32.0)),
    Case.of("silhouettes", "pairs", silhouettes, (50_000, 120, 50), (3000, 16, 10),
            ((2_000_000, 120, 50), 9.4), ((4_000_000, 120, 50), 38.0)),
    Case.of("communities", "others", communities, (1000, 625, 32, 0.8), (20, 62, 8, 0.8),
            ((50_000, 625, 32, 0.8), 2.0), ((100_000, 625, 32, 0.8), 4.0, 48)),
    Case.of("fuzzy c-means", "others", fuzzy, (1_000_000, 32, 64, 2), (20_000, 8, 8, 5),
            ((200_000_000, 32, 64, 20), 7.0), ((400_000_000, 32, 64, 20), 14.0)),
    Case.of("affinity propagation", "others", exemplars, (20_000, 64, 100), (2500, 8, 20),
            ((400_000, 64, 1000), 9.0), ((1_000_000, 64, 1000), 50.0)),
    Case.of("density peaks, 3 features", "others", grid, (2_000_000, 3, 5), (6000, 3, 3),
            ((200_000_000, 3, 5), 6.0), ((1_000_000_000, 3, 5), 29.0)),
    Case.of("adaptive scan", "others", scan, (20_000, 156, 300), (1000, 60, 1500),
            ((236_280, 156, 4000), 12.0), ((236_280, 156, 20_000), 24.0)),
    Case.of("canopies", "others", canopies, (500_000, 6), (5000, 6),
            ((30_000_000, 6), 6.0), ((100_000_000, 6), 25.0)),
    Case.of("density peaks, 128 features", "pairs", peaks, (50_000, 128, 50), (3000, 8, 10),
            ((2_000_000, 128, 50), 8.6), ((4_000_000, 128, 50), 34.0)),
    Case.of("communities of more edges", "others", communities, (1000, 625, 32, 0.8), (20, 62, 16, 0.8),
            ((100_000, 625, 80, 0.8), 10.0, 120), ((100_000, 625, 128, 0.8), 16.0, 190)),
]  # fmt: skip
KILLED = "killed worker"
# Many centres in one Gaussian, which still move after hundreds of iterations; the iterations are those of each GPU.
KILLED_SHAPES = {"tiny": (20_000, 4, 16, 400), "small": (5_000_000, 16, 1024, 30)}
KILLED_M = 1.1
KILLED_SECONDS = 50.0  # of both runs and the new start
SMALL_FIT = (20_000, 2, 20)


class Schedule:
    """What still fits into the budget, by the seconds of one H100 and then by those that were measured."""

    def __init__(self, options: Any) -> None:
        self.size, self._numbers, self._killed = options.size, options.numbers, options.killed
        self._budget, self._device_gib = options.budget_seconds, device_gib(options.device)
        self._end = time.monotonic() + options.budget_seconds
        self._measured: dict[str, tuple[int, float]] = {}

    def left(self) -> float:
        """Seconds of the budget that are left."""
        return self._end - time.monotonic()

    def fits(self, each: Case, gpus: int) -> bool:
        """Whether so many devices have the memory that the case needs."""
        return each.sizes[self.size].gib <= gpus * self._device_gib

    def keep(self, each: Case, gpus: int, seconds: float) -> None:
        """Learn the seconds of a case."""
        self._measured[each.name] = gpus, seconds

    def rehearsal(self, each: Case) -> float:
        """Seconds of the run before all others, on all GPUs."""
        return WARM + each.sizes[self.size].seconds / self._numbers[-1] if self.fits(each, self._numbers[-1]) else 0.0

    def seconds(self, each: Case, gpus: int) -> float:
        """Seconds of a case on so many GPUs, with its warm-up and its data."""
        if not self.fits(each, gpus):
            return 0.0
        ranks, seconds = self._measured.get(each.name, (1, each.sizes[self.size].seconds))
        once = seconds * ranks / gpus * (1.0 if ranks == gpus else 1.15)
        return AGAIN + once * (3 if once < SHORT else 1)

    def plan(self, cases: list[Case], out: bench.Record) -> list[Case]:
        """The cases that fit on all numbers of GPUs, the worthiest first; the others are items of the record."""
        left = self._budget - START * (len(self._numbers) + 1) - KILLED_SECONDS * self._killed
        chosen, noted = [], {}
        for each in cases:
            took = {gpus: self.seconds(each, gpus) for gpus in self._numbers}
            noted[each.name] = {"shape": each.sizes[self.size].shape, "predicted_seconds": took}
            needed = self.rehearsal(each) + sum(took.values())
            if needed <= left:
                chosen.append(each)
                left -= needed
            else:
                why = f"predicted {needed:.0f} s on all numbers of GPUs, {left:.0f} s of the budget are left"
                out.add(each.name, case=each.name, skipped=why)
        out.note("plan", bench._plain(noted))
        return chosen


def device_gib(device: str) -> float:
    """Memory of a device; infinite for CPUs."""
    if device == "cpu":
        return math.inf
    import cupy

    return float(cupy.cuda.runtime.getDeviceProperties(0)["totalGlobalMem"]) / 2**30


@contextmanager
def cluster(gpus: int, device: str) -> Iterator[tuple[Any, float]]:
    """A client of a cluster of so many GPUs of this host, and the seconds until all workers were there."""
    from distributed import Client, LocalCluster

    began = time.perf_counter()
    given: dict[str, Any] = {"dashboard_address": None, "silence_logs": logging.CRITICAL, "threads_per_worker": 1}
    if device == "cpu":
        local = LocalCluster(n_workers=gpus, **given)
    else:
        from dask_cuda import LocalCUDACluster

        visible = os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",")
        devices = visible[:gpus] if visible != [""] else [str(each) for each in range(gpus)]
        local = LocalCUDACluster(CUDA_VISIBLE_DEVICES=",".join(devices), **given)
    with local, Client(local) as client:
        client.wait_for_workers(gpus, timeout=WORKERS_BACK)
        yield client, time.perf_counter() - began


@dataclass
class Cluster:
    """Runs on one cluster."""

    client: Any
    gpus: int
    device: str

    def run(self, each: Made_, limit: float = math.inf, **more: Any) -> tuple[Any, float]:
        """Outcome of a run, and the seconds of the whole call; TimeoutError after the limit in seconds."""
        import mgclust
        from mgclust.algorithms.nearest_neighbors.estimator import NearestNeighbors
        from mgclust.algorithms.silhouette.estimator import Silhouette

        data, method, parameters = each
        kinds = {"NearestNeighbors": NearestNeighbors, "Silhouette": Silhouette}
        kind = kinds.get(method) or getattr(mgclust, method)
        model = kind(**parameters, client=self.client, device=self.device, n_workers=self.gpus, **more)
        began = time.perf_counter()

        def watch(_: dict[str, Any]) -> None:
            if time.perf_counter() - began > limit:
                raise TimeoutError(f"{limit:.0f} s were not enough")

        outcome = result_bits.run(model, data, watch)
        return outcome, time.perf_counter() - began


def computing(stages: dict[str, float]) -> float:
    return sum(took for stage, took in stages.items() if stage not in NOT_COUNTED)


def measure(out: bench.Record, on: Cluster, each: Case, schedule: Schedule, first: dict[str, dict[str, Any]]) -> None:
    """Run a case and keep what was found."""
    from mgclust.base.errors import InsufficientMemoryError

    size = each.sizes[schedule.size]
    made = each.make(on.device, *size.shape)
    n, d = made[0].shape
    data = f"{n:,} edges" if each.make is communities else f"{n:,} x {d}"
    figures: dict[str, Any] = {"case": each.name, "gpus": on.gpus, "kind": each.kind, "shape": size.shape, "data": data}
    limit = min(schedule.left(), max(60.0, 4 * schedule.seconds(each, on.gpus)))
    began = time.perf_counter()
    if schedule.size != "tiny":
        on.run(each.make(on.device, *each.warm), limit)
    on.client.run(on_ranks.free_pool)
    figures["warm_up_seconds"] = time.perf_counter() - began
    runs: list[tuple[float, float, Any]] = []
    try:
        while not runs or (len(runs) < 3 and runs[0][0] < SHORT):
            outcome, wall = on.run(made, limit)
            runs.append((computing(outcome.timings), wall - outcome.timings["bits"], outcome))
    except InsufficientMemoryError as error:
        out.add(f"{each.name} on {on.gpus}", **figures, refused=str(error))
        return
    seconds = statistics.median(run[0] for run in runs)
    stages = {stage: statistics.median(run[2].timings[stage] for run in runs) for stage in runs[0][2].timings}
    bits = {run[2].value.bits for run in runs}
    one = first.setdefault(each.name, {"gpus": on.gpus, "seconds": seconds, "bits": bits})
    wanted = WANTED[each.kind].get(on.gpus)
    schedule.keep(each, on.gpus, seconds)
    out.add(
        f"{each.name} on {on.gpus}", **figures, predicted_on_one=size.seconds, seconds=seconds,
        runs=[run[0] for run in runs], wall_seconds=statistics.median(run[1] for run in runs), stages=stages,
        efficiency=one["seconds"] * one["gpus"] / (seconds * on.gpus), relative_to=one["gpus"], wanted=wanted,
        same_bits=bits == one["bits"] and len(bits) == 1, bits=sorted(bits),
        device_gib=max(run[2].value.device_bytes for run in runs) / 2**30, found=runs[-1][2].value.facts,
    )  # fmt: skip


def rehearse(out: bench.Record, on: Cluster, each: Case, schedule: Schedule) -> None:
    """Run a case once, so that its kernels are compiled."""
    outcome, wall = on.run(each.make(on.device, *each.sizes[schedule.size].shape), schedule.left())
    on.client.run(on_ranks.free_pool)
    out.add(f"{each.name}, compiling", gpus=on.gpus, compiling_seconds=computing(outcome.timings), wall_seconds=wall)


def starting(out: bench.Record, on: Cluster, started: float) -> None:
    """Seconds of the start, of the first fit with its connection, and of small fits after it."""
    small = peaks(on.device, *SMALL_FIT)
    (first, wall), *others = [on.run(small) for _ in range(6)]
    walls = [each[1] - each[0].timings["bits"] for each in others]
    out.add(
        f"start on {on.gpus}", gpus=on.gpus, cluster_seconds=started, first_fit_seconds=wall,
        connect_seconds=first.timings["connect"], small_fit_seconds=statistics.median(walls), fits=walls,
        stages=others[-1][0].timings, same_bits=len({each[0].value.bits for each in [(first, wall), *others]}) == 1,
    )  # fmt: skip


def killed(out: bench.Record, on: Cluster, schedule: Schedule) -> None:
    """A run whose worker is killed after more than half of it, beside the same run undisturbed."""
    from mgclust.base.errors import RetryWarning
    from mgclust.engine import checkpoint_memory, spmd

    spmd.MemoryCheckpoint = partial(checkpoint_memory.MemoryCheckpoint, seconds=CHECKPOINT)
    n, d, c, iterations = KILLED_SHAPES["tiny" if schedule.size == "tiny" else "small"]
    on.run(fuzzy(on.device, n // 20, d, c, 2, 1, KILLED_M), schedule.left())
    each = fuzzy(on.device, n, d, c, iterations * on.gpus, 1, KILLED_M)
    right, undisturbed = on.run(each, schedule.left())
    victim = list(on.client.run(os.getpid).values())[-1]
    timer = threading.Timer(0.7 * undisturbed, os.kill, (victim, signal.SIGKILL))
    timer.start()
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        found, seconds = on.run(each, schedule.left(), retries=1)
    timer.cancel()
    said = [str(warning.message) for warning in told if warning.category is RetryWarning]
    out.add(
        f"{KILLED} on {on.gpus}", gpus=on.gpus, shape=(n, d, c, iterations * on.gpus), undisturbed_seconds=undisturbed,
        killed_after_seconds=0.7 * undisturbed, seconds=seconds, lost_seconds=seconds - undisturbed, said=said,
        retries=found.hardware.get("retries", 0), ranks=found.ranks, stages=found.timings, found=found.value.facts,
        same_bits=found.value.bits == right.value.bits and bool(said),
    )  # fmt: skip


def main() -> int:
    parser = bench.parser(__doc__ or "")
    names = [*(each.name for each in CASES), KILLED]
    parser.add_argument("--gpus", default="1,2,4", help="numbers of GPUs, comma-separated (default 1,2,4)")
    parser.add_argument("--sizes", dest="size", default="full", choices=("tiny", "small", "full"))
    parser.add_argument("--cases", default=";".join(names), help="names, separated by semicolons: " + "; ".join(names))
    parser.add_argument("--budget-seconds", type=float, default=math.inf)
    parser.add_argument("--device", default="cuda", choices=("cpu", "cuda"))
    parser.add_argument("--table", type=Path, metavar="RECORD.json", help="only print the tables of a record")
    options = parser.parse_args()
    if options.table:
        print(table(json.loads(options.table.read_text())))
        return 0
    chosen = options.cases.split(";")
    if unknown := set(chosen) - set(names):
        parser.error(f"--cases: no case is called {sorted(unknown)}")
    options.cases, options.killed = [each for each in CASES if each.name in chosen], KILLED in chosen
    options.numbers = sorted(int(gpus) for gpus in options.gpus.split(","))
    out, schedule = bench.Record(__doc__ or "", options.out), Schedule(options)
    out.note("sizes", options.size)
    out.note("wanted_efficiency", WANTED)
    warnings.simplefilter("ignore")
    first: dict[str, dict[str, Any]] = {}
    cases = schedule.plan(options.cases, out)
    with cluster(options.numbers[-1], options.device) as (client, _):
        on = Cluster(client, options.numbers[-1], options.device)
        for each in (each for each in cases if schedule.fits(each, on.gpus)):
            attempt(out, f"{each.name}, compiling", partial(rehearse, out, on, each, schedule))
    for gpus in options.numbers:
        with cluster(gpus, options.device) as (client, started):
            on = Cluster(client, gpus, options.device)
            attempt(out, f"start on {gpus}", partial(starting, out, on, started))
            for each in cases:
                name, took, left = f"{each.name} on {gpus}", schedule.seconds(each, gpus), schedule.left()
                if not schedule.fits(each, gpus):
                    need = each.sizes[options.size].gib
                    out.add(name, case=each.name, gpus=gpus, skipped=f"the devices together have less than {need} GiB")
                elif took > left:
                    why = f"predicted {took:.0f} s, {left:.0f} s of the budget are left"
                    out.add(name, case=each.name, gpus=gpus, skipped=why)
                else:
                    attempt(out, name, partial(measure, out, on, each, schedule, first))
            if options.killed and gpus == options.numbers[-1] > 1:
                if schedule.left() < KILLED_SECONDS:
                    out.add(f"{KILLED} on {gpus}", skipped=f"{schedule.left():.0f} s of the budget are left")
                else:
                    attempt(out, f"{KILLED} on {gpus}", partial(killed, out, on, schedule))
    different = [item["item"] for item in out.document["items"] if item.get("same_bits") is False]
    out.note("same_bits_in_all", not different)
    failed = [item["item"] for item in out.document["items"] if "failed" in item]
    if different or failed:
        print(f"other bits: {different}; failed: {failed}", file=sys.stderr)
    return 1 if different or failed else 0


def attempt(out: bench.Record, name: str, call: Callable[[], None]) -> None:
    """Make a call; one that fails is an item, and does not take the others with it."""
    try:
        call()
    except Exception as error:
        out.add(name, failed=f"{type(error).__name__}: {error}"[:500])


def table(document: dict[str, Any]) -> str:
    """Markdown tables: cases, stages, and start and loss of workers, by the number of GPUs."""
    items = [item for item in document["items"] if "case" in item and "gpus" in item]
    numbers = sorted({item["gpus"] for item in items})
    lines = [_row("", *(f"{gpus} GPU{'s' * (gpus > 1)}" for gpus in numbers), "efficiency", "same bits")]
    lines.append("|---" * (len(numbers) + 3) + "|")
    stages = ["", _row("stage", "seconds by the number of GPUs", "efficiency"), "|---|---|---|"]
    for name in dict.fromkeys(item["case"] for item in items):
        found = {item["gpus"]: item for item in items if item["case"] == name}
        done = {gpus: item for gpus, item in found.items() if "seconds" in item}
        cells = [f"{done[gpus]['seconds']:.3g} s" if gpus in done else _why(found.get(gpus, {})) for gpus in numbers]
        efficiencies = ", ".join(f"{item['efficiency']:.2f}" for item in list(done.values())[1:])
        same = "yes" if all(item["same_bits"] for item in done.values()) else "no"
        data = next((item["data"] for item in found.values() if "data" in item), "")
        lines.append(_row(f"{name}, {data}", *cells, efficiencies, same if done else ""))
        for stage, took in done[min(done)]["stages"].items() if done else ():
            if stage not in NOT_COUNTED and took >= 0.01 * done[min(done)]["seconds"]:
                seconds = ", ".join(f"{gpus}: {item['stages'][stage]:.3g}" for gpus, item in done.items())
                efficiency = took * min(done) / (max(done) * done[max(done)]["stages"][stage])
                stages.append(_row(f"{name}: {stage}", seconds, f"{efficiency:.2f}"))
    others = ["", _row("other items", "figures"), "|---|---|"]
    for item in document["items"]:
        figures = [f"{name} {value:.3g}" for name, value in item.items() if name.endswith("seconds")]
        if "case" not in item:
            others.append(_row(item["item"], ", ".join(figures) or _why(item)))
    return "\n".join(lines + stages + others)


def _row(*cells: str) -> str:
    return f"| {' | '.join(cells)} |"


def _why(item: dict[str, Any]) -> str:
    return next((word for word in ("refused", "skipped", "failed") if word in item), "")


if __name__ == "__main__":
    sys.exit(main())
