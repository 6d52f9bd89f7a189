"""Bytes and seconds of collectives of CPU ranks: over the tree of ranks, and from rank to rank ("peers").

bytes       4, 8, 16 and 64 ranks as threads of one process, over real sockets: 8 MiB in each collective (64 KiB with
            `--mib 0.0625`), counted in messages, before encryption. Of each collective and way the bytes of the rank
            that sends or receives most, which one that is, the mean of all, and the former over the payload
seconds     with `--seconds`: 8 ranks as processes of this machine, the median of some calls, at several payloads
links       with `--mbit 1000`: the same with each rank in a network namespace of its own (needs root, ip and tc), whose
            link to one switch carries so many Mbit/s each way: there the network is the limit, not the cores

Both ways have the same ranks, the same connections and the same barrier before each call; the slowest rank counts. The
exchange has one way.

    python -m benchmarks.engine.collectives --out benchmarks/results/engine/collectives_cpu.json
    python -m benchmarks.engine.collectives --seconds --out benchmarks/results/engine/collectives_seconds.json
    python -m benchmarks.engine.collectives --mbit 1000 --out benchmarks/results/engine/collectives_links.json
"""

from __future__ import annotations

import contextlib
import ctypes
import itertools
import multiprocessing
import os
import secrets
import statistics
import subprocess
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import numpy as np

from benchmarks.support import record as bench
from mgclust import kernels
from mgclust.data import open_dataset
from mgclust.engine.abort import Abort
from mgclust.engine.partition import Partition
from mgclust.engine.rows import Rows
from mgclust.engine.transport import host_comm
from mgclust.engine.transport.handshake import listen
from mgclust.engine.transport.host_comm import HostComm
from mgclust.engine.transport.session import Session
from mgclust.engine.transport.wire import Wire

FEATURES = 64
KIB = "1,16,32,64,128,256,512,1024,2048,4096,8192"  # of payloads that are timed
LIMIT = 300.0  # seconds
WAYS = {"tree": 1 << 62, "peers": -1}  # bytes up to which arrays go over the tree
NETWORK = "10.78.0"


def take(way: str) -> None:
    host_comm.LARGE = host_comm.LARGE_ON_ONE_HOST = WAYS[way]


class Payload:
    """What one rank brings to each collective: so many bytes in all, whatever the number of ranks."""

    def __init__(self, comm: HostComm, total: int) -> None:
        self.comm, rank, size = comm, comm.rank, comm.size
        self.sums = np.arange(total // 8, dtype=np.int64) + rank
        self.share = np.full(total // size // 8, rank, np.int64)
        self.parts = [np.full(total // size // size // 8, rank * size + peer, np.int64) for peer in range(size)]
        n_rows = max(1, total // (4 * FEATURES))
        # Fewer rows a block than a run would have: every rank is to own some.
        self.partition = comm._partition = Partition(n_rows, max(1, n_rows // 64), size)
        x = np.arange(n_rows * FEATURES, dtype=np.float32).reshape(n_rows, FEATURES)
        self.rows = Rows(
            open_dataset(x), *self.partition.rows_of(rank), dtype=np.dtype(np.float32), kernels=kernels.load("cpu"),
            block_rows=self.partition.block_rows,
        )  # fmt: skip
        self.rows.load()
        comm.ranges = list(self.partition.ranges(self.partition.block_rows))

    def all_reduce(self) -> None:
        """A sum whose array is the payload, on every rank."""
        self.comm.all_reduce(self.sums)

    def all_gather(self) -> None:
        """Arrays that are the payload together."""
        self.comm.all_gather(self.share)

    def uneven_gather(self) -> None:
        """As `all_gather`, but the last rank has all."""
        last = self.comm.rank == self.comm.size - 1
        self.comm.all_gather(self.sums if last else self.sums[:0])

    def exchange(self) -> None:
        """Arrays of all ranks for all ranks that are the payload together."""
        self.comm.exchange(self.parts)

    def broadcast(self) -> None:
        """The payload, from the last rank."""
        root = self.comm.size - 1
        self.comm.broadcast(self.sums if self.comm.rank == root else None, root)

    def stream(self) -> None:
        """Rows that are the payload together."""
        for _ in self.comm.stream(self.rows):
            pass


COLLECTIVES = ("all_reduce", "all_gather", "uneven_gather", "exchange", "broadcast", "stream")


@contextmanager
def threads(size: int) -> Iterator[tuple[list[HostComm], list[Wire], ThreadPoolExecutor]]:
    """So many ranks of this process, connected."""
    listeners, wires = [listen("127.0.0.1") for _ in range(size)], [Wire(b"key", Abort(), LIMIT) for _ in range(size)]
    addresses = [listener.getsockname() for listener in listeners]
    with ThreadPoolExecutor(size) as pool:
        opening = [pool.submit(Session.open, rank, wires[rank], addresses, listeners[rank]) for rank in range(size)]
        sessions = [each.result() for each in opening]
        partition = Partition.plan(size, size)
        yield [each.begin(partition, wires[rank].abort, LIMIT) for rank, each in enumerate(sessions)], wires, pool
    for each in sessions:
        each.close()


def on_all(pool: ThreadPoolExecutor, calls: list[Callable[[], Any]]) -> None:
    """Call one function a rank, at once."""
    for future in [pool.submit(call) for call in calls]:
        future.result()


def count(record: bench.Record, size: int, names: tuple[str, ...], total: int) -> None:
    with threads(size) as (comms, wires, pool):
        for name in names:
            found: dict[str, Any] = {}
            for way in WAYS:
                take(way)
                payloads = pool.map(Payload, comms, itertools.repeat(total))
                calls = [getattr(payload, name) for payload in payloads]
                on_all(pool, calls)  # what is opened once does not count
                before = [(wire.sent, wire.received) for wire in wires]
                on_all(pool, calls)
                moved = [
                    max(wire.sent - sent, wire.received - received)
                    for wire, (sent, received) in zip(wires, before, strict=True)
                ]
                mean = statistics.mean(wire.sent - sent for wire, (sent, _) in zip(wires, before, strict=True))
                found |= {
                    f"{way}_most_bytes": max(moved), f"{way}_most_bytes_of_rank": moved.index(max(moved)),
                    f"{way}_mean_bytes_sent": mean, f"{way}_per_payload": max(moved) / total,
                }  # fmt: skip
            record.add(f"{size} ranks, {name}", payload=total, **found)


def _rank(pipe: Any, namespace: str, host: str) -> None:
    """Be a rank, in a network namespace if it has a name; times what it is told to."""
    if namespace:
        libc, number = ctypes.CDLL(None, use_errno=True), os.open(f"/run/netns/{namespace}", os.O_RDONLY)
        if libc.setns(number, 0):
            raise OSError(ctypes.get_errno(), f"the network namespace {namespace} cannot be entered")
        os.close(number)
    rank, size = pipe.recv()
    listener = listen(host)
    pipe.send(listener.getsockname())
    wire = Wire(b"key", Abort(), LIMIT)
    session = Session.open(rank, wire, pipe.recv(), listener, (host,))
    with contextlib.suppress(EOFError):
        while True:
            name, total, way, calls = pipe.recv()
            comm = session.begin(Partition.plan(size, size), wire.abort, LIMIT)
            call = getattr(Payload(comm, total), name)
            take(way)
            call()
            seconds = []
            for _ in range(calls):
                take("tree")
                comm.barrier()
                take(way)
                began = time.perf_counter()
                call()
                seconds.append(time.perf_counter() - began)
            pipe.send(seconds)
    session.close()


@contextmanager
def processes(size: int, namespaces: list[str], hosts: list[str]) -> Iterator[list[Any]]:
    """Pipes to so many ranks, connected."""
    spawn = multiprocessing.get_context("spawn")
    os.environ.update(OMP_NUM_THREADS="1", NUMBA_NUM_THREADS="1")
    pipes, started = [], []
    for rank in range(size):
        here, there = spawn.Pipe()
        process = spawn.Process(target=_rank, args=(there, namespaces[rank], hosts[rank]), daemon=True)
        process.start()
        there.close()
        pipes.append(here)
        started.append(process)
    for rank, pipe in enumerate(pipes):
        pipe.send((rank, size))
    addresses = [pipe.recv() for pipe in pipes]
    for pipe in pipes:
        pipe.send(addresses)
    yield pipes
    for pipe in pipes:
        pipe.close()
    for process in started:
        process.join(10)


@contextmanager
def network(size: int, mbit: int) -> Iterator[tuple[list[str], list[str]]]:
    """Namespaces behind one switch, whose links carry so much each way, and their addresses."""
    prefix = f"mgc{secrets.token_hex(2)}"
    names = [f"{prefix}-{rank}" for rank in range(size)]
    switch = f"{prefix}-switch"

    def run(*words: str) -> None:
        subprocess.run(words, check=True, capture_output=True)

    def limit(namespace: str, device: str) -> None:
        limits = f"rate {mbit}mbit burst 128kb latency 50ms"
        run("tc", "-n", namespace, "qdisc", "add", "dev", device, "root", "tbf", *limits.split())

    try:
        run("ip", "netns", "add", switch)
        run("ip", "-n", switch, "link", "add", "bridge", "type", "bridge")
        run("ip", "-n", switch, "link", "set", "bridge", "up")
        for rank, name in enumerate(names):
            port = f"port{rank}"
            run("ip", "netns", "add", name)
            run("ip", "-n", name, "link", "add", "eth0", "type", "veth", "peer", "name", port, "netns", switch)
            run("ip", "-n", switch, "link", "set", port, "master", "bridge", "up")
            run("ip", "-n", name, "addr", "add", f"{NETWORK}.{rank + 1}/24", "dev", "eth0")
            for device in ("eth0", "lo"):
                run("ip", "-n", name, "link", "set", device, "up")
            limit(name, "eth0")
            limit(switch, port)
        yield names, [f"{NETWORK}.{rank + 1}" for rank in range(size)]
    finally:
        for name in (*names, switch):
            subprocess.run(["ip", "netns", "del", name], capture_output=True)


def clock(record: bench.Record, size: int, names: tuple[str, ...], totals: list[int], mbit: int, rounds: int) -> None:
    """Seconds of both ways, alternating, at each payload; the slowest rank counts."""
    with contextlib.ExitStack() as stack:
        namespaces, hosts = stack.enter_context(network(size, mbit)) if mbit else ([""] * size, ["127.0.0.1"] * size)
        pipes = stack.enter_context(processes(size, namespaces, hosts))
        for total in totals:
            for name in names:
                found: dict[str, list[float]] = {way: [] for way in WAYS}
                for _ in range(rounds):
                    for way, seen in found.items():
                        for pipe in pipes:
                            pipe.send((name, total, way, 5 if total >= 1 << 20 else 20))
                        seen += [max(each) for each in zip(*(pipe.recv() for pipe in pipes), strict=True)]
                tree, peers = (statistics.median(found[way]) for way in WAYS)
                link = f", {mbit} Mbit/s" if mbit else ""
                record.add(
                    f"{size} ranks{link}, {name} of {total} bytes", payload=total, tree_seconds=tree,
                    peers_seconds=peers, times_as_fast=tree / peers,
                )  # fmt: skip


def main() -> None:
    parser = bench.parser(__doc__)
    parser.add_argument("--ranks", help="how many; by default those above")
    parser.add_argument("--mib", type=float, default=8.0, help="payload of each collective whose bytes are counted")
    parser.add_argument("--seconds", action="store_true", help="seconds in place of bytes")
    parser.add_argument("--mbit", type=int, default=0, help="seconds on links of so many Mbit/s")
    parser.add_argument("--kib", default="", help="payloads that are timed")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", default="", help="collectives; by default all")
    options = parser.parse_args()
    names = tuple(options.only.split(",")) if options.only else COLLECTIVES
    record = bench.Record(__doc__, options.out)
    if options.seconds or options.mbit:
        totals = [int(float(kib) * 1024) for kib in (options.kib or KIB).split(",")]
        for size in map(int, (options.ranks or "8").split(",")):
            clock(record, size, names, totals, options.mbit, options.rounds)
        return
    for size in map(int, (options.ranks or "4,8,16,64").split(",")):
        count(record, size, names, int(options.mib * (1 << 20)))


if __name__ == "__main__":
    main()
