"""Collectives over real sockets, ranks as threads of this process: no Dask."""

from __future__ import annotations

import contextlib
import json
import secrets
import socket
import struct
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from mgclust.data import open_dataset
from mgclust.engine import wire as wire_module
from mgclust.engine.abort import Abort
from mgclust.engine.dask import local_cluster
from mgclust.engine.partition import Partition
from mgclust.engine.rank import Assignment, run_rank
from mgclust.engine.run_spec import RunSpec
from mgclust.engine.session import Session
from mgclust.engine.wire import Link, PeerLost, Wire, accept, dial, listen
from mgclust.errors import CollectiveTimeout, InputError, RunCancelled, RunFailed
from support import rank_jobs

SOON = 60.0  # seconds, on a busy machine; what ends nothing lasts longer
SIZES = [1, 2, 3, 4]


def contexts():
    """TLS of both ends, as a cluster of this machine has it."""
    security = local_cluster._security()
    connect, listens = security.get_connection_args("worker"), security.get_listen_args("worker")
    return connect["ssl_context"], listens["ssl_context"]


@contextlib.contextmanager
def sessions_of(size):
    """Of all ranks; None of a single one."""
    if size == 1:
        yield [None]
        return
    listener = listen("127.0.0.1")
    address = listener.getsockname()
    with ThreadPoolExecutor(size) as pool:
        opening = [
            pool.submit(Session.open, rank, size, Wire(b"key", Abort(), SOON), address, None if rank else listener)
            for rank in range(size)
        ]
    sessions = [each.result() for each in opening]
    yield sessions
    for session in sessions:
        session.close()


def run_threads(function, size, x=None, *, parameters=None, timeout=100.0, memory_limit=None, aborts=None):
    """Results of all ranks, exceptions included."""
    dataset = open_dataset(np.arange(5000.0).reshape(-1, 2) if x is None else x)
    partition = Partition.plan(dataset.shape[0], size)
    aborts = aborts or [Abort() for _ in range(size)]
    spec = RunSpec(function, parameters or {}, memory_limit=memory_limit, timeout=timeout)
    with sessions_of(size) as sessions, ThreadPoolExecutor(size) as pool:

        def one(rank):
            try:
                assignment = Assignment(spec, "run", rank, partition, "cpu")
                done = run_rank(assignment, dataset, aborts[rank], sessions[rank])
                return done.report.error or done.value
            except BaseException as error:
                return error

        return list(pool.map(one, range(size)))


@pytest.mark.parametrize("size", SIZES)
def test_collectives(size):
    sums, highest, lowest, gathered, sent, agreed, empty = run_threads(rank_jobs.collectives, size)[0]
    np.testing.assert_array_equal(sums, np.arange(5) * sum(range(1, size + 1)))
    np.testing.assert_array_equal(highest, [size - 1, 0])
    assert lowest.tolist() == [0]
    assert lowest.dtype == np.int32
    expected = np.concatenate([np.full((rank, 2), rank, np.float32) for rank in range(size)])
    np.testing.assert_array_equal(gathered, expected)
    assert sent.tolist() == [[1.5, size - 1]]
    assert agreed == {"k": 0, "text": "æ"}
    assert empty == (0, 3)


@pytest.mark.parametrize("size", SIZES)
def test_stream_takes_every_block_to_every_rank_in_global_order(size):
    x = np.random.default_rng(0).normal(size=(7500, 3)).astype(np.float32)
    seen = run_threads(rank_jobs.streamed, size, x)[0]
    assert len(seen) == size
    for of_rank in seen:
        np.testing.assert_array_equal(of_rank, seen[0])
        starts, stops = of_rank[:, :2].astype(int).T  # of whole blocks, some merged
        assert starts[0] == 0
        assert stops[-1] == 7500
        np.testing.assert_array_equal(starts[1:], stops[:-1])
        assert not (starts % 1024).any()
        np.testing.assert_array_equal(
            of_rank[:, 2], [x[a:b].sum(dtype=np.float64) for a, b in zip(starts, stops, strict=True)]
        )
        np.testing.assert_array_equal(of_rank[:, 3], x[starts, 0])


@pytest.mark.slow
def test_equal_bits_on_any_number_of_ranks_resident_or_not():
    x = np.random.default_rng(1).normal(size=(5500, 5)).astype(np.float32)
    row = 5 * 4 * 1024
    results = {
        (size, limit): run_threads(rank_jobs.gram, size, x, memory_limit=limit)[0]
        for size in SIZES
        for limit in (None, 5 * row + row // 2)
    }
    reference = results[1, None]
    assert reference[2]
    assert not results[1, 5 * row + row // 2][2]
    for sums, mean, _ in results.values():
        assert sums.tobytes() == reference[0].tobytes()
        assert mean.tobytes() == reference[1].tobytes()


def test_ranks_without_rows_take_part():
    sums, _, _ = run_threads(rank_jobs.gram, 4, np.random.default_rng(1).normal(size=(30, 2)))[0]
    assert sums.shape == (30,)


@pytest.mark.parametrize("size", [1, 3])
def test_sum_of_floats_is_refused(size):
    for error in run_threads(rank_jobs.float_sum, size):
        assert isinstance(error, (TypeError, PeerLost))


def test_collective_inside_a_stream_is_refused():
    errors = run_threads(rank_jobs.early, 2)
    assert any(type(error) is RuntimeError and "before stream()" in str(error) for error in errors)


def test_ranks_in_different_collectives_are_told():
    errors = run_threads(rank_jobs.disagree, 2)
    assert any("ranks disagree" in str(error) for error in errors)


@pytest.mark.parametrize("failing", [0, 2])
def test_failure_of_one_rank_ends_all_at_once(failing):
    began = time.monotonic()
    errors = run_threads(rank_jobs.fail_on, 3, parameters={"rank": failing})
    assert time.monotonic() - began < SOON
    for rank, error in enumerate(errors):
        assert isinstance(error, InputError if rank == failing else PeerLost)


def hangs_until_the_others_end():
    """A function for ranks of which rank 1 keeps the others waiting, until both have an error."""
    ended, both = threading.Semaphore(0), 2

    def hang(context):
        if context.rank == 1:
            for _ in range(both):
                assert ended.acquire(timeout=SOON)
            return
        try:
            context.comm.barrier()
        finally:
            ended.release()

    return hang


def test_a_rank_that_hangs_runs_into_the_deadline():
    errors = run_threads(hangs_until_the_others_end(), 3, timeout=1.5)
    assert isinstance(errors[0], CollectiveTimeout)
    assert "rank 1" in str(errors[0])
    assert isinstance(errors[2], RunFailed)


def test_abort_ends_a_wait():
    aborts = [Abort() for _ in range(3)]
    threading.Timer(0.5, aborts[0].set, ["it was cancelled"]).start()
    errors = run_threads(hangs_until_the_others_end(), 3, aborts=aborts)
    assert isinstance(errors[0], RunCancelled)
    assert "it was cancelled" in str(errors[0])


def test_strangers_and_wrong_keys_are_turned_away():
    server = listen("127.0.0.1")
    address = ("127.0.0.1", server.getsockname()[1])
    wire, wrong = Wire(b"right", Abort(), SOON), Wire(b"wrong", Abort(), 1.0)
    with ThreadPoolExecutor(1) as pool:
        links = pool.submit(accept, server, wire, 2)
        with socket.create_connection(address) as stranger:
            stranger.sendall(b"GET / HTTP/1.1\r\n" + b"x" * 100)
            with pytest.raises(PeerLost):
                dial(address, wrong, 1)
        link = dial(address, wire, 1)
        links.result()[1].send("x", np.arange(3))
        assert link.receive("x").tolist() == [0, 1, 2]


def hears(sock) -> bytes:
    """What an unknown client receives until the other end closes."""
    told = b""
    with contextlib.suppress(OSError):
        while more := sock.recv(100):
            told += more
    return told


@pytest.mark.parametrize("encrypted", [False, True])
def test_strangers_do_not_keep_ranks_out(encrypted, monkeypatch):
    """One that drips, more that are silent than there may be, and garbage: all before the true rank."""
    monkeypatch.setattr(wire_module, "HANDSHAKE_SECONDS", 60.0)
    tls = contexts() if encrypted else ()
    server, wire = listen("127.0.0.1"), Wire(b"key", Abort(), 60.0, *tls)
    address = server.getsockname()
    over = threading.Event()
    strangers = [socket.create_connection(address, timeout=60) for _ in range(200)]

    def drip(sock):
        with contextlib.suppress(OSError):
            while not over.wait(0.05):
                sock.sendall(b"\x16" if encrypted else b"x")

    with ThreadPoolExecutor(8) as pool:
        for sock in strangers[-4:]:
            pool.submit(drip, sock)
        for sock in strangers[-8:-4]:
            sock.sendall(secrets.token_bytes(1000))
        links = pool.submit(accept, server, wire, 2)
        began = time.monotonic()
        link = dial(address, wire, 1)
        took = time.monotonic() - began
        links.result()[1].send("x", np.arange(3))
        assert link.receive("x").tolist() == [0, 1, 2]
        over.set()
    assert took < 50  # some 0.1 s, and less than the limit of one handshake; before, each silent one cost that much
    told = [hears(sock) for sock in strangers]
    assert [words for words in told if words and not (encrypted and words[:2] == b"\x15\x03" and len(words) == 7)] == []


def test_a_dripping_stranger_is_given_one_limit(monkeypatch):
    server = listen("127.0.0.1")
    with ThreadPoolExecutor(1) as pool, socket.create_connection(server.getsockname()) as stranger:
        with monkeypatch.context() as patch:
            patch.setattr(wire_module, "HANDSHAKE_SECONDS", 0.5)
            links = pool.submit(accept, server, Wire(b"key", Abort(), 100.0), 2)
            began = time.monotonic()
            with pytest.raises(OSError):
                while time.monotonic() - began < SOON:
                    stranger.sendall(b"x")
                    time.sleep(0.1)
        dial(server.getsockname(), Wire(b"key", Abort(), 30.0), 1)
        links.result()


def test_a_flood_does_not_outlast_the_deadline():
    """Each new connection is something to do; the clock is looked at all the same."""
    server, over = listen("127.0.0.1"), threading.Event()

    def flood():
        while not over.is_set():
            with contextlib.suppress(OSError):
                socket.create_connection(server.getsockname()).close()

    with ThreadPoolExecutor(1) as pool:
        pool.submit(flood)
        began = time.monotonic()
        try:
            with pytest.raises(CollectiveTimeout, match=r"rank\(s\) \[1\]"):
                accept(server, Wire(b"k", Abort(), 0.5), 2)
        finally:
            over.set()
    assert time.monotonic() - began < SOON


def test_a_proof_of_earlier_opens_nothing():
    """What a rank has said in one handshake, said again in another."""
    server, abort = listen("127.0.0.1"), Abort()
    wire = Wire(b"key", abort, SOON)
    number, nonce = struct.pack("!I", 1), bytes(32)
    first = number + nonce + wire.proof(b"dial", number, nonce)
    with ThreadPoolExecutor(1) as pool:
        links = pool.submit(accept, server, wire, 2)
        with (
            socket.create_connection(server.getsockname(), timeout=SOON) as rank,
            socket.create_connection(server.getsockname(), timeout=SOON) as replay,
        ):
            for sock in (rank, replay):
                sock.sendall(first)
            last = wire.proof(b"confirm", number, nonce + rank.recv(64)[:32])
            assert len(replay.recv(64)) == 64
            replay.sendall(last)
            assert hears(replay) == b""
            assert not links.done()
        abort.set("nobody else comes")
        with pytest.raises(RunCancelled):
            links.result()


def test_a_rank_0_that_says_nothing_is_given_up():
    silent = socket.create_server(("127.0.0.1", 0))
    began = time.monotonic()
    with pytest.MonkeyPatch.context() as patch, pytest.raises(PeerLost, match=r"no handshake within 0\.3 s"):
        patch.setattr(wire_module, "HANDSHAKE_SECONDS", 0.3)
        dial(silent.getsockname(), Wire(b"k", Abort(), 0.5), 1)
    assert time.monotonic() - began < SOON
    silent.close()


def test_a_rank_that_dials_again_gives_up_its_first_link():
    server, wire = listen("127.0.0.1"), Wire(b"key", Abort(), 10.0)
    with ThreadPoolExecutor(1) as pool:
        links = pool.submit(accept, server, wire, 3)
        first = dial(server.getsockname(), wire, 1)
        again = dial(server.getsockname(), wire, 1)
        dial(server.getsockname(), wire, 2)
        links.result()[1].send("x", np.arange(3))
    assert again.receive("x").tolist() == [0, 1, 2]
    with pytest.raises(PeerLost):
        first.receive("x")


@pytest.mark.parametrize(
    "header",
    [
        ["x", "|O", [3]],
        ["x", "<f8", [-1]],
        ["x", "<f8", [1 << 60]],
        ["x", "<f8", [1 << 40, 1 << 40]],
        ["x", "<f8", ["3"]],
        ["x", "<f8", 3],
        ["x", "no type", [3]],
        ["x"],
        7,
    ],
)
def test_an_array_that_cannot_be_received(header):
    with listen("127.0.0.1") as server:
        there = socket.create_connection(server.getsockname())
        link = Link(server.accept()[0], Wire(b"k", Abort(), 5.0), 1)
    words = json.dumps(header).encode()
    there.sendall(struct.pack("!I", len(words)) + words + bytes(24))
    with pytest.raises(RunFailed, match="rank 1 announced an array that cannot be received"):
        link.receive("x")
    there.close()
    link.close()


def test_only_addresses_of_this_machine_are_listened_on():
    """Before, all interfaces stood in for an address that could not be had."""
    with contextlib.closing(listen("192.0.2.1", "127.0.0.1")) as server:
        assert server.getsockname()[0] == "127.0.0.1"
    with pytest.raises(RunFailed, match=r"cannot listen on 192\.0\.2\.1"):
        listen("192.0.2.1")


def test_a_missing_rank_is_named():
    server = listen("127.0.0.1")
    with pytest.raises(CollectiveTimeout, match=r"rank\(s\) \[1, 2\]"):
        accept(server, Wire(b"k", Abort(), 0.3), 3)


def test_bytes_are_counted_on_both_ends():
    seen = run_threads(rank_jobs.counted, 2)[0]
    (sent, received), (back, there) = seen.tolist()
    assert (sent, received) == (there, back)
    assert sent >= 8000
