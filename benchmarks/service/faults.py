"""What becomes of jobs while parts of the service are killed: each victim so many times, at random moments.

Every round submits four jobs to a service with two slots, kills the victim (SIGKILL) once or twice while they run,
restarts what does not restart by itself, and waits for all jobs. Each should have SUCCEEDED with the labels of
an undisturbed run, or FAILED with a true sentence; none lost, none twice.

    web         the web process; a new one is started
    runner      the runner; the web process starts another
    attempt     the processes that compute
    client      processes that watch the jobs
    all         everything at once; the service is started again
    worker      one of two workers of a Dask cluster; its nanny starts another
    scheduler   that cluster's scheduler; it and its workers are started again
    disk        nothing is killed: the disk with the data folder, a small tmpfs, is full for some seconds (needs root)
    database    PostgreSQL ends at once, as after a crash, and is started again (needs its programs: --postgres)

    python -m benchmarks.service.faults --rounds 20 --out benchmarks/results/service/faults.json
"""

from __future__ import annotations

import contextlib
import errno
import os
import pwd
import random
import socket
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import psycopg

from benchmarks.support import record as bench

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tests"))

from mgclust import AffinityPropagation, DensityPeaks, FuzzyCMeans
from support.service_process import Running

MESSAGES = {"max_iter": 800, "convergence_iter": 800}  # some seconds, whatever they do
JOBS = (
    ("density-peaks", DensityPeaks, {"n_clusters": 6}),
    ("fuzzy-c-means", FuzzyCMeans, {"n_clusters": 6, "random_state": 1}),
    ("affinity-propagation", AffinityPropagation, MESSAGES),
    ("affinity-propagation", AffinityPropagation, MESSAGES | {"damping": 0.7}),
)
FEW = 1000  # rows for affinity propagation
FULL = 400 << 20  # bytes of the small disk: more than the rounds leave there
# What a job may fail with, by the victim: sentences that are true of it.
TRUE = {
    "disk": ("no space left", "disk is full"),
    "worker": ("worker",),
    "scheduler": ("scheduler", "worker", "cluster"),
}


class Outage:
    """What is hurt beside the service's own processes; by default nothing."""

    options: tuple[str, ...] = ()
    database = ""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def hurt(self, rng: random.Random) -> int:
        """Kill it; how many there were."""
        raise NotImplementedError

    def close(self) -> None:
        """End whatever this has started."""


class DaskCluster(Outage):
    """A scheduler and two workers, all processes of their own."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        self.options = ("--scheduler", f"tcp://127.0.0.1:{self.port}")
        self.processes: list[subprocess.Popen[bytes]] = []
        self.start()

    def start(self) -> None:
        """Start all of it."""
        quiet: dict[str, Any] = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        at = f"tcp://127.0.0.1:{self.port}"
        dask = [sys.executable, "-m", "dask"]
        common = ["--no-dashboard", "--host", "127.0.0.1"]
        self.processes = [
            subprocess.Popen([*dask, "scheduler", "--port", str(self.port), *common], **quiet),
            *(subprocess.Popen([*dask, "worker", at, "--nthreads", "1", *common], **quiet) for _ in range(2)),
        ]

    def workers(self) -> list[psutil.Process]:
        """The processes that nannies have started."""
        found = []
        for nanny in self.processes[1:]:
            with contextlib.suppress(psutil.Error):
                of_nanny = psutil.Process(nanny.pid).children()
                found += [each for each in of_nanny if "spawn_main" in " ".join(each.cmdline())]
        return found

    def close(self) -> None:
        """Kill all of it."""
        workers = self.workers()
        for process in self.processes:
            process.kill()
            process.wait()
        for worker in workers:
            with contextlib.suppress(psutil.Error):
                worker.kill()


class Worker(DaskCluster):
    """The victim is one of its workers."""

    def hurt(self, rng: random.Random) -> int:
        """Kill one, if one is there."""
        workers = self.workers()
        if workers:
            rng.choice(workers).kill()
        return min(1, len(workers))


class Scheduler(DaskCluster):
    """The victim is its scheduler."""

    def hurt(self, rng: random.Random) -> int:
        """Kill it; some time later all is started again, as by a supervisor."""
        self.processes[0].kill()
        time.sleep(rng.uniform(0, 2))
        self.close()
        self.start()
        return 1


class Disk(Outage):
    """A small disk for the data folder."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={FULL}", "tmpfs", str(folder)], check=True)

    def hurt(self, rng: random.Random) -> int:
        """Keep it full for some seconds."""
        filler = self.folder / "filler"
        with open(filler, "wb", buffering=0) as file:
            end = time.monotonic() + rng.uniform(0.5, 5.0)
            while time.monotonic() < end:  # also what is freed meanwhile
                try:
                    file.write(bytes(1 << 16))
                except OSError as error:
                    assert error.errno == errno.ENOSPC
                    time.sleep(0.01)
        filler.unlink()
        return 1

    def close(self) -> None:
        """Let go of it."""
        subprocess.run(["umount", "--lazy", str(self.folder)], check=True)


class Database(Outage):
    """A PostgreSQL server for the queue."""

    programs: Path

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        self.place = Path(tempfile.mkdtemp(prefix="pg"))
        os.chown(self.place, pwd.getpwnam("postgres").pw_uid, -1)
        self.database = f"postgresql+psycopg://postgres@127.0.0.1:{port}/postgres"
        self._call("initdb", "-A", "trust", "-U", "postgres")
        settings = f"-p {port} -c listen_addresses=127.0.0.1 -k {self.place}"
        self._start = ("pg_ctl", "-w", "-o", settings, "-l", str(self.place / "log"), "start")
        self._call(*self._start)

    def _call(self, program: str, *words: str) -> None:
        command = [str(self.programs / program), "-D", str(self.place / "data"), *words]
        subprocess.run(command, check=True, user="postgres", cwd=self.place, stdout=subprocess.DEVNULL)

    def hurt(self, rng: random.Random) -> int:
        """End it as a crash would, and start it again some time later."""
        self._call("pg_ctl", "-m", "immediate", "stop")
        time.sleep(rng.uniform(0, 4))
        self._call(*self._start)
        return 1

    def read_only(self, on: bool) -> None:
        """Accept no writes from now on, or again."""
        for command in (f"ALTER SYSTEM SET default_transaction_read_only = {on}", "SELECT pg_reload_conf()"):
            with psycopg.connect(self.database.replace("+psycopg", ""), autocommit=True) as connection:
                connection.execute("SET default_transaction_read_only = off")
                connection.execute(command)

    def close(self) -> None:
        """End it."""
        self._call("pg_ctl", "-m", "immediate", "stop")


OUTSIDE = {"worker": Worker, "scheduler": Scheduler, "disk": Disk, "database": Database}
VICTIMS = ("web", "runner", "attempt", "client", "all", *OUTSIDE)


def kill(running: Running, victim: str, clients: list[Any]) -> int:
    """Kill a part of the service; how many processes that were."""
    if victim == "client":
        for client in clients:
            client.kill()
            client.wait()
        return len(clients)
    names = {"web": (), "runner": ("runner",), "attempt": ("attempt",), "all": ("runner", "attempt")}[victim]
    processes = [process for name in names for process in running.processes(f"mgclust.service.runner.{name}")]
    if victim in ("web", "all"):
        running.web.kill()
        running.web.wait()
    for process in processes:
        process.kill()
    if victim in ("web", "all"):
        running.start()
    return len(processes) + (victim in ("web", "all"))


@contextlib.contextmanager
def watched(running: Running, jobs: list[Any]) -> Iterator[list[Any]]:
    """Processes that watch jobs."""
    token = {"MGCLUST_URL": running.url, "MGCLUST_TOKEN": running.token_of("ann")[1]}
    quiet: dict[str, Any] = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    command = [sys.executable, "-m", "mgclust", "watch"]
    watchers = [subprocess.Popen([*command, job.id], env=os.environ | token, **quiet) for job in jobs]
    try:
        yield watchers
    finally:
        for watcher in watchers:
            watcher.kill()
            watcher.wait()


def one_round(
    running: Running, victim: str, outside: Outage, points: list[Path], folder: Path, rng: random.Random
) -> tuple[Counter[str], list[str]]:
    """What came of four jobs, and the sentences of those that failed."""
    service = running.client("ann")
    jobs = [
        service.submit(method, path, report=False, **parameters)
        for (method, _, parameters), path in zip(JOBS, points, strict=True)
    ]
    told: Counter[str] = Counter(jobs=len(jobs))
    sentences = []
    while not any(job.refresh().state == "RUNNING" for job in jobs):
        time.sleep(0.1)
    with watched(running, jobs if victim == "client" else []) as watchers:
        for _ in range(rng.randint(1, 2)):
            time.sleep(rng.uniform(0.1, 4.0))
            told["killed"] += outside.hurt(rng) if victim in OUTSIDE else kill(running, victim, watchers)
    service = running.client("ann")
    for number, job in enumerate(jobs):
        ended = service.job(job.id)
        for _ in ended.watch():
            pass
        told[ended.state.lower()] += 1
        told["attempts"] += ended.info["attempt"]
        if ended.state == "SUCCEEDED":
            labels = ended.result(folder / f"{job.id}").labels
            told["same_bits"] += bool(np.array_equal(labels, EXPECTED[number]))
            told["resumed"] += " resume" in ended.log()
        else:
            sentences.append(ended.info["error"])
            told["true_sentence"] += any(part in ended.info["error"] for part in TRUE.get(victim, ()))
    ids = Counter(job.id for job in service.jobs(limit=1000))
    told["lost"] = sum(ids[job.id] == 0 for job in jobs)
    told["doubled"] = sum(ids[job.id] > 1 for job in jobs)
    return told, sentences


EXPECTED: list[np.ndarray] = []


def main() -> None:
    parser = bench.parser(__doc__)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--victims", default=",".join(VICTIMS))
    parser.add_argument("--postgres", type=Path, default=Path("/usr/bin"), help="Folder of initdb and pg_ctl.")
    options = parser.parse_args()
    Database.programs = options.postgres
    out = bench.Record(__doc__, options.out)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        rows = np.random.default_rng(1).normal(size=(10_000, 24))
        np.save(folder / "many.npy", rows)
        np.save(folder / "few.npy", rows[:FEW])
        points = [folder / ("few.npy" if estimator is AffinityPropagation else "many.npy") for _, estimator, _ in JOBS]
        for (_, estimator, parameters), path in zip(JOBS, points, strict=True):
            EXPECTED.append(estimator(client=None, device="cpu", **parameters).fit(path).labels_)
        for victim in options.victims.split(","):
            place = folder / victim
            place.mkdir()
            outside = OUTSIDE.get(victim, Outage)(place)
            settings = {"allow_plain_scheduler": "true"}  # the scheduler on this machine has no TLS
            running, rng = Running(place, outside.options, outside.database, settings), random.Random(victim)
            totals: Counter[str] = Counter(succeeded=0, failed=0, same_bits=0, true_sentence=0, lost=0, doubled=0)
            sentences: list[str] = []
            start = time.perf_counter()
            try:
                for _ in range(options.rounds):
                    told, said = one_round(running, victim, outside, points, folder, rng)
                    totals.update(told)
                    sentences += said
            finally:
                running.stop()
                outside.close()
            well = totals["same_bits"] + totals["true_sentence"] == totals["jobs"]
            out.add(f"kill {victim}", rounds=options.rounds, **totals, sentences=sorted(set(sentences)),
                    seconds=time.perf_counter() - start,
                    met=well and not totals["lost"] and not totals["doubled"])  # fmt: skip


if __name__ == "__main__":
    main()
