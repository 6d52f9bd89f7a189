"""Lists that answer questions, sweeps, comparisons, and uploads that are shared."""

from __future__ import annotations

import asyncio
import time
from collections import Counter

import numpy as np
import pytest
from starlette.testclient import TestClient

from mgclust import DensityPeaks, FuzzyCMeans
from mgclust.results.label_agreement import adjusted_rand
from mgclust.service.queue import access, sources
from mgclust.service.queue.models import Job, open_database, reading, writing
from mgclust.service.queue.quotas import BLOCK_BYTES, bytes_kept
from mgclust.service.queue.sources import files_of_job
from mgclust.service.settings import Settings
from mgclust.service.web.app import create_app
from mgclust.service.web.requests import Submission
from mgclust.service.web.routers import jobs


@pytest.fixture
def settings(tmp_path):
    return Settings(data=tmp_path, cpu=True, jobs_per_user=20)


@pytest.fixture
def engine(settings):
    return open_database(settings.database)


@pytest.fixture
def served(settings, engine):
    """A client of an administrator; `as_user` makes clients of others."""
    app = create_app(settings)
    token = access.first_token(engine, settings.data).read_text().strip()
    with TestClient(app, raise_server_exceptions=False, headers={"Authorization": f"Bearer {token}"}) as http:
        http.base_url = "http://testserver/api/v1"
        yield http


@pytest.fixture
def ann(served, engine):
    return as_user(served, engine, "ann")


def as_user(served, engine, name):
    access.add_user(engine, name, "user")
    headers = {"Authorization": f"Bearer {access.new_token(engine, name)[1]}"}
    client = TestClient(served.app, base_url="http://testserver/api/v1", headers=headers, raise_server_exceptions=False)
    client.portal = served.portal
    return client


def upload(client, name="points.npy", content=b"x"):
    return client.put(f"uploads/{name}", content=content).json()["id"]


def submit(client, **more):
    request = {"method": "density-peaks", "sources": [{"upload": upload(client), "name": "points.npy"}]} | more
    answer = client.post("jobs", json=request)
    assert answer.status_code == 201, answer.text
    return answer.json()["id"]


def end(engine, id_, seconds=1.0, **scores):
    with writing(engine) as session:
        job = session.get(Job, id_)
        job.state, job.started, job.attempt, job.scores = "SUCCEEDED", job.created, 1, scores
        job.finished = job.created + seconds


def listed(client, **query):
    answer = client.get("jobs", params=query)
    assert answer.status_code == 200, answer.text
    return [job["id"] for job in answer.json()]


def test_filters_and_searches(served, ann, engine):
    first = submit(ann, name="First trial", tags=["Pilot", "y%_"], parameters={"n_clusters": 7})
    second = submit(ann, method="fuzzy-c-means", parameters={"n_clusters": 3})
    other = submit(served, tags=["pilot2"])
    end(engine, second)
    for query, found in (
        ({}, [second, first]),
        ({"search": "TRIAL first"}, [first]),
        ({"search": "trial second"}, []),
        ({"search": "#pilot"}, [first]),
        ({"search": "n_clusters=3"}, [second]),
        ({"search": "points.npy"}, [second, first]),
        ({"search": first[:8]}, [first]),
        ({"search": "%"}, [first]),  # not a pattern
        ({"tag": "pilot"}, [first]),
        ({"tag": "pilo"}, []),
        ({"tag": "y%_"}, [first]),
        ({"tag": "yab"}, []),
        ({"method": "fuzzy-c-means"}, [second]),
        ({"state": "SUCCEEDED", "search": "points"}, [second]),
        ({"state": "PENDING"}, [first]),
        ({"owner": "ann"}, [second, first]),
        ({"owner": "admin"}, []),
    ):
        assert listed(ann, **query) == found, query
    assert listed(served) == [other, second, first]
    assert listed(served, owner="ann", search="trial") == [first]
    shown = ann.get("jobs", params={"search": "trial"}).json()[0]
    assert (shown["name"], shown["tags"]) == ("First trial", ["Pilot", "y%_"])
    assert (shown["sources"], shown["parameters"]) == (["points.npy"], {"n_clusters": "7"})


def test_orders(ann, engine):
    ids = [submit(ann, name=name) for name in ("b", "c", "a")]
    unnamed = submit(ann)
    for id_, score, seconds in zip(ids, (0.2, 0.1, None), (3.0, 1.0, 2.0), strict=True):
        end(engine, id_, seconds, **({} if score is None else {"silhouette": score}))
    b, c, a = ids
    assert listed(ann, sort="name") == [a, b, c, unnamed]
    assert listed(ann, sort="-name") == [c, b, a, unnamed]
    assert listed(ann, sort="-seconds") == [b, a, c, unnamed]
    assert listed(ann, sort="-score:silhouette") == [b, c, unnamed, a]
    assert listed(ann, sort="-score:silhouette", limit=1) == [b]
    assert listed(ann, sort="-score:silhouette", limit=2, skip=1) == [c, unnamed]
    assert ann.get("jobs", params={"sort": "request"}).status_code == 422


def test_an_unchanged_list_is_not_sent_again(ann):
    id_ = submit(ann)
    first = ann.get("jobs")
    tag = first.headers["ETag"]
    again = ann.get("jobs", headers={"If-None-Match": tag})
    assert (again.status_code, again.content) == (304, b"")
    assert ann.patch(f"jobs/{id_}", json={"name": "new"}).json()["name"] == "new"
    changed = ann.get("jobs", headers={"If-None-Match": tag})
    assert (changed.status_code, changed.json()[0]["name"]) == (200, "new")


def test_lists_are_compressed_and_results_are_not(ann):
    for _ in range(5):
        submit(ann)
    answer = ann.get("jobs", headers={"Accept-Encoding": "gzip"})
    assert answer.headers["Content-Encoding"] == "gzip"
    assert int(answer.headers["Content-Length"]) < len(answer.content) / 3
    assert "Content-Encoding" not in ann.get("jobs", headers={"Accept-Encoding": "identity"}).headers


def test_names_and_tags_change(ann, served, engine):
    id_ = submit(ann, name="old", tags=["one"])
    assert ann.patch(f"jobs/{id_}", json={"tags": ["two"]}).json()["name"] == "old"
    assert (listed(ann, tag="one"), listed(ann, tag="two")) == ([], [id_])
    assert ann.patch(f"jobs/{id_}", json={"name": ""}).json()["name"] is None
    assert listed(ann, search="old") == []
    bob = as_user(served, engine, "bob")
    assert bob.patch(f"jobs/{id_}", json={"name": "mine"}).status_code == 404
    for wrong in ({"tags": ["a b"]}, {"tags": ["#a"]}, {"tags": ["a"] * 9}, {"name": "x\n"}, {"other": 1}):
        assert ann.patch(f"jobs/{id_}", json=wrong).status_code == 422


def test_a_long_search_text_is_cut(ann, engine):
    id_ = submit(ann, name="ü" * 100, parameters={"dc": 0.5}, tags=["ä" * 32] * 8)
    with reading(engine) as session:
        text = session.get(Job, id_).search
        assert len(text.encode()) <= 2000
    assert listed(ann, search="Ü" * 100) == [id_]


def test_a_request_is_checked_before_its_files_are_sent(ann):
    request = {"method": "density-peaks", "sources": [{"upload": "later"}]}
    assert ann.post("jobs/check", json=request).status_code == 204
    wrong = ann.post("jobs/check", json=request | {"parameters": {"n_clusters": -1}})
    assert (wrong.status_code, "n_clusters=-1" in wrong.json()["error"]) == (400, True)
    assert ann.post("jobs/check", json=request | {"priority": 1}).status_code == 403
    assert listed(ann) == []


def test_the_same_file_is_kept_once(ann, served, engine, settings):
    first = ann.put("uploads/x.npy", content=b"same").json()
    again = ann.put("uploads/x.npy", content=b"same").json()
    assert (first["id"], first["new"], again["new"]) == (again["id"], True, False)
    known = ann.get("uploads", params={"sha256": first["sha256"], "name": "x.npy"}).json()
    assert [each["id"] for each in known] == [first["id"]]
    assert ann.get("uploads", params={"sha256": first["sha256"], "name": "y.npy"}).json() == []
    (again,) = ann.get("uploads", params={"sha256": first["sha256"], "name": "x.npy"}).json()
    assert again["created"] == known[0]["created"]  # a token that may only read changes nothing
    other = ann.put("uploads/y.npy", content=b"same").json()
    assert other["id"] != first["id"]  # the suffix is the format
    bob = as_user(served, engine, "bob")
    theirs = bob.put("uploads/x.npy", content=b"same").json()
    assert (theirs["new"], theirs["id"] == first["id"]) == (True, False)
    folders = {path.name for path in (settings.data / "uploads").iterdir()}
    assert folders == {first["id"], other["id"], theirs["id"]}
    with reading(engine) as session:
        assert bytes_kept(session, "ann") == 2 * BLOCK_BYTES


def sweep_of(client, **more):
    request = {
        "method": "density-peaks", "sources": [{"upload": upload(client)}], "parameters": {"n_clusters": 3},
        "vary": {"dc_fraction": [0.02, 0.01], "kernel": ["gaussian", "cutoff"]}, "name": "trial",
    }  # fmt: skip
    return client.post("sweeps", json=request | more)


def test_a_sweep(ann, served, engine):
    answer = sweep_of(ann, vary={"dc_fraction": [0.02, 0.01], "halo": [True, False]}, key="k")
    assert answer.status_code == 201, answer.text
    sweep = answer.json()
    assert sweep["vary"] == {"dc_fraction": [0.02, 0.01], "halo": [True, False]}
    parameters = [job["request"]["parameters"] for job in sweep["jobs"]]
    assert [(each["dc_fraction"], each["halo"]) for each in parameters] == [
        (0.02, True), (0.02, False), (0.01, True), (0.01, False),
    ]  # fmt: skip
    assert {each["n_clusters"] for each in parameters} == {3}
    ids = [job["id"] for job in sweep["jobs"]]
    again = sweep_of(ann, vary={"dc_fraction": [0.02, 0.01], "halo": [True, False]}, key="k").json()
    assert [job["id"] for job in again["jobs"]] == ids
    assert [job["id"] for job in ann.get(f"sweeps/{sweep['id']}").json()["jobs"]] == ids
    assert set(listed(ann, sweep=sweep["id"])) == set(ids)
    bob = as_user(served, engine, "bob")
    for answer in (bob.get(f"sweeps/{sweep['id']}"), bob.post(f"sweeps/{sweep['id']}/cancel"),
                   bob.delete(f"sweeps/{sweep['id']}")):  # fmt: skip
        assert answer.status_code == 404
    refused = ann.delete(f"sweeps/{sweep['id']}")
    assert (refused.status_code, "cancel the sweep" in refused.json()["error"]) == (409, True)
    end(engine, ids[0])
    states = [job["state"] for job in ann.post(f"sweeps/{sweep['id']}/cancel").json()["jobs"]]
    assert states == ["SUCCEEDED", "CANCELLED", "CANCELLED", "CANCELLED"]
    assert len(ann.delete(f"sweeps/{sweep['id']}").json()["jobs"]) == 4
    assert (listed(ann), ann.get(f"sweeps/{sweep['id']}").status_code) == ([], 404)


@pytest.mark.parametrize(
    ("more", "says"),
    [
        ({"vary": {"dc_fraction": [0.01 + 0.001 * k for k in range(11)], "n_clusters": list(range(1, 11))},
          "parameters": {}}, "110 combinations"),
        ({"vary": {"n_clusters": [2]}}, "n_clusters has a single value"),
        ({"vary": {"dc_fraction": [0.1, 0.1]}}, "names a value of dc_fraction twice"),
        ({"vary": {"dc_fraction": [0.1, -3]}}, "dc_fraction=-3"),
        ({"vary": {"unknown": [1]}}, "'unknown' is not a parameter"),
        ({"vary": {"dc_fraction": [0.001 * (k + 1) for k in range(21)]}}, "jobs_per_user=20"),
    ],
)  # fmt: skip
def test_a_sweep_is_submitted_completely_or_not_at_all(ann, more, says):
    answer = sweep_of(ann, **more)
    assert 400 <= answer.status_code < 500
    assert says in answer.json()["error"]
    assert listed(ann) == []


@pytest.mark.parametrize("name", ["search", "tag", "method", "sweep"])
def test_a_search_for_control_characters(ann, name):
    """The text would end there in SQLite, so that every job would be found."""
    submit(ann)
    assert ann.get("jobs", params={name: "\0"}).status_code == 422
    assert ann.get("jobs", params={name: "é x"}).json() == []


def test_a_sweep_that_takes_much_space_is_rejected(ann, monkeypatch):
    """The answer has the requests of all its jobs. The rejection costs one of them."""
    blocks, real = [], Submission.to_record

    def count(self):
        try:
            blocks.append(bool(asyncio.get_running_loop()))
        except RuntimeError:
            blocks.append(False)  # in a thread, so that other requests do not wait
        return real(self)

    monkeypatch.setattr(Submission, "to_record", count)
    sources = [{"path": f"/x/{k}.npy", "name": "n" * 255} for k in range(500)]
    wanted = {"method": "canopy", "sources": sources, "vary": {"t1": [float(k) for k in range(2, 90)]}}
    answer = ann.post("sweeps", json=wanted)
    assert answer.status_code == 400 and "bytes in the queue" in answer.json()["error"]
    assert blocks == [False]
    sweep = wanted | {"sources": [{"upload": upload(ann)}], "vary": {"t1": [2.0, 3.0]}}
    assert ann.post("sweeps", json=sweep).status_code == 201
    assert blocks == [False] * 3


def test_the_files_of_a_sweep_are_looked_up_once(settings, engine, monkeypatch):
    """However many jobs it has: one request must not cost a hundred times a thousand lookups."""
    looked_up = Counter()

    def counted(kind, function):
        def count(*given):
            looked_up[kind] += 1 if kind == "job" else len(given[-1])
            return function(*given)

        return count

    monkeypatch.setattr(sources, "find_uploads", counted("upload", sources.find_uploads))
    monkeypatch.setattr(jobs, "labels_of_job", counted("job", lambda *given: None))
    monkeypatch.setattr(jobs, "check_sources", counted("path", lambda settings, found: list(found)))
    app = create_app(settings)
    token = access.first_token(engine, settings.data).read_text().strip()
    with TestClient(app, headers={"Authorization": f"Bearer {token}"}) as http:
        http.base_url = "http://testserver/api/v1"
        files = [{"upload": upload(http), "name": "points.npy"}, {"path": "/x/points.npy"}]
        labels = [{"job": f"{k:032x}"} for k in range(3)]
        with writing(engine) as session:
            session.add_all(Job(id=each["job"], owner="admin", method="canopy", request={}, state="SUCCEEDED",
                                created=1.0, finished=1.0, attempt=1) for each in labels)  # fmt: skip
        wanted = {"method": "silhouette", "sources": files * 20, "vary": {"labels": labels}}
        answer = http.post("sweeps", json=wanted)
    assert answer.status_code == 201, answer.text
    assert len(answer.json()["jobs"]) == 3 and looked_up == {"upload": 1, "path": 1, "job": 3}


def saved(settings, engine, client, model, **more):
    """A job whose result is that of a fitted model."""
    id_ = submit(client, **more)
    end(engine, id_)
    settings.attempt_folder(id_, 1).mkdir(parents=True)
    model.result_.save(settings.attempt_folder(id_, 1) / "result")
    return id_


@pytest.fixture
def models():
    rng = np.random.default_rng(3)
    X = np.concatenate([rng.normal(k * 6, 1, (40, 2)) for k in range(3)])
    return [DensityPeaks(k, client=None, device="cpu").fit(X) for k in (3, 2)], X


def test_labels_of_jobs_are_compared(ann, served, engine, settings, models):
    (three, two), X = models
    fewer = FuzzyCMeans(2, client=None, device="cpu").fit(X[:60])
    ids = [saved(settings, engine, ann, model) for model in (three, two)]
    answer = ann.post("jobs/compare", json={"ids": ids})
    assert answer.status_code == 200, answer.text
    expected = adjusted_rand(three.labels_, two.labels_)
    assert answer.json() == {"ari": [[1.0, expected], [expected, 1.0]], "notes": []}
    ids += [saved(settings, engine, ann, fewer), submit(ann)]
    told = ann.post("jobs/compare", json={"ids": ids}).json()
    assert told["ari"][0] == [1.0, expected, None, None]
    assert told["ari"][3] == [None] * 4
    assert f"job {ids[3][:8]} is PENDING and has no result." in told["notes"]
    assert any("different numbers of rows" in note for note in told["notes"])
    assert not any("different data" in note for note in told["notes"])
    other = FuzzyCMeans(2, client=None, device="cpu").fit(X + 1)  # as many rows as two others
    other.result_.source["sha256"] = "of other data"
    ids[3] = saved(settings, engine, ann, other)
    notes = ann.post("jobs/compare", json={"ids": ids}).json()["notes"]
    assert [any(words in note for note in notes) for words in ("different data", "different numbers")] == [True, True]
    bob = as_user(served, engine, "bob")
    assert bob.post("jobs/compare", json={"ids": ids}).status_code == 404
    for wrong in (ids[:1], ids * 3):
        assert ann.post("jobs/compare", json={"ids": wrong}).status_code == 422


def test_labels_of_a_job_as_another_jobs_input(ann, served, engine, settings, models):
    (three, _), _ = models
    parent = saved(settings, engine, ann, three)
    request = {"method": "silhouette", "sources": [{"upload": upload(ann)}], "parameters": {"labels": {"job": parent}}}
    answer = ann.post("jobs", json=request)
    assert answer.status_code == 201, answer.text
    with reading(engine) as session:
        job = session.get(Job, answer.json()["id"])
    file = files_of_job(engine, settings, job)["labels"]
    np.testing.assert_array_equal(np.load(file.open()), three.labels_)
    assert file.called == f"labels of job {parent[:8]}"
    refused = ann.delete(f"jobs/{parent}")
    assert (refused.status_code, job.id in refused.json()["error"]) == (409, True)
    assert ann.post(f"jobs/{job.id}/cancel").json()["state"] == "CANCELLED"
    assert ann.delete(f"jobs/{parent}").status_code == 200
    waiting = submit(ann)
    bob = as_user(served, engine, "bob")
    for client, id_, says in (
        (bob, waiting, "not one of your jobs"),
        (ann, waiting, "is PENDING and has no labels"),
        (ann, "x" * 32, "not one of your jobs"),
        (ann, "../x", "not one of your jobs"),
    ):
        more = {"sources": [{"upload": upload(client)}], "parameters": {"labels": {"job": id_}}}
        wrong = client.post("jobs", json=request | more)
        assert (wrong.status_code, says in wrong.json()["error"]) == (400, True), wrong.text


@pytest.mark.slow
def test_lists_of_many_jobs_are_fast(ann, engine):
    """A coarse limit; benchmarks/service/lists.py measures."""
    first = submit(ann)
    with writing(engine) as session:
        job = session.get(Job, first)
        values = {column.name: getattr(job, column.name) for column in Job.__table__.columns}
        rows = [values | {"id": f"{k:032x}", "created": 1e9 + k} for k in range(20_000)]
        session.connection().execute(Job.__table__.insert(), rows)
    for query in ({}, {"search": "nowhere"}, {"search": "nowhere", "state": "PENDING"}, {"tag": "none"}):
        begun = time.perf_counter()
        listed(ann, **query)
        assert time.perf_counter() - begun < 1.0
