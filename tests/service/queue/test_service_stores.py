"""Objects of S3-compatible stores as uploads: a server of moto, and servers that redirect, stop or send too much."""

import asyncio
import contextlib
import os
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import httpx
import pytest
from fastapi.testclient import TestClient

from mgclust.base.errors import InputError, RunFailed
from mgclust.service.queue import access, stores
from mgclust.service.queue.identities import caller_of
from mgclust.service.queue.jobs.submission import TooManyJobs
from mgclust.service.queue.models import migrate, open_database
from mgclust.service.queue.quotas import QuotaExceeded
from mgclust.service.queue.sources import TooLarge, find_uploads
from mgclust.service.settings import Settings
from mgclust.service.web.app import create_app
from support.s3_server import client_of, s3_server, signatures_checked

ANN, BOB = access.Caller("ann", "user"), access.Caller("bob", "user")
SECRET = "do-not-show-this"


@pytest.fixture(scope="module")
def endpoint():
    with s3_server() as (url, client):
        client.create_bucket(Bucket="lab")
        client.create_bucket(Bucket="others")
        for key in ("ann/rows.npy", "ann2/rows.npy", "bob/rows.npy", "top.npy", "ann/deep/rows.npy"):
            client.put_object(Bucket="lab", Key=key, Body=key.encode())
        client.put_object(Bucket="lab", Key="ann/large.npy", Body=b"x" * 2_000_000)
        client.put_object(Bucket="lab", Key="ann/empty.npy", Body=b"")
        client.put_object(Bucket="others", Key="rows.npy", Body=b"hidden")
        yield url


@pytest.fixture
def settings(tmp_path):
    return Settings(data=tmp_path, upload_limit=1_000_000)


@pytest.fixture
def engine(settings):
    made = open_database(settings.database)
    migrate(made)
    for name in ("ann", "bob"):
        access.add_user(made, name, "user")
    return made


def read(engine, settings, endpoint, path, caller=ANN, name="lab", **given):
    store = stores.Store(endpoint, "lab", "k", SECRET, "{user}")._replace(**given)
    return asyncio.run(stores.read_object(engine, settings, {"lab": store}, caller, name, path))


def test_an_object_becomes_an_upload_of_the_user(engine, settings, endpoint):
    for path, content in (("rows.npy", b"ann/rows.npy"), ("deep/rows.npy", b"ann/deep/rows.npy"), ("empty.npy", b"")):
        made = read(engine, settings, endpoint, path)
        assert made["owner"] == "ann" and made["size"] == len(content) and made["new"]
        (file,) = find_uploads(engine, settings, [(ANN, made["id"])])
        assert (
            settings.data / "uploads" / made["id"] / path.rpartition("/")[2]
        ).read_bytes() == content and file.called
    assert not read(engine, settings, endpoint, "rows.npy")["new"]  # it is known by its content
    assert read(engine, settings, endpoint, "rows.npy", BOB)["owner"] == "bob"


@pytest.mark.parametrize(
    "path",
    ["../bob/rows.npy", "deep/../../bob/rows.npy", "/rows.npy", "..", "", "deep//rows.npy", "./rows.npy", "a\\..\\b",
     "a\nb", "x" * 2_000],
)  # fmt: skip
def test_a_path_that_leaves_the_prefix_is_rejected_before_a_request(engine, settings, path):
    with pytest.raises(InputError, match="should be an object's path"):
        read(engine, settings, "http://127.0.0.1:9", path)


@pytest.mark.parametrize("path", ["missing.npy", "deep", "%2e%2e/bob/rows.npy", "..%2fbob/rows.npy", "deep*/rows.npy"])
def test_what_is_no_object_below_the_prefix_is_not_found(engine, settings, endpoint, path):
    with pytest.raises(InputError, match="does not exist, or the service may not read it"):
        read(engine, settings, endpoint, path)
    assert not list((settings.data / "uploads").glob("*"))


def test_stores_are_for_the_users_that_they_name(engine, settings, endpoint):
    assert read(engine, settings, endpoint, "rows.npy", users=("ann",))["new"]
    with pytest.raises(
        InputError, match=r"store='lab' is not one of your stores; the administrator has given you none"
    ):
        read(engine, settings, endpoint, "rows.npy", BOB, users=("ann",))
    with pytest.raises(InputError, match=r"store='other' is not one of your stores; use one of lab"):
        read(engine, settings, endpoint, "rows.npy", name="other")


def test_names_that_people_may_have_chosen_at_a_provider_open_no_store(engine, settings, endpoint):
    claims = {"iss": "https://login.example", "sub": "7", "preferred_username": "eve"}
    eve = caller_of(engine, settings, claims)
    for given in ({"users": ("eve",), "prefix": "ann"}, {"prefix": "ann{user}"}, {"users": ("eve",)}):
        with pytest.raises(InputError, match="is not one of your stores"):
            read(engine, settings, endpoint, "rows.npy", eve, **given)
    assert read(engine, settings, endpoint, "rows.npy", eve, users=None, prefix="ann")["owner"] == "eve"
    trusted = {"names_from_provider": True, "users": ("eve",), "prefix": "bob"}
    assert read(engine, settings, endpoint, "rows.npy", eve, **trusted)["new"]


def test_an_object_has_the_limits_of_an_upload(engine, settings, endpoint):
    with pytest.raises(TooLarge, match="upload_limit"):
        read(engine, settings, endpoint, "large.npy")
    with pytest.raises(QuotaExceeded):
        read(engine, Settings(data=settings.data, disk_per_user=1_000), endpoint, "large.npy")
    assert not list((settings.data / "uploads").glob("*")) and not stores._reading


@pytest.fixture
def server():
    """A server that answers as a test says, and what it was asked."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            self.server.paths.append(self.path)
            self.server.answer(self)

        do_HEAD = do_GET

        def log_message(self, *_):
            pass

    made = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    made.paths, made.url = [], f"http://127.0.0.1:{made.server_port}"
    threading.Thread(target=made.serve_forever, daemon=True).start()
    yield made
    made.shutdown()


@pytest.mark.parametrize("status", [301, 302, 307, 308])
def test_a_redirect_is_not_followed(engine, settings, server, endpoint, status):
    def answer(request):
        request.send_response(status)
        request.send_header("Location", f"{endpoint}/others/rows.npy")
        request.send_header("Content-Length", "0")
        request.end_headers()

    server.answer = answer
    with pytest.raises((InputError, RunFailed)) as error:
        read(engine, settings, server.url, "rows.npy")
    assert server.paths and SECRET not in str(error.value) and endpoint not in str(error.value)
    assert not list((settings.data / "uploads").glob("*"))


def test_a_store_that_stops_or_is_away_is_an_error_in_time(engine, settings, server, monkeypatch):
    monkeypatch.setattr(stores, "READ_SECONDS", 0.3)
    monkeypatch.setattr(stores, "CONNECT_SECONDS", 0.3)
    server.answer = lambda request: time.sleep(1.5)
    for url in (server.url, "http://127.0.0.1:9"):
        began = time.monotonic()
        with pytest.raises(RunFailed, match=r"store='lab' did not send the object") as error:
            read(engine, settings, url, "rows.npy")
        assert time.monotonic() - began < 20 and SECRET not in str(error.value) and url not in str(error.value)
    assert not stores._reading


def drip(request, start, piece):
    """Send `start`, and then `piece` until the other end closes the connection; count what was taken."""
    with contextlib.suppress(OSError):
        request.wfile.write(start)
        while True:
            request.server.sent += request.wfile.write(piece)
            if len(piece) < 100:
                request.wfile.flush()
                time.sleep(0.02)


OK = b"HTTP/1.1 200 OK\r\n"


@pytest.mark.parametrize(
    ("start", "piece", "sentence"),
    [
        (b"", b"HTTP/1.1 100 Continue\r\n\r\n", "TimeoutError"),
        (OK, b"a: b\r\n", "TimeoutError"),
        (OK + b"Content-Length: 1000\r\n\r\n", b"x", "TimeoutError"),
        (OK + b"Content-Length: 1000\r\nTransfer-Encoding: chunked\r\n\r\n", b"1\r\nx\r\n", "TimeoutError"),
        (OK + b"Content-Length: 9\r\nTransfer-Encoding: chunked\r\n\r\n", b"100000\r\n" + b"x" * 2**20 + b"\r\n",
         "ConnectionError"),
        (OK + b"\r\n", b"x" * 2**16, "KeyError"),
        (OK + b"Content-Length: all\r\n\r\n", b"x" * 2**16, "ProtocolError"),
        (b"HTTP/1.1 500 No\r\nContent-Length: 99999999999\r\n\r\n", b"x" * 2**16, "status 500"),
        (b"HTTP/1.1 206 Part\r\nContent-Length: 9\r\n\r\n", b"x" * 2**16, "status 206"),
        (b"HTTP/1.1 404 No\r\n\r\n", b"x" * 2**16, "does not exist"),
    ],
    ids=["interim answers", "headers", "body", "chunks", "more than it says", "no length", "wrong length", "error",
         "a part", "missing"],
)  # fmt: skip
def test_a_store_that_drips_or_floods_costs_little(engine, settings, server, monkeypatch, start, piece, sentence):
    monkeypatch.setattr(stores, "START_SECONDS", 0.5)
    server.sent, server.answer = 0, lambda request: drip(request, start, piece)
    began = time.monotonic()
    with pytest.raises((RunFailed, InputError), match=sentence):
        read(engine, settings, server.url, "rows.npy")
    assert time.monotonic() - began < 3 and not stores._reading
    assert server.sent < 20 * 2**20 and len(server.paths) == 1
    assert not list((settings.data / "uploads").glob("*"))


def test_a_large_object_may_take_longer(engine, settings, server, monkeypatch):
    monkeypatch.setattr(stores, "START_SECONDS", 0.5)
    monkeypatch.setattr(stores, "MIN_BYTES_PER_SECOND", 40)

    def answer(request):
        request.wfile.write(OK + b"Content-Length: 100\r\n\r\n")
        for _ in range(20):
            time.sleep(0.05)
            request.wfile.write(b"x" * 5)
            request.wfile.flush()

    server.answer = answer
    assert read(engine, settings, server.url, "rows.npy")["size"] == 100


@pytest.mark.parametrize("name", ["plain.npy", "ü~(1)+&=$@,;:'!*[]{}<>?#%41 b.npy", "a%2Fb.npy", "æ/ 雪.npy"])
def test_a_store_that_checks_signatures(engine, settings, endpoint, name):
    client_of("s3", endpoint).put_object(Bucket="lab", Key=f"ann/{name}", Body=b"signed")
    with signatures_checked(endpoint, f"reader{abs(hash(name))}") as (key, secret):
        store = stores.Store(endpoint, "lab", key, secret, "{user}")
        url, headers = stores._signed(store, "ann", name)
        answer = httpx.get(url, headers=headers)
        assert answer.status_code == 200 and answer.content == b"signed"
        url, headers = stores._signed(store._replace(secret="wrong"), "ann", name)
        assert httpx.get(url, headers=headers).status_code == 403


def test_one_object_of_a_user_is_read_at_a_time(engine, settings, endpoint, monkeypatch):
    monkeypatch.setattr(stores, "_reading", {"ann"})
    with pytest.raises(TooManyJobs, match="another object"):
        read(engine, settings, endpoint, "rows.npy")
    assert read(engine, settings, endpoint, "rows.npy", BOB)["new"]


TOML = f'[lab]\nendpoint = "https://s3.example"\nbucket = "lab"\nkey = "k"\nsecret = "{SECRET}"\n'


def written(tmp_path, content, mode=0o600):
    path = tmp_path / "stores.toml"
    path.write_text(content)
    path.chmod(mode)
    return Settings(data=tmp_path / "data", stores=str(path))


def test_the_file_of_stores_is_read_and_hidden_from_jobs(tmp_path):
    settings = written(tmp_path, TOML + 'prefix = "{user}/"\nusers = ["ann"]\n')
    found = stores.read_stores(settings)
    assert found == {"lab": stores.Store("https://s3.example", "lab", "k", SECRET, "{user}/", ("ann",))}
    assert settings.stores in settings.concealed and SECRET not in settings.to_json()


@pytest.mark.parametrize(
    "content",
    ["", "[lab", "lab = 1", TOML.replace("https", "ftp"), TOML.replace('"k"', "1"), TOML.replace('"k"', '""'),
     TOML + "more = 1\n", TOML + 'users = "ann"\n', TOML + "users = [1]\n", TOML + 'prefix = "a/../b"\n',
     TOML.replace('"lab"', '"lab/other"'), TOML + "names_from_provider = 1\n", TOML + "region = 1\n", "#" * 70_000],
)  # fmt: skip
def test_an_invalid_file_of_stores_is_rejected_and_not_quoted(content, tmp_path):
    with pytest.raises(InputError, match="stores=") as error:
        stores.read_stores(written(tmp_path, content))
    assert SECRET not in str(error.value)


def test_a_secret_of_kubernetes_is_read(tmp_path, monkeypatch):
    """It belongs to root, and the group of the service may read it."""
    plain = os.fstat
    monkeypatch.setattr(os, "fstat", lambda file: os.stat_result((*plain(file)[:4], 0, *plain(file)[5:])))
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    settings = written(tmp_path, TOML, 0o440)
    assert list(stores.read_stores(settings)) == ["lab"]
    for mode in (0o460, 0o444):
        (tmp_path / "stores.toml").chmod(mode)
        with pytest.raises(InputError, match="only this account can read"):
            stores.read_stores(settings)


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o660])
def test_a_file_of_stores_that_others_may_read_is_rejected(mode, tmp_path):
    with pytest.raises(InputError, match="mode to 0600"):
        stores.read_stores(written(tmp_path, TOML, mode))


def test_other_things_than_files_of_stores_are_rejected(tmp_path):
    os.mkfifo(tmp_path / "fifo", 0o600)
    for path in (tmp_path / "fifo", tmp_path / "missing", tmp_path):
        with pytest.raises(InputError, match="stores="):
            stores.read_stores(Settings(data=tmp_path / "data", stores=str(path)))


def test_requests_name_an_object(tmp_path, endpoint):
    settings = written(tmp_path, TOML.replace("https://s3.example", endpoint) + 'prefix = "{user}"\n')
    settings.data.mkdir(mode=0o700)
    app = create_app(settings)
    engine = app.state.backend.engine
    access.add_user(engine, "ann", "user")
    token = access.new_token(engine, "ann")[1]
    with TestClient(app, headers={"Authorization": f"Bearer {token}"}) as client:
        made = client.post("/api/v1/uploads", json={"store": "lab", "path": "rows.npy"})
        assert made.status_code == 201 and made.json()["size"] == 12
        assert client.post("/api/v1/uploads", json={"store": "lab", "path": "../bob/rows.npy"}).status_code == 400
        gone = client.post("/api/v1/uploads", json={"store": "lab", "path": "missing.npy"})
        assert gone.status_code == 400 and SECRET not in gone.text
    with TestClient(app) as client:
        assert client.post("/api/v1/uploads", json={"store": "lab", "path": "rows.npy"}).status_code == 401
    log = settings.audit_path.read_text()
    assert '"store": "lab"' in log or '"store":"lab"' in log
    assert SECRET not in log
