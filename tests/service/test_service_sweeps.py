"""Sweeps, comparisons, names, shared uploads and labels of jobs, from Python and from the command line."""

from __future__ import annotations

import json

import numpy as np
import pytest

from mgclust.base.errors import InputError
from mgclust.cli import run_command
from mgclust.datasets import make_gaussian_rings
from mgclust.results.label_agreement import adjusted_rand

pytestmark = [pytest.mark.xdist_group("service"), pytest.mark.timeout(180)]


@pytest.fixture(scope="module")
def points(tmp_path_factory):
    path = tmp_path_factory.mktemp("points") / "rings.npy"
    np.save(path, make_gaussian_rings().X)
    return path


@pytest.fixture
def hal(running):
    return running.client("hal")


@pytest.fixture
def call(running, monkeypatch, capsys):
    """Run a command as the user hal; its output."""
    monkeypatch.setenv("MGCLUST_URL", running.url)
    monkeypatch.setenv("MGCLUST_TOKEN", running.token_of("hal")[1])

    def run(*words, code=0):
        assert run_command(list(words)) == code, capsys.readouterr().err
        return capsys.readouterr()

    return run


def test_from_python(hal, points, tmp_path):
    values = {"n_clusters": np.array([15, 9])}
    sweep = hal.sweep("density-peaks", points, values, report=False, name="trial", tags=["t"])
    assert (sweep.vary, len(hal.uploads())) == ({"n_clusters": [15, 9]}, 1)
    done = [job.wait() for job in sweep.jobs]
    assert [job.info["name"] for job in done] == ["trial"] * 2
    labels = [job.result(tmp_path / job.id).labels for job in done]
    told = hal.compare([job.id[:12] for job in done])
    assert told["ari"][0][1] == adjusted_rand(*labels)
    best = hal.jobs(sort="score:n_clusters", tag="t")[0]
    assert best.id == done[1].id
    silhouettes = hal.submit("silhouette", points, labels=best, report=False).wait()
    assert -1 <= silhouettes.info["scores"]["silhouette"] <= 1
    assert silhouettes.info["warnings"] == []
    other = hal.submit("silhouette", make_gaussian_rings().X[::-1], labels=best, report=False).wait()
    (doubt,) = [text for text in other.info["warnings"] if "that job read other data ('rings.npy')" in text]
    assert other.log().count(doubt) == 1
    other.delete()
    hal.delete_upload(other.info["request"]["sources"][0]["upload"])
    assert hal.rename(best.id[:12], "nine", []).info["tags"] == []
    assert [job.id for job in hal.jobs(search="nine")] == [best.id]
    assert len(hal.uploads()) == 1  # of three submissions
    with pytest.raises(InputError, match="n_clusters=-1"):
        hal.submit("density-peaks", make_gaussian_rings().X[:40], n_clusters=-1)
    assert len(hal.uploads()) == 1
    silhouettes.delete()
    sweep.refresh().delete()
    with pytest.raises(InputError, match="there is no such sweep"):
        sweep.refresh()


def test_a_large_file_is_sent_once(hal, tmp_path, monkeypatch):
    np.save(tmp_path / "large.npy", np.zeros((1 << 15, 5)))
    id_ = hal.upload(tmp_path / "large.npy")
    asked, call = [], hal.call
    monkeypatch.setattr(hal, "call", lambda verb, path, **how: asked.append(verb) or call(verb, path, **how))
    assert hal.upload(tmp_path / "large.npy") == id_
    assert asked == ["GET"]
    hal.delete_upload(id_)


def test_from_the_command_line(call, hal, points):
    words = ("submit", "density-peaks", str(points), "--no-report", "--wait", "--tag", "cli", "--name", "swept")
    sweep = call(*words, "--sweep", "n-clusters=15,9", "--sweep", "halo=true").out.strip()
    shown = json.loads(call("sweep", sweep, "--json").out)
    assert shown["vary"] == {"n_clusters": [15, 9], "halo": [True]}
    assert json.loads(call("sweep", sweep[:8], "--json").out)["id"] == sweep
    assert "is not the beginning of a sweep's id" in call("sweep", "00000000", code=2).err
    table = call("sweep", sweep).out
    assert table.split()[:5] == ["ID", "STATE", "n_clusters", "halo", "OUTCOME"] and "SUCCEEDED" in table
    ids = [job["id"] for job in shown["jobs"]]
    told = json.loads(call("compare-jobs", *ids, "--json").out)
    assert told["ari"][0][0] == 1.0
    assert {"ids": ids} | hal.compare(hal.find_sweep(sweep).jobs) == told
    assert call("compare-jobs", *ids).out.count("1.0000") == 2
    listed = json.loads(call("jobs", "--tag", "cli", "--search", "swept", "--sort", "-score:n_clusters", "--json").out)
    assert [job["scores"]["n_clusters"] for job in listed] == [15, 9]
    lines = call("jobs", "--tag", "cli").out.splitlines()
    assert lines[0].split()[5:] == ["NAME", "PARAMETERS", "OUTCOME"]
    assert sum("swept" in line and "n_clusters=15" in line for line in lines) == 1
    assert "no job matches" in call("jobs", "--tag", "other").err
    made = call("submit", "silhouette", str(points), "--labels", f"job:{ids[0][:12]}", "--no-report", "--wait").out
    assert hal.job(made.strip()).info["request"]["parameters"]["labels"]["job"] == ids[0]
    assert json.loads(call("rename", ids[0], "--name", "x", "--tag", "a", "--json").out)["tags"] == ["a"]
    assert json.loads(call("rename", ids[0][:8], "--tag", "", "--json").out)["tags"] == []
    for wrong, says in (("n-clusters", "should be NAME=VALUE"), ("unknown=1", "is not a parameter"),
                        ("n-clusters=x", "n_clusters"), ("halo=perhaps", "true or false")):  # fmt: skip
        assert says in call("submit", "density-peaks", str(points), "--sweep", wrong, code=2).err
    single = json.loads(call(*words, "--sweep", "n-clusters=15", "--json").out)
    assert (single["vary"], len(single["jobs"])) == ({"n_clusters": [15]}, 1)  # one value is enough
    told = call(*words, "--sweep", "n-clusters=5000,15", code=2).err
    assert "1 of 2 jobs did not succeed; the first: " in told
    failing = told.partition("'mgclust sweep ")[2][:32]
    assert json.loads(call("sweep", failing, "--json").out)["vary"] == {"n_clusters": [5000, 15]}
    assert [job.state for job in hal.find_sweep(failing).jobs] == ["FAILED", "SUCCEEDED"]
    for id_ in (sweep[:8], failing, single["id"]):
        call("sweep", id_, "--cancel")
        call("sweep", id_, "--delete")
    hal.job(made.strip()).delete()
    assert hal.jobs() == []
