"""Tests of copies of results in a store with a running service: the form, the page of the job, and the commands."""

from __future__ import annotations

import json

import numpy as np
import pytest

from mgclust.cli import run_command
from support.browser import CHROMIUM, sign_in, violations
from support.s3_server import s3_server
from support.service_process import Running
from support.waiting import wait_for

pytestmark = [
    pytest.mark.slow,
    pytest.mark.xdist_group("service"),
    pytest.mark.timeout(240),
    pytest.mark.skipif(CHROMIUM is None, reason="Chromium is not installed (Debian: apt install chromium)"),
]
TABLE = """
[{name}]
endpoint = "{url}"
bucket = "{name}"
key = "k"
secret = "do-not-show-this"
prefix = "{{user}}"
write = {write}
"""


@pytest.fixture(scope="module")
def store():
    with s3_server() as made:
        yield made


@pytest.fixture(scope="module")
def service(store, tmp_path_factory):
    folder = tmp_path_factory.mktemp("copies")
    stores = folder / "stores.toml"
    opened = {"lab": "true", "later": "true", "read": "false"}
    stores.write_text("".join(TABLE.format(name=name, url=store[0], write=write) for name, write in opened.items()))
    stores.chmod(0o600)
    store[1].create_bucket(Bucket="lab")
    made = Running(folder, settings={"stores": stores}, constants={"queue.copies.RETRY_SECONDS": ()})
    yield made
    made.stop()


def test_a_result_reaches_the_store_that_the_form_names(browser, service, store, tmp_path, monkeypatch, capsys):
    np.save(tmp_path / "points.npy", np.random.default_rng(0).normal(size=(200, 2)))
    sign_in(browser, service)
    browser.click("#new-job summary")
    browser.wait("document.querySelector('#resources [data-name=workers]')")
    browser.run("for (const part of document.querySelectorAll('#new-job details')) part.open = true")
    browser.choose_file("#files", tmp_path / "points.npy")

    def submit(place):
        browser.run(f"document.querySelector('#results-to').value = '{place}'")
        browser.click("#submission button[type=submit]")

    submit("store:read/out")
    browser.wait("document.querySelector('#problem').innerText.includes('use one of lab, later.')")
    submit("store:lab/out")
    browser.wait(
        "document.querySelector('#copy-state')?.innerText.includes('The files were copied to store:lab/out/')", 120
    )
    browser.wait("!document.querySelector('#report').hidden")
    assert "store:lab/out" in browser.run("document.querySelector('#request').innerText")
    assert browser.run("document.querySelector('#copy-again').hidden") and violations(browser) == []
    ann = service.client("ann")
    job = ann.job(browser.run("location.pathname.split('/').pop()"))
    manifest = json.loads(store[1].get_object(Bucket="lab", Key=f"ann/out/{job.id}/manifest.json")["Body"].read())
    assert manifest["complete"] and {"labels.npy", "result.json"} <= {each["name"] for each in manifest["files"]}
    labels = store[1].get_object(Bucket="lab", Key=f"ann/out/{job.id}/labels.npy")["Body"].read()
    assert labels == (job.download(tmp_path / "result") / "labels.npy").read_bytes()
    saved = ann.call("POST", f"/jobs/{job.id}/centers/save", json={"n_clusters": 2})
    assert saved["result_copy"] is None and "results_to" not in saved["request"]  # it is not copied

    monkeypatch.setenv("MGCLUST_URL", service.url)
    monkeypatch.setenv("MGCLUST_TOKEN", service.token_of("ann")[1])
    options = ["--workers", "1", "--no-report", "--wait", "--results-to", "store:later/out"]
    assert run_command(["submit", "density-peaks", str(tmp_path / "points.npy"), *options]) == 0
    id_ = capsys.readouterr().out.strip()
    wait_for(lambda: ann.job(id_).info["result_copy"]["state"] == "FAILED")
    browser.open(f"{service.url}/jobs/{id_}")
    browser.wait("document.querySelector('#copy-state')?.innerText.includes('were not copied to store:later/out')")
    assert violations(browser) == []
    store[1].create_bucket(Bucket="later")
    browser.click("#copy-again")
    browser.wait(
        "document.querySelector('#copy-state')?.innerText.includes('The files were copied to store:later/out')"
    )
    assert run_command(["status", id_]) == 0 and f"copied to store:later/out/{id_}" in capsys.readouterr().out
    errors = service._errors.read_text()
    assert "do-not-show-this" not in errors + browser.text() and "Traceback" not in errors
