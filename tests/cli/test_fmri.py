"""From a BOLD file to a parcellation: the command line end to end, several ranks, a real slice."""

import csv
import json
import os
from pathlib import Path

import numpy as np
import pytest
from sklearn.metrics import adjusted_rand_score

nibabel = pytest.importorskip("nibabel")

from mgclust import DensityPeaks, cli, load_result, open_dataset  # noqa: E402
from mgclust.base.errors import InputError  # noqa: E402
from mgclust.datasets import make_bold  # noqa: E402

DATA = Path(__file__).parents[1] / "sets"
HAXBY = {"source": DATA / "haxby2001-slice_bold.nii.gz", "mask": DATA / "haxby2001-slice_mask.nii.gz"}
SIX = ["density-peaks", "--metric", "correlation", "--n-clusters", "6", "--standardize", "zscore", "--detrend"]
FILES = [
    "bold_desc-densityPeaks_dseg.json", "bold_desc-densityPeaks_dseg.nii.gz", "bold_desc-densityPeaks_dseg.tsv",
    "centers.npy", "decision_graph.png", "delta.npy", "label_slices.png", "labels.csv", "labels.npy",
    "nearest_higher.npy", "report.html", "result.json", "rho.npy", "scatter.png",
]  # fmt: skip


@pytest.fixture(scope="module")
def made():
    return make_bold((12, 14, 10), n_parcels=6, n_timepoints=80, noise=0.4)


@pytest.fixture
def files(made, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("MGCLUST_DEBUG", raising=False)
    return made.save(".")


@pytest.fixture
def mgclust_(capsys):
    def call(*args):
        code = cli.run_command([str(arg) for arg in args])
        out, err = capsys.readouterr()
        return code, out, err

    return call


def test_one_command_from_a_bold_file_to_a_parcellation(mgclust_, files, made):
    code, out, err = mgclust_("run", *SIX, "bold.nii.gz", "--mask", "mask.nii.gz", "-o", "out")
    assert code == 0, err
    assert "clusters  6" in out
    assert sorted(os.listdir("out")) == FILES
    image, source = nibabel.load("out/bold_desc-densityPeaks_dseg.nii.gz"), nibabel.load("bold.nii.gz")
    np.testing.assert_array_equal(image.affine, source.affine)
    volume = np.asarray(image.dataobj)
    assert volume.dtype == np.int32 and volume.shape == source.shape[:3]
    assert ((volume > 0) == made.mask).all()
    assert adjusted_rand_score(made.truth[made.mask], volume[made.mask]) == 1
    result = load_result("out")
    np.testing.assert_array_equal(volume[made.mask], result.labels + 1)
    said = result.source
    assert said["mask"] == "mask.nii.gz" and said["standardize"] == "zscore" and said["detrend"] is True
    assert said["grid"] == [12, 14, 10] and said["repetition_time"] == 2.0 and len(said["sha256"]) == 64
    table = Path("out/bold_desc-densityPeaks_dseg.tsv").read_text().splitlines()
    rows = list(csv.DictReader(table, delimiter="\t"))
    assert [int(row["size"]) for row in rows] == result.cluster_sizes.tolist()
    exemplars = np.array([[int(row[f"exemplar_{axis}"]) for axis in "ijk"] for row in rows])
    np.testing.assert_array_equal(volume[tuple(exemplars.T)], np.arange(1, 7))
    assert json.loads(Path("out/bold_desc-densityPeaks_dseg.json").read_text())["Parameters"]["n_clusters"] == 6
    page = Path("out/report.html").read_text()
    assert 'alt="label slices"' in page and "Clusters at their place" in page


def test_without_a_report_the_volume_is_there_all_the_same(mgclust_, files):
    code, out, err = mgclust_("run", *SIX, "bold.nii.gz", "--no-report", "--json", "-o", "out")
    assert code == 0, err
    assert json.loads(out)["source"]["mask"] is None
    assert not list(Path("out").glob("*.png")) and len(list(Path("out").glob("*dseg*"))) == 3


def test_all_candidates_of_a_scan_are_label_volumes(mgclust_, files, made):
    scan = [
        "adaptive-affinity-propagation",
        "--affinity",
        "correlation",
        "--profile",
        "fast",
        "--standardize",
        "zscore",
    ]
    options = ["--detrend", "--n-clusters-range", "4,8", "--no-report", "--save-candidates"]
    code, _, err = mgclust_("run", *scan, *options, "bold.nii.gz", "--mask", "mask.nii.gz", "-o", "out")
    assert code == 0, err
    whole = load_result("out")
    numbers = whole.arrays["scan_n_clusters"].tolist()
    assert sorted(map(int, os.listdir("out/candidates"))) == numbers and 6 in numbers and len(numbers) > 1
    name = "bold_desc-adaptiveAffinityPropagation_dseg"
    for at, k in enumerate(numbers):
        found, volume = (
            load_result(f"out/candidates/{k}"),
            nibabel.load(f"out/candidates/{k}/{name}.nii.gz").get_fdata(),
        )
        np.testing.assert_array_equal(found.labels, whole.arrays["candidates"][:, at])
        np.testing.assert_array_equal(volume[made.mask], found.labels + 1)
        assert found.scores["n_clusters"] == k == found.labels.max() + 1
    for suffix in (".nii.gz", ".tsv"):
        assert Path(f"out/{name}{suffix}").read_bytes() == Path(f"out/candidates/6/{name}{suffix}").read_bytes()
    code, out, err = mgclust_("compare", "out", "out/candidates/6")
    assert code == 0 and "adjusted Rand index  1.0000" in out and not err


def test_runs_one_after_the_other(mgclust_, files, made):
    image = nibabel.load("bold.nii.gz")
    for number, times in enumerate((slice(0, 30), slice(30, 80)), start=1):
        nibabel.save(image.slicer[..., times], f"sub-01_run-{number}_bold.nii.gz")
    runs = [f"sub-01_run-{number}_bold.nii.gz" for number in (1, 2)]
    code, _, err = mgclust_("run", *SIX, *runs, "--mask", "mask.nii.gz", "--no-report", "-o", "out")
    assert code == 0, err
    volume = np.asarray(nibabel.load("out/sub-01_desc-densityPeaks_dseg.nii.gz").dataobj)
    assert adjusted_rand_score(made.truth[made.mask], volume[made.mask]) == 1
    assert load_result("out").source["time_points"] == [30, 50]


def test_voxels_that_do_not_change_are_a_warning_or_an_error(mgclust_, files, made):
    bold = made.bold.copy()
    gone = tuple(np.argwhere(made.mask)[:3].T)
    bold[gone] = 1000
    nibabel.save(nibabel.Nifti1Image(bold, made.affine), "bold.nii.gz")
    call = ("run", *SIX, "bold.nii.gz", "--mask", "mask.nii.gz", "--no-report", "-o", "out")
    code, _, err = mgclust_(*call)
    assert code == 0, err
    assert "warning: 3 of" in err and "do not change over time" in load_result("out").warnings[0]
    volume = np.asarray(nibabel.load("out/bold_desc-densityPeaks_dseg.nii.gz").dataobj)
    assert not volume[gone].any() and (volume > 0).sum() == made.mask.sum() - 3
    code, _, err = mgclust_(*call, "--overwrite", "--constant", "refuse")
    assert code == 2 and "constant='drop'" in err


@pytest.mark.parametrize(
    ("change", "options", "expected"),
    [
        ("cut", (), "truncated"),
        ("text", (), "is not a NIfTI file"),
        ("grid", ("--mask", "other.nii.gz"), "is on another grid than bold.nii.gz"),
        ("nan", ("--mask", "mask.nii.gz"), "1 of"),
        ("", ("--mask", "none.nii.gz"), "none.nii.gz does not exist"),
        ("", ("--standardize", "psc"), "standardize='psc' should be 'zscore'"),
        ("", ("--constant", "keep"), "constant='keep' should be 'drop' or 'refuse'"),
        ("", ("mask.nii.gz",), "mask.nii.gz is one volume"),
        ("", ("points.csv",), "points.csv is not a volume"),
    ],
)
def test_bad_input_is_one_sentence_and_exit_code_2(mgclust_, files, made, change, options, expected):
    path = Path("bold.nii.gz")
    if change == "cut":
        path.write_bytes(path.read_bytes()[:-1000])
    elif change == "text":
        path.write_text("no volume at all")
    elif change == "grid":
        nibabel.save(nibabel.Nifti1Image(made.mask.astype(np.uint8), np.eye(4)), "other.nii.gz")
    elif change == "nan":
        bold = made.bold.copy()
        bold[6, 7, 5, 3] = np.nan
        nibabel.save(nibabel.Nifti1Image(bold, made.affine), "bold.nii.gz")
    before = sorted(os.listdir())
    code, out, err = mgclust_("run", "density-peaks", "bold.nii.gz", *options, "-o", "out")
    assert code == 2 and out == "" and expected in err, err
    assert len(err.strip().splitlines()) == 1 and "Traceback" not in err
    assert sorted(os.listdir()) == before


def test_cifti_from_the_command_line(mgclust_, files, made):
    rows = made.bold[made.mask]
    models = nibabel.cifti2.BrainModelAxis.from_surface(np.arange(len(rows)), len(rows) + 5, name="CortexLeft")
    axes = (nibabel.cifti2.SeriesAxis(0, 2, rows.shape[1]), models)
    nibabel.save(nibabel.cifti2.Cifti2Image(rows.T, axes), "sub-01_bold.dtseries.nii")
    code, _, err = mgclust_("run", *SIX, "sub-01_bold.dtseries.nii", "-o", "out")
    assert code == 0, err
    written = nibabel.load("out/sub-01_desc-densityPeaks_dseg.dlabel.nii").get_fdata()[0]
    assert adjusted_rand_score(made.truth[made.mask], written) == 1


@pytest.mark.slow
def test_every_rank_reads_its_own_rows(files, client):
    dataset = open_dataset(str(Path("bold.nii.gz").resolve()), mask="mask.nii.gz", standardize="zscore", detrend=True)
    alone = DensityPeaks(6, metric="correlation", client=None, device="cpu").fit(dataset)
    ranks = DensityPeaks(6, metric="correlation", client=client, device="cpu", n_workers=4).fit(dataset)
    assert ranks.result_.hardware["ranks"] == 4
    np.testing.assert_array_equal(ranks.rho_, alone.rho_)
    np.testing.assert_array_equal(ranks.labels_, alone.labels_)


@pytest.mark.slow
def test_every_rank_prepares_its_own_rows(files, client):
    pytest.importorskip("nilearn")
    table = Path("confounds.tsv").resolve()
    values = np.random.default_rng(0).normal(size=(80, 3))
    np.savetxt(table, values, delimiter="\t", header="csf\trot_x\tframewise_displacement", comments="")
    dataset = open_dataset(
        str(Path("bold.nii.gz").resolve()), mask="mask.nii.gz", standardize="zscore", detrend=True, smoothing_fwhm=4,
        low_pass=0.1, high_pass=0.01, confounds=table, confound_names="csf,rot_*", fd_threshold=1.5, dummy_volumes=2,
    )  # fmt: skip
    alone = DensityPeaks(6, metric="correlation", client=None, device="cpu").fit(dataset)
    ranks = DensityPeaks(6, metric="correlation", client=client, device="cpu", n_workers=4).fit(dataset)
    assert ranks.result_.hardware["ranks"] == 4
    np.testing.assert_array_equal(ranks.rho_, alone.rho_)
    np.testing.assert_array_equal(ranks.labels_, alone.labels_)


def test_a_prepared_series_from_the_command_line(mgclust_, files, made):
    pytest.importorskip("nilearn")
    lines = "".join(f"{'n/a' if k == 0 else k % 7}\t{k % 5 / 5}\n" for k in range(80))
    for name in ("sub-1_desc-confounds_timeseries.tsv", "other.tsv"):
        Path(name).write_text("csf\tframewise_displacement\n" + lines)
    Path("bold.nii.gz").rename("sub-1_space-T1w_desc-preproc_bold.nii.gz")
    steps = ["--smoothing-fwhm", "3", "--high-pass", "0.01", "--low-pass", "0.2", "--dummy-volumes", "1"]
    scrub = ["--confounds", "auto", "--confound-names", "cs*", "--fd-threshold", "0.7"]
    call = (
        "run",
        *SIX,
        "sub-1_space-T1w_desc-preproc_bold.nii.gz",
        "--mask",
        "mask.nii.gz",
        "--no-report",
        "-o",
        "out",
    )
    code, _, err = mgclust_(*call, *steps, *scrub)
    assert code == 0, err
    assert "warning: 16 of 79 volumes were left out" in err
    done = load_result("out").source["preparation"]
    (sidecar,) = Path("out").glob("*_dseg.json")
    assert json.loads(sidecar.read_text())["Preparation"] == done
    assert done["confounds"] == [str(Path("sub-1_desc-confounds_timeseries.tsv").resolve())] and done["low_pass"] == 0.2
    code, _, err = mgclust_(*call, "--overwrite", "--low-pass", "3")
    assert code == 2 and "low_pass=3 should be below 0.25 Hz" in err and len(err.strip().splitlines()) == 1
    code, _, err = mgclust_(*call, "--overwrite", "--confounds", "a.tsv,b.tsv", "--confound-names", "csf")
    assert code == 2 and "confounds names 2 files for 1 run; give one .tsv file per run" in err


def test_a_real_slice():
    dataset = open_dataset(**HAXBY, standardize="zscore", detrend=True)
    assert dataset.shape == (530, 1452) and not dataset.warnings
    image, mask = nibabel.load(HAXBY["source"]), np.asarray(nibabel.load(HAXBY["mask"]).dataobj) > 0
    np.testing.assert_array_equal(open_dataset(**HAXBY).read(0, 530), image.get_fdata()[mask])
    # As the notes beside the data say: neighbours correlate, others hardly do.
    r = np.corrcoef(open_dataset(**HAXBY, standardize="zscore").read(0, 530))
    i, j, _ = dataset.voxels.T
    neighbours = (abs(i[:, None] - i) == 1) & (j[:, None] == j)
    assert np.median(r[neighbours]) == pytest.approx(0.43, abs=0.01)
    assert np.median(r) < 0.1
    model = DensityPeaks(8, metric="correlation", client=None, device="cpu").fit(dataset)
    volume = dataset.to_grid(model.labels_ + 1)
    assert volume.shape == (40, 20, 1) and volume.max() == 8 and (volume > 0).sum() == 530


def test_estimators_take_paths_of_volumes(files):
    model = DensityPeaks(6, metric="correlation", client=None, device="cpu").fit("bold.nii.gz")
    assert len(model.labels_) == make_bold((12, 14, 10), 6, 80, 0.4).mask.sum()
    with pytest.raises(InputError, match="is one volume"):
        model.fit("mask.nii.gz")
