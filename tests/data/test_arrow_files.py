"""Tables in Parquet and Feather files, and columns of types that hold numbers in other ways."""

import decimal
import pickle

import dask
import dask.array as da
import dask.dataframe as dd
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.feather
import pyarrow.parquet
import pytest

from mgclust import DensityPeaks, open_dataset, open_graph
from mgclust.base.errors import InputError, MgclustError

X = np.round(np.random.default_rng(0).normal(size=(60, 3)), 3)
EDGES = np.random.default_rng(1).integers(0, 20, (60, 2))


def rows(dataset):
    return dataset.read(0, dataset.shape[0])


def write(path, table, part=None):
    if path.suffix == ".feather":
        pa.feather.write_feather(table, path, compression="lz4", chunksize=17)
    elif path.suffix == ".parquet" and part is None:
        pa.parquet.write_table(table, path, row_group_size=17)
    else:
        path.mkdir()
        for i in range(12):
            pa.parquet.write_table(table.slice(5 * i, 5), path / part.format(i), row_group_size=3)
        (path / "_SUCCESS").write_text("")
        (path / "_metadata.parquet").write_text("no table")
    return path


PLACES = {
    "x.parquet": None, "x.feather": None, "dask.parquet": "part.{}.parquet", "spark": "part-{:05}-7a3b.snappy.parquet",
    "short.pq": "{}.pq",
}  # fmt: skip


@pytest.mark.parametrize("place", PLACES)
def test_rows_and_edges_of_files_and_folders(place, tmp_path):
    """In the order of the numbers in the names of the files, in any process, any part of them."""
    points = write(tmp_path / place, pa.table(dict(zip("abc", X.T, strict=True))), PLACES[place])
    dataset = open_dataset(points)
    np.testing.assert_array_equal(rows(dataset), X)
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(dataset)).read(13, 41), X[13:41])
    np.testing.assert_array_equal(rows(open_dataset(points, columns=["c", "a"])), X[:, [2, 0]])
    assert dataset.feature_names == ["a", "b", "c"] and len(dataset.fingerprint()) == 64
    (tmp_path / "graph").mkdir()
    edges = pa.table({"source": EDGES[:, 0], "target": EDGES[:, 1], "weight": X[:, 0] ** 2})
    graph = open_graph(write(tmp_path / "graph" / place, edges, PLACES[place]))
    np.testing.assert_array_equal(rows(graph)[:, :2], EDGES)
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(graph)).read(13, 41)[:, 2], X[13:41, 0] ** 2)


def test_a_folder_that_is_no_table_is_refused(tmp_path):
    table = pa.table({"a": [1.0, 2.0]})
    folder = write(tmp_path / "x.parquet", table, "part.{}.parquet")
    dataset = open_dataset(folder)
    pa.parquet.write_table(pa.table({"a": [9.0, 9.0]}), folder / "part.0.parquet")
    with pytest.raises(InputError, match=r"part.0.parquet changed since it was opened"):
        rows(dataset)
    pa.parquet.write_table(pa.table({"b": [1.0]}), folder / "part.99.parquet")
    with pytest.raises(InputError, match=r"part.99.parquet has other columns than .*part.0.parquet"):
        open_dataset(folder)
    (folder / "part.99.parquet").unlink()
    pa.parquet.write_table(table.slice(0, 1), folder / "part.3.parquet")
    (folder / "year=2020").mkdir()
    pa.parquet.write_table(table, folder / "year=2020" / "x.parquet")
    with pytest.raises(InputError, match="stores a column in the names of folders"):
        open_dataset(folder)
    (tmp_path / "empty").mkdir()
    with pytest.raises(InputError, match=r"is a directory, but not a zarr store, and holds no .parquet"):
        open_dataset(tmp_path / "empty")


FORMS = {
    "parquet": lambda table, path: (pa.parquet.write_table(table, path / "x.parquet"), path / "x.parquet")[1],
    "feather": lambda table, path: (pa.feather.write_feather(table, path / "x.feather"), path / "x.feather")[1],
    "pyarrow": lambda table, path: table,
    "pandas": lambda table, path: table.to_pandas(),
    "polars": lambda table, path: pl.from_arrow(table),
}


@pytest.mark.parametrize("form", FORMS)
def test_decimals_and_truth_values_with_gaps_are_numbers(form, tmp_path):
    columns = {
        "price": pa.array([decimal.Decimal("1.50"), None, decimal.Decimal("-2.25")]),
        "yes": pa.array([True, None, False]),
        "count": pa.array([1, None, 3], pa.int16()),
    }
    expected = [[1.5, 1, 1], [np.nan] * 3, [-2.25, 0, 3]]
    np.testing.assert_array_equal(rows(open_dataset(FORMS[form](pa.table(columns), tmp_path))), expected)
    graph = open_graph(FORMS[form](pa.table({"u": [0, 1], "v": [1, 2], "w": columns["price"].take([0, 0])}), tmp_path))
    assert rows(graph).tolist() == [[0, 1, 1.5], [1, 2, 1.5]]


@pytest.mark.parametrize("form", [*FORMS, "csv", "dask"])
def test_columns_that_share_a_name(form, tmp_path):
    if form == "polars":
        return  # has none
    table = pa.table([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]], names=["a", "a", "b"])
    if form == "csv":
        (tmp_path / "x.csv").write_text("a,a,b\n1,3,5\n2,4,6\n")
        source = tmp_path / "x.csv"
    else:
        source = dd.from_pandas(table.to_pandas(), npartitions=1) if form == "dask" else FORMS[form](table, tmp_path)
    assert rows(open_dataset(source, columns=["b"])).tolist() == [[5], [6]]
    with pytest.raises(InputError, match="columns='a' names 2 columns of"):
        open_dataset(source, columns=["a"])
    if form in ("parquet", "feather", "dask"):
        with pytest.raises(InputError, match=r"several columns called 'a'|share a name"):
            open_dataset(source, columns=[0, 1])
    else:
        assert rows(open_dataset(source, columns=[1, 2])).tolist() == [[3, 5], [4, 6]]


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("kind", ["list", "array"])
def test_columns_of_lists_end_with_a_sentence(form, kind, tmp_path):
    inner = pa.list_(pa.float64(), 2) if kind == "array" else pa.list_(pa.float64())
    table = pa.table({"x": [1.0, 2.0], "e": pa.array([[1.0, 2.0], [3.0, 4.0]], inner)})
    with pytest.raises(InputError, match=r"'e'.* holds .*list"):
        open_dataset(FORMS[form](table, tmp_path))


@pytest.mark.parametrize("shape", [(5, 3), (10, 4), (10,), (12, 3), (10, 3, 1)])
@pytest.mark.parametrize("before", [0, 1])
def test_dask_blocks_of_another_shape_than_declared(shape, before):
    block = da.from_delayed(dask.delayed(np.ones)(shape), shape=(10, 3), dtype=float)
    array = da.concatenate([da.zeros((6, 3))] * before + [block])
    with pytest.raises(MgclustError, match=r"a chunk of the Dask array has shape|could not be computed"):
        DensityPeaks(2, client=None).fit(array)
    edges = da.from_delayed(dask.delayed(np.ones)((5, 2), int), shape=(10, 2), dtype=int)
    with pytest.raises(InputError, match=r"shape \(5, 2\), but X.chunks lists \(10, 2\)"):
        rows(open_graph(edges))


def test_a_series_of_dask_stays_a_column():
    series = dd.from_pandas(pd.Series([1.0, 2.0], name="a").to_frame(), npartitions=1)
    assert rows(open_dataset(series)).tolist() == [[1], [2]]
