"""`cluster.connect`: where ranks run, and the sentence for what cannot work."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import pickle
import signal
import socket
import threading
import time
from types import SimpleNamespace

import dask
import distributed
import numpy as np
import psutil
import pytest
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV

from mgclust import DensityPeaks, FuzzyCMeans, WorkerWarning, __version__
from mgclust.base.errors import ClusterUnavailableError, DeviceUnavailableError, InputError, RunFailed
from mgclust.data import open_dataset
from mgclust.engine import devices, spmd
from mgclust.engine.dask import candidates, local_cluster, scheduler
from mgclust.engine.dask import cluster as cluster_module
from mgclust.engine.dask.cluster import connect
from mgclust.engine.dask.scheduler import workers_of
from support import rank_jobs

pytestmark = pytest.mark.xdist_group("workers")


@pytest.fixture
def no_gpu(monkeypatch):
    monkeypatch.setattr(cluster_module, "why_no_gpu", lambda: "the CUDA driver finds no GPU")


def test_none_is_this_process(no_gpu):
    with connect(None) as found:
        assert (found.size, found.device, found.client, found.workers) == (1, "cpu", None, ())


def test_auto_without_a_client_is_this_process():
    with connect("auto", "cpu") as found:
        assert found.client is None


def test_auto_finds_the_active_client(client):
    with client.as_current(), connect("auto", "cpu") as found:
        assert found.client is client
        assert found.size == 4


def test_a_cluster_object_is_its_cluster(client):
    with connect(client.cluster, "cpu") as found:
        assert found.size == 4 and found.client.scheduler.address == client.scheduler.address


def test_estimators_are_copied_with_their_client(client):
    for given in (client, client.cluster):
        model = DensityPeaks(3, client=given)
        copied = clone(model)
        assert copied.client is given and model.client is given and copied.n_clusters == 3
        assert pickle.loads(pickle.dumps(model)).client == client.scheduler.address
    assert pickle.loads(pickle.dumps(DensityPeaks(client=None))).client is None


@pytest.mark.slow
def test_a_grid_search_runs_on_a_client(client):
    rows = np.repeat([[0.0, 0], [9, 0], [0, 9]], 40, axis=0) + np.random.default_rng(0).normal(size=(120, 2))
    model = FuzzyCMeans(client=client, device="cpu", random_state=0)
    search = GridSearchCV(model, {"n_clusters": [2, 3]}, scoring=lambda model, x: model.result_.scores["xie_beni"] * -1)
    search.fit(rows)
    assert search.best_params_ == {"n_clusters": 3} and search.best_estimator_.client is client


def test_workers_that_the_client_forgets_are_not_lost(client):
    """`Client.scheduler_info` told of no workers now and then, and runs ended that had lost none."""
    with (
        dask.config.set({"distributed.client.scheduler-info-interval": "1ms"}),
        distributed.Client(client.scheduler.address, set_as_default=False) as forgetful,
    ):
        assert {len(workers_of(forgetful)) for _ in range(300)} == {4}


@pytest.mark.parametrize("where", [None, "local"])
def test_no_gpu_where_one_was_asked_for(no_gpu, where):
    with pytest.raises(DeviceUnavailableError, match="device='cuda' needs an NVIDIA GPU: the CUDA"):
        connect(where, "cuda").__enter__()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"device": "tpu"}, "device='tpu' should be 'auto', 'cpu' or 'cuda'"),
        ({"n_workers": 0}, "n_workers=0 should be >= 1"),
        ({"client": None, "n_workers": 2}, "n_workers=2 needs a cluster; start one here"),
        (
            {"client": "auto", "n_workers": 2},
            "n_workers=2 needs a cluster, and there is no active Dask client: none was",
        ),
        ({"client": "auto", "workers": ["a"]}, r"workers=\['a'\] needs a cluster, and there is no active Dask client"),
        ({"client": None, "resources": {"GPU": 1}}, r"resources={'GPU': 1.0} needs a cluster; start one here"),
        ({"client": "local", "workers": ["a"]}, r"workers=\['a'\] selects workers of a running cluster"),
        ({"workers": []}, r"workers=\[\] should be addresses, names or hosts of workers; give at least one, as"),
        ({"workers": [1.5]}, r"workers=\[1.5\] should be addresses.*or a number of workers as n_workers="),
        ({"workers": {"a": 1}}, r"workers={'a': 1} should be addresses"),
        ({"workers": np.zeros(0, int)}, r"workers=array\(\[\], dtype=int64\) should be addresses"),
        ({"workers": np.array([0.0, 1.0])}, r"workers=array\(\[0\., 1\.\]\) should be addresses"),
        ({"workers": np.zeros((2, 2), int)}, "should be addresses, names or hosts of workers"),
        ({"workers": np.array([True, False])}, "should be addresses, names or hosts of workers"),
        ({"workers": np.True_}, "should be addresses, names or hosts of workers"),
        (
            {"resources": {"GPU": 0}},
            r"resources={'GPU': 0} should be a dict of amounts > 0 by name, such as {'GPU': 1}",
        ),
        ({"resources": ["GPU"]}, r"resources=\['GPU'\] should be a dict"),
        (
            {"client": 7},
            "client=7 should be None, 'auto', 'local', a distributed.Client, a cluster object of Dask, or the",
        ),
        ({"client": "nowhere"}, "client='nowhere' is not the address of a scheduler \\(missing port number"),
        ({"client": "tcp://127.0.0.1:9"}, "no Dask scheduler answered there within 1 s"),
        ({"client": "bogus://127.0.0.1:9"}, "is not the address of a scheduler \\(unknown address scheme 'bogus'"),
    ],
)
def test_wrong_arguments(monkeypatch, arguments, message):
    monkeypatch.setattr(cluster_module, "CONNECT_TIMEOUT", 1.0)
    with pytest.raises(InputError, match=message):
        connect(**arguments).__enter__()


@pytest.mark.parametrize("says", [b"", b"HTTP/1.1 400 Bad Request" * 20], ids=["nothing", "something else"])
def test_what_listens_there_and_is_no_scheduler(monkeypatch, says):
    """Dask waited for the first words of whatever took the connection for ever."""
    monkeypatch.setattr(cluster_module, "CONNECT_TIMEOUT", 1.0)
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def answer():
            with contextlib.suppress(OSError):
                listener.accept()[0].sendall(says)

        if says:
            threading.Thread(target=answer, daemon=True).start()
        began = time.monotonic()
        with pytest.raises(ClusterUnavailableError, match="no Dask scheduler answered there within 1 s"):
            connect(f"tcp://127.0.0.1:{listener.getsockname()[1]}").__enter__()
        assert time.monotonic() - began < 60


def test_a_cluster_object_that_gives_no_client_in_time(monkeypatch):
    monkeypatch.setattr(cluster_module, "CLUSTER_TIMEOUT", 0.1)
    end = threading.Event()
    cluster = SimpleNamespace(get_client=end.wait, asynchronous=False)
    with pytest.raises(ClusterUnavailableError, match=r"has no client \(.* did not answer within 0\.1 s\)"):
        connect(cluster).__enter__()
    end.set()


def test_part_of_a_cluster(client):
    with connect(client, "auto", n_workers=3) as found:
        assert found.size == 3
        assert len(found.workers) == 4  # a run is given three of them that are free
        assert found.device == "cpu" or devices.gpus()


def test_more_workers_than_there_are(client, monkeypatch):
    monkeypatch.setattr(cluster_module, "WORKERS_TIMEOUT", 0.5)
    with pytest.raises(InputError, match=r"has 4 worker\(s\) after 0.5 s, but 9 are needed"):
        connect(client, "cpu", n_workers=9).__enter__()


@pytest.mark.slow
def test_a_worker_that_is_stopped_is_named_to_a_new_client(client, monkeypatch):
    monkeypatch.setattr(scheduler, "ANSWER_SECONDS", 3.0)
    address, stopped = next(iter(client.run(os.getpid).items()))
    with distributed.Client(client.scheduler.address, set_as_default=False) as own:
        os.kill(stopped, signal.SIGSTOP)
        try:
            with pytest.raises(RunFailed, match=f"not answered for 3 s, {address} for the longest time: its process"):
                connect(own, "cpu").__enter__()
        finally:
            os.kill(stopped, signal.SIGCONT)


def test_what_was_connected_is_taken_as_it_is(client):
    with connect(client, "cpu", n_workers=2) as found, connect(found) as again:
        assert again is found
    assert client.status == "running"


def test_address_of_a_scheduler(client):
    with connect(client.scheduler.address, "cpu") as found:
        assert found.size == 4
        assert found.client is not client
        assert spmd.run(spmd.RunSpec(rank_jobs.where), open_dataset(np.ones((9, 2))), found).value.shape == (4, 2)
    assert found.client.status == "closed"


def _offers(*gpus):
    """What ``client.run(offer)`` would say of workers with these GPUs; "" for none."""
    from mgclust.engine.dask.tasks import Offer, offer

    def run(function, *_, workers, **__):
        if function is not offer:
            return dict.fromkeys(workers, __version__)
        return {
            address: Offer(gpu, "" if gpu else "the CUDA driver finds no GPU", 1, 1)
            for address, gpu in zip(workers, gpus, strict=True)
        }

    return run


def test_gpus_on_every_worker_are_taken(client, monkeypatch):
    monkeypatch.setattr(client, "mgclust_offers", {}, raising=False)
    monkeypatch.setattr(client, "run", _offers("a", "b", "c", "d"))
    with connect(client) as found:
        assert found.device == "cuda"
    with connect(client, "cpu") as found:
        assert found.device == "cpu"


@pytest.mark.parametrize(
    ("gpus", "device", "message"),
    [
        (("", "", "", ""), "cuda", "4 of 4 workers have no GPU"),
        (("a", "a", "a", "a"), "auto", "would share one GPU; start one worker per GPU"),
    ],
)
def test_workers_that_cannot_be_one_rank_a_gpu(client, monkeypatch, gpus, device, message):
    monkeypatch.setattr(client, "mgclust_offers", {}, raising=False)
    monkeypatch.setattr(client, "run", _offers(*gpus))
    with pytest.raises(DeviceUnavailableError, match=message):
        connect(client, device).__enter__()


@pytest.mark.parametrize("device", ["auto", "cuda"])
def test_workers_without_a_gpu_are_left_out_and_named(client, monkeypatch, device):
    monkeypatch.setattr(client, "mgclust_offers", {}, raising=False)
    monkeypatch.setattr(client, "run", _offers("a", "b", "", "d"))
    left_out = sorted(workers_of(client))[2]
    said = rf"3 of 4 worker.*{left_out} left out: no GPU \(the CUDA driver"
    with pytest.warns(WorkerWarning, match=said) as seen, connect(client, device) as found:
        assert (found.size, found.device) == (3, "cuda") and left_out not in found.workers
    assert len(seen) == 1 and seen[0].filename == __file__


@pytest.fixture(scope="module")
def tls(tmp_path_factory):
    """A scheduler with TLS and two workers, and the environment that opens it."""
    pytest.importorskip("cryptography")
    import distributed

    security = distributed.Security.temporary()
    folder = tmp_path_factory.mktemp("tls")
    environment = {}
    for name, pem in (
        ("CA", security.tls_ca_file),
        ("CERT", security.tls_client_cert),
        ("KEY", security.tls_client_key),
    ):
        (folder / name).write_text(pem)
        environment[f"MGCLUST_TLS_{name}"] = str(folder / name)
    with distributed.LocalCluster(
        n_workers=2, threads_per_worker=1, dashboard_address="127.0.0.1:0", security=security, protocol="tls"
    ) as running:
        yield running.scheduler_address, environment


@pytest.mark.slow
def test_tls(tls, monkeypatch):
    address, environment = tls
    assert address.startswith("tls://")
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    x = np.random.default_rng(5).normal(size=(3000, 2)).astype(np.float32)
    with connect(address, "cpu") as found:
        assert found.size == 2
        sums = spmd.run(spmd.RunSpec(rank_jobs.gram), open_dataset(x), found).value[0]
    with connect(None, "cpu") as found:
        assert spmd.run(spmd.RunSpec(rank_jobs.gram), open_dataset(x), found).value[0].tobytes() == sums.tobytes()


@pytest.mark.slow
def test_tls_without_certificates(tls, monkeypatch):
    address, environment = tls
    monkeypatch.setattr(cluster_module, "CONNECT_TIMEOUT", 1.0)
    with pytest.raises(InputError, match="MGCLUST_TLS_CA"):
        connect(address, "cpu").__enter__()
    monkeypatch.setenv("MGCLUST_TLS_CA", environment["MGCLUST_TLS_CA"])
    with pytest.raises(InputError, match="should be set together"):
        connect(address, "cpu").__enter__()
    monkeypatch.setenv("MGCLUST_TLS_CERT", environment["MGCLUST_TLS_CERT"])
    monkeypatch.setenv("MGCLUST_TLS_KEY", "-----BEGIN PRIVATE KEY-----\nsecret\n")
    with pytest.raises(InputError, match="MGCLUST_TLS_KEY should be the path of a PEM file") as caught:
        connect(address, "cpu").__enter__()
    assert "secret" not in str(caught.value)
    monkeypatch.setenv("MGCLUST_TLS_KEY", "/nowhere.pem")
    with pytest.raises(InputError, match=r"MGCLUST_TLS_KEY=/nowhere.pem does not exist"):
        connect(address, "cpu").__enter__()


def test_local_cluster_is_closed_afterwards():
    with connect("local", "cpu", n_workers=2) as found:
        assert found.size == 2
        scheduler = found.client.scheduler.address
        assert {address[:6] for address in (scheduler, *found.workers)} == {"tls://"}
        assert spmd.run(spmd.RunSpec(rank_jobs.where), open_dataset(np.ones((9, 2))), found).value.shape == (2, 2)
    assert found.client.status == "closed"


@pytest.mark.slow
def test_a_local_cluster_that_ends_tells_nothing_of_heartbeats(capfd):
    """Workers close connections over which they wait for an answer; what they log then, they write to the terminal."""
    asked = threading.Event()

    async def never(*_, **__):
        asked.set()
        await asyncio.sleep(60)

    with connect("local", "cpu", n_workers=2) as found:
        found.client.cluster.scheduler.handlers["heartbeat_worker"] = never
        assert asked.wait(60)
    assert capfd.readouterr().err == ""


def children():
    return {child.pid for child in psutil.Process().children(recursive=True)}


def gone(before, seconds=60.0):
    """Whether no process is left but those of before: what has been killed takes a moment to be gone."""
    end = time.monotonic() + seconds
    while not (over := children() <= before) and time.monotonic() < end:
        time.sleep(0.02)
    return over


@pytest.mark.slow
def test_a_local_cluster_whose_workers_do_not_come(tmp_path, monkeypatch):
    """They hang while they start."""
    (tmp_path / "hang.py").write_text("import time\ntime.sleep(600)\n")
    with connect("local", "cpu", n_workers=1):  # what multiprocessing keeps for itself is there
        pass
    monkeypatch.setattr(local_cluster, "LONGEST_START", 5.0)
    before = children()
    with (
        dask.config.set({"distributed.worker.preload": [str(tmp_path / "hang.py")]}),
        pytest.raises(RunFailed, match="a local cpu cluster was not ready after 5 s, and was ended") as caught,
    ):
        connect("local", "cpu", n_workers=2).__enter__()
    assert "client=None" in str(caught.value)
    assert "may show why. In a script, call mgclust below `if __name__ == '__main__':`; else" in str(caught.value)
    assert gone(before)


def test_a_local_cluster_that_refuses_is_one_sentence(monkeypatch):
    """Dask's own errors end with a full stop."""

    def refuse(*_):
        raise RuntimeError("Nanny failed to start.")

    monkeypatch.setattr(local_cluster, "_started", refuse)
    with pytest.raises(RunFailed, match=r"RuntimeError: Nanny failed to start\. In a script, call mgclust below"):
        connect("local", "cpu", n_workers=2).__enter__()


@pytest.mark.slow
def test_a_local_cluster_whose_workers_cannot_be_started(monkeypatch):
    """As where a process may make no semaphores: to 2026.7 Dask waited without end for what never began."""

    class Refusing:
        def Queue(self):
            raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr("distributed.nanny.get_mp_context", Refusing)
    monkeypatch.setattr(local_cluster, "LONGEST_START", 3.0)
    monkeypatch.setattr(local_cluster, "END", 1.0)
    before = children()
    with pytest.raises(RunFailed, match=r"was not ready after 3 s, and was ended|Nanny failed to start"):
        connect("local", "cpu", n_workers=2).__enter__()
    assert gone(before)


def test_a_local_cluster_needs_its_credentials(tmp_path, monkeypatch):
    """Neither without certificates, nor with those of another cluster."""
    others = distributed.Security.temporary()
    (tmp_path / "ca").write_text(others.tls_ca_file)
    (tmp_path / "cert").write_text(others.tls_client_cert)
    (tmp_path / "key").write_text(others.tls_client_key)
    with connect("local", "cpu", n_workers=1) as started:
        monkeypatch.setattr(cluster_module, "CONNECT_TIMEOUT", 2.0)
        address = started.client.scheduler.address
        with pytest.raises(InputError, match="no Dask scheduler answered"):
            connect(address, "cpu").__enter__()
        for part in ("ca", "cert", "key"):
            monkeypatch.setenv(f"MGCLUST_TLS_{part.upper()}", str(tmp_path / part))
        with pytest.raises(InputError, match="no Dask scheduler answered"):
            connect(address, "cpu").__enter__()


def test_a_cluster_object_leaves_the_callers_client_open():
    given = {"n_workers": 1, "processes": False, "dashboard_address": None}
    with distributed.LocalCluster(**given) as cluster:
        with connect(cluster, "cpu") as found:
            ours = found.client
        assert ours.status == "closed"
        with distributed.Client(cluster) as own:
            with connect(cluster, "cpu") as found:
                assert found.client is own
            assert own.submit(len, "abc").result() == 3


@pytest.mark.slow
def test_workers_that_come_later_are_looked_at_too(client, monkeypatch):
    """As those of an adaptive cluster, which a run waits for."""
    with connect(client, "cpu") as found:
        pass
    waits = cluster_module.Cluster(2, "cpu", client, found.workers[:1], exact=True)
    unfit, offers = {found.workers[1], found.workers[3]}, candidates._offers

    def some(client, running):
        there, _ = offers(client, running)
        return {a: each for a, each in there.items() if a not in unfit}, dict.fromkeys(unfit, "no module mgclust")

    monkeypatch.setattr(candidates, "_offers", some)
    seen = spmd.run(spmd.RunSpec(rank_jobs.where), open_dataset(np.ones((9, 2))), waits)
    assert seen.ranks == 2 and seen.hardware["workers"] == 2
    with (
        pytest.warns(WorkerWarning, match="2 of 4 worker"),
        connect(client, "cpu", n_workers=2) as every,
    ):  # all have been given back
        assert spmd.run(spmd.RunSpec(rank_jobs.where), open_dataset(np.ones((9, 2))), every).ranks == 2


@pytest.mark.slow
@pytest.mark.parametrize("beside", [False, True])  # in a thread of `submit`
@pytest.mark.parametrize(("where", "ranks"), [("auto", 1), ("own", 4), ("seceded", 4), ("address", 4)])
def test_a_fit_in_a_task_of_dask_does_not_wait_for_its_own_thread(client, where, ranks, beside):
    """Workers have one thread: by default the fit stays in the task, else it lets the ranks have the thread."""
    X = np.random.default_rng(0).normal(size=(600, 2))
    expected = DensityPeaks(3, client=None, device="cpu").fit(X).labels_
    tasks = client.map(rank_jobs.fit_in_a_task, [X] * 3, [where] * 3, [beside] * 3, pure=False)
    try:
        for future in tasks:
            found, labels = future.result(120)
            assert found == ranks
            np.testing.assert_array_equal(labels, expected)
    finally:
        client.cancel(tasks)
