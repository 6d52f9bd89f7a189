"""What the client and its commands send, to whom, and what they print; no service runs."""

import gc
import json
import os
import signal
import tempfile
import threading
import warnings
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import httpx
import numpy as np
import pytest

from mgclust.base.errors import InputError, RunFailed
from mgclust.cli import run_command
from mgclust.service.client import connection
from mgclust.service.client.service import Service

ID = "0123456789abcdef" * 2
ADMINS = "mgc_of_the_admin"


def job(**values):
    return {
        "id": ID, "method": "density-peaks", "state": "RUNNING", "created": 0.0, "progress": None, "error": None,
        "fault": None, "scores": None, "request": {},
    } | values  # fmt: skip


@pytest.fixture(autouse=True)
def settings_of_no_account(own_folder):
    """Each test has a data folder of its own."""


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        (None, True),
        ("http://127.0.0.1:8700", True),
        ("http://localhost:8700/", True),
        ("http://[::1]:8700", True),
        ("http://127.0.0.1:8912", False),
        ("http://127.0.0.1", False),
        ("http://cluster.example:8700", False),
        ("http://127.0.0.1.example:8700", False),
    ],
)
@pytest.mark.parametrize("how", ["argument", "environment"])
def test_the_token_left_here_is_for_the_service_here(url, shown, how, answers, monkeypatch):
    if url and how == "environment":
        monkeypatch.setenv("MGCLUST_URL", url)
    Service(url if how == "argument" else None).jobs()
    assert answers.requests[0].headers.get("Authorization") == (f"Bearer {ADMINS}" if shown else None)
    assert (answers.transport is not None) == shown  # it is that of the folder's socket


def test_the_token_left_here_goes_to_the_port_that_is_set(answers, monkeypatch):
    monkeypatch.setenv("MGCLUST_SERVICE_PORT", "8912")
    for url in ("http://127.0.0.1:8912", "http://127.0.0.1:8700"):
        Service(url).jobs()
    assert ["Authorization" in request.headers for request in answers.requests] == [True, False]


@pytest.mark.parametrize("token", ["mgc_\x1bsecret", "mgc_secret\nX: y", "mgc_secret é", "mgc_ secret"])
def test_a_token_that_is_none_is_refused_and_not_quoted(token, answers, monkeypatch, capsys):
    monkeypatch.setenv("MGCLUST_TOKEN", token)
    assert run_command(["jobs"]) == 2
    error = capsys.readouterr().err
    assert "MGCLUST_TOKEN" in error and "secret" not in error and not answers.requests


def test_spaces_around_a_token_do_not_count(answers, monkeypatch):
    monkeypatch.setenv("MGCLUST_TOKEN", " mgc_x\n")
    Service().jobs()
    assert answers.requests[0].headers["Authorization"] == "Bearer mgc_x"


def test_a_command_says_within_a_second_that_it_still_tries(answers, monkeypatch, capsys):
    monkeypatch.setattr(connection, "RETRY_SECONDS", (0.2, 0.5, 1.0, 2.0, 4.0))
    told_before = []  # each pause

    def sleep(seconds):
        told_before.append((seconds, "trying again until" in capsys.readouterr().err))

    def by(request):
        raise httpx.ConnectError("refused")

    monkeypatch.setattr(connection.time, "sleep", sleep)
    answers.by = by
    assert run_command(["jobs"]) == 1
    assert told_before == [(0.2, False), (0.5, True), (1.0, False), (2.0, False), (4.0, False)]
    error = capsys.readouterr().err
    assert "no service answers at unix://" in error and "mgclust serve" in error
    with pytest.raises(RunFailed):
        Service().jobs()  # in a program, which has no such line
    assert not any(told for _, told in told_before[5:])


def test_a_client_closes_its_connection():
    class Answer(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"  # the connection stays

        def do_GET(self):
            self.send_response(200)
            self.send_header("Content-Length", "2")
            self.end_headers()
            self.wfile.write(b"[]")

        def log_message(self, *_):
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Answer) as server, warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always", ResourceWarning)
        threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
        service = Service(f"http://127.0.0.1:{server.server_port}")
        assert service.jobs() == []
        del service
        gc.collect()
        with Service(f"http://127.0.0.1:{server.server_port}") as service:
            assert service.jobs() == []
        server.shutdown()
    assert [str(each.message) for each in seen] == []


def test_an_error_that_quotes_the_request_is_not_shown(answers, capsys):
    def by(request):
        raise httpx.LocalProtocolError(f"Illegal header value {request.headers['Authorization']!r}")

    answers.by = by
    assert run_command(["--debug", "jobs"]) == 1
    error = capsys.readouterr().err
    os.environ.pop("MGCLUST_DEBUG", None)
    assert "no service answers" in error and ADMINS not in error


@pytest.mark.parametrize(
    "url",
    [
        "http://user:secret@127.0.0.1:8700", "http://user:secret@[::1", "http://[::1", "127.0.0.1:8700", "http://",
        "ftp://host", "http://host:99999999", "http://ho\nst", "http://host/?a=secret", "http://host/\x1b", "http://é\udcff",
    ],
)  # fmt: skip
def test_an_url_that_is_none(url, answers, monkeypatch, capsys):
    monkeypatch.setenv("MGCLUST_URL", url)
    assert run_command(["jobs"]) == 2
    error = capsys.readouterr().err
    assert "MGCLUST_URL" in error and "secret" not in error and error[:-1].isprintable()
    assert not answers.requests


@pytest.mark.quick("*-../jobs", "status-*")
@pytest.mark.parametrize("id_", ["", "../jobs", "../../../healthz", "a\nb", ID[:3], ID.upper(), ID + "\n", "é" * 32])
@pytest.mark.parametrize("command", ["status", "watch", "logs", "cancel", "retry", "result", "delete"])
def test_an_id_that_is_none(command, id_, answers, tmp_path, capsys):
    told = [command, id_] + (["-o", str(tmp_path / "out")] if command == "result" else [])
    assert run_command(told) == 2
    assert "should be 32 characters of 0-9 and a-f" in capsys.readouterr().err
    assert not answers.requests


def test_deletion(answers, capsys):
    """Each is asked for and printed in turn, and the first that cannot be deleted ends it."""
    other, upload = "f" * 32, {"id": ID, "owner": "ann", "name": "\x1bx.npy", "size": 5, "sha256": "", "created": 0.0}

    def by(request):
        if request.method == "DELETE" and request.url.path.endswith(other):
            return httpx.Response(409, json={"error": "it waits; cancel it."})
        return httpx.Response(200, json=upload if "uploads/" in request.url.path else [upload])

    answers.by = by
    assert run_command(["uploads"]) == 0
    assert run_command(["uploads", "--delete", ID, "--delete", ID]) == 0
    out = capsys.readouterr().out.splitlines()
    assert len(out) == 3 and len(set(out)) == 1
    assert out[0].startswith(f"{ID}  ") and out[0].endswith(r"  5 bytes  \x1bx.npy")
    assert [(r.method, r.url.path.split("/v1")[1]) for r in answers.requests] == [
        ("GET", "/uploads"), ("DELETE", f"/uploads/{ID}"), ("DELETE", f"/uploads/{ID}"),
    ]  # fmt: skip
    assert run_command(["uploads", "--delete", other]) == 2
    assert run_command(["uploads", "--delete", "../jobs/x"]) == 2
    assert "'mgclust uploads' lists" in capsys.readouterr().err
    answers.by = lambda request: (
        by(request) if request.method == "DELETE" and other in request.url.path
        else httpx.Response(200, json=job(id=request.url.path.split("/")[-1], state="FAILED"))
    )  # fmt: skip
    assert run_command(["delete", ID, other, ID]) == 2
    out, err = capsys.readouterr()
    assert out.startswith(f"{ID}  ") and out.endswith("FAILED\n") and out.count("\n") == 1
    assert "it waits; cancel it" in err


def test_another_server(answers, capsys):
    answers.by = lambda request: httpx.Response(200, html="<html>Welcome</html>")
    assert run_command(["jobs"]) == 1
    assert "is not a mgclust service" in capsys.readouterr().err
    with pytest.raises(RunFailed, match=r"unix://.*/8700\.socket is not a mgclust service"):
        Service().job(ID)


def test_what_is_printed_cannot_move_the_terminal(answers, capsys):
    evil = "\x1b]0;pwned\x07\nfake-line\u202e\x9b2J SUCCEEDED"
    running = job(progress={"stage": evil, "fraction": 0.5})
    failed = job(state="FAILED", fault="input", error=evil)
    events = "".join(f"data: {httpx.Response(200, json=each).text}\n\n" for each in (running, failed))

    def by(request):
        name = request.url.path.split("/")[-1]
        if name == "events":
            return httpx.Response(200, text=events)
        if name == "log":
            return httpx.Response(200, text=f"one\ttwo\n{evil}\r\n")
        return httpx.Response(200, json=[running, failed] if name == "jobs" else failed)

    answers.by = by
    for command in (["jobs"], ["status", ID], ["watch", ID], ["logs", ID], ["cancel", ID], ["retry", ID]):
        run_command(command)
        shown = "".join(capsys.readouterr())
        assert r"\x1b]0;pwned\x07" in shown and r"\u202e\x9b2J" in shown
        assert all(c.isprintable() or (c == "\n" or (c == "\t" and command[0] == "logs")) for c in shown)
        assert any(line.startswith("fake-line") for line in shown.splitlines()) == (command[0] == "logs")


@pytest.mark.parametrize("command", [["watch", ID], ["submit", "density-peaks", "points.npy", "--wait"]])
def test_ctrl_c_does_not_say_that_the_job_was_cancelled(command, answers, tmp_path, monkeypatch, capsys):
    def by(request):
        if request.url.path.endswith("/events"):
            signal.raise_signal(signal.SIGINT)
        return httpx.Response(200, json=job())

    answers.by = by
    monkeypatch.chdir(tmp_path)
    np.save("points.npy", np.zeros((4, 2)))
    assert run_command(command) == 130
    error = capsys.readouterr().err.strip().split("\n")[-1]
    assert error == f"no longer watching; the job continues (mgclust watch {ID})"


@pytest.mark.parametrize(
    ("name", "sent"),
    [
        ("points.npy", "points.npy"),
        ("data b.csv", "data_b.csv"),
        ("a?b#c%.nii.gz", "a_b_c_.nii.gz"),
        ("点.npy", "data_.npy"),
        (".points.npy", "data.points.npy"),
        ("\x1b[2J.npy", "data_2J.npy"),
        ("x" * 240 + ".npy", "x" * 186 + ".npy"),
    ],
)
def test_a_file_of_any_name_is_sent(name, sent, answers, tmp_path):
    (tmp_path / name).write_bytes(b"1,2\n")
    answers.by = lambda request: httpx.Response(201, json=job())
    Service().submit("density-peaks", tmp_path / name)
    put, post = answers.requests
    assert put.url.raw_path.decode() == f"/api/v1/uploads/{sent}"
    told = httpx.Response(200, content=post.content).json()["sources"][0]["name"]
    assert told == "".join(c if c.isprintable() else "_" for c in name)


@pytest.fixture
def not_served(monkeypatch):
    """What would serve stops at once, after the folder was looked at."""

    def stop(*_):
        raise InputError("the folder was taken.")

    monkeypatch.setattr("mgclust.service.web.app.create_app", stop)
    monkeypatch.setattr("mgclust.service.runner.supervisor.supervise_runner", stop)


@pytest.mark.parametrize("command", ["serve", "runner"])
def test_a_data_folder_where_semaphores_are_made(command, tmp_path, capsys, not_served, monkeypatch):
    """Jobs that must not see it could have no workers; without Landlock nothing is hidden, and it is taken."""
    link = tmp_path / "link"
    link.symlink_to("/dev/shm")
    for data in (Path("/dev/shm/mgclust-refused"), link / "mgclust-refused"):
        monkeypatch.setattr("mgclust.service.confined.confine.landlock", lambda: 1)
        assert run_command([command, "--cpu", "--data", str(data)]) == 2
        said = capsys.readouterr().err
        assert f"{data} should not be below /dev/shm" in said and "give a folder elsewhere" in said
        assert not data.exists()
    monkeypatch.setattr("mgclust.service.confined.confine.landlock", lambda: 0)
    with tempfile.TemporaryDirectory(dir="/dev/shm") as data:
        assert run_command([command, "--cpu", "--data", data]) == 2
    assert "the folder was taken" in capsys.readouterr().err


@pytest.mark.parametrize("command", ["serve", "runner"])
@pytest.mark.parametrize("mode", [0o755, 0o777, 0o2770, 0o700])
def test_a_data_folder_that_is_open_to_others(command, mode, tmp_path, capsys, not_served):
    data = tmp_path / "served"
    data.mkdir()
    data.chmod(mode)
    handlers = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]
    assert run_command([command, "--cpu", "--data", str(data)]) == 2
    assert [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)] == handlers
    said = capsys.readouterr().err
    assert "the folder was taken" in said
    assert data.stat().st_mode & 0o777 == 0o700
    assert (f"was open to other accounts (mode {mode:04o}); its mode is 0700 now" in said) == (mode != 0o700)


@pytest.mark.parametrize("name", ["log", "audit"])
@pytest.mark.parametrize("what", ["link", "fifo", "none"])
def test_a_log_that_is_not_a_regular_file(name, what, tmp_path, capsys, not_served, monkeypatch):
    path = tmp_path / "a.log"
    if what == "link":
        path.symlink_to(tmp_path / "another")
    elif what == "fifo":
        os.mkfifo(path)
    monkeypatch.setenv(f"MGCLUST_SERVICE_{name.upper()}", str(path))
    assert run_command(["serve", "--cpu", "--data", str(tmp_path / "data")]) == 2
    said = capsys.readouterr().err
    assert (f"{name}={str(path)!r} should be a regular file, not a link; give another." in said) == (what != "none")
    assert ("the folder was taken" in said) == (what == "none")


@pytest.mark.parametrize(
    ("owner", "mode", "taken"),
    [(12345, 0o700, False), (12345, 0o775, False), (0, 0o777, False), (0, 0o1777, False), (0, 0o2770, True)],
)
def test_a_data_folder_of_another_account(owner, mode, taken, tmp_path, capsys, not_served, monkeypatch):
    """A group may share one that belongs to root, as a volume of Kubernetes does."""
    data = tmp_path / "served"
    data.mkdir()
    stat = Path.stat

    def told(path, **how):
        found = stat(path, **how)
        return os.stat_result((0o40000 | mode, *found[1:4], owner, *found[5:])) if path == data else found

    monkeypatch.setattr("os.geteuid", lambda: 10001)
    monkeypatch.setattr(Path, "stat", told)
    assert run_command(["serve", "--cpu", "--data", str(data)]) == 2
    said = capsys.readouterr().err
    assert ("the folder was taken" in said) == taken
    assert (f"belongs to another account (uid {owner}, mode {mode:04o}), which could change" in said) != taken


@pytest.mark.parametrize("command", ["serve", "runner"])
@pytest.mark.parametrize("place", ["file", "file/below", "/proc/x"])
def test_a_data_folder_that_is_none(command, place, tmp_path, capsys):
    (tmp_path / "file").touch()
    assert run_command([command, "--cpu", "--data", str(tmp_path / place)]) == 2
    assert "should be a folder that can be written" in capsys.readouterr().err


@pytest.mark.parametrize("command", ["serve", "runner"])
def test_a_database_that_does_not_answer(command, tmp_path, capsys, monkeypatch):
    pytest.importorskip("psycopg")
    url = "postgresql+psycopg://user:secret@127.0.0.1:1/x"
    (tmp_path / "text.db").write_text("no database\n" * 100)
    unused = "the database cannot be used"
    for database, sentence in (
        (url, unused),
        (f"sqlite:///{tmp_path}/text.db", "the service's database is damaged (file is not a database)"),
        (f"sqlite:///{tmp_path}/none/x.db", unused),
    ):
        monkeypatch.setenv("MGCLUST_SERVICE_DATABASE", database)  # where a password may be
        assert run_command([command, "--cpu", "--data", str(tmp_path / "data")]) == 2
        error = capsys.readouterr().err
        assert sentence in error and "secret" not in error and "sqlalche.me" not in error


@pytest.mark.parametrize("place", ["file", "file/below", "/proc/x"])
def test_certificates_where_none_can_be_written(place, tmp_path, capsys):
    pytest.importorskip("cryptography")
    (tmp_path / "file").touch()
    assert run_command(["certs", str(tmp_path / place)]) == 2
    assert "should be a folder that can be" in capsys.readouterr().err


def test_help_on_logs_names_all_attempts(capsys):
    assert run_command(["logs", "--help"]) == 0
    assert "all attempts" in capsys.readouterr().out


def test_no_such_file_to_send(answers, tmp_path):
    with pytest.raises(InputError, match="is not a file"):
        Service().upload(tmp_path / "none.npy")
    assert not answers.requests


@pytest.mark.parametrize(
    "command",
    [
        ["token", "create", "--days", "nan"],
        ["token", "create", "--days", "1e400"],
        ["token", "create", "--days", "-1"],
        ["user", "create", "\udcff"],
        ["submit", "density-peaks", "x.npy", "--max-seconds", "nan"],
        ["submit", "density-peaks", "x.npy", "--max-seconds", "inf"],
    ],
)
def test_what_json_has_no_word_for_is_refused_by_a_sentence(command, capsys, monkeypatch):
    monkeypatch.setenv("MGCLUST_URL", "http://127.0.0.1:1")
    assert run_command(command) == 2
    error = capsys.readouterr().err
    assert error.count("error:") <= 1 and "Error:" not in error.replace("error:", "") and "Traceback" not in error


@pytest.mark.parametrize("command", ["serve", "runner"])
def test_a_password_on_the_command_line_is_refused(command, tmp_path, capsys):
    url = "postgresql+psycopg://user:secret@127.0.0.1:1/x"
    assert run_command([command, "--cpu", "--data", str(tmp_path / "data"), "--database", url]) == 2
    error = capsys.readouterr().err
    assert "should hold no password" in error and "secret" not in error


def test_an_upload_keeps_the_subject_that_a_folder_states(answers, tmp_path):
    sent = {
        "sub-01/bold.nii.gz": "sub-01_bold.nii.gz",
        "sub-01/sub-02_bold.nii": "sub-02_bold.nii",
        "sub-01/t.tsv": "t.tsv",
    }
    answers.by = lambda request: httpx.Response(201, json={"id": ID})
    (tmp_path / "sub-01").mkdir()
    for name in sent:
        (tmp_path / name).write_bytes(b"1")
        Service().upload(tmp_path / name)
    names = [request.url.raw_path.decode().rpartition("/")[2] for request in answers.requests]
    assert names == list(sent.values())


def test_the_service_reads_a_source_of_a_store(answers):
    answers.by = lambda request: httpx.Response(
        201, json={"id": ID, "new": True} if request.url.path.endswith("/uploads") else job()
    )
    Service().submit("canopy", "store:lab/deep/rows.npy", t1=2.0, t2=1.0)
    stored, submitted = (json.loads(request.content) for request in answers.requests)
    assert stored == {"store": "lab", "path": "deep/rows.npy"}
    assert submitted["sources"] == [{"upload": ID, "name": "rows.npy"}]
    for path in ("store:", "store:lab", "store:lab/", "store:/rows.npy"):
        with pytest.raises(InputError, match="store:NAME/PATH"):
            Service().submit("canopy", path, t1=2.0, t2=1.0)


def test_tags_in_one_text_and_rows_in_lists_are_rejected(answers):
    with pytest.raises(InputError, match=r"tags='abc' should be a list; give tags=\['abc'\]"):
        Service().submit("canopy", "x.npy", tags="abc")
    with pytest.raises(InputError, match="tags='abc' should be a list"):
        Service().rename(ID, tags="abc")
    with pytest.raises(InputError, match=r"sources should be paths, an array or a table; give rows as numpy.array"):
        Service().submit("canopy", [[1, 2], [3, 4]])
    assert not answers.requests


def test_a_path_is_a_file_whether_it_is_a_text_or_not(answers, tmp_path):
    """For labels, a result directory may be given; a text that is a value of a parameter is not taken as a path."""
    (tmp_path / "result").mkdir()
    for name in ("x.npy", "result/labels.npy", "centers.npy"):
        np.save(tmp_path / name, np.zeros(2))
    sent = {}

    def by(request):
        if request.method != "POST":
            return httpx.Response(201, json={"id": ID, "new": True})
        sent.update(json.loads(request.content))
        return httpx.Response(201, json=job())

    answers.by, service, rows = by, Service(), tmp_path / "x.npy"
    for given, name in ((rows, "x.npy"), (str(rows), "x.npy"), (str(tmp_path / "result"), "labels.npy"),
                        (tmp_path / "result", "labels.npy")):  # fmt: skip
        service.submit("silhouette", rows, labels=given)
        assert sent["parameters"]["labels"] == {"upload": ID, "name": name}
    service.submit("silhouette", "/data/x.npy", labels="/data/result", remote=True)
    assert sent["parameters"]["labels"] == {"path": "/data/result", "name": "result"}
    service.submit("fuzzy-c-means", rows, init="k-means++")
    assert sent["parameters"] == {"init": "k-means++"}
    service.submit("fuzzy-c-means", rows, init=str(tmp_path / "centers.npy"))
    assert sent["parameters"]["init"] == {"upload": ID, "name": "centers.npy"}
    with pytest.raises(InputError, match=r"'none\.npy' is not a file; give the path of a file on this machine"):
        service.submit("silhouette", rows, labels="none.npy")


@pytest.mark.parametrize("url", ["http://host.example/x.npy", "https://host.example/x", "s3://bucket/x.npy"])
def test_a_url_is_answered_with_the_sources_that_the_service_reads(answers, url, capsys):
    assert run_command(["submit", "canopy", url, "--t1", "2", "--t2", "1"]) == 2
    error = capsys.readouterr().err
    assert error.startswith(f"error: {url!r} is a URL, which the service does not read; give a file of this machine, ")
    assert all(word in error for word in ("store:NAME/PATH", "--remote", "folder")) and "zarr" not in error


def test_a_folder_is_answered_with_its_remedy(answers, tmp_path):
    with pytest.raises(InputError, match="'' is not a file"):
        Service().submit("canopy", "", t1=2.0, t2=1.0)
    with pytest.raises(InputError, match=r"is a folder, and only files are uploaded; put the folder \(zarr\) where"):
        Service().submit("canopy", str(tmp_path), t1=2.0, t2=1.0)


def test_rename_removes_all_tags(answers, capsys):
    sent = []
    answers.by = lambda request: (sent.append(json.loads(request.content)), httpx.Response(200, json=job()))[1]
    for words in (["--tag", ""], ["--tag", "a", "--tag", "b"], ["--name", ""]):
        assert run_command(["rename", ID, *words]) == 0
    assert sent == [{"tags": []}, {"tags": ["a", "b"]}, {"name": ""}]
    assert run_command(["rename", ID]) == 2
    assert "--tag '' removes all tags" in capsys.readouterr().err and len(sent) == 3


COPIED = {"state": "COPIED", "to": f"store:lab/out/{ID}", "failures": 1, "error": None}


def test_the_place_of_a_copy_goes_to_the_service(answers, tmp_path, capsys):
    answers.by = lambda request: httpx.Response(
        201, json={"id": ID, "jobs": [], "new": True, **({} if request.url.path.endswith("/uploads") else job())}
    )
    Service().submit("canopy", "store:lab/rows.npy", results_to="store:lab/out", t1=2.0, t2=1.0)
    Service().sweep("canopy", "store:lab/rows.npy", {"t2": [0.5, 1.0]}, results_to="store:lab/out", t1=2.0)
    shown = ["submit", "canopy", "store:lab/rows.npy", "--t1", "2", "--t2", "1"]
    assert run_command([*shown, "--results-to", "store:lab/out"]) == 0
    assert run_command(shown) == 0
    sent = [json.loads(each.content) for each in answers.requests if not each.url.path.endswith("/uploads")]
    assert [each.get("results_to") for each in sent] == ["store:lab/out"] * 3 + [None]


@pytest.mark.parametrize(
    ("copy", "words"),
    [
        (COPIED, f"SUCCEEDED  copied to store:lab/out/{ID}\n"),
        (COPIED | {"state": "COPYING", "failures": 0}, f"SUCCEEDED  copying to store:lab/out/{ID}\n"),
        (COPIED | {"state": "FAILED", "failures": 5, "error": "no\x1b[2Jroom"},
         f"SUCCEEDED  not copied to store:lab/out/{ID}  (failures: 5; the last: no"),
        (None, "SUCCEEDED\n"),
    ],
)  # fmt: skip
def test_the_status_of_a_job_says_where_its_result_is_copied(copy, words, answers, capsys):
    facts = job() | {"state": "SUCCEEDED", "progress": None, "error": None, "result_copy": copy}
    answers.by = lambda request: httpx.Response(200, json=facts)
    assert run_command(["status", ID]) == 0
    said = capsys.readouterr().out
    assert words in said and "\x1b" not in said


def test_values_of_wrong_types_are_rejected_with_the_remedy(answers):
    """The cases are one value instead of a list, a text instead of a list, and a list instead of a dict."""
    service, rows = Service(), np.zeros((4, 2))
    for call, says in (
        (lambda: service.sweep("canopy", rows, {"t1": 2.0}, t2=1.0), r"t1=2.0 should be a list; give t1=\[2.0\]"),
        (lambda: service.sweep("density-peaks", rows, {"metric": "cosine"}), "metric='cosine' should be a list"),
        (lambda: service.sweep("canopy", rows, ["t1"], t2=1.0), "should be a dict of lists"),
        (lambda: service.create_token(scopes="read"), r"give scopes=\['read'\]"),
        (lambda: service.compare(ID), "ids='0123"),
    ):
        with pytest.raises(InputError, match=says):
            call()
    assert not answers.requests
    answers.by = lambda request: httpx.Response(201, json={"id": ID, "new": False})
    for name in ("mask", "atlas"):
        with pytest.raises(InputError, match=f"{name}=3 should be a"):
            service.submit("canopy", rows, t1=2.0, t2=1.0, **{name: 3})


def test_lists_of_labels_and_one_path_are_taken(answers, tmp_path):
    sent = {}

    def by(request):
        if request.method == "PUT":
            return httpx.Response(201, json={"id": ID, "new": True})
        sent.update(json.loads(request.content))
        return httpx.Response(201, json=job())

    answers.by = by
    (tmp_path / "atlas.nii").write_bytes(b"1")
    Service().submit("silhouette", np.zeros((4, 2)), labels=[0, 0, 1, 1], atlas=str(tmp_path / "atlas.nii"))
    assert sent["parameters"]["labels"] == {"upload": ID, "name": "labels.npy"}
    assert sent["atlas"] == [{"upload": ID, "name": "atlas.nii"}]
