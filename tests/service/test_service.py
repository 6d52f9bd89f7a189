"""The service as its users meet it: real processes, files sent and fetched, and things that die."""

from __future__ import annotations

import contextlib
import json

import httpx
import numpy as np
import psutil
import pytest
from sklearn.exceptions import ConvergenceWarning

from mgclust import AffinityPropagation, DensityPeaks, Service, silhouette_samples
from mgclust.base.errors import InputError, RunCancelled
from mgclust.cli import run_command
from mgclust.service.queue.quotas import BLOCK_BYTES
from support.waiting import wait_for

pytestmark = [pytest.mark.xdist_group("service"), pytest.mark.timeout(120)]


@pytest.fixture
def ann(running):
    return running.client("ann")


@pytest.fixture(scope="module")
def points(tmp_path_factory):
    path = tmp_path_factory.mktemp("points") / "points.npy"
    np.save(path, np.random.default_rng(0).normal(size=(400, 3)))
    return path


@pytest.fixture(scope="module")
def many_labels(many_points):
    return DensityPeaks(client=None, device="cpu").fit(many_points).labels_


@pytest.fixture(scope="module")
def many_points(tmp_path_factory):
    """Some seconds' work."""
    path = tmp_path_factory.mktemp("points") / "many.npy"
    np.save(path, np.random.default_rng(1).normal(size=(30_000, 24)))
    return path


def test_submit_wait_fetch(ann, points, tmp_path):
    job = ann.submit("density-peaks", points, n_clusters=4).wait()
    result = job.result(tmp_path / "out")
    expected = DensityPeaks(4, client=None, device="cpu").fit(points).result_
    np.testing.assert_array_equal(result.labels, expected.labels)
    np.testing.assert_array_equal(result.arrays["rho"], expected.arrays["rho"])
    assert (tmp_path / "out" / "report.html").exists()
    assert job.info["scores"]["n_clusters"] == 4
    assert "labels" in job.log()
    assert ann.jobs()[0].id == job.id
    assert [each["state"] for each in ann.job(job.id).watch()] == ["SUCCEEDED"]


@pytest.mark.slow
def test_warnings_of_a_result_are_with_its_job(running, ann, points, monkeypatch, capsys):
    job = ann.submit("canopy", points, t1=1e4, t2=9e3).wait()
    (text,) = job.info["warnings"]
    assert text.startswith("a single canopy") and ann.job(job.id).info["warnings"] == ann.jobs()[0].info["warnings"]
    assert f"warning: {text}" in job.log()
    monkeypatch.setenv("MGCLUST_URL", running.url)
    monkeypatch.setenv("MGCLUST_TOKEN", running.token_of("ann")[1])
    for words in (["status", job.id], ["watch", job.id]):
        assert run_command(words) == 0
        out, err = capsys.readouterr()
        assert "SUCCEEDED" in out and err == f"warning: {text}\n"
    assert ann.submit("canopy", points, t1=2.0, t2=1.0, report=False).wait().info["warnings"] == []


def test_the_commands(running, points, tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("MGCLUST_URL", running.url)
    monkeypatch.setenv("MGCLUST_TOKEN", running.token_of("ann")[1])
    monkeypatch.chdir(tmp_path)
    assert run_command(["submit", "density-peaks", str(points), "--n-clusters", "3", "--wait", "--no-report"]) == 0
    id_ = capsys.readouterr().out.strip()
    for words, says in (
        (["status", id_], "SUCCEEDED"),
        (["jobs"], id_[:8]),
        (["watch", id_], "SUCCEEDED"),
        (["logs", id_], "labels"),
        (["result", id_, "-o", "out"], "out"),
    ):
        assert run_command(words) == 0
        assert says in capsys.readouterr().out
    assert len(np.load("out/labels.npy")) == 400
    assert run_command(["uploads"]) == 0
    assert run_command(["uploads", "--delete", upload := capsys.readouterr().out.split()[0]]) == 0
    assert "points.npy" in capsys.readouterr().out
    assert not (running.data / "uploads" / upload).exists()
    assert run_command(["retry", id_]) == 2
    assert "only a failed or cancelled job can be retried" in capsys.readouterr().err
    assert run_command(["submit", "density-peaks", str(points), "--n-clusters", "0"]) == 2
    assert run_command(["delete", id_]) == 0
    assert capsys.readouterr().out.startswith(f"{id_}  ")
    assert not (running.data / "jobs" / id_).exists()
    for nobodys in (id_, "0" * 32):
        assert run_command(["status", nobodys]) == 2
        assert "there is no such job" in capsys.readouterr().err


def test_links_addresses_to_sign_in_and_webhooks_by_command(running, points, monkeypatch, capsys):
    monkeypatch.setenv("MGCLUST_URL", running.url)
    monkeypatch.setenv("MGCLUST_TOKEN", running.token_of("ann")[1])

    def told(*words):
        assert run_command([*words, "--json"]) == 0
        return json.loads(capsys.readouterr().out)

    assert run_command(["submit", "density-peaks", str(points), "--n-clusters", "3", "--wait", "--no-report"]) == 0
    id_ = capsys.readouterr().out.strip()
    link = told("share", id_, "--days", "2")
    assert link["url"].startswith(running.url)
    assert [each["id"] for each in told("share", id_, "--list")] == [link["id"]]
    told("share", id_, "--revoke", link["id"])
    assert told("share", id_, "--list") == []
    assert told("sign-in")["url"].startswith(running.url)
    hook = told("webhook", "add", "https://8.8.8.8/ended")
    assert hook["secret"] and [each["id"] for each in told("webhook", "list")] == [hook["id"]]
    told("webhook", "delete", hook["id"])
    assert told("webhook", "list") == []
    assert run_command(["webhook", "add", "http://127.0.0.1:9/"]) == 2  # only https
    assert "url should be like https://" in capsys.readouterr().err


def test_without_a_service(monkeypatch, capsys):
    monkeypatch.setenv("MGCLUST_URL", "http://127.0.0.1:9")
    monkeypatch.setattr("mgclust.service.client.connection.RETRY_SECONDS", (0.01,))
    assert run_command(["jobs"]) == 1
    assert "no service answers at http://127.0.0.1:9" in capsys.readouterr().err


def test_a_job_whose_data_are_bad_fails_with_its_sentence(running, ann, tmp_path):
    x = np.ones((50, 2))
    x[7, 1] = np.nan
    np.save(tmp_path / "bad.npy", x)
    job = ann.submit("density-peaks", tmp_path / "bad.npy")
    with pytest.raises(InputError, match=r"NaN or infinity.* row 7"):
        job.wait()
    assert (job.state, job.info["fault"], job.info["attempt"]) == ("FAILED", "input", 1)
    (tmp_path / "torn.npy").write_bytes((tmp_path / "bad.npy").read_bytes()[:200])
    job = ann.submit("density-peaks", tmp_path / "torn.npy")
    with pytest.raises(InputError, match=r"torn\.npy is truncated"):
        job.wait()
    (tmp_path / "points.xyz").write_text("1 2 3")
    job = ann.submit("density-peaks", tmp_path / "points.xyz")
    with pytest.raises(InputError, match=r"points\.xyz"):
        job.wait()
    assert str(running.data) not in job.info["error"]  # nor where the service keeps it


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ({"method": "k-means"}, "method='k-means' should be one of"),
        ({"parameters": {"n_clusters": 0}}, "n_clusters=0 should be"),
        ({"parameters": {"client": "tcp://127.0.0.1:1"}}, "'client' is not a parameter"),
        ({"parameters": {"dc": [1]}}, "arrays are not accepted"),
        ({"method": "fuzzy-c-means", "parameters": {"init": "/etc/x.npy"}}, "init='/etc/x.npy' should name a file as"),
        ({"method": "silhouette", "parameters": {"labels": "/etc/x.npy"}}, "labels=.* should name a file as"),
        (
            {"method": "affinity-propagation", "parameters": {"preference": {"path": 1}}},
            "preference=.* should name a file as",
        ),
        ({"parameters": {"n_clusters": {"upload": "none"}}}, "arrays are not accepted"),
        ({"method": "parcellation", "parameters": {"n_parcels": {"upload": "none"}}}, "arrays are not accepted"),
        *(
            (
                {"method": "parcellation", "parameters": {"n_parcels": wrong}},
                "n_parcels=.* should be (an integer >= 1, or|different numbers, but 5 is repeated)",
            )
            for wrong in ([], [5, 5], [0, 5], [5, "6"], [[5]], [5, None], [5, 6.5], [True], "5,,6", 0)
        ),
        (
            {"method": "fuzzy-c-means", "parameters": {"n_clusters_range": [5, 2]}},
            r"n_clusters_range=\[5, 2\] should be two",
        ),
        (
            {"method": "fuzzy-c-means", "parameters": {"n_clusters": 2, "init": {"path": "/etc/x.npy"}}},
            "path='/etc/x.npy' is not a file or folder below",
        ),
        ({"options": {"n_nodes": 5}}, "n_nodes does not apply to density-peaks"),
        ({"sources": []}, "sources"),
        ({"sources": [{"upload": "none"}]}, "not one of your uploads"),
        ({"sources": [{"upload": "a", "path": "b"}]}, "either"),
        ({"priority": 1000}, "priority"),
        ({"unknown": 1}, "unknown"),
    ],
)
def test_refused_at_once(ann, points, wrong, says):
    request = {"method": "density-peaks", "sources": [{"upload": ann.upload(points)}]} | wrong
    with pytest.raises(InputError, match=says):
        ann.call("POST", "/jobs", json=request)


def test_what_a_job_may_read(running, ann, points, tmp_path):
    inside = running.root / "points.npy"
    inside.write_bytes(points.read_bytes())
    outside = tmp_path / "secret.npy"
    outside.write_bytes(points.read_bytes())
    (running.root / "link.npy").unlink(missing_ok=True)
    (running.root / "link.npy").symlink_to(outside)
    assert ann.submit("density-peaks", inside, remote=True, report=False).wait().state == "SUCCEEDED"
    for path in (
        outside, running.root / ".." / "data" / "token", running.root / "link.npy", "points.npy", "/etc/passwd",
        "http://127.0.0.1:1/x.npy", "http://169.254.169.254/x.npy", f"file://{outside}", "memory://x.npy", "\0",
    ):  # fmt: skip
        with pytest.raises(InputError, match=r"path=.* is not a file or folder below"):
            ann.call("POST", "/jobs", json={"method": "density-peaks", "sources": [{"path": str(path)}]})


@pytest.mark.slow
def test_parameters_that_are_arrays(running, ann, points, tmp_path, monkeypatch, capsys):
    """They are uploads like the data, of any user; a path counts where that of data would."""
    x = np.load(points)
    labels = (x[:, 0] > np.median(x[:, 0])).astype(np.int64)
    expected = silhouette_samples(x, labels).mean()
    job = ann.submit("silhouette", points, labels=labels, report=False).wait()
    assert job.info["scores"]["silhouette"] == pytest.approx(expected)
    preference = np.full(len(x), -50.0)
    job = ann.submit("affinity-propagation", points, preference=preference, report=False).wait()
    assert job.info["scores"]["n_clusters"] == len(set(AffinityPropagation(preference=-50.0).fit(x).labels_))

    np.save(tmp_path / "labels.npy", labels)
    monkeypatch.setenv("MGCLUST_URL", running.url)
    monkeypatch.setenv("MGCLUST_TOKEN", running.token_of("ann")[1])
    monkeypatch.chdir(tmp_path)
    for path in (".", "labels.npy"):  # a result directory, and a file
        told = ["submit", "silhouette", str(points), "--labels", path, "--no-report", "--wait", "--json"]
        assert run_command(told) == 0
        assert json.loads(capsys.readouterr().out)["scores"]["silhouette"] == pytest.approx(expected)

    theirs = running.client("bob").upload(tmp_path / "labels.npy")
    with pytest.raises(InputError, match="is not one of your uploads"):
        ann.submit("silhouette", points, labels={"upload": theirs})
    with pytest.raises(InputError, match="is not a file or folder below"):
        ann.submit("silhouette", points, labels=tmp_path / "labels.npy", remote=True)


def test_others_are_not_let_in(running, ann, points):
    job, upload = ann.submit("density-peaks", points, report=False), ann.upload(points)
    bob = running.client("bob")
    for ask in (
        lambda: bob.job(job.id),
        lambda: bob.call("POST", f"/jobs/{job.id}/cancel"),
        lambda: bob.call("GET", f"/jobs/{job.id}/files"),
        lambda: bob.call("GET", f"/jobs/{job.id}/log"),
        lambda: bob.call("GET", f"/jobs/{job.id}/files/result.json"),
        lambda: bob.call("POST", f"/jobs/{job.id}/retry"),
        lambda: bob.call("DELETE", f"/jobs/{job.id}"),
    ):
        with pytest.raises(InputError, match="there is no such job"):
            ask()
    with pytest.raises(InputError, match="not one of your uploads"):
        bob.call("POST", "/jobs", json={"method": "density-peaks", "sources": [{"upload": upload}]})
    with pytest.raises(InputError, match="there is no such upload"):
        bob.delete_upload(upload)
    assert upload not in [each["id"] for each in bob.uploads()]
    with pytest.raises(InputError, match="only an administrator"):
        bob.call("POST", "/users", json={"name": "mia", "role": "admin"})
    id_, token = running.token_of("mia")
    mia = Service(running.url, token)
    assert mia.jobs() == []
    running.client().call("DELETE", f"/tokens/{id_}")
    for service in (mia, Service(running.url, "mgc_guess")):
        with pytest.raises(InputError, match="unknown or revoked"):
            service.jobs()
    assert httpx.get(f"{running.url}/api/v1/jobs").status_code == 401
    job.wait()


def test_files_in_parts_and_no_others(running, ann, points):
    job = ann.submit("density-peaks", points, report=False).wait()
    base = f"/jobs/{job.id}/files"
    with ann.stream(f"{base}/labels.npy") as answer:
        whole = answer.read()
    with ann.stream(f"{base}/labels.npy", Range="bytes=6-9") as answer:
        assert answer.status_code == 206
        assert answer.read() == whole[6:10]
    for name in ("../log.txt", "..%2flog.txt", "%2e%2e/%2e%2e/%2e%2e/%2e%2e/service.db", "nothing", "%00", ""):
        with ann.stream(f"{base}/{name}") as answer:
            assert answer.status_code in (404, 307), name


def test_uploads_have_limits(running, ann, tmp_path):
    with open(tmp_path / "large.npy", "wb") as file:
        file.truncate((64 << 20) + 1)
    with pytest.raises(InputError, match="should have at most upload_limit="):
        ann.upload(tmp_path / "large.npy")
    headers = {"Authorization": ann._http.headers["Authorization"]}
    for name in ("..", "%2e%2e%2fx", ".hidden", "a%20b", "x" * 300):
        assert httpx.put(f"{running.url}/api/v1/uploads/{name}", content=b"x", headers=headers).status_code >= 400
    body = b"[" + b"1," * (1 << 20)
    assert httpx.post(f"{running.url}/api/v1/jobs", content=body, headers=headers).status_code == 413
    assert not list((running.data / "uploads").glob("*/.partial"))


@pytest.mark.slow
def test_cancel_retry_delete(running, ann, tmp_path):
    np.save(tmp_path / "long.npy", np.random.default_rng(2).normal(size=(150_000, 24)))  # half a minute's work
    job = ann.submit("density-peaks", tmp_path / "long.npy", report=False)
    folder = running.data / "jobs" / job.id
    for _ in range(2):
        wait_for(lambda: job.refresh().state == "RUNNING")
        job.cancel()
        with pytest.raises(RunCancelled):
            job.wait()
        job.retry()
    wait_for(lambda: job.refresh().state == "RUNNING")
    wait_for(lambda: (folder / f"attempt-{job.info['attempt']}" / "log.txt").stat().st_size)  # its process is there
    upload = job.info["request"]["sources"][0]["upload"]
    with pytest.raises(InputError, match="is RUNNING; cancel it"):
        job.delete()
    with pytest.raises(InputError, match=f"is needed by waiting or running jobs \\({job.id}"):
        ann.delete_upload(upload)
    job.cancel()
    with pytest.raises(RunCancelled):
        job.wait()
    assert not running.computing(job.id)  # its files are open no more
    files = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
    assert files > 0
    assert files + BLOCK_BYTES < job.info["size"] < files + 2 * BLOCK_BYTES  # of the database as well
    ann.delete_upload(upload)
    with pytest.raises(InputError, match="is not one of your uploads; upload the file first"):
        job.retry()
    job.delete()
    assert not folder.exists()
    with pytest.raises(InputError, match="there is no such job"):
        job.retry()
    assert not list(folder.parent.glob(f"{job.id}*"))


def kill(running, part):
    """Kill the processes of a part of the service; how many there were."""
    processes = running.processes(f"mgclust.service.runner.{part}")
    for process in processes:
        with contextlib.suppress(psutil.NoSuchProcess):
            process.kill()
    return len(processes)


@pytest.mark.slow
@pytest.mark.parametrize("victim", ["attempt", "runner", "web"])
def test_killed_at_any_moment_jobs_end_with_the_same_bits(running, ann, many_points, many_labels, tmp_path, victim):
    for _ in range(10):  # a job may be over before this process has its turn
        job = ann.submit("density-peaks", many_points, report=False)
        wait_for(lambda job=job: job.refresh().state != "PENDING")
        if victim == "web":
            running.web.kill()
            running.web.wait()
            running.start()
        else:
            if victim == "attempt":  # a claimed job is RUNNING before its process is there
                wait_for((running.data / "jobs" / job.id / "attempt-1" / "log.txt").exists)
            wait_for(lambda: kill(running, victim))
        if job.wait().info["attempt"] != 1:
            break
    assert job.info["attempt"] == 2  # the settings may be others when the web process restarts
    np.testing.assert_array_equal(job.result(tmp_path / "out").labels, many_labels)
    assert len([each for each in ann.jobs(limit=1000) if each.id == job.id]) == 1


@pytest.mark.slow
def test_a_killed_attempt_goes_on_from_its_last_checkpoint(running, ann, many_points, tmp_path):
    given = {"max_iter": 4000, "convergence_iter": 4000}  # some seconds, whatever the messages do
    rows = np.load(many_points)[:1500]
    np.save(tmp_path / "rows.npy", rows)
    job = ann.submit("affinity-propagation", tmp_path / "rows.npy", report=False, **given)
    kept = running.data / "jobs" / job.id / "checkpoint"
    wait_for(lambda: any(kept.glob("*/checkpoint-[0-9]*")))
    kill(running, "attempt")
    assert job.wait().info["attempt"] == 2
    before, after = job.log().split("attempt 2\n")
    assert before.startswith("attempt 1\n") and " resume" not in before and " resume" in after
    with pytest.warns(ConvergenceWarning):
        undisturbed = AffinityPropagation(client=None, device="cpu", **given).fit(rows)
    np.testing.assert_array_equal(job.result(tmp_path / "out").labels, undisturbed.labels_)
    assert not kept.exists()


@pytest.mark.slow
def test_a_waiting_process_that_was_killed_costs_no_attempt(running, ann, points):
    ann.submit("density-peaks", points, report=False).wait()  # its process waits for another job
    assert kill(running, "attempt")
    assert ann.submit("density-peaks", points, report=False).wait().info["attempt"] == 1
