"""What jobs may read, as their users try it: uploads that go wrong, files named in parameters, URLs, and limits."""

from __future__ import annotations

import hashlib
import json
import os
import socket
import time
from concurrent.futures import ThreadPoolExecutor

import httpx
import numpy as np
import pytest

from mgclust import Parcellation, cli, open_dataset
from mgclust.base.errors import InputError, InsufficientMemoryError
from mgclust.datasets import make_bold
from mgclust.results.label_agreement import compare_with_atlas
from support.service_process import MAX_ROWS
from support.surfaces import models_of, save_series, save_surface, sphere
from support.waiting import wait_for

pytestmark = pytest.mark.xdist_group("service")


@pytest.fixture
def ann(running):
    return running.client("ann")


@pytest.fixture(scope="module")
def points(tmp_path_factory):
    path = tmp_path_factory.mktemp("points") / "points.npy"
    np.save(path, np.random.default_rng(0).normal(size=(60, 2)))
    return path


def uploads(running):
    """What is there, whose folders may go while they are listed."""
    walk = os.walk(running.data / "uploads")
    return sorted(os.path.join(folder, name) for folder, folders, files in walk for name in (*folders, *files))


def header_of(client):
    return {"Authorization": client._http.headers["Authorization"]}


@pytest.mark.slow
@pytest.mark.parametrize(
    "sent",
    [
        b"Content-Length: 1000\r\n\r\n0123456789",
        b"Transfer-Encoding: chunked\r\n\r\n5\r\n01234\r\n",
        b"Transfer-Encoding: chunked\r\n\r\n5\r\n01234\r\nzz\r\n",
        b"Transfer-Encoding: chunked\r\n\r\nfffffffff\r\n01234",
        b"Content-Length: -1\r\n\r\n0123",
        b"Content-Length: 4\r\nContent-Length: 1000\r\n\r\n0123",
        b"Content-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n0123",
    ],
)
def test_an_upload_that_is_cut_off_leaves_nothing(running, ann, sent):
    before = uploads(running)
    with socket.create_connection(("127.0.0.1", running.port)) as connection:
        first = f"PUT /api/v1/uploads/x.npy HTTP/1.1\r\nHost: x\r\nAuthorization: {header_of(ann)['Authorization']}\r\n"
        connection.sendall(first.encode() + sent)
        time.sleep(0.1)
    wait_for(lambda: uploads(running) == before)


@pytest.mark.slow
def test_more_than_was_said_is_not_part_of_the_upload(running, ann):
    with socket.create_connection(("127.0.0.1", running.port)) as connection:
        connection.settimeout(60)
        first = f"PUT /api/v1/uploads/x.npy HTTP/1.1\r\nHost: x\r\nAuthorization: {header_of(ann)['Authorization']}\r\n"
        connection.sendall(first.encode() + b"Content-Length: 4\r\nConnection: close\r\n\r\n0123 and more")
        answer = b""
        while part := connection.recv(1 << 16):
            answer += part
    assert b" 201 " in answer and hashlib.sha256(b"0123").hexdigest().encode() in answer


@pytest.mark.parametrize(
    "name",
    ["a/b", "..%2fb", "%2fetc%2fpasswd", "a%5cb", "a%0ab", "a%00b", "%e2%80%ae.npy", "é.npy", "x" * 5000, ".", "%"],
)  # fmt: skip
def test_names_that_are_no_names(running, ann, name):
    before = uploads(running)
    answer = httpx.put(f"{running.url}/api/v1/uploads/{name}", content=b"x", headers=header_of(ann))
    assert 400 <= answer.status_code < 500
    assert uploads(running) == before


def test_a_file_may_be_called_like_the_one_it_was_written_as(ann):
    id_ = ann.call("PUT", "/uploads/partial", parts=lambda: iter([b"x"]))["id"]
    assert len(id_) == 32
    ann.delete_upload(id_)  # other tests look for files of this name, which uploads in progress have


def test_the_hash_that_was_said(running, ann):
    before, right = uploads(running), hashlib.sha256(b"x").hexdigest()
    with pytest.raises(InputError, match=f"x.npy should have sha256={'0' * 64}, but has "):
        ann.call("PUT", "/uploads/x.npy", parts=lambda: iter([b"x"]), params={"sha256": "0" * 64})
    with pytest.raises(InputError, match="sha256"):
        ann.call("PUT", "/uploads/x.npy", parts=lambda: iter([b"x"]), params={"sha256": "guess"})
    assert uploads(running) == before
    assert ann.call("PUT", "/uploads/x.npy", parts=lambda: iter([b"x"]), params={"sha256": right})["sha256"] == right


def test_many_uploads_at_once_stay_apart(ann):
    def send(k):
        content = bytes([k]) * (k << 12)
        told = ann.call(
            "PUT", "/uploads/same.npy", parts=lambda: (content[i : i + 997] for i in range(0, len(content), 997))
        )
        return told["sha256"] == hashlib.sha256(content).hexdigest() and told["id"]

    with ThreadPoolExecutor(12) as pool:
        ids = list(pool.map(send, range(1, 25)))
    assert all(ids) and len(set(ids)) == 24


# --- limits


@pytest.mark.slow
def test_more_rows_than_the_service_takes(ann, tmp_path):
    np.save(tmp_path / "many.npy", np.zeros((MAX_ROWS + 1, 1), np.uint8))
    job = ann.submit("density-peaks", tmp_path / "many.npy")
    with pytest.raises(
        InputError, match=r"n_samples=3000001 of many.npy should be at most max_rows=3000000; .*MAX_ROWS"
    ):
        job.wait()
    (tmp_path / "g.mtx").write_text(
        "%%MatrixMarket matrix coordinate pattern symmetric\n2147483647 2147483647 1\n2 1\n"
    )
    with pytest.raises(InputError, match=r"n_nodes=2147483647 of g.mtx should be at most max_rows"):
        ann.submit("communities", tmp_path / "g.mtx").wait()


def test_a_matrix_that_does_not_fit_is_the_memorys_fault(ann, tmp_path):
    np.save(tmp_path / "wide.npy", np.arange(2_500_000, dtype=np.float32)[:, None])
    job = ann.submit("affinity-propagation", tmp_path / "wide.npy")
    with pytest.raises(InsufficientMemoryError):
        job.wait()
    assert (job.state, job.info["fault"], job.info["attempt"]) == ("FAILED", "memory", 1)


# --- files named in parameters


@pytest.mark.slow
def test_parameters_that_are_files(running, ann, points, tmp_path):
    np.save(tmp_path / "labels.npy", np.arange(60) % 3)
    job = ann.submit("silhouette", points, labels=tmp_path / "labels.npy", report=False).wait()
    assert job.info["scores"]["n_clusters"] == 3
    assert ann.submit("fuzzy-c-means", points, n_clusters=2, init=np.eye(2), report=False).wait().state == "SUCCEEDED"
    np.save(tmp_path / "edges.npy", [[0, 1], [1, 2], [0, 2], [2, 3], [3, 4]])
    np.save(tmp_path / "known.npy", [4, 4, 4, 2, 2])
    np.save(tmp_path / "fixed.npy", [0, 3])
    known = {"init": tmp_path / "known.npy", "fixed": tmp_path / "fixed.npy"}
    job = ann.submit("communities", tmp_path / "edges.npy", report=False, **known).wait()
    assert job.result(tmp_path / "continued").labels.tolist() == [4, 4, 4, 2, 2]
    (running.root / "labels.npy").write_bytes((tmp_path / "labels.npy").read_bytes())
    (running.root / "away.npy").symlink_to(tmp_path / "labels.npy")
    job = ann.submit("silhouette", running.root / "labels.npy", remote=True, labels=running.root / "labels.npy")
    with pytest.raises(InputError, match="1-dimensional"):
        job.wait()  # it was read
    upload = ann.upload(points)
    for method, name, value, says in (
        ("silhouette", "labels", "/etc/passwd", "should name a file as"),
        ("silhouette", "labels", "http://127.0.0.1:1/x.csv", "should name a file as"),
        ("silhouette", "labels", str(running.root / "labels.npy"), "should name a file as"),
        ("fuzzy-c-means", "init", str(tmp_path / "labels.npy"), "should name a file as"),
        ("silhouette", "labels", {"path": str(tmp_path / "labels.npy")}, "not a file or folder below"),
        ("silhouette", "labels", {"path": str(running.root / "away.npy")}, "not a file or folder below"),
        ("silhouette", "labels", {"path": str(running.root / ".." / "data" / "token")}, "not a file or folder below"),
        ("silhouette", "labels", {"upload": "guess"}, "not one of your uploads"),
        ("silhouette", "labels", {"path": "https://evil.example/x.npy"}, "not a file or folder below"),
        ("silhouette", "labels", {"url": "http://127.0.0.1/x.npy"}, "should name a file as"),
        ("silhouette", "metric", {"upload": upload}, "no arrays|should be"),
        ("silhouette", "labels", {"a": 1}, "should name a file as"),
    ):
        request = {"method": method, "sources": [{"upload": upload}], "parameters": {name: value}}
        with pytest.raises(InputError, match=says):
            ann.call("POST", "/jobs", json=request)


@pytest.mark.slow
def test_a_series_is_prepared_with_its_table(running, ann, tmp_path, monkeypatch, capsys):
    """Tables of confounds are sources: uploads, or files below a root."""
    made = make_bold(shape=(5, 5, 4), n_parcels=2, n_timepoints=20)
    made.save(tmp_path)
    table = tmp_path / "confounds.tsv"
    csf = np.random.default_rng(0).normal(size=20)
    table.write_text("csf\tframewise_displacement\n" + "".join(f"{x}\t{k % 9 / 9}\n" for k, x in enumerate(csf)))
    steps = {"smoothing_fwhm": 6, "confound_names": "csf", "fd_threshold": 0.8, "standardize": "zscore"}
    how = {"metric": "correlation", "n_clusters": 2, "report": False}
    job = ann.submit("density-peaks", tmp_path / "bold.nii.gz", mask=tmp_path / "mask.nii.gz", confounds=[table],
                     options=steps, **how).wait()  # fmt: skip
    source = job.result(tmp_path / "result").source
    done = source["preparation"]
    assert done["smoothing_fwhm"] == 6 and done["confound_names"] == [["csf"]] and done["volumes_left_out"] == [[8, 17]]
    local = open_dataset(tmp_path / "bold.nii.gz", tmp_path / "mask.nii.gz", confounds=table, **steps)
    assert local.fingerprint() == source["sha256"]
    for name in ("bold.nii.gz", "confounds.tsv"):
        (running.root / name).write_bytes((tmp_path / name).read_bytes())
    below = {"confounds": [running.root / "confounds.tsv"], "options": steps, "remote": True}
    assert ann.submit("density-peaks", running.root / "bold.nii.gz", **below, **how).wait().state == "SUCCEEDED"
    with pytest.raises(InputError, match="not a file or folder below"):
        ann.submit("density-peaks", running.root / "bold.nii.gz", **{**below, "confounds": [table]}, **how)
    (running.root / "away.tsv").symlink_to(table)
    with pytest.raises(InputError, match="not a file or folder below"):
        ann.submit(
            "density-peaks", running.root / "bold.nii.gz", **{**below, "confounds": [running.root / "away.tsv"]}, **how
        )
    upload = ann.upload(tmp_path / "bold.nii.gz")
    for given, says in (
        ({"confounds": [{"path": str(table)}]}, "not a file or folder below"),
        ({"confounds": [{"upload": "guess"}]}, "not one of your uploads"),
        ({"confounds": "auto"}, "confounds"),
        ({"options": {"confounds": str(table)}}, "confounds"),
        ({"confounds": [], "options": {}}, "confounds"),
    ):
        request = {"method": "density-peaks", "sources": [{"upload": upload}], **given}
        with pytest.raises(InputError, match=says):
            ann.call("POST", "/jobs", json=request)
    with pytest.raises(InputError, match="confounds does not apply to communities"):
        ann.submit("communities", tmp_path / "bold.nii.gz", confounds=[table])
    monkeypatch.setenv("MGCLUST_URL", running.url)
    monkeypatch.setenv("MGCLUST_TOKEN", header_of(ann)["Authorization"].split()[1])
    (tmp_path / "sub-1_bold.nii.gz").write_bytes((tmp_path / "bold.nii.gz").read_bytes())
    (tmp_path / "sub-1_desc-confounds_timeseries.tsv").write_bytes(table.read_bytes())
    call = [
        "submit", "density-peaks", str(tmp_path / "sub-1_bold.nii.gz"), "--metric", "correlation",
        "--n-clusters", "2", "--no-report", "--confounds", "auto", "--confound-names", "cs*", "--smoothing-fwhm", "6",
        "--wait",
    ]  # fmt: skip
    assert cli.run_command(call) == 0, capsys.readouterr().err
    info = ann.job(capsys.readouterr().out.split()[0]).info
    assert info["state"] == "SUCCEEDED" and info["request"]["options"] == {"smoothing_fwhm": 6, "confound_names": "cs*"}
    assert cli.run_command([*call, "--remote"]) == 2
    assert "confounds='auto' does not work with --remote" in capsys.readouterr().err


@pytest.mark.slow
def test_parcels_of_a_group_are_among_the_files_of_a_job(ann, tmp_path):
    """Subjects of uploads come from their names, and from folders on the machine of the client."""
    for subject in (1, 2):
        made = make_bold(shape=(5, 5, 4), n_parcels=2, n_timepoints=20, random_state=subject)
        made.save(tmp_path / f"sub-{subject}")
    runs, mask = [tmp_path / f"sub-{subject}" / "bold.nii.gz" for subject in (1, 2)], tmp_path / "sub-1" / "mask.nii.gz"
    with pytest.raises(InputError, match=r"files of 2 subjects \(sub-1, sub-2\); give group=True"):
        ann.submit("parcellation", runs, mask=mask, n_parcels=2).wait()
    job = ann.submit("parcellation", runs, mask=mask, n_parcels=2, group=True).wait()
    result = job.result(tmp_path / "result")
    assert result.diagnostics["subjects"] == ["sub-1", "sub-2"]
    names = sorted(path.name for path in (tmp_path / "result" / "individual" / "sub-2").iterdir())
    assert names == [f"sub-2_desc-parcellation_dseg.{end}" for end in ("json", "nii.gz", "tsv")]
    facts = json.loads((tmp_path / "result" / "individual" / "sub-2" / names[0]).read_text())
    assert facts["Sources"] == ["sub-2_bold.nii.gz"] and facts["Mask"] == "sub-1_mask.nii.gz"
    for file in (tmp_path / "result").rglob("*"):  # no file of the result names a folder of the service
        assert not file.is_file() or b"/uploads/" not in file.read_bytes(), file


@pytest.fixture
def cortex(tmp_path):
    """A series of grayordinates, its surfaces, and an atlas: the labels of both hemispheres."""
    rng = np.random.default_rng(0)
    coordinates, triangles = sphere(1)
    series = save_series(tmp_path / "sub-1_bold.dtseries.nii", models_of(rng, subcortical=False), rng)
    surfaces, atlas = [], []
    for side in ("Left", "Right"):
        surfaces.append(save_surface(tmp_path / f"{side}.surf.gii", coordinates, triangles, f"Cortex{side}"))
        atlas.append(save_labels(tmp_path / f"{side}.label.gii", 1 + np.arange(42) % 3, f"Cortex{side}"))
    return series, surfaces, atlas


def save_labels(path, keys, structure):
    gifti = pytest.importorskip("nibabel").gifti
    labels = gifti.GiftiDataArray(keys.astype(np.int32), "NIFTI_INTENT_LABEL", "NIFTI_TYPE_INT32")
    meta = gifti.GiftiMetaData({"AnatomicalStructurePrimary": structure})
    path.write_bytes(gifti.GiftiImage(meta=meta, darrays=[labels]).to_bytes())
    return path


def below(running, paths):
    """Copies of files in the folder that the service may read."""
    for path in paths:
        (running.root / path.name).write_bytes(path.read_bytes())
    return [running.root / path.name for path in paths]


def test_parcels_of_grayordinates_with_surfaces_and_an_atlas(running, ann, cortex, tmp_path):
    """Surfaces and atlases are sources: uploads, or files below a root."""
    series, surfaces, atlas = cortex
    how = {"n_parcels": 6, "report": False}
    job = ann.submit("parcellation", series, surfaces=surfaces, atlas=atlas, **how).wait()
    result = job.result(tmp_path / "result")
    local = open_dataset(series, surfaces=surfaces, atlas=atlas)
    assert result.source["sha256"] == local.fingerprint()
    assert [os.path.basename(name) for name in result.source["surfaces"]] == ["Left.surf.gii", "Right.surf.gii"]
    assert result.source["atlas_sha256"] == [hashlib.sha256(path.read_bytes()).hexdigest() for path in atlas]
    alone = Parcellation(6, client=None, device="cpu").fit(local).result_
    np.testing.assert_array_equal(result.labels, alone.labels)
    for name in ("atlas_index", "atlas_name", "atlas_dice"):
        np.testing.assert_array_equal(result.arrays[name], alone.arrays[name])
    assert job.info["scores"]["atlas_ari"] == pytest.approx(alone.scores["atlas_ari"])
    (there,), faces, labels = below(running, [series]), below(running, surfaces), below(running, atlas)
    again = ann.submit("parcellation", there, surfaces=faces, atlas=labels, remote=True, **how).wait()
    np.testing.assert_array_equal(again.result(tmp_path / "again").labels, alone.labels)


def test_surfaces_and_atlases_that_are_refused(running, ann, cortex, tmp_path):
    series, surfaces, atlas = cortex
    (there,), faces = below(running, [series]), below(running, surfaces)
    (running.root / "away.surf.gii").symlink_to(surfaces[1])
    upload = ann.upload(series)
    for name in ("surfaces", "atlas"):
        for given, says in (
            ([{"path": str(surfaces[0])}], "not a file or folder below"),
            ([{"path": str(running.root / "away.surf.gii")}], "not a file or folder below"),
            ([{"path": str(running.root / ".." / "data" / "token")}], "not a file or folder below"),
            ([{"upload": "guess"}], "not one of your uploads"),
            ([], name),
            (str(surfaces[0]), name),
            ([{"upload": upload, "path": "/x"}], "either"),
        ):
            request = {"method": "parcellation", "sources": [{"upload": upload}], name: given}
            with pytest.raises(InputError, match=says):
                ann.call("POST", "/jobs", json=request)
        with pytest.raises(InputError, match=name):
            request = {"method": "parcellation", "sources": [{"upload": upload}], "options": {name: str(surfaces[0])}}
            ann.call("POST", "/jobs", json=request)
        with pytest.raises(InputError, match=f"{name} does not apply to communities"):
            ann.submit("communities", series, **{name: surfaces})
    bomb = tmp_path / "bomb.surf.gii"
    bomb.write_text('<?xml version="1.0"?><!DOCTYPE GIFTI [<!ENTITY a "b">]><GIFTI>&a;</GIFTI>')
    (secret,) = below(running, [tmp_path / "bomb.surf.gii"])
    secret.write_text("<GIFTI><MetaData>the secret")
    for options, says in (
        ({"surfaces": [surfaces[0]]}, "surfaces has none for cortex_right"),
        ({}, "surfaces=None, but sub-1_bold.dtseries.nii has vertices of"),
        ({"surfaces": [surfaces[0], bomb]}, "bomb.surf.gii declares entities, which are rejected"),
        ({"surfaces": [*surfaces, atlas[0]]}, "0 arrays of coordinates"),
        ({"surfaces": surfaces, "atlas": [surfaces[0]]}, "0 arrays of labels"),
        ({"surfaces": surfaces, "atlas": [series]}, "sub-1_bold.dtseries.nii' does not suit"),
        ({"surfaces": surfaces, "atlas": [atlas[0], atlas[0]]}, "are both of cortex_left"),
    ):
        job = ann.submit("parcellation", series, n_parcels=6, report=False, **options)
        with pytest.raises(InputError, match=says) as caught:
            job.wait()
        assert str(running.data) not in str(caught.value)
    job = ann.submit("parcellation", there, surfaces=[faces[0], secret], remote=True, n_parcels=6, report=False)
    with pytest.raises(InputError, match="is not a whole GIFTI file") as caught:
        job.wait()
    assert "the secret" not in str(caught.value)


@pytest.mark.slow
def test_an_atlas_is_sent_with_the_table_next_to_it(running, ann, tmp_path, monkeypatch, capsys):
    make_bold(shape=(6, 6, 5), n_parcels=3, n_timepoints=24).save(tmp_path)
    (tmp_path / "truth.tsv").write_text("index\tname\n1\tone\n2\ttwo\n3\tthree\n")
    monkeypatch.setenv("MGCLUST_URL", running.url)
    monkeypatch.setenv("MGCLUST_TOKEN", header_of(ann)["Authorization"].split()[1])
    how = ["--metric", "correlation", "--n-clusters", "3", "--detrend", "--no-report", "--wait"]
    call = ["submit", "density-peaks", str(tmp_path / "bold.nii.gz"), "--mask", str(tmp_path / "mask.nii.gz"),
            "--atlas", str(tmp_path / "truth.nii.gz"), *how]  # fmt: skip
    assert cli.run_command(call) == 0, capsys.readouterr().err
    job = ann.job(capsys.readouterr().out.split()[0])
    assert [each["name"] for each in job.info["request"]["atlas"]] == ["truth.nii.gz", "truth.tsv"]
    assert set(job.result(tmp_path / "result").arrays["atlas_name"].tolist()) == {"one", "two", "three"}
    chosen = ann.call("POST", f"/jobs/{job.id}/centers/save", json={"n_clusters": 2})
    other = ann.job(chosen["id"]).result(tmp_path / "other")
    local = open_dataset(
        tmp_path / "bold.nii.gz", tmp_path / "mask.nii.gz", detrend=True, atlas=tmp_path / "truth.nii.gz"
    )
    own = compare_with_atlas(np.asarray(other.labels), local.atlas.codes, 3)
    assert other.scores["atlas_ari"] == pytest.approx(own.ari) and len(own.dice) == 2
    np.testing.assert_allclose(other.arrays["atlas_dice"], own.dice)
    files = below(running, [tmp_path / name for name in ("bold.nii.gz", "mask.nii.gz", "truth.nii.gz", "truth.tsv")])
    call = ["submit", "density-peaks", str(files[0]), "--mask", str(files[1]), "--remote", "--atlas",
            f"{files[2]},{files[3]}", *how]  # fmt: skip
    assert cli.run_command(call) == 0, capsys.readouterr().err
    found = ann.job(capsys.readouterr().out.split()[0]).result(tmp_path / "remote")
    assert set(found.arrays["atlas_name"].tolist()) == {"one", "two", "three"}
    assert job.info["scores"]["atlas_ari"] == found.scores["atlas_ari"]
