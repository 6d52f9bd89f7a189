"""What another account of the machine gets from the ports of clusters that mgclust starts: nothing."""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import psutil
import pytest

from mgclust import DensityPeaks, Service, load_result
from mgclust.base.errors import InputError, RunFailed
from mgclust.engine.dask.cluster import connect
from mgclust.service.client import connection
from support.service_process import Running
from support.stranger import Stranger, family, keys_shown, listening

TRIES = 32  # at each address
pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

LOCAL = """
import sys
from mgclust.engine.dask.cluster import connect
with connect("local", "cpu", n_workers=2):
    print("ready", flush=True)
    sys.stdin.read()
"""


@pytest.fixture(scope="module")
def points(tmp_path_factory):
    """Enough rows that the stranger finds the ports of a run while it lasts."""
    path = tmp_path_factory.mktemp("points") / "points.npy"
    np.save(path, np.random.default_rng(5).normal(size=(30_000, 8)).astype("float32"))
    return path


@pytest.fixture(scope="module")
def expected(points):
    return DensityPeaks(4, client=None, device="cpu", algorithm="brute").fit(np.load(points)).labels_


def start(*command):
    return psutil.Popen([sys.executable, *map(str, command)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def test_a_local_cluster():
    with Stranger() as stranger, start("-c", LOCAL) as process:
        assert process.stdout.readline() == "ready\n"
        addresses = listening(family(process))
        assert len(addresses) >= 5  # scheduler, two nannies, two workers
        stranger.attack(addresses)
        tries, heard = stranger.finish()
        assert tries == len(addresses) * TRIES
        assert not heard
        assert len(addresses) == 5  # and no HTTP server
        assert {host for host, _ in addresses} == {"127.0.0.1"}
        assert not keys_shown(family(process))
        process.stdin.close()
        assert process.wait(60) == 0


def test_a_folder_for_dask_that_another_account_has_made_before(tmp_path, monkeypatch):
    """Nodes empty its lock file, which may be a link to any file, and import modules from below it."""
    planted, thesis = tmp_path / "dask-scratch-space", tmp_path / "thesis"
    planted.mkdir()
    thesis.write_text("mine")
    (planted / "global.lock").symlink_to(thesis)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    with connect("local", "cpu", 1) as cluster:
        assert thesis.read_text() == "mine"
        (private,) = tmp_path.glob("mgclust-*")
        assert private.stat().st_mode & 0o777 == 0o700
        (worker,) = cluster.client.run(lambda dask_worker: dask_worker.local_directory).values()
        scheduler = cluster.client.run_on_scheduler(lambda dask_scheduler: dask_scheduler.local_directory)
        assert {Path(each).is_relative_to(private) for each in (worker, scheduler)} == {True}
    assert {path.name for path in tmp_path.iterdir()} == {"dask-scratch-space", "thesis"}
    assert os.listdir(planted) == ["global.lock"]


def test_a_run(points, expected, tmp_path):
    out = tmp_path / "out"
    options = ("--n-clusters", 4, "--algorithm", "brute", "--no-report", "--cpu", "--workers", 2)
    with Stranger() as stranger, start("-m", "mgclust", "run", "density-peaks", points, "-o", out, *options) as process:
        with stranger.attacking(lambda: family(process)):
            assert process.wait(200) == 0
        _, heard = stranger.finish()
        assert not heard
        assert not stranger.keys_shown
        assert len(stranger.addresses) >= 5
    np.testing.assert_array_equal(load_result(out).labels, expected)


def test_a_job(points, expected, tmp_path):
    """The web process, which any account may ask, is not meant here; all that it starts is."""
    service = Running(tmp_path)
    try:
        web = psutil.Process(service.web.pid)
        with Stranger() as stranger:
            with stranger.attacking(lambda: family(web)[1:]):
                resources, parameters = {"workers": 2}, {"n_clusters": 4, "algorithm": "brute"}
                job = service.client().submit("density-peaks", points, report=False, resources=resources, **parameters)
                info = job.wait().info
            assert info["state"] == "SUCCEEDED", info["error"]
            _, heard = stranger.finish()
            assert not heard
            assert not stranger.keys_shown
            assert len(stranger.addresses) >= 5
    finally:
        service.stop()
    result = load_result(service.data / "jobs" / info["id"] / f"attempt-{info['attempt']}" / "result")
    assert result.hardware["ranks"] == 2
    np.testing.assert_array_equal(result.labels, expected)


SCRIPT = """
import os
import own
from mgclust.cli import main
from mgclust.engine.dask.cluster import connect
if __name__ == "__main__":
    with connect("local", "cpu", 1) as cluster:
        assert cluster.client.submit(own.answer).result() == 42  # what a script imports, its workers find
    assert "PYTHONSAFEPATH" not in os.environ
    main()
"""


@pytest.mark.parametrize("command", [("run", "density-peaks", "--workers", "1", "--n-clusters", "2"), ("warmup",)])
def test_no_code_comes_from_the_current_folder(command, tmp_path, monkeypatch):
    """Another account may write there, for example in /tmp."""
    monkeypatch.delenv("PYTHONSAFEPATH", raising=False)
    planted, scripts = tmp_path / "planted", tmp_path / "scripts"
    planted.mkdir(), scripts.mkdir()
    for name in ("multiprocessing", "pickle", "numpy", "distributed"):
        (planted / f"{name}.py").write_text(f"open({str(tmp_path / 'executed')!r}, 'w').close()\nimport nothing")
    (scripts / "own.py").write_text("def answer():\n    return 42\n")
    (scripts / "script.py").write_text(SCRIPT)
    np.save(tmp_path / "points.npy", np.random.default_rng(5).normal(size=(60, 2)))
    more = (tmp_path / "points.npy", "-o", tmp_path / "out", "--no-report") if command[0] == "run" else ("canopy",)
    arguments = map(str, (sys.executable, scripts / "script.py", *command, *more, "--cpu"))
    ran = subprocess.run(arguments, cwd=planted, capture_output=True, text=True, timeout=240)
    assert not (tmp_path / "executed").exists()
    assert ran.returncode == 0, ran.stderr


@contextlib.contextmanager
def taken(port):
    """A program that listens at a port and answers nothing; what it receives."""
    heard = []

    def listen():
        with contextlib.suppress(OSError):
            while True:
                client, _ = server.accept()
                with client:
                    heard.append(client.recv(1 << 16))

    with socket.create_server(("127.0.0.1", port)) as server:
        listener = threading.Thread(target=listen, daemon=True)
        listener.start()
        yield heard
        server.shutdown(socket.SHUT_RDWR)
        listener.join(10)


def test_a_program_at_the_port_of_a_service_that_is_down(tmp_path, monkeypatch):
    """Clients that find their token in the data folder find the service there, too, and send it to no port."""
    service = Running(tmp_path, ["--no-runner"])
    monkeypatch.setenv("MGCLUST_SERVICE_DATA", str(service.data))
    monkeypatch.setenv("MGCLUST_SERVICE_PORT", str(service.port))
    monkeypatch.setattr(connection, "RETRY_SECONDS", ())
    for name in ("MGCLUST_URL", "MGCLUST_TOKEN", "MGCLUST_TOKEN_FILE"):
        monkeypatch.delenv(name, raising=False)
    client = Service()
    try:
        assert client.jobs() == []
    finally:
        service.stop()
    with taken(service.port) as heard:
        for each in (client, Service(), Service(service.url)):
            with pytest.raises(RunFailed, match=f"no service answers at .*{service.port}"):
                each.jobs()
    assert not heard
    try:
        service.start()
        assert client.jobs() == Service(service.url).jobs() == []
        assert oct((service.data / f"{service.port}.socket").stat().st_mode & 0o777) == "0o700"
    finally:
        service.stop()


def test_another_web_process_of_the_data_folder_with_the_same_port(tmp_path, monkeypatch, capfd):
    service = Running(tmp_path, ["--no-runner"])
    path = service.data / f"{service.port}.socket"
    monkeypatch.setenv("MGCLUST_SERVICE_DATA", str(service.data))
    monkeypatch.setenv("MGCLUST_SERVICE_PORT", str(service.port))
    monkeypatch.setattr(connection, "RETRY_SECONDS", ())
    command = ("serve", "--no-runner", "--cpu", "--host", "127.0.0.2", "--port")
    try:
        own = path.stat().st_ino
        other = start("-m", "mgclust", *command, service.port, "--data", service.data)
        with other, contextlib.ExitStack() as ends:
            ends.enter_context(contextlib.suppress(psutil.NoSuchProcess))
            ends.callback(other.kill)
            told, end = "", time.monotonic() + 120
            while "Address already in use" not in told:
                assert other.poll() is None and path.stat().st_ino == own and time.monotonic() < end
                time.sleep(0.05)
                told += capfd.readouterr().err
            assert f"no socket at {path} (Address already in use)" in told
            assert Service().jobs() == []
            other.terminate()
            other.wait(60)
        assert path.stat().st_ino == own and Service().jobs() == []
        service.web.kill()  # leaves the socket, which the next one replaces
        service.web.wait()
        service.start()
        assert Service().jobs() == []
    finally:
        service.stop()


@pytest.mark.slow
def test_a_web_process_takes_the_place_of_one_that_has_ended(tmp_path, monkeypatch, capfd):
    """As in the update of a deployment, which starts the new process before it stops the old one."""
    service = Running(tmp_path, ["--no-runner"])
    monkeypatch.setenv("MGCLUST_SERVICE_DATA", str(service.data))
    monkeypatch.setenv("MGCLUST_SERVICE_PORT", str(service.port))
    command = ("serve", "--no-runner", "--cpu", "--host", "127.0.0.2", "--port")
    try:
        other = start("-m", "mgclust", *command, service.port, "--data", service.data)
        with other, contextlib.ExitStack() as ends:
            ends.callback(other.kill)
            told, end = "", time.monotonic() + 120
            while "Address already in use" not in told:
                assert other.poll() is None and time.monotonic() < end
                time.sleep(0.05)
                told += capfd.readouterr().err
            service.web.terminate()
            service.web.wait()
            assert Service().jobs() == []  # asked again for some seconds
    finally:
        service.stop()


def test_a_data_folder_with_a_path_that_is_too_long_for_a_socket(tmp_path, monkeypatch):
    monkeypatch.setenv("MGCLUST_SERVICE_DATA", str(tmp_path / ("d" * 120) / "data"))
    (tmp_path / ("d" * 120)).mkdir()
    service = Running(tmp_path / ("d" * 120), ["--no-runner"])
    monkeypatch.setenv("MGCLUST_SERVICE_PORT", str(service.port))
    try:
        with pytest.raises(InputError, match=r"is too long: a socket's path .* set MGCLUST_URL and MGCLUST_TOKEN_FILE"):
            Service().jobs()
        monkeypatch.setenv("MGCLUST_URL", service.url)
        monkeypatch.setenv("MGCLUST_TOKEN_FILE", str(service.data / "token"))
        assert Service().jobs() == []
    finally:
        service.stop()
