"""Which workers a run has, of which it is told that it may have them, and what it says of the others."""

from __future__ import annotations

import contextlib
import contextvars
import pickle
import pkgutil
import subprocess
import sys
import threading
import warnings
from fractions import Fraction

import dask
import dask.array as da
import dask.dataframe as dd
import distributed
import numpy as np
import pandas as pd
import pytest
from distributed import get_worker
from distributed.protocol.pickle import dumps, loads
from scipy.sparse import csr_array

import mgclust
from mgclust import DensityPeaks, FuzzyCMeans, WorkerWarning, silhouette_score
from mgclust.base.dask_arrays import computed
from mgclust.base.errors import ClusterUnavailableError, InputError, RunFailed
from mgclust.data import open_dataset
from mgclust.engine import spmd
from mgclust.engine.dask import cluster as cluster_module
from mgclust.engine.dask import task_starts
from mgclust.engine.dask.cluster import connect
from mgclust.engine.dask.scheduler import workers_of
from support.waiting import wait_for

pytestmark = pytest.mark.xdist_group("workers")
ROWS = np.random.default_rng(0).normal(size=(90, 2))


@pytest.fixture(scope="module")
def own():
    """A client of three workers of one thread in this process, which have two slots each."""
    options = {"threads_per_worker": 1, "processes": False, "dashboard_address": None, "resources": {"slot": 2}}
    options["memory_limit"] = 0  # else Dask runs a worker again that a test has paused
    with (
        distributed.LocalCluster(n_workers=3, **options) as cluster,
        distributed.Client(cluster, set_as_default=False) as client,
    ):
        yield client


def address_here(context):
    """Address of rank 0's worker; on every rank."""
    context.comm.barrier()
    return get_worker().address


def place_of(client, rows=ROWS, **choice):
    """Address of the worker on which a run of one rank is."""
    with connect(client, "cpu", **{"n_workers": 1, **choice}) as cluster:
        return spmd.run(spmd.RunSpec(address_here), open_dataset(rows), cluster).value


@pytest.fixture
def busy(own):
    """A function that keeps a worker busy until the test ends; the key of its task."""
    end, futures = threading.Event(), []

    def keep(address, **options):
        begun = threading.Event()
        name = f"busy-{address}-{len(futures)}"
        HELD[name] = begun, end
        futures.append(own.submit(hold, name, workers=[address], key=name, pure=False, **options))
        begun.wait(30)
        return name

    yield keep
    end.set()
    for future in futures:
        future.result(30)


HELD = {}


def hold(name):
    begun, end = HELD[name]
    begun.set()
    end.wait(60)


def test_idle_workers_come_first(own, busy):
    first, second, third = sorted(workers_of(own))
    for address in (first, third):
        busy(address)
    assert place_of(own) == second


def test_a_run_is_where_its_rows_are(own):
    for address in sorted(workers_of(own)):
        parts = own.scatter([np.ones((30, 2)), np.zeros((60, 2))], workers=[address], hash=False)
        chunks = [da.from_delayed(dask.delayed(part), (n, 2), float) for part, n in zip(parts, (30, 60), strict=True)]
        X = da.concatenate(chunks)
        assert place_of(own, X) == address
        kept = own.persist(X, workers=[address])
        assert not any(future.exception() for future in distributed.futures_of(kept))
        assert place_of(own, kept) == address


@pytest.mark.parametrize("by", ["address", "without its scheme", "name", "name as text", "host"])
def test_workers_are_chosen_as_by_submit(own, by):
    address, record = sorted(workers_of(own).items())[1]
    known = {
        "address": address,
        "without its scheme": address.partition("://")[2],
        "name": record["name"],
        "name as text": [str(record["name"])],
        "host": (record["host"],),
    }
    with connect(own, "cpu", workers=known[by]) as found:
        assert found.workers == (tuple(sorted(workers_of(own))) if by == "host" else (address,))
    if by != "host":
        assert place_of(own, workers=known[by]) == address


def test_all_that_take_a_number_of_workers_take_workers_and_resources(own):
    address = sorted(workers_of(own))[2]
    where = {"client": own, "device": "cpu", "workers": [address], "resources": {"slot": 1}}
    model = FuzzyCMeans(3, random_state=0, **where).fit(ROWS)
    assert model.result_.hardware["ranks"] == model.result_.hardware["workers"] == 1
    assert not {"workers", "resources"} & model.result_.parameters.keys()
    labels = np.arange(len(ROWS)) % 2
    assert silhouette_score(ROWS, labels, **where) == silhouette_score(ROWS, labels, client=None, device="cpu")
    near = mgclust.nearest_neighbors(ROWS, 2, **where).indices
    np.testing.assert_array_equal(near, mgclust.nearest_neighbors(ROWS, 2, client=None, device="cpu").indices)
    assert mgclust.modularity([(0, 1), (1, 2)], [0, 0, 0], **where) == 0.0
    with connect(own, "cpu") as cluster:
        fitted = DensityPeaks(3, client=cluster, workers=address).fit(ROWS)
    assert fitted.result_.hardware["workers"] == 1


def test_each_rank_takes_its_resources(own, busy):
    """One of the slots of each worker is left: a rank that needs both waits, though a thread is idle."""
    first, second, _ = sorted(workers_of(own))
    busy(first, resources={"slot": 1})
    assert place_of(own, workers=[first, second], resources={"slot": 2}) == second


@pytest.mark.parametrize(
    ("choice", "why"),
    [
        ({"workers": ["nobody"]}, r"workers=\['nobody'\] permits 0 of 3; not in the cluster: nobody"),
        ({"workers": [0, 1], "n_workers": 3}, r"3 are needed \(workers=\[0, 1\] permits 2 of 3\)"),
        ({"resources": {"GPU": 1}}, r"resources={'GPU': 1.0} permits 0 of 3\); start some"),
        ({"resources": {"slot": 3}}, r"resources={'slot': 3.0} permits 0 of 3"),
    ],
)
def test_a_refusal_says_what_was_asked_for(own, monkeypatch, choice, why):
    monkeypatch.setattr(cluster_module, "WORKERS_TIMEOUT", 0.1)
    with pytest.raises(ClusterUnavailableError, match=why):
        connect(own, "cpu", **choice).__enter__()


@pytest.mark.parametrize("amount", [np.int64(1), np.float32(1), np.array(1), Fraction(1)])
def test_resources_are_numbers_of_any_type(own, amount):
    with connect(own, "cpu", resources={"slot": amount}) as found:
        assert found.rules.resources == {"slot": 1.0} and len(found.workers) == 3


@pytest.mark.parametrize(
    "amount", [np.bool_(True), np.array([1]), np.float64("nan"), 10**400, -1, "1", None], ids=lambda each: str(each)[:5]
)
def test_resources_that_are_no_amounts(own, amount):
    with pytest.raises(InputError, match=r"resources={'slot': .* should be a dict of amounts > 0 by name"):
        connect(own, "cpu", resources={"slot": amount}).__enter__()


def test_a_name_that_is_not_there_is_named(own):
    with pytest.warns(WorkerWarning, match="1 of 3 worker.*not in the cluster: gpu-7"):
        assert place_of(own, workers=[1, "gpu-7"])


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (ModuleNotFoundError("No module named 'mgclust'", name="mgclust"), "no module mgclust"),
        ("0.0.7", r"mgclust 0\.0\.7 instead of .*"),
        (ImportError("libfoo.so"), "ImportError: libfoo.so"),
        (None, "mgclust None instead of"),
        (SyntaxError("bad", ("mgclust/__init__.py", 1, 5, "def (:", 1, 6)), r"SyntaxError: bad \(__init__\.py, line 1"),
        (UnicodeDecodeError("utf-8", b"a\xff", 1, 2, "bad"), "UnicodeDecodeError: 'utf-8' codec can't decode"),
    ],
)
def test_workers_that_cannot_run_mgclust_are_left_out_and_named(own, monkeypatch, answer, reason):
    run, unfit = own.run, sorted(workers_of(own))[:2]

    def answers(function, *arguments, workers, **options):
        found = run(function, *arguments, workers=workers, **options)
        return {
            address: loads(dumps(answer)) if address in unfit and function is pkgutil.resolve_name else found[address]
            for address in found
        }

    monkeypatch.setattr(own, "run", answers)
    monkeypatch.setattr(own, "mgclust_offers", {}, raising=False)
    said = rf"1 of 3 worker\(s\): {unfit[0]}, {unfit[1]} left out: {reason}"
    with pytest.warns(WorkerWarning, match=said) as seen:
        assert place_of(own) not in unfit
    assert len(seen) == 1
    monkeypatch.setattr(cluster_module, "WORKERS_TIMEOUT", 0.1)
    with pytest.raises(ClusterUnavailableError, match=f"1 worker.*2 are needed .*left out: {reason}"):
        connect(own, "cpu", n_workers=2).__enter__()
    with pytest.raises(InputError, match=rf"none of 2 worker\(s\) can run mgclust: .*{reason}"):
        connect(own, "cpu", workers=unfit).__enter__()


def test_a_worker_that_leaves_between_two_questions_is_not_left_out(own, monkeypatch):
    """It was left out with "mgclust 0.1.0 instead of 0.1.0"."""
    run, leaving = own.run, sorted(workers_of(own))[0]

    def answers(function, *arguments, workers, **options):
        found = run(function, *arguments, workers=workers, **options)
        return {
            address: answer
            for address, answer in found.items()
            if address != leaving or function is pkgutil.resolve_name
        }

    monkeypatch.setattr(own, "run", answers)
    monkeypatch.setattr(own, "mgclust_offers", {}, raising=False)
    with warnings.catch_warnings():
        warnings.simplefilter("error", WorkerWarning)
        assert place_of(own) != leaving
    monkeypatch.setattr(cluster_module, "WORKERS_TIMEOUT", 0.1)
    with pytest.raises(ClusterUnavailableError, match=r"has 0 worker\(s\).*1 are needed .*permits 1 of 3\); start"):
        connect(own, "cpu", workers=[leaving]).__enter__()


@pytest.mark.parametrize(
    "workers",
    [
        np.array([0, 1]),
        [np.int64(0), np.uint8(1)],
        np.array(["0", "1"]),
        np.array([0, "1"], dtype=object),
        {np.int64(1), 0},
        range(2),
    ],
)
def test_workers_are_named_by_integers_and_arrays_of_numpy(own, workers):
    first, second, _ = sorted(workers_of(own), key=lambda address: workers_of(own)[address]["name"])
    with connect(own, "cpu", workers=workers) as found:
        assert sorted(found.workers) == sorted([first, second])
        assert {type(each) for each in found.rules.workers} <= {int, str}


def test_one_worker_is_named_by_an_integer_of_numpy(own):
    for workers in (np.int64(1), np.array(1), np.array([1])):
        assert workers_of(own)[place_of(own, workers=workers)]["name"] == 1


UNFIT = """
import asyncio, sys, types

address, name, folder = sys.argv[1:]
sys.modules["mgclust"] = None
if name == "old":
    sys.modules["mgclust"] = types.ModuleType("mgclust")
    sys.modules["mgclust"].__version__ = "0.0.7"

from distributed import Worker

async def main():
    async with Worker(address, name=name, nthreads=1, local_directory=folder, dashboard=False) as worker:
        await worker.finished()

asyncio.run(main())
"""


@pytest.fixture(scope="module")
def mixed(tmp_path_factory):
    """A client of two workers in this process, one without mgclust ("none"), and one with another version ("old")."""
    options = {"threads_per_worker": 1, "processes": False, "protocol": "tcp://", "dashboard_address": None}
    with contextlib.ExitStack() as stack:
        cluster = stack.enter_context(distributed.LocalCluster(n_workers=2, host="127.0.0.1", **options))
        client = stack.enter_context(distributed.Client(cluster, set_as_default=False))
        for name in ("none", "old"):
            command = [sys.executable, "-c", UNFIT, cluster.scheduler_address, name, tmp_path_factory.mktemp(name)]
            process = subprocess.Popen(command)
            stack.callback(process.wait, 60)
            stack.callback(process.terminate)
        client.wait_for_workers(4, timeout=60)
        yield client


EDGES = np.random.default_rng(1).integers(0, 60, (900, 2))
EDGES = EDGES[EDGES[:, 0] != EDGES[:, 1]]
FAR = 3 * (np.arange(len(ROWS)) % 3)  # labels with gaps
NAMED = pd.DataFrame([[f"n{i}", f"n{j}"] for i, j in EDGES], columns=["a", "b"])


def peaks(chunked, **place):
    model = DensityPeaks(3, **place).fit(chunked(ROWS))
    return model.labels_, model.predict(chunked(ROWS[::2]))


def communities(chunked, **place):
    weighted = np.column_stack([EDGES, np.ones(len(EDGES))])
    return [mgclust.Communities(**place).fit(chunked(edges)).labels_ for edges in (EDGES, weighted)]


def communities_of_names(chunked, **place):
    models = [mgclust.Communities(**place).fit(chunked(frame)) for frame in (NAMED, pd.DataFrame(5 * EDGES))]
    return [model.labels_ for model in models]


def silhouettes(chunked, **place):
    return silhouette_score(chunked(ROWS), chunked(FAR), **place), np.zeros(0)


def standardised(chunked, **place):
    dataset = open_dataset(chunked(np.column_stack([ROWS, ROWS[:, 0] ** 2])), standardize="zscore", detrend=True)
    model = FuzzyCMeans(3, random_state=0, **place)
    labels = model.fit_dataset(dataset).labels
    return labels, np.frombuffer(dataset.fingerprint().encode(), np.uint8)


def looks(chunked, client, **place):
    dataset, graph = open_dataset(chunked(ROWS)), mgclust.open_graph(chunked(EDGES))
    model = DensityPeaks(3, client=client, **place).fit(dataset)
    model.select_centers(2)
    texts = [np.frombuffer(each.fingerprint().encode(), np.uint8) for each in (dataset, graph)]
    return *texts, dataset.read(20, 50), dataset.take([3, 80]), graph.read(10, 700)[0], model.labels_, model.halo_


@pytest.mark.parametrize("fit", [peaks, communities, communities_of_names, silhouettes, standardised])
@pytest.mark.parametrize("where", ["lazy", "none", "old", "workers="])
@pytest.mark.quick("none-*", "workers=-communities")
@pytest.mark.filterwarnings("ignore::mgclust.WorkerWarning")
def test_chunks_may_be_on_workers_that_cannot_run_mgclust(mixed, fit, where):
    def chunked(values):
        if isinstance(values, pd.DataFrame):
            collection = dd.from_pandas(values, npartitions=4)
        else:
            collection = da.from_array(values, (-(-len(values) // 4), *values.shape[1:]))
        return collection if where in ("lazy", "workers=") else mixed.persist(collection, workers=[where])

    chosen = {"workers": [0, 1]} if where == "workers=" else {}
    with mixed.as_current():
        found = fit(chunked, client=mixed, device="cpu", **chosen)
        found = [np.asarray(each) for each in found]
    for values, expected in zip(found, fit(lambda given: given, client=None, device="cpu"), strict=True):
        np.testing.assert_array_equal(values, np.asarray(expected))


@pytest.mark.parametrize("form", [lambda block: np.ma.masked_less(block, -9), csr_array], ids=["masked", "sparse"])
@pytest.mark.filterwarnings("ignore::mgclust.WorkerWarning")
def test_a_worker_without_mgclust_converts_chunks(mixed, form):
    X = mixed.persist(da.from_array(ROWS, (30, 2)).map_blocks(form), workers=["none"])
    fitted = FuzzyCMeans(3, random_state=0, client=mixed, device="cpu").fit(X)
    expected = FuzzyCMeans(3, random_state=0, client=None, device="cpu").fit(ROWS)
    with mixed.as_current():
        np.testing.assert_array_equal(np.asarray(fitted.labels_), expected.labels_)


@pytest.mark.parametrize("where", ["none", "old", 0])
@pytest.mark.filterwarnings("ignore::mgclust.WorkerWarning")
def test_invalid_chunks_are_named_wherever_they_are(mixed, where):
    edges = mixed.persist(da.from_array(np.array([[0, 1], [1, 2], [2, -3], [0, 2]]), (2, 2)), workers=[where])
    with pytest.raises(InputError, match="row 0 of a chunk of Dask array: node id -3 is negative"):
        mgclust.Communities(client=mixed, device="cpu").fit(edges)
    rows = mixed.persist(da.from_array(np.vstack([ROWS, [[1.0, 1.0]]]), (30, 2)), workers=[where])
    dataset = open_dataset(rows, standardize="zscore")
    with pytest.raises((InputError, RunFailed), match="1 of 1 rows are constant, the first is row 90"):
        FuzzyCMeans(2, client=mixed, device="cpu").fit_dataset(dataset)


def test_a_paused_worker_is_named(own, monkeypatch):
    monkeypatch.setattr(cluster_module, "WORKERS_TIMEOUT", 0.1)
    address = sorted(workers_of(own))[0]
    set_status(own, address, "paused")
    try:
        with pytest.raises(ClusterUnavailableError, match=f"2 worker.*3 are needed .paused: {address} .nearly out of"):
            connect(own, "cpu", n_workers=3).__enter__()
        with connect(own, "cpu") as found:
            assert address not in found.workers
    finally:
        set_status(own, address, "running")


def set_status(client, address, status):
    def change(dask_worker):
        from distributed import Status

        dask_worker.status = Status[status]

    client.run(change, workers=[address])
    wait_for(lambda: workers_of(client)[address]["status"] == status)


@pytest.mark.parametrize(
    "given",
    [
        {"resources": {"GPU": 1}},
        {"workers": ["nowhere"]},
        {"workers": ["nowhere"], "allow_other_workers": True, "retries": 3, "priority": -7},
        {"resources": lambda key: {"GPU": 1}},
        {"executor": "nowhere"},
        {"name_of_a_plugin": threading.Lock()},  # Dask cannot send it
    ],
)
@pytest.mark.parametrize("kind", ["array", "dask array", "dask data frame"])
def test_annotations_of_the_surroundings_do_not_reach_internal_tasks(own, monkeypatch, given, kind):
    """With them, tasks that no worker may run waited for ever."""
    seen, submit = [], own.submit

    def look(*arguments, **options):
        future = submit(*arguments, **options)
        seen.append(future.key)
        return future

    monkeypatch.setattr(own, "submit", look)
    w = np.ones(len(ROWS)) if kind == "array" else da.ones(len(ROWS), chunks=30)
    X = ROWS if kind == "array" else da.from_array(ROWS, (30, 1))
    if kind == "dask data frame":
        X = X.to_dask_dataframe(columns=["a", "b"])
    with own.as_current(), dask.annotate(**given, span={"name": ("mine",), "ids": ("mine-1",)}):
        model = FuzzyCMeans(3, random_state=0, n_workers=2, device="cpu").fit(X, sample_weight=w)
    expected = FuzzyCMeans(3, random_state=0, client=None, device="cpu").fit(ROWS).labels_
    with own.as_current():
        np.testing.assert_array_equal(np.asarray(model.labels_), expected)

    def annotations(dask_scheduler):
        return [dask_scheduler.tasks[key].annotations for key in seen if key in dask_scheduler.tasks]

    for each in own.run_on_scheduler(annotations):
        assert each["span"]["name"] == ("mine",) and not each.get("allow_other_workers")
        assert set(each) <= {"span", "workers", "allow_other_workers", "priority", "retries", "resources"}
        # The task of a rank is annotated too, with values of its own: only the caller's values must not be found.
        assert not [name for name, value in given.items() if not callable(value) and each.get(name) == value]
        assert "resources" not in each or not each["resources"]


@pytest.mark.parametrize("use", [peaks, communities, silhouettes, standardised, looks])
def test_annotations_of_the_surroundings_reach_no_graph(own, use):
    outside = contextvars.copy_context()

    def chunked(values):
        return outside.run(da.from_array, values, (-(-len(values) // 4), *values.shape[1:]))

    place = {"client": own, "device": "cpu"}
    with own.as_current():
        expected = use(chunked, **place)
        with dask.annotate(executor="nowhere", name_of_a_plugin=threading.Lock()):
            found = use(chunked, **place)
        for values, before in zip(found, expected, strict=True):
            np.testing.assert_array_equal(np.asarray(values), np.asarray(before))


def test_a_rank_that_does_not_begin_says_why(own, busy, monkeypatch):
    monkeypatch.setattr(task_starts, "START_SECONDS", 1.2)  # two heartbeats
    address = sorted(workers_of(own))[0]
    key = busy(address)
    with pytest.warns(WorkerWarning, match=f"rank 0 has not begun on {address}: the worker is busy with {key}"):
        threading.Timer(2.4, HELD[key][1].set).start()
        assert place_of(own, workers=[address]) == address


def test_a_rank_that_cannot_begin_ends_the_run(own, monkeypatch):
    monkeypatch.setattr(task_starts, "START_SECONDS", 0.6)
    with connect(own, "cpu", n_workers=1, resources={"slot": 1}) as cluster:
        own.run(set_slots, 0)
        try:
            with pytest.raises(RunFailed, match=r"rank 0 cannot begin on inproc.*no worker offers resources={'"):
                spmd.run(spmd.RunSpec(address_here), open_dataset(ROWS), cluster)
        finally:
            own.run(set_slots, 2)


async def set_slots(amount, dask_worker):
    await dask_worker.set_resources(slot=amount)


def test_a_dask_array_that_no_worker_may_compute_is_named(own, monkeypatch):
    """Its own annotations stay; Dask waits for a worker that offers what they ask for."""
    monkeypatch.setattr(task_starts, "START_SECONDS", 0.2)
    with dask.annotate(resources={"tape": 1}):
        X = own.persist(da.ones((90, 2), chunks=(30, 2)))
    threading.Timer(1.0, own.cancel, [X]).start()
    said = r"Dask array cannot begin: no worker offers resources={'tape': 1}"
    with pytest.warns(WorkerWarning, match=said), pytest.raises(RunFailed):
        place_of(own, X)


@pytest.fixture(scope="module")
def away():
    """A client of another cluster."""
    options = {"n_workers": 1, "threads_per_worker": 1, "processes": False, "dashboard_address": ":0"}
    with (
        distributed.LocalCluster(**options) as cluster,
        distributed.Client(cluster, set_as_default=False) as client,
    ):
        yield client


@pytest.mark.parametrize(
    "use",
    [
        lambda held, place: DensityPeaks(3, **place).fit(held(ROWS)),
        lambda held, place: DensityPeaks(3, **place).fit(held(ROWS) * 2),
        lambda held, place: DensityPeaks(3, **place).fit(da.from_array(ROWS, (30, 2))).predict(held(ROWS)),
        lambda held, place: FuzzyCMeans(3, **place).fit(da.from_array(ROWS), sample_weight=held(np.ones(len(ROWS)))),
        lambda held, place: mgclust.Communities(**place).fit(held(EDGES)),
        lambda held, place: mgclust.modularity(EDGES, held(np.arange(60) % 3), **place),
        lambda held, place: silhouette_score(ROWS, held(FAR), **place),
    ],
    ids=["rows", "computed from rows", "queries", "weights", "edges", "labels of nodes", "labels"],
)
def test_chunks_on_another_cluster_are_named_at_once(own, away, use):
    """The run ended with a lost worker, after a retry."""

    def held(values):
        return away.persist(da.from_array(values, (-(-len(values) // 3), *values.shape[1:])))

    place = {"client": own, "device": "cpu", "retries": 1}
    said = "client=<.*> is not the client of a Dask array, whose chunks are on the cluster of <.*>; give the array"
    with warnings.catch_warnings(), pytest.raises(InputError, match=said) as raised:
        warnings.simplefilter("error")
        warnings.simplefilter("ignore", mgclust.base.errors.AmbiguousCountWarning)  # the rows have no clusters
        use(held, place)
    named = str(raised.value).partition("whose")
    assert own.scheduler.address in named[0] and away.scheduler.address in named[2]


def test_a_second_client_of_a_cluster_may_have_the_chunks(own):
    with distributed.Client(own.scheduler.address, set_as_default=False) as second:
        X = second.persist(da.from_array(ROWS, (30, 2)))
        model = DensityPeaks(3, client=own, n_workers=2, device="cpu").fit(X)
        expected = DensityPeaks(3, client=None).fit(ROWS).labels_
        np.testing.assert_array_equal(computed(model.labels_), expected)


GRAPH = [(0, 1), (1, 2), (0, 2), (2, 3), (3, 4), (4, 5), (3, 5)]


@pytest.mark.quick("*-FuzzyCMeans")
@pytest.mark.parametrize(
    ("make", "X", "use"),
    [
        (lambda **place: FuzzyCMeans(3, random_state=0, **place), ROWS, "predict"),
        (lambda **place: FuzzyCMeans(3, random_state=0, **place), ROWS, "predict_memberships"),
        (lambda **place: DensityPeaks(3, **place), ROWS, "predict"),
        (lambda **place: mgclust.Canopy(2.0, 1.0, **place), ROWS, "predict"),
        (lambda **place: mgclust.AffinityPropagation(**place), ROWS, "predict"),
        (lambda **place: mgclust.Communities(**place), GRAPH, "cut"),
    ],
    ids=["FuzzyCMeans", "memberships", "DensityPeaks", "Canopy", "AffinityPropagation", "Communities"],
)
@pytest.mark.parametrize("given", ["the active client", "client="])
def test_an_estimator_that_was_fitted_on_workers_predicts_where_there_are_none(own, make, X, use, given):
    place = {"device": "cpu", "n_workers": 2, "resources": {"slot": 1}}
    with own.as_current():
        model = make(**place, client="auto" if given == "the active client" else own).fit(X)
        expected = np.asarray(getattr(model, use)(X if X is ROWS else 2))
    again = pickle.loads(pickle.dumps(model))
    assert again.n_workers == 2 and again.client == "auto"  # an address of this process is none of another
    np.testing.assert_array_equal(getattr(again, use)(X if X is ROWS else 2), expected)
    with pytest.raises(InputError, match="n_workers=2 needs a cluster, and there is no active Dask client"):
        again.fit(X)
