"""Tests of copies of results in stores: with moto, with servers that fail, and with processes that are killed."""

import hashlib
import json
import os
import socket
import subprocess
import sys
import threading
import time
import tracemalloc
from collections import Counter
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from fastapi.testclient import TestClient
from sqlalchemy import event, update

from mgclust.base.errors import InputError
from mgclust.service.queue import access, copies, stores
from mgclust.service.queue.identities import caller_of
from mgclust.service.queue.jobs.changes import JobChanges, queue_copy
from mgclust.service.queue.jobs.submission import JobSubmission, NewJob
from mgclust.service.queue.models import Job, User, migrate, open_database, reading, writing
from mgclust.service.settings import Settings
from mgclust.service.web.app import create_app
from support.s3_server import s3_server, signatures_checked
from support.waiting import wait_for
from support.whole_queue import WholeQueue

POSTGRES = os.environ.get("MGCLUST_TEST_POSTGRES")
ANN, BOB = access.Caller("ann", "user"), access.Caller("bob", "user")
SECRET = "do-not-show-this"
ID = "a" * 32
FILES = {"labels.npy": b"12", "result.json": b"{}", "empty.txt": b"", "tables/of clusters ü.csv": b"a,b\n"}


@pytest.fixture(scope="module")
def moto():
    with s3_server() as made:
        yield made


@pytest.fixture
def bucket(moto, request):
    name = f"b{abs(hash(request.node.nodeid))}"
    moto[1].create_bucket(Bucket=name)
    return name


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=pytest.mark.slow)])
def settings(request, tmp_path):
    if request.param == "postgresql" and not POSTGRES:
        pytest.skip("needs PostgreSQL: MGCLUST_TEST_POSTGRES=postgresql+psycopg://...")
    database = POSTGRES if request.param == "postgresql" else ""
    return Settings(data=tmp_path / "data", database=database, log=str(tmp_path / "jobs.log"))


@pytest.fixture
def engine(settings):
    settings.data.mkdir()
    made = open_database(settings.database)
    if settings.database == POSTGRES:
        with made.begin() as connection:
            connection.exec_driver_sql("DROP SCHEMA public CASCADE")
            connection.exec_driver_sql("CREATE SCHEMA public")
    migrate(made)
    for name in ("ann", "bob"):
        access.add_user(made, name, "user")
    yield made
    made.dispose()


class Store(ThreadingHTTPServer):
    """Server that stores objects as S3 does; its function `before` may answer a request first."""

    def __init__(self):
        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_PUT(self):
                body = self.rfile.read(int(self.headers["content-length"] or 0))
                self.server.asked.append((self.command, self.path))
                if not self.server.before(self):
                    self.server.keep(self, body)

            do_POST = do_DELETE = do_PUT

            def say(self, status, body=b"", **headers):
                self.send_response(status)
                for name, value in {"Content-Length": str(len(body)), **headers}.items():
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_):
                pass

        super().__init__(("127.0.0.1", 0), Handler)
        self.asked, self.objects, self.uploads, self.before = [], {}, {}, lambda request: None
        self.url = f"http://127.0.0.1:{self.server_port}"
        threading.Thread(target=self.serve_forever, daemon=True).start()

    def keep(self, request, body):
        path, _, query = request.path.partition("?")
        if request.command == "DELETE":
            self.uploads.pop(path)
            request.say(204)
        elif query == "uploads=":
            self.uploads[path] = []
            request.say(
                200, b"<InitiateMultipartUploadResult><UploadId>7/+x</UploadId></InitiateMultipartUploadResult>"
            )
        elif query.startswith("partNumber="):
            self.uploads[path].append(body)
            request.say(200, ETag='"e"')
        elif query.startswith("uploadId="):
            self.objects[path] = b"".join(self.uploads.pop(path))
            request.say(200, b"<CompleteMultipartUploadResult/>")
        else:
            self.objects[path] = body
            request.say(200, ETag='"e"')

    def stop(self):
        self.shutdown()
        self.server_close()

    def handle_error(self, *_):
        pass

    def manifest(self):
        found = [body for path, body in self.objects.items() if path.endswith("/manifest.json")]
        return json.loads(found[0]) if found else None


@pytest.fixture
def store():
    made = Store()
    yield made
    made.stop()


def end_job(engine, settings, id_=ID, owner="ann", to="store:lab/out", files=FILES):
    """Add a job that has succeeded just now."""
    folder = settings.attempt_folder(id_, 1) / "result"
    for name, content in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content)
    job = Job(
        id=id_, owner=owner, method="canopy", request={"results_to": to}, state="SUCCEEDED", created=1.0, attempt=1
    )
    queue_copy(job)
    with writing(engine) as session:
        session.add(job)


def copier(engine, settings, url, bucket="b", **given):
    known = {"prefix": "{user}", "write": True} | given
    return copies.Copier(engine, settings, {"lab": stores.Store(url, bucket, "k", SECRET, **known)})


def step(made):
    return made.step(threading.Event())


def state(engine, id_=ID):
    with reading(engine) as session:
        job = session.get(Job, id_)
        return job.result_copy | {"due": job.copy_due}


def make_due(engine):
    """Change the row of the job as if pauses and claims of ended processes had passed."""
    with writing(engine) as session:
        session.execute(update(Job).where(Job.copy_due.is_not(None)).values(copy_due=1.0))


@pytest.fixture
def hasty(monkeypatch):
    monkeypatch.setattr(copies, "CHECK_SECONDS", 0.02)
    monkeypatch.setattr(copies, "RENEW_SECONDS", 0.05)
    monkeypatch.setattr(copies, "FILE_SECONDS", 0.0)


def test_the_files_of_a_result_are_copied(engine, settings, moto, bucket):
    large = bytes(range(256)) * 80_000  # 20 MB, in three parts
    end_job(engine, settings, files=FILES | {"large.bin": large, "exact.bin": large[: stores.PART_BYTES]})
    assert step(copier(engine, settings, moto[0], bucket))
    listed = {each["Key"] for each in moto[1].list_objects_v2(Bucket=bucket)["Contents"]}
    named = {*FILES, "large.bin", "exact.bin"}
    assert listed == {f"ann/out/{ID}/{name}" for name in (*named, "manifest.json")}
    manifest = json.loads(moto[1].get_object(Bucket=bucket, Key=f"ann/out/{ID}/manifest.json")["Body"].read())
    assert manifest["complete"] and manifest["job"] == ID and {each["name"] for each in manifest["files"]} == named
    for each in manifest["files"]:
        content = moto[1].get_object(Bucket=bucket, Key=f"ann/out/{ID}/{each['name']}")["Body"].read()
        assert content == (FILES | {"large.bin": large, "exact.bin": large[: stores.PART_BYTES]})[each["name"]]
        assert each["size"] == len(content) and each["sha256"] == hashlib.sha256(content).hexdigest()
    assert state(engine) == {"state": "COPIED", "to": f"store:lab/out/{ID}", "failures": 0, "error": None, "due": None}
    assert not step(copier(engine, settings, moto[0], bucket))
    assert '"copy": "COPIED"' in Path(settings.log).read_text()


def test_a_store_that_checks_signatures(engine, settings, moto, bucket):
    with signatures_checked(moto[0], bucket) as (key, secret):
        end_job(engine, settings, files=FILES | {"large.bin": b"x" * 20_000_000})
        store = stores.Store(moto[0], bucket, key, secret, write=True)
        wrong = copies.Copier(engine, settings, {"lab": store._replace(secret="wrong")})
        assert step(wrong) and "status 403" in state(engine)["error"]
        make_due(engine)
        assert step(copies.Copier(engine, settings, {"lab": store})) and state(engine)["state"] == "COPIED"


def test_a_large_file_takes_little_memory(engine, settings, store):
    end_job(engine, settings, files={"labels.npy": b""})
    with open(settings.attempt_folder(ID, 1) / "result" / "labels.npy", "wb") as file:
        file.truncate(12 * stores.PART_BYTES)
    sizes = Counter()
    plain = store.keep
    store.keep = lambda request, body: (sizes.update([len(body)]), plain(request, body[:1]))
    tracemalloc.start()
    assert step(copier(engine, settings, store.url))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert sizes[stores.PART_BYTES] == 12 and peak < 5 * stores.PART_BYTES  # the server itself holds at least one part
    assert state(engine)["state"] == "COPIED"


@pytest.mark.parametrize(
    "place",
    ["lab/out", "store:", "store:lab", "store:lab/", "store:/out", "store:lab/../bob", "store:lab/a/../../bob",
     "store:lab//out", "store:lab/out/", "store:lab/a\\b", "store:lab/a\nb", "store:lab/a\u202eb", "s3://lab/out",
     "store:lab/" + "x" * 401, "store:lab/" + "ü" * 201, "http://127.0.0.1/x", "store:lab/."],
)  # fmt: skip
def test_a_place_that_leaves_the_prefix_is_rejected(engine, place):
    known = {"lab": stores.Store("http://127.0.0.1:9", "b", "k", SECRET, write=True)}
    with pytest.raises(InputError, match=r"results_to=.* should be store:NAME/PREFIX"):
        stores.check_results_to(engine, known, "ann", place)


def test_results_go_only_to_stores_that_the_administrator_has_opened(engine, settings):
    lab = stores.Store("http://127.0.0.1:9", "b", "k", SECRET)
    check = stores.check_results_to
    with pytest.raises(InputError, match=r"store='lab' is not one of your stores for results; the administrator has"):
        check(engine, {"lab": lab}, "ann", "store:lab/out")
    known = {"lab": lab._replace(write=True, users=("ann",)), "all": lab._replace(write=True), "read": lab}
    check(engine, known, "ann", "store:lab/out")
    with pytest.raises(InputError, match=r"store='lab' is not one of your stores for results; use one of all\."):
        check(engine, known, "bob", "store:lab/out")
    eve = caller_of(engine, settings, {"iss": "https://login.example", "sub": "7", "preferred_username": "eve"})
    named = {"lab": lab._replace(write=True, prefix="{user}")}
    with pytest.raises(InputError, match="is not one of your stores for results"):
        check(engine, named, eve.name, "store:lab/out")
    check(engine, {"lab": named["lab"]._replace(names_from_provider=True)}, eve.name, "store:lab/out")


def test_rights_are_checked_again_when_the_result_is_copied(engine, settings, store):
    end_job(engine, settings)
    for given in ({"write": False}, {"users": ("bob",)}):
        assert step(copier(engine, settings, store.url, **given))
        assert "is not one of your stores for results" in state(engine)["error"] and not store.asked
        make_due(engine)
    assert step(copier(engine, settings, store.url)) and state(engine)["state"] == "COPIED"
    assert state(engine)["failures"] == 2 and state(engine)["error"] is None


def answer_after(n, how):
    """Return a `before` that answers all requests after the first n with a given function."""

    def before(request):
        return None if len(request.server.asked) <= n else how(request) or True

    return before


def drip(request):
    request.wfile.write(b"HTTP/1.1 200 OK\r\nContent-Length: 99999\r\n\r\n")
    for _ in range(100):
        request.wfile.write(b"x")
        time.sleep(0.05)


@pytest.mark.parametrize("after", [0, 4, 6], ids=["at once", "midway", "at the manifest"])
@pytest.mark.parametrize(
    ("how", "reason"),
    [
        (lambda request: request.say(403), "status 403"),
        (lambda request: request.say(500), "status 500"),
        (lambda request: request.say(507), "status 507"),
        (lambda request: request.say(307, Location=f"{request.server.inside.url}/x"), "status 307"),
        (lambda request: time.sleep(1), "TimeoutError"),
        (drip, "TimeoutError"),
        (lambda request: request.wfile.write(b"HTTP/1.1 200 OK\r\n\r\n" + b"x" * 2**20), "ConnectionError"),
        (lambda request: request.wfile.write(b"\0" * 1000), "ProtocolError"),
        (lambda request: request.connection.shutdown(socket.SHUT_RDWR), "Error"),
    ],
    ids=["forbidden", "error", "full", "redirect", "hangs", "drips", "floods", "no HTTP", "closes"],
)
@pytest.mark.quick("sqlite-*-midway")
def test_a_store_that_fails_is_tried_again_and_shows_no_whole_copy(
    engine, settings, store, hasty, how, reason, after, capfd, monkeypatch
):
    monkeypatch.setattr(copies, "START_SECONDS", 0.5 if reason == "TimeoutError" else 30.0)
    store.inside = Store()
    store.before = answer_after(after, how)
    end_job(engine, settings, files=FILES | {"more.txt": b"more"})
    began = time.monotonic()
    made = copier(engine, settings, store.url)
    assert step(made) and time.monotonic() - began < 4
    found = state(engine)
    assert found["state"] == "COPYING" and found["failures"] == 1 and reason in found["error"]
    assert 8 < found["due"] - time.time() < 11 and not step(made)
    assert store.manifest() in (None, {"job": ID, "method": "canopy", "complete": False}) and not store.inside.asked
    told = json.dumps(found) + Path(settings.log).read_text() + "".join(capfd.readouterr())
    assert SECRET not in told and store.url not in told and str(settings.data) not in told
    store.inside.stop()
    store.before = lambda request: None
    monkeypatch.setattr(copies, "START_SECONDS", 30.0)
    make_due(engine)
    assert step(made) and state(engine)["state"] == "COPIED" and store.manifest()["complete"]


@pytest.mark.parametrize(
    ("number", "how", "reason"),
    [
        (2, lambda request: request.say(200, b"<UploadId>&lt;</UploadId>"), "not an answer of S3"),
        (2, lambda request: request.say(200, b"<UploadId>" + b"x" * 5000 + b"</UploadId>"), "not an answer of S3"),
        (4, lambda request: request.say(200), "not an answer of S3"),
        (4, lambda request: request.say(200, ETag="<x>"), "not an answer of S3"),
        (4, lambda request: request.say(507), "status 507"),
        (5, lambda request: request.say(200, b"<Error><Code>InternalError</Code></Error>"), "not an answer of S3"),
    ],
    ids=["upload id", "long upload id", "no tag", "tag", "full", "error after 200"],
)
def test_a_large_object_that_is_not_complete_is_discarded(engine, settings, store, number, how, reason):
    store.before = lambda request: how(request) or True if len(store.asked) == number else None
    end_job(engine, settings, files={"large.bin": b"x" * (stores.PART_BYTES + 1)})
    assert step(copier(engine, settings, store.url)) and reason in state(engine)["error"]
    assert [name for name in store.objects if name.endswith("large.bin")] == []
    assert number == 2 or (store.asked[-1][0] == "DELETE" and not store.uploads)


def test_an_object_has_a_limit_of_parts(engine, settings, store, monkeypatch):
    monkeypatch.setattr(stores, "MAX_PARTS", 2)
    end_job(engine, settings, files={"large.bin": b"x" * (2 * stores.PART_BYTES + 1)})
    assert step(copier(engine, settings, store.url)) and "the maximum of an object" in state(engine)["error"]
    assert not store.uploads and not store.manifest()["complete"]


def test_copying_is_given_up_and_can_be_requested_again(engine, settings, store):
    end_job(engine, settings)
    submission = JobSubmission(engine, settings)
    store.before = lambda request: request.say(507) or True
    made = copier(engine, settings, store.url)
    for k in range(len(copies.RETRY_SECONDS) + 1):
        assert state(engine)["state"] == "COPYING" and step(made) and state(engine)["failures"] == k + 1
        if k < len(copies.RETRY_SECONDS):
            with pytest.raises(InputError, match="only a failed or cancelled job"):
                submission.retry(ANN, ID)
        make_due(engine)
    assert state(engine)["state"] == "FAILED" and state(engine)["due"] is None and not step(made)
    assert "status 507" in state(engine)["error"]
    assert submission.retry(BOB, ID) is None
    assert submission.retry(ANN, ID).state == "SUCCEEDED"
    store.before = lambda request: None
    assert step(made) and state(engine)["state"] == "COPIED"
    with pytest.raises(InputError, match="is SUCCEEDED; only a failed or cancelled job"):
        submission.retry(ANN, ID)


@pytest.mark.parametrize("name", ["manifest.json", "a\\b", "a\nb", "a\u202eb"])
def test_names_that_a_store_may_take_for_something_else(engine, settings, store, name):
    end_job(engine, settings, files=FILES | {name: b"x"})
    assert step(copier(engine, settings, store.url)) and "whose name is not allowed" in state(engine)["error"]
    assert "\n" not in state(engine)["error"] and not store.asked


def test_links_in_a_result_are_not_followed(engine, settings, store, tmp_path):
    (tmp_path / "secret").write_text(SECRET)
    end_job(engine, settings)
    folder = settings.attempt_folder(ID, 1) / "result"
    (folder / "link.txt").symlink_to(tmp_path / "secret")
    (folder / "folder").symlink_to(tmp_path)
    assert step(copier(engine, settings, store.url)) and state(engine)["state"] == "COPIED"
    assert {each["name"] for each in store.manifest()["files"]} == {*FILES}
    assert not any(SECRET.encode() in body for body in store.objects.values())


def test_a_result_that_is_gone_says_so(engine, settings, store):
    end_job(engine, settings)
    (settings.attempt_folder(ID, 1) / "result").rename(settings.data / "elsewhere")
    assert step(copier(engine, settings, store.url)) and state(engine)["error"] == "the result is missing."
    assert not store.asked


def test_nothing_is_copied_of_a_deleted_job(engine, settings, store):
    end_job(engine, settings)
    JobChanges(engine, settings).delete(ANN, ID)
    assert not step(copier(engine, settings, store.url)) and not store.asked


@pytest.mark.parametrize("after", [3, 5], ids=["midway", "after the last file"])
def test_a_job_that_is_deleted_while_it_is_copied_gets_no_complete_manifest(engine, settings, store, hasty, after):
    store.before = lambda request: len(store.asked) == after and not JobChanges(engine, settings).delete(ANN, ID)
    end_job(engine, settings)
    began = time.monotonic()
    assert step(copier(engine, settings, store.url)) and time.monotonic() - began < 4
    assert not store.manifest()["complete"] and len(store.asked) <= after + 2


def test_the_result_of_a_key_that_is_used_again_is_whole_or_not_complete(engine, settings, store):
    """If a job is deleted and submitted again with the same key, it has the same id but may have another result."""
    end_job(engine, settings)
    made = copier(engine, settings, store.url)
    assert step(made) and store.manifest()["complete"]
    JobChanges(engine, settings).delete(ANN, ID)
    end_job(engine, settings, files={name: content + b"!" for name, content in FILES.items()})
    store.asked.clear()
    store.before = answer_after(2, lambda request: request.say(500))
    assert step(made) and not store.manifest()["complete"]


def test_a_disabled_user_waits(engine, settings, store):
    end_job(engine, settings)
    with writing(engine) as session:
        session.execute(update(User).where(User.name == "ann").values(disabled=1.0))
    made = copier(engine, settings, store.url)
    assert not step(made) and state(engine)["state"] == "COPYING"
    with writing(engine) as session:
        session.execute(update(User).where(User.name == "ann").values(disabled=None))
    assert step(made) and state(engine)["state"] == "COPIED"


def disable(engine, disabled):
    with writing(engine) as session:
        session.execute(update(User).where(User.name == "ann").values(disabled=disabled))


@pytest.mark.parametrize("after", [3, 5], ids=["midway", "after the last file"])
def test_copying_stops_when_the_user_is_disabled(engine, settings, store, hasty, after):
    store.before = lambda request: len(store.asked) == after and (disable(engine, 1.0), time.sleep(0.5))[0]
    end_job(engine, settings)
    made = copier(engine, settings, store.url)
    assert step(made) and len(store.asked) == after and not store.manifest()["complete"]
    assert not step(made) and state(engine)["state"] == "COPYING" and state(engine)["failures"] == 0
    disable(engine, None)
    assert step(made) and state(engine)["state"] == "COPIED" and store.manifest()["complete"]


def test_a_slow_store_of_a_user_holds_up_no_other_user(engine, settings, store):
    go_on, owners = threading.Event(), []

    def before(request):
        owners.append(request.path.split("/")[2])
        if owners[-1] == "ann":
            go_on.wait(30)

    store.before = before
    made = copier(engine, settings, store.url)
    for k in range(3):
        end_job(engine, settings, f"{k:032x}")
    end_job(engine, settings, "b" * 32, "bob")
    slow = threading.Thread(target=step, args=(made,))
    slow.start()
    try:
        wait_for(lambda: "ann" in owners, 10)
        assert step(made) and state(engine, "b" * 32)["state"] == "COPIED"
        assert not step(made) and owners.count("ann") == 1  # one result of a user at a time
    finally:
        go_on.set()
        slow.join(30)


def test_users_take_turns(engine, settings, store):
    for k in range(3):
        end_job(engine, settings, f"{k:032x}")
    end_job(engine, settings, "b" * 32, "bob")
    made = copier(engine, settings, store.url)
    while step(made):
        pass
    order = list(dict.fromkeys(path.split("/")[4] for _, path in store.asked))
    assert len(order) == 4 and order.index("b" * 32) <= 1


@pytest.mark.parametrize("settings", ["sqlite"], indirect=True)  # PostgreSQL decides by its statistics
def test_finding_the_next_copy_does_not_read_all_jobs(engine, settings, store):
    asked = []
    event.listen(engine, "before_cursor_execute", lambda *given: asked.append(given[2:4]))
    end_job(engine, settings)
    asked.clear()
    assert step(copier(engine, settings, store.url))
    first = [each for each in asked if each[0].startswith("SELECT") and "copy_due" in each[0] and "users" in each[0]]
    first += [each for each in asked if each[0].startswith("SELECT") and "ORDER BY jobs.copy_due" in each[0]]
    with engine.connect() as connection:
        plans = [
            [row[3] for row in connection.exec_driver_sql(f"EXPLAIN QUERY PLAN {words}", given)]
            for words, given in first
        ]
    assert len(plans) == 2 and all("jobs_to_copy" in str(plan) and "SCAN jobs" not in str(plan) for plan in plans), (
        plans
    )


def test_two_processes_copy_a_result_once(engine, settings, store):
    end_job(engine, settings)
    made = [copier(engine, settings, store.url) for _ in range(4)]
    threads = [threading.Thread(target=step, args=(each,)) for each in made]
    for each in threads:
        each.start()
    for each in threads:
        each.join(30)
    assert len(store.asked) == len(FILES) + 2


def test_a_service_that_stops_releases_its_results_at_once(engine, settings, store, hasty):
    stopping = threading.Event()
    store.before = answer_after(2, lambda request: (stopping.set(), time.sleep(2)))
    end_job(engine, settings)
    began = time.monotonic()
    assert not copier(engine, settings, store.url).step(stopping) and time.monotonic() - began < 2
    assert state(engine)["due"] <= time.time() and state(engine)["failures"] == 0
    store.before = lambda request: None
    assert step(copier(engine, settings, store.url)) and store.manifest()["complete"]


KILLED = """
import sys, threading
from pathlib import Path
from mgclust.service.queue.copies import copy_until
from mgclust.service.queue.models import open_database
from mgclust.service.settings import Settings

settings = Settings(data=Path(sys.argv[1]), stores=sys.argv[2], database=sys.argv[3])
copy_until(threading.Event(), open_database(settings.database), settings)
"""


@pytest.mark.parametrize("number", [1, 5, 9], ids=["at the beginning", "in a large file", "at the manifest"])
@pytest.mark.quick("sqlite-in a large file")
def test_a_killed_process_is_followed_by_another(engine, settings, store, tmp_path, number):
    reached = threading.Event()
    store.before = lambda request: len(store.asked) == number and (reached.set(), time.sleep(1)) and True
    end_job(engine, settings, files=FILES | {"large.bin": b"x" * (stores.PART_BYTES + 1)})
    file = tmp_path / "stores.toml"
    file.write_text(
        f'[lab]\nendpoint = "{store.url}"\nbucket = "b"\nkey = "k"\nsecret = "{SECRET}"\nprefix = "{{user}}"\n'
        "write = true\n"
    )
    file.chmod(0o600)
    process = subprocess.Popen(
        [sys.executable, "-c", KILLED, str(settings.data), str(file), settings.database],
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert reached.wait(60)
    finally:
        process.kill()
    assert SECRET not in process.communicate()[1]
    found = state(engine)
    assert found["state"] == "COPYING" and time.time() < found["due"] < time.time() + copies.CLAIM_SECONDS + 1
    assert not (store.manifest() or {"complete": False})["complete"]
    store.before = lambda request: None
    made = copier(engine, settings, store.url)
    assert not step(made)  # the claim has not expired
    make_due(engine)
    assert step(made) and state(engine)["state"] == "COPIED" and store.manifest()["complete"]
    assert {path.rpartition(f"{ID}/")[2] for path in store.objects} >= {"labels.npy", "large.bin", "manifest.json"}


def test_only_jobs_that_succeed_are_copied(engine, settings):
    queue = WholeQueue(engine, settings)
    for k, end in enumerate(("succeed", "fail", "cancel")):
        id_ = f"{k:032x}"
        (job,) = queue.submit([NewJob(id_, ANN, "canopy", {"sources": [], "results_to": "store:lab/out"}, 0)])
        assert not isinstance(job, Exception)
        if end == "cancel":
            queue.cancel(ANN, id_)
        else:
            job = queue.claim()
            queue.succeed(job.id, 1, {}) if end == "succeed" else queue.fail(job.id, 1, "no", "input")
        with reading(engine) as session:
            found = session.get(Job, id_)
        assert (found.copy_due is not None) == (end == "succeed") == (found.result_copy is not None)


TOML = """
[lab]
endpoint = "{url}"
bucket = "{bucket}"
key = "k"
secret = "do-not-show-this"
prefix = "{{user}}"
write = true

[read]
endpoint = "{url}"
bucket = "{bucket}"
key = "k"
secret = "do-not-show-this"
"""


def test_requests_name_a_place(tmp_path, moto, bucket):
    file = tmp_path / "stores.toml"
    file.write_text(TOML.format(url=moto[0], bucket=bucket))
    file.chmod(0o600)
    settings = Settings(data=tmp_path / "data", stores=str(file))
    settings.data.mkdir(mode=0o700)
    app = create_app(settings)
    engine = app.state.backend.engine
    access.add_user(engine, "ann", "user")
    token = access.new_token(engine, "ann")[1]
    with TestClient(app, headers={"Authorization": f"Bearer {token}"}) as client:
        upload = client.put("/api/v1/uploads/points.csv", content=b"1,2\n3,4\n").json()["id"]
        request = {"method": "canopy", "sources": [{"upload": upload}], "parameters": {"t1": 2, "t2": 1}}
        sweep = {name: value for name, value in request.items() if name != "parameters"}
        sweep |= {"parameters": {"t1": 2}, "vary": {"t2": [0.5, 1]}}
        for path, body in (("jobs", request), ("jobs/check", request), ("sweeps", sweep)):
            for place, reason in (
                ("store:read/out", "not one of your stores for results; use one of lab."),
                ("store:lab/../bob", "should be store:NAME/PREFIX"),
            ):
                answer = client.post(f"/api/v1/{path}", json=body | {"results_to": place})
                assert answer.status_code == 400 and reason in answer.json()["error"] and SECRET not in answer.text
            answer = client.post(f"/api/v1/{path}", json=body | {"results_to": "store:lab/" + "x" * 600})
            assert answer.status_code == 422
            assert client.post(f"/api/v1/{path}", json=body | {"results_to": "store:lab/out"}).status_code < 300
        made = client.post("/api/v1/jobs", json=request | {"results_to": "store:lab/out"}).json()
        assert made["request"]["results_to"] == "store:lab/out" and made["result_copy"] is None
        queue = WholeQueue(engine, settings)
        while (job := queue.claim()) is not None:
            folder = settings.attempt_folder(job.id, 1) / "result"
            folder.mkdir(parents=True)
            (folder / "result.json").write_text("{}")
            queue.succeed(job.id, 1, {})
        shown = client.get(f"/api/v1/jobs/{made['id']}").json()["result_copy"]
        to = f"store:lab/out/{made['id']}"
        assert shown == {"state": "COPYING", "to": to, "failures": 0, "error": None}
        listed = client.get("/api/v1/jobs").json()
        assert shown in [each["result_copy"] for each in listed]
        work = copies.Copier(engine, settings, stores.read_stores(settings))
        while step(work):
            pass
        assert client.get(f"/api/v1/jobs/{made['id']}").json()["result_copy"] == shown | {"state": "COPIED"}
        kept = client.post("/api/v1/uploads", json={"store": "lab", "path": f"out/{made['id']}/result.json"})
        assert kept.status_code == 201 and kept.json()["size"] == 2  # a file of a result in a store can be a source
    log = settings.audit_path.read_text()
    assert "store:lab/out" in log and SECRET not in log


@pytest.mark.parametrize("value", ["1", '"yes"', "[]"])
def test_write_is_true_or_false(tmp_path, value):
    file = tmp_path / "stores.toml"
    file.write_text(TOML.format(url="https://s3.example", bucket="b").replace("write = true", f"write = {value}"))
    file.chmod(0o600)
    with pytest.raises(InputError, match="and write"):
        stores.read_stores(Settings(data=tmp_path, stores=str(file)))
