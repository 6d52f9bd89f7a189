"""Ranks without Dask: one process a rank on this machine, each with its own GPU or its share of the cores.

What Dask does for a run of mgclust is to place tasks and to ship what they need; once they have met, the ranks talk
to each other. Here pipes do the former, so that a machine needs CuPy and NCCL only, and a rank stays warm (context,
compiled kernels) from one run to the next.

    with Processes(4, "cuda") as ranks:
        outcome = ranks.run(RunSpec(function, {...}), dataset)
"""

from __future__ import annotations

import contextlib
import itertools
import multiprocessing
import multiprocessing.connection
import os
import secrets
import traceback
from typing import Any

import numpy as np

from benchmarks.support import on_ranks  # puts benchmarks and mgclust on the path of the processes

CONNECT_SECONDS = 300.0  # seconds; a process that starts loads CUDA and CuPy first


class RankFailed(Exception):
    """What a rank raised, as text."""


class Processes:
    """So many ranks.

    Parameters
    ----------
    size : int
    device : {"cpu", "cuda"}
    """

    def __init__(self, size: int, device: str) -> None:
        self.size, self.device = size, device
        self._pipes: list[Any] = []
        self._processes: list[Any] = []

    def __enter__(self) -> Processes:
        spawn = multiprocessing.get_context("spawn")
        cores = len(os.sched_getaffinity(0))
        visible = os.environ.get("CUDA_VISIBLE_DEVICES")
        devices = visible.split(",") if visible else [str(i) for i in range(self.size)]
        before = dict(os.environ)
        for rank in range(self.size):
            here, there = spawn.Pipe()
            # A process inherits the environment: it must name the GPU before anything asks the driver.
            if self.device == "cuda":
                os.environ["CUDA_VISIBLE_DEVICES"] = devices[rank]
            else:
                os.environ["OMP_NUM_THREADS"] = str(max(1, cores // self.size))
            process = spawn.Process(target=_serve, args=(there,), daemon=True)
            process.start()
            there.close()
            self._pipes.append(here)
            self._processes.append(process)
        os.environ.clear()
        os.environ.update(before)
        if self.size > 1:
            self._connect()
        return self

    def __exit__(self, *arguments: object) -> None:
        for pipe in self._pipes:
            pipe.close()
        for process in self._processes:
            process.join(10)
            if process.is_alive():
                process.terminate()

    def run(self, spec: Any, dataset: Any) -> Any:
        """As `mgclust.engine.spmd.run`, with these ranks."""
        from mgclust.engine.partition import Partition
        from mgclust.engine.rank import RankAssignment, gathered, hardware, refuse
        from mgclust.engine.rows import offset_of
        from mgclust.engine.spmd import Outcome

        partition = Partition.plan(dataset.shape[0], self.size)
        offset = offset_of(dataset, np.dtype(spec.dtype), spec.metric, spec.typical)
        name = secrets.token_hex(8)
        for rank, pipe in enumerate(self._pipes):
            assignment = RankAssignment(spec, name, rank, partition, self.device, neighbours=self.size, offset=offset)
            pipe.send((assignment, dataset))
        done = self._answers()
        reports = [each.report for each in done]
        refuse(reports, dataset.shape, spec)
        timings = {"load": max(report.seconds for report in reports), **done[0].timings}
        return Outcome(done[0].value, gathered(done), timings, hardware(reports, self.device), self.size)

    def _connect(self) -> None:
        """Open the session of all runs."""
        for pipe in self._pipes:
            pipe.send(None)
        meeting = [("127.0.0.1", pipe.recv()) for pipe in self._pipes], secrets.token_bytes(32)
        for rank, pipe in enumerate(self._pipes):
            pipe.send((rank, *meeting))

    def _answers(self) -> list[Any]:
        """One answer of each rank; raises the first failure, after which the ranks serve no further run."""
        answers: list[Any] = [None] * self.size
        waiting = {pipe: rank for rank, pipe in enumerate(self._pipes)}
        while waiting:
            for pipe in multiprocessing.connection.wait(list(waiting)):
                rank = waiting.pop(pipe)
                try:
                    answers[rank] = pipe.recv()
                except EOFError:
                    answers[rank] = RankFailed(f"rank {rank} died")
                if isinstance(answers[rank], RankFailed):
                    raise answers[rank]
        return answers


def _serve(pipe: Any) -> None:
    """Do one run after the other until the pipe is closed."""
    from mgclust.engine.abort import Abort
    from mgclust.engine.rank import run_rank
    from mgclust.engine.transport.handshake import listen
    from mgclust.engine.transport.session import Session
    from mgclust.engine.transport.wire import Wire

    session, listener = None, None
    for count in itertools.count():
        try:
            message = pipe.recv()
        except (EOFError, ConnectionError):
            return
        if message is None:
            listener = listen("127.0.0.1")
            pipe.send(listener.getsockname()[1])
            continue
        if len(message) > 2:
            rank, addresses, key = message
            session = Session.open(rank, Wire(key, Abort(), CONNECT_SECONDS), addresses, listener)
            continue
        assignment, dataset = message
        try:
            pipe.send(run_rank(assignment, dataset, Abort(), session))
        except (EOFError, ConnectionError):
            return
        except Exception:
            with contextlib.suppress(ConnectionError):  # closed: another rank has failed first
                pipe.send(RankFailed(f"run {count}, rank {assignment.rank}:\n{traceback.format_exc()}"))
            return
        on_ranks.free_pool()
