"""What the commands of the service print: lists, short ids, progress, JSON; no service runs."""

import json
from pathlib import Path

import httpx
import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from pyarrow import parquet
from scipy import sparse

from mgclust.base.errors import InputError, RunFailed
from mgclust.cli import run_command
from mgclust.service.client import connection
from mgclust.service.client.service import Service

ID = "0123456789abcdef" * 2
OTHER = ID[:8] + "f" * 24


def job(**values):
    return {
        "id": ID, "method": "density-peaks", "state": "RUNNING", "created": 0.0, "progress": None, "error": None,
        "fault": None, "scores": None, "request": {},
    } | values  # fmt: skip


@pytest.fixture(autouse=True)
def settings_of_no_account(own_folder):
    """Each test has a data folder of its own."""


def listed(**values):
    return job(sources=["rings.npy", "b.npy"], n_sources=2, **values)


def by_path(**given):
    """Answer a path's last part by JSON."""

    def by(request):
        parts = request.url.path.split("/")
        found = next((given[part] for part in reversed(parts) if part in given), given.get("else"))
        return httpx.Response(200, json=found)

    return by


def test_jobs_are_a_table_of_short_ids_files_and_outcomes(answers, capsys):
    rows = [
        listed(state="SUCCEEDED", scores={"n_clusters": 15, "silhouette": 0.71234567, "text": "x"}),
        listed(id=OTHER, state="FAILED", error="no rows.", fault="input"),
        listed(id="a" * 32, progress={"stage": "distances", "fraction": 0.5}),
    ]
    answers.by = lambda request: httpx.Response(200, json=rows if "before" not in request.url.params else [])
    assert run_command(["jobs"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split() == ["ID", "CREATED", "STATE", "METHOD", "FILE", "OUTCOME"]
    wanted, ids = (ID, OTHER, "a" * 32), [line.split()[0] for line in lines[1:]]
    assert len(set(ids)) == 3 and all(map(str.startswith, wanted, ids))
    assert "rings.npy and 1 more" in lines[1] and "n_clusters 15, silhouette 0.7123" in lines[1]
    assert "(input) no rows." in lines[2] and "distances" in lines[3]
    assert len({line.index("density-peaks") for line in lines[1:]}) == 1


def test_no_jobs_are_a_hint(answers, capsys):
    assert run_command(["jobs"]) == 0
    out, err = capsys.readouterr()
    assert not out and "mgclust submit" in err


def test_a_short_id_is_enough(answers, capsys):
    answers.by = by_path(**{"0123abcd": [ID], ID: job(state="FAILED"), "0123": [ID, OTHER], "ffff": []})
    assert run_command(["status", "0123abcd"]) == 0
    assert capsys.readouterr().out.startswith(ID)
    for id_, sentence in (("0123", f"beginning of several ids: {ID}, {OTHER}"), ("ffff", "is not the beginning")):
        assert run_command(["status", id_]) == 2
        assert sentence in capsys.readouterr().err
    assert Service().job("0123abcd").id == ID


def test_a_wrong_id_is_found_before_a_job_is_deleted(answers, capsys):
    answers.by = by_path(**{"0123abcd": [ID], ID: job(state="FAILED"), "ffff": []})
    assert run_command(["delete", "0123abcd", "ffff"]) == 2
    assert "id='ffff' is not the beginning of a job's id" in capsys.readouterr().err
    assert {request.method for request in answers.requests} == {"GET"}
    assert run_command(["delete", "012"]) == 2
    assert "or the first 4 or more of them; 'mgclust jobs' lists ids" in capsys.readouterr().err


def test_a_line_about_a_job_has_its_name_and_tags(answers, capsys):
    """So the line that `rename` prints shows the change."""
    answers.by = lambda request: httpx.Response(200, json=job(name="a b", tags=["x", "y"]))
    assert run_command(["rename", ID, "--name", "a b"]) == 0
    assert capsys.readouterr().out.endswith("RUNNING  'a b'  #x  #y\n")


def test_lists_of_users_tokens_and_the_audit_log_tell_what_they_are_about(answers, capsys):
    user = {"name": "ann", "role": "user", "tokens": 1}
    link = {"id": "0" * 16, "kind": "link", "scopes": [], "created": 0.0, "expires": 1.0, "revoked": None, "used": None}
    line = {"time": "now", "user": "root", "action": "change_user", "status": 200, "name": "ann", "source": "local"}
    answers.by = by_path(users=[user | {"disabled": True}, user | {"disabled": False}], tokens=[link], audit=[line])
    assert run_command(["user", "list"]) == 0
    assert capsys.readouterr().out == "ann  user  1 tokens  disabled\nann  user  1 tokens\n"
    assert run_command(["token", "list"]) == 0
    assert "  link  " in capsys.readouterr().out
    assert run_command(["audit"]) == 0
    assert capsys.readouterr().out.split("\n")[1].split() == ["now", "root", "change_user", "200", "ann", "local"]


def test_a_limit_of_no_jobs_is_rejected(answers, capsys):
    assert run_command(["user", "quota", "ann", "--jobs", "0"]) == 2
    assert "0 is not in the range" in capsys.readouterr().err and not answers.requests


def test_a_running_job_is_not_shown_as_running_after_cancel(answers, capsys):
    answers.by = lambda request: httpx.Response(200, json=job())
    assert run_command(["cancel", ID]) == 0
    out = capsys.readouterr().out
    assert "is being cancelled" in out and "RUNNING" not in out
    answers.by = lambda request: httpx.Response(200, json=job(state="CANCELLED"))
    assert run_command(["cancel", ID]) == 0
    assert "CANCELLED" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("command", "answer", "keys"),
    [
        (["cancel", ID], job(), {"id", "state"}),
        (["retry", ID], job(), {"id", "state"}),
        (["delete", ID], job(state="FAILED"), {"id", "state"}),
        (["user", "create", "ada"], {"name": "ada", "role": "user"}, {"name", "role"}),
        (["token", "create"], {"id": "0" * 16, "user": "ada", "token": "mgc_x", "expires": None}, {"id", "token"}),
        (["token", "revoke", "0" * 16], {"id": "0" * 16}, {"id", "revoked"}),
        (["logs", ID], job(), {"id", "log"}),
    ],
)
def test_json_is_one_object(command, answer, keys, answers, capsys):
    answers.by = lambda request: httpx.Response(200, json=answer)
    assert run_command([*command, "--json"]) == 0
    out = capsys.readouterr().out
    assert out.count("\n") == 1 and keys <= set(json.loads(out))


def test_json_of_a_result(answers, tmp_path, capsys):
    answers.by = by_path(files=[], **{ID: job(state="SUCCEEDED")})
    assert run_command(["result", ID, "-o", str(tmp_path / "out"), "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {"id": ID, "path": str(tmp_path / "out")}


def test_submit_and_wait_shows_progress_and_the_id_at_once(answers, tmp_path, capsys):
    np.save(tmp_path / "points.npy", np.zeros((4, 2)))
    events = [job(progress={"stage": "distances", "fraction": 0.25}), job(state="SUCCEEDED", progress=None)]
    text = "".join(f"data: {json.dumps(each)}\n\n" for each in events)

    def by(request):
        if request.url.path.endswith("/events"):
            return httpx.Response(200, text=text)
        return httpx.Response(201, json=job(state="PENDING"))

    answers.by = by
    assert run_command(["submit", "density-peaks", str(tmp_path / "points.npy"), "--wait", "--json"]) == 0
    out, err = capsys.readouterr()
    assert json.loads(out)["state"] == "SUCCEEDED"
    assert f"job {ID} waits in the queue; it continues if this command ends" in err and "distances" in err


def test_a_service_that_is_away_keeps_the_job(answers, monkeypatch, capsys):
    monkeypatch.setattr(connection, "RETRY_SECONDS", (0.2, 0.5))
    monkeypatch.setattr(connection, "WATCH_PAUSES", (9.0, 9.0))
    pauses = []
    monkeypatch.setattr(connection.time, "sleep", pauses.append)

    def by(request):
        if request.url.path.endswith("/events"):
            raise httpx.ConnectError("refused")
        return httpx.Response(200, json=job())

    answers.by = by
    assert run_command(["watch", ID]) == 1
    error = capsys.readouterr().err
    assert pauses == [0.2, 0.5, 9.0, 9.0]
    assert "the service keeps the job" in error and f"'mgclust watch {ID}'" in error
    with pytest.raises(RunFailed, match="the service keeps job"):
        Service().job(ID).wait()


def test_patience_of_watch():
    assert 500 < sum(connection.RETRY_SECONDS) + sum(connection.WATCH_PAUSES) < 700


X = np.arange(12.0).reshape(6, 2)


@pytest.mark.parametrize(
    ("data", "name", "read"),
    [
        (X, "data.npy", lambda file: np.load(file)),
        (pd.DataFrame(X, columns=["a", "b"]), "data.parquet", lambda file: parquet.read_table(file).to_pandas()),
        (pa.table({"a": X[:, 0], "b": X[:, 1]}), "data.parquet", lambda file: parquet.read_table(file).to_pandas()),
        (sparse.coo_array(X), "data.npz", lambda file: sparse.load_npz(file).toarray()),
    ],
)
def test_an_array_or_a_table_is_uploaded(data, name, read, answers, tmp_path):
    answers.by = lambda request: httpx.Response(201, json=job())
    Service().submit("density-peaks", data, n_clusters=3)
    put, post = answers.requests
    assert put.url.path.endswith(f"/uploads/{name}")
    (tmp_path / name).write_bytes(put.content)
    assert np.array_equal(np.asarray(read(tmp_path / name)), X)
    assert json.loads(post.content)["sources"] == [{"upload": ID, "name": name}]


def test_an_array_of_objects_is_rejected(answers):
    with pytest.raises(InputError, match="dtype=object"):
        Service().submit("density-peaks", np.array([{}, "x"], object))
    assert not answers.requests


def test_rotation_replaces_the_token_of_the_data_folder(answers, tmp_path, capsys, monkeypatch):
    new, path = {"id": "1" * 16, "user": "admin", "token": "mgc_new", "expires": None}, tmp_path / "data" / "token"
    own = {"user": "admin", "role": "admin", "scopes": ["read", "admin"], "token": "0" * 16, "expires": None}
    answers.by = by_path(session=own, tokens=new)
    assert run_command(["token", "rotate", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {"id": "1" * 16, "revoked": "0" * 16, "path": str(path)}
    assert path.read_text() == "mgc_new\n" and path.stat().st_mode & 0o777 == 0o600
    sent = [(request.method, request.url.path.split("/v1")[1]) for request in answers.requests]
    assert sent == [("GET", "/session"), ("POST", "/tokens"), ("DELETE", f"/tokens/{'0' * 16}")]
    assert json.loads(answers.requests[1].content) == {"user": None, "days": None, "scopes": ["read", "admin"]}
    monkeypatch.setenv("MGCLUST_TOKEN", "mgc_other")
    assert run_command(["token", "rotate"]) == 2
    assert "mgclust token create" in capsys.readouterr().err


def test_completion(capsys, monkeypatch):
    """The shell asks for the words that may follow."""
    monkeypatch.setenv("_MGCLUST_COMPLETE", "bash_complete")
    monkeypatch.setenv("COMP_WORDS", "mgclust tok")
    monkeypatch.setenv("COMP_CWORD", "1")
    with pytest.raises(SystemExit):
        run_command(["token"])
    assert "token" in capsys.readouterr().out
    assert "_MGCLUST_COMPLETE" in Path("docs/service/users.md").read_text()
