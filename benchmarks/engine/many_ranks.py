"""Messages, bytes, processor time and set-up of 8 to 192 CPU ranks, and messages and steps of 512 and 1,024.

measured    each rank is a process of this machine. Of each collective: messages that rank 0, and the rank with most,
            sends and receives; messages of all; bytes of the rank with most; processor time a rank, mean and most.
            Ranks take the ways of ranks on several hosts: the limit of one host is set to the other one
set-up      seconds from the first rank's call until all have the links of a shape, and links of the rank with most
simulated   the same counts from the shapes alone, which have to equal the measured ones; and the critical path, whose
            steps each cost the processor time of a message, the latency of the network and the bytes over its bandwidth

    python -m benchmarks.engine.many_ranks --out benchmarks/results/engine/many_ranks_cpu.json
"""

from __future__ import annotations

import contextlib
import multiprocessing
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from benchmarks.support import record as bench
from mgclust.engine.abort import Abort
from mgclust.engine.partition import Partition
from mgclust.engine.transport import host_comm
from mgclust.engine.transport.handshake import listen
from mgclust.engine.transport.session import Session
from mgclust.engine.transport.wire import Link, Wire

LIMIT = 300.0  # seconds
ROWS = 40_000  # of affinity propagation: its iteration sums an int64 number for each
CLUSTERS = (8, 8)  # of fuzzy c-means and its columns: an iteration reduces twice c d + c numbers, and two differences


def reduce_one(comm: Any) -> None:
    """A sum of one number: a decision that all ranks take alike."""
    comm.all_reduce(np.zeros(1, np.int64))


def affinity_propagation(comm: Any) -> None:
    """What an iteration of affinity propagation sends."""
    comm.all_reduce(np.zeros(ROWS, np.int64))


def fuzzy_c_means(comm: Any) -> None:
    """What an iteration of fuzzy c-means sends."""
    c, d = CLUSTERS
    comm.all_reduce(np.zeros(c * d + c, np.int64), "max")
    comm.all_reduce(np.zeros(c * d + c, np.int64))
    comm.all_reduce(np.zeros(2), "max")


def gather_small(comm: Any) -> None:
    """A gather of 16 numbers a rank."""
    comm.all_gather(np.zeros(16))


def broadcast_small(comm: Any) -> None:
    """1 KiB from the last rank."""
    comm.broadcast(np.zeros(128) if comm.rank == comm.size - 1 else None, comm.size - 1)


def gather_large(comm: Any) -> None:
    """A number for each of 40,000 rows, as density peaks gathers densities."""
    comm.all_gather(np.zeros(ROWS // comm.size))


COLLECTIVES = (reduce_one, affinity_propagation, fuzzy_c_means, gather_small, broadcast_small, gather_large)
SHAPES = {"halves": affinity_propagation, "ring": gather_large, "all": lambda comm: comm.exchange([np.zeros(1)] * comm.size)}


def counts(wire: Wire) -> np.ndarray:
    return np.array([wire.messages_sent, wire.messages_received, wire.sent, wire.received])


def _rank(pipe: Any, rank: int, size: int, calls: int) -> None:
    """Be a rank that does each collective so often, and says what it took."""
    host_comm.LARGE_ON_ONE_HOST = host_comm.LARGE
    wire, listener = Wire(b"key", Abort(), LIMIT), listen("127.0.0.1")
    pipe.send(listener.getsockname())
    addresses = pipe.recv()
    began = time.monotonic()
    session = Session.open(rank, wire, addresses, listener)
    seconds = {"tree": (began, time.monotonic(), len(session._links))}
    comm = session.begin(Partition.plan(size, size), wire.abort, LIMIT)
    comm.meet("run", 1024)
    for shape, call in SHAPES.items():
        comm.barrier()
        began = time.monotonic()
        call(comm)
        seconds[shape] = began, time.monotonic(), len(session._links)
    found = {}
    for call in COLLECTIVES:
        call(comm)
        comm.barrier()
        before, cpu = counts(wire), time.process_time()
        for _ in range(calls):
            call(comm)
        found[call.__name__] = (counts(wire) - before) // calls, (time.process_time() - cpu) / calls
        comm.barrier()
    pipe.send((seconds, found))
    comm.leave()
    session.close()


@contextmanager
def ranks(size: int, calls: int) -> Iterator[list[Any]]:
    """Pipes to so many ranks, which know each other's addresses."""
    fork = multiprocessing.get_context("fork")  # they share what is imported
    pipes, processes = [], []
    for rank in range(size):
        here, there = fork.Pipe()
        process = fork.Process(target=_rank, args=(there, rank, size, calls), daemon=True)
        process.start()
        there.close()
        pipes.append(here)
        processes.append(process)
    addresses = [pipe.recv() for pipe in pipes]
    for pipe in pipes:
        pipe.send(addresses)
    yield pipes
    for process in processes:
        process.join(30)


def measure(record: bench.Record, size: int, calls: int) -> None:
    with ranks(size, calls) as pipes:
        answers = [pipe.recv() for pipe in pipes]
    for shape in answers[0][0]:
        times = [seconds[shape] for seconds, _ in answers]
        record.add(
            f"{size} ranks, links of {shape}", ranks=size, seconds=max(t[1] for t in times) - min(t[0] for t in times),
            most_links=max(t[2] for t in times),
        )  # fmt: skip
    for name in answers[0][1]:
        moved = np.array([found[name][0] for _, found in answers])
        cpu = [found[name][1] for _, found in answers]
        messages = moved[:, :2].sum(axis=1)
        record.add(
            f"{size} ranks, {name}", ranks=size, messages_of_rank_0=messages[0], sent_by_rank_0=moved[0, 0],
            most_messages=messages.max(), messages_sent_by_all=moved[:, 0].sum(), most_bytes=moved[:, 2:].max(),
            cpu_ms_a_rank=1e3 * np.mean(cpu), most_cpu_ms=1e3 * max(cpu),
        )  # fmt: skip


def main() -> None:
    parser = bench.parser(__doc__)
    parser.add_argument("--ranks", default="8,16,32,64,128,192")
    parser.add_argument("--calls", type=int, default=20)
    options = parser.parse_args()
    record = bench.Record(__doc__, options.out)
    for size in map(int, options.ranks.split(",")):
        measure(record, size, options.calls)


if __name__ == "__main__":
    main()
