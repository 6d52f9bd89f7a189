"""`spmd.run` in-process and on Dask workers."""

from __future__ import annotations

import gc
import subprocess
import sys
import threading
import time
import weakref
from types import SimpleNamespace

import numpy as np
import pytest

from mgclust.base.errors import InputError, InsufficientMemoryError, RunCancelled, RunFailed
from mgclust.data import open_dataset
from mgclust.engine import spmd
from support import rank_jobs

pytestmark = pytest.mark.xdist_group("workers")
SIZES = [1, 2, 3, 4]


@pytest.fixture
def x():
    return np.random.default_rng(3).normal(size=(6500, 3)).astype(np.float32)


@pytest.mark.parametrize("size", SIZES)
def test_collectives(ranks, size, x):
    with ranks(size) as cluster:
        outcome = spmd.run(spmd.RunSpec(rank_jobs.collectives), open_dataset(x), cluster)
    assert outcome.ranks == size == cluster.size
    np.testing.assert_array_equal(outcome.value[0], np.arange(5) * sum(range(1, size + 1)))
    assert len(outcome.hardware["devices"]) == size
    assert outcome.hardware["device"] == "cpu"
    assert outcome.hardware["versions"]["numpy"] == np.__version__


@pytest.mark.parametrize("size", [1, 3])
def test_collectives_of_device_arrays(ranks, size, x):
    with ranks(size) as cluster:
        value = spmd.run(spmd.RunSpec(rank_jobs.device_collectives), open_dataset(x), cluster).value
    sums, highest, gathered, sent, exchanged, shares = value
    np.testing.assert_array_equal(sums, np.arange(200_000) * sum(range(1, size + 1)))
    assert highest.tolist() == [size - 1, 0]
    expected = np.concatenate([np.full((rank, 2), rank, np.float32) for rank in range(size)])
    np.testing.assert_array_equal(gathered, expected)
    assert sent.tolist() == [[1.5, size - 1]]
    each = range(size)
    assert exchanged.tolist() == [10 * r + p for p in each for r in each for _ in range(r * p)]
    assert shares.tolist() == [r for r in each for _ in range(r + 1)] * size


def test_equal_bits_on_any_number_of_ranks(ranks, x):
    answers = []
    for size in SIZES:
        with ranks(size) as cluster:
            outcome = spmd.run(
                spmd.RunSpec(rank_jobs.gram, memory_limit=115_000 if size > 2 else None), open_dataset(x), cluster
            )
        answers.append(outcome.value[0].tobytes())
        assert outcome.timings["pairs"] > 0
        assert outcome.timings["load"] > 0
    assert len(set(answers)) == 1


def test_every_rank_has_its_own_process_and_an_equal_share_of_cores(ranks, x):
    with ranks(4) as cluster:
        found = spmd.run(spmd.RunSpec(rank_jobs.where), open_dataset(x), cluster).value
    assert len(set(found[:, 0])) == 4
    assert len(set(found[:, 1])) == 1
    assert found[0, 1] >= 1


@pytest.mark.parametrize("size", [1, 3])
@pytest.mark.parametrize("kind", ["array", "npy", "dask"])
def test_rows_arrive_from_every_source(ranks, size, kind, x, tmp_path):
    if kind == "npy":
        np.save(tmp_path / "x.npy", x)
        source = tmp_path / "x.npy"
    elif kind == "dask":
        import dask.array

        source = dask.array.from_array(x, chunks=(1700, 2))
    else:
        source = x
    with ranks(size) as cluster:
        rows, ranges = spmd.run(spmd.RunSpec(rank_jobs.row_ranges), open_dataset(source), cluster).value
    np.testing.assert_array_equal(rows, x)
    assert ranges[0, 0] == 0
    assert ranges[-1, 1] == len(x)


def test_chunks_that_live_on_workers_stay_there(client, ranks, x):
    """Chunk k is put on worker (k + 1) % 4: ranks should be numbered so that nothing moves."""
    import dask.array

    from mgclust.engine.dask.placement import place
    from mgclust.engine.partition import Partition

    x = x[: 4 * 1024]
    with ranks(4) as cluster:
        addresses = list(cluster.workers)
        futures = [
            client.scatter(x[i * 1024 : (i + 1) * 1024], workers=[addresses[(i + 1) % 4]], hash=False) for i in range(4)
        ]
        array = dask.array.concatenate(
            [dask.array.from_delayed(future, (1024, 3), np.float32) for future in futures], axis=0
        )
        order, _, holders = place(client, open_dataset(array), Partition.plan(4096, 4), dict.fromkeys(addresses, ""))
        assert order == addresses[1:] + addresses[:1] and holders == set(addresses)
        rows, _ = spmd.run(spmd.RunSpec(rank_jobs.row_ranges), open_dataset(array), cluster).value
    np.testing.assert_array_equal(rows, x)


@pytest.mark.parametrize("size", [1, 3])
def test_not_finite_values_are_counted_over_all_ranks(ranks, size, x):
    x[[3001, 5000, 6400], 1] = [np.inf, np.nan, np.nan]
    message = r"NaN or infinity.* 3 of 19500 .* row 3001 "
    with ranks(size) as cluster, pytest.raises(InputError, match=message):
        spmd.run(spmd.RunSpec(rank_jobs.where), open_dataset(x), cluster)


def test_values_too_large_for_the_dtype_are_refused(ranks):
    x = np.ones((10, 2))
    x[4, 0] = 1e300
    with ranks(1) as cluster:
        with pytest.raises(InputError, match="too large for float32"):
            spmd.run(spmd.RunSpec(rank_jobs.where), open_dataset(x), cluster)
        spmd.run(spmd.RunSpec(rank_jobs.where, dtype="float64"), open_dataset(x), cluster)


@pytest.mark.parametrize("size", [1, 2])
def test_refused_for_memory_before_anything_runs(ranks, size, x):
    with ranks(size) as cluster:
        with pytest.raises(InsufficientMemoryError, match=r"needs .* TiB .*kept .* is free\. What would fit"):
            spmd.run(spmd.RunSpec(rank_jobs.where, estimate=rank_jobs.needs_memory), open_dataset(x), cluster)
        with pytest.raises(InsufficientMemoryError, match="rows"):
            spmd.run(spmd.RunSpec(rank_jobs.where, memory_limit=1000), open_dataset(x), cluster)
        spmd.run(spmd.RunSpec(rank_jobs.where, estimate=rank_jobs.needs_little), open_dataset(x), cluster)


@pytest.mark.parametrize("what", ["not finite", "memory", "function"])
def test_rows_that_were_refused_are_given_back(ranks, what):
    """At once, not when Python next looks for garbage."""
    x = np.ones((10, 2), np.float32)
    x[4, 0] = np.nan if what == "not finite" else 1
    alive = weakref.ref(x)
    limit = 10 if what == "memory" else None
    gc.disable()
    try:
        with ranks(1) as cluster:
            try:
                spmd.run(spmd.RunSpec(rank_jobs.fail_on, {"rank": 0}, memory_limit=limit), open_dataset(x), cluster)
            except (InputError, InsufficientMemoryError) as error:
                caught = type(error)
        del x
        assert (caught is InsufficientMemoryError) == (what == "memory") and alive() is None
    finally:
        gc.enable()


@pytest.mark.parametrize("size", [1, 3])
def test_a_file_that_vanished_is_one_sentence(ranks, size, x, tmp_path):
    np.save(tmp_path / "x.npy", x)
    dataset = open_dataset(tmp_path / "x.npy")
    (tmp_path / "x.npy").unlink()
    with ranks(size) as cluster, pytest.raises(InputError, match=r"x\.npy"):
        spmd.run(spmd.RunSpec(rank_jobs.where), dataset, cluster)


@pytest.mark.parametrize("size", [1, 3])
def test_errors_keep_their_type(ranks, size, x):
    with ranks(size) as cluster:
        last = {"rank": size - 1}
        with pytest.raises(InputError, match="k=3 should be < 2"):
            spmd.run(spmd.RunSpec(rank_jobs.fail_on, last), open_dataset(x), cluster)
        with pytest.raises(ZeroDivisionError, match="a mistake") as caught:
            spmd.run(spmd.RunSpec(rank_jobs.fail_on, {**last, "kind": "bug"}), open_dataset(x), cluster)
        if size > 1:
            assert "in fail_on" in "".join(caught.value.__notes__)
        spmd.run(spmd.RunSpec(rank_jobs.where), open_dataset(x), cluster)


def test_a_rank_that_hangs_is_a_timeout(ranks, x, tmp_path):
    given = {"rank": 2, "folder": str(tmp_path)}
    with ranks(3) as cluster, pytest.raises(RunFailed, match=r"rank 2 .* timeout=2.5 s"):
        spmd.run(spmd.RunSpec(rank_jobs.hang, given, timeout=2.5), open_dataset(x), cluster)


@pytest.mark.parametrize("size", [1, 2])
def test_progress_arrives_in_order_in_the_callers_thread(ranks, size, x, tmp_path):
    events = []

    def note(event):
        assert threading.current_thread() is threading.main_thread()
        events.append(event)

    with ranks(size) as cluster:
        parameters = {"folder": str(tmp_path), "tiles": 30, "seconds": 0.02}
        spmd.run(spmd.RunSpec(rank_jobs.slow, parameters), open_dataset(x), cluster, note)
    slow = [event for event in events if event["stage"] == "slow"]
    assert len(slow) >= 3
    assert [event["fraction"] for event in slow] == sorted(event["fraction"] for event in slow)
    assert set(slow[0]) == {"stage", "fraction", "elapsed", "stage_rate", "stage_eta"}


@pytest.mark.parametrize("size", [1, 3])
def test_cancelled_from_the_progress(ranks, size, x, tmp_path):
    def cancel(event):
        if event["stage"] == "slow" and event["fraction"] > 0:
            raise RunCancelled("enough.")

    began = time.monotonic()
    with ranks(size) as cluster, pytest.raises(RunCancelled, match="enough"):
        spmd.run(
            spmd.RunSpec(rank_jobs.slow, {"folder": str(tmp_path), "tiles": 6000}), open_dataset(x), cluster, cancel
        )
    assert time.monotonic() - began < 60  # and not the five minutes of all steps
    assert len(list(tmp_path.glob("left-*"))) == size
    assert not list(tmp_path.glob("done-*"))


def test_in_process_runs_do_not_import_dask():
    code = (
        "import sys, numpy as np\n"
        "from mgclust.data import open_dataset\n"
        "from mgclust.engine import spmd\n"
        "from mgclust.engine.dask.cluster import connect\n"
        "from support import rank_jobs\n"
        "with connect('auto', 'cpu') as cluster:\n"
        "    spmd.run(spmd.RunSpec(rank_jobs.collectives), open_dataset(np.ones((9, 2))), cluster)\n"
        "print([name for name in ('dask', 'distributed', 'cupy') if name in sys.modules])\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env={"PYTHONPATH": ":".join(sys.path)}
    )
    assert done.stdout.strip() == "[]", done.stderr


def test_notes_survive_exceptions_that_lose_them(monkeypatch):
    from mgclust.engine.dask import tasks

    # As CuPy's exceptions arrive, which are compiled and keep their arguments alone.
    arriving = SimpleNamespace(dumps=repr, loads=lambda text: ArithmeticError("invalid argument"))
    monkeypatch.setattr(tasks, "pickle", arriving)
    found = tasks.Failure.of(ArithmeticError("invalid argument"), 1, "tcp://127.0.0.1:1").error
    assert isinstance(found, RunFailed)
    assert str(found) == "rank 1 (tcp://127.0.0.1:1) failed: ArithmeticError: invalid argument"
    assert "on rank 1" in "".join(found.__notes__)
