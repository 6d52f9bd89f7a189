"""Tables in Parquet files, folders of Parquet files, and Feather files, read by row groups."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from mgclust.base.errors import InputError
from mgclust.data.base import float_dtype
from mgclust.data.location import Location, Stamp
from mgclust.outside.inflation import check_memory
from mgclust.outside.quoting import reason, shortened

__all__ = ["ArrowTable", "column_numbers", "holds_parquet"]

_PARQUET = (".parquet", ".pq")
_MAX_FILES = 100_000


class ArrowTable:
    """Columns of a file or folder. A pickle holds no data of the columns.

    Parameters
    ----------
    location : Location
        A .parquet or .pq file, a folder of these, or a .feather file.

    Attributes
    ----------
    names : list of str
        Names of the columns, without the index that pandas stored.
    edges : ndarray of int
        Group g (a row group or a record batch) has the rows ``edges[g]`` to ``edges[g + 1] - 1``.
    """

    def __init__(self, location: Location) -> None:
        self.location = location
        folder = not location.remote and location.is_directory()
        files = _files_of(location) if folder else [location]
        self._files: list[tuple[Location, Stamp]] = [(file, file.stamp()) for file in files]
        self._schemas: list[Any] = []
        sizes, first = [0], []
        for file in files:
            first.append(len(sizes) - 1)
            with _opened(file) as reader:
                self._schemas.append(reader.schema)
                sizes += reader.sizes()
        self.edges = np.cumsum(sizes)
        self._first = np.array(first)  # first group of each file
        metadata = self._schemas[0].pandas_metadata or {}
        index = {name for name in metadata.get("index_columns", []) if isinstance(name, str)}
        self.names = [name for name in self._schemas[0].names if name not in index]
        for schema, file in zip(self._schemas, files, strict=True):
            if sorted(schema.names) != sorted(self._schemas[0].names):
                raise InputError(
                    f"{file.name} has other columns than {files[0].name}; give a folder whose files are one table."
                )

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_schemas": []}

    def types(self, name: str) -> list[Any]:
        """Return the types of a column, one per file."""
        if self._schemas[0].names.count(name) > 1:
            raise InputError(
                f"{self.location.name} has several columns called {shortened(name)!r}; give each its own name, or "
                "choose other columns with open_dataset(..., columns=[...]) (--columns)."
            )
        return [schema.field(name).type for schema in self._schemas]

    def batches(self, group: int, names: Sequence[str], at_once: int) -> Iterator[Any]:
        """Yield the columns of a group as record batches."""
        file = int(np.searchsorted(self._first, group, side="right")) - 1
        number, rows = group - int(self._first[file]), int(self.edges[group + 1] - self.edges[group])
        location, stamp = self._files[file]
        location.check(stamp)
        found = 0
        with _opened(location) as reader:
            for batch in reader.batches(number, names, at_once):
                batch.validate(full=True)
                found += batch.num_rows
                if found <= rows:
                    yield batch
        if found != rows:
            raise InputError(f"{location.name} is truncated; copy or write it again.")


def column_numbers(column: Any) -> np.ndarray:
    """Convert a column of integers, floats, decimals or truth values to NumPy; missing values become NaN."""
    import pyarrow as pa

    if pa.types.is_decimal(column.type) or pa.types.is_boolean(column.type):
        column = column.cast(pa.float64())
    values = np.asarray(column.to_numpy(zero_copy_only=False))
    return values.astype(float_dtype(values.dtype, "column"), copy=False)


def holds_parquet(location: Location) -> bool:
    """Return whether a location is a local folder with Parquet files."""
    return not location.remote and location.is_directory() and any(map(_is_part, location.listed()))


def _is_part(name: str) -> bool:
    hidden = any(part.startswith((".", "_")) for part in name.split("/"))
    return name.lower().endswith(_PARQUET) and not hidden


def _files_of(folder: Location) -> list[Location]:
    """Return the Parquet files of a folder, with ``part.2`` before ``part.10``."""
    names = []
    for name in folder.listed():
        if _is_part(name):
            names.append(name)
        if len(names) > _MAX_FILES:
            raise InputError(f"{folder.name} has more than {_MAX_FILES:,} files; write fewer files.")
    if not names:
        raise InputError(
            f"{folder.name} is a directory without Parquet files; give the path of a file, or of a folder of .parquet."
        )
    parted = next((name for name in names if "=" in name.rpartition("/")[0]), None)
    if parted is not None:
        raise InputError(
            f"{folder.name} stores a column in the names of folders ({shortened(parted)!r}); read it with pandas or "
            "Dask, and give the data frame."
        )
    return [folder.inside(name) for name in sorted(names, key=_counted)]


def _counted(name: str) -> list[Any]:
    """Return a sort key that compares numbers in names by their values."""
    return [(int(part), "") if part.isdecimal() else (-1, part) for part in re.split(r"(\d{1,18})", name)]


class _ParquetReader:
    def __init__(self, file: Any) -> None:
        from pyarrow import parquet

        self._file = parquet.ParquetFile(file)
        self.schema = self._file.schema_arrow

    def sizes(self) -> list[int]:
        metadata = self._file.metadata
        return [metadata.row_group(i).num_rows for i in range(metadata.num_row_groups)]

    def batches(self, number: int, names: Sequence[str], at_once: int) -> Iterator[Any]:
        yield from self._file.iter_batches(at_once, row_groups=[number], columns=list(names))


class _FeatherReader:
    def __init__(self, file: Any) -> None:
        self._file, self.schema = file, self._reader(file, []).schema

    def _reader(self, file: Any, fields: list[int]) -> Any:
        import pyarrow as pa

        file.seek(0)
        return pa.ipc.open_file(pa.PythonFile(file, "r"), options=pa.ipc.IpcReadOptions(included_fields=fields))

    def sizes(self) -> list[int]:
        reader = self._reader(self._file, [0] if len(self.schema) else [])
        return [reader.get_batch(i).num_rows for i in range(reader.num_record_batches)]

    def batches(self, number: int, names: Sequence[str], at_once: int) -> Iterator[Any]:
        fields = sorted(self.schema.names.index(name) for name in names)
        batch = self._reader(self._file, fields).get_batch(number)
        for start in range(0, max(1, batch.num_rows), at_once):
            yield batch.slice(start, at_once)


@contextmanager
def _opened(location: Location) -> Iterator[Any]:
    feather = location.suffix == ".feather"
    with location.open() as file:
        import pyarrow as pa

        try:
            if feather:
                check_memory(location.name, file.seek(0, 2))
            yield (_FeatherReader if feather else _ParquetReader)(file)
        except pa.ArrowException as error:
            what = "Feather file (version 2)" if feather else "Parquet file"
            raise InputError(f"{location.name} is not a whole {what}: {reason(error)}.") from error
