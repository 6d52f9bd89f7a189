"""Collectives of ranks on CPUs, over the sockets of `mgclust.engine.transport.wire`."""

from __future__ import annotations

import contextvars
import json
import math
import pickle
import queue
import threading
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np

from mgclust.engine.partition import Partition, RowRange
from mgclust.engine.rows import Block, Rows
from mgclust.engine.transport.comm import REDUCE, check_reducible
from mgclust.engine.transport.handshake import listen, meet
from mgclust.engine.transport.wire import Link, PeerLost, SessionLost, Wire, relay, together
from mgclust.outside.json_text import parse_json

__all__ = ["HostComm", "Peers"]

Array = Any
# Bytes of an array, of all ranks together, up to which it goes over rank 0, where links are the limit and where all
# ranks share the cores of one host: benchmarks/engine/collectives.py has both ways on either side of these.
LARGE = 1 << 16
LARGE_ON_ONE_HOST = 1 << 21
NOTHING = np.empty(0, np.uint8)


@dataclass
class Peers:
    """Links of a rank to others, for runs one after the other."""

    links: dict[int, Link]  # of rank 0: to all others; of others: to rank 0, and to all once `connected`
    hosts: tuple[str, ...] = ()  # where this rank can listen: the address that others know first; () finds out
    connected: bool = False  # whether all ranks are connected with each other
    one_host: bool = False  # whether all ranks have the address of rank 0, once they have met


class HostComm:
    """CPU ranks: small arrays go to rank 0, which sends its answer to all, large ones directly from rank to rank.

    ::

        small arrays                 star    rank 0 adds, joins or passes on; one message there and one back
        gathers, broadcast, stream   ring    an array goes from rank to rank, each passing it on while it arrives
        sums                         direct  rank r gets the r-th part of all, adds in rank order, and gives it to all
        exchange                     direct  each rank to each

    So no rank sends or receives much more than it has or gets. The ranks other than 0 are connected with each other
    when they first need it. Where only some ranks know how long an array is, messages over rank 0 say which way it
    takes. Exchanges have no messages over rank 0, where they would wait for each other.

    Parameters
    ----------
    rank, size : int
        This rank and how many there are.
    peers : Peers
        Links to others, which stay when the run is over.
    wire : Wire
        What the links share.
    partition : Partition
        Which rank owns which rows.

    Attributes
    ----------
    wire : Wire
        As given.
    ranges : list of RowRange
        What `stream` yields, once the ranks have met.
    """

    def __init__(self, rank: int, size: int, peers: Peers, wire: Wire, partition: Partition) -> None:
        self.rank = rank
        self.size = size
        self.wire = wire
        self.ranges: list[RowRange] = []
        self._peers = peers
        self._links = peers.links
        self._abort = wire.abort
        wire.watch = self.check_peers
        self._partition = partition
        self._calls = 0
        self._streaming = False

    def meet(self, run: str, range_rows: int) -> bool:
        """Wait until all ranks have loaded their rows, however long that takes; False if one refuses.

        Parameters
        ----------
        run : str
            Its name: ranks that are in different runs are told.
        range_rows : int
            Most rows of a block that fit here, of which the least counts; 0: this rank refuses.

        Raises
        ------
        SessionLost
            A connection was closed.
        """
        limit, self.wire.timeout = self.wire.timeout, math.inf
        try:
            own = np.array([range_rows, all(link.local for link in self._links.values())], np.int64)
            least, one_host = self._least(f"the start of run {run}", own).tolist()
            self._peers.one_host = bool(one_host)
        except PeerLost as error:
            raise SessionLost(str(error)) from error
        finally:
            self.wire.timeout = limit
        self.ranges = list(self._partition.ranges(least)) if least else []
        return least > 0

    def _least(self, what: str, own: np.ndarray) -> np.ndarray:
        if self.rank:
            self._links[0].send(what, own)
            return self._links[0].receive(what)
        theirs = [self._links[peer].receive(what) for peer in range(1, self.size)]
        return self._to_all(what, np.min([own, *theirs], axis=0))

    def _is_large(self, nbytes: int) -> bool:
        return nbytes > (LARGE_ON_ONE_HOST if self._peers.one_host else LARGE)

    def all_reduce(self, array: Array, op: str = "sum") -> Array:
        check_reducible(array.dtype, op)
        what = self._enter(f"all_reduce({op})")
        if self._is_large(array.nbytes):
            return self._reduce_directly(f"{what} of {array.dtype} {array.shape}", array, op)
        if self.rank:
            self._links[0].send(what, array)
            return self._links[0].receive(what)
        total = array.copy()
        for peer in range(1, self.size):
            part = self._links[peer].receive(what)
            if part.shape != array.shape or part.dtype != array.dtype:
                raise ValueError(
                    f"{what}: rank {peer} has {part.dtype} {part.shape}, rank 0 {array.dtype} {array.shape}."
                )
            REDUCE[op](total, part, out=total)
        return self._to_all(what, total)

    def queue_reduce(self, array: Array, op: str = "sum", *, out: Array | None = None) -> None:
        (array if out is None else out)[...] = self.all_reduce(array, op)

    def mark(self) -> Any:
        """See `Comm`."""

    def synchronize(self, mark: Any = None) -> None:
        """See `Comm`."""

    def all_gather(self, array: Array) -> Array:
        what = self._enter("all_gather")
        large = f"{what} of large arrays"
        small = not self._is_large(array.nbytes * self.size)
        own = np.array([len(array)], np.int64)
        if self.rank:
            self._links[0].send(what if small else large, array if small else own)
            said, answer = self._answer(what, large)
            if said == what:
                return answer
        else:
            said_by_all = self._from_all(what, large)
            if small and all(said == what for said, _ in said_by_all):
                return self._to_all(what, np.concatenate([array, *(part for _, part in said_by_all)], axis=0))
            answer = np.array([*own, *(len(part) if said == what else part[0] for said, part in said_by_all)], np.int64)
            self._to_all(large, answer)
        bounds = [0, *np.cumsum(answer).tolist()]
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
        self._connect()
        got = self._swap(what, parts)
        return np.concatenate([parts[peer] if peer == self.rank else got[peer] for peer in range(self.size)])

    def broadcast(self, array: Array | None, root: int = 0) -> Array:
        what = self._enter(f"broadcast({root})")
        large = f"{what} of a large array"
        said, value = what, array
        if self.rank == root:
            assert array is not None
            value = array.copy()
            if self._is_large(value.nbytes):
                said = large
            if root:
                self._links[0].send(said, value if said == what else NOTHING)
        else:
            said, value = self._answer(what, large, root if self.rank == 0 else 0)
        if not self.rank:
            self._to_all(said, value if said == what else NOTHING, but=root)
        if said == what:
            return value
        self._connect()
        return self._around(large, root, value if self.rank == root else None)

    def agree(self, value: Any, root: int = 0) -> Any:
        if self.rank != root:
            return pickle.loads(self.broadcast(None, root).tobytes())
        self.broadcast(np.frombuffer(pickle.dumps(value), np.uint8), root)
        return value

    def barrier(self) -> None:
        self.all_reduce(np.zeros(1, np.int64))

    def stream(self, rows: Rows) -> Iterator[Block]:
        """See `Comm`; a thread receives the next block while the caller works on this one."""
        what = self._enter("stream")
        # On one host as well: it is never slower there.
        in_ring = self._partition.n_rows * rows.n_features * rows.dtype.itemsize > LARGE
        if in_ring:
            self._connect()
        self._streaming = True
        ready: queue.Queue[Block | BaseException] = queue.Queue(maxsize=1)
        gone = threading.Event()
        here = contextvars.copy_context()  # its share of the cores
        way = self._around if in_ring else self._by_star
        pump = threading.Thread(target=here.run, args=(self._pump, way, what, rows, ready, gone), daemon=True)
        pump.start()
        try:
            for _ in self.ranges:
                item = self._next(ready)
                if isinstance(item, BaseException):
                    raise item
                yield item
            self._streaming = False  # left early, it stays true: the others' blocks would be in the way
        finally:
            gone.set()

    def stream_length(self) -> int:
        return len(self.ranges)

    def check_peers(self, waiting_for: Collection[int] = ()) -> None:
        """Raise PeerLost if a linked rank has gone while this one waits for something else.

        The links that are waited for tell by themselves, and may hold a last message to read first.
        """
        for link in self._links.values():
            if link.peer not in waiting_for and link.hung_up():
                raise PeerLost(f"rank {link.peer} closed its connection.")

    def leave(self) -> None:
        # Whatever was sent has been read then: the next run finds nothing of this one.
        what = self._enter("leave")
        if self.rank:
            # A rank that rank 0 has told already may close its end before this one is told.
            self.wire.watch = lambda waiting_for: None
        self._least(what, np.zeros(1, np.int64))

    def abort(self) -> None:
        for link in self._links.values():
            link.close()

    def _enter(self, name: str) -> str:
        self._abort.check()
        if self._streaming:
            raise RuntimeError(f"{name} was called before stream() had yielded its last block.")
        self._calls += 1
        return f"{name} #{self._calls}"

    def _connect(self) -> None:
        """Connect all ranks with each other, once in a session; all of them call it."""
        if self._peers.connected or self.size == 2:
            return
        what = f"connecting all ranks #{self._calls}"
        if not self.rank:
            hosts = [["", 0], *(parse_json(said.tobytes()) for said in self._from_all(what))]
            self._to_all(what, np.frombuffer(json.dumps(hosts).encode(), np.uint8))
        else:
            here = self._peers.hosts or (self._links[0].host,)
            with listen(*here) as server:
                own = json.dumps([here[0], server.getsockname()[1]]).encode()
                self._links[0].send(what, np.frombuffer(own, np.uint8))
                addresses = [(host, port) for host, port in parse_json(self._links[0].receive(what).tobytes())]
                self._links.update(meet(self.rank, addresses, server, self.wire))
        self._peers.connected = True

    def _from_all(self, what: str, instead: str | None = None) -> list[Any]:
        """Receive on rank 0 from all others, in rank order."""
        return [
            together(self.wire, what, self._links[peer].receiving(what, instead=instead))[0]
            for peer in range(1, self.size)
        ]

    def _answer(self, what: str, instead: str, peer: int = 0) -> tuple[str, Any]:
        """Receive what rank 0, or another one, says of a collective: the array, or that it takes the other way."""
        answer: tuple[str, Any] = together(self.wire, what, self._links[peer].receiving(what, instead=instead))[0]
        return answer

    def _to_all(self, what: str, array: np.ndarray, but: int = 0) -> np.ndarray:
        for peer in range(1, self.size):
            if peer != but:
                self._links[peer].send(what, array)
        return array

    def _around(self, what: str, owner: int, array: np.ndarray | None) -> np.ndarray:
        """An array on its way around the ring from its owner, the last rank before which passes it on no more.

        Each link has the arrays in one order, so ranks that wait for each other never make a whole ring.
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
        """Fill in an array of which each rank has its part, as `queue_gather`."""
        self._connect()
        for owner, (start, stop) in enumerate(pairwise(bounds)):
            if start < stop:
                self._around(what, owner, array[start:stop])

    def _by_star(self, what: str, owner: int, array: np.ndarray | None) -> np.ndarray:
        """An array on its way from its owner over rank 0 to all."""
        if array is None:
            array = self._links[owner if self.rank == 0 else 0].receive(what)
        if self.rank == 0:
            self._to_all(what, array, but=owner)
        elif self.rank == owner:
            self._links[0].send(what, array)
        return array

    def _swap(self, what: str, parts: Sequence[np.ndarray]) -> dict[int, np.ndarray]:
        """Give each other rank its part, and get one from each, all at the same time."""
        # Each begins with the next rank, so that no rank is the first of all.
        peers = [(self.rank + step) % self.size for step in range(1, self.size)]
        sending = [self._links[peer].sending(what, parts[peer]) for peer in peers]
        receiving = [self._links[peer].receiving(what) for peer in peers]
        return dict(zip(peers, together(self.wire, what, *receiving, *sending)[: len(peers)], strict=True))

    def _reduce_directly(self, what: str, array: np.ndarray, op: str) -> np.ndarray:
        self._connect()
        flat = np.ascontiguousarray(array).reshape(-1)
        parts = np.array_split(flat, self.size)
        got = self._swap(what, parts)
        own = _reduced([parts[peer] if peer == self.rank else got[peer] for peer in range(self.size)], op)
        del got
        out = np.empty_like(flat)
        places = np.array_split(out, self.size)
        places[self.rank][...] = own
        peers = [(self.rank + step) % self.size for step in range(1, self.size)]
        sending = [self._links[peer].sending(what, own) for peer in peers]
        receiving = [self._links[peer].receiving(what, places[peer]) for peer in peers]
        together(self.wire, what, *receiving, *sending)
        return out.reshape(array.shape)

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
    """A new array, of parts in rank order: maxima of 0 and -0 are the same on any way."""
    total = parts[0].copy()
    for part in parts[1:]:
        REDUCE[op](total, part, out=total)
    return total
