"""What a run on a CPU cluster costs once ranks are connected, and what is left of its session when something is killed.

times       density peaks in this process and on two workers of one thread, the least and the median of many runs; with
            --before by two versions of the source by turns; beside them a task of Dask and `Client.run`
leaks       many runs of one client: memory, threads, open files of the client and of each worker before and after;
            without Dask's profiler, which keeps a profile of each second for an hour, and with ten entries in each of
            its logs, which keep a thousand
WHO-WHEN    a worker, the client or the scheduler is killed (SIGKILL) between two runs of one session, or during a
            run, at a random moment; a scheduler of its own process, two workers with nannies. A round is right if
            the caller has had the right bits or one sentence of mgclust, within `WAIT_LIMIT` seconds, the next run
            has the right bits, and after the last client has gone no worker keeps a session; runs are counted by their
            ranks, of which all should have two

    git worktree add ../before COMMIT
    python -m benchmarks.engine.warm_runs --only times,leaks --before ../before --out warm_runs_cpu.json
    python -m benchmarks.engine.warm_runs --only KILLS --rounds 20 --out warm_runs_kills.json
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import random
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import psutil

from benchmarks.support import record as bench

ROOT = Path(__file__).resolve().parents[2]
WAIT_LIMIT = 60.0  # seconds
SIZES = (3_000, 20_000)
NO_WORK = ("place", "load", "connect", "dask")  # stages
RANKS = 2  # asked for: runs of few rows would take one, and so no session
KILLS = [f"{who}-{when}" for who in ("worker", "client", "scheduler") for when in ("between", "during")]


def points(n: int) -> np.ndarray:
    return np.random.default_rng(n).random((n, 2)).astype(np.float32)


def clocked(call: Callable[[], Any], repeat: int) -> list[float]:
    """Milliseconds of each call."""
    taken = []
    for _ in range(repeat):
        began = time.perf_counter()
        call()
        taken.append(1e3 * (time.perf_counter() - began))
    return taken


def times(repeat: int) -> dict[str, Any]:
    """Of the mgclust that is on the path."""
    from distributed import Client, LocalCluster

    from mgclust import DensityPeaks

    found: dict[str, Any] = {}
    with (
        LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None) as cluster,
        Client(cluster, set_as_default=False) as client,
    ):
        for n in SIZES:
            x, stages = points(n), Counter()
            model = DensityPeaks(5, client=client, n_workers=RANKS).fit(x)
            total, beside = [], []
            for _ in range(repeat):
                total += clocked(lambda model=model, x=x: model.fit(x), 1)
                stages.update({name: 1e3 * taken / repeat for name, taken in model.timings_.items()})
                computing = (taken for name, taken in model.timings_.items() if name not in NO_WORK)
                beside.append(total[-1] - 1e3 * sum(computing))
                if total[-1] == min(total):
                    fastest = {name: 1e3 * taken for name, taken in model.timings_.items()}
            alone = DensityPeaks(5, client=None)
            in_process = clocked(lambda alone=alone, x=x: alone.fit(x), repeat)
            found[str(n)] = {"total": total, "in_process": in_process, "beside": beside, "stages": stages}
            found[str(n)]["fastest"] = min(total), fastest
        task = clocked(lambda: client.submit(int, pure=False).result(), repeat)
        run = clocked(lambda: client.run(int), repeat)
    return {**found, "task": task, "client_run": run}


def compare(record: bench.Record, before: Path | None, turns: int, repeat: int) -> None:
    """Times of both versions by turns, each in processes of its own."""
    versions = {"now": ROOT, **({"before": before.resolve()} if before else {})}
    found: dict[str, list[dict[str, Any]]] = {name: [] for name in versions}
    for _ in range(turns):
        for name, path in versions.items():
            code = f"import json; from warm_runs import times; print('found', json.dumps(times({repeat})))"
            run = f"if __name__ == '__main__':\n    {code}"
            environment = {**os.environ, "PYTHONPATH": f"{path}:{ROOT}:{Path(__file__).parent}"}
            done = subprocess.run(
                [sys.executable, "-c", run], env=environment, stdout=subprocess.PIPE, text=True, check=True, cwd="/"
            )
            found[name].append(json.loads(done.stdout.rpartition("found ")[2]))
    for name, each in found.items():

        def of(*keys: str, each: list[dict[str, Any]] = each) -> list[float]:
            return [ms for turn in each for ms in (turn[keys[0]][keys[1]] if len(keys) > 1 else turn[keys[0]])]

        for n in SIZES:
            stages: Counter[str] = Counter()
            for turn in each:
                stages.update({stage: ms / len(each) for stage, ms in turn[str(n)]["stages"].items()})
            total, alone = (statistics.median(of(str(n), what)) for what in ("total", "in_process"))
            record.add(
                f"{name}: density peaks {n} x 2", runs=len(of(str(n), "total")), total_ms=total,
                least_ms=min(of(str(n), "total")), in_process_ms=alone,
                least_in_process_ms=min(of(str(n), "in_process")), stages_ms=dict(stages),
                beside_the_computing_ms=statistics.median(of(str(n), "beside")),
                least_beside_the_computing_ms=min(of(str(n), "beside")),
                stages_of_the_fastest_ms=min((turn[str(n)]["fastest"] for turn in each), key=lambda run: run[0])[1],
            )  # fmt: skip
        record.add(
            f"{name}: Dask", task_ms=statistics.median(of("task")), client_run_ms=statistics.median(of("client_run"))
        )


def state() -> dict[str, int]:
    """Of this process."""
    process = psutil.Process()
    return {"rss": process.memory_info().rss, "threads": process.num_threads(), "files": process.num_fds()}


def leaks(record: bench.Record, runs: int) -> None:
    import dask
    from distributed import Client, LocalCluster

    from mgclust import DensityPeaks

    x = points(3_000)
    with (
        dask.config.set({"distributed.worker.profile.enabled": False, "distributed.admin.low-level-log-length": 10}),
        LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None) as cluster,
        Client(cluster, set_as_default=False) as client,
    ):
        found = []
        for count in (50, runs // 2, runs - runs // 2):
            for _ in range(count):
                DensityPeaks(5, client=client, n_workers=RANKS).fit(x)
            time.sleep(2)
            found.append({"client and scheduler": state(), **dict(zip("ab", client.run(state).values(), strict=True))})
        record.add(f"leaks: {runs} runs", after_50=found[0], after_half=found[1], after_all=found[2])


class Hosts:
    """A scheduler and two workers, each with a nanny, as processes of their own."""

    def __init__(self, folder: Path) -> None:
        with socket.create_server(("127.0.0.1", 0)) as free:
            self.address = f"tcp://127.0.0.1:{free.getsockname()[1]}"
        self._folder, self._log = folder, (folder / "log").open("a")
        self.scheduler = self._scheduler()
        self._workers = [self._worker() for _ in range(2)]

    def _dask(self, *arguments: str) -> subprocess.Popen:
        environment = {**os.environ, "PYTHONPATH": f"{ROOT}:{ROOT / 'tests'}"}
        command = [sys.executable, "-m", "dask", *arguments]
        return subprocess.Popen(command, env=environment, stdout=self._log, stderr=self._log, cwd=self._folder)

    def _scheduler(self) -> subprocess.Popen:
        return self._dask("scheduler", "--host", self.address, "--no-dashboard", "--no-show")

    def _worker(self) -> subprocess.Popen:
        return self._dask("worker", self.address, "--nthreads", "1", "--no-dashboard", "--host", "127.0.0.1")

    def restart(self) -> None:
        """Kill the scheduler; the workers, which end without it, are started again with the new one."""
        self.scheduler.kill()
        self.scheduler.wait()
        for worker in self._workers:
            _end(worker)
        self.scheduler = self._scheduler()
        self._workers = [self._worker() for _ in range(2)]

    def close(self) -> None:
        """End all of them."""
        for process in (*self._workers, self.scheduler):
            _end(process)
        self._log.close()


def _end(process: subprocess.Popen) -> None:
    """End a process and its children."""
    with contextlib.suppress(psutil.NoSuchProcess):
        children = psutil.Process(process.pid).children(recursive=True)
        process.terminate()
        try:
            process.wait(15)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        for child in children:
            with contextlib.suppress(psutil.NoSuchProcess):
                child.kill()


def caller(address: str) -> None:
    """Run what standard input asks for, and say what came of it."""
    from distributed import Client

    from mgclust import DensityPeaks
    from mgclust.base.errors import MgclustError

    with Client(address, set_as_default=False, timeout=30) as client:
        client.wait_for_workers(2, timeout=60)
        for line in sys.stdin:
            n, algorithm = line.split()
            print("begun", flush=True)
            try:
                model = DensityPeaks(5, client=client, n_workers=RANKS, algorithm=algorithm).fit(points(int(n)))
                bits = hashlib.sha256(model.rho_.tobytes() + model.labels_.tobytes()).hexdigest()
                said = f"{bits} {model.result_.hardware['ranks']}"
            except MgclustError as error:
                said = f"sentence {type(error).__name__}: {str(error).splitlines()[0]}"
            except Exception as error:
                said = f"fault {type(error).__name__}: {error}".replace("\n", " ")
            print(said, flush=True)


class Caller:
    """A client in a process of its own; counts the ranks of runs that came to their end."""

    def __init__(self, address: str, ranks: Counter[int]) -> None:
        self._ranks = ranks
        environment = {**os.environ, "PYTHONPATH": f"{ROOT}:{Path(__file__).parent}"}
        environment["DASK_DISTRIBUTED__COMM__TIMEOUTS__CONNECT"] = "8s"  # for which a client seeks its scheduler
        code = f"from warm_runs import caller; caller({address!r})"
        self.process = subprocess.Popen(
            [sys.executable, "-c", code], env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL, text=True,
        )  # fmt: skip

    def begin(self, asked: str) -> None:
        """Ask for a run."""
        assert self.process.stdin is not None and self.process.stdout is not None
        self.process.stdin.write(asked + "\n")
        self.process.stdin.flush()
        assert self.process.stdout.readline() == "begun\n"

    def said(self) -> str:
        """What came of the run; a run that takes too long is a fault."""
        import selectors

        assert self.process.stdout is not None
        with selectors.DefaultSelector() as ready:
            ready.register(self.process.stdout, selectors.EVENT_READ)
            if not ready.select(WAIT_LIMIT):
                return "fault: no answer"
        said = self.process.stdout.readline().strip()
        if said.startswith(("fault", "sentence")):
            return said
        bits, _, ranks = said.partition(" ")
        self._ranks[int(ranks)] += 1
        return bits

    def close(self) -> None:
        """Kill it."""
        self.process.kill()
        self.process.wait()


def seats(address: str) -> list[int]:
    """How many sessions each worker keeps."""
    from distributed import Client

    from support import rank_jobs

    with Client(address, set_as_default=False) as client:
        return [kept for kept, *_ in client.run(rank_jobs.seats).values()]


QUICK, LONG = "3000 auto", "24000 brute"


def kills(record: bench.Record, kind: str, rounds: int, seed: int) -> None:
    who, when = kind.split("-")
    chance, outcomes, wrong, longest = random.Random(seed), Counter(), [], 0.0
    ranks: Counter[int] = Counter()
    with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as stack:
        hosts = Hosts(Path(folder))
        stack.callback(hosts.close)
        right = {}
        here = Caller(hosts.address, ranks)
        for asked in (QUICK, LONG):
            here.begin(asked)
            began = time.monotonic()
            right[asked] = here.said()
            long = time.monotonic() - began
        assert not any(each.startswith(("fault", "sentence")) for each in right.values()), right
        for number in range(rounds):
            for _ in range(2):  # of one session
                here.begin(QUICK)
                if (said := here.said()) != right[QUICK]:
                    wrong.append(f"round {number}, before: {said}")
            asked = QUICK if when == "between" else LONG
            victims = [p.pid for p in _workers(hosts)] if who == "worker" else []
            if when == "during":
                here.begin(asked)
                time.sleep(chance.random() * long)
            killed = time.monotonic()
            if who == "worker":
                os.kill(chance.choice(victims), signal.SIGKILL)
            elif who == "client":
                here.close()
            else:
                hosts.scheduler.kill()
            if when == "between" and who != "client":
                time.sleep(chance.random() * 2)
                here.begin(asked)
            said = "the client is gone" if who == "client" else here.said()
            longest = max(longest, time.monotonic() - killed)
            outcomes[said.split(":")[0] if said != right[asked] else "right bits"] += 1
            if said.startswith("fault") or (who != "client" and said != right[asked] and not said.startswith("sent")):
                wrong.append(f"round {number}: {said}")
            if who == "scheduler":
                here.close()
                hosts.restart()
            if who != "worker":
                here = Caller(hosts.address, ranks)
            else:
                _two_workers(hosts.address)
            here.begin(QUICK)
            if (said := here.said()) != right[QUICK]:
                wrong.append(f"round {number}, next run: {said}")
        here.close()
        end = time.monotonic() + WAIT_LIMIT
        while any(left := seats(hosts.address)) and time.monotonic() < end:
            time.sleep(0.2)
    record.add(
        kind, rounds=rounds, outcomes=dict(outcomes), wrong=wrong, longest_s=longest, sessions_left=sum(left),
        runs_by_ranks=dict(ranks),
    )  # fmt: skip


def _workers(hosts: Hosts) -> list[psutil.Process]:
    """Processes that compute: children of the nannies but for those that track resources."""
    found = []
    for nanny in hosts._workers:
        for child in psutil.Process(nanny.pid).children(recursive=True):
            with contextlib.suppress(psutil.NoSuchProcess):
                if "spawn_main" in " ".join(child.cmdline()):
                    found.append(child)
    return found


def _two_workers(address: str) -> None:
    from distributed import Client

    with Client(address, set_as_default=False) as client:
        client.wait_for_workers(2, timeout=60)
        time.sleep(0.2)  # its nanny hears of a new worker a little later


def main() -> None:
    parser = bench.parser(__doc__)
    parser.add_argument("--before", type=Path, help="a checkout of another version, for its times")
    parser.add_argument("--turns", type=int, default=3, help="clusters of each version, with --repeat runs each")
    parser.add_argument("--repeat", type=int, default=30)
    parser.add_argument("--runs", type=int, default=500)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", default="times,leaks,KILLS")
    options = parser.parse_args()
    record = bench.Record(__doc__, options.out)
    for item in options.only.replace("KILLS", ",".join(KILLS)).split(","):
        if item == "times":
            compare(record, options.before, options.turns, options.repeat)
        elif item == "leaks":
            leaks(record, options.runs)
        else:
            kills(record, item, options.rounds, options.seed)


sys.path.insert(0, str(ROOT / "tests"))

if __name__ == "__main__":
    main()
