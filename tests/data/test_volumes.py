"""BOLD series: the same rows back from every form of file, transforms per run, labels back on the grid, refusals."""

import csv
import gzip
import json
import pickle
import re
import subprocess
import sys

import numpy as np
import pytest
from sklearn.linear_model import LinearRegression

nibabel = pytest.importorskip("nibabel")

from mgclust import datasets, open_dataset, plots, silhouette_samples  # noqa: E402
from mgclust.base.errors import InputError, InsufficientMemoryError  # noqa: E402
from mgclust.data.labels import read_label_pair, read_labels  # noqa: E402
from mgclust.data.readers import nifti, volumes  # noqa: E402
from mgclust.output.label_output import output_stem, write_labels  # noqa: E402

SHAPE, TIMES = (5, 4, 3), 20
AFFINE = np.array([[-3, 0.1, 0, 20], [0.1, 2.9, -0.7, -30], [0, 0.7, 3.1, -10], [0, 0, 0, 1.0]])


@pytest.fixture
def series(rng):
    """Integers, so that every type of file holds them."""
    return rng.integers(800, 1200, size=(*SHAPE, TIMES)).astype(np.int16)


@pytest.fixture
def mask():
    return np.indices(SHAPE).sum(axis=0) % 3 > 0


def save(path, array, affine=AFFINE, kind=nibabel.Nifti1Image, dtype=None, scale=None):
    image = kind(np.asarray(array, dtype or array.dtype), affine)
    image.header.set_xyzt_units("mm", "sec")
    if scale:
        image.header.set_slope_inter(*scale)
    nibabel.save(image, path)
    return path


def save_mask(path, array, **how):
    return save(path, array.astype(np.uint8), **how)


def rows_of(dataset):
    return dataset.read(0, dataset.shape[0])


def refusal(*args, **kwargs):
    with pytest.raises(InputError) as caught:
        open_dataset(*args, **kwargs)
    message = str(caught.value)
    assert message.endswith(".") and "\n" not in message
    return message


def zscored(x):
    return (x - x.mean(axis=1, keepdims=True)) / x.std(axis=1, keepdims=True)


def detrended(x):
    time = np.arange(x.shape[1])[:, None]
    return (x.T - LinearRegression().fit(time, x.T).predict(time)).T


@pytest.mark.parametrize("name", ["b.nii", "b.nii.gz", "B.NII.GZ"])
@pytest.mark.parametrize("kind", [nibabel.Nifti1Image, nibabel.Nifti2Image])
@pytest.mark.parametrize("dtype", ["<i2", ">i2", "<f4", ">f8", "<i4"])
def test_rows_are_the_voxels_of_the_mask_in_c_order(tmp_path, series, mask, name, kind, dtype):
    path = tmp_path / name
    image = kind(series.astype(dtype), AFFINE)
    image.header.set_data_dtype(np.dtype(dtype))
    path.write_bytes(gzip.compress(image.to_bytes()) if name.lower().endswith("gz") else image.to_bytes())
    dataset = open_dataset(path, mask=save_mask(tmp_path / "m.nii.gz", mask))
    exact = np.float32 if dtype in ("<i2", ">i2", "<f4") else np.float64
    assert dataset.shape == (mask.sum(), TIMES) and dataset.dtype == exact
    np.testing.assert_array_equal(rows_of(dataset), series[mask])
    np.testing.assert_array_equal(dataset.voxels, np.argwhere(mask))
    np.testing.assert_array_equal(dataset.read(3, 7), series[mask][3:7])


def save_scaled(path, stored, slope, inter):
    """Numbers as they are stored, of which the header says slope and intercept."""
    data = nibabel.Nifti1Image(stored, AFFINE).to_bytes()
    header = nibabel.Nifti1Header(data[:348])
    header.set_slope_inter(slope, inter)
    path.write_bytes(header.binaryblock + data[348:])
    return path


def test_an_intercept_decides_which_voxels_are_0(tmp_path, series, mask):
    stored = series.copy()
    stored[mask] = 7
    dataset = open_dataset(save_scaled(tmp_path / "b.nii", stored, 1, -7))
    np.testing.assert_array_equal(dataset.voxels, np.argwhere(~mask))
    where = save_scaled(tmp_path / "m.nii", mask.astype(np.uint8), 1, -1)
    dataset = open_dataset(save(tmp_path / "c.nii", series), mask=where)
    np.testing.assert_array_equal(dataset.voxels, np.argwhere(~mask))


def test_scaling_of_the_header_is_honoured(tmp_path, series, mask):
    save_scaled(tmp_path / "b.nii", series, 0.25, -100)
    expected = nibabel.load(tmp_path / "b.nii").get_fdata()[mask]
    np.testing.assert_allclose(expected, series[mask] * 0.25 - 100)
    dataset = open_dataset(tmp_path / "b.nii", mask=save_mask(tmp_path / "m.nii", mask))
    np.testing.assert_array_equal(rows_of(dataset), expected)
    np.testing.assert_allclose(dataset.mean(), expected.mean(axis=1), rtol=1e-6)


def test_pieces_do_not_show(tmp_path, series, mask, monkeypatch):
    series = series.astype(np.float64) + 1 / 3
    path, where = save(tmp_path / "b.nii.gz", series), save_mask(tmp_path / "m.nii", mask)
    whole = rows_of(open_dataset(path, mask=where, detrend=True))
    monkeypatch.setattr(nifti, "_CHUNK_BYTES", 1000)
    monkeypatch.setattr(volumes, "_NUMBERS_AT_ONCE", 50)
    np.testing.assert_array_equal(rows_of(open_dataset(path, mask=where, detrend=True)), whole)


def test_without_a_mask_what_is_not_zero_throughout(tmp_path, series):
    series[:2] = 0
    series[0, 0, 0, 5] = 1
    dataset = open_dataset(save(tmp_path / "b.nii.gz", series))
    expected = (series != 0).any(axis=-1)
    assert expected.sum() == 3 * 4 * 3 + 1 == dataset.shape[0]
    np.testing.assert_array_equal(rows_of(dataset), series[expected])
    assert dataset.describe()["mask"] is None and not dataset.warnings


@pytest.mark.parametrize("value", [np.nan, 0])
def test_a_mask_of_any_numbers(tmp_path, series, mask, value):
    weights = np.where(mask, 0.3, value).astype(np.float32)
    dataset = open_dataset(save(tmp_path / "b.nii", series), mask=save(tmp_path / "m.nii", weights[..., None]))
    np.testing.assert_array_equal(rows_of(dataset), series[mask])


@pytest.mark.parametrize("scale", [None, (0.1, 0), (0.25, -0.25)])
@pytest.mark.parametrize("dtype", [np.uint8, np.int16, np.float32, np.float64])
def test_a_mask_of_0_and_1_by_its_scaling(tmp_path, series, mask, dtype, scale):
    """Read without its slope and intercept, another mask."""
    stored = mask.astype(dtype) * (1 if scale is None else 10 if scale[1] == 0 else 4) + (scale == (0.25, -0.25))
    path = tmp_path / "m.nii"
    where = save(path, mask.astype(dtype)) if scale is None else save_scaled(path, stored.astype(dtype), *scale)
    dataset = open_dataset(save(tmp_path / "b.nii", series), mask=where)
    np.testing.assert_array_equal(dataset.voxels, np.argwhere(mask))


@pytest.mark.parametrize("spoil", ["noise", "edges", "atlas", "probability", "infinite"])
@pytest.mark.parametrize("memory", [False, True])
def test_a_mask_of_other_values_is_refused_with_their_share(tmp_path, series, mask, spoil, memory, rng):
    values = mask.astype(float)
    outside = np.flatnonzero(~mask)
    some = {"noise": outside, "edges": outside[:3], "atlas": outside[:5], "infinite": outside[:1]}.get(
        spoil, slice(None)
    )
    values.flat[some] = {
        "noise": 1e-15, "edges": 0.4, "atlas": 2, "infinite": np.inf, "probability": rng.random(values.size),
    }[spoil]  # fmt: skip
    where = values if memory else save(tmp_path / "m.nii", values)
    assert "% of its values are neither 0 nor" in refusal(save(tmp_path / "b.nii", series), mask=where)


def test_an_intercept_alone_is_a_part_of_the_values(tmp_path, series):
    dataset = open_dataset(save_scaled(tmp_path / "b.nii", series, 1, -1000), mask=np.ones(SHAPE))
    np.testing.assert_array_equal(rows_of(dataset), (series.astype(int) - 1000).reshape(-1, TIMES))
    np.testing.assert_allclose(dataset.mean(), (series.astype(float) - 1000).mean(axis=-1).ravel(), rtol=1e-5)


FORMS = {
    "array": lambda path: nibabel.Nifti1Image(np.asarray(nibabel.load(path).dataobj), AFFINE),
    "loaded": nibabel.load,
    "other header": lambda path: nibabel.Nifti1Image(
        nibabel.load(path).get_fdata(), AFFINE, nibabel.load(path).header  # which says int16
    ),
    "NIfTI-2": lambda path: nibabel.Nifti2Image.from_image(nibabel.load(path)),
    "MGH": lambda path: nibabel.MGHImage(nibabel.load(path).get_fdata().astype(np.float32), AFFINE),
    "pair": lambda path: nibabel.Nifti1Pair(np.asarray(nibabel.load(path).dataobj), AFFINE),
    "big-endian": lambda path: nibabel.Nifti1Image(nibabel.load(path).get_fdata().astype(">f4"), AFFINE),
}  # fmt: skip


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("scale", [None, (0.25, -100)])
@pytest.mark.parametrize("where", [None, "path", "image", "array", "floats"])
def test_images_in_memory_are_read_as_their_files(tmp_path, series, mask, form, scale, where):
    path = save_scaled(tmp_path / "b.nii", series, *scale) if scale else save(tmp_path / "b.nii", series)
    masks = {
        None: None, "path": save_mask(tmp_path / "m.nii", mask), "array": mask, "floats": mask.astype(np.float32),
        "image": nibabel.Nifti1Image(mask.astype(np.uint8), AFFINE),
    }  # fmt: skip
    image = FORMS[form](path)
    dataset, expected = open_dataset(image, mask=masks[where]), open_dataset(path, mask=masks[where])
    np.testing.assert_array_equal(rows_of(dataset), rows_of(expected))
    np.testing.assert_array_equal(dataset.voxels, expected.voxels)
    assert dataset.runs[0].grid.same_as(expected.runs[0].grid)
    again = pickle.loads(pickle.dumps(dataset))
    np.testing.assert_array_equal(again.read(2, 9), rows_of(expected)[2:9])
    assert len(again.fingerprint()) == 64
    written = write_labels(dataset, np.arange(len(dataset.voxels)) % 3, tmp_path)[0]
    assert np.array_equal(np.asarray(nibabel.load(written).dataobj)[mask if where else ...].ravel() % 3,
                          (np.arange(len(dataset.voxels)) + 1) % 3)  # fmt: skip


def test_runs_in_memory(tmp_path, series, mask):
    path = save(tmp_path / "b.nii.gz", series)
    image = nibabel.load(path)
    expected = rows_of(open_dataset([path, path], mask=mask))
    for runs in ([image, image], [image, path], (path, image)):
        np.testing.assert_array_equal(rows_of(open_dataset(runs, mask=mask)), expected)


def test_masks_that_do_not_fit(tmp_path, series, mask):
    path = save(tmp_path / "b.nii", series)
    assert "give the path of a NIfTI file, an image" in refusal(path, mask=mask[1:])
    assert "mask is a list" in refusal(path, mask=["a"])
    moved = nibabel.Nifti1Image(mask.astype(np.uint8), AFFINE + np.eye(4))
    assert "is on another grid than" in refusal(path, mask=moved)


@pytest.mark.parametrize("name", ["x.mgz", "x.img", "x.gii", "x.func.gii", "x.h5ad", "x.mat"])
def test_other_formats_are_refused_with_what_reads_them(tmp_path, name):
    for options in ({}, {"mask": "m.nii"}, {"constant": "drop"}):
        assert "which mgclust does not read; in Python give" in refusal(tmp_path / name, **options)


def test_runs_of_two_subjects_are_told(tmp_path, series):
    paths = [save(tmp_path / f"sub-{s}_task-{t}_run-{r}_bold.nii", series) for s, t, r in ("1a1", "1a2", "2b1")]
    assert not open_dataset(paths[:2]).warnings
    two = open_dataset([paths[0], paths[2]])
    assert len(two.warnings) == 1 and "2 subjects (sub-1, sub-2)" in two.warnings[0]
    assert output_stem([str(paths[0]), str(paths[2])], "canopy") == "desc-canopy_dseg"


@pytest.fixture
def atlas(tmp_path, mask, rng):
    values = np.where(mask, rng.integers(1, 5, SHAPE), 0).astype(np.int16)
    return save(tmp_path / "atlas.nii.gz", values), values


def test_labels_of_volumes(tmp_path, series, mask, atlas):
    """Those of the rows' voxels; in a comparison, those of voxels that have one in either."""
    path, values = atlas
    dataset = open_dataset(save(tmp_path / "b.nii", series), mask=mask)
    np.testing.assert_array_equal(read_labels(path, dataset), values[mask])
    np.testing.assert_array_equal(read_labels(path), np.where(mask, values, -1).ravel())
    other = np.roll(values, 1, axis=0)
    second = save(tmp_path / "second.nii", other.astype(np.float32))
    one, two, _ = read_label_pair(str(path), str(second))
    either = (values > 0) | (other > 0)
    assert np.array_equal(one, np.where(values > 0, values, -1)[either])
    assert np.array_equal(two, np.where(other > 0, other, -1)[either])
    (tmp_path / "out").mkdir()
    write_labels(dataset, values[mask] - 1, tmp_path / "out")
    assert np.array_equal(*read_label_pair(str(tmp_path / "out"), str(path))[:2])
    own = silhouette_samples(dataset, values[mask], client=None)
    assert np.array_equal(silhouette_samples(dataset, path, client=None), own)
    (tmp_path / "rows.txt").write_text("1\n2\n")
    for pair in ((path, tmp_path / "rows.txt"), (tmp_path / "rows.txt", path)):
        with pytest.raises(InputError, match="is not a volume, but the other labels are"):
            read_label_pair(*map(str, pair))
    with pytest.raises(InputError, match="is a volume, but the rows are not voxels"):
        read_labels(path, open_dataset(np.ones((3, 2))))
    with pytest.raises(InputError, match="are not whole numbers"):
        read_labels(save(tmp_path / "p.nii", values + 0.5))
    with pytest.raises(InputError, match="is on another grid"):
        read_label_pair(str(path), str(save(tmp_path / "q.nii", values, AFFINE + np.eye(4))))


def test_detrend_comes_before_zscore(tmp_path, series, mask):
    path, where = save(tmp_path / "b.nii", series), save_mask(tmp_path / "m.nii", mask)
    x = series[mask].astype(float)
    for options, expected in (
        ({"standardize": "zscore"}, zscored(x)),
        ({"detrend": True}, detrended(x)),
        ({"standardize": "zscore", "detrend": True}, zscored(detrended(x))),
    ):
        np.testing.assert_allclose(rows_of(open_dataset(path, mask=where, **options)), expected, atol=2e-5)
    assert open_dataset(path, mask=where, detrend=True).describe()["detrend"] is True


def test_float64_series_far_from_zero_keep_their_changes(tmp_path, rng, mask):
    changes = rng.normal(size=(*SHAPE, TIMES))
    where = save_mask(tmp_path / "m.nii", mask)
    for baseline in (1e6, 1e8):
        path = save(tmp_path / "b.nii", changes + baseline, dtype=np.float64)
        plain = open_dataset(path, mask=where)
        assert plain.dtype == np.float64 and not plain.warnings
        np.testing.assert_array_equal(rows_of(plain), (changes + baseline)[mask])
        rows = rows_of(open_dataset(path, mask=where, standardize="zscore"))
        np.testing.assert_allclose(rows, zscored((changes + baseline)[mask]), rtol=1e-12, atol=1e-12)


def test_runs_are_standardised_each_by_itself_and_follow_in_time(tmp_path, series, mask, rng):
    second = (rng.normal(size=(*SHAPE, 9)) * 50).astype(np.float32)
    paths = [save(tmp_path / "run-1.nii.gz", series), save(tmp_path / "run-2.nii", second)]
    where = save_mask(tmp_path / "m.nii.gz", mask)
    dataset = open_dataset(paths, mask=where, standardize="zscore", detrend=True)
    parts = [zscored(detrended(part[mask].astype(float))) for part in (series, second)]
    np.testing.assert_allclose(rows_of(dataset), np.hstack(parts), atol=2e-5)
    said = dataset.describe()
    assert said["time_points"] == [TIMES, 9] and said["files"] == [str(path) for path in paths]
    assert dataset.name.endswith("run-1.nii.gz and 1 more")
    plain = open_dataset(tuple(map(str, paths)), mask=where)
    np.testing.assert_array_equal(rows_of(plain), np.concatenate([series[mask], second[mask]], axis=1))
    assert dataset.fingerprint() != open_dataset(paths[::-1], mask=where).fingerprint()


def test_it_travels_as_paths_and_reads_the_same_elsewhere(tmp_path, series, mask):
    series[2, 1, 1] = 7
    mask[2, 1, 1] = True
    path, where = save(tmp_path / "b.nii.gz", series), save_mask(tmp_path / "m.nii", mask)
    dataset = open_dataset(path, mask=where, standardize="zscore")
    pickled = pickle.dumps(dataset)
    assert len(pickled) < 4000
    where.unlink()  # the choice of voxels travels, too
    copy = pickle.loads(pickled)
    np.testing.assert_array_equal(copy.read(2, 9), dataset.read(2, 9))
    assert copy.describe() == dataset.describe() and copy.warnings == dataset.warnings
    assert copy._opened is not None and pickle.dumps(copy) == pickled
    save(path, series + 1)
    with pytest.raises(InputError, match="changed since it was opened"):
        pickle.loads(pickled).read(0, 1)


def test_a_rank_keeps_the_rows_that_it_expects(tmp_path, series, mask):
    paths = [save(tmp_path / "a.nii.gz", series), save(tmp_path / "b.nii.gz", series[..., ::-1])]
    dataset = open_dataset(paths, mask=save_mask(tmp_path / "m.nii", mask), standardize="zscore")
    copy = pickle.loads(pickle.dumps(dataset))
    copy.expect(5, 20)
    np.testing.assert_array_equal(copy.read(8, 20), dataset.read(8, 20))
    assert copy._opened.stored.shape == (15, 2 * TIMES)
    np.testing.assert_array_equal(copy.read(4, 6), dataset.read(4, 6))  # others after all
    np.testing.assert_array_equal(copy.mean(), dataset.mean())
    dataset.expect(1, 2)
    assert len(dataset._opened.stored) == len(dataset.read(0, mask.sum())) == mask.sum()


def test_a_volume_behind_a_url(tmp_path, series, mask):
    import fsspec

    where = save_mask(tmp_path / "m.nii.gz", mask)
    memory = fsspec.filesystem("memory")
    for path in (save(tmp_path / "b.nii.gz", series), where):
        memory.pipe(f"/volumes/{path.name}", path.read_bytes())
    dataset = open_dataset("memory://volumes/b.nii.gz", mask="memory://volumes/m.nii.gz")
    np.testing.assert_array_equal(rows_of(dataset), series[mask])


def test_constant_voxels_are_left_out_or_refused(tmp_path, series, mask):
    chosen = np.argwhere(mask)
    gone = chosen[[1, 4]]
    series[tuple(gone.T)] = 900
    path, where = save(tmp_path / "b.nii", series), save_mask(tmp_path / "m.nii", mask)
    dataset = open_dataset(path, mask=where)
    kept = np.delete(chosen, [1, 4], axis=0)
    np.testing.assert_array_equal(dataset.voxels, kept)
    np.testing.assert_array_equal(rows_of(dataset), series[tuple(kept.T)])
    np.testing.assert_allclose(dataset.mean(), series[tuple(kept.T)].mean(axis=1), rtol=1e-6)
    assert dataset.describe()["constant_voxels_dropped"] == 2
    assert dataset.describe()["voxels_in_mask"] == len(chosen)
    (warning,) = dataset.warnings
    assert warning.startswith(f"2 of {len(chosen)} voxels do not change")
    message = refusal(path, mask=where, constant="refuse")
    assert (
        f"2 of {len(chosen)} voxels do not change over time, the first is" in message
        and f"voxel {tuple(gone[0].tolist())}" in message
    )
    assert "constant='foo' should be" in refusal(path, mask=where, constant="foo")
    only = np.zeros(SHAPE)
    only[tuple(gone.T)] = 1
    assert "none of its 2 voxels" in refusal(path, mask=save_mask(tmp_path / "only.nii", only))


def test_a_voxel_that_is_constant_in_one_run_is_left_out(tmp_path, series, mask):
    second = series.copy()
    first_voxel = tuple(np.argwhere(mask)[0])
    second[first_voxel] = 0
    line = tuple(np.argwhere(mask)[1])
    second[line] = np.arange(TIMES) * 3 + 5
    paths = [save(tmp_path / "a.nii", series), save(tmp_path / "b.nii", second)]
    where = save_mask(tmp_path / "m.nii", mask)
    assert open_dataset(paths, mask=where, standardize="zscore").dropped == 1
    dataset = open_dataset(paths, mask=where, standardize="zscore", detrend=True)
    assert dataset.dropped == 2 and f"time in at least one run (2 in {paths[1]}) and were" in dataset.warnings[0]
    assert f"time in at least one run (1 in {paths[1]}), the first" in refusal(paths, mask=where, constant="refuse")
    assert np.isfinite(rows_of(dataset)).all()


def test_the_file_whose_voxels_are_all_constant_is_named(tmp_path, series, mask):
    halves, chosen = [np.full_like(series, 5), np.full_like(series, 5)], np.argwhere(mask)
    halves[0][tuple(chosen[:3].T)] = series[tuple(chosen[:3].T)]
    halves[1][tuple(chosen[3:].T)] = series[tuple(chosen[3:].T)]
    paths = [
        save(tmp_path / f"sub-{at}_bold.nii", each)
        for at, each in enumerate((series, np.full_like(series, 5), *halves))
    ]
    where, n = save_mask(tmp_path / "m.nii", mask), len(chosen)
    assert f"{paths[1]}: none of its {n} voxels changes over time; check the mask, or leave this run out" in refusal(
        paths[:2], mask=where
    )
    said = refusal(paths[2:], mask=where)
    assert f"each of {n} voxels is constant in at least one run ({n - 3} in {paths[2]})" in said


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_nan_is_refused_with_a_count_inside_the_mask_only(tmp_path, series, mask, value):
    series = series.astype(np.float32)
    series[~mask] = np.nan
    path, where = save(tmp_path / "b.nii", series), save_mask(tmp_path / "m.nii", mask)
    np.testing.assert_array_equal(rows_of(open_dataset(path, mask=where)), series[mask])
    bad = np.argwhere(mask)[[2, 5, 6]]
    series[(*bad.T, 3)] = value
    message = refusal(save(path, series), mask=where, standardize="zscore")
    assert f"3 of {mask.sum()} voxels hold NaN or infinite" in message and str(tuple(bad[0].tolist())) in message
    assert f"{3 + (~mask).sum()} of {mask.size} voxels" in refusal(path)


def test_a_mask_on_another_grid_is_refused_with_both(tmp_path, series, mask):
    path = save(tmp_path / "b.nii", series)
    message = refusal(path, mask=save_mask(tmp_path / "m.nii", mask[:4]))
    assert "4 x 4 x 3 voxels" in message and "5 x 4 x 3 voxels" in message
    moved = AFFINE.copy()
    moved[0, 3] += 3
    message = refusal(path, mask=save_mask(tmp_path / "m.nii", mask, affine=moved))
    assert "another grid" in message and " 23]" in message and " 20]" in message
    moved[0, 3] = AFFINE[0, 3] + 1e-4  # what rounding does to an affine
    open_dataset(path, mask=save_mask(tmp_path / "m.nii", mask, affine=moved))


def test_runs_on_other_grids_and_other_kinds_are_refused(tmp_path, series, grayordinates):
    paths = [save(tmp_path / "a.nii", series), save(tmp_path / "b.nii", series, affine=np.eye(4))]
    assert "b.nii is on another grid than" in refusal(paths)
    assert "give runs of one kind" in refusal([paths[0], grayordinates[0]])
    assert "not a volume" in refusal([str(paths[0]), "x.npy"])


def test_what_is_no_mask(tmp_path, series, mask):
    path = save(tmp_path / "b.nii", series)
    assert "is empty" in refusal(path, mask=save_mask(tmp_path / "m.nii", mask & False))
    assert "a mask is 3-D" in refusal(path, mask=path)
    assert "mask is a ndarray of shape (60,)" in refusal(path, mask=mask.ravel())
    assert "does not exist" in refusal(path, mask=tmp_path / "none.nii.gz")
    assert "should be a NIfTI file" in refusal(path, mask=tmp_path / "mask.npy")


def test_what_is_no_series(tmp_path, series):
    assert "is one volume (shape=(5, 4, 3))" in refusal(save(tmp_path / "b.nii", series[..., 0]))
    assert "at least 2 points in time" in refusal(save(tmp_path / "b.nii", series[..., :1].repeat(2, -1)[..., :1]))
    assert "at least 3 points in time" in refusal(save(tmp_path / "b.nii", series[..., :2]), detrend=True)
    assert "5-dimensional" in refusal(save(tmp_path / "b.nii", np.stack([series, series], axis=-1)))
    assert "holds only zeros" in refusal(save(tmp_path / "b.nii", series * 0))
    assert "Complex data" in refusal(save(tmp_path / "b.nii", series.astype(np.complex64)))
    colours = np.zeros((*SHAPE, TIMES), dtype=[("R", "u1"), ("G", "u1"), ("B", "u1")])
    assert "not numbers" in refusal(save(tmp_path / "b.nii", colours))
    for options in ({"columns": [0]}, {"delimiter": ","}):
        assert "apply to tables" in refusal(save(tmp_path / "b.nii", series), **options)


def test_what_is_no_nifti_file(tmp_path, series):
    path = tmp_path / "b.nii.gz"
    for data, expected in (
        (b"", "is empty"),
        (b"this is text", "is not a NIfTI file"),
        (gzip.compress(b"this is text"), "is not a NIfTI file"),
        ((348).to_bytes(4, "little") + bytes(600), "is not a whole NIfTI file"),
        ((348).to_bytes(4, "little"), "is not a whole NIfTI file"),
        (b"\x1f\x8bnonsense", "b.nii.gz"),
    ):
        path.write_bytes(data)
        assert expected in refusal(path)
    assert "does not exist" in refusal(tmp_path / "none.nii.gz")
    (tmp_path / "d.nii").mkdir()
    assert "is a directory" in refusal(tmp_path / "d.nii")
    pair = nibabel.Nifti1Pair(series, AFFINE)
    nibabel.save(pair, tmp_path / "p.img")
    (tmp_path / "p.hdr").rename(tmp_path / "p.nii")
    assert "half of a pair" in refusal(tmp_path / "p.nii")


@pytest.mark.parametrize("name", ["b.nii", "b.nii.gz"])
def test_truncated_files(tmp_path, rng, name):
    whole = save(tmp_path / name, rng.normal(size=(*SHAPE, TIMES)).astype(np.float32)).read_bytes()
    path = tmp_path / f"cut-{name}"
    for size in (200, 1000, len(whole) // 2, len(whole) - 5):
        path.write_bytes(whole[:size])
        message = refusal(path)
        assert "truncated" in message or "not a whole" in message, (size, message)
    damaged = bytearray(whole)
    damaged[-6] ^= 1
    path.write_bytes(damaged)
    if name.endswith("gz"):
        assert "damaged or truncated" in refusal(path)


def test_a_header_that_promises_too_much_takes_no_memory(tmp_path, series, monkeypatch):
    data = bytearray(nibabel.Nifti1Image(series, AFFINE).to_bytes())
    header = nibabel.Nifti1Header(bytes(data[:348]))
    header["dim"][1:5] = 30_000
    (tmp_path / "b.nii.gz").write_bytes(gzip.compress(header.binaryblock + bytes(data[348:])))
    assert "truncated: its header says" in refusal(tmp_path / "b.nii.gz")
    import psutil

    path = save(tmp_path / "c.nii", series)
    nothing = type("Nothing", (), {"available": 1000})
    monkeypatch.setattr(psutil, "virtual_memory", nothing)
    with pytest.raises(InsufficientMemoryError, match="GiB of memory"):
        open_dataset(path)


def test_nibabel_is_asked_for_only_by_volumes(tmp_path, series, monkeypatch):
    code = "import sys, mgclust, mgclust.data, mgclust.datasets; sys.exit('nibabel' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0
    monkeypatch.setitem(sys.modules, "nibabel", None)
    assert "pip install 'mgclust[fmri]'" in refusal(save(tmp_path / "b.nii", series))


@pytest.mark.parametrize("kind", [nibabel.Nifti1Image, nibabel.Nifti2Image])
def test_labels_go_back_to_their_voxels(tmp_path, series, mask, kind):
    path = tmp_path / "sub-01_task-rest_run-1_bold.nii.gz"
    image = kind(series, AFFINE)
    image.set_qform(AFFINE, 1)
    image.set_sform(AFFINE, 4)
    nibabel.save(image, path)
    dataset = open_dataset(path, mask=save_mask(tmp_path / "m.nii", mask))
    labels = np.arange(dataset.shape[0]) % 4 - 1
    centers = np.array([1, 2, 7])
    paths = write_labels(dataset, labels, tmp_path, method="density-peaks", centers=centers, parameters={"dc": 0.5})
    stem = "sub-01_task-rest_run-1_desc-densityPeaks_dseg"
    assert [p.name for p in paths] == [f"{stem}.nii.gz", f"{stem}.tsv", f"{stem}.json"]
    written = nibabel.load(paths[0])
    assert type(written) is kind and written.get_data_dtype() == np.int32 and written.shape == SHAPE
    np.testing.assert_array_equal(written.affine, nibabel.load(path).affine)
    assert (written.header["qform_code"], written.header["sform_code"]) == (1, 4)
    assert written.header.get_intent()[0] == "label"
    volume = np.asarray(written.dataobj)
    np.testing.assert_array_equal(volume[mask], labels + 1)
    assert not volume[~mask].any()
    rows = list(csv.DictReader(paths[1].open(), delimiter="\t"))
    assert [row["index"] for row in rows] == ["1", "2", "3"]
    assert [int(row["size"]) for row in rows] == np.bincount(labels[labels >= 0]).tolist()
    voxel = dataset.voxels[centers[2]]
    assert [int(rows[2][f"exemplar_{axis}"]) for axis in "ijk"] == voxel.tolist()
    where = (AFFINE @ [*voxel, 1])[:3]
    np.testing.assert_allclose([float(rows[2][f"exemplar_{axis}_mm"]) for axis in "xyz"], where, atol=0.006)
    for k, row in enumerate(rows):  # the centre is the voxel of the cluster that is nearest to its mean
        own = [tuple(voxel) for voxel in dataset.voxels[labels == k].tolist()]
        places = {voxel: (AFFINE @ [*voxel, 1])[:3] for voxel in own}
        mean = sum(places.values()) / len(own)
        center = tuple(int(row[f"center_{axis}"]) for axis in "ijk")
        assert center in own and volume[center] == k + 1
        away = {voxel: np.linalg.norm(place - mean) for voxel, place in places.items()}
        assert away[center] == pytest.approx(min(away.values()))
        np.testing.assert_allclose([float(row[f"center_{axis}_mm"]) for axis in "xyz"], places[center], atol=0.006)
    said = json.loads(paths[2].read_text())
    assert said["Parameters"] == {"dc": 0.5} and said["Method"] == "density-peaks"
    assert said["WithoutCluster"] == (labels < 0).sum() and said["Sources"] == [str(path)]
    write_labels(dataset, labels, tmp_path, method="density-peaks")
    assert "exemplar" not in paths[1].read_text()


def test_files_are_as_bids_wants_them(tmp_path, series, mask):
    """The table and the JSON file of BIDS derivatives; nilearn names the parcels by the table."""
    from scipy import ndimage

    maskers = pytest.importorskip("nilearn.maskers")
    path = save(tmp_path / "sub-01_task-rest_bold.nii.gz", series)
    dataset = open_dataset(path, mask=save_mask(tmp_path / "m.nii", mask))
    labels = np.arange(dataset.shape[0]) % 3
    labels[labels == 1] = 2  # no row has the label 1
    volume, table, sidecar = write_labels(dataset, labels, tmp_path, method="parcellation", centers=[0, 0, 2])
    rows = list(csv.DictReader(table.open(), delimiter="\t"))
    assert list(rows[0])[:5] == ["index", "name", "size", "pieces", "color"]
    assert len({row["name"] for row in rows}) == len(rows) == 3
    assert all(re.fullmatch("#[0-9a-f]{6}", row["color"]) for row in rows)
    assert (rows[1]["size"], rows[1]["center_i"], rows[1]["center_x_mm"]) == ("0", "n/a", "n/a")
    said = json.loads(sidecar.read_text())
    assert said["Name"] == "sub-01_task-rest_desc-parcellation"
    assert all(said[column]["Description"] for column in rows[0])
    assert [column for column in rows[0] if said[column].get("Units") == "mm"] == [
        f"{what}_{axis}_mm" for what in ("center", "exemplar") for axis in "xyz"
    ]
    values = np.asarray(nibabel.load(volume).dataobj)
    assert set(np.unique(values)) - {0} == {int(row["index"]) for row in rows if row["size"] != "0"}

    pieces = [ndimage.label(values == int(row["index"]), np.ones((3, 3, 3)))[1] for row in rows]
    assert [int(row["pieces"]) for row in rows] == pieces
    assert f"3 clusters of {dataset.shape[0]} voxels by their time series, in {sum(pieces)} conn" in said["Description"]

    masker = maskers.NiftiLabelsMasker(volume, lut=table, standardize=None, strategy="mean")
    means = masker.fit_transform(nibabel.load(path))
    names = [masker.region_names_[k] for k in range(means.shape[1])]
    assert names == ["parcel 1", "parcel 3"]
    for name, column in zip(names, means.T, strict=True):
        np.testing.assert_allclose(column, series[values == int(name.split()[1])].mean(axis=0), rtol=1e-5)


def test_parcels_are_coloured_by_place_or_as_requested(tmp_path, series):
    dataset = open_dataset(save(tmp_path / "b.nii", series))
    labels = np.arange(dataset.shape[0]) * 4 // dataset.shape[0]

    def written(**more):
        table = write_labels(dataset, labels, tmp_path, **more)[1]
        return [row["color"] for row in csv.DictReader(table.open(), delimiter="\t")]

    def codes(colors):
        return ["#" + "".join(f"{round(255 * part):02x}" for part in color) for color in colors]

    by_place = plots.parcel_colors(dataset.to_grid(labels + 1), dataset.runs[0].grid.affine)
    assert written(method="parcellation") == written(method="parcellation") == codes(by_place)
    assert written(method="canopy") == codes(plots.cluster_colors(4))
    given = np.eye(4)[:, :3]
    assert written(method="parcellation", colors=given) == codes(given)
    with pytest.raises(InputError, match=r"colors has shape \(3, 3\), it should be \(4, 3\)"):
        written(colors=np.eye(3))


def test_a_header_without_orientation_stays_so(tmp_path, series):
    image = nibabel.Nifti1Image(series, None)
    nibabel.save(image, tmp_path / "b.nii")
    dataset = open_dataset(tmp_path / "b.nii")
    assert not dataset.runs[0].grid.oriented
    path, *_ = write_labels(dataset, np.zeros(dataset.shape[0], dtype=int), tmp_path)
    written, source = nibabel.load(path), nibabel.load(tmp_path / "b.nii")
    np.testing.assert_array_equal(written.affine, source.affine)
    assert (int(written.header["sform_code"]), int(written.header["qform_code"])) == (0, 0)


def test_labels_that_do_not_fit_are_refused(tmp_path, series, mask):
    dataset = open_dataset(save(tmp_path / "b.nii", series))
    n = dataset.shape[0]
    for labels, centers, expected in (
        (np.zeros(n - 1, int), None, f"it should be {n} integers"),
        (np.zeros(n), None, "dtype float64"),
        (np.full(n, -2), None, "labels holds -2"),
        (np.zeros(n, int), [0, 1], "centers has 2 rows"),
    ):
        with pytest.raises(InputError, match=expected):
            write_labels(dataset, labels, tmp_path, centers=centers)
    with pytest.raises(InputError, match="is not a directory; create it"):
        write_labels(dataset, np.zeros(n, int), tmp_path / "none")
    with pytest.raises(InputError, match="one per row"):
        dataset.to_grid(np.zeros(3))
    assert write_labels(open_dataset(np.zeros((3, 2))), [0, 0, 1], tmp_path) == []


@pytest.mark.parametrize(
    ("paths", "expected"),
    [
        (["/a/bold.nii.gz"], "bold_desc-densityPeaks_dseg"),
        (["/a/sub-01_task-x_run-1_bold.nii.gz"], "sub-01_task-x_run-1_desc-densityPeaks_dseg"),
        (["/a/sub-01_run-1_bold.nii", "/a/sub-01_run-2_bold.nii"], "sub-01_desc-densityPeaks_dseg"),
        (["/a/sub-01_space-T1w_desc-preproc_bold.nii.gz"], "sub-01_space-T1w_desc-densityPeaks_dseg"),
        (["/a/sub-01_den-91k_bold.dtseries.nii"], "sub-01_den-91k_desc-densityPeaks_dseg"),
        (["https://host/data/s.v2_bold.NII.GZ?x=1"], "s.v2_desc-densityPeaks_dseg"),
    ],
)
def test_names_follow_bids(paths, expected):
    assert output_stem(paths, "density-peaks") == expected


@pytest.fixture
def grayordinates(tmp_path, rng):
    """A .dtseries.nii of a piece of cortex and some voxels."""
    thalamus = np.zeros(SHAPE, dtype=bool)
    thalamus[1:3, 1:3, 1] = True
    models = nibabel.cifti2.BrainModelAxis.from_surface(
        np.arange(0, 40, 2), 50, name="CortexLeft"
    ) + nibabel.cifti2.BrainModelAxis.from_mask(thalamus, affine=AFFINE, name="thalamus_left")
    data = rng.normal(100, 10, size=(TIMES, len(models))).astype(np.float32)
    data[:, 3] = 5
    path = tmp_path / "sub-01_bold.dtseries.nii"
    nibabel.save(nibabel.cifti2.Cifti2Image(data, (nibabel.cifti2.SeriesAxis(0, 0.72, TIMES), models)), path)
    return path, data, models


def test_cifti_there_and_back(tmp_path, grayordinates, monkeypatch):
    path, data, models = grayordinates
    monkeypatch.setattr(nifti, "_CHUNK_BYTES", 4 * TIMES * 7)
    dataset = open_dataset(path)
    kept = np.delete(np.arange(len(models)), 3)
    assert dataset.kind == "cifti" and dataset.shape == (len(kept), TIMES)
    np.testing.assert_array_equal(rows_of(dataset), data.T[kept])
    assert dataset.warnings[0].startswith("1 of 24 grayordinates does not change over time and was left out")
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(dataset)).read(4, 9), data.T[kept][4:9])
    both = open_dataset([path, path], standardize="zscore", detrend=True)
    part = zscored(detrended(data.T[kept].astype(float)))
    np.testing.assert_allclose(rows_of(both), np.hstack([part, part]), atol=2e-5)

    labels = np.arange(len(kept)) % 3 - 1
    paths = write_labels(dataset, labels, tmp_path, method="canopy", centers=[1, len(kept) - 1])
    assert paths[0].name == "sub-01_desc-canopy_dseg.dlabel.nii"
    written = nibabel.load(paths[0])
    assert isinstance(written, nibabel.Cifti2Image)
    assert written.nifti_header.get_intent()[0] == "ConnDenseLabel"
    names, brain = written.header.get_axis(0), written.header.get_axis(1)
    assert brain == models
    expected = np.zeros(len(models))
    expected[kept] = labels + 1
    np.testing.assert_array_equal(written.get_fdata()[0], expected)
    table = names.label[0]
    assert sorted(table) == [0, 1, 2] and table[1][0] == "parcel 1" and table[0][1][3] == 0
    np.testing.assert_allclose(table[2][1][:3], plots.cluster_colors(2)[1], atol=1e-6)
    rows = list(csv.DictReader(paths[1].open(), delimiter="\t"))
    assert rows[0]["exemplar_structure"] == "cortex_left" and rows[0]["exemplar_vertex"] == "2"
    assert rows[1]["exemplar_voxel"] == "2 2 1" and rows[1]["exemplar_vertex"] == "n/a"
    assert dataset.label_volume(labels) is None


def test_other_cifti_files_are_refused(tmp_path, grayordinates, mask):
    path, data, models = grayordinates
    other = tmp_path / "x.dscalar.nii"
    axis = nibabel.cifti2.ScalarAxis([f"map {i}" for i in range(TIMES)])
    nibabel.save(nibabel.cifti2.Cifti2Image(data, (axis, models)), other)
    assert "CIFTI file of Scalar by BrainModel" in refusal(other)
    assert "applies to NIfTI" in refusal(path, mask=save_mask(tmp_path / "m.nii", mask))
    fewer = tmp_path / "y.dtseries.nii"
    axes = (nibabel.cifti2.SeriesAxis(0, 1, TIMES), models[1:])
    nibabel.save(nibabel.cifti2.Cifti2Image(data[:, 1:], axes), fewer)
    assert "other grayordinates" in refusal([path, fewer])
    assert "1 of 24 grayordinates" in (message := refusal(path, constant="refuse")) and "mask" not in message
    axes = (nibabel.cifti2.SeriesAxis(0, 1, TIMES), models)
    nibabel.save(nibabel.cifti2.Cifti2Image(np.ones_like(data), axes), fewer)
    assert "none of its 24 grayordinates changes over time; check the file" in refusal(fewer)
    fewer.write_bytes(path.read_bytes()[:-50])
    assert "truncated" in refusal(fewer)


def test_made_up_parcels_are_contiguous_and_the_same_every_time(tmp_path):
    from scipy import ndimage

    bold, mask, truth = made = datasets.make_bold((12, 14, 10), n_parcels=7, n_timepoints=60, noise=0.3)
    again = datasets.make_bold((12, 14, 10), n_parcels=7, n_timepoints=60, noise=0.3)
    assert bold.dtype == np.float32 and truth.dtype == np.int32
    np.testing.assert_array_equal(bold, again.bold)
    assert not np.array_equal(bold, datasets.make_bold((12, 14, 10), 7, 60, 0.3, random_state=1).bold)
    assert not bold[~mask].any() and ((truth > 0) == mask).all()
    assert [ndimage.label(truth == k)[1] for k in range(1, 8)] == [1] * 7
    path, where, known = made.save(tmp_path / "made")
    dataset = open_dataset(path, mask=where, standardize="zscore", detrend=True)
    np.testing.assert_array_equal(nibabel.load(known).get_fdata()[mask], truth[mask])
    assert dataset.runs[0].repetition_time == 2.0
    r = np.corrcoef(rows_of(dataset))
    same = truth[mask][:, None] == truth[mask]
    assert r[same].mean() == pytest.approx(1 / (1 + 0.3**2), abs=0.03)
    assert abs(r[~same].mean()) < 0.1


@pytest.mark.parametrize(
    "bad", [{"shape": (2, 5, 5)}, {"shape": (5, 5)}, {"n_parcels": 0}, {"n_timepoints": 2}, {"noise": -1}]
)
def test_made_up_series_that_cannot_be_made(bad):
    with pytest.raises(InputError, match=next(iter(bad))):
        datasets.make_bold(**bad)


def test_slices_are_turned_so_that_left_is_left():
    volume = np.zeros((6, 8, 5), dtype=int)
    volume[:3] = 1
    volume[3:] = 2
    first, second = plots.cluster_colors(2)
    for flip, colors in ((1, (first, second)), (-1, (second, first))):
        ax = plots.label_slices(volume, affine=np.diag([flip * 2.0, 2, 2, 1]))
        image = ax.images[0].get_array()
        row = next(row for row in image if not (row == 1).all())  # through all slices of the first row
        colored = row[~(row == 1).all(axis=1)]
        np.testing.assert_allclose(colored[0], colors[0], atol=1e-6)
        np.testing.assert_allclose(colored[-1], colors[1], atol=1e-6)
        texts = [text.get_text() for text in ax.texts]
        assert "L" in texts and "R" in texts
    # The first axis points up: slices are along it, at its millimetres.
    upright = np.array([[0, 0, 2, 0], [2.0, 0, 0, 0], [0, 2, 0, 5], [0, 0, 0, 1]])
    ax = plots.label_slices(volume, affine=upright)
    assert "8 axial slices" in ax.get_title()
    assert "z = 5 mm" in [text.get_text() for text in ax.texts]
    ax = plots.label_slices(volume, affine=upright, oriented=False)
    assert "does not say which side" in ax.get_xlabel()
    assert not {"L", "R"} & {text.get_text() for text in ax.texts}
    assert plots.png(plots.label_slices(volume * 0)).startswith(b"\x89PNG")
    with pytest.raises(ValueError, match="a label per voxel"):
        plots.label_slices(volume[0])
