"""Reader of fMRIPrep's tables of confounds, which have one column per confound and one line per volume."""

from __future__ import annotations

import csv
import fnmatch
import io
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from mgclust.base.errors import InputError
from mgclust.data.location import Location, is_path
from mgclust.outside.quoting import quoting, shortened
from mgclust.params.constraint import nearest_word, shown

__all__ = ["FRAMEWISE_DISPLACEMENT", "Confounds", "find_tables", "names_of", "read_confounds"]

FRAMEWISE_DISPLACEMENT = "framewise_displacement"
_LONGEST_LINE = 2**24  # characters, far more than needed: fMRIPrep writes a few hundred columns
_MISSING = ("n/a", "nan", "")
_NUMBER = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)(e[+-]?[0-9]+)?", re.IGNORECASE)  # float() also takes 1_000
_ENDS = ("desc-confounds_timeseries.tsv", "desc-confounds_regressors.tsv")  # fMRIPrep since version 20.2, and before
# BIDS entities in the name of a series that the name of its table of confounds does not have. The second group is
# also removed if no table is found after the first is removed: a table of all echoes has no `echo` in its name.
_OF_SERIES = (("desc", "space", "res", "den", "cohort", "hemi"), ("echo", "part"))


@dataclass(frozen=True, eq=False)
class Confounds:
    """Columns of one table.

    Attributes
    ----------
    table : str
        Name of the file.
    sha256 : str
        SHA-256 of the bytes of the file.
    names : tuple of str
        Names of the columns.
    values : ndarray of shape (n_times, n_columns), float64
        Values of the columns; all values are finite.
    """

    table: str
    sha256: str
    names: tuple[str, ...]
    values: np.ndarray


def names_of(confound_names: Any) -> list[str]:
    """Return the patterns of the option `confound_names`, which is a sequence of str, or text with commas."""
    parts = confound_names.split(",") if isinstance(confound_names, str) else confound_names
    if not isinstance(parts, (list, tuple)) or not all(isinstance(part, str) for part in parts):
        raise InputError(
            f"confound_names is a {type(confound_names).__name__}; give names of columns, such as ['csf', 'rot_*']."
        )
    names = [part.strip() for part in parts if part.strip()]
    if not names:
        raise InputError("confound_names is empty; give names of columns, such as 'csf,rot_*', or leave it out.")
    return names


def find_tables(confounds: Any, runs: Sequence[Location]) -> list[Location]:
    """Return the table of each run.

    Parameters
    ----------
    confounds : str, path, or sequence of paths
        Paths of the tables, in the order of the runs; a str may name several, separated by commas. With "auto", the
        table of a run is the table in the same folder whose BIDS name matches the name of the run.
    runs : sequence of Location
        Files of the series.

    Raises
    ------
    InputError
        The number of tables is not the number of runs, a table is given twice, or "auto" finds no table.
    """
    if isinstance(confounds, str) and confounds.strip().lower() == "auto":
        return [_table_next_to(run) for run in runs]
    several = (
        isinstance(confounds, str)
        and "://" not in confounds
        and (len(runs) > 1 or not os.path.exists(confounds))  # a comma may be part of the name of the only table
    )
    paths = [part.strip() for part in confounds.split(",")] if several else confounds
    paths = [paths] if is_path(paths) else paths
    if not isinstance(paths, (list, tuple)) or not all(map(is_path, paths)) or "" in paths:
        raise InputError(
            f"confounds={shown(confounds)} names no table; give the path of a .tsv file, a list of one path per run, "
            "or 'auto'."
        )
    if len(paths) != len(runs):
        raise InputError(
            f"confounds names {_counted(len(paths), 'file')} for {_counted(len(runs), 'run')}; give one .tsv file per "
            "run, in the order of the runs."
        )
    tables = list(map(Location.of, paths))
    for at, table in enumerate(tables):
        if table.path in [other.path for other in tables[:at]]:
            raise InputError(
                f"confounds names {table.name} more than once; give each run its own table, in the order of the runs."
            )
    return tables


def _table_next_to(run: Location) -> Location:
    folder, name = os.path.split(run.path)
    parts = re.sub(r"(\.dtseries)?\.nii(\.gz)?$", "", name, flags=re.IGNORECASE).split("_")
    entities, wanted = parts[:-1], []
    for gone in _OF_SERIES:
        entities = [part for part in entities if part.partition("-")[0] not in gone]
        wanted += ["_".join([*entities, end]) for end in _ENDS]
    if run.beneath is None and run.content is None and not run.remote:
        for each in wanted:
            if (table := Location.of(os.path.join(folder, each))).exists():
                return table
    raise InputError(f"confounds='auto' finds no {wanted[0]} next to {run.name}; give the path of the table.")


def read_confounds(
    location: Location, patterns: Sequence[str], n_times: int, run: str, first: float | None = None
) -> Confounds:
    """Read columns of a table.

    Parameters
    ----------
    location : Location
        A text file with a line of column names, and then one line per volume; fields are separated by tabs. ``n/a``
        stands for a missing value, which only the first volume may have.
    patterns : sequence of str
        Names of columns; ``*`` stands for any characters, and ``?`` for one.
    n_times : int
        Number of volumes of the run; the table must have one line for each of them.
    run : str
        Name of the run, for messages.
    first : float, optional
        Value that replaces a missing value of the first volume. By default, the value of the second volume replaces it,
        as in nilearn's ``load_confounds``. Derivatives, for example, have no value in the first volume.

    Raises
    ------
    InputError
        The table has another length, lacks a column, or holds values that are not finite numbers.
    """
    with location.reading():
        where = f"confounds={location.name!r}"
        sha256 = location.sha256()
        with location.open_text() as stream:
            text = io.TextIOWrapper(stream, encoding="utf-8-sig", newline="")
            lines = csv.reader(iter(lambda: text.readline(_LONGEST_LINE), ""), delimiter="\t")
            try:
                header, chosen, rows, numbers = _read(lines, patterns, n_times, where)
            except UnicodeDecodeError as error:
                raise InputError(f"{where} is not text in UTF-8; save it with this encoding.") from error
        if len(rows) != n_times:
            there = len(rows) if len(rows) < n_times else f"more than {n_times}"
            raise InputError(
                f"{where} has {there} lines of values, but {run} has {n_times} volumes; give the table of this run."
            )
        names = tuple(header[column] for column in chosen)
        columns = [_values([row[k] for row in rows], numbers, name, where, first) for k, name in enumerate(names)]
    return Confounds(location.name, sha256, names, np.stack(columns, axis=1))


def _counted(number: int, word: str) -> str:
    return f"{number} {word}{'s' * (number != 1)}"


def _read(
    lines: Any, patterns: Sequence[str], n_times: int, where: str
) -> tuple[list[str], list[int], list[list[str]], list[int]]:
    """Return the header, the chosen columns, and their fields and the number of the line for each volume.

    At most one volume more than `n_times` is read. `lines` is a csv.reader. Blank lines are skipped.
    """
    header = [name.strip() for name in next((fields for fields in lines if fields), [])]
    if not header:
        raise InputError(f"{where} is empty; give the table of this run.")
    if any("\0" in name for name in header):  # UTF-16 without a byte order mark
        raise InputError(f"{where} is not text in UTF-8; save it with this encoding.")
    chosen = _chosen(header, patterns, where)
    rows: list[list[str]] = []
    numbers: list[int] = []
    for fields in lines:
        if not fields:
            continue
        if len(fields) != len(header):
            raise InputError(
                f"{where}: line {lines.line_num} has {_counted(len(fields), 'field')}, but the line of column names "
                f"has {len(header)}; repair the table."
            )
        rows.append([fields[column].strip() for column in chosen])
        numbers.append(lines.line_num)
        if len(rows) > n_times:
            break
    return header, chosen, rows, numbers


def _chosen(header: list[str], patterns: Sequence[str], where: str) -> list[int]:
    chosen: list[int] = []
    for pattern in patterns:
        found = [k for k, name in enumerate(header) if fnmatch.fnmatchcase(name, pattern)]
        if not found:
            if len(header) == 1 and re.search("[,; ]", header[0]):
                raise InputError(
                    f"{where} has no column {pattern!r}, because its columns are not separated by tabs; save it with "
                    "tabs between the columns."
                )
            near = nearest_word(pattern, header) if quoting() else ""
            columns = f"give names of its columns, which are {shortened(', '.join(header))}."
            raise InputError(f"{where} has no column {pattern!r}; {near or columns}")
        chosen += [k for k in found if k not in chosen]
    return chosen


def _values(texts: list[str], lines: list[int], name: str, where: str, first: float | None) -> np.ndarray:
    """Convert the fields of a column; `lines` has the number of each field's line in the file, from 1."""
    values = np.empty(len(texts))
    for k, text in enumerate(texts):
        missing = text.lower() in _MISSING
        values[k] = np.nan if missing else float(text) if _NUMBER.fullmatch(text) else np.inf
        if np.isinf(values[k]):
            raise InputError(
                f"{where}: column {shortened(name)!r} holds {shortened(text, 40)!r} in line {lines[k]}, which is not a "
                "finite number; repair it or leave the column out."
            )
    if len(values) > 1 and np.isnan(values[0]):
        values[0] = values[1] if first is None else first
    if np.isnan(values).any():
        raise InputError(
            f"{where}: column {shortened(name)!r} has no value in {int(np.isnan(values).sum())} of {len(values)} rows, "
            f"the first in line {lines[int(np.isnan(values).argmax())]}; leave the column out."
        )
    return values
