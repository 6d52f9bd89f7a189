"""Requests that concern all endpoints: HEAD, unknown query names, unknown addresses, short ids, the token's file."""

import pytest
from starlette.testclient import TestClient

from mgclust.service.queue import access
from mgclust.service.queue.jobs.submission import NewJob
from mgclust.service.queue.models import open_database
from mgclust.service.settings import Settings
from mgclust.service.web.app import create_app
from support.whole_queue import WholeQueue


@pytest.fixture
def engine(tmp_path):
    return open_database(Settings(data=tmp_path).database)


@pytest.fixture
def served(tmp_path, engine):
    """A client that shows an administrator's token."""
    app = create_app(Settings(data=tmp_path, cpu=True))
    token = access.first_token(engine, tmp_path).read_text().strip()
    with TestClient(app, raise_server_exceptions=False, headers={"Authorization": f"Bearer {token}"}) as http:
        yield http


@pytest.mark.parametrize("path", ["/", "/healthz", "/pages/style.css", "/api/v1/jobs", "/api/v1/methods"])
def test_head_has_the_headers_of_get_and_no_body(served, path):
    plain = {"Accept-Encoding": "identity"}
    got, head = served.get(path, headers=plain), served.head(path, headers=plain)
    assert (got.status_code, head.status_code, head.content) == (200, 200, b"")
    assert head.headers["content-length"] == got.headers["content-length"]


def test_head_of_an_endless_stream_ends(served, engine, tmp_path):
    id_ = submit(engine, tmp_path, "1" * 32)
    assert served.head(f"/api/v1/jobs/{id_}/events").status_code == 200


def test_head_of_an_unknown_job(served):
    assert served.head(f"/api/v1/jobs/{'0' * 32}").status_code == 404


@pytest.mark.parametrize(
    ("method", "path", "sentence"),
    [
        ("GET", "/jobs?stat=FAILED", "stat: this parameter is unknown; use before, limit, method"),
        ("GET", "/jobs?limit=3&STATE=x", "STATE: this parameter is unknown"),
        ("GET", f"/jobs/{'0' * 32}?x=1", "this parameter is unknown; leave it out"),
        ("PUT", "/uploads/x.npy?sha=1", "use sha256"),
        ("GET", "/jobs?sort=foo", "sort: it should be name, method, state, owner, seconds or score:NAME"),
        ("GET", "/jobs?search=a%0Ab", "search: it should be one line, without control characters"),
        ("GET", "/job-ids/zzzz", "prefix: it should be an id, or at least its first 4 digits: 0-9 and a-f"),
        ("PUT", "/uploads/x.npy?sha256=1", "sha256: it should be a SHA-256 digest: 64 digits 0-9 and a-f"),
    ],
)
def test_a_query_that_is_not_understood_is_rejected(served, method, path, sentence):
    answer = served.request(method, f"/api/v1{path}")
    assert answer.status_code == 422 and sentence in answer.json()["error"]
    assert served.get("/api/v1/jobs?limit=3&state=FAILED").status_code == 200


@pytest.mark.parametrize(
    ("method", "names", "sentence"),
    [
        ("silhouette", ["rows.csv"], "labels is missing, but silhouette needs it; give a file, or a job with labels."),
        ("density-peaks", ["rows.npy", "graph.GML"], "graph.GML has suffix '.gml'; it should be .npy, "),
        ("nearest-neighbors", ["edges.txt.gz"], "edges.txt.gz has suffix '.txt.gz'; it should be .npy, "),
        ("communities", ["brain.nii.gz"], "brain.nii.gz has suffix '.nii.gz'; it should be .npy, "),
        ("communities", ["rows.zarr/"], "rows.zarr/ has suffix '.zarr'; it should be .npy, "),
    ],
)
def test_a_job_that_cannot_run_is_rejected_before_files_are_sent(served, method, names, sentence):
    sources = [{"upload": "later", "name": name} for name in names]
    for path in ("jobs/check", "jobs"):
        answer = served.post(f"/api/v1/{path}", json={"method": method, "sources": sources})
        assert answer.status_code == 400 and answer.json()["error"].startswith(sentence)


@pytest.mark.parametrize(
    ("method", "name"),
    [
        ("density-peaks", "brain.nii.gz"),
        ("communities", "edges.csv.gz"),
        ("canopy", "a folder"),
        ("canopy", "x.unknown"),
    ],
)
def test_names_of_files_that_may_be_read_pass(served, method, name):
    request = {"method": method, "sources": [{"upload": "later", "name": name}]}
    assert served.post("/api/v1/jobs/check", json=request).status_code == 204


def test_lists_that_are_too_short_or_too_long_are_rejected_in_words(served):
    for path, body, says in (
        ("jobs/compare", {"ids": ["0" * 32]}, "ids: give at least 2."),
        ("jobs/compare", {"ids": ["0" * 32] * 11}, "ids: give at most 10."),
        ("jobs", {"method": "canopy", "sources": [{"path": "/x"}], "tags": ["t"] * 9}, "tags: give at most 8."),
        ("jobs", {"method": "canopy", "sources": []}, "sources: give at least 1."),
        (
            "jobs",
            {"method": "canopy", "sources": [{"path": "/x"}], "day": 1},
            "day: this name is unknown; leave it out.",
        ),
    ):
        assert served.post(f"/api/v1/{path}", json=body).json()["error"] == says


def test_a_tag_with_a_space_is_rejected_in_words(served):
    request = {"method": "canopy", "sources": [{"path": "/x.npy"}], "tags": ["a b"]}
    answer = served.post("/api/v1/jobs", json=request)
    assert answer.status_code == 422
    says = "tags.0: a tag should have 1 to 32 visible characters, without spaces, commas and #."
    assert answer.json()["error"] == says


@pytest.mark.parametrize(
    "name",
    ["  ", "a\u202eb", "\u200b", "\u200d", "a\x1b[2J", "a\nb", "a\u2028b", "\u2066a\u2069", "x\ufeff", "\u3164",
     "\u115f", "\u1160", "\uffa0", "\u034f", "\ufe0f", "\u180b", "\u17b4", "\ufff9", "\U0001d173",
     "\U000e0041\U000e0042"],
)  # fmt: skip
def test_names_and_tags_that_cannot_be_seen_or_reorder_text_are_rejected(served, engine, tmp_path, name):
    """Such names are rejected when a job or a sweep is submitted, and when a job is renamed."""
    says = "leave out control characters and marks of the writing direction."
    job = submit(engine, tmp_path, "ab12" * 8)
    plain = {"method": "canopy", "sources": [{"path": "/x.npy"}]}
    for verb, path, body in (
        ("POST", "jobs", plain), ("POST", "jobs/check", plain), ("POST", "sweeps", plain | {"vary": {"t1": [1, 2]}}),
        ("PATCH", f"jobs/{job}", {}),
    ):  # fmt: skip
        answer = served.request(verb, f"/api/v1/{path}", json=body | {"name": name})
        assert answer.status_code == 422 and answer.json()["error"].startswith("name: a name should be one line")
        assert answer.json()["error"].endswith(says)
        answer = served.request(verb, f"/api/v1/{path}", json=body | {"tags": [name]})
        assert answer.status_code == 422 and "1 to 32 visible characters" in answer.json()["error"]
    source = {"method": "canopy", "sources": [{"path": "/x.npy", "name": name}]}
    assert served.post("/api/v1/jobs", json=source).json()["error"].endswith(says)


@pytest.mark.parametrize("name", ["plain", "δοκιμή 3", "می\u200cخواهم", "👩\u200d🔬", "a b", "☀\ufe0f", "葛\U000e0100"])
def test_names_of_other_scripts_pass(served, engine, tmp_path, name):
    job = submit(engine, tmp_path, "ab12" * 8)
    changes = {"name": name, "tags": [name.replace(" ", "_")]}
    answer = served.patch(f"/api/v1/jobs/{job}", json=changes)
    assert {key: answer.json()[key] for key in changes} == changes
    assert served.patch(f"/api/v1/jobs/{job}", json={"name": "", "tags": []}).json()["name"] is None


def test_a_browser_sees_a_page_at_an_unknown_address(served):
    page = served.get("/nothing", headers={"Accept": "text/html,*/*"})
    assert page.status_code == 404 and page.headers["content-type"].startswith("text/html")
    assert '<a href="/">' in page.text
    for path, accept in (("/nothing", "*/*"), ("/api/v1/nothing", "text/html")):
        assert served.get(path, headers={"Accept": accept}).json()["error"] == "there is nothing at this path."


def submit(engine, tmp_path, id_, user="admin", sweep=None):
    caller = access.Caller(user, "admin" if user == "admin" else "user")
    settings = Settings(data=tmp_path)
    WholeQueue(engine, settings).submit([NewJob(id_, caller, "canopy", {"sources": []}, 0, sweep=sweep)])
    return id_


def test_short_ids_find_only_jobs_that_the_caller_sees(served, engine, tmp_path):
    access.add_user(engine, "ann", "user")
    token = access.new_token(engine, "ann")[1]
    mine, others = submit(engine, tmp_path, "ab12" * 8, "ann"), submit(engine, tmp_path, "ab13" * 8)
    submit(engine, tmp_path, "ab" + "f" * 30)
    ann = {"Authorization": f"Bearer {token}"}
    assert served.get("/api/v1/job-ids/ab12").json() == [mine]
    assert served.get("/api/v1/job-ids/ab13", headers=ann).json() == []
    assert served.get("/api/v1/job-ids/ab13").json() == [others]
    assert served.get("/api/v1/job-ids/abff").json() == ["ab" + "f" * 30]
    for wrong in ("ab1", "AB12", "ab1%", "g" * 8):
        assert served.get(f"/api/v1/job-ids/{wrong}").status_code == 422


def test_a_revoked_token_does_not_stay_in_the_data_folder(served, engine, tmp_path):
    held = served.get("/api/v1/session").json()
    assert held["user"] == "admin" and held["scopes"] == ["read", "submit", "admin"] and held["expires"] is None
    other = served.post("/api/v1/tokens", json={"days": None}).json()
    assert served.delete(f"/api/v1/tokens/{other['id']}").status_code == 200
    assert (tmp_path / "token").exists()  # another token was revoked
    served.post("/api/v1/tokens", json={"days": None})
    assert served.delete(f"/api/v1/tokens/{held['token']}").status_code == 200
    assert not (tmp_path / "token").exists()
    (tmp_path / "token").write_text("mgc_" + "x" * 43)  # of an earlier version, or of a restored backup
    assert not access.first_token(engine, tmp_path).exists()


def test_short_ids_find_only_sweeps_that_the_caller_sees(served, engine, tmp_path):
    access.add_user(engine, "ann", "user")
    ann = {"Authorization": f"Bearer {access.new_token(engine, 'ann')[1]}"}
    mine, others = "cd12" * 8, "cd13" * 8
    for k, (user, sweep) in enumerate((("ann", mine), ("ann", mine), ("admin", others), ("ann", None))):
        submit(engine, tmp_path, f"{k:032x}", user, sweep)
    assert served.get("/api/v1/sweep-ids/cd12").json() == [mine]
    assert served.get("/api/v1/sweep-ids/cd13", headers=ann).json() == []
    assert served.get("/api/v1/sweep-ids/cd1").status_code == 422
