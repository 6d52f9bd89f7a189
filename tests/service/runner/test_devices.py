"""Which attempt has which GPU, and jobs that wait for GPUs."""

from __future__ import annotations

import time

import numpy as np
import psutil
import pytest

from mgclust.base.errors import InputError
from mgclust.engine.devices import Gpu
from mgclust.service.queue import access
from mgclust.service.queue.access import Caller
from mgclust.service.queue.jobs.submission import NewJob, job_id
from mgclust.service.queue.models import migrate, open_database
from mgclust.service.runner import runner
from mgclust.service.runner.devices import Devices
from mgclust.service.runner.runner import Runner
from mgclust.service.settings import Settings
from support.kernel_caches import give_kernels
from support.service_process import has_ended
from support.stranger import family
from support.waiting import wait_for
from support.whole_queue import WholeQueue

ANN, BOB, CAT, ROOT = *(Caller(name, "user") for name in ("ann", "bob", "cat")), Caller("root", "admin")


@pytest.mark.parametrize(
    ("count", "slots", "resources", "number"),
    [
        (8, 1, {}, 1),
        (8, 3, {}, 1),
        (2, 4, {}, 1),
        (8, 3, {"gpus": 5}, 5),
        (8, 3, {"gpus": None, "workers": None}, 1),
        (8, 1, {"workers": 2}, 0),
        (0, 1, {}, 0),
        (0, 1, {"workers": 2}, 0),
    ],
)
def test_number_of_gpus_of_a_job(count, slots, resources, number):
    assert Devices(map(str, range(count)), slots).number_for(resources) == number


def test_more_gpus_than_there_are():
    with pytest.raises(InputError, match="gpus=3 should be <= 2, the GPUs of the service's machine; ask for fewer"):
        Devices("ab", 2).number_for({"gpus": 3})
    with pytest.raises(InputError, match="gpus=2 cannot be given: the service's machine has no GPU; leave gpus out"):
        Devices((), 1).number_for({"gpus": 2})


@pytest.mark.parametrize(
    ("slots", "held", "number", "expected"),
    [
        (2, [], 2, ["a", "b"]),
        (2, [["b"]], 1, ["a"]),
        (2, [["a", "c"]], 1, ["b"]),
        (2, [["a", "c"]], 2, None),
        (2, [["a", "b"], ["c"]], 1, None),
        (2, [["a", "b"], ["c"]], 0, []),
        # More slots than GPUs: each is for two jobs, and the least used come first.
        (5, [["a"], ["b"]], 2, ["c", "a"]),
        (5, [["a"], ["b"], ["c"], ["a", "b"]], 1, ["c"]),
        (5, [["a"], ["b"], ["c"], ["a", "b"]], 2, None),
    ],
)
def test_free_gpus(slots, held, number, expected):
    assert Devices("abc", slots).free(number, held) == expected


def test_every_job_within_the_slots_gets_a_gpu():
    for count in range(1, 9):
        for slots in range(1, 12):
            devices, held = Devices(map(str, range(count)), slots), []
            for _ in range(slots):
                free = devices.free(devices.number_for({}), held)
                assert free is not None and len(set(free)) == len(free), (count, slots)
                held.append(free)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("NVIDIA H200", "GPU-00112233-4455-6677-8899-aabbccddeeff"),
        ("NVIDIA A100-SXM4-40GB MIG 1g.5gb", "MIG-00112233-4455-6677-8899-aabbccddeeff"),
    ],
)
def test_name_of_a_visible_device(name, expected):
    assert Gpu(name, "00112233445566778899aabbccddeeff", 1).visible_name == expected


class Process:
    """In place of an attempt's process."""

    pid = -1

    def __init__(self, server):
        self.left = False

    def send(self, order):
        self.order = order

    def ended(self):
        return self.left

    def exchange(self):
        return b""

    def close(self, at_once=False):
        pass


class Served:
    """A runner with GPUs that do not exist."""

    def __init__(self, folder, monkeypatch, count, slots, **settings):
        names = [Gpu("NVIDIA H200", f"{number:032x}", 1) for number in range(count)]
        monkeypatch.setattr(runner, "gpus", lambda: names)
        monkeypatch.setattr(runner, "why_no_gpu", lambda: "")
        self.names = [name.visible_name for name in names]
        self.settings = Settings(data=folder / "data", slots=slots, attempts=1, **settings)
        self.settings.data.mkdir()
        engine = open_database(self.settings.database)
        migrate(engine)
        for caller in (ANN, BOB, CAT, ROOT):
            access.add_user(engine, caller.name, caller.role)
        self.runner = Runner(self.settings)
        self.jobs = WholeQueue(engine, self.settings)

    def submit(self, caller=ANN, priority=0, sources=(), parameters=None, **resources):
        request = {"sources": list(sources), "parameters": parameters or {}, "resources": resources, "report": False}
        (job,) = self.jobs.submit([NewJob(job_id(caller, None), caller, "density-peaks", request, priority)])
        return job.id

    def look(self):
        """One step; the numbers of the GPUs of each running job."""
        self.runner._next_claim = 0.0
        self.runner.step()
        return {each.job.id: [self.names.index(name) for name in each.devices] for each in self.runner._running}

    def end(self, id_):
        (attempt,) = [each for each in self.runner._running if each.job.id == id_]
        attempt.process.left = True

    def order(self, id_):
        (attempt,) = [each for each in self.runner._running if each.job.id == id_]
        return attempt.process.order


@pytest.fixture
def pretended(monkeypatch):
    monkeypatch.setattr(runner.ForkServer, "start", lambda self: Process(self))
    monkeypatch.setattr(runner.Runner, "_check", lambda self, attempt: attempt.process.left)


def test_jobs_side_by_side(tmp_path, monkeypatch, pretended):
    served = Served(tmp_path, monkeypatch, 4, 3)
    one, cores, two = served.submit(), served.submit(workers=1), served.submit(gpus=2)
    assert served.look() == {one: [0], cores: [], two: [1, 2]}
    orders = [served.order(id_) for id_ in (one, cores, two)]
    assert [order["devices"] for order in orders] == [served.names[:1], [], served.names[1:3]]
    assert [order["place"] for order in orders] == [
        {"cpu": False, "workers": 1}, {"cpu": True, "workers": 1}, {"cpu": False, "gpus": 2},
    ]  # fmt: skip


def test_a_job_with_all_gpus(tmp_path, monkeypatch, pretended):
    served = Served(tmp_path, monkeypatch, 2, 1)
    id_ = served.submit(gpus=2)
    assert served.look() == {id_: [0, 1]}
    order = served.order(id_)
    assert order["devices"] is None and order["place"] == {"cpu": False, "gpus": 2}


@pytest.mark.parametrize("given", [{"cpu": True}, {"scheduler": "tls://elsewhere:8786"}])
def test_gpus_that_the_runner_does_not_allocate(given, tmp_path, monkeypatch, pretended):
    served = Served(tmp_path, monkeypatch, 2, 2, **given)
    id_ = served.submit()
    assert served.look() == {id_: []} and served.order(id_)["devices"] is None


def test_a_job_that_asks_for_too_many(tmp_path, monkeypatch, pretended):
    served = Served(tmp_path, monkeypatch, 2, 2)
    many, next_ = served.submit(gpus=3), served.submit()
    assert served.look() == {next_: [0]}
    job = served.jobs.get(ANN, many)
    assert (job.state, job.fault) == ("FAILED", "input") and "gpus=3 should be <= 2" in job.error


def test_a_job_that_asks_for_gpus_where_there_are_none(tmp_path, monkeypatch, pretended):
    served = Served(tmp_path, monkeypatch, 0, 1)
    id_ = served.submit(gpus=1)
    assert served.look() == {}
    job = served.jobs.get(ANN, id_)
    assert (job.state, job.fault) == ("FAILED", "input") and "has no GPU; leave gpus out" in job.error


def test_gpus_of_a_scheduler(tmp_path, monkeypatch, pretended):
    served = Served(tmp_path, monkeypatch, 2, 1, scheduler="tls://elsewhere:8786")
    id_ = served.submit(gpus=5)
    assert served.look() == {id_: []} and served.order(id_)["place"]["gpus"] == 5


@pytest.fixture
def waiting(tmp_path, monkeypatch, pretended):
    """A job on one of three GPUs, and one of a user with some usage that waits for all three."""
    served = Served(tmp_path, monkeypatch, 3, 3)
    short = served.submit(BOB)
    assert served.look() == {short: [0]}
    served.end(short)
    first = served.submit()
    assert served.look() == {first: [0]}
    wide = served.submit(BOB, gpus=3)
    assert served.look() == {first: [0]}
    job = served.jobs.get(BOB, wide)
    assert (job.state, job.attempt, job.progress) == ("PENDING", 0, {"stage": "waiting for GPUs"})
    return served, first, wide


def test_no_job_overtakes_one_that_waits_for_gpus(waiting):
    """Neither one of a user without usage, nor one that needs no GPU."""
    served, first, wide = waiting
    small, cores = served.submit(ROOT), served.submit(ROOT, workers=1)
    assert served.look() == {first: [0]}
    served.end(first)
    assert served.look() == {wide: [0, 1, 2]}
    assert served.jobs.get(BOB, wide).progress is None
    assert served.jobs.get(ROOT, small).progress == {"stage": "waiting for GPUs"}
    served.end(wide)
    assert served.look() == {small: [0], cores: []}


def test_an_urgent_job_overtakes_one_that_waits_for_gpus(waiting):
    served, first, wide = waiting
    urgent = served.submit(ROOT, priority=1)
    assert served.look() == {first: [0], urgent: [1]}
    served.end(first), served.end(urgent)
    assert served.look() == {wide: [0, 1, 2]}


@pytest.mark.parametrize("gpus", [1, 3])
def test_a_job_that_waits_for_gpus_keeps_its_turn_after_an_urgent_one(gpus, waiting):
    served, first, wide = waiting
    urgent, small = served.submit(ROOT, priority=1, gpus=gpus), served.submit(CAT)
    assert served.look() == ({first: [0], urgent: [1]} if gpus == 1 else {first: [0]})
    served.end(first)
    assert small not in served.look() and urgent in served.look()
    served.end(urgent)
    assert served.look() == {wide: [0, 1, 2]}


def test_a_job_that_waits_for_gpus_is_cancelled(waiting):
    served, first, wide = waiting
    small = served.submit(ROOT)
    assert served.jobs.cancel(BOB, wide).state == "CANCELLED"
    assert served.look() == {first: [0], small: [1]}


def test_a_job_that_waits_for_gpus_is_looked_at_seldom(waiting, monkeypatch):
    """Each look is a transaction that writes."""
    served, first, _ = waiting
    looks, claim = [], served.runner._jobs.claim
    monkeypatch.setattr(served.runner._jobs, "claim", lambda *given: looks.append(1) or claim(*given))
    monkeypatch.setattr(runner, "HEARTBEAT_SECONDS", 1e9)
    served.look()
    for _ in range(10):
        served.runner.step()
    assert len(looks) == 1
    served.end(first)
    served.runner.step()
    assert len(looks) > 1


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_workers_of_attempts(tmp_path, monkeypatch):
    """Each attempt starts its own and gives them its GPUs; there being none, they compute on cores."""
    monkeypatch.setattr(Devices, "number_for", lambda self, resources: 2)  # asked for, they would have to be there
    root = tmp_path / "root"
    root.mkdir()
    np.save(root / "points.npy", np.random.default_rng(0).normal(size=(6_000, 8)))
    served = Served(tmp_path, monkeypatch, 5, 2, roots=str(root))
    for caller in (ANN, BOB):
        give_kernels(served.settings.cache_folder(caller.name) / "numba")
    given = {"sources": [{"path": str(root / "points.npy")}], "parameters": {"n_clusters": 3}}
    ids = [served.submit(caller, **given) for caller in (ANN, BOB)]
    seen, workers, end = {}, {}, time.monotonic() + 240
    while any(served.jobs.get(ROOT, id_).state in ("PENDING", "RUNNING") for id_ in ids):
        assert time.monotonic() < end
        served.runner.step()
        for attempt in served.runner._running:
            for process in family(psutil.Process(attempt.process.pid))[1:]:
                try:
                    # In this order: what has the command line of a worker has its environment as well.
                    spawned = "spawn_main" in " ".join(process.cmdline())
                    visible = process.environ().get("CUDA_VISIBLE_DEVICES")
                    parent = process.ppid()
                except psutil.Error:
                    continue
                # What a worker starts has the worker's command line until it has its own.
                if spawned and parent not in {each.pid for each in workers.get(attempt.job.id, ())}:
                    workers.setdefault(attempt.job.id, set()).add(process)
                    seen.setdefault(attempt.job.id, set()).add(visible)
        time.sleep(0.02)
    jobs = [served.jobs.get(ROOT, id_) for id_ in ids]
    assert [job.state for job in jobs] == ["SUCCEEDED"] * 2, [job.error for job in jobs]
    assert {frozenset(each) for each in seen.values()} == {
        frozenset([",".join(served.names[:2])]), frozenset([",".join(served.names[2:4])]),
    }  # fmt: skip
    assert [len(workers[id_]) for id_ in ids] == [2, 2]
    wait_for(lambda: all(has_ended(process) for of_job in workers.values() for process in of_job))
