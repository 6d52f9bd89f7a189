"""Parcellations through the service: all files of a result, killed processes, cancelling, and input that is refused."""

from __future__ import annotations

import contextlib
import time
from pathlib import Path

import numpy as np
import psutil
import pytest

from mgclust import Parcellation, cli, load_result, open_dataset
from mgclust.base.errors import InputError, RunCancelled
from mgclust.datasets import make_bold
from support.waiting import wait_for

nibabel = pytest.importorskip("nibabel")

pytestmark = [pytest.mark.xdist_group("service"), pytest.mark.timeout(300)]

# Enough numbers that each stage of the evaluated run takes a second or more.
NUMBERS = [20, 30, 40, 60, 80, 100, 150, 200, 300]


@pytest.fixture
def ann(running):
    return running.client("ann")


@pytest.fixture(scope="module")
def small(tmp_path_factory):
    """A series, its mask and its table of confounds."""
    folder = tmp_path_factory.mktemp("small")
    make_bold((8, 9, 7), n_parcels=4, n_timepoints=60, noise=0.3).save(folder)
    rng = np.random.default_rng(0)
    table = np.column_stack([rng.normal(size=60), rng.gamma(2, 0.1, 60)])
    np.savetxt(folder / "confounds.tsv", table, delimiter="\t", header="csf\tframewise_displacement", comments="")
    return folder


@pytest.fixture(scope="module")
def large(tmp_path_factory):
    """A series that takes some seconds, and the result of a run that nothing disturbs."""
    folder = tmp_path_factory.mktemp("large")
    make_bold((22, 26, 20), n_parcels=40, n_timepoints=100, noise=2.0).save(folder)
    dataset = open_dataset(folder / "bold.nii.gz", mask=folder / "mask.nii.gz")
    return folder, Parcellation(NUMBERS, client=None, device="cpu").fit(dataset).result_


def test_all_files_of_a_parcellation(running, ann, small, tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("MGCLUST_URL", running.url)
    monkeypatch.setenv("MGCLUST_TOKEN", running.token_of("ann")[1])
    monkeypatch.chdir(tmp_path)
    files = {name: str(small / name) for name in ("bold.nii.gz", "mask.nii.gz", "confounds.tsv")}
    told = [
        "submit", "parcellation", files["bold.nii.gz"], "--mask", files["mask.nii.gz"], "--detrend",
        "--confounds", files["confounds.tsv"], "--confound-names", "csf", "--fd-threshold", "0.6",
        "--n-parcels", "4,3,6", "--wait",
    ]  # fmt: skip
    code = cli.run_command(told)
    out, err = capsys.readouterr()
    assert code == 0, err
    job = ann.job(out.split()[0])
    assert job.info["request"]["parameters"] == {"n_parcels": [3, 4, 6]}
    assert cli.run_command(["result", job.id, "-o", "out"]) == 0
    dataset = open_dataset(
        files["bold.nii.gz"], mask=files["mask.nii.gz"], detrend=True, confounds=files["confounds.tsv"],
        confound_names="csf", fd_threshold=0.6,
    )  # fmt: skip
    local = Parcellation([3, 4, 6], client=None, device="cpu").fit(dataset)
    result = load_result("out")
    np.testing.assert_array_equal(result.labels, local.labels_)
    for name, values in local.result_.arrays.items():
        np.testing.assert_array_equal(result.arrays[name], values, err_msg=name)
    assert sorted(path.name for path in Path("out/candidates").iterdir()) == ["3", "4", "6"]
    for k in (3, 4, 6):
        np.testing.assert_array_equal(load_result(f"out/candidates/{k}").labels, local.labels_for(k))
        assert list(Path(f"out/candidates/{k}").glob("*_dseg.nii.gz"))
    sent = {path.relative_to("out").as_posix() for path in Path("out").rglob("*") if path.is_file()}
    listed = {each["name"] for each in ann.call("GET", f"/jobs/{job.id}/files")}
    assert sent == listed
    assert {"parcel_evaluation.png", "label_slices.png", "report.html"} <= listed
    with ann.stream(f"/jobs/{job.id}/files/candidates/4/labels.npy") as answer:
        assert answer.status_code == 200 and answer.read() == Path("out/candidates/4/labels.npy").read_bytes()
    page = Path("out/report.html").read_text()
    assert "Evaluation of the numbers of parcels" in page and 'alt="parcel evaluation"' in page


@pytest.mark.slow
def test_bad_files_fail_with_their_sentence(running, ann, small, tmp_path):
    image, mask = nibabel.load(small / "bold.nii.gz"), nibabel.load(small / "mask.nii.gz")
    nibabel.save(image.slicer[:-1], tmp_path / "cut.nii.gz")
    nibabel.save(image.slicer[..., :3], tmp_path / "few.nii.gz")
    whole = (small / "bold.nii.gz").read_bytes()
    (tmp_path / "torn.nii.gz").write_bytes(whole[: len(whole) // 2])
    (tmp_path / "short.tsv").write_text("csf\n" + "0.5\n" * 30)
    islands = np.zeros(mask.shape, np.uint8)
    islands[::3, ::3, ::3] = 1
    nibabel.save(nibabel.Nifti1Image(islands * np.asarray(mask.dataobj), mask.affine), tmp_path / "islands.nii.gz")
    good, own = small / "bold.nii.gz", small / "mask.nii.gz"
    short = {"confounds": [tmp_path / "short.tsv"], "options": {"confound_names": "csf"}}
    for sources, mask_file, given, says in (
        ([good, tmp_path / "cut.nii.gz"], own, {}, "cut.nii.gz is on another grid than bold.nii.gz"),
        ([tmp_path / "cut.nii.gz"], own, {}, "mask='mask.nii.gz' is on another grid than cut.nii.gz"),
        ([tmp_path / "few.nii.gz"], own, {}, "few.nii.gz should have >= 4 points in time, not 3"),
        ([tmp_path / "torn.nii.gz"], own, {}, "torn.nii.gz is damaged or truncated"),
        ([good], tmp_path / "islands.nii.gz", {}, "n_parcels=4 should be >= "),
        ([good], own, {"n_parcels": 400}, "n_parcels=400 should be <= "),
        ([good], own, short, "confounds='short.tsv' has 30 lines of values, but bold.nii.gz has 60 volumes"),
        ([good], own, {"options": {"low_pass": 0.3}}, "low_pass=0.3 should be below 0.25 Hz"),
    ):
        job = ann.submit("parcellation", sources, mask=mask_file, **{"n_parcels": 4} | given)
        with pytest.raises(InputError) as caught:
            job.wait()
        assert says in str(caught.value)
        assert (job.state, job.info["fault"], job.info["attempt"]) == ("FAILED", "input", 1)
        assert str(running.data) not in job.info["error"]


def stage_of(job):
    info = job.refresh().info
    assert info["state"] in ("PENDING", "RUNNING"), info["error"]
    return (info["progress"] or {}).get("stage")


def reach(job, stage):
    wait_for(lambda: stage_of(job) == stage)


def submit(ann, folder, numbers=NUMBERS, **given):
    return ann.submit(
        "parcellation", folder / "bold.nii.gz", mask=folder / "mask.nii.gz", report=False, n_parcels=numbers, **given
    )


def check(job, expected, folder):
    """The result is that of an undisturbed run, and complete; nothing else is in its folder."""
    assert job.wait().state == "SUCCEEDED"
    result = job.result(folder / "out")
    np.testing.assert_array_equal(result.labels, expected.labels)
    assert set(result.arrays) == set(expected.arrays)
    for name, values in expected.arrays.items():
        np.testing.assert_array_equal(result.arrays[name], values, err_msg=name)
    assert sorted(int(path.name) for path in (folder / "out" / "candidates").iterdir()) == NUMBERS
    for at, k in enumerate(NUMBERS):
        candidate = load_result(folder / "out" / "candidates" / str(k))
        np.testing.assert_array_equal(candidate.labels, expected.arrays["candidates"][:, at])
    assert not [path for path in (folder / "out").rglob("*") if "partial" in path.name]


@pytest.mark.slow
@pytest.mark.parametrize(("victim", "stage"), [("attempt", "refine"), ("runner", "evaluate")])
def test_a_killed_process_changes_no_bit(running, ann, large, tmp_path, victim, stage):
    folder, expected = large
    job = submit(ann, folder)
    reach(job, stage)
    for process in running.processes(f"mgclust.service.runner.{victim}"):
        with contextlib.suppress(psutil.NoSuchProcess):
            process.kill()
    check(job, expected, tmp_path)
    assert job.info["attempt"] == 2
    attempts = sorted(path.name for path in (running.data / "jobs" / job.id).glob("attempt-*"))
    assert attempts[-1] == "attempt-2"
    assert not list((running.data / "jobs" / job.id).rglob("*.partial"))
    assert len([each for each in ann.jobs(limit=1000) if each.id == job.id]) == 1


def workers_of(running, job):
    """The Dask workers of a job, which are children of children of its process."""
    (attempt,) = running.computing(job.id)
    return [each for each in attempt.children(recursive=True) if "spawn_main" in " ".join(each.cmdline())]


@pytest.mark.slow
@pytest.mark.parametrize(("stage", "rank"), [("refine", 0), ("evaluate", 0), ("refine", 1)])
def test_a_killed_dask_worker_changes_no_bit(running, ann, large, tmp_path, stage, rank):
    """Rank 0 computes; rank 1 waits for it."""
    folder, expected = large
    job = submit(ann, folder, resources={"workers": 2})
    reach(job, stage)
    time.sleep(1)  # so that the processor time of the ranks differs
    workers = sorted(workers_of(running, job), key=lambda process: -sum(process.cpu_times()[:2]))
    assert len(workers) == 2
    workers[rank].kill()
    check(job, expected, tmp_path)
    assert job.info["attempt"] == 1 and "(retry 1 of 1)" in job.log()


@pytest.mark.slow
@pytest.mark.parametrize("stages", [("collect", "merge", "refine"), ("refine",), ("evaluate",)])
def test_a_cancelled_parcellation_ends_soon(running, ann, large, stages):
    """The first stages are too short to be seen each time, so the first of three that is seen is cancelled."""
    job = submit(ann, large[0])
    wait_for(lambda: stage_of(job) in stages)
    sent = time.monotonic()
    job.cancel()
    with pytest.raises(RunCancelled):
        job.wait()
    assert time.monotonic() - sent < 30  # about a second on an idle machine
    with pytest.raises(InputError, match="is CANCELLED and has no result"):
        ann.call("GET", f"/jobs/{job.id}/files")
    assert not list((running.data / "jobs" / job.id).rglob("result*"))
