"""Messages, bytes, processor time and set-up of 8 to 192 CPU ranks, and messages and steps of 512 and 1,024.

measured    each rank is a process of this machine. Of each collective: messages that rank 0, and the rank with most,
            sends and receives; messages of all; bytes of the rank with most; processor time a rank, mean and most.
            Ranks take the ways of ranks on several hosts: the limit of one host is set to the other one
set-up      seconds from the first rank's call until all have the links of a shape, and links of the rank with most
simulated   the same counts from the shapes alone, which have to equal the measured ones, and beyond them 512 and 1,024
            ranks; the critical path, of which each message costs processor time on both ends, the latency of the
            network and its bytes over the bandwidth; and seconds of iterations, from measured ones of one rank of two
            cores. Latency, bandwidth and the processor time of a message are assumed

    python -m benchmarks.engine.many_ranks --out benchmarks/results/engine/many_ranks_cpu.json
"""

from __future__ import annotations

import multiprocessing
import time
from collections import defaultdict, deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

from benchmarks.support import record as bench
from mgclust.engine.abort import Abort
from mgclust.engine.partition import Partition
from mgclust.engine.transport import host_comm
from mgclust.engine.transport.handshake import listen
from mgclust.engine.transport.session import Session
from mgclust.engine.transport.topology import FAN, Halves, Tree
from mgclust.engine.transport.wire import CHUNK, Wire

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
SHAPES: dict[str, Callable[[Any], Any]] = {
    "halves": affinity_propagation,
    "ring": gather_large,
    "all": lambda comm: comm.exchange([np.zeros(1)] * comm.size),
}
LATENCY = 30e-6  # seconds that a message is on its way, assumed
BANDWIDTH = 1.25e9  # bytes a second of a link in each direction, assumed: 10 Gbit/s
PROCESSOR = 45e-6  # seconds of a message on each end, assumed: 29 to 111 us were measured on a loaded machine


class Act(NamedTuple):
    """What a rank does next: send, receive, or receive and pass on."""

    source: int | None
    to: int | None
    nbytes: int


Acts = list[Act]


def tree_acts(rank: int, size: int, up: Callable[[int], int], down: int) -> Acts:
    """Up the tree, `up` bytes of so many ranks, and down again."""
    tree, parent = Tree(rank, size), Tree(rank, size).parent
    acts = [Act(child.root, None, 0) for child in tree.children]
    if parent is not None:
        stop = max([child.stop for child in tree.children], default=rank + 1)
        acts += [Act(None, parent, up(stop - rank)), Act(parent, None, 0)]
    return acts + [Act(None, child.root, down) for child in tree.children]


def flood_acts(rank: int, size: int, root: int, nbytes: int) -> Acts:
    tree = Tree(rank, size)
    source = None if rank == root else tree.toward(root)
    acts = [] if source is None else [Act(source, None, 0)]
    return acts + [Act(None, peer, nbytes) for peer in tree.neighbors if peer != source]


def halves_acts(rank: int, size: int, nbytes: int) -> Acts:
    halves = Halves(rank, size)
    mate = [] if halves.mate is None else [[Act(None, halves.mate, nbytes // 2), Act(halves.mate, None, 0)]]
    steps = []
    for step in range(halves.steps):
        part = nbytes // halves.lanes >> step + 1
        partners = [halves.partner(step, lane) for lane in halves.own]
        steps.append([Act(None, peer, part) for peer in partners] + [Act(peer, None, 0) for peer in partners])
    return [act for acts in (*mate, *steps, *reversed(steps), *mate) for act in acts]


def reduce_acts(rank: int, size: int, nbytes: int) -> Acts:
    if nbytes * min(size - 1, FAN) > host_comm.LARGE:
        return halves_acts(rank, size, nbytes)
    return tree_acts(rank, size, lambda _: nbytes, nbytes)


def ring_acts(rank: int, size: int, owners: list[int], nbytes: int) -> Acts:
    """Arrays of so many bytes around the ring, of these owners."""
    after, before = (rank + 1) % size, (rank - 1) % size
    acts = []
    for owner in owners:
        acts.append(Act(None if owner == rank else before, None if after == owner else after, nbytes))
    return acts


def acts_of(name: str, rank: int, size: int) -> Acts:
    """What a rank does in one of `COLLECTIVES`."""
    c, d = CLUSTERS
    if name == "reduce_one":
        return reduce_acts(rank, size, 8)
    if name == "affinity_propagation":
        return reduce_acts(rank, size, 8 * ROWS)
    if name == "fuzzy_c_means":
        return [act for nbytes in (8 * (c * d + c), 8 * (c * d + c), 16) for act in reduce_acts(rank, size, nbytes)]
    if name == "gather_small" and 128 * size * min(size - 1, FAN) <= host_comm.LARGE:
        return tree_acts(rank, size, lambda ranks: 128 * ranks, 128 * size)
    if name == "broadcast_small":
        return flood_acts(rank, size, size - 1, 1024)
    each = 128 if name == "gather_small" else ROWS // size * 8
    lengths = tree_acts(rank, size, lambda ranks: 8 * ranks, 8 * size)
    return [*tree_acts(rank, size, lambda _: 0, 0), *lengths, *ring_acts(rank, size, list(range(size)), each)]


def simulate(every: list[Acts]) -> dict[str, Any]:
    """Messages, and seconds until the last rank has done all it does."""
    clock, place = [0.0] * len(every), [0] * len(every)
    on_the_way: dict[tuple[int, int], deque[tuple[float, float]]] = defaultdict(deque)  # first and last byte
    ready = list(range(len(every)))
    while ready:
        rank = ready.pop()
        while place[rank] < len(every[rank]):
            source, to, nbytes = every[rank][place[rank]]
            first = last = clock[rank]
            if source is not None:
                arriving = on_the_way[source, rank]
                if not arriving:
                    break
                begins, ends = arriving.popleft()
                first, last = max(clock[rank], begins) + PROCESSOR, max(clock[rank], ends) + PROCESSOR
            if to is not None:
                first += PROCESSOR
                whole = max(last, first + nbytes / BANDWIDTH)
                chunk = min(nbytes, CHUNK) / BANDWIDTH
                on_the_way[rank, to].append((first + chunk + LATENCY, whole + LATENCY))
                ready.append(to)
                last = whole
            clock[rank] = last
            place[rank] += 1
    assert all(done == len(acts) for done, acts in zip(place, every, strict=True))
    sent = [sum(act.to is not None for act in acts) for acts in every]
    received = [sum(act.source is not None for act in acts) for acts in every]
    both = [a + b for a, b in zip(sent, received, strict=True)]
    most = max(sum(act.nbytes for act in acts if act.to is not None) for acts in every)
    return {
        "messages_of_rank_0": both[0], "sent_by_rank_0": sent[0], "most_messages": max(both),
        "messages_sent_by_all": sum(sent), "most_payload_sent": most, "seconds": max(clock),
    }  # fmt: skip


class Method(NamedTuple):
    """An iteration, or a pass, whose seconds on one rank of two cores are measured."""

    rows: int
    seconds: float
    record: str
    acts: Callable[[int, int], Acts]  # of a rank


def pass_of(rows: int, features: int) -> Callable[[int, int], Acts]:
    """All rows on their way past all ranks."""

    def acts(rank: int, size: int) -> Acts:
        ranges = list(Partition.plan(rows, size).ranges(1))
        return ring_acts(rank, size, [each.owner for each in ranges], 4 * features * ranges[0].stop)

    return acts


def fuzzy_iteration(c: int, d: int) -> Callable[[int, int], Acts]:
    def acts(rank: int, size: int) -> Acts:
        return [act for n in (8 * c * (d + 1), 8 * c * (d + 1), 16) for act in reduce_acts(rank, size, n)]

    return acts


def affinity_iteration(rows: int) -> Callable[[int, int], Acts]:
    def acts(rank: int, size: int) -> Acts:
        return reduce_acts(rank, size, 8 * rows)

    return acts


AFFINITY, FUZZY, DENSITY = "affinity_propagation/cpu.json", "fuzzy_c_means/cpu.json", "density_peaks/cpu.json"
METHODS = {
    "affinity propagation, 40,000 rows": Method(40_000, 25.5e-3 * 4**2, AFFINITY, affinity_iteration(40_000)),
    "affinity propagation, 200,000 rows": Method(200_000, 25.5e-3 * 20**2, AFFINITY, affinity_iteration(200_000)),
    "fuzzy c-means, 1,000,000 x 16, 8 clusters": Method(1_000_000, 6.8e-3, FUZZY, fuzzy_iteration(8, 16)),
    "fuzzy c-means, 100,000,000 x 16, 8 clusters": Method(100_000_000, 0.68, FUZZY, fuzzy_iteration(8, 16)),
    "density peaks, 200,000 x 64, a pass": Method(200_000, 0.27 * 10**2, DENSITY, pass_of(200_000, 64)),
    "density peaks, 1,000,000 x 64, a pass": Method(1_000_000, 0.27 * 50**2, DENSITY, pass_of(1_000_000, 64)),
}


def project(record: bench.Record, name: str) -> None:
    """Seconds of an iteration on more and more ranks: the share of the rank with most blocks, and the messages."""
    method, found = METHODS[name], {}
    blocks = Partition.plan(method.rows, 1).blocks
    for size in (1, 8, 16, 32, 64, 128, 256, 512, 1024):
        messages = simulate([method.acts(rank, size) for rank in range(size)])["seconds"] if size > 1 else 0.0
        found[size] = method.seconds * -(-blocks // size) / blocks + messages
    best = next((size for size, after in pairwise(found) if found[after] > 0.8 * found[size]), 1024)
    record.add(name, blocks=blocks, seconds_of_one=method.seconds, of=method.record, seconds=found, gains_until=best)


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
        same = [
            [sum(act.to is not None for act in acts), sum(act.source is not None for act in acts)]
            for acts in (acts_of(name, rank, size) for rank in range(size))
        ]
        assert (moved[:, :2] == same).all(), f"{name} on {size} ranks: the simulation has other messages"
        record.add(
            f"{size} ranks, {name}", ranks=size, messages_of_rank_0=messages[0], sent_by_rank_0=moved[0, 0],
            most_messages=messages.max(), messages_sent_by_all=moved[:, 0].sum(), most_bytes=moved[:, 2:].max(),
            cpu_ms_a_rank=1e3 * np.mean(cpu), most_cpu_ms=1e3 * max(cpu),
        )  # fmt: skip


def main() -> None:
    parser = bench.parser(__doc__)
    parser.add_argument("--ranks", default="8,16,32,64,128,192")
    parser.add_argument("--calls", type=int, default=20)
    parser.add_argument("--simulate", action="store_true", help="measure nothing")
    options = parser.parse_args()
    record = bench.Record(__doc__, options.out)
    record.note("assumed", {"latency": LATENCY, "bandwidth": BANDWIDTH, "processor": PROCESSOR})
    for size in map(int, options.ranks.split(",")) if not options.simulate else ():
        measure(record, size, options.calls)
    for size in (8, 64, 192, 512, 1024):
        for call in COLLECTIVES:
            name = call.__name__
            found = simulate([acts_of(name, rank, size) for rank in range(size)])
            record.add(f"simulated: {size} ranks, {name}", **found)
    for name in METHODS:
        project(record, name)


if __name__ == "__main__":
    main()
