"""The service that files of tests share: they have the mark ``xdist_group("service")``."""

from __future__ import annotations

import os
import signal

import httpx
import pytest

from mgclust.service.client import connection
from support.browser import CHROMIUM, Browser
from support.service_process import MAX_ROWS, Running

ADMINS = "mgc_of_the_admin"


@pytest.fixture(scope="session")
def running(tmp_path_factory):
    """Of default settings, but that it takes fewer rows."""
    service = Running(tmp_path_factory.mktemp("service"), settings={"max_rows": MAX_ROWS})
    yield service
    service.stop()


@pytest.fixture
def own_folder(tmp_path, monkeypatch):
    """A folder of a service of this account, at port 8700."""
    for name in [name for name in os.environ if name.startswith("MGCLUST_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("MGCLUST_SERVICE_DATA", str(tmp_path / "data"))
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "token").write_text(f"{ADMINS}\n")
    # Commands that serve set these for the rest of their process.
    before, handlers = os.umask(0o077), {each: signal.getsignal(each) for each in (signal.SIGINT, signal.SIGTERM)}
    yield
    os.umask(before)
    for number, handler in handlers.items():
        signal.signal(number, handler)


@pytest.fixture
def answers(monkeypatch):
    """Let every client be answered by ``answers.by``; what was asked is in ``answers.requests``."""

    class Answers:
        def __init__(self):
            self.requests = []

        def by(self, request):
            return httpx.Response(200, json=[])

        def __call__(self, request):
            request.read()
            self.requests.append(request)
            return self.by(request)

    made, real = Answers(), httpx.Client
    monkeypatch.setattr(connection, "RETRY_SECONDS", ())
    monkeypatch.setattr(connection, "WATCH_PAUSES", ())

    def client(transport, **how):
        made.transport = transport
        return real(transport=httpx.MockTransport(made), **how)

    monkeypatch.setattr(connection.httpx, "Client", client)
    return made


@pytest.fixture
def browser(tmp_path):
    if CHROMIUM is None:
        pytest.skip("Chromium is not installed (Debian: apt install chromium)")
    shown = Browser(tmp_path)
    yield shown
    shown.close()
