"""Collectives of ranks on CPUs, over the sockets of `mgclust.engine.transport.wire`."""

from __future__ import annotations

import contextlib
import contextvars
import json
import math
import pickle
import queue
import threading
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import numpy as np

from mgclust.engine.partition import Partition, RowRange
from mgclust.engine.rows import Block, Rows
from mgclust.engine.transport.comm import REDUCE, check_reducible
from mgclust.engine.transport.handshake import listen, meet
from mgclust.engine.transport.topology import FAN, Halves, Shape, Tree, neighbors
from mgclust.engine.transport.wire import Link, PeerLost, SessionLost, Wire, hung_up, in_turn, relay, together
from mgclust.outside.json_text import parse_json

__all__ = ["HostComm", "Peers"]

Array = Any
# Largest number of bytes that a collective of the tree sends to one rank or receives from it; the second limit applies
# if all ranks share the cores of one host. benchmarks/engine/collectives.py measures collectives on both sides of them.
LARGE = 1 << 18
LARGE_ON_ONE_HOST = 1 << 22
NOTHING = np.empty(0, np.uint8)


@dataclass
class Peers:
    """Links of a rank to others, which serve one run after the other."""

    links: dict[int, Link]  # links of the tree, and of other shapes that a run has needed
    hosts: tuple[str, ...] = ()  # addresses to listen at, beginning with the address that others know; (): detect
    shapes: list[Shape] = field(default_factory=lambda: ["tree"])  # shapes that are linked, the same on all ranks
    one_host: bool = False  # whether all ranks have the same address; known after `meet`


class HostComm:
    """Communication of CPU ranks: small arrays go up a tree to rank 0 and down again, large ones from rank to rank.

    ::

        small arrays                 tree    a rank combines or joins the arrays of its four children, and passes it on
        gathers, broadcast, stream   ring    each rank passes an array on to the next while it arrives
        reductions                   halves  with log2 N partners, ranks exchange ever smaller halves, then the results
        exchange                     direct  each rank sends to each other rank

    So no rank sends much more than its arrays, or receives much more than its results, and a reduction takes a few
    times log2 N messages. Links of a shape are made when the shape is first needed. If only some ranks know the length
    of an array, messages of the tree announce which shape is used. Exchanges send no messages in the tree, because
    their ranks would wait for each other there.

    Parameters
    ----------
    rank, size : int
        Number of this rank, and number of ranks.
    peers : Peers
        Links to other ranks, which stay after the run.
    wire : Wire
        State that the links share.
    partition : Partition
        Which rank owns which rows.

    Attributes
    ----------
    wire : Wire
        The given wire.
    ranges : list of RowRange
        Ranges of rows that `stream` yields; known after `meet`.
    """

    def __init__(self, rank: int, size: int, peers: Peers, wire: Wire, partition: Partition) -> None:
        self.rank = rank
        self.size = size
        self.wire = wire
        self.ranges: list[RowRange] = []
        self._peers = peers
        self._links = peers.links
        self._tree = Tree(rank, size)
        self._abort = wire.abort
        wire.watch = self.check_peers
        self._partition = partition
        self._calls = 0
        self._streaming = False

    def meet(self, run: str, range_rows: int) -> bool:
        """Wait until all ranks have loaded their rows, however long that takes; return False if a rank rejects the run.

        Parameters
        ----------
        run : str
            Name of the run; ranks in different runs raise an error.
        range_rows : int
            Largest number of rows of a block that fits on this rank; the minimum of all ranks is used. 0: this rank
            rejects the run.

        Raises
        ------
        SessionLost
            A connection was closed.
        """
        try:
            with self._unlimited():
                own = np.array([range_rows, all(link.local for link in self._links.values())], np.int64)
                least, one_host = self._reduce(f"the start of run {run}", own, "min").tolist()
            self._peers.one_host = bool(one_host)
        except PeerLost as error:
            raise SessionLost(str(error)) from error
        self.ranges = list(self._partition.ranges(least)) if least else []
        return least > 0

    @contextlib.contextmanager
    def _unlimited(self) -> Iterator[None]:
        """Remove the deadline of waits for other ranks in the ``with`` block."""
        limit, self.wire.timeout = self.wire.timeout, math.inf
        try:
            yield
        finally:
            self.wire.timeout = limit

    def _is_large(self, nbytes: int) -> bool:
        """Return whether an array is too large for ranks of the tree, which send or receive it once per child."""
        return nbytes * min(self.size - 1, FAN) > (LARGE_ON_ONE_HOST if self._peers.one_host else LARGE)

    def all_reduce(self, array: Array, op: str = "sum") -> Array:
        check_reducible(array.dtype, op)
        what = f"{self._enter(f'all_reduce({op})')} of {array.dtype} {array.shape}"
        if self._is_large(array.nbytes):
            return self._reduce_by_halves(what, array, op)
        return self._reduce(what, array, op)

    def queue_reduce(self, array: Array, op: str = "sum", *, out: Array | None = None) -> None:
        (array if out is None else out)[...] = self.all_reduce(array, op)

    def mark(self) -> Any:
        """See `Comm`."""

    def synchronize(self, mark: Any = None) -> None:
        """See `Comm`."""

    def all_gather(self, array: Array) -> Array:
        what = self._enter("all_gather")
        large = f"{what} of large arrays"
        joined = None if self._is_large(array.nbytes * self.size) else array
        said, joined = self._gather(what, joined, large)
        if said == what:
            return joined
        lengths = self._gather(f"lengths of {what}", np.array([len(array)], np.int64))[1]
        bounds = [0, *np.cumsum(lengths).tolist()]
        out = np.empty((bounds[-1], *array.shape[1:]), array.dtype)
        out[bounds[self.rank] : bounds[self.rank + 1]] = array
        self._gather_around(large, out, bounds)
        return out

    def queue_gather(self, array: Array, bounds: Sequence[int]) -> None:
        if self._is_large(array.nbytes) and array.flags.c_contiguous:
            self._gather_around(self._enter("queue_gather"), array, bounds)
        else:
            array[...] = self.all_gather(array[bounds[self.rank] : bounds[self.rank + 1]])

    def exchange(self, parts: list[Array]) -> Array:
        what = self._enter("exchange")
        self._connect("all")
        # Each rank begins with the next rank, so that not all ranks begin with the same rank.
        peers = [(self.rank + step) % self.size for step in range(1, self.size)]
        got = self._swap(what, {peer: [(parts[peer], None)] for peer in peers})
        return np.concatenate([parts[peer] if peer == self.rank else got[peer][0] for peer in range(self.size)])

    def broadcast(self, array: Array | None, root: int = 0) -> Array:
        what = self._enter(f"broadcast({root})")
        large = f"{what} of a large array"
        said, value = what, array
        if self.rank == root:
            assert array is not None
            value = array.copy()
            if self._is_large(value.nbytes):
                said = large
        said, got = self._flood(what, root, said, value if said == what else NOTHING, large)
        if said == what:
            return got
        self._connect("ring")
        return self._around(large, root, value)

    def agree(self, value: Any, root: int = 0) -> Any:
        if self.rank != root:
            return pickle.loads(self.broadcast(None, root).tobytes())
        self.broadcast(np.frombuffer(pickle.dumps(value), np.uint8), root)
        return value

    def barrier(self, *, limited: bool = True) -> None:
        with contextlib.nullcontext() if limited else self._unlimited():
            self.all_reduce(np.zeros(1, np.int64))

    def stream(self, rows: Rows) -> Iterator[Block]:
        """See `Comm`; a thread receives the next block while the caller works on the present one."""
        what = self._enter("stream")
        # The ring is used on one host as well: it is never slower there.
        in_ring = self._partition.n_rows * rows.n_features * rows.dtype.itemsize * min(self.size - 1, FAN) > LARGE
        if in_ring:
            self._connect("ring")
        self._streaming = True
        ready: queue.Queue[Block | BaseException] = queue.Queue(maxsize=1)
        gone = threading.Event()
        here = contextvars.copy_context()  # the context holds the number of cores of the rank
        way = self._around if in_ring else self._by_tree
        pump = threading.Thread(target=here.run, args=(self._pump, way, what, rows, ready, gone), daemon=True)
        pump.start()
        try:
            for _ in self.ranges:
                item = self._next(ready)
                if isinstance(item, BaseException):
                    raise item
                yield item
            self._streaming = False  # stays True if the caller stops early, because blocks of others are still arriving
        finally:
            gone.set()

    def stream_length(self) -> int:
        return len(self.ranges)

    def check_peers(self, waiting_for: Collection[int] = ()) -> None:
        """Raise PeerLost if a linked rank has gone while this rank waits for something else.

        Links that are waited for are not checked: they raise the error themselves, and may hold a last message.
        """
        gone = hung_up(link for link in self._links.values() if link.peer not in waiting_for)
        if gone is not None:
            raise PeerLost(f"rank {gone.peer} closed its connection.")

    def leave(self) -> None:
        # After these messages, everything that was sent has been read, so the next run finds no messages of this run.
        what, parent = self._enter("leave"), self._tree.parent
        self._from_children(what)
        if parent is not None:
            self._links[parent].send(what, NOTHING)
        # A rank that has left already may close its end before this rank has left.
        self.wire.watch = lambda waiting_for: None
        if parent is not None:
            self._links[parent].receive(what)
        self._to(what, NOTHING)

    def abort(self) -> None:
        for link in self._links.values():
            link.close()

    def _enter(self, name: str) -> str:
        self._abort.check()
        if self._streaming:
            raise RuntimeError(f"{name} was called before stream() had yielded its last block.")
        self._calls += 1
        return f"{name} #{self._calls}"

    def _connect(self, shape: Shape) -> None:
        """Make the missing links of a shape, once per session; all ranks call this."""
        if shape in self._peers.shapes:
            return
        there, size = [*self._peers.shapes], self.size

        def missing(rank: int) -> set[int]:
            return neighbors(shape, rank, size).difference(*(neighbors(each, rank, size) for each in there))

        if any(missing(rank) for rank in range(size)):  # all ranks get the same answer
            new = missing(self.rank)
            callers = {peer for peer in new if peer > self.rank}
            here = self._peers.hosts or tuple(link.host for link in self._links.values())[:1]
            with listen(*here) if callers else contextlib.nullcontext() as server:
                own = json.dumps([here[0], server.getsockname()[1] if server is not None else 0]) + "\n"
                lines = self._gather(f"connecting a {shape} #{self._calls}", np.frombuffer(own.encode(), np.uint8))[1]
                addresses = [tuple(parse_json(line)) for line in lines.tobytes().splitlines()]
                calls = {peer: addresses[peer] for peer in new - callers}
                self._links.update(meet(self.rank, calls, callers, server, self.wire))
        self._peers.shapes.append(shape)

    def _reduce(self, what: str, array: np.ndarray, op: str) -> np.ndarray:
        """Reduce arrays over the tree."""
        children = [self._links[child.root] for child in self._tree.children]
        parts = together(self.wire, what, *(link.receiving(what, np.empty_like(array, order="C")) for link in children))
        return self._answered(what, what, _reduced([array, *parts], op))[1]

    def _gather(self, what: str, array: np.ndarray | None, instead: str = "") -> tuple[str, np.ndarray]:
        """Join arrays of all ranks over the tree; if a rank has None, all get an empty array and the name `instead`."""
        parts = self._from_children(what, instead)
        small = array is not None and all(said == what for said, _ in parts)
        joined = np.concatenate([array, *(part for _, part in parts)]) if small else NOTHING
        return self._answered(what, what if small else instead, joined, instead)

    def _flood(self, what: str, root: int, said: str, array: Any, instead: str = "") -> tuple[str, np.ndarray]:
        """Send an array from one rank through the tree to all, under one of two names."""
        source = None if self.rank == root else self._tree.toward(root)
        if source is not None:
            said, array = self._said(what, source, instead)
        self._to(said, array, [peer for peer in self._tree.neighbors if peer != source])
        return said, array

    def _answered(self, what: str, said: str, array: np.ndarray, instead: str = "") -> tuple[str, np.ndarray]:
        """Send an array to the parent, and receive the answer of rank 0; both under one of two names."""
        if self._tree.parent is not None:
            self._links[self._tree.parent].send(said, array)
            said, array = self._said(what, self._tree.parent, instead)
        self._to(said, array)
        return said, array

    def _said(self, what: str, peer: int, instead: str = "") -> tuple[str, np.ndarray]:
        """Receive from a neighbour, under one of two names."""
        heard: tuple[str, np.ndarray] = together(self.wire, what, self._links[peer].receiving(what, instead=instead))[0]
        return heard

    def _from_children(self, what: str, instead: str = "") -> list[tuple[str, np.ndarray]]:
        children = [self._links[child.root] for child in self._tree.children]
        return together(self.wire, what, *(link.receiving(what, instead=instead) for link in children))

    def _to(self, what: str, array: np.ndarray, peers: Sequence[int] | None = None) -> None:
        """Send to neighbours concurrently; by default to the children."""
        to = [child.root for child in self._tree.children] if peers is None else peers
        together(self.wire, what, *(self._links[peer].sending(what, array) for peer in to))

    def _around(self, what: str, owner: int, array: np.ndarray | None) -> np.ndarray:
        """Send an array around the ring from its owner; the rank before the owner does not pass it on.

        The arrays have the same order on each link, so ranks that wait for each other never form a whole ring.
        """
        after, before = (self.rank + 1) % self.size, (self.rank - 1) % self.size
        if self.rank == owner:
            assert array is not None
            self._links[after].send(what, array)
            return array
        if after == owner:
            move = self._links[before].receiving(what, array)
        else:
            move = relay(self._links[before], self._links[after], what, array)
        got: np.ndarray = together(self.wire, what, move)[0]
        return got

    def _gather_around(self, what: str, array: np.ndarray, bounds: Sequence[int]) -> None:
        """Fill in the parts of an array that other ranks have, as in `queue_gather`."""
        self._connect("ring")
        for owner, (start, stop) in enumerate(pairwise(bounds)):
            if start < stop:
                self._around(what, owner, array[start:stop])

    def _by_tree(self, what: str, owner: int, array: np.ndarray | None) -> np.ndarray:
        """Send an array from its owner through the tree."""
        return self._flood(what, owner, what, array)[1]

    def _swap(
        self, what: str, moves: Mapping[int, Sequence[tuple[np.ndarray, np.ndarray | None]]]
    ) -> dict[int, list[np.ndarray]]:
        """Send arrays to other ranks and receive the same number, concurrently; `moves` has (array, target) by rank."""
        links = [(self._links[peer], pairs) for peer, pairs in moves.items()]
        sending = [in_turn([link.sending(what, given) for given, _ in pairs]) for link, pairs in links]
        receiving = [in_turn([link.receiving(what, to) for _, to in pairs]) for link, pairs in links]
        return dict(zip(moves, together(self.wire, what, *sending, *receiving)[len(moves) :], strict=True))

    def _reduce_by_halves(self, what: str, array: np.ndarray, op: str) -> np.ndarray:
        """Exchange half of an array with a partner, then half of the rest, and so on; then gather the results.

        Partners are combined in rank order: the ranks combined so far are consecutive on both sides.
        """
        self._connect("halves")
        halves = Halves(self.rank, self.size)
        out = np.ascontiguousarray(array).reshape(-1).copy()
        lanes = np.array_split(out, halves.lanes)
        # The parts of `out` that this rank keeps, and the parts that it sends away, by step, partner and lane.
        steps: list[dict[int, list[tuple[np.ndarray, np.ndarray]]]] = []
        if halves.mate is not None:
            steps.append({halves.mate: [(lanes[halves.own[0]], lanes[1 - halves.own[0]])]})
            self._combine(what, steps[-1], halves.mate < self.rank, op)
        held = {lane: lanes[lane] for lane in halves.own}
        for step in range(halves.steps):
            upper = halves.group >> step & 1
            steps.append({})
            for lane, places in held.items():
                two = places[: len(places) // 2], places[len(places) // 2 :]
                held[lane] = two[upper]
                steps[-1].setdefault(halves.partner(step, lane), []).append((two[upper], two[1 - upper]))
            self._combine(what, steps[-1], bool(upper), op)
        for moves in reversed(steps):
            self._swap(what, moves)
        return out.reshape(array.shape)

    def _combine(
        self, what: str, moves: Mapping[int, list[tuple[np.ndarray, np.ndarray]]], lower: bool, op: str
    ) -> None:
        """Combine the parts that this rank keeps with its partners' parts; `lower`: the partners have lower ranks."""
        new = {peer: [(given, np.empty_like(kept)) for kept, given in pairs] for peer, pairs in moves.items()}
        for peer, parts in self._swap(what, new).items():
            for (kept, _), part in zip(moves[peer], parts, strict=True):
                REDUCE[op](*((part, kept) if lower else (kept, part)), out=kept)

    def _next(self, ready: queue.Queue[Block | BaseException]) -> Block | BaseException:
        while True:
            try:
                return ready.get(timeout=0.2)
            except queue.Empty:
                self._abort.check()

    def _pump(
        self,
        way: Callable[[str, int, Array | None], Array],
        what: str,
        rows: Rows,
        ready: queue.Queue[Block | BaseException],
        gone: threading.Event,
    ) -> None:
        try:
            for each in self.ranges:
                own = rows.read(each.start, each.stop) if self.rank == each.owner else None
                item = Block(each.start, each.stop, way(what, each.owner, own))
                while not gone.is_set():
                    try:
                        ready.put(item, timeout=0.2)
                        break
                    except queue.Full:
                        continue
                if gone.is_set():
                    return
        except BaseException as error:
            while not gone.is_set():
                try:
                    ready.put(error, timeout=0.2)
                    return
                except queue.Full:
                    continue


def _reduced(parts: Sequence[np.ndarray], op: str) -> np.ndarray:
    """Reduce parts in rank order to a new array; maxima of 0 and -0 do not depend on the shape of the links."""
    total = parts[0].copy()
    for part in parts[1:]:
        REDUCE[op](total, part, out=total)
    return total
