"""How many bytes each rank sends and receives in a collective of CPU ranks.

bytes       4, 16 and 64 ranks as threads of one process, over real sockets: 8 MiB in each collective (64 KiB with
            `--mib 0.0625`), counted in messages, before encryption. Of each collective the rank that sends most, the
            one that receives most, and their mean. `per_payload` is the worst of both over the bytes of the payload

    python -m benchmarks.engine.collectives --out benchmarks/results/engine/collectives_cpu.json
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import numpy as np

from benchmarks.support import record as bench
from mgclust import kernels
from mgclust.data import open_dataset
from mgclust.engine.abort import Abort
from mgclust.engine.comm import HostComm
from mgclust.engine.meeting import listen
from mgclust.engine.partition import Partition
from mgclust.engine.rows import Rows
from mgclust.engine.session import Session
from mgclust.engine.wire import Wire

FEATURES = 64
LIMIT = 300.0  # seconds


class Payload:
    """What one rank brings to each collective: so many bytes in all, whatever the number of ranks."""

    def __init__(self, comm: HostComm, total: int) -> None:
        self.comm, rank, size = comm, comm.rank, comm.size
        self.sums = np.arange(total // 8, dtype=np.int64) + rank
        self.share = np.full(total // size // 8, rank, np.int64)
        self.parts = [np.full(total // size // size // 8, rank * size + peer, np.int64) for peer in range(size)]
        n_rows = total // (4 * FEATURES)
        # Fewer rows a block than a run would have: every rank is to own some.
        self.partition = Partition(n_rows, max(1, n_rows // 64), size)
        x = np.arange(n_rows * FEATURES, dtype=np.float32).reshape(n_rows, FEATURES)
        self.rows = Rows(
            open_dataset(x), *self.partition.rows_of(rank), dtype=np.dtype(np.float32), kernels=kernels.load("cpu"),
            block_rows=self.partition.block_rows,
        )  # fmt: skip
        self.rows.load()
        comm.spans = list(self.partition.spans(self.partition.block_rows))

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
    listener, wires = listen("127.0.0.1"), [Wire(b"key", Abort(), LIMIT) for _ in range(size)]
    address = listener.getsockname()
    with ThreadPoolExecutor(size) as pool:
        opening = [
            pool.submit(Session.open, rank, size, wires[rank], address, None if rank else listener)
            for rank in range(size)
        ]
        sessions = [each.result() for each in opening]
        partition = Partition.plan(size, size)
        yield [each.begin(partition, wires[rank].abort, LIMIT) for rank, each in enumerate(sessions)], wires, pool
    for each in sessions:
        each.close()


def on_all(pool: ThreadPoolExecutor, calls: list[Callable[[], Any]]) -> None:
    """Call one function a rank, at once."""
    for future in [pool.submit(call) for call in calls]:
        future.result()


def count(record: bench.Record, size: int, total: int) -> None:
    with threads(size) as (comms, wires, pool):
        payloads = list(pool.map(lambda comm: Payload(comm, total), comms))
        for name in COLLECTIVES:
            calls = [getattr(payload, name) for payload in payloads]
            on_all(pool, calls)  # what is opened once does not count
            before = [(wire.sent, wire.received) for wire in wires]
            on_all(pool, calls)
            sent = [wire.sent - first for wire, (first, _) in zip(wires, before, strict=True)]
            received = [wire.received - first for wire, (_, first) in zip(wires, before, strict=True)]
            worst = max(*sent, *received)
            record.add(
                f"{size} ranks, {name}", payload=total, most_sent=max(sent), most_sent_by=sent.index(max(sent)),
                most_received=max(received), most_received_by=received.index(max(received)),
                mean_sent=statistics.mean(sent), per_payload=worst / total,
            )  # fmt: skip


def main() -> None:
    parser = bench.parser(__doc__)
    parser.add_argument("--ranks", default="4,16,64")
    parser.add_argument("--mib", type=float, default=8.0, help="payload of each collective")
    options = parser.parse_args()
    record = bench.Record(__doc__, options.out)
    for size in map(int, options.ranks.split(",")):
        count(record, size, int(options.mib * (1 << 20)))


if __name__ == "__main__":
    main()
