"""A method that only its registration makes known is shown wherever the others are."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from mgclust import cli, load_result
from mgclust.algorithms import METHODS, presentation_of
from mgclust.base.errors import InputError
from mgclust.base.progress import progress_text
from mgclust.data import open_dataset
from mgclust.outside.rooted_files import RootedFile
from mgclust.service.confined import reader_process
from mgclust.service.web.requests import describe_methods
from support import toy_method
from support.browser import CHROMIUM, Browser
from support.service_process import Running

TESTS = Path(toy_method.__file__).parents[1]


@pytest.fixture
def registered(monkeypatch):
    monkeypatch.setitem(METHODS, "toy", toy_method.Toy)


@pytest.fixture(scope="module")
def running(tmp_path_factory):
    """A service whose processes all know the method."""
    folder = tmp_path_factory.mktemp("service")
    (folder / "sitecustomize.py").write_text("import support.toy_method\nsupport.toy_method.register()\n")
    paths = [str(folder), str(TESTS), os.environ.get("PYTHONPATH", "")]
    service = Running(folder, environment={"PYTHONPATH": os.pathsep.join(filter(None, paths))})
    yield service
    service.stop()


@pytest.fixture(scope="module")
def rows(tmp_path_factory):
    path = tmp_path_factory.mktemp("rows") / "rows.npy"
    np.save(path, np.random.default_rng(0).normal(size=(40, 2)))
    return path


def check_files(directory):
    """The directory of a result of the method."""
    assert {"sides.png", "scatter.png", "report.html"} <= set(os.listdir(directory))
    page = (Path(directory) / "report.html").read_text("utf-8")
    for text in (
        "Toy sides: rows.npy", "balance of the sides", "side of row 0", "to the left, where it began", "2 clusters",
        "How many rows lie on each side.", "Sides &lt;of it&gt;", "left &amp; far",
    ):  # fmt: skip
        assert text in page, text


def test_on_the_command_line(registered, rows, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert cli.run_command(["methods"]) == 0
    listed = capsys.readouterr().out
    assert "toy  Sides of a threshold, for tests." in listed and "Where the sides meet." in listed
    assert cli.run_command(["run", "toy", str(rows), "-o", "out", "--cpu", "--threshold", "0.1"]) == 0
    out = capsys.readouterr().out
    result = load_result("out")
    assert result.method == "toy" and result.parameters["threshold"] == 0.1
    assert f"sides     balance {result.scores['balance']:.2f}" in out and "clusters  2, of" in out
    check_files("out")


def test_in_the_warmup(registered, capsys):
    """With what every method has: nothing in the command names it."""
    assert cli.run_command(["warmup", "--cpu", "toy"]) == 0
    assert capsys.readouterr().out.startswith("toy, 3,000 x 8: ")


def test_in_the_progress(rows):
    told = []
    toy_method.Toy().fit_dataset(open_dataset(rows), told.append)
    assert "1,234 rows moved" in [event.get("details") for event in told]
    assert any(progress_text(event).endswith("1,234 rows moved") for event in told)


def test_other_centres(registered, rows, tmp_path):
    """The service asks the method, whichever it is, and refuses a result of one that cannot choose."""
    about = describe_methods()
    assert about["toy"]["centers"]["first"]["help"] == "The first row of the other side."
    assert not about["canopy"]["centers"] and not about["toy"]["decision_graph"]
    dataset = open_dataset(rows)
    toy_method.Toy().fit_dataset(dataset).save(tmp_path / "toy")
    result = RootedFile(str(tmp_path), "toy")
    found = reader_process.preview({"result": result, "centers": {"first": 38}, "labels": True})
    assert found["n_clusters"] == 2 and found["sizes"] == [38, 2] and found["centers"] == [0, 38]
    assert np.flatnonzero(found["labels"]).tolist() == [38, 39]
    for wrong, says in (
        ({"first": -1}, "first=-1 should be"),
        ({"rho_min": 1.0}, "not a parameter; known parameters are first"),
    ):
        with pytest.raises(InputError, match=says):
            reader_process.preview({"result": result, "centers": wrong, "labels": False})
    METHODS["canopy"](client=None).fit_dataset(dataset).save(tmp_path / "canopy")
    with pytest.raises(InputError, match="other centres can only be chosen for a result of density-peaks or toy"):
        reader_process.preview({"result": RootedFile(str(tmp_path), "canopy"), "centers": {}, "labels": False})


@pytest.mark.slow
def test_in_the_service(running, rows, tmp_path):
    ann = running.client("ann")
    about = ann.call("GET", "/methods")["toy"]
    assert about["title"] == "Toy sides" and about["scores"]["balance"] == "balance of the sides"
    assert about["parameters"]["threshold"]["help"] == "Where the sides meet."
    job = ann.submit("toy", rows, threshold=0.1).wait()
    assert job.info["scores"]["n_clusters"] == 2
    job.download(tmp_path / "out")
    check_files(tmp_path / "out")
    saved = ann.call("POST", f"/jobs/{job.id}/centers/save", json={"first": 38})
    assert saved["state"] == "SUCCEEDED" and saved["method"] == "toy" and saved["request"]["centers"] == {"first": 38}
    assert saved["request"]["parameters"] == {"threshold": 0.1}


@pytest.mark.slow
def test_on_the_page(running, rows, tmp_path):
    if CHROMIUM is None:
        pytest.skip("Chromium is not installed (Debian: apt install chromium)")
    job = running.client("ann").submit("toy", rows).wait()
    browser = Browser(tmp_path)
    try:
        browser.open(f"{running.url}/jobs/{job.id}")
        browser.wait("document.querySelector('#token')")
        browser.click("#token")
        browser.type(running.token_of("ann")[1])
        browser.press("Enter", 13)
        browser.wait("document.querySelector('#title')?.innerText.includes('Toy sides SUCCEEDED')")
        assert "balance of the sides" in browser.run("document.querySelector('#scores').innerText")
        browser.wait("document.querySelector('#count').textContent === '2 clusters'")
        assert browser.run("document.querySelector('#graph-figure').hidden")  # it has no decision graph
        sizes = "document.querySelector('#sizes').getAttribute('aria-label')"
        assert "40 rows" in browser.run(sizes)
        browser.run("document.querySelector('#first').focus()")
        browser.type("30")
        browser.wait(f"{sizes}.includes('30 rows')")
        browser.open(running.url)
        browser.wait("Array.from(document.querySelectorAll('#method option')).some((each) => each.value === 'toy')")
        assert browser.errors == []
    finally:
        browser.close()


def test_what_is_not_registered_is_shown_in_general_terms():
    assert "toy" not in METHODS
    assert presentation_of("toy").title_of("toy") == "Toy"


@pytest.mark.parametrize("method", METHODS.values(), ids=list(METHODS))
def test_every_method_says_what_its_scores_mean(method):
    """And loads no matplotlib for it."""
    module = type(method.presentation).__module__
    assert module.startswith(method.__module__.rpartition(".")[0] + ".presentation")
    assert describe_methods()[method.method]["scores"]


@pytest.mark.slow
def test_no_fit_loads_matplotlib():
    code = (
        "import sys, numpy as np, mgclust, mgclust.algorithms\n"
        "mgclust.DensityPeaks(client=None, device='cpu', verbose=True).fit(np.random.default_rng(0).random((50, 2)))\n"
        "assert 'matplotlib' not in sys.modules and 'jinja2' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
