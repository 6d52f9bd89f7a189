"""What becomes of jobs while parts of the service are stopped, clocks are set, and the database is away.

Each kind has some services, in each of which round follows round: submit, wait until each job has left a checkpoint, do
the harm, undo it as the world would, wait for the ends. The jobs are small and slowed: where a job asks whether a
checkpoint is due, `SLOW` sleeps for 0.3 s, in the processes of the service alone, so that it takes 7 s.

    attempt-S       the process that computes a job gets SIGSTOP, and SIGCONT after S = 5, 40 or 120 s if it
                    still lives; four such rounds side by side in a service
    worker-S        likewise one of the two workers of a job with workers=2
    runner-S        the runner; web-S the web process; machine-S all processes of the service at once
    clock           the clock of all processes is set forward by an hour, and at the next round back (a library that is
                    loaded first)
    locked          another program holds the database's lock for 60 s
    deleted         the database's file is taken away for 20 s, and put back
    read-only       PostgreSQL accepts no writes for 20 s (needs its programs: --postgres)
    two-runners     a second runner on the same database, without regard to the lock of the data folder; after 5 s the
                    first and its attempts are stopped for 12 s, after which both serve

A round is right if each job has SUCCEEDED with the files of an undisturbed job, has ended once by the service's log, is
listed once, and has told only the sentences that are true of the harm (`TRUE`). While the web process is stopped or
the database away, a second job is submitted, whose request is retried by the client; it should be there once as well.
`longest_to_right`: seconds from the end of the harm until `/healthz` says ok and each job that is RUNNING has a process
that is not stopped, or has ended.

    python -m benchmarks.service.suspensions --out benchmarks/results/service/suspensions.json
    python -m benchmarks.service.suspensions --kinds clock,locked:4 --out ...    (4 rounds; the other kinds are kept)
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import json
import os
import re
import secrets
import shutil
import sqlite3
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import psutil

from benchmarks.service.faults import Database
from benchmarks.support import record as bench

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tests"))

from mgclust.base.errors import MgclustError
from mgclust.service.settings import Settings
from support.service_process import Running

REPOSITORY = Path(__file__).resolve().parents[2]
SLOW = '''"""Each question whether a checkpoint is due takes 0.3 s more."""

import importlib.abc
import importlib.util
import sys
import time


class Slow(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name != "mgclust.engine.checkpoint":
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(name)
        execute = spec.loader.exec_module

        def exec_module(module):
            execute(module)
            due = module.Checkpointer.due

            def slow(self, **options):
                time.sleep(0.3)
                return due(self, **options)

            module.Checkpointer.due = slow

        spec.loader.exec_module = exec_module
        return spec


sys.meta_path.insert(0, Slow())
'''
# libfaketime breaks the sleeps of Python 3.11, which wait until a time of the monotonic clock.
CLOCK = r"""
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static volatile const int64_t *seconds;

__attribute__((constructor)) static void begin(void) {
    const char *path = getenv("CLOCK_SHIFT");
    int file = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    if (file < 0) return;
    void *found = mmap(0, sizeof *seconds, PROT_READ, MAP_SHARED, file, 0);
    if (found != MAP_FAILED) seconds = found;
    close(file);
}

int clock_gettime(clockid_t clock, struct timespec *now) {
    int failed = syscall(SYS_clock_gettime, clock, now);
    if (!failed && seconds && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE)) now->tv_sec += *seconds;
    return failed;
}

int gettimeofday(struct timeval *restrict now, void *restrict zone) {
    struct timespec exact;
    (void)zone;
    if (clock_gettime(CLOCK_REALTIME, &exact)) return -1;
    now->tv_sec = exact.tv_sec, now->tv_usec = exact.tv_nsec / 1000;
    return 0;
}

time_t time(time_t *now) {
    struct timespec exact;
    clock_gettime(CLOCK_REALTIME, &exact);
    if (now) *now = exact.tv_sec;
    return exact.tv_sec;
}
"""
SAME = {"max_iter": 768, "convergence_iter": 768}  # 24 questions, whatever it finds
SETTINGS = {"lost_after": 4.0, "hung_after": 30.0, "checkpoint_seconds": 0.2, "slots": 4}
SOON = 60.0  # seconds after which every state is right
DEADLINE = 400.0
# What a job's `error` may say while it waits for its next attempt: what is true of the harm, and no more.
TRUE = {
    "attempt-40": r"the attempt's process was stopped for \d\d s and was ended\.",
    "worker-40": r"a process of the attempt was stopped for \d\d s, and all of them were ended\.",
    "two-runners": r"attempt \d+ was lost: its runner, or its machine, sent no heartbeat for 4 s\.",
}
TRUE |= {"attempt-120": TRUE["attempt-40"], "worker-120": TRUE["worker-40"]}
REFUSED = {
    "locked": "does not answer",
    "deleted": "the file of the service's database",
    "read-only": "cannot be written",
}


@dataclass(frozen=True)
class Kind:
    """How the rounds of a kind are spread."""

    services: int
    lanes: int = 1  # rounds side by side in one service
    jobs: int = 1  # submitted at once


KINDS = {
    "attempt-5": Kind(1, 4), "worker-5": Kind(1, 4), "runner-5": Kind(2), "web-5": Kind(2),
    "attempt-40": Kind(1, 4), "worker-40": Kind(1, 4), "runner-40": Kind(4), "web-40": Kind(4),
    "locked": Kind(5), "deleted": Kind(2), "read-only": Kind(2), "clock": Kind(2), "two-runners": Kind(4, 1, 2),
    "machine-40": Kind(4),
    "attempt-120": Kind(1, 4), "worker-120": Kind(1, 4), "runner-120": Kind(4), "web-120": Kind(5),
}  # fmt: skip


def clock_library(folder: Path) -> Path:
    """What sets the clock of the processes that load it first."""
    (folder / "clock.c").write_text(CLOCK)
    command = ["cc", "-shared", "-fPIC", "-O1", "-o", str(folder / "clock.so"), str(folder / "clock.c")]
    subprocess.run(command, check=True)
    return folder / "clock.so"


def files_of(result: Path) -> dict[str, str]:
    """Hashes of a result's arrays, and its scores."""
    found = {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in sorted(result.glob("*.npy"))}
    return found | {"scores": json.dumps(json.loads((result / "result.json").read_text())["scores"])}


class Rounds:
    """A service, and the harm that is done to it."""

    def __init__(self, kind: str, folder: Path, points: Path) -> None:
        self.kind, self.folder, self.points = kind, folder, points
        self.told: Counter[str] = Counter()
        self.wrong: list[str] = []
        self.longest, self.ended = 0.0, False
        self._lock = threading.Lock()

    def start(self) -> None:
        """Start the service."""
        kind, folder = self.kind, self.folder
        folder.mkdir()
        self.postgres = Database(folder) if kind == "read-only" else None
        self.log = folder / "jobs.log"
        self.log.touch()
        environment = {"NUMBA_NUM_THREADS": "1"}
        if kind == "clock":
            self.clock = np.memmap(folder / "clock", np.int64, "w+", shape=1)
            environment |= {"LD_PRELOAD": str(clock_library(folder)), "CLOCK_SHIFT": str(folder / "clock")}
        self.running = Running(
            folder,
            ("--slots", "4"),
            self.postgres.database if self.postgres else "",
            SETTINGS | {"log": self.log},
            environment,
        )
        self.service = self.running.client()

    def count(self, name: str, number: int = 1) -> None:
        """Add to a figure."""
        with self._lock:
            self.told[name] += number

    def attempts(self, jobs: list[Any]) -> dict[str, psutil.Process]:
        """The processes that compute, by job; of two, one that is not stopped."""
        found: dict[str, psutil.Process] = {}
        for process in [each for own in self.roots() for each in own.children(recursive=True)]:
            with contextlib.suppress(psutil.Error):
                if (
                    "mgclust.service.runner.attempt" not in process.cmdline()
                    or process.status() == psutil.STATUS_ZOMBIE
                ):
                    continue
                paths = [file.path for file in process.open_files()]
                for job in jobs:
                    if any(job.id in path for path in paths) and (
                        job.id not in found or found[job.id].status() == psutil.STATUS_STOPPED
                    ):
                        found[job.id] = process
        return found

    def roots(self) -> list[psutil.Process]:
        """Whose descendants compute."""
        return [psutil.Process(self.running.web.pid)]

    def runners(self) -> list[psutil.Process]:
        """Those that the keeper has started."""
        return [
            each
            for each in psutil.Process(self.running.web.pid).children()
            if "mgclust.service.runner.runner" in each.cmdline()
        ]

    def victims(self, jobs: list[Any]) -> list[psutil.Process]:
        """What SIGSTOP reaches."""
        part = self.kind.partition("-")[0]
        web = psutil.Process(self.running.web.pid)
        if part == "attempt":
            return list(self.attempts(jobs).values())
        if part == "worker":
            return [
                [each for each in attempt.children(recursive=True) if "spawn_main" in " ".join(each.cmdline())][-1]
                for attempt in self.attempts(jobs).values()
            ]
        return {"runner": self.runners, "web": lambda: [web], "machine": lambda: [web, *web.children(True)]}[part]()

    @contextlib.contextmanager
    def harm(self, jobs: list[Any]) -> Iterator[None]:
        """Do it; at the end of the block, undo it."""
        part, _, seconds = self.kind.partition("-")
        if part in ("attempt", "worker", "runner", "web", "machine"):
            victims = self.victims(jobs)
            assert victims, "there is nothing to be stopped"
            self.count("stops")
            for victim in victims:
                victim.suspend()
            end = time.monotonic() + float(seconds)
            yield
            while time.monotonic() < end and any(_lives(victim) for victim in victims):
                time.sleep(0.5)
            for victim in reversed(victims):
                with contextlib.suppress(psutil.Error):  # it was ended meanwhile
                    victim.resume()
        elif part == "clock":
            back = bool(self.clock[0])
            self.clock[0] = 0 if back else 3600
            self.count("back" if back else "forward", 1)
            yield
            time.sleep(2)  # the server makes the header once a second
            told = parsedate_to_datetime(httpx.get(f"{self.running.url}/healthz").headers["date"]).timestamp()
            self.count("clock_was_set", abs(told - time.time() - int(self.clock[0])) < 60)
        elif part == "locked":
            other = sqlite3.connect(self.running.data / "service.db", isolation_level=None, timeout=60)
            other.execute("BEGIN IMMEDIATE")
            end = time.monotonic() + 60
            yield
            time.sleep(max(0.0, end - time.monotonic()))
            other.execute("ROLLBACK")
            other.close()
        elif part == "deleted":
            away = self.folder / "away.db"
            (self.running.data / "service.db").rename(away)
            end = time.monotonic() + 20
            yield
            time.sleep(max(0.0, end - time.monotonic()))
            away.rename(self.running.data / "service.db")
        elif part == "read":
            assert self.postgres is not None
            self.postgres.read_only(True)
            end = time.monotonic() + 20
            yield
            time.sleep(max(0.0, end - time.monotonic()))
            self.postgres.read_only(False)
        else:
            with self.second_runner():
                time.sleep(5)
                first = [*self.runners(), *self.attempts(jobs).values()]
                for process in first:
                    process.suspend()
                time.sleep(12)
                for process in first:
                    with contextlib.suppress(psutil.Error):
                        process.resume()
                yield
                self.count("rounds_with_two", 1)
                # Both serve until the jobs have ended.
                self.wait(lambda: all(job.refresh().state not in ("PENDING", "RUNNING") for job in jobs))

    @contextlib.contextmanager
    def second_runner(self) -> Iterator[None]:
        """One that finds no lock, since its file is another."""
        (self.running.data / "runner.lock").unlink(missing_ok=True)
        settings = Settings(
            data=self.running.data, database=self.running.database, cpu=True, log=str(self.log), **SETTINGS
        )
        other = subprocess.Popen(
            [sys.executable, "-m", "mgclust.service.runner.runner"], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL, env=os.environ | {"NUMBA_NUM_THREADS": "1"},
        )  # fmt: skip
        assert other.stdin is not None
        told = {"settings": settings.to_json(), "name": secrets.token_hex(8), "hung": []}
        other.stdin.write(json.dumps(told).encode() + b"\n")
        other.stdin.flush()
        web = self.roots
        self.roots = lambda: [*web(), psutil.Process(other.pid)]  # type: ignore[method-assign]
        try:
            yield
        finally:
            del self.roots  # type: ignore[method-assign]
            other.stdin.close()
            other.terminate()
            other.wait(60)

    def refusal(self, job: Any) -> None:
        """What is answered while the database is away, without the client's retries."""
        body = {"method": "density-peaks", "sources": job.info["request"]["sources"]}
        headers = {"Authorization": self.service._http.headers["Authorization"]}
        answer = httpx.post(f"{self.running.url}/api/v1/jobs", json=body, headers=headers, timeout=60)
        right = answer.status_code == 503 and REFUSED[self.kind] in answer.json()["error"]
        self.count("refused", right)
        if not right:
            self.wrong.append(f"{answer.status_code} {answer.text[:200]}")

    def submit(self, **resources: int) -> Any:
        """A job of the kind that all are of."""
        return self.service.submit(
            "affinity-propagation", self.points, report=False, resources=resources, **SAME
        )  # fmt: skip

    def begun(self, job: Any) -> bool:
        """Whether it computes and has a checkpoint."""
        assert job.refresh().state in ("PENDING", "RUNNING"), f"the job ended before the harm: {job.info}"
        kept = self.running.data / "jobs" / job.id / "checkpoint"
        return any(kept.glob("*/checkpoint-*")) if kept.is_dir() else False

    def once(self, expected: dict[str, str]) -> None:
        """One round, or as many as there are jobs."""
        kind = KINDS[self.kind]
        jobs = [self.submit(**({"workers": 2} if "worker-" in self.kind else {})) for _ in range(kind.jobs)]
        self.wait(lambda: all(self.begun(job) for job in jobs))
        meanwhile: list[Any] = []
        submitting = threading.Thread(target=lambda: meanwhile.append(self.submit()))
        away = self.kind in REFUSED or self.kind.startswith("web")
        with self.harm(jobs):
            if away:
                submitting.start()
            if self.kind in REFUSED:
                self.refusal(jobs[0])
        if away:
            submitting.join(120)
            if not meanwhile:
                self.wrong.append("a request that was retried got no answer")
            jobs += meanwhile
        self.right_soon(jobs)
        self.count("jobs", len(jobs) + (away and not meanwhile))
        for job in jobs:
            self.check(job, expected)
        listed = Counter(job.id for job in self.service.jobs(limit=1000))
        self.count("lost", sum(listed[job.id] == 0 for job in jobs))
        mine = {job.id for job in jobs}
        others = 0 if kind.lanes > 1 else len(set(listed) - mine)
        self.count("doubled", sum(listed[id_] > 1 for id_ in mine) + others)
        for job in jobs:
            job.delete()
        self.count("rounds")

    def right_soon(self, jobs: list[Any]) -> None:
        """Wait until everything told is right."""
        began = time.monotonic()
        while not (right := self.right(jobs)) and time.monotonic() - began < DEADLINE:
            time.sleep(0.5)
        took = time.monotonic() - began
        self.longest = max(self.longest, took)
        self.count("wrong_states", not right or took > SOON)

    def right(self, jobs: list[Any]) -> bool:
        """Whether the service says that it is well, and each job that is told to run has a process that runs."""
        try:
            health = httpx.get(f"{self.running.url}/healthz", timeout=5)
            if health.status_code != 200 or health.json()["status"] != "ok":
                return False
            running = [job for job in jobs if job.refresh().state == "RUNNING"]
            computing = self.attempts(running)
            for job in running:
                process = computing.get(job.id)
                stands = process is None or process.status() == psutil.STATUS_STOPPED
                if stands and job.refresh().state == "RUNNING":
                    return False
            return True
        except (MgclustError, psutil.Error, httpx.HTTPError):
            return False

    def check(self, job: Any, expected: dict[str, str]) -> None:
        """Wait for its end, and compare."""
        said = set()

        def ended() -> bool:
            said.add(job.refresh().info["error"])
            return job.state not in ("PENDING", "RUNNING")

        self.wait(ended)
        info = job.info
        self.count(info["state"].lower())
        self.count("attempts", info["attempt"])
        if info["state"] == "SUCCEEDED":
            same = files_of(job.download(self.folder / job.id)) == expected
            self.count("same_bits" if same else "other_bits", 1)
            self.count("went_on_from_a_checkpoint", " resume" in job.log())
        events = [json.loads(line) for line in self.log.read_text().splitlines()]
        own = [event for event in events if event["job"] == job.id]
        ends = sum(event["event"] == "job.ended" for event in own)
        self.count("lost", ends == 0)
        self.count("doubled", ends > 1)
        said |= {event.get("error") for event in own}
        for sentence in said - {None}:
            self.count("sentences", 1)
            if not re.fullmatch(TRUE.get(self.kind, "none is"), sentence):
                self.count("untrue_sentences", 1)
                self.wrong.append(sentence)

    def wait(self, condition: Callable[[], bool]) -> None:
        """Wait, also while nothing answers."""
        end = time.monotonic() + DEADLINE
        while time.monotonic() < end:
            with contextlib.suppress(MgclustError):
                if condition():
                    return
            time.sleep(0.5)
        raise TimeoutError(f"{self.kind}: a state did not come")

    def close(self) -> None:
        """End all of it."""
        self.running.stop()
        if self.postgres is not None:
            self.postgres.close()


def _lives(process: psutil.Process) -> bool:
    with contextlib.suppress(psutil.Error):
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    return False


def share(here: Rounds, rounds: int, expected: dict[str, str]) -> None:
    """Some rounds in one service."""
    lanes = KINDS[here.kind].lanes

    def lane() -> None:
        try:
            for _ in range(-(-rounds // lanes)):
                here.once(expected)
        except Exception as error:  # a figure that is missing should not take the others with it
            here.wrong.append(f"a round was given up: {type(error).__name__}: {error}"[:500])
            here.count("given_up")

    try:
        here.start()
        with ThreadPoolExecutor(lanes) as pool:
            for _ in range(lanes):
                pool.submit(lane)
    finally:
        here.ended = True
        with contextlib.suppress(Exception):
            here.close()


def undisturbed(folder: Path, points: Path) -> dict[str, str]:
    """What a job leaves that nothing disturbs."""
    here = Rounds("", folder, points)
    here.start()
    try:
        return files_of(here.submit().wait().download(folder / "result"))
    finally:
        here.close()


def figures(kind: str, rounds: int, shares: list[Rounds]) -> dict[str, Any]:
    """What came of all rounds of a kind."""
    told: Counter[str] = Counter()
    for each in shares:
        told.update(dict(each.told))
    names = ("rounds", "jobs", "succeeded", "failed", "same_bits", "other_bits", "lost", "doubled", "untrue_sentences")
    out = {name: told[name] for name in (*names, "wrong_states")} | dict(told)
    out["longest_to_right"] = max(each.longest for each in shares)
    out["met"] = (
        told["rounds"] >= rounds and told["same_bits"] == told["jobs"] and not any(told[name] for name in (
            "failed", "other_bits", "lost", "doubled", "untrue_sentences", "wrong_states", "given_up")
        ) and (kind not in REFUSED or told["refused"] == told["rounds"])
        and (kind != "clock" or told["clock_was_set"] == told["rounds"])
    )  # fmt: skip
    out["not_right"] = sorted({sentence for each in shares for sentence in each.wrong})
    return out | {"services": len(shares), "ended": all(each.ended for each in shares)}


def _commit() -> str:
    told = subprocess.run(["git", "rev-parse", "--short", "HEAD"], cwd=REPOSITORY, capture_output=True, text=True)
    return told.stdout.strip() or "unknown"


def main() -> None:
    parser: argparse.ArgumentParser = bench.parser(__doc__)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--kinds", default=",".join(KINDS))
    parser.add_argument("--parallel", type=int, default=10, help="Services side by side: they mostly wait.")
    parser.add_argument("--postgres", type=Path, default=Path("/usr/bin"), help="Folder of initdb and pg_ctl.")
    parser.add_argument("--folder", type=Path, help="Where the services' data are; not /dev/shm, which workers need.")
    options = parser.parse_args()
    rounds = {}
    for each in options.kinds.split(","):
        kind, _, number = each.partition(":")
        rounds[kind] = int(number or options.rounds)
    kinds = list(rounds)
    if "clock" in kinds and not shutil.which("cc"):
        raise SystemExit("clock needs a C compiler; or leave it out by --kinds")
    Database.programs = options.postgres
    before = json.loads(options.out.read_text()) if options.out and options.out.exists() else {"items": []}
    out = bench.Record(__doc__, options.out)
    out.document["items"] = [item for item in before["items"] if item["item"] not in kinds]
    out.note("conditions", f"up to {options.parallel} services side by side; {SETTINGS}")
    with tempfile.TemporaryDirectory(dir=options.folder) as name, ThreadPoolExecutor(options.parallel) as pool:
        folder = Path(name)
        (folder / "slow").mkdir()
        (folder / "slow" / "sitecustomize.py").write_text(SLOW)
        os.environ["PYTHONPATH"] = os.pathsep.join((str(folder / "slow"), str(REPOSITORY)))
        points = folder / "points.npy"
        np.save(points, np.random.default_rng(1).normal(size=(150, 8)))
        expected = undisturbed(folder / "undisturbed", points)
        shares = {
            kind: [
                Rounds(kind, folder / f"{kind}.{n}", points)
                for n in range(min(KINDS[kind].services, max(1, rounds[kind] // 5)))
            ]
            for kind in kinds
        }
        began, commit, others = time.monotonic(), _commit(), out.document["items"]
        running = [
            pool.submit(share, each, -(-rounds[kind] // len(shares[kind])), expected)
            for kind in kinds for each in shares[kind]
        ]  # fmt: skip
        # Whatever ends this run, what it has counted is kept.
        while running:
            running = [each for each in running if not each.done()]
            time.sleep(5)
            told = {kind: figures(kind, rounds[kind], shares[kind]) for kind in kinds}
            same = {"commit": commit, "seconds": time.monotonic() - began}
            out.document["items"] = [*others, *({"item": k} | same | t for k, t in told.items() if t["rounds"])]
            out.note("ended", not running)
        for kind in kinds:
            print(kind, told[kind], flush=True)


if __name__ == "__main__":
    main()
