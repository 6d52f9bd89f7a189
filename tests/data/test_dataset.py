"""Every source of rows: the same rows back from each, lazily, and a sentence for what cannot be read."""

import contextlib
import gzip
import hashlib
import io
import os
import pickle
import shutil
import subprocess
import sys
import tempfile
import tracemalloc
import zipfile
from pathlib import Path

import dask.array as da
import dask.dataframe as dd
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet
import pytest
import zarr
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from mgclust.base.errors import InputError, RunFailed
from mgclust.data import Dataset, open_dataset, samples
from mgclust.data.readers import tables

X = np.random.default_rng(0).normal(size=(257, 3)).astype(np.float32)
Y = np.arange(257) % 5


def write_npy(folder, x):
    np.save(folder / "x.npy", x)
    return folder / "x.npy"


def write_fortran(folder, x):
    np.save(folder / "f.npy", np.asfortranarray(x))
    return folder / "f.npy"


def write_swapped(folder, x):
    np.save(folder / "s.npy", x.astype(x.dtype.newbyteorder(">")))
    return folder / "s.npy"


def write_npz(folder, x):
    np.savez(folder / "x.npz", X=x, other=x[:3])
    return folder / "x.npz"


def write_compressed(folder, x):
    np.savez_compressed(folder / "c.npz", anything=x)
    return folder / "c.npz"


def write_csv(folder, x, name="x.csv", delimiter=",", header=True):
    lines = [delimiter.join(f"f{j}" for j in range(x.shape[1]))] if header else []
    lines += [delimiter.join(map(repr, row)) for row in x.tolist()]
    (folder / name).write_text("\n".join(lines) + "\n")
    return folder / name


def write_tsv(folder, x):
    return write_csv(folder, x, "x.tsv", "\t", header=False)


def write_parquet(folder, x):
    table = pa.table({f"f{j}": x[:, j] for j in range(x.shape[1])})
    pa.parquet.write_table(table, folder / "x.parquet", row_group_size=50)
    return folder / "x.parquet"


def write_zarr(folder, x):
    zarr.create_array(str(folder / "x.zarr"), data=x, chunks=(50, 2))
    return folder / "x.zarr"


WRITERS = [
    write_npy,
    write_fortran,
    write_swapped,
    write_npz,
    write_compressed,
    write_csv,
    write_tsv,
    write_parquet,
    write_zarr,
]


class Cuda(np.ndarray):
    """Enough of CuPy's array for a host without a GPU."""

    @property
    def __cuda_array_interface__(self):
        return self.__array_interface__

    def get(self):
        return np.array(self)


def on_device(x):
    return x.view(Cuda)


def refusal(source, **options):
    with pytest.raises(InputError) as caught:
        open_dataset(source, **options)
    return str(caught.value)


# --- what all sources have in common


@pytest.mark.parametrize("write", WRITERS)
def test_files_give_the_rows_lazily_in_any_pieces(tmp_path, write):
    path = write(tmp_path, X)
    for source in (path, str(path)):
        dataset = open_dataset(source)
        assert dataset.shape == X.shape
        assert dataset.name == str(path)
        for start, stop in [(0, 257), (0, 1), (49, 51), (50, 100), (256, 257), (7, 7)]:
            rows = dataset.read(start, stop)
            assert rows.dtype == dataset.dtype
            assert rows.flags.c_contiguous
            np.testing.assert_array_equal(rows, X[start:stop])
        with pytest.raises(InputError, match="0:257"):
            dataset.read(0, 258)


@pytest.mark.parametrize("write", WRITERS)
def test_files_pickle_as_a_path(tmp_path, write):
    dataset = open_dataset(write(tmp_path, np.repeat(X, 40, axis=0)))
    dataset.read(0, 10)
    blob = pickle.dumps(dataset)
    assert len(blob) < 3000
    again = pickle.loads(blob)
    assert (again.shape, again.dtype, again.describe()) == (dataset.shape, dataset.dtype, dataset.describe())
    np.testing.assert_array_equal(again.read(100, 200), dataset.read(100, 200))
    assert again.fingerprint() == dataset.fingerprint()


@pytest.mark.parametrize("write", WRITERS)
def test_a_file_that_vanished_is_a_sentence(tmp_path, write):
    path = write(tmp_path, X)
    dataset = pickle.loads(pickle.dumps(open_dataset(path)))
    shutil.rmtree(path) if path.is_dir() else path.unlink()
    with pytest.raises(InputError, match="does not exist"):
        dataset.read(0, 1)
    with pytest.raises(InputError, match="does not exist"):
        dataset.fingerprint()


@pytest.mark.parametrize("write", [w for w in WRITERS if w is not write_zarr])
@pytest.mark.parametrize("longer", [False, True])
def test_a_file_that_changed_is_a_sentence(tmp_path, write, longer):
    path = write(tmp_path, X)
    dataset = pickle.loads(pickle.dumps(open_dataset(path)))
    write(tmp_path, np.vstack([X, X]) if longer else X[::-1])
    os.utime(path, ns=(1, 1))
    with pytest.raises(InputError, match="changed since"):
        dataset.read(0, 1)


@pytest.mark.parametrize("write", WRITERS)
def test_a_copy_with_another_time_is_the_same_file(tmp_path, write):
    path = write(tmp_path, X)
    dataset = pickle.loads(pickle.dumps(open_dataset(path)))
    os.utime(path, ns=(1, 1))
    np.testing.assert_array_equal(dataset.read(3, 5), X[3:5])


@pytest.mark.parametrize("write", [w for w in WRITERS if w not in (write_csv, write_tsv, write_zarr)])
def test_truncated_files_are_sentences(tmp_path, write):
    path = write(tmp_path, X)
    whole = path.read_bytes()
    for size in [0, 1, 5, 20, len(whole) // 2, len(whole) - 1]:
        path.write_bytes(whole[:size])
        message = refusal(path)
        assert str(path) in message
        assert len(message) < 400


def test_damage_inside_a_compressed_file_is_a_sentence(tmp_path):
    path = write_compressed(tmp_path, X)
    whole = bytearray(path.read_bytes())
    middle = len(whole) // 2
    whole[middle : middle + 50] = bytes(50)
    path.write_bytes(whole)
    with pytest.raises(InputError, match=r"damaged or truncated|cannot be read"):
        open_dataset(path).read(0, 257)


@given(
    x=hnp.arrays(
        st.sampled_from([np.float32, np.float64, np.int16, np.uint8, np.int64, np.bool_, np.float16, ">f8"]),
        hnp.array_shapes(min_dims=2, max_dims=2, max_side=9),
    ),
    data=st.data(),
)
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_all_binary_sources_agree(tmp_path, x, data):
    n = len(x)
    start = data.draw(st.integers(0, n))
    stop = data.draw(st.integers(start, n))
    expected = open_dataset(x)
    rows = expected.read(start, stop)
    assert expected.dtype in (np.float32, np.float64)
    np.testing.assert_array_equal(rows, x[start:stop].astype(expected.dtype))
    for write in (write_npy, write_fortran, write_npz, write_compressed):
        path = write(tmp_path, x)
        dataset = open_dataset(path)
        assert (dataset.shape, dataset.dtype) == (expected.shape, expected.dtype)
        np.testing.assert_array_equal(dataset.read(start, stop), rows)


# --- arrays


@pytest.mark.parametrize(
    "given_as, dtype",
    [
        ("float32", "float32"),
        ("float64", "float64"),
        ("float16", "float32"),
        ("int8", "float32"),
        ("uint16", "float32"),
        ("bool", "float32"),
        ("int32", "float64"),
        ("uint64", "float64"),
        ("longdouble", "float64"),
        (">f4", "float32"),
    ],
)
def test_numbers_become_float32_or_float64(given_as, dtype):
    dataset = open_dataset(np.arange(6).reshape(3, 2).astype(given_as))
    assert dataset.dtype == dtype
    rows = dataset.read(1, 3)
    assert rows.dtype == np.dtype(dtype)
    assert rows.dtype.isnative


def test_float_arrays_are_not_copied():
    assert np.shares_memory(open_dataset(X).read(3, 9), X)
    assert open_dataset(X.T.copy().T).read(3, 9).flags.c_contiguous


def test_lists_objects_and_masked_arrays():
    np.testing.assert_array_equal(open_dataset([[1, 2], [3, 4]]).read(0, 2), [[1, 2], [3, 4]])
    assert open_dataset(X.astype(object)).dtype == np.float64
    masked = np.ma.masked_array([[1, 2], [3, 4]], mask=[[0, 1], [0, 0]])
    np.testing.assert_array_equal(open_dataset(masked).read(0, 2), [[1, np.nan], [3, 4]])


def test_read_only_arrays(tmp_path):
    x = X.copy()
    x.flags.writeable = False
    np.testing.assert_array_equal(open_dataset(x).read(0, 257), X)


@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("part", [np.s_[:], np.s_[5:], np.s_[100:200], np.s_[::2], np.s_[:, :2], np.s_[7:8]])
def test_memory_maps_pickle_as_a_path_where_they_can(tmp_path, order, part):
    big = np.repeat(X, 30, axis=0)
    np.save(tmp_path / "x.npy", np.asarray(big, order=order))
    mapped = np.load(tmp_path / "x.npy", mmap_mode="r")
    dataset = pickle.loads(pickle.dumps(open_dataset(mapped[part])))
    n = dataset.shape[0]
    np.testing.assert_array_equal(dataset.read(0, n), big[part])
    assert dataset.fingerprint() == open_dataset(big[part]).fingerprint()
    if order == "C" and part in (np.s_[:], np.s_[5:], np.s_[100:200]):
        assert len(pickle.dumps(open_dataset(mapped[part]))) < 3000


def test_a_map_of_a_file_that_was_replaced_keeps_its_own_rows(tmp_path):
    np.save(tmp_path / "x.npy", X)
    mapped = np.load(tmp_path / "x.npy", mmap_mode="r")
    np.save(tmp_path / "new.npy", X + 1)
    os.replace(tmp_path / "new.npy", tmp_path / "x.npy")
    np.testing.assert_array_equal(open_dataset(mapped).read(0, 257), X)


def test_private_maps_keep_their_changes(tmp_path):
    np.save(tmp_path / "x.npy", X)
    mapped = np.load(tmp_path / "x.npy", mmap_mode="c")
    mapped[0] = 9
    np.testing.assert_array_equal(open_dataset(mapped).read(0, 1), [[9, 9, 9]])


def test_device_arrays_stay_on_the_device():
    dataset = open_dataset(on_device(X))
    assert dataset.kind == "cuda array"
    rows = dataset.read(2, 5)
    assert isinstance(rows, Cuda)
    np.testing.assert_array_equal(np.asarray(rows), X[2:5])
    assert dataset.fingerprint() == open_dataset(X).fingerprint()
    integers = open_dataset(on_device(Y.reshape(-1, 1)))
    assert integers.read(0, 3).dtype == integers.dtype == np.float64
    assert "1-dimensional" in refusal(on_device(Y))


def test_other_cuda_arrays_are_told_how_to_come_in():
    class Foreign:
        @property
        def __cuda_array_interface__(self):
            return {"shape": (2, 2), "typestr": "<f4"}

    assert "cupy.asarray" in refusal(Foreign())


def test_dask_arrays_keep_their_chunks():
    da = pytest.importorskip("dask.array")
    array = da.from_array(X, chunks=(100, 2))
    dataset = open_dataset(array)
    assert dataset.dask_array.chunks == ((100, 100, 57), (3,))
    rows = dataset.read(90, 210)
    assert rows.flags.c_contiguous
    np.testing.assert_array_equal(rows, X[90:210])
    assert dataset.fingerprint() == open_dataset(X).fingerprint()
    assert open_dataset(X).dask_array is None
    integers = open_dataset(da.from_array(Y.reshape(-1, 1)))
    assert integers.dask_array.dtype == integers.dtype == np.float64
    assert "compute_chunk_sizes" in refusal(array[array[:, 0] > 0])
    assert "Reshape your data" in refusal(array[:, 0])


def test_masked_and_sparse_chunks_of_dask_arrays():
    """What is masked is missing, and not the number underneath; where Dask says what chunks are, and where not."""
    da = pytest.importorskip("dask.array")
    sparse = pytest.importorskip("scipy.sparse")
    x = np.arange(12.0).reshape(6, 2)
    holes = np.where(x == 5, np.nan, x)
    given = {
        "masked": (lambda b: np.ma.masked_equal(b, 5), holes),
        "integers": (lambda b: np.ma.masked_equal(b.astype(np.int64), 5), holes),
        "sparse": (sparse.csr_array, x),
    }
    for name, (made, expected) in given.items():
        for meta in (None, np.empty((0, 0))):
            kind = np.int64 if name == "integers" and meta is None else np.float64
            dataset = open_dataset(da.from_array(x, chunks=(4, 2)).map_blocks(made, dtype=kind, meta=meta))
            np.testing.assert_array_equal(dataset.read(0, 6), expected, err_msg=name)
            np.testing.assert_array_equal(dataset.take([5, 2]), expected[[5, 2]], err_msg=name)
            if meta is None:
                assert dataset.fingerprint() == open_dataset(da.from_array(expected, chunks=(4, 2))).fingerprint()


def test_the_fingerprint_is_of_shape_type_and_rows():
    large = np.random.default_rng(1).normal(size=(3, 2**21))  # more than one digest block
    da = pytest.importorskip("dask.array")
    prints = [
        open_dataset(x).fingerprint()
        for x in (X, X.astype(float), X.reshape(3, 257), X[::-1], large, large * [[1], [1], [2]])
    ]
    assert len(set(prints)) == len(prints)
    assert all(len(p) == 64 for p in prints)
    chunked = da.from_array(large, chunks=(2, 2**20))
    assert open_dataset(chunked).fingerprint() == prints[4]
    assert open_dataset(np.asfortranarray(X)).fingerprint() == prints[0]


def test_the_fingerprint_of_a_file_is_of_its_bytes(tmp_path):
    import hashlib

    path = write_npz(tmp_path, X)
    assert open_dataset(path).fingerprint() == hashlib.sha256(path.read_bytes()).hexdigest()


@pytest.mark.parametrize(
    "source, phrase",
    [
        (np.zeros(5), "Reshape your data"),
        (np.zeros((2, 3, 4)), "X.reshape(len(X), -1)"),
        (np.float64(3), "is a single value"),
        (np.zeros((4, 0)), "0 feature(s) (shape=(4, 0)) while a minimum of 1 is required"),
        (np.zeros((0, 4)), "0 sample(s) (shape=(0, 4)) while a minimum of 1 is required"),
        (np.zeros((2, 2), complex), "Complex data not supported"),
        (np.zeros((2, 2), "M8[s]"), "dates"),
        (np.zeros((2, 2), [("a", "f4")]), "records"),
        ([["a", "b"], ["c", "d"]], "text"),
        ([[1, 2], [3]], "array of rows x features"),
        (np.array([["1.5", "x"]], object), "could not convert string to float"),
        (None, "NoneType"),
        ({"a": 1}, "dict"),
        ((row for row in X), "generator"),
        (b"x.npy", "bytes"),
    ],
)
def test_what_is_no_table_of_numbers(source, phrase):
    assert phrase in refusal(source)


def test_objects_in_cells_are_a_type_error_too():
    x = X.astype(object)
    x[0, 0] = {"foo": "bar"}
    with pytest.raises(TypeError, match=r"argument must be .* string.* number"):
        open_dataset(x)


# --- tables in memory


def test_pandas():
    pd = pytest.importorskip("pandas")
    frame = pd.DataFrame({"a": [1.5, 2.5], "b": [1, 2], "c": ["x", "y"]}, index=[7, 8])
    dataset = open_dataset(frame[["a", "b"]])
    np.testing.assert_array_equal(dataset.read(0, 2), [[1.5, 1], [2.5, 2]])
    np.testing.assert_array_equal(open_dataset(frame, columns=["b"]).read(0, 2), [[1], [2]])
    np.testing.assert_array_equal(open_dataset(frame, columns=[1, 0]).read(0, 2), [[1, 1.5], [2, 2.5]])
    missing = pd.DataFrame({"a": pd.array([1, None], "Int64"), "b": [1.0, 2.0]})
    np.testing.assert_array_equal(open_dataset(missing).read(0, 2), [[1, 1], [np.nan, 2]])
    message = refusal(frame)
    assert "column 'c'" in message
    assert "columns=[...]" in message
    assert "not a column" in refusal(frame, columns=["z"])
    assert "give one of 'a', 'b', 'c', or a position from 0 to 2" in refusal(frame, columns=[3])
    assert "at least one" in refusal(frame, columns=[])
    assert "0 sample(s)" in refusal(frame[:0][["a", "b"]])
    assert "Reshape" in refusal(frame["a"])


def test_pyarrow_tables():
    table = pa.table({"a": [1, 2, None], "b": [1.0, 2.0, 3.0], "c": ["x", "y", "z"]})
    dataset = open_dataset(table, columns=["b", "a"])
    np.testing.assert_array_equal(dataset.read(0, 3), [[1, 1], [2, 2], [3, np.nan]])
    assert "column 'c'" in refusal(table)


def test_columns_and_delimiter_are_refused_where_they_mean_nothing(tmp_path):
    assert "columns and index apply to tables" in refusal(X, columns=[0])
    assert "columns and index" in refusal(write_npy(tmp_path, X), columns=[0])
    assert "header=True" in refusal(X, header=True)
    assert "index apply" in refusal(write_npy(tmp_path, X), index=False)
    assert "delimiter=','" in refusal(X, delimiter=",")
    assert "one character" in refusal(write_csv(tmp_path, X), delimiter=",,")


# --- .npy and .npz


def test_labels_come_from_y(tmp_path):
    for save in (np.savez, np.savez_compressed):
        save(tmp_path / "x.npz", X=X, y=Y)
        dataset = pickle.loads(pickle.dumps(open_dataset(tmp_path / "x.npz")))
        np.testing.assert_array_equal(dataset.labels, Y)
        assert dataset.describe()["labels"]
        for wrong in (Y[:5], np.stack([Y, Y]), np.array(3)):
            save(tmp_path / "x.npz", X=X, y=wrong)
            assert f"{len(X)} rows and a y of shape {wrong.shape}; give one label per row" in refusal(
                tmp_path / "x.npz"
            )
        save(tmp_path / "x.npz", X=X, y=Y.astype(object))
        assert open_dataset(tmp_path / "x.npz").labels is None
    assert open_dataset(X).labels is None


def test_npz_without_one_clear_array(tmp_path):
    np.savez(tmp_path / "x.npz", a=X, b=X)
    assert "2 arrays (a, b)" in refusal(tmp_path / "x.npz")
    np.savez(tmp_path / "x.npz", y=Y)
    assert "0 arrays (none)" in refusal(tmp_path / "x.npz")
    np.savez(tmp_path / "x.npz", data=X, y=Y)
    assert open_dataset(tmp_path / "x.npz").shape == X.shape


def test_an_uncompressed_npz_is_not_loaded(tmp_path):
    path = write_npz(tmp_path, X)
    dataset = open_dataset(path)
    assert dataset._opened is None
    dataset.read(0, 100)
    assert dataset._opened is None


def test_pickles_are_refused_and_never_loaded(tmp_path):
    class Bomb:
        def __reduce__(self):
            return (os.mkdir, (str(tmp_path / "exploded"),))

    array = np.array([[Bomb(), 1]], dtype=object)
    np.save(tmp_path / "x.npy", array, allow_pickle=True)
    np.savez(tmp_path / "x.npz", X=array)
    np.savez(tmp_path / "y.npz", X=X, y=np.array([Bomb()] * len(X), dtype=object))
    (tmp_path / "plain.npy").write_bytes(pickle.dumps([[1.0]]))
    assert "pickle" in refusal(tmp_path / "x.npy")
    assert "pickle" in refusal(tmp_path / "x.npz")
    assert "not a whole .npy array" in refusal(tmp_path / "plain.npy")
    assert open_dataset(tmp_path / "y.npz").labels is None
    assert not (tmp_path / "exploded").exists()


def test_zip_members_with_extra_bytes_before_them(tmp_path):
    buffer = io.BytesIO()
    np.save(buffer, X)
    with zipfile.ZipFile(tmp_path / "x.npz", "w") as archive:
        archive.writestr("a/readme", b"x" * 77)
        archive.writestr("X.npy", buffer.getvalue())
    np.testing.assert_array_equal(open_dataset(tmp_path / "x.npz").read(1, 4), X[1:4])


@pytest.mark.parametrize("shape", [(5,), (2, 3, 4), (), (4, 0), (0, 4)])
def test_npy_of_another_shape(tmp_path, shape):
    message = refusal(write_npy(tmp_path, np.zeros(shape)))
    assert any(words in message for words in ("Reshape", "reshape", "minimum of 1", "single value"))


# --- text


def text(folder, content, name="x.csv"):
    (folder / name).write_bytes(content if isinstance(content, bytes) else content.encode())
    return folder / name


@pytest.mark.parametrize(
    "content, rows",
    [
        ("a,b\n1,2\n3,4\n", [[1, 2], [3, 4]]),
        ("1,2\n3,4\n", [[1, 2], [3, 4]]),
        ("1,2\n3,4", [[1, 2], [3, 4]]),
        ("\n\na,b\r\n1,2\r\n\r\n3,4\r\n", [[1, 2], [3, 4]]),
        ("\ufeffa,b\n1,2\n", [[1, 2]]),
        ("a;b\n1;2\n", [[1, 2]]),
        ("a\tb\n1\t2\n", [[1, 2]]),
        ("1|2\n", [[1, 2]]),
        ("x\n1\n2\n", [[1], [2]]),
        ('"a, b",c\n"1",2\n', [[1, 2]]),
        ("a,b\n1,\nNA,-1e-3\n", [[1, np.nan], [np.nan, -1e-3]]),
        ("nan,inf\n1,-inf\n", [[np.nan, np.inf], [1, -np.inf]]),
        ("# x, y\n 1, 2\n", [[1, 2]]),
    ],
)
def test_csv(tmp_path, content, rows):
    dataset = open_dataset(text(tmp_path, content))
    assert dataset.dtype == np.float64
    np.testing.assert_array_equal(dataset.read(0, dataset.shape[0]), rows)


def test_csv_columns(tmp_path):
    path = text(tmp_path, "name,a,b\nx,1,2\ny,3,4\n")
    dataset = open_dataset(path, columns=["b", "a"])
    np.testing.assert_array_equal(dataset.read(0, 2), [[2, 1], [4, 3]])
    assert dataset.describe()["columns"] == ["b", "a"]
    np.testing.assert_array_equal(open_dataset(path, columns=[1]).read(0, 2), [[1], [3]])
    np.testing.assert_array_equal(open_dataset(path, columns="a").read(0, 2), [[1], [3]])
    assert "'name', 'a', 'b'" in refusal(path, columns=["c"])


def test_csv_delimiter(tmp_path):
    path = text(tmp_path, "1:2\n3:4\n")
    np.testing.assert_array_equal(open_dataset(path, delimiter=":").read(0, 2), [[1, 2], [3, 4]])


@pytest.mark.parametrize(
    "content, phrase",
    [
        ("a,b\n1,2\n3,x\n", "line 3, column 2 (b): 'x' is not a number; fix it, or delete the line."),
        ("a,b\n1,2\nx,3\n", "line 3, column 1 (a): 'x' is not a number; fix it, or delete the line."),
        ("1,2\n3,1_0\n", "line 2, column 2 (column 2): '1_0' is not a number"),
        ("\n\n1,2\n\n3,4 m\n", "line 5, column 2 (column 2): '4 m' is not a number"),
        ("a,b\n1,2\n3\n", "line 3 has 1 fields, but the first line has 2"),
        ("a,b\n1,2,3\n", "line 2 has 3 fields"),
        ("1,x\n2,3\n", "line 1, column 2 (column 2): 'x' is not a number; fix it, or choose numeric columns"),
        ("", "is empty"),
        ("\n\n", "is empty"),
        ("a,b\n", "0 sample(s)"),
        (b"\xff\xfe1\x00,\x002\x00", "UTF-8"),
        (b"caf\xe9,b\n1,2\n", "UTF-8"),
        (b"a,b\n1,caf\xe9\n", "line 2, column 2 (b)"),
        (b"\x89PNG\r\n\x1a\n\x00\x00", "UTF-8"),
    ],
)
def test_csv_that_cannot_be_read(tmp_path, content, phrase):
    assert phrase in refusal(text(tmp_path, content))


def test_csv_larger_than_one_block_and_a_fault_at_its_end(tmp_path):
    lines = ["a,b"] + [f"{i},{i}.5" for i in range(700_000)]
    path = text(tmp_path, "\n".join(lines))
    dataset = open_dataset(path, index=False)
    np.testing.assert_array_equal(dataset.read(699_999, 700_000), [[699_999, 699_999.5]])
    lines[-1] = "1,oops"
    assert "line 700001, column 2 (b): 'oops'" in refusal(text(tmp_path, "\n".join(lines)))


def test_csv_with_very_long_lines(tmp_path):
    field = "0." + "5" * 10_000  # 1,000 of them are more than a block
    dataset = open_dataset(text(tmp_path, "\n".join([",".join([field] * 1000)] * 2)))
    np.testing.assert_array_equal(dataset.read(0, 2), np.full((2, 1000), 5 / 9))


# --- Parquet and zarr


def test_parquet_columns_index_and_types(tmp_path):
    pd = pytest.importorskip("pandas")
    frame = pd.DataFrame({"a": [1, 2], "b": [True, False], "c": ["x", "y"]}, index=pd.Index([5, 6], name="id"))
    frame.to_parquet(tmp_path / "x.parquet")
    dataset = open_dataset(tmp_path / "x.parquet", columns=["b", "a"])
    np.testing.assert_array_equal(dataset.read(0, 2), [[1, 1], [0, 2]])
    assert dataset.describe()["columns"] == ["b", "a"]
    message = refusal(tmp_path / "x.parquet")
    assert "column 'c' holds" in message
    assert "'a', 'b', 'c', or a position" in refusal(tmp_path / "x.parquet", columns=["id"])
    narrow = pa.table({"a": pa.array([1, 2], pa.int8()), "b": pa.array([None, 2], pa.float32())})
    pa.parquet.write_table(narrow, tmp_path / "n.parquet")
    np.testing.assert_array_equal(open_dataset(tmp_path / "n.parquet").read(0, 2), [[1, np.nan], [2, 2]])
    assert open_dataset(tmp_path / "n.parquet").dtype == np.float32


def test_parquet_without_rows_or_columns(tmp_path):
    pa.parquet.write_table(pa.table({"a": pa.array([], pa.float32())}), tmp_path / "x.parquet")
    assert "0 sample(s)" in refusal(tmp_path / "x.parquet")
    pa.parquet.write_table(pa.table({}), tmp_path / "x.parquet")
    assert "0 feature(s)" in refusal(tmp_path / "x.parquet") or "column" in refusal(tmp_path / "x.parquet")


def test_zarr_groups(tmp_path):
    group = zarr.open_group(str(tmp_path / "g.zarr"), mode="w")
    group.create_array("X", data=X)
    group.create_array("other", data=X[:, :1])
    assert open_dataset(tmp_path / "g.zarr").shape == X.shape
    assert open_dataset(tmp_path / "g.zarr" / "other").shape == (257, 1)
    two = zarr.open_group(str(tmp_path / "two.zarr"), mode="w")
    two.create_array("a", data=X)
    two.create_array("b", data=X)
    assert "2 arrays (a, b)" in refusal(tmp_path / "two.zarr")
    zarr.create_array(str(tmp_path / "flat.zarr"), data=X[:, 0])
    assert "Reshape your data" in refusal(tmp_path / "flat.zarr")


def test_a_damaged_zarr_is_a_sentence(tmp_path):
    path = write_zarr(tmp_path, X)
    (path / "zarr.json").write_text("{")
    assert str(path) in refusal(path)
    (tmp_path / "empty.zarr").mkdir()
    assert "holds no zarr array" in refusal(tmp_path / "empty.zarr")


# --- paths and URLs


@pytest.mark.parametrize("suffix", ["npy", "npz", "csv", "tsv", "parquet", "zarr", "foo"])
def test_a_path_that_does_not_exist(tmp_path, suffix):
    assert "does not exist" in refusal(tmp_path / f"none.{suffix}")


@pytest.mark.parametrize("suffix", ["npy", "npz", "csv", "parquet"])
def test_directories_are_refused(tmp_path, suffix):
    (tmp_path / f"d.{suffix}").mkdir()
    assert "is a directory" in refusal(tmp_path / f"d.{suffix}")
    assert "is a directory" in refusal(tmp_path)


@contextlib.contextmanager
def without_privileges():
    """Root may read everything: it has the rights of another user for as long as this lasts."""
    user = os.geteuid()
    try:
        if user == 0:
            os.seteuid(65534)
        yield
    finally:
        os.seteuid(user)


def test_no_permission():
    with tempfile.TemporaryDirectory() as folder:  # others may not enter tmp_path
        os.chmod(folder, 0o755)
        path = write_npy(Path(folder), X)
        path.chmod(0o644)  # whatever this process permits for new files
        with without_privileges():
            assert open_dataset(path).shape == X.shape
        path.chmod(0)
        with without_privileges():
            assert "permission" in refusal(path)


@pytest.mark.parametrize("name", ["x.pkl", "x.mat", "x", "x.h5"])
def test_other_formats_are_told_what_is_read(tmp_path, name):
    message = refusal(text(tmp_path, "1,2", name))
    assert ".npy, .npz, .csv" in message


def test_options_of_volumes_are_refused_for_tables():
    assert "mask=... applies to BOLD series" in refusal(X, mask="mask.nii")
    assert "constant=... applies to BOLD series" in refusal(X, constant="drop")


def test_relative_paths_are_found_from_elsewhere(tmp_path, monkeypatch):
    write_npy(tmp_path, X)
    monkeypatch.chdir(tmp_path)
    dataset = open_dataset("x.npy")
    monkeypatch.chdir("/")
    np.testing.assert_array_equal(dataset.read(0, 2), X[:2])
    assert dataset.name == "x.npy"


@pytest.mark.parametrize("write", WRITERS)
def test_file_urls(tmp_path, write):
    dataset = open_dataset(write(tmp_path, X).as_uri())
    np.testing.assert_array_equal(dataset.read(5, 9), X[5:9])


@pytest.mark.parametrize("write", [w for w in WRITERS if w is not write_zarr])
def test_urls_through_fsspec(tmp_path, write):
    fsspec = pytest.importorskip("fsspec")
    path = write(tmp_path, X)
    url = f"memory://mgclust/{path.name}"
    with fsspec.open(url, "wb") as file:
        file.write(path.read_bytes())
    dataset = pickle.loads(pickle.dumps(open_dataset(url)))
    np.testing.assert_array_equal(dataset.read(5, 9), X[5:9])
    assert dataset.fingerprint() == open_dataset(path).fingerprint()
    assert "does not exist" in refusal("memory://mgclust/none" + path.suffix)


def test_zarr_through_fsspec(tmp_path):
    url = "memory://mgclust/x.zarr"
    zarr.create_array(url, data=X, chunks=(50, 3))
    dataset = pickle.loads(pickle.dumps(open_dataset(url)))
    np.testing.assert_array_equal(dataset.read(5, 99), X[5:99])


def test_an_unknown_protocol():
    assert "nowhere://x.npy" in refusal("nowhere://x.npy")
    assert "'' should be a path" in refusal("")


# --- rows that are standardised


@pytest.mark.parametrize("as_source", [np.asarray, on_device])
def test_zscore_of_each_row(as_source):
    dataset = open_dataset(as_source(X * 100 + 1e4), standardize="zscore")
    rows = np.asarray(dataset.read(0, 257))
    assert rows.dtype == np.float64
    np.testing.assert_allclose(rows.mean(axis=1), 0, atol=1e-12)
    np.testing.assert_allclose(rows.std(axis=1), 1, rtol=1e-12)
    assert dataset.describe()["standardize"] == "zscore"
    assert dataset.fingerprint() == open_dataset(as_source(X * 100 + 1e4)).fingerprint()


def test_detrend():
    time = np.arange(50.0)
    noise = np.random.default_rng(3).normal(size=(4, 50))
    x = noise + 1e3 + np.array([[1.0], [2], [-3], [0]]) * time
    rows = open_dataset(x, detrend=True).read(0, 4)
    expected = [y - np.polyval(np.polyfit(time, y, 1), time) for y in x]
    np.testing.assert_allclose(rows, expected, atol=1e-9)
    both = open_dataset(x, detrend=True, standardize="zscore").read(0, 4)
    np.testing.assert_allclose(both, rows / rows.std(axis=1, keepdims=True), atol=1e-12)
    assert "n_features=2" in refusal(X[:, :2], detrend=True)


@given(
    x=hnp.arrays(np.float32, st.tuples(st.integers(2, 30), st.just(4)), elements=st.floats(-10, 10, width=32)),
    split=st.integers(1, 29),
)
@settings(deadline=None)
def test_a_row_does_not_depend_on_its_neighbours(x, split):
    x[:, 0] = 100  # never constant
    dataset = open_dataset(x, standardize="zscore", detrend=True)
    split = min(split, len(x))
    try:
        whole = dataset.read(0, len(x))
    except InputError:
        return  # a straight line has nothing left
    parts = np.vstack([dataset.read(0, split), dataset.read(split, len(x))])
    assert whole.tobytes() == parts.tobytes()


@pytest.mark.parametrize("value", [0, 1, 0.1, 1e8, -1e-30])
def test_constant_rows_are_refused_with_count_and_first(value):
    x = X.astype(float)
    x[[9, 40, 200]] = value
    dataset = open_dataset(x, standardize="zscore")
    dataset.read(0, 9)
    with pytest.raises(InputError, match="3 of 257 rows are constant, the first is row 9"):
        dataset.read(30, 50)
    open_dataset(x, detrend=True).read(0, 257)


def test_rows_with_nan_stay_as_they_are():
    x = X.copy()
    x[3, 1] = np.nan
    x[4, 0] = np.inf
    rows = open_dataset(x, standardize="zscore").read(0, 257)
    assert np.isfinite(rows).sum() == rows.size - 2
    np.testing.assert_array_equal(rows[3:5], x[3:5])


def test_standardised_dask_arrays_stay_dask_arrays():
    da = pytest.importorskip("dask.array")
    dataset = open_dataset(da.from_array(X, chunks=(100, 2)), standardize="zscore")
    expected = open_dataset(X, standardize="zscore").read(0, 257)
    assert dataset.dask_array.chunks == ((100, 100, 57), (3,))
    np.testing.assert_array_equal(dataset.dask_array.compute(scheduler="sync"), expected)
    np.testing.assert_array_equal(dataset.read(0, 257), expected)
    flat = X.copy()
    flat[150] = 1
    bad = open_dataset(da.from_array(flat, chunks=(100, 3)), standardize="zscore")
    with pytest.raises(InputError, match="the first is row 150"):
        bad.dask_array.compute(scheduler="sync")


def test_standardised_files_pickle_as_a_path(tmp_path):
    np.savez(tmp_path / "x.npz", X=np.repeat(X, 40, axis=0), y=np.repeat(Y, 40))
    dataset = open_dataset(tmp_path / "x.npz", standardize="zscore")
    blob = pickle.dumps(dataset)
    assert len(blob) < 3000
    assert len(pickle.loads(blob).labels) == 40 * 257
    assert open_dataset(dataset) is dataset
    assert "should be 'zscore'" in refusal(X, standardize="minmax")


# --- samples and imports


@pytest.mark.parametrize(
    ("name", "shape", "classes"),
    [("pendigits", (10_992, 16), 10), ("localizer", (1983, 156), 0), ("lesmis", (254, 3), 0)],
)
def test_samples(name, shape, classes):
    dataset = samples.load(name)
    assert isinstance(dataset, Dataset)
    assert dataset.shape == shape
    assert dataset.name == name
    assert (0 if dataset.labels is None else len(np.unique(dataset.labels))) == classes
    if name == "localizer":  # detrended z-scores
        rows = dataset.read(0, shape[0])
        assert np.abs(rows.mean(axis=1)).max() < 1e-5 and np.abs(rows.std(axis=1) - 1).max() < 1e-5


def test_every_sample_file_has_its_origin_terms_and_hash():
    folder = samples.path("pendigits").parent
    said = (folder / "README.md").read_text()
    for file in folder.iterdir():
        if file.suffix in (".npz", ".gz"):
            assert f"`{file.name}`" in said
            assert hashlib.sha256(file.read_bytes()).hexdigest() in said, file.name
    for chapter in said.split("\n## ")[1:]:
        assert all(f"\n- {what}: " in chapter for what in ("Source", "Licence", "Citation")), chapter
    assert "AGPL" not in said and "research purposes" not in said


def test_an_unknown_sample():
    with pytest.raises(InputError, match="pendigits, localizer, lesmis"):
        samples.load("r16")
    with pytest.raises(InputError, match="name='lesmis' has no mask"):
        samples.mask_path("lesmis")


def test_nothing_heavy_is_imported_for_arrays_and_npy(tmp_path):
    path = write_npy(tmp_path, X)
    code = (
        "import sys; from mgclust.data import open_dataset; import numpy as np\n"
        f"open_dataset({str(path)!r}, standardize='zscore').read(0, 9); open_dataset(np.eye(3)).read(0, 3)\n"
        "heavy = {'dask', 'cupy', 'pyarrow', 'zarr', 'pandas', 'fsspec', 'scipy', 'sklearn', 'numba'}\n"
        "print(sorted(heavy & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.stdout.strip() == "[]", done.stderr


def test_take_reads_rows_in_any_order(tmp_path, monkeypatch):
    from mgclust.data import base

    X = np.arange(60.0).reshape(20, 3)
    np.savetxt(tmp_path / "x.csv", X, delimiter=",", header="a,b,c", comments="")
    indices = [17, 0, 3, 3, 19, 4]
    for numbers in (1, 12, 1 << 20):
        monkeypatch.setattr(base, "TAKE_NUMBERS", numbers)
        for source in (X, tmp_path / "x.csv"):
            np.testing.assert_array_equal(open_dataset(source).take(indices), X[indices])
            assert open_dataset(source).take([]).shape == (0, 3)


def test_dask_data_frames_are_read_as_those_of_pandas():
    """Columns of bool and of integers that may be missing made the whole an array of Python objects."""
    table = pd.DataFrame(
        {"a": [0.5, 1.5, 2.5, 3.5], "b": [True, False, True, True], "c": pd.array([1, None, 3, 4], "Int64")}
    )
    frame = dd.from_pandas(table, npartitions=2)
    np.testing.assert_array_equal(open_dataset(frame).read(0, 4), open_dataset(table).read(0, 4))
    for column in (["x", "y", "x", "z"], pd.Categorical([1, 2, 1, 2]), pd.date_range("2026-01-01", periods=4)):
        mixed = dd.from_pandas(table.assign(d=column), npartitions=2)
        with pytest.raises(InputError, match=r"column 'd' of the Dask DataFrame is of type .*, not numeric"):
            open_dataset(mixed)
        assert open_dataset(mixed, columns=["a", "b"]).shape == (4, 2)


def test_a_chunk_that_cannot_be_computed_is_one_sentence():
    def fail(block):
        raise ZeroDivisionError("by nothing")

    chunks = da.ones((6, 2), chunks=(3, 2)).map_blocks(fail, dtype=float, meta=np.empty((0, 0)))
    with pytest.raises(
        RunFailed, match="a chunk of the Dask array could not be computed: ZeroDivisionError: by nothing"
    ):
        open_dataset(chunks).read(0, 6)
    frames = da.ones((6, 2), chunks=(3, 2)).map_blocks(pd.DataFrame, dtype=float, meta=np.empty((0, 0)))
    with pytest.raises(RunFailed, match=r"could not be computed: .* X\.compute\(\) returns an array of numbers"):
        open_dataset(frames).read(1, 2)


def test_a_dask_series_is_no_rows():
    series = dd.from_pandas(pd.DataFrame({"a": np.zeros(20), "b": np.ones(20)}), npartitions=2).a
    with pytest.raises(InputError, match="is 1-dimensional"):
        open_dataset(series)


WIDE = np.random.default_rng(5).normal(size=(40_000, 16)).astype(np.float32)
TABLES = {
    "polars": lambda: pl.DataFrame(WIDE),
    "lazy": lambda: pl.DataFrame(WIDE).lazy(),
    "pyarrow": lambda: pa.table({f"c{j}": WIDE[:, j].copy() for j in range(16)}),
    "blocks": lambda: pd.concat([pd.DataFrame(WIDE[:, :8]), pd.DataFrame(WIDE[:, 8:])], axis=1),
    "types": lambda: pd.DataFrame(WIDE).astype({3: "float64"}),
}


@pytest.mark.parametrize("form", TABLES)
def test_a_table_in_memory_is_not_copied(form):
    """Opening it takes less than two columns, and reading some rows little more than these rows."""
    table = TABLES[form]()
    open_dataset(TABLES[form]())  # imports
    tracemalloc.start()
    try:
        dataset = open_dataset(table)
        opening = tracemalloc.get_traced_memory()[1]
        assert opening < 2 * 8 * len(WIDE), opening
        assert np.array_equal(dataset.read(39_000, 40_000), WIDE[39_000:])
        assert tracemalloc.get_traced_memory()[1] < opening + 2 * 8 * 1000 * 16
    finally:
        tracemalloc.stop()
    assert np.array_equal(dataset.read(0, 40_000), WIDE)


def test_columns_that_are_added_later_do_not_move_the_columns_of_a_dataset():
    frame = TABLES["types"]()
    dataset = open_dataset(frame)
    frame.insert(0, "label", 7)
    assert np.array_equal(dataset.read(0, 5), WIDE[:5])


def test_a_part_of_a_column_without_missing_values_has_the_type_of_the_column():
    table = pa.table({"a": pa.array([1, None, 3, 4], pa.int8()), "b": pa.array([1, 2, 3, 4], pa.int8())})
    dataset = open_dataset(table)
    found = [dataset.read(i, i + 1) for i in range(4)]
    assert {rows.dtype for rows in found} == {dataset.dtype}
    assert np.array_equal(np.concatenate(found), [[1, 1], [np.nan, 2], [3, 3], [4, 4]], equal_nan=True)


@pytest.mark.parametrize("suffix", ["", ".gz"])
@pytest.mark.parametrize("start", ["", "\ufeff", "\n\na,b,c\n", "\ufeffindex,a,b,c\n"])
def test_a_large_text_table_is_parsed_in_chunks(tmp_path, monkeypatch, start, suffix):
    """The rows are those of one chunk, in any order of reads; only one chunk is in memory at a time."""
    X = np.random.default_rng(6).normal(size=(3000, 3)).round(5)
    lines = [",".join([*([str(i)] if "index" in start else []), *map(str, row)]) for i, row in enumerate(X.tolist())]
    lines[1500:1500] = [""] * 300  # a chunk of blank lines
    path, opened = tmp_path / f"x.csv{suffix}", gzip.open if suffix else open
    with opened(path, "wt", encoding="utf-8") as file:
        file.write(start + "\n".join(lines))
    whole = open_dataset(path)
    monkeypatch.setattr(tables, "_CHUNK_BYTES", 256)
    monkeypatch.setattr(tables, "_KEPT_BYTES", 1000)
    dataset = open_dataset(path)
    assert np.array_equal(whole.read(0, 3000), X) and dataset.shape == (3000, 3)
    assert dataset.reading_bytes(3000) < 8 * 3000
    for first, last in [(0, 3000), (2990, 3000), (1400, 1600), (0, 1), (77, 78)]:
        assert np.array_equal(dataset.read(first, last), X[first:last])
    assert np.array_equal(pickle.loads(pickle.dumps(dataset)).read(100, 200), X[100:200])
    assert dataset.fingerprint() == whole.fingerprint() and dataset.warnings == whole.warnings
    lines[2500] = lines[2500].replace(".", "x", 1)
    with opened(path, "wt", encoding="utf-8") as file:
        file.write(start + "\n".join(lines))
    number = 2501 + start.count("\n")
    with pytest.raises(InputError, match=rf"line {number}, column . .* is not a number"):
        open_dataset(path)
