"""Ranks as processes of their own, without Dask, that can be killed in a collective; arrays go from rank to rank."""

from __future__ import annotations

import contextlib
import multiprocessing
import time
from collections.abc import Iterator
from typing import Any

import numpy as np

from mgclust import kernels
from mgclust.data import open_dataset
from mgclust.engine.abort import Abort
from mgclust.engine.partition import Partition
from mgclust.engine.rows import Rows
from mgclust.engine.transport import host_comm
from mgclust.engine.transport.handshake import listen
from mgclust.engine.transport.session import Session
from mgclust.engine.transport.wire import PeerLost, Wire

SOON = 60.0  # seconds; a deadlock lasts for longer
TIMEOUT = 40.0  # seconds of a collective: a rank that is killed is noticed long before


def stream(comm: Any, turn: int) -> None:
    n_rows = comm.size * 1024
    x = np.full((n_rows, 64), turn, np.float32)
    start, stop = comm._partition.rows_of(comm.rank)
    rows = Rows(open_dataset(x), start, stop, dtype=x.dtype, kernels=kernels.load("cpu"), block_rows=1024)
    rows.load()
    for block in comm.stream(rows):
        assert (block.x == turn).all()


def others(comm: Any, turn: int) -> None:
    """Every other collective, of more than the buffers between two ranks hold."""
    numbers = np.full(1 << 18, turn, np.int64)
    assert (comm.all_reduce(numbers) == turn * comm.size).all()
    assert len(comm.all_gather(numbers[: 1 << (10 + comm.rank)])) == (1 << 10) * (2**comm.size - 1)
    assert (comm.exchange([numbers] * comm.size) == turn).all()
    root = turn % comm.size
    assert (comm.broadcast(numbers if comm.rank == root else None, root) == turn).all()


COLLECTIVES = {"stream": stream, "others": others}


def _rank(pipe: Any, rank: int, size: int, security: Any) -> None:
    """Be a rank until another one is lost; say when and how that was."""
    host_comm.LARGE = host_comm.LARGE_ON_ONE_HOST = -1
    tls = []
    if security is not None:
        tls = [
            security.get_connection_args("worker")["ssl_context"],
            security.get_listen_args("worker")["ssl_context"],
        ]
    listener = listen("127.0.0.1")
    pipe.send(listener.getsockname())
    addresses, name = pipe.recv()
    wire = Wire(b"key", Abort(), TIMEOUT, *tls)
    session = Session.open(rank, wire, addresses, listener)
    comm = session.begin(Partition(size * 1024, 1024, size), wire.abort, TIMEOUT)
    comm.meet("run", 1024)
    collective = COLLECTIVES[name]
    turn = 0
    try:
        while True:
            collective(comm, turn)
            if turn == 1:
                pipe.send("turning")
            turn += 1
    except Exception as error:
        session.close()
        pipe.send((type(error), str(error), turn))


@contextlib.contextmanager
def turning(size: int, name: str, security: Any = None) -> Iterator[tuple[list[Any], list[Any]]]:
    """Processes and pipes of ranks that repeat collectives, and have done so twice."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([__name__])
    processes, pipes = [], []
    for rank in range(size):
        here, there = context.Pipe()
        processes.append(context.Process(target=_rank, args=(there, rank, size, security), daemon=True))
        processes[-1].start()
        there.close()
        pipes.append(here)
    try:
        addresses = [heard(pipe) for pipe in pipes]
        for pipe in pipes:
            pipe.send((addresses, name))
        for pipe in pipes:
            assert heard(pipe) == "turning"
        yield processes, pipes
    finally:
        for process in processes:
            process.kill()
            process.join()
        for pipe in pipes:
            pipe.close()


def heard(pipe: Any) -> Any:
    """What a process says; it has a limit."""
    assert pipe.poll(SOON), "a rank says nothing: it waits without an end"
    return pipe.recv()


def killed(size: int, name: str, victim: int, after: float, security: Any = None) -> float:
    """Kill a rank so long after the others have begun; seconds until all of them have noticed."""
    with turning(size, name, security) as (processes, pipes):
        time.sleep(after)
        processes[victim].kill()
        began = time.monotonic()
        for rank, pipe in enumerate(pipes):
            if rank != victim:
                kind, sentence, turn = heard(pipe)
                assert issubclass(kind, PeerLost), (kind, sentence, turn)
        took = time.monotonic() - began
        for rank, process in enumerate(processes):
            process.join(SOON)
            assert process.exitcode == (-9 if rank == victim else 0)
        return took
