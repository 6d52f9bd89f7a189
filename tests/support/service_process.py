"""A job service of real processes, for tests that send it jobs and kill parts of it."""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

import httpx
import psutil

from mgclust import Service
from mgclust.base.errors import InputError
from mgclust.service.queue import access
from mgclust.service.queue.models import open_database
from mgclust.service.settings import Settings
from support.kernel_caches import give_kernels

# The web process, some of whose constants are others.
WITH_CONSTANTS = """
import ast, importlib, sys

for name, value in ast.literal_eval(sys.argv.pop(1)).items():
    module, constant = name.rsplit(".", 1)
    setattr(importlib.import_module(f"mgclust.service.{module}"), constant, value)

from mgclust.cli import main

main()
"""
MAX_ROWS = 3_000_000  # of the service that files of tests share


def free_port() -> int:
    """A port that stays free between two starts: none of those from which the system takes ports of connections."""
    while True:
        port = 10_000 + secrets.randbelow(20_000)
        with contextlib.suppress(OSError), socket.socket() as tried:
            tried.bind(("127.0.0.1", port))
            return port


def holds(process: psutil.Process | None, words: str) -> bool:
    """Whether a process has a file open in whose path these words are; one that has ended has none."""
    with contextlib.suppress(psutil.Error):
        return process is not None and any(words in file.path for file in process.open_files())
    return False


def has_ended(process: psutil.Process) -> bool:
    """Whether a process has ended, though its parent, or this process, has not asked for its exit status yet."""
    with contextlib.suppress(psutil.NoSuchProcess):
        return process.status() == psutil.STATUS_ZOMBIE
    return True


def command_line(process: psutil.Process) -> list[str]:
    """The words of a process, and none of one that has ended."""
    with contextlib.suppress(psutil.NoSuchProcess):
        return process.cmdline()
    return []


MOST_TOKENS = 60  # of a user, that a service of the tests leaves valid


class Running:
    """A service, started and started again.

    Parameters
    ----------
    folder : Path
        Its data folder is made there.
    options : sequence of str
        Of ``mgclust serve``, beside those that a test always gives.
    database : str
        URL; by default that of the file in its data folder.
    settings : mapping
        Of the service, by name, beside those that a test always gives.
    environment : mapping
        Of its processes, beside that of this one.
    constants : mapping
        Of modules of `mgclust.service` in the web process, by their names there:
        ``{"web.perimeter.server.IDLE_SECONDS": 1.0}``.
    kernels : bool
        Give its users' jobs the kernels that are compiled already. Each user's jobs would compile them again.
    """

    def __init__(
        self,
        folder: Path,
        options: Sequence[str] = (),
        database: str = "",
        settings: Mapping[str, object] | None = None,
        environment: Mapping[str, str] | None = None,
        constants: Mapping[str, object] | None = None,
        kernels: bool = True,
    ) -> None:
        self.port = free_port()
        self.data, self.url = folder / "data", f"http://127.0.0.1:{self.port}"
        self.database = database or f"sqlite:///{self.data / 'service.db'}"
        self._options = (*options, "--database", database) if database else tuple(options)
        self._settings = {f"MGCLUST_SERVICE_{name.upper()}": str(value) for name, value in (settings or {}).items()}
        self._environment = environment or {}
        self._program = ["-c", WITH_CONSTANTS, repr(dict(constants))] if constants else ["-m", "mgclust"]
        self._tokens: dict[str, list[str]] = {}  # ids of the users' tokens, the oldest first
        self.root, self._errors, self._kernels = folder / "root", folder / "errors.txt", kernels
        self.root.mkdir()
        self.start()

    def start(self) -> None:
        command = [
            sys.executable, *self._program, "serve", "--data", str(self.data), "--port", str(self.port),
            "--root", str(self.root), "--slots", "2", *self._options,
        ]  # fmt: skip
        environment = os.environ | {
            "MGCLUST_SERVICE_CPU": "true",
            "MGCLUST_SERVICE_MAX_WORKERS": "4",  # also on a machine of fewer cores
            "MGCLUST_SERVICE_LOST_AFTER": "4",
            "MGCLUST_SERVICE_CHECKPOINT_SECONDS": "0.2",
            "MGCLUST_SERVICE_UPLOAD_LIMIT": str(64 << 20),
            "NUMBA_NUM_THREADS": "2",
            **self._settings,
            **self._environment,
        }
        with self._errors.open("wb") as errors:
            self.web = subprocess.Popen(command, env=environment, stderr=errors)
        end = time.monotonic() + 300  # of a machine that does much else
        while True:
            try:
                if httpx.get(f"{self.url}/healthz").status_code == 200:
                    return
            except httpx.TransportError:
                pass
            assert self.web.poll() is None, self._errors.read_text()
            assert time.monotonic() < end
            time.sleep(0.1)

    def client(self, user: str = "admin") -> Service:
        if user == "admin":
            self._give_kernels(user)
            return Service(self.url, (self.data / "token").read_text().strip())
        return Service(self.url, self.token_of(user)[1])

    def _give_kernels(self, user: str) -> None:
        folder = Settings(data=self.data).cache_folder(user)
        if self._kernels and not folder.exists():
            give_kernels(folder / "numba")

    def token_of(self, user: str) -> tuple[str, str]:
        self._give_kernels(user)
        engine = open_database(self.database)
        with contextlib.suppress(InputError):  # there already
            access.add_user(engine, user, "user")
        made = access.new_token(engine, user)
        kept = self._tokens.setdefault(user, [])
        kept.append(made[0])
        if len(kept) > MOST_TOKENS:  # files of tests share a service, and a user may have only 100 valid tokens
            access.revoke(engine, kept.pop(0))
        return made

    def processes(self, module: str) -> list[psutil.Process]:
        found = psutil.process_iter(["cmdline"])
        return [each for each in found if module in (each.info["cmdline"] or []) and self._ours(each)]

    def _ours(self, process: psutil.Process) -> bool:
        """Whether it holds a file of this service's folder, or its parent does."""
        with contextlib.suppress(psutil.NoSuchProcess):
            return holds(process, str(self.data)) or holds(process.parent(), str(self.data))
        return False

    def runner(self) -> psutil.Process | None:
        """The runner that holds the lock, if one does. It alone: what it starts has its command line for a moment."""
        with contextlib.suppress(FileNotFoundError, ValueError, psutil.NoSuchProcess):
            process = psutil.Process(json.loads((self.data / "runner.lock").read_text())["pid"])
            return None if has_ended(process) else process
        return None

    def computing(self, id_: str) -> list[psutil.Process]:
        """The processes of attempts that hold files of a job; another one waits for the next job."""
        return [each for each in self.processes("mgclust.service.runner.attempt") if holds(each, id_)]

    def stop(self) -> None:
        self.web.send_signal(signal.SIGTERM)
        try:
            self.web.wait(90)
        except subprocess.TimeoutExpired:
            self.web.kill()
        for process in self.processes("mgclust.service.runner.runner"):
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()
