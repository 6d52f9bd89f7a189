"""Reports of the service: the command that they print repeats the job."""

from __future__ import annotations

import html
import re
import shlex

import numpy as np
import pytest

from mgclust import load_result
from mgclust.cli import run_command
from mgclust.datasets import make_gaussian_rings

pytestmark = [pytest.mark.xdist_group("service"), pytest.mark.timeout(180)]


def printed_command(report):
    """The command in the report's last section."""
    section = report.partition("<h2>How to repeat this run</h2>")[2]
    return shlex.split(html.unescape(re.search("<pre>(mgclust .*?)</pre>", section)[1]))


@pytest.fixture
def table(tmp_path):
    """Three columns, of which the job reads two."""
    rows = make_gaussian_rings().X
    noise = np.random.default_rng(0).normal(0, 100, len(rows))
    path = tmp_path / "points.csv"
    np.savetxt(path, np.column_stack([rows[:, 0], noise, rows[:, 1]]), delimiter=",", header="a,noise,b", comments="")
    return path


def test_the_printed_command_repeats_the_job(running, table, tmp_path, monkeypatch):
    ann = running.client("ann")
    job = ann.submit("density-peaks", table, n_clusters=9, dc_fraction=0.03, options={"columns": "a,b"}).wait()
    first = job.result(tmp_path / "first")
    command = printed_command((tmp_path / "first" / "report.html").read_text())
    assert command[:4] == ["mgclust", "run", "density-peaks", "points.csv"]
    monkeypatch.chdir(tmp_path)
    assert run_command([*command[1:], "--cpu"]) == 0
    again = load_result(tmp_path / "result")
    np.testing.assert_array_equal(again.labels, first.labels)
    assert again.scores == first.scores
    assert again.source == first.source

    saved = ann.call("POST", f"/jobs/{job.id}/centers/save", json={"rho_min": 4.0, "delta_min": 2.0})
    chosen = ann.job(saved["id"]).result(tmp_path / "chosen")
    command = printed_command((tmp_path / "chosen" / "report.html").read_text())
    assert run_command([*command[1:], "--cpu", "--overwrite"]) == 0
    np.testing.assert_array_equal(load_result(tmp_path / "result").labels, chosen.labels)
