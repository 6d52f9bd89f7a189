"""Rows in tables: .csv and .tsv files (read by chunks of lines), Parquet and Feather files (read by row groups)."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable
from functools import partial
from itertools import islice
from typing import IO, Any

import numpy as np

from mgclust.base.errors import InputError
from mgclust.data.arrays import Columns, select_columns
from mgclust.data.base import Dataset, check_shape, float_dtype
from mgclust.data.files import FileDataset
from mgclust.data.graphs.text_chunks import Chunk, TextChunks
from mgclust.data.location import Location
from mgclust.data.readers.arrow_files import ArrowTable, column_numbers
from mgclust.data.table_columns import (
    SAMPLE_LINES,
    find_header,
    index_columns,
    index_content,
    is_number,
    is_text_id,
    left_out,
    numbers_rows,
    with_points,
    with_row_names,
)
from mgclust.outside.inflation import check_memory
from mgclust.outside.quoting import reason, shortened

__all__ = ["ParquetDataset", "TextDataset", "read_groups"]

_CHUNK_BYTES = 2**22  # bytes of text that are parsed together
_KEPT_BYTES = 2**25  # largest table of numbers that stays in memory after a text file was opened
_LONGEST_FIRST = 2**24  # maximum bytes of the first line
_MAX_COLUMNS = 2**17
_COLUMN_BYTES = 10_240  # bytes of memory that the parser needs per column
_CHUNK_ROWS = 2**16  # rows of a row group that are decoded at once
DELIMITERS = (",", ";", "\t", "|")


class TextDataset(FileDataset):
    """A .csv or .tsv file of numbers in UTF-8.

    `mgclust.data.table_columns` decides whether the first line that is not blank is a header, and whether the first
    column numbers the rows and is left out. An empty field and ``NA`` are NaN.

    Opening a file parses all of it, to count and check its rows. A small table stays in memory. Chunks of a larger file
    are parsed again when their rows are read; the chunk that was read last is kept in memory.

    Parameters
    ----------
    location : Location
        Location of the file.
    delimiter : str, optional
        Separator of the fields. By default, the character that occurs most often in the first line: comma, semicolon,
        tab or bar.
    columns : sequence of str or int, optional
        Columns to read: names from the header, or positions from 0.
    header : bool, optional
        Whether the first line names the columns.
    index : bool, optional
        Whether the first column numbers or names the rows.
    """

    kind = "csv"

    def __init__(
        self,
        location: Location,
        delimiter: str | None,
        columns: Columns,
        header: bool | None = None,
        index: bool | None = None,
    ) -> None:
        with location.open_text() as file:
            first, self._skip = _first_line(file, location)
            begin, end = _ends(file, self._skip)
            self._delimiter = delimiter or _guess_delimiter(first, location)
            count = first.count(self._delimiter) + 1
            if count > _MAX_COLUMNS:
                raise InputError(f"{location.name} has {count:,} columns; give at most {_MAX_COLUMNS:,}.")
            check_memory(location.name, count * _COLUMN_BYTES, "give fewer columns, or a .npy")
            fields = [field.strip() for field in _split(first, self._delimiter)]
            below = _sample(file, self._delimiter, SAMPLE_LINES if count < SAMPLE_LINES else 3)
        self._commas, (fields, *below) = with_points([fields, *below], self._delimiter)
        if header is not False:
            fields = with_row_names(fields, below)
        row_names = len(fields) > count
        count = len(fields)
        named, doubt = (True, "") if row_names else find_header(fields, below, header)
        self._skip += named
        if named:
            fields[0] = fields[0].removeprefix("#").strip()  # NumPy begins a header with "#"
        self._names = fields if named else [f"column {j + 1}" for j in range(len(fields))]
        self._selected = select_columns(self._names, columns, location.name)
        first_values = [row[0] for row in below if row]
        without = (index_columns(fields) if named else 0) if index is None else int(index)
        if named and index is None and not without:
            without = int(is_text_id(fields[0], first_values))
        if columns is None and count > 1:
            self._selected = self._selected[without:]
        self._notes = [doubt] if doubt else []
        self._line_bytes = len(first)
        self.location = location
        by_values = columns is None and index is None and len(self._selected) == count > 1
        self._text, self._chunks = TextChunks(location, _CHUNK_BYTES), list[Chunk]()
        with location.reading():
            table, numbers = self._scan(end if named else begin, by_values)
        if by_values:
            without = int(numbers is not None and numbers_rows(fields[0] if named else "", numbers))
            self._selected = self._selected[without:]
        if columns is None and without and index is None:
            self._notes.append(left_out(fields[0] if named else "", location.name, index_content(first_values)))
        super().__init__(location, (self._edges[-1], len(self._selected)), np.float64)
        self.feature_names = [self._names[j] for j in self._selected] if named else None
        if table is not None:
            self._opened = (-1, np.ascontiguousarray(table[:, -len(self._selected) :]))

    @property
    def warnings(self) -> list[str]:
        """See `mgclust.data.Dataset.warnings`."""
        return list(self._notes)

    def describe(self) -> dict[str, Any]:
        """Describe the source, with the names of its columns."""
        return {**super().describe(), "columns": [self._names[j] for j in self._selected]}

    def reading_bytes(self, rows: int) -> int:
        """Return the bytes of the table if it is in memory, else the bytes that the longest chunk needs."""
        if self._whole is not None:
            return int(self._whole.nbytes)
        text = max(chunk.length for chunk in self._chunks)
        return 8 * text + 3 * 8 * int(np.diff(self._edges).max()) * len(self._selected)

    @property
    def _whole(self) -> np.ndarray | None:
        """The whole table, if it stayed in memory."""
        return self._opened[1] if self._opened is not None and self._opened[0] < 0 else None

    def _check(self) -> None:
        if self._whole is None:  # rows in memory cannot change, and each check of a URL is a request
            super()._check()

    def hold(self) -> None:
        """See `mgclust.data.files.InFile.hold`."""
        check_memory(self.location.name, 8 * self.shape[0] * self.shape[1])
        super().hold()

    def _scan(self, offset: int, by_values: bool) -> tuple[np.ndarray | None, np.ndarray | None]:
        """Parse the file, and note where its chunks and their rows begin.

        Parameters
        ----------
        offset : int
            Position of the first row.
        by_values : bool
            Whether values can show that the first column numbers the rows.

        Returns
        -------
        table : ndarray or None
            All rows; None if the table is large.
        numbers : ndarray or None
            The first column; None if it does not hold only integers, or is not needed.
        """
        edges, parts, firsts = [0], list[np.ndarray](), list[np.ndarray]()
        small = True
        for chunk, text in self._text.scan(offset):
            part = self._parsed(text, edges[-1])
            if not len(part):
                continue
            self._chunks.append(chunk)
            edges.append(edges[-1] + len(part))
            by_values = by_values and bool((part[:, 0] == np.floor(part[:, 0])).all())
            if by_values:
                firsts.append(part[:, 0].copy())
            small = small and 8 * edges[-1] * part.shape[1] <= _KEPT_BYTES
            parts = [*parts, part] if small else []
        self._edges = np.array(edges)
        check_shape((edges[-1], len(self._selected)), self.location.name)
        table = None if not small else parts[0] if len(parts) == 1 else np.concatenate(parts)
        return table, np.concatenate(firsts) if by_values else None

    def _read(self, start: int, stop: int) -> np.ndarray:
        if self._whole is not None:
            return self._whole[start:stop]
        return read_groups(self, self._edges, self._chunk, start, stop)

    def _chunk(self, group: int) -> np.ndarray:
        if self._opened is None or self._opened[0] != group:
            self._opened = None  # free one chunk before the next is parsed
            rows = self._parsed(self._text.read(self._chunks[group]), int(self._edges[group]))
            if len(rows) != self._edges[group + 1] - self._edges[group]:
                raise InputError(f"{self.location.name} changed since it was opened; open it again.")
            self._opened = (group, rows)
        found: np.ndarray = self._opened[1]
        return found

    def _parsed(self, text: bytes, good: int) -> np.ndarray:
        """Return the numbers of some lines; `good` is the number of rows before them."""
        import pyarrow as pa
        from pyarrow import csv as pa_csv

        wanted = [str(j) for j in self._selected]
        if not text.strip(b"\r\n"):
            return np.empty((0, len(wanted)))
        try:
            found = pa_csv.read_csv(
                pa.BufferReader(text),
                read_options=pa_csv.ReadOptions(
                    column_names=[str(j) for j in range(len(self._names))],
                    block_size=max(len(text), 8 * self._line_bytes),
                ),
                parse_options=pa_csv.ParseOptions(delimiter=self._delimiter),
                convert_options=pa_csv.ConvertOptions(
                    column_types={name: pa.float64() for name in wanted},
                    include_columns=wanted,
                    decimal_point="," if self._commas else ".",
                ),
            )
        except pa.ArrowInvalid as error:
            raise self._fault(good, error) from error
        rows = np.empty((found.num_rows, len(wanted)))
        for j, column in enumerate(found.columns):
            rows[:, j] = column.to_numpy(zero_copy_only=False)
        return rows

    def _fault(self, good: int, error: Exception) -> InputError:
        """Find the error that pyarrow reported, and name its line as a text editor numbers it."""
        name = self.location.name
        with self.location.open_text() as file:
            text = io.TextIOWrapper(file, encoding="utf-8-sig", errors="replace", newline="")
            for _ in range(self._skip):
                text.readline()
            reader = csv.reader(text, delimiter=self._delimiter)
            rows = 0
            for fields in reader:
                rows += bool(fields)
                if not fields or rows <= good:
                    continue
                line = self._skip + reader.line_num
                if len(fields) != len(self._names):
                    return InputError(
                        f"{name}, line {line} has {len(fields)} fields, but the first line has "
                        f"{len(self._names)}; fix the line or give delimiter=... (--delimiter)."
                    )
                for j in self._selected:
                    field = fields[j].strip().replace(",", ".") if self._commas else fields[j].strip()
                    if not is_number(field, missing=True):
                        remedy = "fix it, or choose numeric columns with open_dataset(..., columns=[...]) (--columns)"
                        if rows > 1:  # the values above are numbers, so this is not a column of texts
                            remedy = "fix it, or delete the line"
                        elif not j and len(fields) > 1:
                            remedy = "fix it, or leave the column out with index=True (--index)"
                        return InputError(
                            f"{name}, line {line}, column {j + 1} ({shortened(self._names[j], 25)}): "
                            f"{shortened(fields[j], 25)!r} is not a number; {remedy}."
                        )
        return InputError(f"{name} cannot be read: {reason(error)}.")


class ParquetDataset(FileDataset):
    """Numeric columns of a Parquet file, a folder of Parquet files, or a Feather file.

    The row group that was read last is kept in memory.

    Parameters
    ----------
    location : Location
        Location of the file or folder.
    columns : sequence of str or int, optional
        Columns to read. By default all columns except the index that pandas stored.
    index : bool, optional
        Whether the first column numbers or names the rows.
    """

    kind = "parquet"

    def __init__(self, location: Location, columns: Columns, index: bool | None = None) -> None:
        self._table = table = ArrowTable(location)
        selected = select_columns(table.names, columns, location.name)
        self._notes: list[str] = []
        without = self._index_columns(index) if columns is None and len(selected) > 1 else 0
        if without:
            selected = selected[without:]
            if index is None:
                what = index_content(self._first_values(SAMPLE_LINES))
                self._notes.append(left_out(table.names[0], location.name, what))
        self._columns = [table.names[j] for j in selected]
        dtypes = [_column_dtype(name, kind, location) for name in self._columns for kind in table.types(name)]
        super().__init__(location, (table.edges[-1], len(table.names)), np.result_type(*dtypes) if dtypes else float)
        self.shape = (self.shape[0], len(self._columns))
        self.feature_names = list(self._columns)

    @property
    def warnings(self) -> list[str]:
        """See `mgclust.data.Dataset.warnings`."""
        return list(self._notes)

    def _index_columns(self, index: bool | None) -> int:
        """Return how many of the first columns are an index, judged by names or values of the first row group."""
        by_name = index_columns(self._table.names)
        if index is not None or by_name:
            return by_name if index is None else int(index)
        from pyarrow import types

        first = self._table.names[0]
        if self._table.names.count(first) > 1:
            return 0
        kinds = self._table.types(first)
        if not all(map(types.is_integer, kinds)):
            values = np.empty(0) if any(map(types.is_floating, kinds)) else self._first_values(SAMPLE_LINES)
            return int(values.dtype.kind in "OMm" and (numbers_rows(first, values) or is_text_id(first, values)))
        found = self._first_values()
        return int(numbers_rows(first, found) and (len(self._table.edges) == 2 or bool((np.diff(found) == 1).all())))

    def _first_values(self, most: int | None = None) -> np.ndarray:
        """Return values of the first column in the first row group, at most `most`."""
        first, size = self._table.names[0], int(self._table.edges[:2][-1])
        parts = self._table.batches(0, [first], max(1, size if most is None else min(most, size))) if size else ()
        values = [part.column(0).to_numpy(zero_copy_only=False) for part in islice(parts, 1 if most else None)]
        return np.concatenate(values) if values else np.empty(0)

    def describe(self) -> dict[str, Any]:
        """Describe the source, with the names of its columns."""
        return {**super().describe(), "columns": list(self._columns)}

    def reading_bytes(self, rows: int) -> int:
        """Return the bytes of the longest row group, and of the part that is decoded at a time."""
        return self._group_bytes(int(np.diff(self._table.edges).max(initial=0)))

    def _group_bytes(self, count: int) -> int:
        # A few bytes of a compressed file may stand for any number of equal values.
        return (self.dtype.itemsize * count + 24 * min(count, _CHUNK_ROWS)) * len(self._columns)

    def _read(self, start: int, stop: int) -> np.ndarray:
        return read_groups(self, self._table.edges, self._row_group, start, stop)

    def _row_group(self, group: int) -> np.ndarray:
        if self._opened is None or self._opened[0] != group:
            self._opened = None  # free one row group before the next is read
            count = int(np.diff(self._table.edges)[group])
            at_once = max(1, min(count, _CHUNK_ROWS))
            check_memory(f"a row group of {self.location.name}", self._group_bytes(count))
            rows, begin = np.empty((count, len(self._columns)), self.dtype), 0
            for part in self._table.batches(group, self._columns, at_once):
                for j, name in enumerate(self._columns):
                    rows[begin : begin + part.num_rows, j] = column_numbers(part.column(name))
                begin += part.num_rows
            self._opened = (group, rows)
        return self._opened[1]


def read_groups(
    dataset: Dataset, edges: np.ndarray, read_group: Callable[[int], np.ndarray], start: int, stop: int
) -> np.ndarray:
    """Read rows of a data set by row groups; group g has the rows ``edges[g]`` to ``edges[g + 1] - 1``."""
    rows = np.empty((stop - start, dataset.shape[1]), dataset.dtype)
    for group in range(np.searchsorted(edges, start, side="right") - 1, np.searchsorted(edges, stop)):
        begin, end = edges[group : group + 2].tolist()
        low, high = max(start, begin), min(stop, end)
        if low < high:
            rows[low - start : high - start] = read_group(group)[low - begin : high - begin]
    return rows


def _column_dtype(name: str, kind: Any, location: Location) -> np.dtype:
    from pyarrow import types

    if types.is_decimal(kind):
        return np.dtype(np.float64)
    if not (types.is_integer(kind) or types.is_floating(kind) or types.is_boolean(kind)):
        raise InputError(
            f"{location.name}, column {shortened(name)!r} holds {shortened(kind)}, not numbers; choose the "
            "numeric columns with open_dataset(..., columns=[...]) (--columns)."
        )
    return float_dtype(kind.to_pandas_dtype(), location.name)


def utf8_line(raw: bytes, name: str, number: int) -> str:
    """Decode a line of a file that should be UTF-8 text."""
    try:
        if b"\0" not in raw:
            return raw.decode("utf-8")
    except UnicodeDecodeError:
        pass
    raise InputError(f"{name}, line {number} is not text in UTF-8; save the file as UTF-8.")


def _first_line(file: IO[bytes], location: Location) -> tuple[str, int]:
    """Return the first line that is not blank, and the number of blank lines before it."""
    for blank, raw in enumerate(iter(partial(file.readline, _LONGEST_FIRST + 1), b"")):
        if len(raw) > _LONGEST_FIRST:
            raise InputError(
                f"{location.name}: its first line has more than {_LONGEST_FIRST:,} bytes; write one row per line."
            )
        line = utf8_line(raw, location.name, blank + 1).removeprefix("\ufeff").rstrip("\r\n")
        if line.strip() or "\t" in line:
            return line, blank
    raise InputError(f"{location.name} is empty; it should hold one row of numbers per line.")


def _ends(file: IO[bytes], blank: int) -> tuple[int, int]:
    """Return the positions at which the line after some blank lines begins, and ends; leave the file there."""
    end = file.tell()
    file.seek(0)
    for _ in range(blank):
        file.readline()
    begin = file.tell()
    mark = len("\ufeff".encode())
    if not blank and file.read(mark) == "\ufeff".encode():
        begin += mark
    file.seek(end)
    return begin, end


def _sample(file: IO[bytes], delimiter: str, most: int) -> list[list[str]]:
    """Return the fields of at most `most` next lines, up to the first line that is too long."""
    rows: list[list[str]] = []
    for raw in iter(partial(file.readline, _LONGEST_FIRST + 1), b""):
        if len(rows) == most or len(raw) > _LONGEST_FIRST:
            break
        if raw.strip():
            rows.append([field.strip() for field in _split(raw.decode(errors="replace").rstrip("\r\n"), delimiter)])
    return rows


def _guess_delimiter(line: str, location: Location) -> str:
    best = max(DELIMITERS, key=line.count)
    if best == "," and ";" in line and with_points([line.split(";")], ";")[0]:
        return ";"
    if line.count(best):
        return best
    return "\t" if location.suffix == ".tsv" else ","


def _split(line: str, delimiter: str) -> list[str]:
    return next(csv.reader([line], delimiter=delimiter), [])
