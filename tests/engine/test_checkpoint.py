"""Checkpoints on one rank: when one is due, that it is whole or not there, and from which of them a run resumes."""

import contextlib
import json
import os
import resource
import shutil
import signal
import threading
import time

import numpy as np
import pytest

from mgclust import DensityPeaks
from mgclust.base.errors import InputError
from mgclust.data import open_dataset
from mgclust.engine import checkpoint_files, spmd
from mgclust.engine.checkpoint import CheckpointConfig, Checkpointer
from mgclust.engine.dask.cluster import connect

N = 2500  # three blocks


@pytest.fixture
def run(tmp_path):
    """Run a function of the context with checkpoints in ``tmp_path / "kept"``; its value and the events."""

    def call(function, *, seconds=0.0, share=1.0, strict=True, **facts):
        events = []
        plan = CheckpointConfig(tmp_path / "kept", seconds, share, strict).of_run(facts)
        with connect(None, "cpu") as cluster:
            dataset = open_dataset(np.zeros((N, 2), np.float32))
            outcome = spmd.run(spmd.RunSpec(function, checkpoint=plan), dataset, cluster, events.append)
        return outcome.value, events

    return call


def save(context, number, bulk=1):
    rows = np.arange(N * bulk, dtype=np.float64).reshape(N, bulk) + number
    context.checkpoint.save({"number": number, "infinite": float("inf")}, {"alike": np.full(3, number)}, {"rows": rows})


def saving(*numbers):
    def function(context):
        loaded = context.checkpoint.load()
        for number in numbers:
            save(context, number)
        return loaded

    return function


def loading(context):
    saved = context.checkpoint.load()
    if saved is None:
        return None
    rows = np.full((N, 1), np.nan)
    for place, part in saved.rows("rows"):
        rows[place] = part
    np.testing.assert_array_equal(rows[:, 0], np.arange(N) + saved.control["number"])
    assert saved.arrays["alike"].tolist() == 3 * [saved.control["number"]] and saved.control["infinite"] == np.inf
    return saved.control["number"]


def warnings(events):
    return [event["warning"] for event in events if "warning" in event]


def test_what_was_saved_last_is_found_and_two_are_kept(run, tmp_path):
    run(saving(1, 2, 3))
    assert sorted(os.listdir(tmp_path / "kept")) == ["checkpoint-2", "checkpoint-3"]
    value, events = run(loading)
    assert value == 3 and "resume" in [event["stage"] for event in events] and not warnings(events)
    run(saving(4))
    assert sorted(os.listdir(tmp_path / "kept")) == ["checkpoint-3", "checkpoint-4"]


def test_nothing_without_one(tmp_path):
    def function(context):
        return context.checkpoint.load(), context.checkpoint.due(), context.checkpoint.due(seldom=True)

    with connect(None, "cpu") as cluster:
        outcome = spmd.run(spmd.RunSpec(function), open_dataset(np.zeros((N, 2))), cluster)
    assert outcome.value == (None, False, False)


def test_nothing_to_go_on_from(run):
    value, events = run(loading)
    assert value is None and "resume" not in [event["stage"] for event in events]


@pytest.mark.parametrize("how", ["flipped", "shorter", "missing", "index", "control"])
def test_a_damaged_one_is_passed_over(how, run, tmp_path):
    run(saving(1, 2))
    last = tmp_path / "kept" / "checkpoint-2"
    path = last / {"index": "checkpoint.json", "control": "control.json"}.get(how, "rows.00001.npy")
    content = bytearray(path.read_bytes())
    if how == "missing":
        path.unlink()
    else:
        content[-9] ^= 1
        path.write_bytes(content[:-20] if how == "shorter" else content)
    value, events = run(loading)
    assert value == 1
    assert len(warnings(events)) == 1 and "checkpoint-2' is damaged" in warnings(events)[0]
    # The damaged one is not among the two that are kept.
    run(saving(3))
    assert sorted(os.listdir(tmp_path / "kept")) == ["checkpoint-1", "checkpoint-3"]


def test_both_damaged_is_from_the_start(run, tmp_path):
    run(saving(1, 2))
    for number in (1, 2):
        (tmp_path / "kept" / f"checkpoint-{number}" / "rows.00002.npy").unlink()
    value, events = run(loading)
    assert value is None and len(warnings(events)) == 2


def test_another_run_is_refused_and_left_alone(run, tmp_path):
    run(saving(1), damping=0.5, preference=np.arange(3), metric="euclidean")
    assert run(loading, damping=0.5, preference=np.arange(3), metric="euclidean")[0] == 1
    with pytest.raises(
        InputError, match=r"checkpoint='.*kept' holds checkpoints of another run .*damping=0.5 there, 0.6"
    ):
        run(loading, damping=0.6, preference=np.arange(3), metric="euclidean")
    with pytest.raises(InputError, match=r"preference=.* there.*; name another folder, or remove this one\.$"):
        run(loading, damping=0.5, preference=np.arange(3.0), metric="euclidean")
    assert os.listdir(tmp_path / "kept") == ["checkpoint-1"]


def test_another_run_makes_way_where_the_folder_is_the_callers_own(run, tmp_path):
    run(saving(1, 2), damping=0.5)
    value, events = run(loading, strict=False, damping=0.6)
    assert value is None and len(warnings(events)) == 2 and "restarts" in warnings(events)[0]
    assert os.listdir(tmp_path / "kept") == []


def test_what_was_not_finished_is_cleared_and_the_rest_left_alone(run, tmp_path):
    run(saving(1))
    kept = tmp_path / "kept"
    shutil.copytree(kept / "checkpoint-1", kept / ".checkpoint-2.0a1b2c3d.partial")
    for name in ("2024", "notes"):
        (kept / name).mkdir()
    assert run(loading)[0] == 1
    assert sorted(os.listdir(kept)) == ["2024", "checkpoint-1", "notes"]
    CheckpointConfig(kept).remove()
    assert sorted(os.listdir(kept)) == ["2024", "notes"]


def test_removed_with_its_folder(run, tmp_path):
    run(saving(1, 2))
    CheckpointConfig(tmp_path / "kept").remove()
    assert os.listdir(tmp_path) == []
    CheckpointConfig(tmp_path / "kept").remove()  # there is nothing to remove


@contextlib.contextmanager
def files_of_at_most(size):
    """As on a full disk: writing more to a file fails."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    ignored = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, ignored)


def test_a_full_disk_is_a_warning(run, tmp_path):
    def function(context):
        save(context, 1)
        with files_of_at_most(20_000):
            save(context, 2, bulk=4)  # a block of 32 kB
        between = sorted(os.listdir(tmp_path / "kept"))
        save(context, 3)
        return between

    between, events = run(function)
    assert between == ["checkpoint-1"]
    assert len(warnings(events)) == 1 and warnings(events)[0].endswith("tries again later; free some disk space.")
    assert "(File too large)" in warnings(events)[0]
    assert run(loading)[0] == 3


def test_an_interrupted_write_leaves_nothing(run, tmp_path, monkeypatch):
    run(saving(1))

    def interrupted(descriptor):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(os, "fsync", interrupted)
        run(saving(2))
    assert os.listdir(tmp_path / "kept") == ["checkpoint-1"]
    assert run(loading)[0] == 1


def test_a_folder_that_cannot_be_made(tmp_path):
    plan = CheckpointConfig(tmp_path / "missing" / "kept")
    with connect(None, "cpu") as cluster, pytest.raises(InputError, match=r"No such file or directory.*another folder"):
        spmd.run(spmd.RunSpec(loading, checkpoint=plan), open_dataset(np.zeros((N, 2))), cluster)


def test_without_a_folder_the_run_goes_on(tmp_path):
    events = []
    plan = CheckpointConfig(tmp_path / "missing" / "kept", strict=False)
    with connect(None, "cpu") as cluster:
        dataset = open_dataset(np.zeros((N, 2)))
        spec = spmd.RunSpec(lambda context: context.checkpoint.due(), checkpoint=plan)
        outcome = spmd.run(spec, dataset, cluster, events.append)
    assert outcome.value is False and len(warnings(events)) == 1


@pytest.mark.parametrize("wrong", [{"seconds": -1.0}, {"seconds": float("nan")}, {"share": 0.0}, {"share": 2.0}])
def test_refused_parameters(wrong, tmp_path):
    with pytest.raises(InputError, match="should be"):
        CheckpointConfig(tmp_path, **wrong)


class Clock:
    """A clock that is set by hand."""

    def __init__(self):
        self.now = 0.0

    def perf_counter(self):
        return self.now


@pytest.fixture
def clock(monkeypatch):
    clock = Clock()
    monkeypatch.setattr("mgclust.engine.checkpoint.time", clock)
    return clock


def test_rank_0_is_asked_about_five_times_a_second(run, clock):
    def function(context):
        questions = []
        agree = context.comm.agree
        context.comm.agree = lambda value: questions.append(clock.now) or agree(value)
        due = 0
        for _ in range(100_000):
            clock.now += 0.001
            due += context.checkpoint.due()
        fast = len(questions)
        for _ in range(1000):
            clock.now += 0.5
            due += context.checkpoint.due()
        return fast, len(questions) - fast, due

    (fast, slow, due), _ = run(function, seconds=1e6)
    assert 450 <= fast <= 550 and due == 0
    assert slow >= 800  # the first of them comes late: 200 calls were expected to take a pause


def test_due_after_so_many_seconds_and_then_again(run, clock):
    def function(context):
        times = []
        for _ in range(1000):
            clock.now += 0.5
            if context.checkpoint.due():
                times.append(clock.now)
                save(context, len(times))
                clock.now += 1.0
        return times

    times, _ = run(function, seconds=60)
    assert times[0] == 60.0 and set(np.diff(times)) == {60.0}


def test_writing_takes_a_small_share_of_the_time(run, clock):
    def function(context):
        times = []
        write = context.checkpoint._write

        def slowly(*arguments):
            clock.now += 4.0
            return write(*arguments)

        context.checkpoint._write = slowly
        for _ in range(1000):
            clock.now += 0.5
            if context.checkpoint.due():
                times.append(clock.now)
                save(context, len(times))
        return times

    times, _ = run(function, seconds=10, share=0.02)
    assert times[0] == 10.0
    np.testing.assert_allclose(np.diff(times), 200, atol=0.5)


def test_seldom_asks_every_time(run, clock):
    def function(context):
        for _ in range(1000):
            clock.now += 0.001
            context.checkpoint.due()
        clock.now += 100
        return context.checkpoint.due(seldom=True)

    assert run(function, seconds=60)[0] is True


def test_index_lists_every_file(run, tmp_path):
    run(saving(1))
    folder = tmp_path / "kept" / "checkpoint-1"
    listed = json.loads((folder / "checkpoint.json").read_text())["files"]
    assert sorted([*listed, "checkpoint.json"]) == sorted(os.listdir(folder))
    assert {"rows.00000.npy", "rows.00002.npy", "alike.npy", "control.json"} <= set(listed)


def in_background(context, number, bulk=1):
    """Save rows that change as soon as they have been handed over."""
    rows = np.full((N, bulk), float(number))
    context.checkpoint.save({"number": number}, {"alike": rows[:3]}, {"rows": rows}, background=True)
    rows[:] = -1


def until_named(context, folder):
    end = time.monotonic() + 60
    while not context.checkpoint.due(seldom=True):
        assert time.monotonic() < end
    return sorted(os.listdir(folder))


@pytest.mark.parametrize("room", [0, 1 << 30])
def test_in_the_background_what_was_there_at_the_time_is_written(run, tmp_path, room, monkeypatch):
    monkeypatch.setattr("mgclust.engine.rank._room", lambda assignment: room)
    write = checkpoint_files._write

    def late(*given):
        time.sleep(0.02)
        return write(*given)

    monkeypatch.setattr(checkpoint_files, "_write", late)

    def function(context):
        in_background(context, 1)
        names = until_named(context, tmp_path / "kept")
        saved = context.checkpoint._folder / "checkpoint-1"
        written = list(saved.glob("*.npy"))
        assert written and all((np.load(path) == 1).all() for path in written)
        return names

    assert run(function)[0] == ["checkpoint-1"]


@pytest.fixture
def stopped_disk(monkeypatch):
    """No file reaches the disk before the event is set."""
    goes_on = threading.Event()
    flush = os.fsync
    monkeypatch.setattr(os, "fsync", lambda descriptor: goes_on.wait(60) and flush(descriptor))
    yield goes_on
    goes_on.set()


def test_the_run_does_not_wait_for_the_disk(run, tmp_path, stopped_disk):
    def function(context):
        in_background(context, 1)
        waiting = [context.checkpoint.due(seldom=True) for _ in range(3)]
        unnamed = os.listdir(tmp_path / "kept")
        stopped_disk.set()
        return waiting, unnamed, until_named(context, tmp_path / "kept")

    waiting, unnamed, named = run(function)[0]
    assert waiting == 3 * [False]  # one at a time, though another would be due
    assert len(unnamed) == 1 and unnamed[0].endswith(".partial") and named == ["checkpoint-1"]


def test_copies_wait_for_the_disk_where_there_is_no_room(run, tmp_path, stopped_disk, monkeypatch):
    monkeypatch.setattr("mgclust.engine.rank._room", lambda assignment: 0)

    def function(context):
        began = time.monotonic()
        threading.Timer(0.5, stopped_disk.set).start()
        in_background(context, 1)
        return time.monotonic() - began

    assert run(function)[0] > 0.4


def test_the_next_one_waits_for_the_one_before(run, tmp_path, stopped_disk):
    def function(context):
        in_background(context, 1)
        threading.Timer(0.2, stopped_disk.set).start()
        save(context, 2)
        return sorted(os.listdir(tmp_path / "kept"))

    assert run(function)[0] == ["checkpoint-1", "checkpoint-2"]


@pytest.mark.parametrize("ends", ["well", "badly"])
def test_what_has_no_name_when_the_run_ends_vanishes(run, tmp_path, stopped_disk, ends):
    def function(context):
        save(context, 1)
        stopped_disk.clear()
        in_background(context, 2)
        threading.Timer(0.2, stopped_disk.set).start()
        if ends == "badly":
            raise ZeroDivisionError

    stopped_disk.set()
    with pytest.raises(ZeroDivisionError) if ends == "badly" else contextlib.nullcontext():
        run(function)
    assert os.listdir(tmp_path / "kept") == ["checkpoint-1"]
    assert run(loading)[0] == 1


def test_a_full_disk_in_the_background_is_a_warning(run, tmp_path):
    def function(context):
        with files_of_at_most(20_000):
            in_background(context, 1, bulk=4)  # a block of 32 kB
            until_named(context, tmp_path / "kept")
        between = os.listdir(tmp_path / "kept")
        in_background(context, 2)
        until_named(context, tmp_path / "kept")
        return between

    between, events = run(function)
    assert between == []
    assert len(warnings(events)) == 1 and warnings(events)[0].endswith("tries again later; free some disk space.")
    assert os.listdir(tmp_path / "kept") == ["checkpoint-2"]


def test_threads_that_write_have_their_share_of_the_time_too(run, clock, tmp_path, monkeypatch):
    monkeypatch.setattr("mgclust.engine.checkpoint.cores", lambda: 2)
    named = Checkpointer._name
    monkeypatch.setattr(Checkpointer, "_name", lambda self, writing: named(self, writing) + 8.0)

    def function(context):
        times = []
        for _ in range(1000):
            clock.now += 0.5
            if context.checkpoint.due():
                times.append(clock.now)
                in_background(context, len(times))
                while context.checkpoint._writing is not None:
                    context.checkpoint.due(seldom=True)
        return times

    times, _ = run(function, seconds=10, share=0.02)
    np.testing.assert_allclose(np.diff(times), 196, atol=1)  # 4 of 200 seconds


@pytest.mark.parametrize(
    "problem", [MemoryError(), RuntimeError("can't start new thread"), OSError(28, "No space left")]
)
@pytest.mark.parametrize("background", [False, True])
def test_whatever_keeps_a_checkpoint_from_being_written_is_a_warning(problem, background, run, tmp_path, monkeypatch):
    def fails(path, content):
        raise problem

    def function(context):
        with monkeypatch.context() as patch:
            patch.setattr("mgclust.engine.checkpoint_files._write", fails)
            context.checkpoint.save({}, rows={"rows": np.zeros(N)}, background=background)
            until_named(context, tmp_path)
        save(context, 2)

    _, events = run(function)
    reason = getattr(problem, "strerror", None) or str(problem) or "MemoryError"
    assert len(warnings(events)) == 1 and f"({reason})" in warnings(events)[0]
    assert run(loading)[0] == 2


def test_a_path_in_the_place_of_a_checkpoint_is_refused(tmp_path):
    """It ended in an AttributeError."""
    dataset = open_dataset(np.random.default_rng(0).normal(size=(60, 2)))
    with pytest.raises(InputError, match=r"checkpoint='.*' should be a CheckpointConfig of mgclust.engine.checkpoint"):
        DensityPeaks(2, client=None, device="cpu").fit_dataset(dataset, checkpoint=str(tmp_path))
