"""Labels in .npy, .npz and text files."""

from __future__ import annotations

import csv
import io
import zipfile

import numpy as np

from mgclust.base.errors import InputError
from mgclust.data.graphs.stored_array import StoredArray
from mgclust.data.location import Location
from mgclust.data.readers.tables import DELIMITERS
from mgclust.outside.quoting import shortened

__all__ = ["read_npy_labels", "read_npz_labels", "read_plain_labels", "read_table", "read_text_labels"]

_NODE_COLUMNS = ("node", "name", "id", "")  # the index of a pandas table has an empty name
_LABEL_COLUMNS = ("label", "labels", "cluster", "cluster_id", "class", "y")


def read_npy_labels(location: Location, member: str | None = None) -> np.ndarray:
    """Read a .npy file of labels, or a member of a .npz file."""
    try:
        return StoredArray(location, member).whole()
    except InputError as error:
        raise InputError(
            f"labels={location.name!r} is not a whole .npy array of numbers or strings: {shortened(error, 1000)}"
        ) from error


def read_npz_labels(location: Location) -> np.ndarray:
    """Read the array ``labels``, the array ``y``, or the only array of a .npz file."""
    with location.open() as file, zipfile.ZipFile(file) as archive:
        names = [name.removesuffix(".npy") for name in archive.namelist()]
        candidates = [name for name in ("labels", "y") if name in names] or (names if len(names) == 1 else [])
        if not candidates:
            raise InputError(
                f"labels={location.name!r} holds {shortened(', '.join(names)) or 'nothing'}; name one array 'labels'."
            )
    return read_npy_labels(location, f"{candidates[0]}.npy")


def read_plain_labels(location: Location) -> np.ndarray:
    """Read a .txt file with one label per line; the first line may name them.

    Columns are not guessed here, because blanks between columns look like blanks in a name.
    """
    lines = [line.strip() for line in _lines(location)]
    while lines and not lines[-1]:
        del lines[-1]
    table = [(number, [line]) for number, line in enumerate(lines, 1)]
    if not table:
        raise InputError(f"labels={location.name!r} is empty; it should hold one label per line.")
    wrong = next((number for number, (line,) in table if len(line.split()) != 1 or set(line) & set(DELIMITERS)), None)
    if wrong is not None:
        raise InputError(
            f"labels={location.name!r}, line {wrong} holds no label, or several fields; write one label per line, or "
            "save a table as .csv with a column 'label'."
        )
    labels = [line for _, (line,) in table]
    return _numbers(labels[1:] if _is_header(table, 0, location) else labels)


def _lines(location: Location) -> list[str]:
    with location.open_text() as file:
        return io.TextIOWrapper(file, encoding="utf-8-sig", newline="").read().splitlines()


def read_text_labels(location: Location) -> np.ndarray:
    """Read the column of labels of a .csv or .tsv file."""
    return read_table(location)[0]


def read_table(location: Location, *, nodes: bool = False) -> tuple[np.ndarray, np.ndarray | None]:
    """Read a .csv or .tsv file: the column of labels and, if requested, the names of nodes.

    Parameters
    ----------
    location : Location
    nodes : bool
        Whether to read the names of nodes, from the column ``node``, ``name`` or ``id``, or a column without a title.
        A table of several columns then needs such a column, or a column ``row``.

    Returns
    -------
    labels : ndarray of shape (n,)
        In the order of the column ``row`` if there is one and no names are read, else in the order of the lines.
    names : ndarray of shape (n,), str, or None
        None if names are not requested, or no column has them.
    """
    lines = _lines(location)
    first = next((line for line in lines if line.strip()), "")
    delimiter = max(DELIMITERS, key=first.count)
    table = [(number + 1, fields) for number, fields in enumerate(csv.reader(lines, delimiter=delimiter)) if fields]
    if not table:
        raise InputError(f"labels={location.name!r} is empty; it should hold one label per line.")
    columns = [field.strip().lower() for field in table[0][1]]
    column, row_column = _columns(columns, location)
    width = len(columns)
    if _is_header(table, column, location):
        table = table[1:]
    if not table:
        raise InputError(f"labels={location.name!r} has no labels below its first line; add one label per line.")
    for line, fields in table:
        if len(fields) != width or not fields[column].strip():
            raise InputError(
                f"labels={location.name!r}, line {line} has no label, or not as many fields as the first line; fix it."
            )
    labels = _numbers([fields[column].strip() for _, fields in table])
    names = [columns.index(name) for name in _NODE_COLUMNS if name in columns and columns.index(name) != column]
    if nodes and names:
        return labels, np.array([fields[names[0]] for _, fields in table], np.str_)
    if row_column is None:
        if nodes and width > 1:
            raise InputError(
                f"labels={location.name!r} has the columns {shortened(', '.join(columns))}, none of them called "
                "'node'; name the column of nodes 'node', or keep only the column of labels."
            )
        return labels, None
    rows = _numbers([fields[row_column].strip() for _, fields in table])
    if rows.dtype.kind != "i" or not np.array_equal(np.sort(rows), np.arange(len(rows))):
        raise InputError(
            f"labels={location.name!r}: column 'row' should hold 0 to {len(rows) - 1}, each once; fix it or leave the "
            "column out."
        )
    return labels[np.argsort(rows)], None


def _columns(names: list[str], location: Location) -> tuple[int, int | None]:
    """Find the column of the labels, and the column of row numbers if there is one."""
    candidates = [name for name in _LABEL_COLUMNS if name in names]
    if candidates:
        return names.index(candidates[0]), names.index("row") if "row" in names else None
    if len(names) > 1:
        raise InputError(
            f"labels={location.name!r} has {len(names)} columns, none of them called 'label'; name the column of "
            "labels 'label' in the first line, or keep only this column."
        )
    return 0, None


def _is_header(table: list[tuple[int, list[str]]], column: int, location: Location) -> bool:
    """Return whether the first line names columns: its field is a known name, or is text above numbers.

    Raises
    ------
    InputError
        The field may be a title or a label: the fields below it are texts, some of them are equal, but none equals it.
    """
    name = table[0][1][column].strip()
    if name.lower() in _LABEL_COLUMNS:
        return True
    rest = _numbers([fields[column].strip() for _, fields in table[1:] if len(fields) > column])
    if not len(rest) or _numbers([name]).dtype.kind != "U":
        return False
    if rest.dtype.kind == "U" and name not in rest and len(np.unique(rest)) < len(rest):
        raise InputError(
            f"labels={location.name!r}: the first line, {shortened(repr(name), 80)}, may be a title or a label that "
            "occurs once; if it is a title, replace it by 'label'; if it is a label, add the line 'label' above it."
        )
    return rest.dtype.kind != "U"


def _numbers(texts: list[str]) -> np.ndarray:
    """Convert texts to numbers if all of them are numbers, else to an array of strings."""
    for kind in (np.int64, np.float64):
        try:
            return np.array(texts).astype(kind)
        except (ValueError, OverflowError):
            continue
    return np.array(texts)
