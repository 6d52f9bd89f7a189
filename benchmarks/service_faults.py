"""What becomes of jobs while parts of the service are killed: each victim so many times, at random moments.

Every round submits four jobs to a service with two slots, kills the victim (SIGKILL) once or twice while they run,
starts again what nobody starts again by itself, and waits for all jobs. Each should have SUCCEEDED with the labels of
an undisturbed run; none lost, none twice.

    web       the web process; a new one is started
    runner    the runner; the web process starts another
    attempt   the processes that compute
    client    processes that watch the jobs
    all       everything at once; the service is started again

    python benchmarks/service_faults.py --rounds 20 --out benchmarks/results/service_faults.json
"""

from __future__ import annotations

import os
import random
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import record as bench

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests"))

from service_process import Running

from mgclust import DensityPeaks, FuzzyCMeans

JOBS = (("density-peaks", {"n_clusters": 6}), ("fuzzy-c-means", {"n_clusters": 6, "random_state": 1})) * 2
VICTIMS = ("web", "runner", "attempt", "client", "all")


def kill(running: Running, victim: str, clients: list[Any]) -> int:
    """Kill it; how many processes, or connections, that were."""
    if victim == "client":
        for client in clients:
            client.kill()
            client.wait()
        return len(clients)
    names = {"web": (), "runner": ("runner",), "attempt": ("attempt",), "all": ("runner", "attempt")}[victim]
    processes = [process for name in names for process in running.processes(f"mgclust.service.{name}")]
    if victim in ("web", "all"):
        running.web.kill()
        running.web.wait()
    for process in processes:
        process.kill()
    if victim in ("web", "all"):
        running.start()
    return len(processes) + (victim in ("web", "all"))


def one_round(running: Running, victim: str, points: Path, folder: Path, rng: random.Random) -> dict[str, Any]:
    service = running.client("ann")
    jobs = [service.submit(method, points, report=False, **parameters) for method, parameters in JOBS]
    token = {"MGCLUST_URL": running.url, "MGCLUST_TOKEN": running.token_of("ann")[1]}
    watchers = [
        subprocess.Popen(
            [sys.executable, "-m", "mgclust", "watch", job.id],
            env=os.environ | token,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        for job in (jobs if victim == "client" else ())
    ]
    killed = 0
    for _ in range(rng.randint(1, 2)):
        time.sleep(rng.uniform(0.1, 5.0))
        killed += kill(running, victim, watchers)
    service = running.client("ann")
    states, same = [], 0
    for number, job in enumerate(jobs):
        ended = service.job(job.id)
        for _ in ended.watch():
            pass
        states.append(ended.state)
        if ended.state == "SUCCEEDED":
            labels = ended.result(folder / f"{job.id}").labels
            same += bool(np.array_equal(labels, EXPECTED[number % 2]))
    ids = [job.id for job in service.jobs(limit=1000)]
    return {
        "killed": killed,
        "succeeded": states.count("SUCCEEDED"),
        "failed": states.count("FAILED"),
        "same_bits": same,
        "attempts": sum(service.job(job.id).info["attempt"] for job in jobs),
        "lost": sum(ids.count(job.id) == 0 for job in jobs),
        "doubled": sum(ids.count(job.id) > 1 for job in jobs),
    }


EXPECTED: list[np.ndarray] = []


def main() -> None:
    parser = bench.parser(__doc__)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--victims", default=",".join(VICTIMS))
    options = parser.parse_args()
    out = bench.Record(__doc__, options.out)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        points = folder / "points.npy"
        np.save(points, np.random.default_rng(1).normal(size=(25_000, 24)))
        for estimator in (DensityPeaks(6), FuzzyCMeans(6, random_state=1)):
            estimator.set_params(client=None, device="cpu")
            EXPECTED.append(estimator.fit(points).labels_)
        for victim in options.victims.split(","):
            place = folder / victim
            place.mkdir()
            running, rng = Running(place), random.Random(victim)
            totals: dict[str, int] = {}
            start = time.perf_counter()
            try:
                for _ in range(options.rounds):
                    for key, value in one_round(running, victim, points, place, rng).items():
                        totals[key] = totals.get(key, 0) + value
            finally:
                running.stop()
            jobs = options.rounds * len(JOBS)
            met = totals["same_bits"] == jobs and not totals["lost"] and not totals["doubled"]
            out.add(f"kill {victim}", rounds=options.rounds, jobs=jobs, **totals,
                    seconds=time.perf_counter() - start, met=met)  # fmt: skip


if __name__ == "__main__":
    main()
