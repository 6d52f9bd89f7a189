"""Parsing of lines of edges with pyarrow, and messages that name the line with an error.

pyarrow is fast, but it needs a single separator and no comments, and its messages say little about an error. A chunk is
therefore tidied first if necessary. If pyarrow fails, Python parses the chunk again line by line, but only to find the
line with the error.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from mgclust.base.errors import InputError
from mgclust.data.graphs.attribute_text import plain_lines
from mgclust.data.readers.tables import utf8_line
from mgclust.outside.quoting import reason, shortened

__all__ = ["Dialect", "Edges", "SpelledIds", "is_quoted", "is_spelled", "line_of", "parse_edges", "split_line"]

Edges = tuple[Any, Any, np.ndarray | None]
"""Columns u and v (NumPy int64, or pyarrow text), and weights or None."""

_COMMENT_LINE = re.compile(rb"^[ \t]*[#%][^\n]*\n?", re.MULTILINE)
_INTEGER = re.compile(r"\s*-?\d+\s*", re.ASCII)
_MAX_DIGITS = 25  # ids have fewer digits; Python does not convert thousands of digits


_SPELLED = re.compile(rb"(?:^|[\n,;|\t \"])(?:[+-]?0\d|\+\d)")


class SpelledIds(InputError):
    """Error for ids of nodes that are numbers, but are not written as plain integers, such as 007 or +1."""


def is_spelled(field: str) -> bool:
    """Return whether an id would lose leading zeros or its sign if it were read as an integer."""
    return re.fullmatch(r"[+-]?0\d+|\+\d+", field) is not None


@dataclass(frozen=True)
class Dialect:
    """Rules by which the lines of a file are read."""

    name: str  # name of the file, for messages
    delimiter: str  # one character; a space stands for any spaces and tabs
    width: int  # number of fields per line
    columns: tuple[int, ...]  # positions of the two nodes and, if there is a third, of the weight
    text: bool = False  # whether nodes are text
    base: int = 0  # number of the first node, in formats that number nodes
    attributes: bool = False  # whether lines end with attributes in braces
    comments: bool = True  # whether lines that begin with # or % are comments
    zeros: bool = False  # whether 007 is read as the number 7
    quoted: bool = False  # whether fields between blanks are in quotes

    @property
    def weighted(self) -> bool:
        """True if edges have weights."""
        return len(self.columns) == 3

    @property
    def skipped(self) -> tuple[bytes, ...]:
        """First characters of lines that hold no edge; empty for blank lines."""
        return (b"", b"#", b"%") if self.comments else (b"",)

    def plain(self, text: bytes) -> bytes:
        """Return lines without attributes in braces."""
        return plain_lines(text, self.weighted) if self.attributes else text


def is_quoted(line: str) -> bool:
    """Return whether a line has quoted fields between blanks, as R writes them."""
    return line.startswith('"') and line.count('"') % 2 == 0


def split_line(line: str, delimiter: str) -> list[str]:
    """Split a line into its fields."""
    if delimiter == " " and not is_quoted(line):
        return line.split()
    if '"' in line:
        import csv

        blanks = delimiter == " "
        line = " ".join(line.split()) if blanks else line
        return [field.strip() for field in next(csv.reader([line], delimiter=delimiter), [])]
    return [field.strip() for field in line.split(delimiter)]


def parse_edges(text: bytes, first_line: int, dialect: Dialect) -> Edges:
    """Parse whole lines.

    Parameters
    ----------
    text : bytes
        The lines.
    first_line : int
        Number of the first of these lines in the file.
    dialect : Dialect
        How the lines are read.

    Returns
    -------
    u, v : ndarray of int64, or pyarrow.Array of text
        The nodes of each edge.
    weights : ndarray of float64, or None

    Raises
    ------
    InputError
        A line is malformed. The message has the number and content of the first malformed line.
    """
    import pyarrow as pa
    from pyarrow import csv

    tidy = _tidy(dialect.plain(text), dialect)
    if not tidy.strip():
        none: Any = pa.array([], pa.large_string()) if dialect.text else np.empty(0, np.int64)
        return none, none, np.empty(0) if dialect.weighted else None
    if not (dialect.text or dialect.zeros or dialect.base) and _SPELLED.search(tidy):
        for number, raw in enumerate(text.split(b"\n"), start=first_line):
            fields = split_line(raw.decode(errors="replace"), dialect.delimiter)
            if len(fields) == dialect.width and any(is_spelled(fields[j]) for j in dialect.columns[:2]):
                raise SpelledIds(f"{dialect.name}, line {number}: ids with leading zeros or signs are names of nodes.")
    names = [str(j) for j in range(dialect.width)]
    wanted = [str(j) for j in dialect.columns]
    node_type = pa.large_string() if dialect.text else pa.int64()
    types = {name: node_type for name in wanted[:2]} | {name: pa.float64() for name in wanted[2:]}
    try:
        table = csv.read_csv(
            pa.BufferReader(tidy),
            read_options=csv.ReadOptions(column_names=names, block_size=max(2**22, len(tidy) // 4)),
            parse_options=csv.ParseOptions(
                delimiter=dialect.delimiter, quote_char='"' if dialect.quoted or dialect.delimiter != " " else False
            ),
            # An empty field is an error, not a missing value.
            convert_options=csv.ConvertOptions(column_types=types, include_columns=wanted, null_values=[]),
        )
    except pa.ArrowInvalid as error:
        raise _fault(text, first_line, dialect, reason(error)) from None
    u, v = (_nodes(table.column(name), dialect) for name in wanted[:2])
    weights = table.column(wanted[2]).to_numpy() if dialect.weighted else None
    if _wrong(u, v, weights, dialect):
        raise _fault(text, first_line, dialect, "a value is out of range")
    return u, v, weights


def line_of(
    name: str, text: bytes, first_line: int, left_out: tuple[bytes, ...] = (b"", b"#", b"%")
) -> Callable[[int], str]:
    """Return a function that names an edge by its line; a line that begins as in `left_out` holds no edge."""

    def where(index: int) -> str:
        left = index
        for number, raw in enumerate(text.split(b"\n"), start=first_line):
            if raw.lstrip()[:1] in left_out:
                continue
            if not left:
                return f"{name}, line {number} ({_short(raw.decode(errors='replace').strip())})"
            left -= 1
        return name

    return where


def _tidy(text: bytes, dialect: Dialect) -> bytes:
    """Return the lines without comments, and with single separators."""
    delimiter = dialect.delimiter
    if dialect.comments and (b"#" in text or b"%" in text):
        text = _COMMENT_LINE.sub(b"", text)
    if b"\r" in text:
        text = text.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
    if delimiter != " ":
        return text
    if b"\t" in text:
        text = text.replace(b"\t", b" ")
    while b"  " in text:
        text = text.replace(b"  ", b" ")
    if b" \n" in text:
        text = text.replace(b" \n", b"\n")
    if b"\n " in text:
        text = text.replace(b"\n ", b"\n")
    return text.strip(b" ")


def _nodes(column: Any, dialect: Dialect) -> Any:
    if not dialect.text:
        ids = column.to_numpy()
        return ids - dialect.base if dialect.base else ids
    from pyarrow import compute

    return compute.utf8_trim_whitespace(column.combine_chunks())


def _wrong(u: Any, v: Any, weights: np.ndarray | None, dialect: Dialect) -> bool:
    if dialect.text:
        from pyarrow import compute

        bad = any(compute.min(compute.utf8_length(ids)).as_py() == 0 for ids in (u, v) if len(ids))
    else:
        bad = bool(len(u)) and min(int(u.min()), int(v.min())) < 0
    return bad or (weights is not None and not bool(((weights >= 0) & (weights < np.inf)).all()))


def _fault(text: bytes, first_line: int, dialect: Dialect, otherwise: str) -> InputError:
    """Find the first line with an error, and describe the error."""
    for number, raw in enumerate(text.split(b"\n"), start=first_line):
        if raw.lstrip()[:1] in dialect.skipped:
            continue
        line = utf8_line(dialect.plain(raw), dialect.name, number).strip("\r")
        why = _why(line, dialect)
        if why:
            return InputError(f"{dialect.name}, line {number} ({_short(line)}): {why}")
    return InputError(f"{dialect.name} cannot be read: {otherwise}.")


def _why(line: str, dialect: Dialect) -> str:
    fields = split_line(line, dialect.delimiter)
    if len(fields) != dialect.width:
        return f"{len(fields)} fields where the first edge has {dialect.width}; fix the line."
    for j in dialect.columns[:2]:
        why = _why_node(fields[j], dialect)
        if why:
            return why
    if dialect.weighted:
        weight = fields[dialect.columns[2]]
        try:
            good = 0 <= float(weight) < np.inf and "_" not in weight
        except ValueError:
            return f"weight {_short(weight)} is not a number; fix the line, or leave weights out with columns=[...]."
        if not good:
            return (
                f"weight {shortened(weight, 60)} should be a finite number >= 0, because modularity is not defined for "
                "other weights; drop the edge or fix its weight."
            )
    return ""


def _why_node(field: str, dialect: Dialect) -> str:
    if dialect.text:
        return "" if field else "a node has no name; fix the line."
    if not _INTEGER.fullmatch(field):
        return f"node {_short(field)} is not an integer; ids should be integers, unless most are names."
    if len(field.strip()) > _MAX_DIGITS:
        return f"node id {_short(field)} should be below 2**63."
    if int(field) < dialect.base:
        what = "is negative" if int(field) < 0 else "is too small"
        return f"node id {shortened(int(field))} {what}; ids should be >= {dialect.base}."
    return "" if int(field) < 2**63 else f"node id {shortened(int(field))} should be below 2**63."


def _short(text: str) -> str:
    return repr(shortened(text, 60))
