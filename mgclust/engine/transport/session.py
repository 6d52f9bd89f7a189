"""Connections of a rank to the others, kept between runs.

::

    open    connect to the neighbours in the tree of ranks: authenticated sockets, inside TLS if the cluster uses it;
            other links are made in the first run that needs them
    begin   make the communicator of one run; on GPUs, NCCL's communicator is made in the first run
    close   at the end of the last run

Runs use a session one after the other. If a run does not end normally, every rank closes the session, because messages
in transit would disturb the next run. `mgclust.engine.dask.tasks` describes how a session ends with its client.
"""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Sequence
from typing import Any

from mgclust.base.errors import DeviceUnavailableError
from mgclust.engine.abort import Abort
from mgclust.engine.partition import Partition
from mgclust.engine.transport import nccl_network
from mgclust.engine.transport.comm import Comm
from mgclust.engine.transport.handshake import meet
from mgclust.engine.transport.host_comm import HostComm, Peers
from mgclust.engine.transport.topology import Tree
from mgclust.engine.transport.wire import Wire, hung_up

__all__ = ["Session"]


class Session:
    """One rank's end of a session.

    Parameters
    ----------
    rank, size : int
        Number of this rank, and number of ranks (at least two).
    peers : Peers
        Links to other ranks.
    wire : Wire
        State that the links share.
    """

    def __init__(self, rank: int, size: int, peers: Peers, wire: Wire) -> None:
        self._rank, self._size, self._peers, self._wire = rank, size, peers, wire
        self._links = peers.links
        self._gpus: Any = None  # mgclust.engine.transport.cuda.Communicator

    @classmethod
    def open(
        cls,
        rank: int,
        wire: Wire,
        addresses: Sequence[tuple[str, int]],
        listener: socket.socket | None = None,
        hosts: tuple[str, ...] = (),
    ) -> Session:
        """Connect to the other ranks.

        Parameters
        ----------
        rank, wire
            See `Session`. The abort flag and the timeout of the wire apply to this call.
        addresses : sequence of (str, int)
            Where each rank listens, in rank order. Only ranks with children in the `Tree` have to listen.
        listener : socket.socket, optional
            The socket of a rank with children; it is closed here.
        hosts : tuple of str, optional
            Addresses at which this rank can listen: first the address by which others know it, then the address to use
            if the first does not belong to this machine. By default, the address from which it reaches its parent.
        """
        tree = Tree(rank, len(addresses))
        calls = {} if tree.parent is None else {tree.parent: addresses[tree.parent]}
        with listener or contextlib.nullcontext():
            links = meet(rank, calls, [child.root for child in tree.children], listener, wire)
        for link in links.values():
            link.margin = tree.margin(link.peer)
        return cls(rank, len(addresses), Peers(links, hosts), wire)

    def begin(self, partition: Partition, abort: Abort, timeout: float) -> HostComm:
        """Make the communicator of CPU ranks for one run.

        Parameters
        ----------
        partition : Partition
            Which rank owns which rows.
        abort : Abort
            Ends every wait of the run.
        timeout : float
            Seconds that a collective may take.
        """
        self._wire.abort, self._wire.timeout = abort, timeout
        return HostComm(self._rank, self._size, self._peers, self._wire, partition)

    def on_gpus(self, host: HostComm) -> Comm:
        """Make the communicator of GPUs for the same run.

        Parameters
        ----------
        host : HostComm
            Return value of `begin`, after `HostComm.meet`.
        """
        from mgclust.engine.transport.cuda import Communicator, NcclComm

        if self._gpus is None:
            own = *self._peers.hosts, *(link.host for link in self._links.values())
            self._gpus = Communicator(host, own)
        return NcclComm(host, self._gpus)

    def check_gpus(self) -> None:
        """Raise DeviceUnavailableError if this rank must not use NCCL with a linked rank; others may raise nothing."""
        encrypted = self._wire.client_tls is not None
        if encrypted and not all(link.local for link in self._links.values()) and not nccl_network.is_permitted():
            raise DeviceUnavailableError(nccl_network.refusal())

    @property
    def broken(self) -> bool:
        """True once a connection is closed, after which no run is possible."""
        return hung_up(self._links.values()) is not None

    def close(self) -> None:
        """Close the connections at once; the other ranks notice that."""
        for link in self._links.values():
            link.close()
        if self._gpus is not None:
            self._gpus.abort()
