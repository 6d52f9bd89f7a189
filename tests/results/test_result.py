import errno
import json
import os
import sys
from pathlib import Path

import numpy as np
import pytest
import zarr

from mgclust.base.errors import InputError
from mgclust.results.array_files import write_npy
from mgclust.results.atomic_directory import check_target
from mgclust.results.result import Deferred, Result, load_result
from mgclust.results.versions import installed_versions


@pytest.fixture
def result():
    return Result(
        method="density-peaks",
        labels=np.array([0, 0, 1, -1], dtype=np.int32),
        arrays={
            "rho": np.array([1.0, 2.0, 3.0, 4.0]),
            "halo": np.array([False, True, False, True]),
            "centers": np.zeros(0, dtype=np.int64),
        },
        scores={"n_clusters": np.int64(2), "dc": np.float32(0.5)},
        parameters={"delta_min": np.inf, "init": np.arange(3), "n_clusters": None},
        source={"name": "x.npy", "shape": (4, 2), "dtype": "float32", "sha256": "0" * 64},
        timings={"density": 0.25},
        hardware={"device": "cpu"},
        versions=installed_versions(),
        warnings=["a sentence."],
        diagnostics={"fallback_rows": 3},
    )


def names(directory):
    return sorted(os.listdir(directory))


def test_round_trip(result, tmp_path):
    path = result.save(tmp_path / "out")
    assert names(path) == [
        "centers.npy", "halo.npy", "labels.csv", "labels.npy", "result.json", "rho.npy",
    ]  # fmt: skip
    assert (path / "labels.csv").read_text() == "row,label,halo\n0,0,0\n1,0,1\n2,1,0\n3,-1,1\n"
    again = load_result(path)
    assert again.method == "density-peaks"
    assert isinstance(again.arrays["rho"], np.memmap)
    for name, array in result.arrays.items():
        np.testing.assert_array_equal(again.arrays[name], array)
        assert again.arrays[name].dtype == array.dtype
    np.testing.assert_array_equal(again.labels, result.labels)
    assert again.parameters == {"delta_min": "inf", "init": [0, 1, 2], "n_clusters": None}
    assert again.source["shape"] == [4, 2]
    assert again.scores == {"n_clusters": 2, "dc": 0.5}
    assert again.timings == result.timings and again.warnings == result.warnings
    assert list(again.cluster_sizes) == [2, 1]
    assert names(tmp_path) == ["out"]


def test_result_json_is_strict_json(result, tmp_path):
    text = (result.save(tmp_path / "out") / "result.json").read_text()

    def refuse(constant):
        raise AssertionError(constant)

    content = json.loads(text, parse_constant=refuse)
    assert content["arrays"]["labels"] == {"file": "labels.npy", "shape": [4], "dtype": "int32"}


def test_existing_directory_is_refused_and_replaced_on_request(result, tmp_path):
    result.save(tmp_path / "out")
    with pytest.raises(InputError, match="exists; choose another name, or give overwrite=True"):
        result.save(tmp_path / "out")
    result.save(tmp_path / "out", overwrite=True, add=lambda directory: (directory / "extra").write_text("old"))
    result.save(tmp_path / "out", overwrite=True)
    assert "extra" not in names(tmp_path / "out")
    assert names(tmp_path) == ["out"]


@pytest.mark.parametrize("nested", [False, True])
def test_what_a_run_did_not_write_is_never_replaced(result, tmp_path, nested):
    """A user's file or another run, in a result directory or in a folder that only holds runs."""
    runs = tmp_path / "runs"
    runs.mkdir()
    result.save(runs / "first")
    if nested:
        result.save(runs / "first" / "second")
    (runs / "first" / "notes.txt").write_text("mine")
    before = sorted(path for path in tmp_path.rglob("*"))
    for target in (runs, runs / "first"):
        with pytest.raises(InputError, match="not overwritten"):
            result.save(target, overwrite=True)
        with pytest.raises(InputError, match="not overwritten"):
            check_target(target, overwrite=True)
    assert sorted(path for path in tmp_path.rglob("*")) == before
    (runs / "first" / "notes.txt").unlink()
    if nested:
        with pytest.raises(InputError, match="holds 'second', which its run did not write"):
            result.save(runs / "first", overwrite=True)
    else:
        result.save(runs / "first", overwrite=True)


def test_a_foreign_directory_is_never_replaced(result, tmp_path):
    (tmp_path / "thesis").mkdir()
    (tmp_path / "thesis" / "chapter1.tex").write_text("years of work")
    with pytest.raises(InputError, match="not a result directory"):
        result.save(tmp_path / "thesis", overwrite=True)
    (tmp_path / "file").write_text("x")
    with pytest.raises(InputError, match="not a result directory"):
        result.save(tmp_path / "file", overwrite=True)
    result.save(tmp_path / "out")
    (tmp_path / "link").symlink_to("out")
    with pytest.raises(InputError, match="not a result directory"):
        result.save(tmp_path / "link", overwrite=True)
    assert (tmp_path / "link").is_symlink() and "result.json" in names(tmp_path / "out")
    assert names(tmp_path / "thesis") == ["chapter1.tex"]


@pytest.mark.parametrize("error", [KeyboardInterrupt, OSError])
@pytest.mark.parametrize("existing", [False, True])
def test_interrupted_writing_leaves_what_was_there(result, tmp_path, error, existing):
    if existing:
        result.save(tmp_path / "out")
        before = names(tmp_path / "out")

    def interrupt(directory):
        assert (directory / "result.json").exists()
        raise error

    with pytest.raises(error):
        result.save(tmp_path / "out", overwrite=True, add=interrupt)
    assert names(tmp_path) == (["out"] if existing else [])
    if existing:
        assert names(tmp_path / "out") == before


def test_unwritable_places_are_refused_before_computing(tmp_path):
    with pytest.raises(InputError, match="does not exist"):
        check_target(tmp_path / "missing" / "out")
    (tmp_path / "file").write_text("x")
    with pytest.raises(InputError, match="is not a directory"):
        check_target(tmp_path / "file" / "out")
    with pytest.raises(InputError, match="cannot be made in '/proc'"):
        check_target("/proc/out")
    check_target(tmp_path / "out")
    assert names(tmp_path) == ["file"]


def test_what_is_no_whole_result_is_refused(result, tmp_path):
    with pytest.raises(InputError, match="no such directory"):
        load_result(tmp_path / "missing")
    with pytest.raises(InputError, match=r"holds no result\.json"):
        load_result(tmp_path)
    path = result.save(tmp_path / "out")
    (path / "rho.npy").write_bytes((path / "rho.npy").read_bytes()[:-3])
    with pytest.raises(InputError, match=r"rho\.npy' is missing or damaged"):
        load_result(path)
    (path / "result.json").write_text('{"format": "mgcl')
    with pytest.raises(InputError, match="cannot be read"):
        load_result(path)
    (path / "result.json").write_text("{}")
    with pytest.raises(InputError, match="not written by mgclust"):
        load_result(path)


def test_an_object_array_is_never_unpickled(result, tmp_path):
    path = result.save(tmp_path / "out")
    np.save(path / "rho.npy", np.array([{}, {}, {}, {}]), allow_pickle=True)
    with pytest.raises(InputError, match="damaged"):
        load_result(path)


def test_a_result_without_labels(tmp_path):
    result = Result("silhouette", arrays={"samples": np.ones(3)}, scores={"silhouette": 1.0})
    assert load_result(result.save(tmp_path / "out")).labels is None
    assert len(result.cluster_sizes) == 0


def test_many_rows_in_labels_csv(tmp_path):
    labels = np.arange(70_000) % 7
    path = Result("m", labels=labels).save(tmp_path / "out")
    table = np.loadtxt(path / "labels.csv", delimiter=",", skiprows=1, dtype=int)
    np.testing.assert_array_equal(table[:, 0], np.arange(70_000))
    np.testing.assert_array_equal(table[:, 1], labels)


def deferred(write=None):
    """A result with an array of 10 x 3 that is written when it is saved; row i holds i."""

    def by_blocks(path):
        array = zarr.create_array(path, shape=(10, 3), chunks=(4, 3), dtype="float32")
        for start in range(0, 10, 4):
            array[start : start + 4] = np.arange(10)[start : start + 4, None].repeat(3, axis=1)

    array = Deferred((10, 3), np.dtype("float32"), write or by_blocks)
    return Result("m", labels=np.zeros(10, np.int32), arrays={"memberships": array, "rho": np.ones(10)})


def test_a_deferred_array_is_written_on_saving_and_opened_lazily(tmp_path):
    path = deferred().save(tmp_path / "out")
    assert names(path) == ["labels.csv", "labels.npy", "memberships.zarr", "result.json", "rho.npy"]
    entry = json.loads((path / "result.json").read_text())["arrays"]["memberships"]
    assert entry == {"file": "memberships.zarr", "shape": [10, 3], "dtype": "float32"}
    array = load_result(path).arrays["memberships"]
    assert isinstance(array, zarr.Array) and array.shape == (10, 3)
    np.testing.assert_array_equal(array[6:9], [[6] * 3, [7] * 3, [8] * 3])


def test_a_result_that_was_loaded_can_be_saved_again(tmp_path):
    again = load_result(deferred().save(tmp_path / "out")).save(tmp_path / "copy")
    array = load_result(again).arrays["memberships"]
    assert isinstance(array, zarr.Array) and array.chunks == (4, 3)
    np.testing.assert_array_equal(array[:, 1], np.arange(10))


def test_nothing_is_left_where_a_deferred_array_cannot_be_written(tmp_path):
    def interrupt(path):
        zarr.create_array(path, shape=(10, 3), dtype="float32")
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        deferred(interrupt).save(tmp_path / "out")
    assert names(tmp_path) == []


def test_a_damaged_zarr_array_is_refused(tmp_path):
    path = deferred().save(tmp_path / "out")
    index = path / "memberships.zarr" / "zarr.json"
    whole = index.read_text()
    for text in ("{", "{}", whole.replace("10", "11")):
        index.write_text(text)
        with pytest.raises(InputError, match=r"memberships\.zarr' .*run the job again"):
            load_result(path)
    index.unlink()
    with pytest.raises(InputError, match=r"memberships\.zarr' is missing or damaged"):
        load_result(path)


def test_without_zarr_the_remedy_is_told(tmp_path, monkeypatch):
    path = deferred().save(tmp_path / "out")
    monkeypatch.setitem(sys.modules, "zarr", None)
    with pytest.raises(InputError, match="install zarr"):
        load_result(path)


@pytest.mark.parametrize(
    "array",
    [
        np.arange(12).reshape(3, 4),
        np.asfortranarray(np.arange(12.0).reshape(3, 4)),
        np.arange(24).reshape(4, 6)[::2, ::3],
        np.zeros((0, 3), np.float32),
        np.array(7),
        np.array(["a", "bc"]),
        np.arange(3, dtype=">i4"),
        np.array([True, False]),
    ],
)
def test_npy_files_are_numpys(array, tmp_path):
    write_npy(tmp_path / "ours.npy", array)
    np.save(tmp_path / "numpys.npy", array)
    assert (tmp_path / "ours.npy").read_bytes() == (tmp_path / "numpys.npy").read_bytes()


def test_a_full_disk_says_so(tmp_path):
    with pytest.raises(OSError) as caught:
        write_npy(Path("/dev/full"), np.zeros(100_000))
    assert caught.value.errno == errno.ENOSPC


def test_a_result_prints_as_a_few_lines(result):
    assert repr(result).splitlines() == [
        "Result of density-peaks of 4 x 2",
        "  scores: n_clusters=2, dc=0.5",
        "  arrays: rho, halo, centers",
        "  warning: a sentence.",
    ]
    assert repr(Result("canopy")) == "Result of canopy"
