"""What becomes of jobs while parts of the service are stopped, clocks are set, and the database is away.

Each kind has a service of its own. Each round submits two jobs, waits until one of them has left a checkpoint, does the
harm, undoes it where the world would, and waits for the ends. Each job should have SUCCEEDED with the labels of an
undisturbed run, or FAILED with a true sentence; none lost, none twice; and a minute after the harm, no job may be told
to run that nothing computes.

    attempt-S, worker-S, runner-S, web-S
                    the processes get SIGSTOP, and SIGCONT after S = 5, 40 or 120 seconds, if they still live
    machine-40      all processes of the service at once
    clock           the clock of all processes is set forward by an hour, then back by two (needs libfaketime)
    locked          another program holds the database's lock for 60 seconds
    deleted         the database's file is taken away for 20 seconds, and put back
    read-only       PostgreSQL accepts no writes for 20 seconds (needs its programs: --postgres)
    two-runners     a second runner on the same database, whose lock on the data folder is lost

    python benchmarks/service_suspensions.py --rounds 20 --parallel 6 --out benchmarks/results/service_suspensions.json
"""

from __future__ import annotations

import argparse
import contextlib
import glob
import json
import multiprocessing
import os
import secrets
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import psutil
import record as bench
from service_faults import Database

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests"))

from service_process import Running

from mgclust import AffinityPropagation
from mgclust.errors import MgclustError
from mgclust.service.settings import Settings

ROWS = 600
JOBS = ({"max_iter": 5000, "convergence_iter": 5000}, {"max_iter": 5000, "convergence_iter": 5000, "damping": 0.7})
STOPS = tuple(f"{part}-{seconds}" for part in ("attempt", "worker", "runner", "web") for seconds in (5, 40, 120))
KINDS = (*STOPS, "machine-40", "clock", "locked", "deleted", "read-only", "two-runners")
TRUE = ("was stopped for", "was lost: its process", "worker", "did not answer", "gave no sign of life")
SOON = 60.0  # seconds after which every state is true
DEADLINE = 600.0


def libfaketime() -> str:
    """The library that sets a process's clock, of Debian's package faketime."""
    found = glob.glob("/usr/lib/*/faketime/libfaketime.so.1")
    return found[0] if found else ""


class Round:
    """A service, and the harm that is done to it."""

    def __init__(self, kind: str, folder: Path) -> None:
        self.kind, self.folder = kind, folder
        self.postgres = Database(folder) if kind == "read-only" else None
        self.running = Running(folder, (), self.postgres.database if self.postgres else "")
        self.service = self.running.client()
        self.told: Counter[str] = Counter()
        self.wrong: list[str] = []

    def attempts(self, jobs: list[Any]) -> list[psutil.Process]:
        """The processes that compute."""
        found = []
        for process in self.running.processes("mgclust.service.attempt"):
            with contextlib.suppress(psutil.Error):
                if any(job.id in file.path for file in process.open_files() for job in jobs):
                    found.append(process)
        return found

    def victims(self, jobs: list[Any]) -> list[psutil.Process]:
        """Whom SIGSTOP reaches."""
        part = self.kind.partition("-")[0]
        runners = self.running.processes("mgclust.service.runner")
        web = [psutil.Process(self.running.web.pid)]
        if part == "worker":
            below = [each for attempt in self.attempts(jobs) for each in attempt.children(recursive=True)]
            return [each for each in below if "spawn_main" in " ".join(each.cmdline())][-1:]
        return {
            "attempt": self.attempts(jobs), "runner": runners, "web": web,
            "machine": web + [each for each in web[0].children(recursive=True)],
        }[part]  # fmt: skip

    @contextlib.contextmanager
    def harm(self, jobs: list[Any]) -> Iterator[None]:
        """Do it; at the end of the block, undo it."""
        if self.kind in (*STOPS, "machine-40"):
            victims = self.victims(jobs)
            self.told["stopped"] += len(victims)
            for victim in victims:
                victim.suspend()
            yield
            for victim in reversed(victims):
                with contextlib.suppress(psutil.Error):  # it was ended meanwhile
                    victim.resume()
        elif self.kind == "clock":
            for shift in ("+3600", "-3600"):
                (self.folder / "clock").write_text(shift)
                time.sleep(10)
            yield
        elif self.kind == "locked":
            other = sqlite3.connect(self.running.data / "service.db", isolation_level=None, timeout=60)
            other.execute("BEGIN IMMEDIATE")
            yield
            other.execute("ROLLBACK")
            other.close()
        elif self.kind == "deleted":
            away = self.folder / "away.db"
            (self.running.data / "service.db").rename(away)
            yield
            away.rename(self.running.data / "service.db")
        elif self.kind == "read-only":
            assert self.postgres is not None
            self.postgres.read_only(True)
            yield
            self.postgres.read_only(False)
        else:
            (self.running.data / "runner.lock").unlink()
            settings = Settings(
                data=self.running.data, database=self.running.database, cpu=True, lost_after=4.0, slots=2,
                checkpoint_seconds=0.2,
            )  # fmt: skip
            other = subprocess.Popen(
                [sys.executable, "-m", "mgclust.service.runner"], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
            )  # fmt: skip
            assert other.stdin is not None
            told = {"settings": settings.to_json(), "name": secrets.token_hex(8), "hung": []}
            other.stdin.write(json.dumps(told).encode() + b"\n")
            other.stdin.flush()
            # The first one is stopped for longer than `lost_after`: the second takes its jobs, and then both report.
            victims = [*self.running.processes("mgclust.service.runner"), *self.attempts(jobs)]
            first = [each for each in victims if each.pid != other.pid]
            time.sleep(5)
            for victim in first:
                victim.suspend()
            time.sleep(12)
            for victim in first:
                with contextlib.suppress(psutil.Error):
                    victim.resume()
            yield
            time.sleep(5)
            other.stdin.close()
            other.terminate()
            other.wait(60)

    def seconds(self) -> float:
        """How long the harm lasts."""
        if self.kind in (*STOPS, "machine-40"):
            return float(self.kind.partition("-")[2])
        return {"locked": 60.0, "deleted": 20.0, "read-only": 20.0}.get(self.kind, 0.0)

    def refusals(self, jobs: list[Any]) -> None:
        """What is answered while the database is away."""
        says = {"locked": "does not answer", "deleted": "is not there any more", "read-only": "cannot be written"}
        if self.kind not in says:
            return
        body = {"method": "density-peaks", "sources": jobs[0].info["request"]["sources"]}
        headers = {"Authorization": self.service._http.headers["Authorization"]}
        answer = httpx.post(f"{self.running.url}/api/v1/jobs", json=body, headers=headers, timeout=60)
        self.told["refused"] += answer.status_code == 503
        if answer.status_code != 503 or says[self.kind] not in answer.json()["error"]:
            self.wrong.append(f"{answer.status_code} {answer.text[:200]}")

    def begun(self, job: Any) -> bool:
        """Whether it computes and has something to lose."""
        info = job.refresh().info
        return info["state"] == "RUNNING" and ((info["progress"] or {}).get("fraction") or 0) > 0.02

    def once(self, expected: list[np.ndarray], points: Path) -> None:
        """One round."""
        resources = {"workers": 2} if self.kind.startswith("worker") else {}
        jobs = [
            self.service.submit("affinity-propagation", points, report=False, resources=resources, **parameters)
            for parameters in JOBS
        ]
        self.told["jobs"] += len(jobs)
        self.wait(lambda: any(self.begun(job) for job in jobs))
        with self.harm(jobs):
            end = time.monotonic() + self.seconds()
            self.refusals(jobs)
            while time.monotonic() < end:
                time.sleep(min(1.0, max(0.0, end - time.monotonic())))
        # Whatever is told to run is computed by something that is not stopped.
        time.sleep(1)
        began = time.monotonic()
        while time.monotonic() - began < SOON and not self.true(jobs):
            time.sleep(1)
        self.told["true_within_a_minute"] += self.true(jobs)
        for number, job in enumerate(jobs):
            self.wait(lambda job=job: job.refresh().state not in ("PENDING", "RUNNING"))
            info = job.info
            self.told[info["state"].lower()] += 1
            self.told["attempts"] += info["attempt"]
            if info["state"] == "SUCCEEDED":
                labels = job.result(self.folder / job.id).labels
                self.told["same_bits"] += bool(np.array_equal(labels, expected[number]))
                self.told["resumed"] += " resume" in job.log()
            else:
                self.wrong.append(str(info["error"]))
                self.told["true_sentence"] += any(part in str(info["error"]) for part in TRUE)
        ids = Counter(job.id for job in self.service.jobs(limit=1000))
        self.told["lost"] += sum(ids[job.id] == 0 for job in jobs)
        self.told["doubled"] += sum(ids[job.id] > 1 for job in jobs)
        for job in jobs:
            job.delete()

    def true(self, jobs: list[Any]) -> bool:
        """Whether each job that is told to run has a process that runs."""
        try:
            running = [job for job in jobs if job.refresh().state == "RUNNING"]
            return all(
                any(each.status() != psutil.STATUS_STOPPED for each in self.attempts([job]))
                or job.refresh().state != "RUNNING"
                for job in running
            )
        except (MgclustError, psutil.Error):
            return False

    def wait(self, condition: Callable[[], bool]) -> None:
        """Wait, also while nothing answers."""
        end = time.monotonic() + DEADLINE
        while time.monotonic() < end:
            with contextlib.suppress(MgclustError):
                if condition():
                    return
            time.sleep(0.3)
        raise TimeoutError(f"{self.kind}: a state did not come")

    def close(self) -> None:
        """End all of it."""
        self.running.stop()
        if self.postgres is not None:
            self.postgres.close()


def measure(
    kind: str, rounds: int, folder: Path, expected: list[np.ndarray], points: Path, postgres: Path
) -> dict[str, Any]:
    """What came of some rounds of one kind."""
    start = time.perf_counter()
    Database.programs = postgres
    place = folder / kind
    place.mkdir()
    if kind == "clock":
        (place / "clock").write_text("+0")
        os.environ |= {
            "LD_PRELOAD": libfaketime(), "FAKETIME_TIMESTAMP_FILE": str(place / "clock"),
            "FAKETIME_CACHE_DURATION": "1", "DONT_FAKE_MONOTONIC": "1", "FAKETIME_DONT_RESET": "1",
        }  # fmt: skip
    here = Round(kind, place)
    try:
        for _ in range(rounds):
            here.once(expected, points)
    except Exception as error:  # a figure that is missing should not take the others with it
        here.wrong.append(f"the round was given up: {type(error).__name__}: {error}")
    finally:
        here.close()
    names = ("succeeded", "failed", "same_bits", "true_sentence", "lost", "doubled", "true_within_a_minute")
    told = {name: here.told[name] for name in names} | dict(here.told)
    met = (
        told["same_bits"] + told["true_sentence"] == told["jobs"] == 2 * rounds
        and not told["lost"] and not told["doubled"] and told["true_within_a_minute"] == rounds
    )  # fmt: skip
    return {
        "rounds": rounds, **told, "sentences": sorted(set(here.wrong)), "seconds": time.perf_counter() - start,
        "met": met and (kind not in ("locked", "deleted", "read-only") or here.told["refused"] == rounds),
    }  # fmt: skip


def main() -> None:
    parser: argparse.ArgumentParser = bench.parser(__doc__)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--kinds", default=",".join(KINDS))
    parser.add_argument("--parallel", type=int, default=4, help="Kinds side by side: they mostly wait.")
    parser.add_argument("--postgres", type=Path, default=Path("/usr/bin"), help="Folder of initdb and pg_ctl.")
    options = parser.parse_args()
    out = bench.Record(__doc__, options.out)
    out.note("conditions", f"{options.parallel} kinds side by side; lost_after 4 s, hung_after 30 s, 2 slots each")
    kinds = options.kinds.split(",")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        points = folder / "points.npy"
        np.save(points, np.random.default_rng(1).normal(size=(ROWS, 24)))
        expected = [AffinityPropagation(client=None, device="cpu", **job).fit(points).labels_ for job in JOBS]
        if "clock" in kinds and not libfaketime():
            raise SystemExit("clock needs libfaketime (Debian's package faketime); or leave it out by --kinds")
        # Each in a process of its own: one of them has another clock.
        context = multiprocessing.get_context("spawn")
        with ProcessPoolExecutor(options.parallel, mp_context=context, max_tasks_per_child=1) as pool:
            told = {
                pool.submit(measure, kind, options.rounds, folder, expected, points, options.postgres): kind
                for kind in kinds
            }
            for future in as_completed(told):
                out.add(told[future], **future.result())


if __name__ == "__main__":
    main()
