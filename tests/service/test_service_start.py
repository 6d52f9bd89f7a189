"""What happens between the start of ``mgclust serve`` and the first result."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import subprocess
import sys
import threading

import psutil
import pytest
import uvicorn

from mgclust.base.errors import InputError
from mgclust.cli import run_command, serve
from mgclust.service.runner import supervisor
from mgclust.service.web.perimeter.server import Server
from support.service_process import Running, command_line
from support.waiting import wait_for

pytestmark = pytest.mark.xdist_group("service")

# What a web process does until it has accepted a job.
WEB = """
import sys
from mgclust.service.web import app, requests

requests.describe_methods()
requests.Submission(method="density-peaks", sources=[{"path": "/x.npy"}], parameters={"dc_fraction": 0.01}).check()
heavy = {"dask", "distributed", "matplotlib", "numba", "pandas", "pyarrow", "scipy", "sklearn"}
print(*sorted(heavy & set(sys.modules)))
"""


def test_the_web_process_imports_no_estimators():
    """They take 1.5 s and 200 MB, and it computes nothing."""
    done = subprocess.run([sys.executable, "-c", WEB], capture_output=True, text=True, check=True)
    assert done.stdout.split() == []


@pytest.mark.usefixtures("own_folder")
def test_the_runner_starts_before_the_web_process_imports_its_modules(monkeypatch, capsys):
    """And ends if the web process cannot start."""
    begun, ended = threading.Event(), threading.Event()

    def supervise(settings, stopping, report):
        begun.set()
        assert stopping.wait(60)
        ended.set()

    def pages(*_):
        assert begun.wait(60)
        raise InputError("the pages cannot be served.")

    monkeypatch.setattr(supervisor, "supervise_runner", supervise)
    monkeypatch.setattr(serve, "_serve_pages", pages)
    assert run_command(["serve", "--cpu"]) == 2
    assert ended.is_set()
    assert "the pages cannot be served." in capsys.readouterr().err


@pytest.mark.usefixtures("own_folder")
def test_a_port_in_use_is_rejected_before_anything_starts(capsys):
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        assert run_command(["serve", "--cpu", "--port", str(port)]) == 2
    told = capsys.readouterr().err
    assert f"error: --host 127.0.0.1 --port {port} cannot be used: Address already in use; stop" in told
    assert run_command(["serve", "--cpu", "--host", "192.0.2.1"]) == 2
    assert "--host 192.0.2.1 --port 8700 cannot be used" in capsys.readouterr().err


@pytest.mark.slow
def test_a_second_service_of_a_folder_says_that_it_waits(tmp_path):
    running = Running(tmp_path, settings={"slots": 1}, kernels=False)
    second = [sys.executable, "-m", "mgclust", "serve", "--cpu", "--port", "0", "--data", str(running.data)]
    try:
        with subprocess.Popen(second, stderr=subprocess.PIPE, text=True, start_new_session=True) as other:
            assert any("another runner computes the jobs of this folder" in line for line in other.stderr)
            os.killpg(other.pid, signal.SIGINT)  # as Ctrl-C does
            assert "Traceback" not in other.stderr.read()
            assert other.wait(30) == 0
    finally:
        running.stop()


@pytest.mark.slow
def test_ctrl_c_does_not_interrupt_the_imports_of_the_runner(tmp_path):
    """Ctrl-C reaches all processes of a terminal, and the supervisor stops the runner."""
    command = [sys.executable, "-m", "mgclust", "serve", "--cpu", "--port", "0", "--data", str(tmp_path / "data")]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as service:

        def runners():
            children = psutil.Process(service.pid).children()
            return [each for each in children if "mgclust.service.runner.runner" in command_line(each)]

        wait_for(runners)
        runners()[0].send_signal(signal.SIGINT)
        told = []
        for line in service.stderr:
            told.append(line)
            if "files are opened" in line:  # the runner has started
                service.terminate()
        assert service.wait(60) == 0
        assert not any(word in "".join(told) for word in ("Traceback", "KeyboardInterrupt", "the runner ended"))


def test_a_server_removes_its_socket_and_those_of_killed_servers(tmp_path):
    """A socket at which another process listens stays, and so do other files."""
    left, used, text = (tmp_path / f"{name}.socket" for name in (1, 2, 3))
    with socket.socket(socket.AF_UNIX) as killed:
        killed.bind(str(left))
    text.write_text("text")
    with socket.socket(socket.AF_UNIX) as other:
        other.bind(str(used))
        other.listen()

        async def run(path, replaced):
            config = uvicorn.Config(lambda *_: None, port=0, lifespan="off", log_level="error")
            server = Server(config, path, threading.Event())
            config.load()
            server.lifespan = config.lifespan_class(config)
            await server.startup()
            assert path.is_socket()
            if replaced:
                path.unlink()
                path.write_text("of another process")
            await server.shutdown()

        asyncio.run(run(tmp_path / "4.socket", False))
        assert sorted(tmp_path.iterdir()) == [used, text]
        asyncio.run(run(tmp_path / "4.socket", True))
        assert sorted(tmp_path.iterdir()) == [used, text, tmp_path / "4.socket"]


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGKILL])
def test_files_that_stay_when_a_service_ends(tmp_path, number):
    """The data, the log of the database and free locks stay. After a kill, a socket stays until the next start."""
    lasting = {"audit.log", "clock", "folder-id", "reserve", "root", "runner.lock", "service.db", "service.db-shm",
               "service.db-wal", "token"}  # fmt: skip
    running = Running(tmp_path, settings={"slots": 1}, kernels=False)
    running.web.send_signal(number)
    running.web.wait(90)
    wait_for(lambda: running.runner() is None)
    killed = {f"{running.port}.socket"} if number == signal.SIGKILL else set()
    assert {path.name for path in running.data.iterdir()} - lasting == killed
    running.port += 1
    running.url = f"http://127.0.0.1:{running.port}"
    running.start()
    assert {path.name for path in running.data.glob("*.socket")} == {f"{running.port}.socket"}
    running.stop()
    assert {path.name for path in running.data.iterdir()} <= lasting


@pytest.mark.slow
def test_readers_load_before_the_first_request(tmp_path):
    running = Running(tmp_path, settings={"slots": 1}, kernels=False)
    try:
        wait_for(lambda: running.processes("mgclust.service.confined.reader_process"))
    finally:
        running.stop()
