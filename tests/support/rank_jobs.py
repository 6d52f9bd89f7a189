"""Functions that tests run on ranks; workers import this module by name."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from pathlib import Path
from unittest import mock

import numpy as np
import psutil

from mgclust.algorithms.density_peaks.passes.all_pairs import AllPairs
from mgclust.base.errors import InputError
from mgclust.engine.checkpoint import Ragged
from mgclust.engine.memory import Estimate
from mgclust.engine.transport.topology import neighbors
from mgclust.kernels.pairs.metrics import METRICS
from mgclust.kernels.toolkit.threads import thread_count


def density_from_each_pair_once(context, dc):
    """Gaussian densities where `symmetric_sum_is_faster` says so, and what the pass says of its exactness."""
    exactness = {}
    passes = AllPairs(context, METRICS["euclidean"], exactness)
    with mock.patch.object(context.kernels.pairs, "symmetric_sum_is_faster", return_value=True):
        rho, neighbors = passes.gaussian_rho("l2-dot", dc)
    assert neighbors is None
    return context.kernels.memory.to_host(rho), exactness


def collectives(context):
    comm = context.comm
    rank = comm.rank
    sums = comm.all_reduce(np.arange(5) * (rank + 1))
    highest = comm.all_reduce(np.array([float(rank), -float(rank)]), "max")
    lowest = comm.all_reduce(np.array([rank], np.int32), "min")
    gathered = comm.all_gather(np.full((rank, 2), rank, np.float32))
    root = comm.size - 1
    sent = comm.broadcast(np.array([[1.5, root]]) if rank == root else None, root)
    agreed = comm.agree({"k": rank, "text": "æ"})
    empty = comm.all_gather(np.empty((0, 3)))
    return sums, highest, lowest, gathered, sent, agreed, empty.shape


def device_collectives(context):
    """`collectives` on arrays of the rank's device; on GPUs these go through NCCL."""
    comm, xp, host = context.comm, context.kernels.xp, context.kernels.memory.to_host
    rank, root = comm.rank, comm.size - 1
    sums = comm.all_reduce(xp.arange(200_000) * (rank + 1))
    highest = comm.all_reduce(xp.asarray([rank, -rank], dtype="float32"), "max")
    gathered = comm.all_gather(xp.full((rank, 2), rank, dtype="float32"))
    sent = comm.broadcast(xp.asarray([[1.5, root]]) if rank == root else None, root)
    # Rank r sends r * p elements to rank p; all have the value 10 r + p. Their addresses are not multiples of 16.
    got = comm.exchange([xp.full(rank * peer + 1, 10 * rank + peer, dtype="int64")[1:] for peer in range(comm.size)])
    bounds = [peer * (peer + 1) // 2 for peer in range(comm.size + 1)]
    shares = xp.full(bounds[-1], -1, dtype="int32")
    shares[bounds[rank] : bounds[rank + 1]] = rank
    comm.queue_gather(shares, bounds)
    comm.synchronize()
    every = [comm.all_gather(array) for array in (got, shares)]
    return host(sums), host(highest), host(gathered), host(sent), *map(host, every)


def streamed(context):
    """What every rank saw of the stream, as one array: sums and numbers of blocks."""
    seen = []
    for block in context.comm.stream(context.rows):
        seen.append(
            (
                block.start,
                block.stop,
                float(block.x.sum(dtype=np.float64)),
                float(block.x[0, 0]),
                float(block.x[-1, -1]),
            )
        )
    own = np.array(seen)[None]
    return context.comm.all_gather(own)


def gram(context, centre=True):
    """Row sums over all pairs, in global block order: its bits tell whether the order was kept."""
    mean = context.sum_over_blocks(lambda x: x.sum(axis=1, dtype=np.float64)) / context.dataset_shape[0]
    if centre:
        context.rows.apply(lambda x: (x - mean).astype(x.dtype))
    out = np.zeros(len(context.rows), np.float32)
    with context.stage("pairs"):
        for chunk, block in context.all_pairs():
            if not len(chunk.x):
                continue
            first = chunk.start - context.rows.start
            for a in range(0, len(chunk.x), 500):
                piece = chunk.x[a : a + 500]
                # einsum, not BLAS: its bits do not depend on how many rows are computed together.
                tile = np.exp(-(np.einsum("ik,jk->ij", piece, block.x) ** 2))
                for j in range(0, tile.shape[1], 256):
                    # Tile by tile, so that merged blocks add up the same.
                    out[first + a : first + a + len(piece)] += tile[:, j : j + 256].sum(axis=1)
    return context.comm.all_gather(out), mean, context.rows.resident


def where(context):
    return context.comm.all_gather(np.array([[os.getpid(), thread_count()]]))


def row_ranges(context):
    x = context.rows.read(context.rows.start, context.rows.stop)
    return context.comm.all_gather(x), context.comm.all_gather(np.array([[context.rows.start, context.rows.stop]]))


def fail_on(context, rank, kind="input"):
    if context.rank == rank:
        if kind == "input":
            raise InputError("k=3 should be < 2; ask for less.")
        raise ZeroDivisionError("a mistake")
    context.comm.barrier()


def disagree(context):
    if context.rank == 0:
        return context.comm.all_reduce(np.zeros(1, np.int64))
    return context.comm.all_gather(np.zeros(1, np.int64))


def hang(context, rank, folder):
    """One rank keeps the others waiting until all have given up."""
    here, end = Path(folder), time.monotonic() + 60
    if context.rank == rank:
        while len(list(here.glob("left-*"))) < context.comm.size - 1 and time.monotonic() < end:
            time.sleep(0.02)
    try:
        context.comm.barrier()
    finally:
        (here / f"left-{context.rank}").touch()


def float_sum(context):
    context.comm.all_reduce(np.zeros(2))


def early(context):
    """Calls a collective inside a stream."""
    for _ in context.comm.stream(context.rows):
        context.comm.barrier()


def write_pid(folder, rank):
    """Write this process's number into a file that is there once it is whole."""
    beside = folder / f".pid-{rank}"
    beside.write_text(str(os.getpid()))
    beside.rename(folder / f"pid-{rank}")


def slow(context, folder, tiles=600, seconds=0.05):
    """Runs for a while; writes each rank's pid, and whether it came to its end."""
    here = Path(folder)
    write_pid(here, context.rank)
    try:
        with context.stage("slow"):
            for i in range(tiles):
                time.sleep(seconds)
                context.comm.all_reduce(np.array([i]))
                context.progress(i / tiles)
        (here / f"done-{context.rank}").touch()
    finally:
        (here / f"left-{context.rank}").touch()


def die(context, rank):
    if context.rank == rank:
        os.kill(os.getpid(), signal.SIGKILL)
    for _ in range(20_000):
        time.sleep(0.01)
        context.comm.all_reduce(np.zeros(1000, np.int64))


def needs_memory(shape, itemsize, size, room):
    return Estimate({"kept": shape[0] << 40})


def needs_little(shape, itemsize, size, room):
    assert room > 0
    return Estimate({"kept": shape[0] * shape[1] * itemsize // size})


class Deadly:
    """Rows that kill the process that reads the last of them."""

    kind = "file"
    dask_array = None

    def __init__(self, shape):
        self.shape = shape
        self.dtype = np.dtype(np.float32)

    def read(self, start, stop):
        if stop == self.shape[0]:
            os.kill(os.getpid(), signal.SIGKILL)
        return np.zeros((stop - start, self.shape[1]), np.float32)


def kept():
    from mgclust.engine.dask import tasks

    return len(tasks._RUNS)


def report_everything(seconds=0.0):
    """Progress of this process from now on: every bit of it."""
    from mgclust.engine import context

    context.EMIT_EVERY = seconds


def wait_for_the_disk(wait=True):
    """In this process, a question whether a checkpoint is due waits for the one that is being written."""
    from mgclust.engine.checkpoint_files import Writer

    if wait:
        Writer.done, Writer.asked = lambda self: bool(self.files()), Writer.done
    else:
        Writer.done = Writer.asked


def lengths(ids):
    """Elements of rows: some have none, one has many."""
    return np.where(ids == 4000, 100_000, ids % 5)


def save_rows(context, numbers, broken=None):
    """Save checkpoints whose arrays tell which row and which number they belong to; one rank may be unable to write."""
    checkpoint, rows = context.checkpoint, context.rows
    for number in numbers:
        if broken == (context.rank, number):
            checkpoint._write = lambda writing, *_: setattr(writing, "problem", "No space left on device")
        ids = np.arange(rows.start, rows.stop)
        counts = lengths(ids)
        checkpoint.save(
            {"number": number},
            {"alike": np.arange(number)},
            {"ids": ids, "wide": ids[:, None] + [0, number], "ragged": Ragged(np.repeat(ids, counts), counts)},
        )
        vars(checkpoint).pop("_write", None)


def load_rows(context):
    """What every rank finds of its rows, all behind each other; None without a checkpoint."""
    saved = context.checkpoint.load()
    if saved is None:
        return None
    ids, wide = np.full(len(context.rows), -1), np.full((len(context.rows), 2), -1)
    for place, rows in saved.rows("ids"):
        ids[place] = rows
    for place, rows in saved.rows("wide"):
        wide[place] = rows
    np.testing.assert_array_equal(np.concatenate([*saved.blocks("ragged")]), np.repeat(ids, lengths(ids)))
    gathered = context.comm.all_gather(ids), context.comm.all_gather(wide)
    numbers = context.comm.all_gather(np.array([saved.control["number"], len(saved.arrays["alike"])]))
    return *gathered, numbers


def same_answers(context):
    """What `due` said to each rank, at calls that come at each rank's own pace."""
    answers = []
    for call in range(3000):
        time.sleep(0.0002 if call % 7 == context.rank else 0.0)
        answers.append(context.checkpoint.due())
        if answers[-1]:
            context.checkpoint.save({"call": call})
    time.sleep(0.3)
    answers[-1] = context.checkpoint.due(seldom=True)
    return context.comm.all_gather(np.array([answers]))


def until_told(context, folder):
    """Runs until there is a file ``end``; the number of ranks, when it began and when it ended."""
    here, began = Path(folder), time.time()
    write_pid(here, context.rank)
    for _ in range(3000):
        if context.comm.agree((here / "end").exists()):
            return context.comm.size, began, time.time()
        time.sleep(0.05)
    raise TimeoutError("the signal did not come")


def count_up(context, folder, steps, pause=0.0):
    """A recurrence over the rows and one over their sums, which a checkpoint holds; from which step it resumed."""
    here, saved, rows = Path(folder), context.checkpoint.load(), np.arange(context.rows.start, context.rows.stop)
    total, done = np.zeros(2, np.int64), 0
    if saved is not None:
        total, done = saved.arrays["total"], saved.control["done"]
        for place, part in saved.rows("rows"):
            rows[place] = part
    began = done
    write_pid(here, context.rank)
    (here / f"from-{done}-{context.rank}").touch()
    while done < steps:
        time.sleep(pause)
        done += 1
        rows = (3 * rows + done) % 1009
        total[:] = total[1], (total @ [7, 5] + context.comm.all_reduce(rows.sum(keepdims=True))[0]) % 1013
        context.progress(done / steps)
        if context.checkpoint.due():
            context.checkpoint.save({"done": done}, {"total": total}, {"rows": rows})
    context.deliver(rows=rows)
    return total.tolist(), began


def die_at(when):
    """End this process once a rank of it begins a stage, or may save for the so-and-so-many-th time; or never."""
    from mgclust.engine.checkpoint import Checkpointer
    from mgclust.engine.context import Context

    asked = [0]

    def stage(self, name):
        if name == when:
            os.kill(os.getpid(), signal.SIGKILL)
        return stage.before(self, name)

    def due(self, **how):
        asked[0] += 1
        if asked[0] == when:
            time.sleep(0.5)  # for which the caller fetches what was saved
            os.kill(os.getpid(), signal.SIGKILL)
        return due.before(self, **how)

    for kind, function in ((Context, stage), (Checkpointer, due)):
        known = getattr(kind, function.__name__)
        function.before = getattr(known, "before", known)
        setattr(kind, function.__name__, function.before if when is None else function)


def connections(context):
    """Of all ranks: both ends of what connects each to the others."""
    links = sorted(getattr(context.comm, "_links", {}).items())
    ends = [link._sock.getsockname() + link._sock.getpeername() for _, link in links]
    return [context.comm.agree(ends, rank) for rank in range(context.size)]


def seats():
    """How many sessions this process keeps, and their sockets and those that listen: all that are not Dask's."""
    from mgclust.engine.dask import tasks

    links = [link for seat in tasks._SEATS.values() if seat.session for link in seat.session._links.values()]
    listening = [each for each in psutil.Process().net_connections("inet") if each.status == psutil.CONN_LISTEN]
    return len(tasks._SEATS), len(links), len(listening)


def whole_sum(context):
    return float(context.sum_over_blocks(lambda x: x.sum(axis=(1, 2), dtype=np.float64)))


def deliver_ranks(context):
    """An array of the numbers of the ranks, a row for each row of the data."""
    context.deliver(ranks=np.full(len(context.rows), context.rank))
    return "of rank 0"


def parts_left() -> int:
    """How many runs of a worker have left arrays that Dask does not know of."""
    from mgclust.engine.dask import tasks

    return len(tasks._LEFT)


def ownerless_after(seconds: float) -> None:
    """Have a worker keep what no client has asked for so long."""
    from mgclust.engine.dask import tasks

    tasks.OWNERLESS_SECONDS = seconds


def forget_parts() -> None:
    """Lose what a run has left on a worker, as one that restarts does."""
    from mgclust.engine.dask import tasks

    tasks._LEFT.clear()


def counted(context):
    """Bytes that each rank has sent and received in a sum of 1,000 numbers."""
    wire = context.comm.wire
    before = np.array([wire.sent, wire.received])
    context.comm.all_reduce(np.zeros(1000, np.int64))
    passed = np.array([wire.sent, wire.received]) - before
    return context.comm.all_gather(passed[None])


def many_collectives(context):
    """What every rank has of some of each, of arrays that differ from rank to rank."""
    comm, rank, size = context.comm, context.rank, context.size
    rng = np.random.default_rng(rank)
    zeros = np.where(rng.random(1000) < 0.5, 0.0, -0.0)
    got = [comm.all_reduce(rng.integers(-9, 9, (7, 11, 3)))]
    got += [comm.all_reduce(zeros, op) for op in ("max", "min")]
    got.append(comm.all_reduce(rng.random(2).astype(np.float32)[::-1], "max"))
    got += [comm.all_gather(rng.random((length, 3))) for length in (rank, 5 * (rank == size - 1), 5 * (rank == 0), 2)]
    got += [comm.exchange([rng.random((length * peer * rank % 4, 2)) for peer in range(size)]) for length in range(3)]
    got += [comm.broadcast(rng.random((3, 3)) if rank == root else None, root) for root in range(size)]
    shares = np.full(2 * size, -1.0)
    shares[2 * rank : 2 * rank + 2] = rng.random(2)
    comm.queue_gather(shares, [2 * peer for peer in range(size + 1)])
    got.append(shares)
    got += [block.x.copy() for block in comm.stream(context.rows)]
    context.comm.barrier()
    return [comm.agree(got, each) for each in range(size)]


def reductions(context, dtype, op, lengths):
    """Arrays of so many numbers, of which every rank has others, reduced; from every rank, what all have."""
    own = [numbers_of(context.rank, dtype, length) for length in lengths]
    found = [context.comm.all_reduce(array, op) for array in own]
    for array in own:
        context.comm.queue_reduce(array, op)
    return [context.comm.agree((found, own), rank) for rank in range(context.size)]


def gathers(context, lengths):
    """Arrays of so many rows a rank, joined; arrays of every rank on all; a value of every rank."""
    comm, rank = context.comm, context.rank
    joined = [comm.all_gather(numbers_of(rank, "float32", length + rank % 3)[:, None]) for length in lengths]
    shared = []
    for length in lengths:
        bounds = [0, *np.cumsum([length + each % 3 for each in range(comm.size)])]
        shared.append(np.zeros(bounds[-1], np.float32))
        shared[-1][bounds[rank] : bounds[rank + 1]] = numbers_of(rank, "float32", length + rank % 3)
        comm.queue_gather(shared[-1], bounds)
    sent = [
        comm.broadcast(numbers_of(root, "int64", length) if rank == root else None, root)
        for root in range(comm.size)
        for length in lengths
    ]
    return [comm.agree((joined, shared, sent), each) for each in range(comm.size)]


def numbers_of(rank, dtype, length):
    """The numbers of a rank: whole ones, and in floats zeros of both signs."""
    rng = np.random.default_rng((rank, length))
    whole = rng.integers(0, 60, length) - (30 if np.dtype(dtype).kind != "u" else 0)
    return np.where(rng.random(length) < 0.3, -0.0, whole).astype(dtype)


def messages_of_each(context, length):
    """Messages that each rank sends and receives in a barrier, a broadcast of the last rank and two reductions."""
    comm = context.comm
    comm.all_reduce(np.zeros(length, np.int64))  # connects
    calls = [
        comm.barrier,
        lambda: comm.broadcast(np.zeros(9) if comm.rank == comm.size - 1 else None, comm.size - 1),
        lambda: comm.all_reduce(np.zeros(9, np.int64)),
        lambda: comm.all_reduce(np.zeros(length, np.int64)),
    ]
    seen = []
    for call in calls:
        before = np.array([comm.wire.messages_sent, comm.wire.messages_received])
        call()
        seen.append(np.array([comm.wire.messages_sent, comm.wire.messages_received]) - before)
    return comm.all_gather(np.array(seen)[None])


LARGE_BYTES = 1 << 23


def bytes_of_large(context):
    """Bytes that ranks send and receive in collectives of so many bytes in all: each a row of both for all ranks."""
    comm, rank, size = context.comm, context.rank, context.size
    comm.exchange([np.zeros(1)] * size)  # connects them
    numbers, seen = np.zeros(LARGE_BYTES // 8, np.int64), []
    calls = [
        lambda: comm.all_reduce(numbers),
        lambda: comm.all_gather(numbers[: len(numbers) // size]),
        lambda: comm.all_gather(numbers if rank == 3 else numbers[:0]),
        lambda: comm.exchange([numbers[: len(numbers) // size**2]] * size),
        lambda: comm.broadcast(numbers if rank == 5 else None, 5),
    ]
    for call in calls:
        before = np.array([comm.wire.sent, comm.wire.received])
        call()
        passed = np.array([comm.wire.sent, comm.wire.received]) - before
        seen.append(comm.all_gather(passed[None]).T.tolist())
    return seen


def links_before_and_after(context):
    """Both ends of all connections, after one large array and after others."""
    seen = []
    for _ in range(2):
        context.comm.all_gather(np.zeros(9))
        links = context.comm._links
        shapes = ("tree", "halves", "ring")  # a run begins with a reduction
        assert links.keys() == set().union(*(neighbors(each, context.rank, context.size) for each in shapes))
        seen.append(sorted(link._sock.getsockname() + link._sock.getpeername() for link in links.values()))
    assert seen[0] == seen[1]
    return seen


def leave_stream(context, rank, after):
    """One rank fails after so many blocks."""
    for number, _ in enumerate(context.comm.stream(context.rows)):
        if context.rank == rank and number == after:
            raise InputError("k=3 should be < 2; ask for less.")
    context.comm.barrier()
    if context.rank == rank:
        raise InputError("k=3 should be < 2; ask for less.")
    context.comm.barrier()


def fit_in_a_task(rows, client, beside):
    """Number of ranks and labels of a fit in a task of Dask, whose worker's process has a client of its own."""
    import distributed

    from mgclust import DensityPeaks, submit

    own = distributed.get_client()
    chosen = {"auto": "auto", "own": own, "seceded": own, "address": own.scheduler.address}[client]
    model = DensityPeaks(3, client=chosen, device="cpu", n_workers=None if client == "auto" else 4)
    with distributed.worker_client() if client == "seceded" else contextlib.nullcontext():
        model = submit(model, rows).result() if beside else model.fit(rows)
    return model.result_.hardware["ranks"], model.labels_
