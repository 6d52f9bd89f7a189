"""Collectives over real sockets, ranks as threads of this process: no Dask."""

from __future__ import annotations

import contextlib
import errno
import json
import secrets
import select
import socket
import struct
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

import numpy as np
import psutil
import pytest
from distributed import Security

from mgclust.base.errors import CollectiveTimeout, InputError, RunCancelled, RunFailed
from mgclust.data import open_dataset
from mgclust.engine.abort import Abort
from mgclust.engine.partition import Partition
from mgclust.engine.rank import RankAssignment, run_rank
from mgclust.engine.run_spec import RunSpec
from mgclust.engine.transport import handshake, host_comm
from mgclust.engine.transport import wire as wire_module
from mgclust.engine.transport.handshake import listen, meet
from mgclust.engine.transport.session import Session
from mgclust.engine.transport.wire import Link, PeerLost, Wire, relay, together, waited_for
from support import rank_jobs

SOON = 60.0  # seconds, on a busy machine; what ends nothing lasts longer
SIZES = [1, 2, 3, 4]


def contexts():
    """TLS of both ends, as a cluster of this machine has it."""
    security = Security.temporary()
    connect, listens = security.get_connection_args("worker"), security.get_listen_args("worker")
    return connect["ssl_context"], listens["ssl_context"]


def force(monkeypatch, largest):
    """Have arrays that bring up to so many bytes to a rank go over the tree, whichever hosts the ranks are on."""
    monkeypatch.setattr(host_comm, "LARGE", largest)
    monkeypatch.setattr(host_comm, "LARGE_ON_ONE_HOST", largest)


@pytest.fixture(params=["tree", "peers"])
def way(request, monkeypatch):
    """Every array over the tree, or every array as a large one."""
    force(monkeypatch, 1 << 30 if request.param == "tree" else -1)
    return request.param


def accept(server, wire, size):
    """Links of rank 0 to all others, which dial it."""
    return meet(0, {}, range(1, size), server, wire)


def dial(address, wire, rank):
    """The link of a rank to rank 0."""
    return meet(rank, {0: address}, (), None, wire)[0]


@contextlib.contextmanager
def sessions_of(size, tls=()):
    """Of all ranks; None of a single one."""
    if size == 1:
        yield [None]
        return
    listeners = [listen("127.0.0.1") for _ in range(size)]
    addresses = [listener.getsockname() for listener in listeners]
    with ThreadPoolExecutor(size) as pool:
        opening = [
            pool.submit(Session.open, rank, Wire(b"key", Abort(), SOON, *tls), addresses, listeners[rank])
            for rank in range(size)
        ]
    sessions = [each.result() for each in opening]
    yield sessions
    for session in sessions:
        session.close()


def run_threads(function, size, x=None, *, parameters=None, timeout=100.0, memory_limit=None, aborts=None, tls=()):
    """Results of all ranks, exceptions included."""
    dataset = open_dataset(np.arange(5000.0).reshape(-1, 2) if x is None else x)
    partition = Partition.plan(dataset.shape[0], size)
    aborts = aborts or [Abort() for _ in range(size)]
    spec = RunSpec(function, parameters or {}, memory_limit=memory_limit, timeout=timeout)
    with sessions_of(size, tls) as sessions, ThreadPoolExecutor(size) as pool:

        def one(rank):
            try:
                assignment = RankAssignment(spec, "run", rank, partition, "cpu")
                done = run_rank(assignment, dataset, aborts[rank], sessions[rank])
                return done.report.error or done.value
            except BaseException as error:
                return error

        return list(pool.map(one, range(size)))


@pytest.mark.parametrize("size", SIZES)
def test_collectives(size, way):
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


@pytest.mark.parametrize("size", range(1, 10))
@pytest.mark.parametrize(
    ("dtype", "op"), [("int64", "sum"), ("uint64", "sum"), ("int32", "max"), ("float32", "max"), ("float64", "min")]
)
def test_reductions_have_the_numbers_of_numpy(size, dtype, op, monkeypatch):
    """Lengths on both sides of the limit, for every number of children."""
    force(monkeypatch, 1024)
    most = 1024 // np.dtype(dtype).itemsize
    lengths = [0, 1, 7, *(most // count + more for count in (4, 3, 2, 1) for more in (0, 1))]
    expected = []
    for length in lengths:
        total = rank_jobs.numbers_of(0, dtype, length)
        for rank in range(1, size):
            total = host_comm.REDUCE[op](total, rank_jobs.numbers_of(rank, dtype, length))
        expected.append(total)
    seen = run_threads(rank_jobs.reductions, size, parameters={"dtype": dtype, "op": op, "lengths": lengths})[0]
    assert len(seen) == size
    for found, in_place in seen:
        for want, got, written in zip(expected, found, in_place, strict=True):
            assert got.dtype == want.dtype and got.tobytes() == want.tobytes() == written.tobytes()


@pytest.mark.parametrize("size", range(1, 10))
def test_gathers_and_broadcasts_have_the_numbers_of_numpy(size, monkeypatch):
    force(monkeypatch, 1024)
    lengths = [0, 1, 6, 7, 8, 9, 15, 16, 24, 25, 31, 32, 33, 64, 65, 128, 129, 257]
    numbers = rank_jobs.numbers_of
    joined = [np.concatenate([numbers(r, "float32", n + r % 3) for r in range(size)]) for n in lengths]
    sent = [numbers(root, "int64", length) for root in range(size) for length in lengths]
    seen = run_threads(rank_jobs.gathers, size, parameters={"lengths": lengths})[0]
    assert len(seen) == size
    for columns, shared, arrays in seen:
        for want, column, array in zip(joined, columns, shared, strict=True):
            np.testing.assert_array_equal(want[:, None], column)
            np.testing.assert_array_equal(want, array)
        for want, got in zip(sent, arrays, strict=True):
            np.testing.assert_array_equal(want, got)


def test_messages_grow_with_the_logarithm_of_the_ranks(monkeypatch):
    """On rank 0 of 64 a reduction was 126 messages; large sums 252 on each rank."""
    force(monkeypatch, 1 << 14)
    seen = run_threads(rank_jobs.messages_of_each, 64, parameters={"length": 4096})[0]
    assert seen.shape == (64, 4, 2)
    small, large = seen[:, :3].sum(axis=2), seen[:, 3]
    assert small[0].max() <= 8
    assert small.max() <= 10
    assert (small.sum(axis=0) == [4 * 63, 2 * 63, 4 * 63]).all()  # each both sent and received
    assert (large == 12).all()


@pytest.mark.parametrize("size", SIZES)
def test_stream_takes_every_block_to_every_rank_in_global_order(size, way):
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
def test_equal_bits_on_any_number_of_ranks_resident_or_not(way):
    x = np.random.default_rng(1).normal(size=(5500, 5)).astype(np.float32)
    row = 5 * 4 * 1024
    results = {
        (size, limit): run_threads(rank_jobs.gram, size, x, memory_limit=limit)[0]
        for size in SIZES
        for limit in (None, 9 * row + row // 2)
    }
    reference = results[1, None]
    assert reference[2]
    assert not results[1, 9 * row + row // 2][2]
    for sums, mean, _ in results.values():
        assert sums.tobytes() == reference[0].tobytes()
        assert mean.tobytes() == reference[1].tobytes()


def test_ranks_without_rows_take_part(way):
    sums, _, _ = run_threads(rank_jobs.gram, 4, np.random.default_rng(1).normal(size=(30, 2)))[0]
    assert sums.shape == (30,)


@pytest.mark.parametrize("size", [1, 3])
def test_sum_of_floats_is_refused(size):
    for error in run_threads(rank_jobs.float_sum, size):
        assert isinstance(error, (TypeError, PeerLost))


def test_collective_inside_a_stream_is_refused(way):
    errors = run_threads(rank_jobs.early, 2)
    assert any(type(error) is RuntimeError and "before stream()" in str(error) for error in errors)


def test_ranks_in_different_collectives_are_told(way):
    errors = run_threads(rank_jobs.disagree, 2)
    assert any("ranks disagree" in str(error) for error in errors)


@pytest.mark.parametrize(("size", "failing"), [(3, 0), (3, 2), (9, 0), (9, 4), (9, 8)])
def test_failure_of_one_rank_ends_all_at_once(size, failing, way):
    began = time.monotonic()
    errors = run_threads(rank_jobs.fail_on, size, parameters={"rank": failing})
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


@pytest.mark.parametrize("size", [2, 5])
def test_ranks_wait_for_a_rank_that_works_alone_longer_than_the_deadline(size):
    def alone(context):
        if context.rank == 0:
            time.sleep(1.6)
        context.comm.barrier(limited=False)
        return int(context.comm.all_reduce(np.ones(1, np.int64))[0])  # the deadline is in force again

    assert run_threads(alone, size, timeout=1.0) == [size] + [None] * (size - 1)


def test_an_error_of_a_rank_that_works_alone_ends_the_wait():
    def alone(context):
        if context.rank == 0:
            time.sleep(1.2)
            raise RunFailed("no more memory")
        context.comm.barrier(limited=False)

    errors = run_threads(alone, 3, timeout=1.0)
    assert "no more memory" in str(errors[0])
    assert all(isinstance(error, RunFailed) for error in errors[1:])


def test_parcels_of_rank_0_may_take_longer_than_the_deadline(monkeypatch):
    """Other ranks gave up after the 300 s of a collective."""
    from mgclust.algorithms.parcellation import ranks

    found = ranks.move_borders

    def slow(*arguments):
        time.sleep(1.6)
        return found(*arguments)

    monkeypatch.setattr(ranks, "move_borders", slow)
    line = np.arange(40)
    parameters = {
        "numbers": (4,),
        "algorithm": "ward",
        "compactness": 0.01,
        "evaluated": False,
        "starts": np.r_[0, 1 + 2 * line[:-1], 78],
        "columns": np.c_[line - 1, line + 1].ravel()[1:-1].astype(np.int32),
        "coordinates": None,
        "runs": [(0, 30)],
        "subjects": None,
        "seed": 0,
    }
    x = np.random.default_rng(0).normal(size=(40, 30)).astype(np.float32)
    first, other = run_threads(ranks.parcellate, 2, x, parameters=parameters, timeout=1.0)
    assert first.numbers == (4,) and other is None


def test_a_deadline_counts_from_the_last_byte(monkeypatch):
    """A slow peer that goes on sending is waited for; one that says no more is given up."""
    clock, array = [0.0], np.arange(3, dtype=np.int64)
    monkeypatch.setattr(wire_module, "time", SimpleNamespace(monotonic=lambda: clock[0]))
    monkeypatch.setattr(wire_module, "POLL_SECONDS", 1e-3)
    header = json.dumps(["gather", array.dtype.str, [3]]).encode()
    message = struct.pack("!I", len(header)) + header + array.tobytes()
    with socket.create_server(("127.0.0.1", 0)) as server:
        near, far = socket.create_connection(server.getsockname()), server.accept()[0]
    wire = Wire(b"key", Abort(), 1.0)
    with contextlib.closing(Link(near, wire, 1)) as link, far:

        def watch(_):
            clock[0] += 0.6
            if pieces:
                far.sendall(pieces.pop(0))
                select.select([near], [], [], SOON)

        wire.watch, pieces = watch, [message[i : i + 8] for i in range(0, len(message), 8)]
        np.testing.assert_array_equal(link.receive("gather"), array)
        assert clock[0] > 3.0 and not pieces
        pieces, began = [message[:8], message[8:16]], clock[0]
        with pytest.raises(CollectiveTimeout, match=r"rank 1 did not answer within timeout=1 s in gather"):
            link.receive("gather")
        assert 2.2 < clock[0] - began < 3.5  # two pieces, and the timeout after them


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
    monkeypatch.setattr(handshake, "HANDSHAKE_SECONDS", 60.0)
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
            patch.setattr(handshake, "HANDSHAKE_SECONDS", 0.5)
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
    number, nonce = struct.pack("!II", 1, 0), bytes(32)
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
        patch.setattr(handshake, "HANDSHAKE_SECONDS", 0.3)
        dial(silent.getsockname(), Wire(b"k", Abort(), 0.5), 1)
    assert time.monotonic() - began < SOON
    silent.close()


def test_a_rank_is_not_called_again_once_it_may_have_the_link(monkeypatch):
    """The last word of the other end comes after the limit: before, the second call found its port closed."""
    monkeypatch.setattr(handshake, "HANDSHAKE_SECONDS", 0.2)
    wire, server = Wire(b"key", Abort(), SOON), listen("127.0.0.1")
    with ThreadPoolExecutor(1) as pool, server:
        dialled = pool.submit(dial, server.getsockname(), wire, 1)
        with contextlib.closing(server.accept()[0]) as sock:
            server.close()
            first = sock.recv(72, socket.MSG_WAITALL)
            ranks, nonces = first[:8], first[8:40] + bytes(32)
            sock.sendall(bytes(32) + wire.proof(b"accept", ranks, nonces))
            assert sock.recv(32, socket.MSG_WAITALL) == wire.proof(b"confirm", ranks, nonces)
            time.sleep(0.5)
            sock.sendall(handshake.READY)
            link = dialled.result()
            Link(sock, wire, 1).send("x", np.arange(3))
            assert link.receive("x").tolist() == [0, 1, 2]


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


def test_ranks_listen_on_ports_of_the_range_that_is_set(monkeypatch):
    with contextlib.closing(listen("127.0.0.1")) as server:
        free = server.getsockname()[1]
    monkeypatch.setenv(handshake.PORTS, f"{free}-{free}")
    with contextlib.closing(listen("192.0.2.1", "127.0.0.1")) as server:
        assert server.getsockname()[1] == free
        with pytest.raises(RunFailed, match=rf"{handshake.PORTS}={free}-{free} are in use on 127\.0\.0\.1; .* longer"):
            listen("127.0.0.1")
    monkeypatch.setenv(handshake.PORTS, "0")
    with contextlib.closing(listen("127.0.0.1")) as server:
        assert server.getsockname()[1] > 0


@pytest.mark.parametrize("given", ["x", "5-", "-5", "9-8", "0-9", "1-65536", "1,2", "1.5"])
def test_ports_that_are_none(given, monkeypatch):
    monkeypatch.setenv(handshake.PORTS, given)
    with pytest.raises(RunFailed, match=rf"{handshake.PORTS}='{given}' must be a range of ports .* 41000-41099, or 0"):
        listen("127.0.0.1")


@pytest.mark.parametrize("limits", ["soft", "hard"])
def test_the_limit_of_open_files(limits):
    """A rank with more links than it may open raises its own limit, or says which one is too small, at once."""
    program = """
import resource, sys, time
from mgclust.engine.abort import Abort
from mgclust.engine.transport.handshake import listen, meet
from mgclust.engine.transport.wire import Wire
server, low = listen("127.0.0.1"), 64
resource.setrlimit(resource.RLIMIT_NOFILE, (low, low if sys.argv[1] == "hard" else 300))
began = time.monotonic()
try:
    meet(0, {}, range(1, 101), server, Wire(b"key", Abort(), 0.2))
except Exception as error:
    print(type(error).__name__, resource.getrlimit(resource.RLIMIT_NOFILE)[0], error)
"""
    told = subprocess.run(
        [sys.executable, "-c", program, limits], capture_output=True, text=True, check=True, timeout=SOON
    ).stdout
    if limits == "soft":
        assert told.startswith("CollectiveTimeout 300 rank(s) [1, 2,")
    else:
        assert told.startswith("RunFailed 64 a rank needs 100 more open files")
        assert "may have 64 (ulimit -n); raise the hard limit of the workers to" in told


def test_no_file_for_a_rank_that_calls(monkeypatch):
    """Strangers give way; where none is there, the rank says what is too small instead of waiting."""
    server = listen("127.0.0.1")

    def full(*_):
        raise OSError(errno.EMFILE, "Too many open files")

    with contextlib.closing(server), socket.create_connection(server.getsockname()) as caller:
        short = SimpleNamespace(accept=full, setblocking=server.setblocking, fileno=server.fileno)
        with pytest.raises(RunFailed, match=r"cannot open another connection: Too many open files \(ulimit -n is \d+"):
            meet(0, {}, [1], short, Wire(b"key", Abort(), SOON))
        monkeypatch.setattr(handshake.socket, "socket", full)
        with pytest.raises(RunFailed, match="cannot open another connection"):
            meet(1, {0: caller.getpeername()}, (), None, Wire(b"key", Abort(), SOON))


def test_a_missing_rank_is_named():
    server = listen("127.0.0.1")
    with pytest.raises(CollectiveTimeout, match=r"rank\(s\) \[1, 2\]"):
        accept(server, Wire(b"k", Abort(), 0.3), 3)


def test_bytes_are_counted_on_both_ends():
    seen = run_threads(rank_jobs.counted, 2)[0]
    (sent, received), (back, there) = seen.tolist()
    assert (sent, received) == (there, back)
    assert sent >= 8000


@pytest.mark.parametrize("encrypted", [False, True])
@pytest.mark.parametrize("size", [2, 5, 6, 8, 9])
def test_both_ways_have_the_same_bits(size, encrypted, monkeypatch):
    """Of random arrays with what depends on the order, 0 and -0, and of lengths with empty ones."""
    tls = contexts() if encrypted else ()
    force(monkeypatch, 1 << 30)
    tree = run_threads(rank_jobs.many_collectives, size, tls=tls)[0]
    force(monkeypatch, -1)
    direct = run_threads(rank_jobs.many_collectives, size, tls=tls)[0]
    assert len(tree) == size
    for one, other in zip(tree, direct, strict=True):
        assert [array.dtype for array in one] == [array.dtype for array in other]
        assert [array.shape for array in one] == [array.shape for array in other]
        assert [array.tobytes() for array in one] == [array.tobytes() for array in other]


def test_large_arrays_pass_no_rank_twice():
    """Each rank sends and receives less than twice what is there in all; over rank 0 it would be seven times."""
    for sent, received in run_threads(rank_jobs.bytes_of_large, 8)[0]:
        assert max(*sent, *received) < 2 * rank_jobs.LARGE_BYTES
        assert sum(sent) == sum(received) > 0


def meeting_of(size, wires):
    """Futures of what ranks 1 to `size` have, their ports, and what ends it."""
    servers = [listen("127.0.0.1") for _ in range(size)]
    addresses = [server.getsockname() for server in servers]
    given = [
        (rank, {peer: addresses[peer] for peer in range(1, rank)}, range(rank + 1, size), servers[rank], wires[rank])
        for rank in range(1, size)
    ]
    return servers, addresses, given


def test_strangers_at_the_port_of_a_rank_are_turned_away():
    """Silent ones, garbage, a wrong key; the key, but a rank that does not call this one, or has called another."""
    wires = [Wire(b"right", Abort(), SOON) for _ in range(4)]
    servers, addresses, given = meeting_of(4, wires)
    wire = wires[2]

    def first(caller, called, key=wire):
        ranks, nonce = struct.pack("!II", caller, called), bytes(32)
        return ranks + nonce + key.proof(b"dial", ranks, nonce)

    wrong = first(3, 2, Wire(b"wrong", Abort(), SOON))
    said = [b"", b"GET / HTTP/1.1\r\n" + b"x" * 100, wrong, first(1, 2), first(2, 2), first(7, 2), first(3, 1)]
    strangers = [socket.create_connection(addresses[2], timeout=SOON) for _ in said]
    for sock, words in zip(strangers, said, strict=True):
        sock.sendall(words)
    with ThreadPoolExecutor(3) as pool:
        links = [each.result() for each in [pool.submit(meet, *each) for each in given]]
    assert [sorted(each) for each in links] == [[2, 3], [1, 3], [1, 2]]
    links[0][3].send("x", np.arange(3))
    assert links[2][1].receive("x").tolist() == [0, 1, 2]
    assert [hears(sock) for sock in strangers] == [b""] * len(said)
    for each in [*servers, *strangers, *(link for those in links for link in those.values())]:
        each.close()


def test_a_rank_that_cannot_be_reached_is_named():
    wires = [Wire(b"key", Abort(), SOON) for _ in range(3)]
    servers, _, given = meeting_of(3, wires)
    servers[1].close()
    with pytest.raises(PeerLost, match=r"rank 2 cannot reach rank 1 at 127\.0\.0\.1:\d+: .* firewall"):
        meet(*given[1])
    for server in servers:
        server.close()


def test_no_port_stays_open_and_connections_are_made_once(monkeypatch):
    opened = []
    monkeypatch.setattr(host_comm, "listen", lambda *hosts: opened.append(listen(*hosts)) or opened[-1])
    force(monkeypatch, -1)
    before = psutil.Process().num_fds()
    assert len(run_threads(rank_jobs.links_before_and_after, 6)[0]) == 2
    assert psutil.Process().num_fds() == before
    assert opened
    assert all(server.fileno() < 0 for server in opened)


@pytest.mark.parametrize("leaving", [0, 2])
def test_a_rank_that_leaves_in_the_middle_of_a_ring_ends_all(leaving, monkeypatch):
    """Twenty times, each time after another number of blocks; no thread is left."""
    force(monkeypatch, -1)
    before = threading.active_count()
    x = np.ones((4 * 1024, 16), np.float32)
    for after in range(20):
        began = time.monotonic()
        errors = run_threads(rank_jobs.leave_stream, 4, x, parameters={"rank": leaving, "after": after % 4})
        assert time.monotonic() - began < SOON
        for rank, error in enumerate(errors):
            assert isinstance(error, InputError if rank == leaving else PeerLost)
    assert threading.active_count() <= before + 1  # a pump looks up five times a second


@pytest.mark.parametrize("hanging", [0, 3, 8])
def test_who_waits_for_whom_in_a_tree(hanging):
    """From any rank that waits, one after the other leads to the one that hangs."""
    ended, size = threading.Semaphore(0), 9

    def hang(context):
        if context.rank == hanging:
            for _ in range(size - 1):
                assert ended.acquire(timeout=SOON)
            return
        try:
            context.comm.barrier()
        finally:
            ended.release()

    errors = run_threads(hang, size, timeout=0.8)
    waits = {rank: waited_for(error)[1] for rank, error in enumerate(errors) if isinstance(error, Exception)}
    assert any(isinstance(error, CollectiveTimeout) for error in errors)
    for rank in waits:
        seen = []
        while waits.get(rank) and rank not in seen:
            seen.append(rank)
            rank = waits[rank][0]
        assert not seen or rank == hanging


def test_who_waits_for_whom_in_a_ring(monkeypatch):
    """The rank behind the one that hangs, whichever gives up first."""
    force(monkeypatch, -1)
    ended = threading.Semaphore(0)

    def hang(context):
        if context.rank == 1:
            for _ in range(3):
                assert ended.acquire(timeout=SOON)
            return
        try:
            context.comm.all_gather(np.zeros(9))
        finally:
            ended.release()

    errors = run_threads(hang, 4, timeout=0.6)
    waits = {rank: waited_for(error)[1] for rank, error in enumerate(errors) if isinstance(error, Exception)}
    assert any(isinstance(error, CollectiveTimeout) for error in errors)
    assert 1 not in waits or waits[1] == []
    assert waits[0] == [1]


def pair(wire):
    """Two ends of a connection."""
    with listen("127.0.0.1") as server:
        there = socket.create_connection(server.getsockname())
        return Link(server.accept()[0], wire, 1), Link(there, wire, 0)


def test_an_array_is_passed_on_before_it_has_arrived():
    wire = Wire(b"k", Abort(), SOON)
    (first, second), (third, fourth) = pair(wire), pair(wire)
    array = np.arange(3_000_000)
    with ThreadPoolExecutor(1) as pool:
        passing = pool.submit(together, Wire(b"k", Abort(), SOON), "x", relay(second, third, "x"))
        sending, receiving = first.sending("x", array), fourth.receiving("x")
        got = together(wire, "x", receiving, sending)[0]
        np.testing.assert_array_equal(passing.result()[0], array)
    np.testing.assert_array_equal(got, array)
    for link in (first, second, third, fourth):
        link.close()


def test_both_directions_of_a_link_at_once():
    """More than buffers hold: one after the other, both ends would wait for ever."""
    wires = [Wire(b"k", Abort(), 10.0) for _ in range(2)]
    one, other = pair(wires[0])
    arrays = [np.arange(1 << 21) + number for number in range(2)]

    def swap(link, array, wire):
        return together(wire, "x", link.sending("x", array), link.receiving("x"))[1]

    other._wire = wires[1]
    with ThreadPoolExecutor(1) as pool:
        there = pool.submit(swap, other, arrays[1], wires[1])
        np.testing.assert_array_equal(swap(one, arrays[0], wires[0]), arrays[1])
        np.testing.assert_array_equal(there.result(), arrays[0])
    one.close()
    other.close()
