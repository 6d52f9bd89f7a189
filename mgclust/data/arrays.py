"""Rows that are already in memory: on this host, on a GPU, or on the workers of Dask.

CuPy, Dask, pandas and SciPy are recognised without importing them, because imports take time. A caller that has such
an object has imported its library.
"""

from __future__ import annotations

import zlib
from collections import Counter
from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np

from mgclust.base.by_value import by_value
from mgclust.base.dask_arrays import check_chunk, computed, empty_chunk, reject_lost, unannotated
from mgclust.base.errors import InputError
from mgclust.data import chunks
from mgclust.data.base import CheckedDataset, Dataset, InputTypeError, check_shape, dask_digests, float_dtype
from mgclust.data.chunks import is_sparse_block, plain_rows
from mgclust.data.sparse import is_sparse, open_sparse_rows
from mgclust.data.table_columns import (
    SAMPLE_LINES,
    index_columns,
    index_content,
    is_text_id,
    left_out,
    numbers_rows,
)
from mgclust.outside.quoting import shortened

__all__ = [
    "ArrayDataset",
    "DaskDataset",
    "DeviceDataset",
    "TableDataset",
    "integers_as_names",
    "open_array",
    "select_columns",
]

Columns = Sequence[str | int] | str | None
_CHECKED_NUMBERS = 2**16  # numbers per block of a checksum

# Objects that hold more than rows, by package and class, with a remedy for the message.
_REMEDIES = {
    ("anndata", "AnnData"): "give an array of it, X.X or X.obsm['X_pca'], or a graph, X.obsp['connectivities']",
    ("nibabel", "SpatialImage"): "give it to a method that takes rows, or to open_dataset: rows are its voxels",
    ("nibabel", "Cifti2Image"): "save it (nibabel.save(image, 'x.dtseries.nii')) and give the path",
    ("nibabel", "GiftiImage"): "give its vertices as rows: numpy.stack([each.data for each in image.darrays], axis=1)",
    ("dask", "Delayed"): "give dask.array.from_delayed(X, shape, dtype)",
    ("dask", "Bag"): "give X.to_dataframe()",
    ("distributed", "Future"): "give dask.array.from_delayed(X, shape, dtype), or X.result()",
}


class ArrayDataset(CheckedDataset):
    """A NumPy array, or an object that was converted to one."""

    kind = "array"

    def __init__(self, array: np.ndarray, name: str = "array", notes: Sequence[str] = ()) -> None:
        super().__init__(array.shape, array.dtype, name)
        self._array, self._notes = array, list(notes)

    @property
    def warnings(self) -> list[str]:
        """See `mgclust.data.Dataset.warnings`."""
        return list(self._notes)

    def _read(self, start: int, stop: int) -> np.ndarray:
        return np.ascontiguousarray(self._array[start:stop], dtype=self.dtype)

    def checksum(self) -> int:
        """Return the CRC-32 of all rows or, if the array is large, of evenly spread blocks with 1/16 of the rows.

        See `Dataset.checksum`.
        """
        n, found = self.shape[0], 0
        step = max(1, _CHECKED_NUMBERS // self.shape[1])
        apart = step if n <= 16 * step else 16 * step
        for start in range(0, n, apart):
            found = zlib.crc32(self.read(start, min(start + step, n)), found)
        return found


class TableDataset(ArrayDataset):
    """Columns of a pandas, polars or pyarrow table, which stay where they are until their rows are read.

    Parameters
    ----------
    frame : data frame or table
        The table.
    positions : sequence of int
        Positions of the columns.
    labels : sequence of str
        Names of all columns, for messages.
    name : str
        Name of the table, for messages.
    notes : sequence of str
        Warnings.
    """

    def __init__(
        self, frame: Any, positions: Sequence[int], labels: Sequence[str], name: str, notes: Sequence[str]
    ) -> None:
        # A copy that shares the numbers: columns that are inserted later do not move the chosen columns.
        twin = getattr(frame, "clone", None) or (partial(frame.copy, deep=False) if hasattr(frame, "iloc") else None)
        self._frame, self._notes = twin() if twin else frame, list(notes)
        self._columns = [(position, f"column {labels[position]!r} of {name}") for position in positions]
        # A part of a column may have another type than the column, for example if the part has no missing value.
        dtypes = [_column(frame, *column).dtype for column in self._columns]
        CheckedDataset.__init__(self, (len(frame), len(positions)), np.result_type(*dtypes), name)

    def _read(self, start: int, stop: int) -> np.ndarray:
        sliced = hasattr(self._frame, "iloc")
        part = self._frame.iloc[start:stop] if sliced else self._frame.slice(start, stop - start)
        rows = np.empty((stop - start, self.shape[1]), self.dtype)
        for j, column in enumerate(self._columns):
            rows[:, j] = _column(part, *column)
        return rows


class DeviceDataset(CheckedDataset):
    """A CuPy array. `read` returns CuPy arrays on the same device."""

    kind = "cuda array"

    def __init__(self, array: Any) -> None:
        super().__init__(array.shape, array.__cuda_array_interface__["typestr"], "CuPy array")
        self._array = array

    def _read(self, start: int, stop: int) -> Any:
        return self._array[start:stop].astype(self.dtype, order="C", copy=False)


class DaskDataset(CheckedDataset):
    """A Dask array. The engine takes `dask_array` and leaves chunks on the workers that hold them already."""

    kind = "dask array"

    def __init__(self, array: Any, feature_names: list[str] | None = None, notes: Sequence[str] = ()) -> None:
        name = "Dask array"
        self._notes = list(notes)
        if any(size != size for size in array.shape):
            raise InputError(f"{name} has chunks of unknown size; call X.compute_chunk_sizes() first.")
        reject_lost(array)
        super().__init__(array.shape, array.dtype, name)
        chunk = empty_chunk(array)
        if isinstance(chunk, np.ma.MaskedArray) or is_sparse_block(chunk):
            meta = np.empty((0, 0), self.dtype)
            array = array.map_blocks(by_value(plain_rows, chunks), self.dtype, dtype=self.dtype, meta=meta)
        if array.numblocks[1] > 1:
            array = array.rechunk({1: -1})
        self._array = array.astype(self.dtype) if array.dtype != self.dtype else array
        self.feature_names = feature_names

    @property
    def warnings(self) -> list[str]:
        """See `mgclust.data.Dataset.warnings`."""
        return list(self._notes)

    @property
    def dask_array(self) -> Any:
        """The rows as a Dask array of type `dtype`, with one chunk across the columns."""
        return self._array

    def fingerprint(self) -> str:
        """Return the SHA-256 of shape, dtype and rows; the workers hash the rows that they hold."""
        return self._combine(dask_digests(self._array))

    @unannotated
    def take(self, indices: Any) -> np.ndarray:
        """Read a few rows, which the workers select; see `Dataset.take`.

        The rows are selected chunk by chunk, because in some versions Dask's selection by row number takes memory for
        all rows in the calling process.
        """
        chosen = np.asarray(indices, np.int64)
        ascending, places = np.unique(chosen, return_inverse=True)
        if not len(ascending):
            return np.empty((0, self.shape[1]), self.dtype)
        edges = np.cumsum([0, *self._array.chunks[0]])
        of_chunk = np.searchsorted(edges, ascending, side="right") - 1
        needed = np.unique(of_chunk)
        wanted = [ascending[of_chunk == chunk] - edges[chunk] for chunk in needed]
        few = self._array.blocks[needed.tolist()].map_blocks(
            by_value(chunks.picked, chunks),
            wanted=wanted,
            chunks=(tuple(map(len, wanted)), self._array.chunks[1]),
            meta=empty_chunk(self._array),
        )
        rows = plain_rows(computed(few), self.dtype)
        check_chunk(rows, (len(ascending), self.shape[1]))
        return np.asarray(rows.get() if hasattr(rows, "get") else rows, self.dtype)[places.reshape(-1)]

    @unannotated
    def _read(self, start: int, stop: int) -> Any:
        rows = plain_rows(computed(self._array[start:stop]), self.dtype)
        check_chunk(rows, (stop - start, self.shape[1]))
        if hasattr(rows, "__cuda_array_interface__"):
            return rows.astype(self.dtype, order="C", copy=False)
        return np.ascontiguousarray(rows, dtype=self.dtype)


_NETWORKS = {("networkx", "Graph"), ("igraph", "Graph")}


def open_array(source: Any, columns: Sequence[str | int] | str | None, index: bool | None = None) -> Dataset:
    """Open an object in memory as a dataset.

    Parameters
    ----------
    source : object
        NumPy, CuPy or Dask array, DataFrame, nested list, or anything that NumPy can convert.
    columns : sequence of str or int, optional
        Columns of a DataFrame to read, by name or position.
    index : bool, optional
        Whether to leave out the first column of a DataFrame as an index.
    """
    reject_containers(source)
    _reject_graphs(source)
    source = collected(source)
    module = type(source).__module__
    if is_sparse(source):
        if columns is not None:
            raise InputError("columns=... applies to tables (DataFrame, csv, Parquet); slice the sparse matrix.")
        return open_sparse_rows(source)
    if module.startswith("dask.") and hasattr(source, "to_dask_array"):
        labels = list(source.columns)
        chosen = select_columns([str(label) for label in labels], columns, "the Dask DataFrame")
        names = [labels[j] for j in chosen]
        if columns is not None and max(map(labels.count, names)) > 1:
            raise InputError(f"columns={columns!r} names columns of the Dask DataFrame that share a name; rename them.")
        notes: list[str] = []
        kind = getattr(source.dtypes.iloc[0], "kind", "O") if labels and source.ndim == 2 else "f"
        first = np.empty(0, {"O": object, "b": bool}.get(kind, f"{kind}8"))
        without = index_columns(labels) if index is None else int(index)
        if labels and index is None and not without:
            without = int(is_text_id(labels[0], first))
        if columns is None and len(labels) > 1 and without:
            notes = [left_out(str(labels[0]), "the Dask DataFrame", index_content(first))] if index is None else []
            source = source[labels[without:]]
        frame = _numeric(source if columns is None else source[names])
        lengths = tuple(computed(frame.map_partitions(len)))
        return DaskDataset(frame.to_dask_array(lengths=lengths), _feature_names(list(frame.columns)), notes)
    if hasattr(source, "column_names") or (hasattr(source, "to_numpy") and hasattr(source, "columns")):
        return _from_frame(source, columns, index)
    if columns is not None or index is not None:
        raise InputError("columns and index apply to tables (DataFrame, csv, Parquet); slice the array instead.")
    if module.startswith("dask.array"):
        return DaskDataset(source)
    if hasattr(source, "__cuda_array_interface__"):
        if not (hasattr(source, "get") and hasattr(source, "astype")):
            raise InputError(
                f"a CUDA array of type {module}.{type(source).__name__} cannot be read; wrap it without a copy "
                "with cupy.asarray(x)."
            )
        return DeviceDataset(source)
    return ArrayDataset(_as_numbers(source))


def _numeric(frame: Any) -> Any:
    """Convert the partitions of a Dask data frame or series to arrays of numbers; missing values become NaN."""
    series = frame.ndim == 1
    types = {frame.name: frame.dtype} if series else dict(zip(frame.columns, frame.dtypes, strict=True))
    wanted = []
    for name, dtype in types.items():
        if getattr(dtype, "kind", "O") not in "fiubc":
            raise InputError(
                f"column {name!r} of the Dask DataFrame is of type {dtype}, not numeric; choose other "
                "columns with open_dataset(X, columns=[...]), or convert it with astype(float)."
            )
        wanted.append(getattr(dtype, "numpy_dtype", dtype))
    if all(isinstance(dtype, np.dtype) and dtype.kind in "fiuc" for dtype in types.values()):
        return frame
    return frame.astype(np.result_type(*(float_dtype(dtype, "Dask DataFrame") for dtype in wanted)))


def reject_containers(source: Any) -> None:
    """Reject objects that hold more than rows, because the user must choose the part to cluster."""
    first = source[0] if isinstance(source, (list, tuple)) and source else source
    for kind in type(first).__mro__:
        package = kind.__module__.partition(".")[0]
        if (package, kind.__name__) in _REMEDIES:
            remedy = _REMEDIES[package, kind.__name__]
            raise InputTypeError(f"X is {type(first).__name__} of {package} in memory, which is not a table; {remedy}.")


def _reject_graphs(source: Any) -> None:
    """Reject graphs, which NumPy would convert to a list of their nodes."""
    for kind in type(source).__mro__:
        if (kind.__module__.partition(".")[0], kind.__name__) in _NETWORKS:
            raise InputTypeError(
                f"X is a {type(source).__name__} of {type(source).__module__.partition('.')[0]}, which has edges "
                "instead of rows; use Communities to cluster the nodes of a graph."
            )


def collected(source: Any) -> Any:
    """Collect a lazy frame of polars; return anything else unchanged."""
    lazy = type(source).__module__.partition(".")[0] == "polars" and type(source).__name__ == "LazyFrame"
    return source.collect() if lazy else source


def select_columns(names: Sequence[str], columns: Sequence[str | int] | str | None, name: str) -> list[int]:
    """Return the positions of the requested columns in `names`; all if `columns` is None. See `integers_as_names`."""
    if columns is None:
        return list(range(len(names)))
    if isinstance(columns, (str, int, np.integer)):
        columns = [columns]
    chosen = []
    for column in integers_as_names(names, columns):
        if _is_integer(column) and 0 <= column < len(names):
            chosen.append(int(column))
        elif column in names:
            if names.count(column) > 1:
                raise InputError(
                    f"columns={column!r} names {names.count(column)} columns of {name}; give their positions, from 0."
                )
            chosen.append(names.index(column))
        else:
            listed = shortened(", ".join(map(repr, names[:20])), 1000) + (", ..." if len(names) > 20 else "")
            wanted = column.item() if isinstance(column, np.integer) else column
            raise InputError(
                f"columns={wanted!r} is not a column of {name}; give one of {listed}, or a position from 0 to "
                f"{len(names) - 1}."
            )
    if not chosen:
        raise InputError(f"columns=[] should name at least one column of {name}.")
    return chosen


def integers_as_names(names: Sequence[str], columns: Sequence[Any]) -> list[Any]:
    """Replace integers by names if each integer is the name of exactly one column; otherwise keep them as positions."""
    count = Counter(names)
    named = all(count[str(column)] == 1 for column in columns if _is_integer(column))
    return [str(column) if named and _is_integer(column) else column for column in columns]


def _is_integer(column: Any) -> bool:
    return isinstance(column, (int, np.integer)) and not isinstance(column, bool)


def _as_numbers(source: Any) -> np.ndarray:
    """Convert `source` to an array of numbers with NumPy."""
    name = "X"
    if source is None or isinstance(source, (dict, set, bytes)) or hasattr(source, "__next__"):
        raise InputTypeError(f"{name} is a {type(source).__name__}; give an array of rows x features or a path.")
    if isinstance(source, np.ma.MaskedArray) and np.ma.is_masked(source):
        # A masked value is missing: the number under the mask must not be used.
        source = np.ma.filled(source.astype(float_dtype(source.dtype, name)), np.nan)
    try:
        array = np.asarray(source)
    except (TypeError, ValueError) as error:
        raise InputError(f"{name} cannot be made into an array of rows x features: {error}.") from error
    if array.dtype.kind != "O":
        return array
    try:
        return array.astype(np.float64)
    except TypeError as error:
        raise InputTypeError(f"{name} holds a value that is not a number: {error}.") from error
    except ValueError as error:
        raise InputError(f"{name} holds a value that is not a number: {error}.") from error


def _from_frame(frame: Any, columns: Sequence[str | int] | str | None, index: bool | None) -> Dataset:
    """Open columns of a pandas, polars or pyarrow table without copying them."""
    name = f"{type(frame).__module__.split('.')[0]} {type(frame).__name__}"
    labels = frame.column_names if hasattr(frame, "column_names") else list(frame.columns)
    names = [str(label) for label in labels]
    notes: list[str] = []
    without = _index_columns(frame, labels) if index is None else int(index)
    chosen = select_columns(names, columns, name)
    if columns is None and len(labels) > 1 and without:
        chosen = chosen[without:]
        notes = [left_out(names[0], name, index_content(_first_values(frame)))] if index is None else []
    elif columns is None and hasattr(frame, "iloc") and _is_one_block(frame):
        dataset: ArrayDataset = ArrayDataset(frame.to_numpy(), name)
        dataset.feature_names = _feature_names(labels)
        return dataset
    check_shape((len(frame), len(chosen)), name)
    dataset = TableDataset(frame, chosen, names, name, notes)
    dataset.feature_names = _feature_names([labels[position] for position in chosen])
    return dataset


def _is_one_block(frame: Any) -> bool:
    """Return whether a pandas data frame stores its numbers as one array, which NumPy can use without a copy."""
    few = frame.iloc[:1]
    rows = few.to_numpy()
    return bool(rows.size and rows.dtype.kind in "fiub" and np.may_share_memory(rows, few.iloc[:, 0].to_numpy()))


def _index_columns(frame: Any, labels: Sequence[Any]) -> int:
    """Return how many of the first columns of a table are an index, judged by their names and values."""
    if len(labels) < 2 or not all(isinstance(label, str) for label in labels):
        return 0
    if count := index_columns(labels):
        return count
    values = _first_values(frame)
    if values.dtype.kind in "iu":
        return int(numbers_rows(labels[0], _first_values(frame, len(frame))))
    return int(values.dtype.kind in "OUTMm" and (numbers_rows(labels[0], values) or is_text_id(labels[0], values)))


def _first_values(frame: Any, most: int = SAMPLE_LINES) -> np.ndarray:
    """Return the first values of the first column of a table."""
    if hasattr(frame, "iloc"):
        return np.asarray(frame.iloc[:most, 0].to_numpy())
    first = frame.column(0) if hasattr(frame, "column_names") else frame[frame.columns[0]]
    return np.asarray(first[:most].to_numpy())


def _feature_names(labels: Sequence[Any]) -> list[str] | None:
    """Return the names of the columns; None unless all are strings, as in scikit-learn."""
    return list(labels) if labels and all(isinstance(label, str) for label in labels) else None


def _column(frame: Any, position: int, name: str) -> np.ndarray:
    if hasattr(frame, "iloc"):
        series = frame.iloc[:, position]
    elif hasattr(frame, "column_names"):
        series = frame.column(position)
    else:
        series = frame[:, position]
    values = series.to_numpy()
    first = next(iter(values), None)
    if values.ndim != 1 or (hasattr(first, "__len__") and not isinstance(first, (str, bytes))):
        raise InputError(f"{name} holds lists or arrays; give one number per row: numpy.stack(column) makes a table.")
    if values.dtype.kind == "O":
        try:
            if hasattr(frame, "iloc"):  # NumPy cannot convert pandas' own missing value
                return series.to_numpy(dtype=np.float64, na_value=np.nan)
            return values.astype(np.float64)
        except (TypeError, ValueError) as error:
            raise InputError(
                f"{name} is not numeric: {error}; choose other columns with open_dataset(X, columns=[...])."
            ) from error
    return values.astype(float_dtype(values.dtype, name), copy=False)
