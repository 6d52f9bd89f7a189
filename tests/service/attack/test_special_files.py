"""What is no file below a root (a FIFO, a device, a socket) is refused at once, and holds up nothing else."""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import time
from concurrent.futures import ThreadPoolExecutor

import httpx
import numpy as np
import pytest

from mgclust.base.errors import InputError
from mgclust.data import open_dataset
from mgclust.outside.rooted_files import RootedFile
from support.attempt_answers import answer_to
from support.surfaces import models_of, save_series

pytestmark = pytest.mark.xdist_group("service")
SOON = 60.0  # seconds on a busy machine; what waits for a FIFO waits for ever


@pytest.fixture
def folder(running):
    path = running.root / "special"
    path.mkdir(exist_ok=True)
    yield path
    shutil.rmtree(path)


def make(path, kind):
    if kind == "FIFO":
        os.mkfifo(path)
    else:
        with socket.socket(socket.AF_UNIX) as made, contextlib.chdir(path.parent):
            made.bind(path.name)


@pytest.mark.parametrize("way", ["openat2", "by parts"])
@pytest.mark.parametrize("kind", ["FIFO", "socket", "device"])
def test_refused_without_waiting(tmp_path, monkeypatch, kind, way):
    if way == "by parts":
        monkeypatch.setattr("mgclust.outside.rooted_files._has_openat2", lambda: False)
    file = RootedFile("/dev", "zero")
    if kind != "device":
        make(tmp_path / "x.npy", kind)
        file = RootedFile(str(tmp_path), "x.npy")
    with pytest.raises(InputError, match=f"is a {kind}, not a file"):
        file.open()
    with pytest.raises(InputError, match=rf"is a {kind}, not a file|has suffix"):
        open_dataset(file)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["FIFO", "socket"])
def test_refused_when_it_is_named(running, folder, kind):
    path = folder / f"named-{kind}.npy"
    make(path, kind)
    before = time.monotonic()
    with pytest.raises(InputError, match="is not a file or folder below"):
        running.client().call("POST", "/jobs", json={"method": "density-peaks", "sources": [{"path": str(path)}]})
    assert time.monotonic() - before < SOON


@pytest.mark.slow
def test_a_fifo_in_the_place_of_a_source(running, folder):
    """Pictures say that there is none, nothing is saved, and all others are answered meanwhile."""
    service, path = running.client(), folder / "points.npy"
    np.save(path, np.random.default_rng(0).normal(size=(200, 2)))
    job = service.submit("density-peaks", path, remote=True, n_clusters=3, report=False).wait()
    url, token = f"{running.url}/api/v1/jobs/{job.id}", (running.data / "token").read_text().strip()
    headers = {"Authorization": f"Bearer {token}"}
    assert len(httpx.get(f"{url}/points", headers=headers, timeout=60).json()["index"]) == 200
    path.unlink()
    os.mkfifo(path)

    def ask(number):
        with contextlib.suppress(httpx.TimeoutException):
            if number % 4:
                return httpx.get(f"{url}/points", headers=headers, timeout=60)
            return httpx.post(f"{url}/centers/save", headers=headers, json={"n_clusters": 2}, timeout=60)

    with ThreadPoolExecutor(60) as pool:
        asked = [pool.submit(ask, number) for number in range(60)]
        for _ in range(20):
            before = time.monotonic()
            assert httpx.get(f"{running.url}/healthz", timeout=SOON).status_code == 200
            assert time.monotonic() - before < SOON
        answers = [each.result() for each in asked]
    for number, answer in enumerate(answers):
        assert answer is not None and answer.status_code in ((200, 503) if number % 4 else (400, 503)), answer
        if answer.status_code == 503:
            assert int(answer.headers["Retry-After"]) > 0
        else:
            said = answer.json()
            assert "not a file" in (said["why"] if number % 4 else said["error"])
    assert {200, 400} <= {answer.status_code for answer in answers}


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", ["points.npy", "store.zarr", "init.npy", "mask.nii.gz", "confounds.tsv", "l.surf.gii", "atlas.nii.gz"]
)
def test_an_attempt_refuses_it(tmp_path, name):
    """It took the file's place after the job was submitted."""
    np.save(tmp_path / "rows.npy", np.random.default_rng(0).normal(size=(50, 2)))
    request = {"method": "density-peaks", "parameters": {}, "report": False, "sources": [{"path": name}]}
    files = {"0": {"root": str(tmp_path), "name": name, "quotable": False}}
    if name == "store.zarr":
        zarr = pytest.importorskip("zarr")
        zarr.save(str(tmp_path / name), np.ones((10, 2)))
        (chunk,) = (p for p in (tmp_path / name).rglob("*") if p.is_file() and p.suffix != ".json")
        chunk.unlink()
        os.mkfifo(chunk)
    else:
        os.mkfifo(tmp_path / name)
    if name == "init.npy":
        request |= {"method": "fuzzy-c-means", "parameters": {"n_clusters": 2, "init": {"path": name}}}
        files = {"0": {"root": str(tmp_path), "name": "rows.npy"}, "init": files["0"]}
    options = {"mask.nii.gz": "mask", "confounds.tsv": "confounds", "l.surf.gii": "surfaces", "atlas.nii.gz": "atlas"}
    if name in options:
        nibabel = pytest.importorskip("nibabel")
        rng, option = np.random.default_rng(0), options[name]
        series = "bold.dtseries.nii" if option == "surfaces" else "bold.nii"
        if option == "surfaces":
            save_series(tmp_path / series, models_of(rng), rng)
        else:
            nibabel.save(nibabel.Nifti1Image(rng.normal(size=(3, 3, 3, 5)).astype("f4"), np.eye(4)), tmp_path / series)
        request |= {
            option: {"path": name} if option == "mask" else [{"path": name}],
            "options": {"confound_names": "csf"} if option == "confounds" else {},
        }
        files = {
            "0": {"root": str(tmp_path), "name": series},
            option if option == "mask" else f"{option}-0": files["0"],
        }
    order = {
        "folder": str(tmp_path / "job" / "attempt-1"), "files": files, "request": request,
        "hidden": [], "max_rows": 0, "place": {"cpu": True},
        "checkpoint": str(tmp_path / "job" / "checkpoint"), "checkpoint_seconds": 60.0,
    }  # fmt: skip
    answer = answer_to(order)
    assert answer["fault"] == "input" and "is a FIFO, not a file" in answer["error"]
