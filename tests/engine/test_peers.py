"""Ranks that are connected with each other: strangers at their ports, ranks that are killed, whole fits, NCCL."""

from __future__ import annotations

import contextlib
import os
import secrets
import socket
import ssl
import struct
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

import numpy as np
import psutil
import pytest
from distributed import Security

from mgclust.algorithms import base
from mgclust.algorithms.communities import clusterer as communities
from mgclust.base.errors import DeviceUnavailableError
from mgclust.data import open_dataset
from mgclust.engine import rank
from mgclust.engine.abort import Abort
from mgclust.engine.dask import tasks
from mgclust.engine.partition import Partition
from mgclust.engine.rank import RankAssignment, run_rank
from mgclust.engine.run_spec import RunSpec
from mgclust.engine.transport import host_comm, nccl_network
from mgclust.engine.transport.handshake import listen, meet
from mgclust.engine.transport.session import Session
from mgclust.engine.transport.wire import Wire
from support import rank_jobs, rank_processes, tiny_cases

pytestmark = [pytest.mark.xdist_group("workers"), pytest.mark.timeout(300)]

SOON = 60.0  # seconds, on a busy machine; a deadlock lasts for longer


def contexts():
    """TLS of both ends, as a cluster of this machine has it."""
    security = Security.temporary()
    connect, listens = security.get_connection_args("worker"), security.get_listen_args("worker")
    return connect["ssl_context"], listens["ssl_context"]


def first_of(wire, caller, called):
    """What a rank says first; bytes of its own of a stranger that does not know the key."""
    ranks, nonce = struct.pack("!II", caller, called), bytes(32)
    return ranks + nonce + wire.proof(b"dial", ranks, nonce)


@contextlib.contextmanager
def flooded(addresses):
    """Strangers who connect again and again: silent, gone at once, reset, garbage, a rank with another key."""
    over, connections = threading.Event(), []
    wrong = Wire(b"wrong", Abort(), SOON)

    def flood(address, number):
        for turn in range(1 << 30):
            if over.is_set():
                return
            with contextlib.suppress(OSError):
                sock = socket.create_connection(address, timeout=1)
                kind = (turn + number) % 5
                if kind == 0:
                    connections.append(sock)  # silent
                    continue
                if kind == 1:
                    sock.sendall(secrets.token_bytes(1000))
                if kind == 2:
                    sock.sendall(first_of(wrong, 3, 1 + number % 3))
                if kind == 3:
                    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                sock.close()

    threads = [threading.Thread(target=flood, args=(a, n)) for n, a in enumerate(addresses)]
    for thread in threads:
        thread.start()
    try:
        yield connections
    finally:
        over.set()
        for thread in threads:
            thread.join()
        for sock in connections:
            sock.close()


def meet_in_a_flood(size, tls=()):
    """Connect ranks while strangers flood the port of each; what is left open, and who connects afterwards."""
    servers = [listen("127.0.0.1") for _ in range(size)]
    addresses = [server.getsockname() for server in servers]
    wires = [Wire(b"right", Abort(), SOON, *tls) for _ in range(size)]
    with flooded(addresses[1:]) as connections, ThreadPoolExecutor(size) as pool:
        while len(connections) < 3 * size:
            time.sleep(0.001)
        meeting = [
            pool.submit(
                meet,
                number,
                dict(enumerate(addresses[1:number], 1)),
                range(number + 1, size),
                servers[number],
                wires[number],
            )
            for number in range(1, size)
        ]
        links = [{}, *(each.result(timeout=SOON) for each in meeting)]
        for server in servers:
            server.close()
    for one in range(1, size):
        assert sorted(links[one]) == [other for other in range(1, size) if other != one]
    for one in range(1, size):
        for other in range(one + 1, size):
            links[one][other].send("x", np.array([one, other]))
            assert links[other][one].receive("x").tolist() == [one, other]
    for each in links:
        for link in each.values():
            link.close()


def open_files():
    return psutil.Process().num_fds()


def test_strangers_flood_the_ports_of_ranks_that_meet():
    before = open_files()
    meet_in_a_flood(4)
    assert open_files() <= before + 2  # of what the first use of TLS or of threads opens


@pytest.mark.slow
@pytest.mark.parametrize("encrypted", [False, True])
def test_strangers_flood_twenty_times(encrypted):
    tls = contexts() if encrypted else ()
    meet_in_a_flood(5, tls)
    before, threads = open_files(), threading.active_count()
    for turn in range(20):
        meet_in_a_flood(3 + turn % 4, tls)
    assert open_files() <= before
    assert threading.active_count() <= threads


def test_a_rank_that_ends_without_a_word(monkeypatch):
    """Its connections are reset, as by a system whose process is killed, while the others are in a stream."""
    from engine.test_comm import run_threads

    monkeypatch.setattr(host_comm, "LARGE", -1)

    def job(context):
        for number, _ in enumerate(context.comm.stream(context.rows)):
            if context.rank == 2 and number == 1:
                for link in context.comm._links.values():
                    link._sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                    link._sock.close()
        context.comm.barrier()

    began = time.monotonic()
    errors = run_threads(job, 4, np.ones((4 * 1024, 64), np.float32))
    assert time.monotonic() - began < SOON
    assert all("closed" in str(error) for error in errors)


@pytest.mark.slow
@pytest.mark.parametrize("name", rank_processes.COLLECTIVES)
@pytest.mark.parametrize(("size", "encrypted"), [(4, False), (4, True), (7, False)])
def test_a_rank_is_killed_many_times(name, size, encrypted):
    """Another rank each time, and at another moment; of seven, some wait for ranks that wait for the killed one."""
    security = Security.temporary() if encrypted else None
    for turn in range(20 if size == 4 else size):
        rank_processes.killed(size, name, victim=turn % size, after=0.003 * turn, security=security)


@pytest.fixture
def peers_of_workers(client):
    """Workers whose ranks give each other even the smallest array directly."""

    def force(star, one_host):
        host_comm.LARGE, host_comm.LARGE_ON_ONE_HOST = star, one_host

    client.run(force, -1, -1)
    yield client
    client.run(force, host_comm.LARGE, host_comm.LARGE_ON_ONE_HOST)


@pytest.mark.quick("canopy")
@pytest.mark.parametrize("method", tiny_cases.METHODS)
def test_a_whole_fit_has_the_same_bits(method, peers_of_workers, ranks, monkeypatch):
    """On 2 to 4 ranks as in one process, over links that ranks have with each other."""
    n = 3500  # four blocks: each rank has some
    expected = tiny_cases.outcome(method, n, device="cpu", client=None)
    assert "refused" not in expected
    for size in (2, 3, 4):
        with monkeypatch.context() as patch:
            for module in (base, communities):
                patch.setattr(module, "connect", lambda size=size, **_: ranks(size))
            assert tiny_cases.outcome(method, n, device="cpu") == expected, f"{size} ranks"
    assert all(peers_of_workers.run(are_connected).values())


def are_connected(dask_worker):
    """Whether the ranks of the worker's session have connected for large arrays."""
    return "ring" in tasks._SEATS[dask_worker.address].session._peers.shapes


@contextlib.contextmanager
def two_ranks(tls=()):
    """Sessions of two ranks."""
    listener = listen("127.0.0.1")
    addresses = [listener.getsockname()] * 2
    with ThreadPoolExecutor(2) as pool:
        wires = [Wire(b"key", Abort(), SOON, *tls) for _ in range(2)]
        rest = pool.submit(Session.open, 1, wires[1], addresses)
        sessions = [Session.open(0, wires[0], addresses, listener), rest.result()]
        yield sessions, pool
    for session in sessions:
        session.close()


def on_gpus(sessions, pool, monkeypatch):
    """Reports of two ranks that should run on GPUs."""
    monkeypatch.setattr(rank, "gpus", lambda: [SimpleNamespace(name="a GPU")])
    spec, dataset = RunSpec(rank_jobs.collectives), open_dataset(np.ones((3000, 2)))
    assignments = [RankAssignment(spec, "run", number, Partition.plan(3000, 2), "cuda") for number in range(2)]
    running = [pool.submit(run_rank, each, dataset, Abort(), sessions[each.rank]) for each in assignments]
    return [each.result(timeout=SOON).report for each in running]


def test_ranks_are_encrypted_as_dask_is():
    """With the certificates of their workers, both of which are checked."""
    worker = SimpleNamespace(security=Security.temporary())
    assert tasks._tls(worker, "tcp://10.0.0.5:9000") == (None, None)
    with two_ranks(tasks._tls(worker, "tls://10.0.0.5:9000")) as (sessions, _):
        links = [session._links[1 - number]._sock for number, session in enumerate(sessions)]
        assert all(isinstance(link, ssl.SSLSocket) and link.version() for link in links)
        assert all(link.context.verify_mode == ssl.CERT_REQUIRED for link in links)
        assert links[0].getpeercert(True) == links[1].getpeercert(True) != b""


@pytest.mark.parametrize("who_knows", [(0,), (0, 1)])
def test_gpus_of_several_hosts_with_tls_are_refused(who_knows, monkeypatch):
    """In order: the session stays, for a run on CPUs. A rank on the host of rank 0 does not know of other hosts."""
    monkeypatch.delenv(nccl_network.PERMISSION, raising=False)
    loaded = []
    monkeypatch.setattr(rank.kernel_modules, "load", lambda device: loaded.append(device) or 1 / 0)
    with two_ranks(contexts()) as (sessions, pool):
        for number in who_knows:
            for link in sessions[number]._links.values():
                assert link.local
                link.local = False
        reports = on_gpus(sessions, pool, monkeypatch)
        for number in who_knows:
            assert isinstance(reports[number].error, DeviceUnavailableError)
        with pytest.raises(DeviceUnavailableError, match=r"NCCL .* unencrypted; .*n_workers=.*MGCLUST_PLAIN_NCCL=true"):
            rank.refuse(reports, (3000, 2), "float32")
        assert not any(session.broken for session in sessions)
    assert len(loaded) == 2 - len(who_knows)


@pytest.mark.parametrize(
    ("encrypted", "hosts", "permission", "allowed"),
    [(True, 2, "true", True), (True, 2, "0", False), (True, 2, "", False), (True, 1, "", True), (False, 2, "", True)],
)
def test_when_nccl_may_be_used(encrypted, hosts, permission, allowed, monkeypatch):
    monkeypatch.setenv(nccl_network.PERMISSION, permission)
    links = {1: SimpleNamespace(local=True), 2: SimpleNamespace(local=hosts == 1)}
    wire = Wire(b"key", Abort(), SOON, *(("here", "there") if encrypted else ()))
    session = Session(0, 3, host_comm.Peers(links), wire)
    with contextlib.nullcontext() if allowed else pytest.raises(DeviceUnavailableError):
        session.check_gpus()


@pytest.fixture
def interfaces(monkeypatch):
    """What NCCL is told on a machine with some interfaces, for addresses of a rank."""
    addresses = {
        "lo": ["127.0.0.1", "::1"], "eth0": ["10.0.0.5", "fe80::5%eth0"], "ib0": ["192.168.7.5", "fd00::0007"],
    }  # fmt: skip

    def end(address):
        return SimpleNamespace(family=socket.AF_INET6 if ":" in address else socket.AF_INET, address=address)

    card = SimpleNamespace(family=socket.AF_PACKET, address="00:00:00:00:00:00")
    found = {name: [card, *map(end, ends)] for name, ends in addresses.items()}
    monkeypatch.setattr(psutil, "net_if_addrs", lambda: found)

    def told(*hosts, **given):
        with monkeypatch.context() as patch:
            for name in ("NCCL_SOCKET_IFNAME", "NCCL_RAS_ENABLE"):
                patch.delenv(name, raising=False)
            for name, value in given.items():
                patch.setenv(name, value)
            nccl_network.choose_interface(hosts)
            assert os.environ.pop("NCCL_RAS_ENABLE") == "0"
            return os.environ.pop("NCCL_SOCKET_IFNAME", None)

    return told


@pytest.mark.parametrize(
    ("hosts", "interface"),
    [
        (["192.168.7.5"], "=ib0"),
        (["10.0.0.5", "0.0.0.0", "192.168.7.5"], "=eth0"),
        (["203.0.113.9", "0.0.0.0", "10.0.0.5"], "=eth0"),  # known to others by an address of their network's gate
        (["fd00::7"], "=ib0"),
        (["127.0.1.1"], "=lo"),
        (["worker.example", "10.0.0.5"], "=eth0"),
        (["worker.example"], None),
        ([], None),
    ],
)
def test_nccl_has_the_interface_of_dask(interfaces, hosts, interface):
    assert interfaces(*hosts) == interface


def test_the_interface_that_an_administrator_has_set_stays(interfaces):
    assert interfaces("10.0.0.5", NCCL_SOCKET_IFNAME="ib0") == "ib0"


def test_the_addresses_of_a_rank_begin_with_that_of_its_worker():
    worker = SimpleNamespace(address="tls://10.0.0.5:9000", listen_address="tls://0.0.0.0:9000")
    assert tasks._hosts(worker) == ("10.0.0.5", "0.0.0.0")
