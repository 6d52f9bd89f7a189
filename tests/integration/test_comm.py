"""Collectives over real sockets, ranks as threads of this process: no Dask."""

from __future__ import annotations

import socket
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import rank_jobs

from mgclust.data import open_dataset
from mgclust.engine.abort import Abort
from mgclust.engine.partition import Partition
from mgclust.engine.rank import Assignment, Request, execute, prepare
from mgclust.engine.wire import PeerLost, Wire, accept, dial, listen
from mgclust.errors import CollectiveTimeout, InputError, RunCancelled, RunFailed

pytestmark = pytest.mark.timeout(60)
SIZES = [1, 2, 3, 4]


def run_threads(function, size, x=None, *, parameters=None, timeout=10.0, memory_limit=None, aborts=None):
    """Results of all ranks, exceptions included."""
    dataset = open_dataset(np.arange(5000.0).reshape(-1, 2) if x is None else x)
    partition = Partition.plan(*dataset.shape, size)
    aborts = aborts or [Abort() for _ in range(size)]
    prepared = []
    for rank in range(size):
        assignment = Assignment("run", rank, partition, "float32", "cpu", memory_limit)
        prepared.append(prepare(assignment, dataset, None, aborts[rank], ["127.0.0.1"] if rank == 0 else []))
        if prepared[-1][1].error is not None:
            raise prepared[-1][1].error
    request = Request(
        function,
        parameters or {},
        prepared[0][1].run_rows,
        ("127.0.0.1", prepared[0][1].port),
        b"key",
        timeout,
    )

    def one(rank):
        try:
            return execute(prepared[rank][0], request, None)[0]
        except BaseException as error:
            return error

    with ThreadPoolExecutor(size) as pool:
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
    assert time.monotonic() - began < 2
    for rank, error in enumerate(errors):
        assert isinstance(error, InputError if rank == failing else PeerLost)


def test_a_rank_that_hangs_runs_into_the_deadline():
    began = time.monotonic()
    errors = run_threads(rank_jobs.hang, 3, parameters={"rank": 1, "seconds": 3}, timeout=0.5)
    assert time.monotonic() - began < 4
    assert isinstance(errors[0], CollectiveTimeout)
    assert "rank 1" in str(errors[0])
    assert isinstance(errors[2], RunFailed)


def test_abort_ends_a_wait():
    aborts = [Abort() for _ in range(3)]
    threading.Timer(0.5, aborts[0].set, ["somebody said so"]).start()
    began = time.monotonic()
    errors = run_threads(rank_jobs.hang, 3, parameters={"rank": 1, "seconds": 1.5}, aborts=aborts)
    assert time.monotonic() - began < 3
    assert isinstance(errors[0], RunCancelled)
    assert "somebody said so" in str(errors[0])


def test_strangers_and_wrong_keys_are_turned_away():
    server = listen("127.0.0.1")
    address = ("127.0.0.1", server.getsockname()[1])
    wire, wrong = Wire(b"right", Abort(), 5.0), Wire(b"wrong", Abort(), 1.0)
    with ThreadPoolExecutor(1) as pool:
        links = pool.submit(accept, server, wire, 2)
        with socket.create_connection(address) as stranger:
            stranger.sendall(b"GET / HTTP/1.1\r\n" + b"x" * 100)
            with pytest.raises(PeerLost):
                dial(address, wrong, 1)
        link = dial(address, wire, 1)
        links.result()[1].send("x", np.arange(3))
        assert link.receive("x").tolist() == [0, 1, 2]


def test_a_missing_rank_is_named():
    server = listen("127.0.0.1")
    with pytest.raises(CollectiveTimeout, match=r"rank\(s\) \[1, 2\]"):
        accept(server, Wire(b"k", Abort(), 0.3), 3)
