"""Preparation of BOLD series: equal to nilearn and to plain NumPy, the same in each process, one sentence if wrong."""

import json
import pickle
import shutil
import sys
import warnings

import numpy as np
import pytest
from scipy.interpolate import CubicSpline
from scipy.signal import butter, sosfiltfilt

nibabel = pytest.importorskip("nibabel")
maskers = pytest.importorskip("nilearn.maskers")
nilearn_image = pytest.importorskip("nilearn.image")
nilearn_signal = pytest.importorskip("nilearn.signal")

from mgclust import open_dataset  # noqa: E402
from mgclust.base.errors import InputError, InsufficientMemoryError  # noqa: E402
from mgclust.data.readers import nifti, preparation  # noqa: E402
from mgclust.output.label_output import write_labels  # noqa: E402

SHAPE, TIMES, T_R = (6, 5, 4), 60, 2.0
AFFINE = np.array([[-3, 0.1, 0, 20], [0.1, 2.9, -0.7, -30], [0, 0.7, 3.1, -10], [0, 0, 0, 1.0]])
NAMES = ["csf", "trans_x", "trans_x_derivative1", "rot_y", "framewise_displacement"]


@pytest.fixture
def series(rng):
    """Integers with drift, so that detrending and filters have something to remove."""
    drift = np.linspace(0, 200, TIMES) * rng.random((*SHAPE, 1))
    return (rng.normal(1000, 30, size=(*SHAPE, TIMES)) + drift).astype(np.int16)


@pytest.fixture
def mask():
    return np.indices(SHAPE).sum(axis=0) % 3 > 0


@pytest.fixture
def table(rng):
    """Confounds of a run by name; NaN where fMRIPrep writes n/a."""
    values = {name: rng.normal(size=TIMES).cumsum() for name in NAMES[:4]}
    values["framewise_displacement"] = rng.random(TIMES) * 0.4
    values["trans_x_derivative1"] = np.r_[np.nan, np.diff(values["trans_x"])]
    values["framewise_displacement"][0] = np.nan
    return values


def save(path, array, affine=AFFINE, kind=nibabel.Nifti1Image, units="sec", t_r=T_R):
    image = kind(array, affine)
    image.header.set_xyzt_units("mm", units)
    image.header.set_zooms((*image.header.get_zooms()[:3], t_r)[: array.ndim])
    nibabel.save(image, path)
    return path


def save_mask(path, array):
    return save(path, array.astype(np.uint8))


def save_table(path, table, delimiter="\t"):
    lines = [delimiter.join(table)]
    for row in zip(*table.values(), strict=True):
        lines.append(delimiter.join("n/a" if value != value else repr(float(value)) for value in row))
    path.write_text("\n".join(lines) + "\n")
    return path


@pytest.fixture
def files(tmp_path, series, mask, table):
    stem = tmp_path / "sub-01_task-rest_run-1"
    return {
        "source": save(tmp_path / f"{stem.name}_space-MNI_res-2_desc-preproc_bold.nii.gz", series),
        "mask": save_mask(tmp_path / "mask.nii.gz", mask),
        "confounds": save_table(tmp_path / f"{stem.name}_desc-confounds_timeseries.tsv", table),
    }


def rows_of(dataset):
    return dataset.read(0, dataset.shape[0])


def refusal(*args, **kwargs):
    with pytest.raises(InputError) as caught:
        open_dataset(*args, **kwargs)
    message = str(caught.value)
    assert message.endswith((".", "?")) and "\n" not in message
    return message


# ----- the steps in plain float64 NumPy -----


def smooth(volume, width):
    """Weights of a Gaussian along each axis; beyond an edge the volume is mirrored."""
    out, affine = volume.astype(float), AFFINE.astype(np.float32).astype(float)  # as a file holds it
    for axis in range(3):
        sigma = width / np.sqrt(8 * np.log(2)) / np.sqrt((affine[:3, axis] ** 2).sum())
        reach, size = int(4 * sigma + 0.5), out.shape[axis]
        weights = np.exp(-0.5 * (np.arange(-reach, reach + 1) / sigma) ** 2)
        matrix = np.zeros((size, size))
        for here in range(size):
            for offset, weight in zip(range(-reach, reach + 1), weights / weights.sum(), strict=True):
                there = (here + offset) % (2 * size)
                matrix[here, min(there, 2 * size - 1 - there)] += weight
        out = np.moveaxis(np.tensordot(matrix, out, axes=(1, axis)), 0, axis)
    return out


def line_removed(x):
    design = np.stack([np.ones(len(x)), np.arange(len(x))], axis=1)
    return x - design @ np.linalg.lstsq(design, x, rcond=None)[0]


def cleaned(x, kept, confounds=None, detrend=False, low=None, high=None):
    """Columns of x, of shape (time, m), as the page describes the steps."""

    def along_time(columns):
        if low is None and high is None:
            return line_removed(columns[kept]) if detrend else columns[kept]
        time = np.arange(len(columns))
        inside = slice(time[kept][0], time[kept][-1] + 1)
        spline = CubicSpline(time[kept], columns[kept])
        filled = np.where(kept[:, None], columns, spline(time))[inside]
        filled = line_removed(filled) if detrend else filled
        kind = "low" if high is None else "high" if low is None else "band"
        cutoffs = [each for each in (high, low) if each is not None]
        sos = butter(5, cutoffs if len(cutoffs) == 2 else cutoffs[0], kind, fs=1 / T_R, output="sos")
        return sosfiltfilt(sos, filled, axis=0)[kept[inside]]

    out = along_time(x.astype(float))
    if confounds is not None:
        design = along_time(confounds)
        design = design - design.mean(axis=0)
        out = out - design @ np.linalg.lstsq(design, out, rcond=None)[0]
    return out


def zscored(rows, ddof=0):
    rows = rows - rows.mean(axis=1, keepdims=True)
    return rows / rows.std(axis=1, ddof=ddof, keepdims=True)


def filled(table, names):
    """Confounds with the first value that fMRIPrep's derivatives lack."""
    columns = np.stack([table[name] for name in names], axis=1)
    columns[0] = np.where(np.isnan(columns[0]), columns[1], columns[0])
    return columns


BANDS = [{}, {"low": 0.1}, {"high": 0.01}, {"low": 0.1, "high": 0.01}]
# With volumes that are left out in the middle, at both ends, and at mirrored places.
CENSORED = [[], [20, 21, 40], [0, 1, 2, TIMES - 1], [9, TIMES - 1 - 9, 30, 29], [1, 2, 3]]


@pytest.mark.parametrize("band", BANDS, ids=str)
@pytest.mark.parametrize("censored", CENSORED, ids=str)
@pytest.mark.parametrize("detrend", [False, True])
@pytest.mark.parametrize("dummies", [0, 2])
def test_rows_are_those_of_plain_numpy(tmp_path, files, series, mask, table, band, censored, detrend, dummies):
    table["framewise_displacement"][censored] = 0.9
    save_table(files["confounds"], table)
    names = ["csf", "trans_x", "trans_x_derivative1", "rot_y"]
    options = {f"{key}_pass": value for key, value in band.items()}
    dataset = open_dataset(
        **files, **options, confound_names=names, fd_threshold=0.5, detrend=detrend, dummy_volumes=dummies
    )
    kept = ~np.isin(np.arange(TIMES), censored)[dummies:]
    x = series[mask][:, dummies:].T
    expected = cleaned(x, kept, filled(table, names)[dummies:], detrend, **band)
    scale = expected.std(axis=0).max()
    np.testing.assert_allclose(rows_of(dataset), expected.T, rtol=1e-6, atol=1e-6 * scale)
    assert dataset.describe()["time_points"] == [kept.sum()]
    left_out = [volume for volume in censored if volume >= dummies]
    assert dataset.describe()["preparation"]["volumes_left_out"] == [sorted(left_out)]
    assert dataset.warnings[0].startswith(f"{len(left_out)} of {TIMES - dummies} volumes were left out")


@pytest.mark.parametrize("width", [2.5, 6.0])
@pytest.mark.parametrize("dtype", [np.int16, np.float64, ">f4", np.uint8])
def test_smoothing_is_a_gaussian_in_millimetres(tmp_path, series, mask, monkeypatch, width, dtype):
    values = (series % 250).astype(dtype)
    path, where = save(tmp_path / "b.nii.gz", values), save_mask(tmp_path / "m.nii", mask)
    expected = np.stack([smooth(values[..., t], width)[mask] for t in range(TIMES)], axis=1)
    dataset = open_dataset(path, mask=where, smoothing_fwhm=width)
    exact = np.dtype(dtype).itemsize == 8
    assert dataset.dtype == (np.float64 if exact else np.float32)
    np.testing.assert_allclose(rows_of(dataset), expected, rtol=1e-12 if exact else 2e-6)
    np.testing.assert_allclose(dataset.mean(), expected.mean(axis=1), rtol=1e-6)
    monkeypatch.setattr(nifti, "_CHUNK_BYTES", 3 * values.nbytes // TIMES)
    monkeypatch.setattr(preparation, "SMOOTHED_NUMBERS", 2 * mask.size)
    part = open_dataset(path, mask=where, smoothing_fwhm=width, dummy_volumes=4)
    np.testing.assert_array_equal(rows_of(part), rows_of(dataset)[:, 4:])


def test_smoothing_of_scaled_numbers(tmp_path, series, mask):
    image = nibabel.Nifti1Image(series, AFFINE)
    data = image.to_bytes()
    header = nibabel.Nifti1Header(data[:348])
    header.set_slope_inter(0.25, -100)
    path = tmp_path / "b.nii"
    path.write_bytes(header.binaryblock + data[348:])
    values = series * 0.25 - 100
    expected = np.stack([smooth(values[..., t], 5)[mask] for t in range(TIMES)], axis=1)
    for options, wanted in (({}, expected), ({"standardize": "zscore"}, zscored(expected))):
        dataset = open_dataset(path, mask=mask, smoothing_fwhm=5, **options)
        np.testing.assert_allclose(rows_of(dataset), wanted, rtol=1e-9, atol=1e-9)


STEPS = [
    {},
    {"smoothing_fwhm": 5.0},
    {"low_pass": 0.1, "high_pass": 0.01},
    {"smoothing_fwhm": 6.0, "low_pass": 0.1, "confounds": True},
    {"high_pass": 0.01, "confounds": True, "fd_threshold": 0.5},
    {"smoothing_fwhm": 4.0, "confounds": True, "fd_threshold": 0.5},
]


@pytest.mark.parametrize("steps", STEPS, ids=str)
@pytest.mark.parametrize("detrend", [True, False])
@pytest.mark.parametrize("dtype", [np.int16, np.float32])
@pytest.mark.filterwarnings("ignore::Warning:nilearn")
def test_rows_are_those_of_nilearn(tmp_path, files, series, mask, table, steps, detrend, dtype):
    """Within 1e-6 where nilearn computes in float64. Its masker computes in float32, also with the mean of the series.

    Volumes are left out at places where nilearn interpolates them.
    """
    censored = [5, 6, 40]
    table["framewise_displacement"][censored] = 0.9
    save_table(files["confounds"], table)
    save(files["source"], series.astype(dtype))
    names = ["csf", "rot_y", "trans_x_derivative1"]
    if "confounds" in steps:
        options = {**files, **steps, "confounds": files["confounds"], "confound_names": names}
    else:
        options = {"source": files["source"], "mask": files["mask"], **steps}
    dataset = open_dataset(**options, detrend=detrend, standardize="zscore_sample")
    masker = maskers.NiftiMasker(
        mask_img=str(files["mask"]), detrend=detrend, standardize="zscore_sample", t_r=T_R, reports=False,
        **{name: steps[name] for name in ("smoothing_fwhm", "low_pass", "high_pass") if name in steps},
    )  # fmt: skip
    kept = np.setdiff1d(np.arange(TIMES), censored) if "fd_threshold" in steps else None
    confounds = filled(table, names) if "confounds" in steps else None
    theirs = masker.fit_transform(str(files["source"]), confounds=confounds, sample_mask=kept).T
    np.testing.assert_allclose(rows_of(dataset), theirs, atol=1e-5 if detrend else 5e-5)
    image = nilearn_image.smooth_img(str(files["source"]), steps.get("smoothing_fwhm"))
    theirs = nilearn_signal.clean(
        np.asarray(image.dataobj)[mask].T.astype(float), detrend=detrend, standardize="zscore_sample",
        confounds=confounds, sample_mask=kept, low_pass=steps.get("low_pass"), high_pass=steps.get("high_pass"),
        t_r=T_R,
    )  # fmt: skip
    np.testing.assert_allclose(rows_of(dataset), theirs.T, atol=1e-6)


def test_runs_are_prepared_each_by_itself(tmp_path, files, series, mask, table, rng):
    second = save(tmp_path / "sub-01_task-rest_run-2_space-MNI_res-2_desc-preproc_bold.nii.gz", series[..., ::-1])
    other = {name: rng.normal(size=TIMES) for name in NAMES}
    other["framewise_displacement"][:] = 0
    other["framewise_displacement"][[7, 30]] = 3
    tables = [files["confounds"], tmp_path / "sub-01_task-rest_run-2_desc-confounds_timeseries.tsv"]
    save_table(tables[1], other)
    table["framewise_displacement"][20] = 2
    save_table(tables[0], table)
    runs = [files["source"], second]
    steps = {
        "mask": files["mask"], "standardize": "zscore", "detrend": True, "smoothing_fwhm": 5, "low_pass": 0.1,
        "high_pass": 0.01, "confound_names": ["trans_x", "csf"], "fd_threshold": 0.5, "dummy_volumes": 3,
    }  # fmt: skip
    both = open_dataset(runs, confounds=tables, **steps)
    alone = [open_dataset(run, confounds=each, **steps) for run, each in zip(runs, tables, strict=True)]
    np.testing.assert_array_equal(rows_of(both), np.hstack([rows_of(each) for each in alone]))
    assert both.describe()["time_points"] == [TIMES - 4, TIMES - 5]
    assert both.describe()["preparation"]["volumes_left_out"] == [[20], [7, 30]]
    assert both.warnings == ["3 of 114 volumes were left out, because their framewise displacement is above "
                             "fd_threshold=0.5 mm."]  # fmt: skip
    for confounds in ("auto", ",".join(map(str, tables)), [str(each) for each in tables]):
        as_text = {name: str(value) for name, value in steps.items() if name not in ("detrend", "confound_names")}
        again = open_dataset(runs, confounds=confounds, **as_text, detrend=True, confound_names="trans_x, csf")
        np.testing.assert_array_equal(rows_of(again), rows_of(both))
        assert again.fingerprint() == both.fingerprint()
    assert len({each.fingerprint() for each in (both, *alone)}) == 3
    save_table(tables[1], {name: values + 1 for name, values in other.items()})
    moved = open_dataset(runs, confounds=tables, **{**steps, "fd_threshold": 1.5})
    assert moved.fingerprint() != both.fingerprint()


@pytest.mark.parametrize("steps", [{}, {"smoothing_fwhm": 5}, {"low_pass": 0.1}], ids=str)
@pytest.mark.parametrize("regress", [True, False])
def test_another_process_prepares_bitwise_identical_rows(tmp_path, files, series, table, monkeypatch, steps, regress):
    """Also if it reads only some rows, and if constant rows were left out."""
    monkeypatch.setattr(preparation, "_BLOCK_ROWS", 16)
    mask = np.ones(SHAPE, dtype=bool)
    if "smoothing_fwhm" not in steps:
        series[0, 0, 0] = 900
        series[1, 2] = 800
    save(files["source"], series)
    table["framewise_displacement"][[20, 30]] = 2
    save_table(files["confounds"], table)
    steps = {**steps, "mask": mask, "detrend": True, "standardize": "zscore", "dummy_volumes": 2}
    if regress:
        steps |= {"confounds": files["confounds"], "confound_names": "trans_*,csf", "fd_threshold": 0.5}
    dataset = open_dataset(files["source"], **steps)
    assert dataset.dropped == (0 if "smoothing_fwhm" in steps else 5)
    whole, pickled = rows_of(dataset).copy(), pickle.dumps(dataset)
    files["confounds"].unlink()  # its columns travel, too
    copy = pickle.loads(pickled)
    assert copy.describe() == dataset.describe() and copy.warnings == dataset.warnings
    np.testing.assert_array_equal(rows_of(copy), whole)
    for start, stop in ((0, 1), (5, 20), (37, 90), (len(whole) - 1, len(whole)), (3, 3)):
        copy = pickle.loads(pickled)
        copy.expect(start, stop)
        before = copy.reading_bytes(stop - start)
        np.testing.assert_array_equal(copy.read(start, stop), whole[start:stop])
        assert len(copy._opened.stored) < len(whole) and before > 0
        np.testing.assert_array_equal(copy.read(0, 2), whole[:2])  # others after all


def test_blocks_do_not_show(tmp_path, files, monkeypatch):
    steps = {"confound_names": "trans_*,csf", "low_pass": 0.1, "detrend": True}
    whole = rows_of(open_dataset(**files, **steps))
    monkeypatch.setattr(preparation, "_BLOCK_ROWS", 16)
    np.testing.assert_allclose(rows_of(open_dataset(**files, **steps)), whole, rtol=1e-6, atol=1e-4)


def test_confounds_by_name_and_pattern(files, table):
    def columns(names):
        described = open_dataset(**files, confound_names=names).describe()["preparation"]
        return described["confound_names"][0]

    assert columns("csf") == columns(["csf"]) == columns("csf,") == ["csf"]
    assert columns("rot_y,csf") == ["rot_y", "csf"]
    assert columns("trans_*") == columns("trans_*,trans_x") == ["trans_x", "trans_x_derivative1"]
    assert columns("tran?_x") == ["trans_x"]
    two = open_dataset(**files, confound_names="csf,rot_y", detrend=True)
    repeated = {**table, "again": table["csf"], "zero": np.zeros(TIMES)}
    save_table(files["confounds"], repeated)
    more = open_dataset(**files, confound_names="csf,rot_y,again,zero", detrend=True)
    np.testing.assert_allclose(rows_of(more), rows_of(two), atol=1e-3)


@pytest.mark.parametrize(
    ("series_name", "table_name"),
    [
        ("sub-1_task-a_bold.nii.gz", "sub-1_task-a_desc-confounds_timeseries.tsv"),
        ("sub-1_ses-2_task-a_acq-x_run-1_space-T1w_desc-preproc_bold.nii.gz",
         "sub-1_ses-2_task-a_acq-x_run-1_desc-confounds_regressors.tsv"),
        ("sub-1_task-a_echo-2_desc-preproc_bold.nii", "sub-1_task-a_desc-confounds_timeseries.tsv"),
        ("sub-1_task-a_space-MNI152NLin2009cAsym_res-2_desc-preproc_bold.nii.gz",
         "sub-1_task-a_desc-confounds_timeseries.tsv"),
    ],
)  # fmt: skip
def test_the_table_next_to_a_series(tmp_path, series, table, series_name, table_name):
    path = save(tmp_path / series_name, series)
    found = save_table(tmp_path / table_name, table)
    save_table(tmp_path / "sub-2_task-a_desc-confounds_timeseries.tsv", table)
    described = open_dataset(path, confounds="auto", confound_names="csf").describe()["preparation"]
    assert described["confounds"] == [str(found)]
    found.unlink()
    assert "finds no sub-1_" in refusal(path, confounds="auto", confound_names="csf")


def test_a_voxel_that_the_confounds_explain_is_left_out(files, series, mask, table):
    first = tuple(np.argwhere(mask)[0])
    values = series.astype(np.float64)
    values[first] = 1000 + 3 * table["csf"] - table["rot_y"]
    save(files["source"], values)
    dataset = open_dataset(**files, confound_names="csf,rot_y", standardize="zscore")
    assert dataset.dropped == 1 and "or is explained by confounds and was left out" in dataset.warnings[0]
    assert np.isfinite(rows_of(dataset)).all()
    assert "1 of" in refusal(**files, confound_names="csf,rot_y", constant="refuse")


def test_values_that_are_not_finite(files, series, mask):
    """Outside the mask they count as 0, as in nilearn; inside, they are an error before they are smoothed."""
    values = series.astype(np.float32)
    values[~mask] = np.nan
    save(files["source"], values)
    expected = np.stack([smooth(np.nan_to_num(values[..., t]), 4)[mask] for t in range(TIMES)], axis=1)
    source = {"source": files["source"], "mask": files["mask"]}
    np.testing.assert_allclose(rows_of(open_dataset(**source, smoothing_fwhm=4)), expected, rtol=1e-5)
    bad = np.argwhere(mask)[[2, 5]]
    values[(*bad.T, 3)] = np.inf
    save(files["source"], values)
    for steps in ({"smoothing_fwhm": 4}, {"low_pass": 0.1}, {"smoothing_fwhm": 4, "low_pass": 0.1}):
        message = refusal(**source, **steps)
        assert "2 of" in message and str(tuple(bad[0].tolist())) in message
        open_dataset(**source, **steps, dummy_volumes=4)


def test_a_cifti_file_has_confounds_but_no_smoothing(tmp_path, series, table):
    models = nibabel.cifti2.BrainModelAxis.from_surface(np.arange(20), 50, name="CortexLeft")
    data = series.reshape(-1, TIMES)[:20].T.astype(np.float32)
    path = tmp_path / "sub-01_task-rest_space-fsLR_den-91k_bold.dtseries.nii"
    nibabel.save(nibabel.cifti2.Cifti2Image(data, (nibabel.cifti2.SeriesAxis(0, T_R, TIMES), models)), path)
    save_table(tmp_path / "sub-01_task-rest_desc-confounds_timeseries.tsv", table)
    dataset = open_dataset(path, confounds="auto", confound_names="csf", high_pass=0.01, dummy_volumes=1)
    kept = np.ones(TIMES - 1, dtype=bool)
    expected = cleaned(data[1:], kept, filled(table, ["csf"])[1:], high=0.01).T
    np.testing.assert_allclose(rows_of(dataset), expected, atol=1e-4)
    assert dataset.describe()["preparation"]["t_r"] == [T_R]
    assert "is a CIFTI file; smooth it along the surface first" in refusal(path, smoothing_fwhm=4)


def test_what_was_done_is_described(tmp_path, files, table):
    table["framewise_displacement"][20] = 2
    save_table(files["confounds"], table)
    plain = open_dataset(files["source"], files["mask"], standardize="zscore_sample")
    assert plain.describe()["preparation"] is None and plain.describe()["standardize"] == "zscore_sample"
    dataset = open_dataset(
        **files, smoothing_fwhm=6, low_pass=0.1, high_pass=0.008, confound_names="csf", fd_threshold=0.5,
        dummy_volumes=2, detrend=True, standardize="zscore", t_r=1.5,
    )  # fmt: skip
    described = dataset.describe()
    said = {**described["preparation"]}
    assert json.loads(json.dumps(described)) == described and said.pop("nilearn")
    assert described["repetition_time"] == 1.5
    assert list(said.items()) == [
        ("dummy_volumes", 2), ("smoothing_fwhm", 6.0), ("low_pass", 0.1), ("high_pass", 0.008), ("t_r", [1.5]),
        ("confounds", [str(files["confounds"])]), ("confound_names", [["csf"]]), ("fd_threshold", 0.5),
        ("volumes_left_out", [[20]]),
    ]  # fmt: skip
    _, _, sidecar = write_labels(dataset, np.zeros(dataset.shape[0], int), tmp_path)
    written = json.loads(sidecar.read_text())
    assert written["Preparation"] == described["preparation"] and written["TimePoints"] == [TIMES - 3]


# ----- one sentence for wrong input -----


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"smoothing_fwhm": -3}, "smoothing_fwhm=-3 should be a finite number > 0; give millimetres"),
        ({"smoothing_fwhm": "six"}, "smoothing_fwhm='six' should be"),
        ({"smoothing_fwhm": 500}, "is wider than the grid"),
        ({"dummy_volumes": -1}, "dummy_volumes=-1 should be an integer >= 0"),
        ({"dummy_volumes": 59}, "dummy_volumes=59 leaves fewer than 2 of the 60 volumes"),
        ({"low_pass": 0.25}, "low_pass=0.25 should be below 0.25 Hz, half the sampling rate"),
        ({"low_pass": 0.3, "t_r": 1}, None),
        ({"high_pass": 0.3}, "high_pass=0.3 should be below 0.25 Hz"),
        ({"low_pass": 0.01, "high_pass": 0.1}, "high_pass=0.1 should be below low_pass=0.01"),
        ({"low_pass": 0}, "low_pass=0 should be a finite number > 0"),
        ({"low_pass": 0.1, "t_r": 0}, "t_r=0 should be"),
        ({"low_pass": 0.1, "high_pass": 0.01, "dummy_volumes": 30}, "a filter needs more than 33 volumes"),
        ({"confound_names": "csf"}, "confound_names needs a table of confounds"),
        ({"fd_threshold": 0.5}, "fd_threshold needs a table of confounds"),
        ({"confounds": True}, "confounds has no effect without confound_names or fd_threshold"),
        ({"confounds": True, "confound_names": "trans_y"}, "has no column 'trans_y'; did you mean 'trans_x'?"),
        (
            {"confounds": True, "confound_names": "zzz*"},
            "has no column 'zzz*'; give names of its columns, which are csf, trans_x",
        ),
        ({"confounds": True, "confound_names": [1]}, "confound_names is a list; give names of columns"),
        ({"confounds": True, "confound_names": " , "}, "confound_names is empty"),
        ({"confounds": True, "fd_threshold": 1e-9}, "leaves out all 59 volumes"),
        ({"confounds": True, "fd_threshold": -1}, "fd_threshold=-1 should be a finite number > 0"),
        ({"confounds": True, "confound_names": "csf,trans_*", "dummy_volumes": 56}, "but needs at least 5 with 3"),
        ({"confounds": "none.tsv", "confound_names": "csf"}, "none.tsv does not exist"),
        (
            {"confounds": ["a.tsv", "b.tsv"], "confound_names": "csf"},
            "names 2 files for 1 run; give one .tsv file per run",
        ),
        (
            {"source": ["a.nii", "b.nii"], "confounds": "a.tsv,./a.tsv", "confound_names": "csf"},
            "confounds names ./a.tsv more than once; give each run its own table",
        ),
        ({"confounds": 3, "confound_names": "csf"}, "confounds=3 names no table; give the path"),
        ({"confounds": "", "confound_names": "csf"}, "confounds='' names no table; give the path"),
        ({"confounds": np.ones(3), "confound_names": "csf"}, "names no table; give the path"),
        ({"standardize": "psc"}, "standardize='psc' should be 'zscore', 'zscore_sample' or None"),
    ],
    ids=str,
)
def test_options_that_do_not_fit(files, options, expected, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    if options.get("confounds") is True:
        options = {**options, "confounds": files["confounds"]}
    if options.get("fd_threshold") == 1e-9:
        options["dummy_volumes"] = 1  # the first volume has no displacement
    given = {"source": files["source"], "mask": files["mask"], **options}
    if isinstance(given["source"], list):
        for name in given["source"]:
            shutil.copy(files["source"], name)
    if expected is None:
        open_dataset(**given)
    else:
        assert expected in refusal(**given)


def test_tables_that_do_not_fit(tmp_path, files, table):
    def message(**columns):
        save_table(files["confounds"], {**table, **columns})
        return refusal(**files, confound_names="csf", fd_threshold=0.5)

    csf, moved = table["csf"], table["framewise_displacement"]
    assert "column 'csf' has no value in 2 of 60 rows, the first in line 9" in message(
        csf=np.where(np.isin(np.arange(TIMES), [7, 9]), np.nan, csf)
    )
    assert "column 'csf' holds 'inf' in line 5" in message(csf=np.where(np.arange(TIMES) == 3, np.inf, csf))
    assert "'framewise_displacement' has no value in 1 of" in message(
        framewise_displacement=np.where(np.arange(TIMES) == 3, np.nan, moved)
    )
    for n, said in ((TIMES - 4, "has 56 lines of values"), (TIMES + 5, "has more than 60 lines")):
        longer = {name: np.resize(values[1:], n) for name, values in table.items()}
        save_table(files["confounds"], longer)
        assert said in (text := refusal(**files, confound_names="csf")) and "has 60 volumes" in text
    del table["framewise_displacement"]
    save_table(files["confounds"], table)
    assert "has no column 'framewise_displacement'" in refusal(**files, fd_threshold=0.5)
    files["confounds"].write_text("csf\trot_y\n1\t2\n3\n")
    assert "line 3 has 1 field, but the line of column names has 2" in refusal(**files, confound_names="csf")
    files["confounds"].write_text("csf\n" + "abc\n" * TIMES)
    assert "holds 'abc' in line 2, which is not a finite number" in refusal(**files, confound_names="csf")


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda text: text.replace("\t", ","), "its columns are not separated by tabs; save it with tabs"),
        (lambda text: text.replace("\t", ";"), "its columns are not separated by tabs"),
        (lambda text: "", "is empty; give the table of this run"),
        (lambda text: "\n\n", "is empty; give the table of this run"),
        (lambda text: text.encode("utf-16"), "is not text in UTF-8; save it with this encoding"),
        (lambda text: text.encode("utf-16-le"), "is not text in UTF-8; save it with this encoding"),
        (lambda text: text.encode() + b"\xff\xfe\n", "is not text in UTF-8"),
        (lambda text: text.replace("\n", "\n1_000", 1), "column 'csf' holds '1_000"),
        (lambda text: text.replace("\n", "\n\uff11", 1), "column 'csf' holds '\uff11"),
        (lambda text: text.replace("\n", "\n0x1", 1), "column 'csf' holds '0x1"),
        (lambda text: text.replace("\n", "\n\nx", 1), "in line 3, which is not a finite number"),
        (
            lambda text: text.replace("csf", "wm"),
            "has no column 'csf'; give names of its columns, which are wm, trans_x",
        ),
    ],
    ids=range(12),
)
def test_text_that_is_no_table(files, table, change, said):
    changed = change(save_table(files["confounds"], table).read_text())
    files["confounds"].write_bytes(changed if isinstance(changed, bytes) else changed.encode())
    assert said in refusal(**files, confound_names="csf")


def test_forms_of_a_table_that_are_read(files, table):
    text = save_table(files["confounds"], table).read_text()
    expected = rows_of(open_dataset(**files, confound_names="csf,rot_y"))
    for change in ("\n" + text, "\ufeff" + text, text.replace("\n", "\r\n"), text.replace("\n", "\n\n")):
        files["confounds"].write_bytes(change.encode())
        np.testing.assert_array_equal(rows_of(open_dataset(**files, confound_names="csf,rot_y")), expected)


@pytest.mark.parametrize("scale", [1e-300, 1e-160, 1e-100, 1e100, 1e154, 1e200, 1e305])
@pytest.mark.parametrize("steps", [{}, {"low_pass": 0.1, "detrend": True}], ids=["plain", "filter"])
def test_the_scale_of_a_confound_changes_nothing(files, table, scale, steps):
    save_table(files["confounds"], table)
    expected = rows_of(open_dataset(**files, confound_names="csf,rot_y", **steps))
    save_table(files["confounds"], table | {"csf": table["csf"] * scale})
    with warnings.catch_warnings():
        warnings.simplefilter("error", RuntimeWarning)
        found = rows_of(open_dataset(**files, confound_names="csf,rot_y", **steps))
    np.testing.assert_allclose(found, expected, atol=1e-4)


def test_a_repetition_time_without_a_filter_is_reported(files):
    assert "t_r=1.5 has no effect on the rows without low_pass or high_pass: leave it out, or give a filter." in (
        open_dataset(files["source"], t_r=1.5).warnings
    )
    assert not open_dataset(files["source"], t_r=1.5, low_pass=0.1).warnings


def test_the_sample_variance_for_any_rows(rng):
    import dask.array

    x = rng.normal(size=(30, 7)) * 9 + 5
    for source in (x, dask.array.from_array(x, chunks=(10, 7))):
        dataset = open_dataset(source, standardize="zscore_sample")
        rows = dataset.read(0, 30)
        np.testing.assert_allclose(rows, zscored(x, ddof=1), rtol=1e-12)
        if dataset.dask_array is not None:
            np.testing.assert_array_equal(dataset.dask_array.compute(), rows)
        assert dataset.describe()["standardize"] == "zscore_sample"
    with pytest.raises(InputError, match="constant rows"):
        open_dataset(np.ones((3, 1)), standardize="zscore_sample").read(0, 3)


def test_a_filter_needs_a_repetition_time(tmp_path, files, series):
    for units, t_r in (("sec", 0), ("unknown", 2)):
        save(files["source"], series, units=units, t_r=t_r)
        assert "does not state its repetition time" in refusal(files["source"], low_pass=0.1)
        open_dataset(files["source"], low_pass=0.1, t_r=2)
    save(files["source"], series, units="msec", t_r=2000)
    assert open_dataset(files["source"], low_pass=0.1).describe()["preparation"]["t_r"] == [2.0]


def test_options_apply_to_volumes(tmp_path):
    for option in preparation.PREPARATION_OPTIONS:
        assert f"{option.name}=... applies to BOLD series" in refusal(np.ones((3, 4)), **{option.name: 1})


def test_nilearn_is_needed_only_by_its_steps(files, monkeypatch):
    monkeypatch.setitem(sys.modules, "nilearn.signal", None)
    source = {"source": files["source"], "mask": files["mask"]}
    open_dataset(**source, detrend=True, standardize="zscore", dummy_volumes=2)
    message = refusal(**source, smoothing_fwhm=5, dummy_volumes=2)
    assert message == "smoothing_fwhm: nilearn prepares series; run pip install 'mgclust[fmri]'."


def test_preparation_is_rejected_before_it_takes_memory(files, monkeypatch):
    import psutil

    nothing = type("Nothing", (), {"available": 10_000_000})
    monkeypatch.setattr(psutil, "virtual_memory", nothing)
    open_dataset(files["source"])
    with pytest.raises(InsufficientMemoryError, match="GiB of memory"):
        open_dataset(files["source"], smoothing_fwhm=5)
