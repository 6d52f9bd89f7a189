"""Text files with one edge per line: SNAP, KONECT, .csv, .tsv and similar."""

from __future__ import annotations

import io
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from mgclust.base.errors import InputError
from mgclust.data.graphs.attribute_text import has_attributes, numbers_among, plain_lines
from mgclust.data.graphs.base import Graph
from mgclust.data.graphs.edge_roles import edge_columns, names_nodes
from mgclust.data.graphs.edge_text import Dialect, SpelledIds, is_quoted, is_spelled, split_line
from mgclust.data.graphs.text import LinesGraph, scan_edges
from mgclust.data.graphs.text_chunks import TextChunks
from mgclust.data.location import Location
from mgclust.data.options import Requested
from mgclust.data.readers.tables import utf8_line
from mgclust.data.table_columns import (
    SAMPLE_LINES,
    holds_times,
    is_number,
    is_running,
    numbers_rows,
    with_row_names,
)
from mgclust.outside.quoting import shortened

__all__ = ["SIZE", "Head", "open_edge_list", "read_head"]

_INTEGER = re.compile(r"\d+")
_MAX_LINES = 100_000  # maximum number of comment lines before the first edge
_LONGEST_FIRST = 2**20  # maximum bytes of each line from which the format is guessed
SIZE = re.compile(r"[0-9]{1,18}")  # a number in the line of sizes, in formats that have such a line
_BOM = b"\xef\xbb\xbf"
_DIRECTED = re.compile(r"^\s*[#%]\s*(directed|asym)\b", re.IGNORECASE | re.MULTILINE)
_BIPARTITE = re.compile(r"^\s*%\s*bip\b", re.MULTILINE)


@dataclass
class Head:
    """The first lines of a file."""

    comments: str  # the lines before the first line that is not a comment
    lines: list[str]  # the first line that is not a comment and the lines after it, without blank lines and comments
    starts: list[tuple[int, int]]  # (byte, line number) of the first of `lines`, and of the line after it
    marked: list[str]  # lines below the first line that look like comments


def read_head(
    chunks: TextChunks, most: int = SAMPLE_LINES, is_comment: Callable[[str, bool], bool] = lambda line, begun: True
) -> Head:
    """Read the first lines of a file, of which at most `most` are not comments.

    Parameters
    ----------
    chunks : TextChunks
        Reads the file.
    is_comment : callable
        ``is_comment(line, begun)`` returns whether a line that begins with ``#`` or ``%`` is a comment. ``begun`` is
        True if an edge came before the line.
    """
    name = chunks.location.name
    comments: list[str] = []
    lines: list[str] = []
    marked: list[str] = []
    starts = [(0, 1), (0, 1)]
    for offset, number, raw in _raw_lines(chunks):
        if len(raw) > _LONGEST_FIRST:
            raise InputError(
                f"{name}, line {number} has {len(raw):,} bytes; the first lines should have at most {_LONGEST_FIRST:,}."
            )
        line = utf8_line(raw, name, number).strip()
        if line and (line[0] not in "#%" or not is_comment(line, bool(lines))):
            lines.append(line)
        elif line and lines:
            marked.append(line)
        elif not lines and len(comments) < SAMPLE_LINES:
            comments.append(line)
        if len(lines) <= 1:
            starts = [(offset, number) if lines == [line] else starts[0], (offset + len(raw), number + 1)]
        if len(lines) + len(marked) >= most:
            break
        if number >= _MAX_LINES:
            if not lines:
                raise InputError(f"{name} has {number:,} lines of comments and nothing else; check that it is a graph.")
            break
    return Head("\n".join(comments), lines, starts, marked)


def _raw_lines(chunks: TextChunks) -> Iterator[tuple[int, int, bytes]]:
    """Yield unparsed lines, each with the byte at which it begins and its line number."""
    for chunk, text in chunks.scan():
        offset, skip = chunk.offset, len(_BOM) if not chunk.offset and text.startswith(_BOM) else 0
        for number, raw in enumerate(io.BytesIO(text), start=chunk.line):
            yield offset + skip, number, raw[skip:]
            offset += len(raw)
            skip = 0


def open_edge_list(chunks: TextChunks, suffix: str, asked: Requested) -> Graph:
    """Open a text file with one edge per line.

    Parameters
    ----------
    chunks : TextChunks
    suffix : str
        Suffix of the file. In a .csv file, the separator is a comma if the first line has one.
    asked : Requested
        Options of the user. With ``n_nodes``, ids are numbers of nodes, from 0.
    """
    location, n_nodes = chunks.location, asked.n_nodes
    head = read_head(chunks)
    if _BIPARTITE.search(head.comments):
        raise InputError(
            f"{location.name} is bipartite, and both sides number their nodes from 1; give every node its own number."
        )
    comments = suffix not in (".csv", ".tsv") or not _has_tags(head, suffix)
    if not comments:
        last = head if head.lines else replace(head, lines=head.comments.splitlines()[-1:])
        head = read_head(chunks, is_comment=lambda line, begun: not begun and not _like_last(last, suffix, line))
    attributes = has_attributes(head.lines)
    numbers, weights = numbers_among(head.lines) if attributes else ([], 0)
    if attributes:
        head.lines = [plain_lines(line.encode(), weights > 0).decode() for line in head.lines]
    dialect, header, notes = _dialect(head, suffix, asked, location)
    dialect = replace(dialect, attributes=attributes, comments=comments, zeros=n_nodes is not None)
    if len(head.lines) <= header and n_nodes is None:
        raise InputError(f"{location.name} is an empty graph: no line has an edge; give n_nodes.")
    if dialect.text and n_nodes is not None:
        raise InputError(
            f"n_nodes={n_nodes} needs nodes that are numbers, but {location.name} has names; leave n_nodes out."
        )
    dialect, index, count, names = _scan(chunks, dialect, head, header, n_nodes)
    if header and notes and notes[0].startswith("the first line") and asked.header is None:
        # Only a pass over all lines shows whether the words of the first line are names of nodes.
        first = split_line(head.lines[0], dialect.delimiter)
        known = np.arange(count) if names is None else names
        edges = sum(each for _, each in index)
        occur = np.isin(first, known.astype(str)).any()
        if occur or (edges > 1 and 2 * edges < 1.2 * count):
            dialect, header, notes = _dialect(head, suffix, replace(asked, header=False), location)
            dialect = replace(dialect, attributes=attributes, comments=comments, zeros=n_nodes is not None)
            dialect, index, count, names = _scan(chunks, dialect, head, header, n_nodes)
            if not occur:
                notes.append(
                    f"the first line ({shortened(', '.join(first), 40)}) was read as an edge and may name columns; "
                    "header=True (--header) reads it as names."
                )
    directed = bool(_DIRECTED.search(head.comments))
    graph = LinesGraph(chunks, index, count, dialect, "edge list", names=names, directed=directed)
    if attributes and weights:
        graph.mention_missing("weight", len(head.lines) - weights)
    elif attributes:
        graph.mention(numbers, "open_graph(networkx.read_edgelist(path), weight=name) uses one of these as weights")
    for note in notes:
        graph.note(note)
    return graph


def _scan(chunks: TextChunks, dialect: Dialect, head: Head, header: bool, n_nodes: int | None) -> tuple[Any, ...]:
    """Scan all edges; return the results and the dialect, because a scan may show that ids are text."""
    try:
        found = scan_edges(chunks, dialect, *head.starts[header], n_nodes)
    except SpelledIds:
        dialect = replace(dialect, text=True)
        found = scan_edges(chunks, dialect, *head.starts[header], n_nodes)
    return replace(dialect, zeros=True), *found  # ranks need not check again for ids such as 007


def _has_tags(head: Head, suffix: str) -> bool:
    """Return whether names of nodes begin with ``#``; lines that begin with ``#`` are then edges, not comments."""
    if any(map(partial(_like_last, head, suffix), head.marked if head.lines else ())):
        return True
    lines = head.lines or head.comments.splitlines()
    if not lines:
        return False
    fields = [split_line(line, _delimiter(lines[-1], suffix)) for line in lines]
    width = len(fields[-1])
    if head.lines:
        return any(field.startswith("#") for line in fields for field in line)
    return 1 < width <= 3 and all(len(line) == width and all(each[:1] == "#" for each in line[:2]) for line in fields)


def _like_last(head: Head, suffix: str, line: str) -> bool:
    """Return whether a line such as ``#cat,#dog`` has as many fields as the last line in `head`."""
    delimiter = _delimiter(head.lines[-1], suffix)
    return (
        delimiter != " "
        and line[1:2] not in " \t"
        and len(split_line(line, delimiter)) == len(split_line(head.lines[-1], delimiter))
    )


def _dialect(head: Head, suffix: str, asked: Requested, location: Location) -> tuple[Dialect, bool, list[str]]:
    """Return the dialect of the lines, whether the first line names the columns, and warnings."""
    if not head.lines:
        return Dialect(location.name, " ", 2, (0, 1)), False, []
    delimiter = _delimiter(head.lines[0], suffix)
    fields = [split_line(line, delimiter) for line in head.lines]
    first = fields[0] if asked.header is False else with_row_names(fields[0], fields[1:])
    below = [line for line in fields[1:] if len(line) == len(first)]
    if len(first) < 2:
        line = shortened(head.lines[0], 40)
        raise InputError(f"{location.name}: the first line ({line!r}) has one field; an edge needs two nodes.")
    header, doubt = (True, "") if len(first) > len(fields[0]) else _is_header(first, below, asked)
    _reject_matrix(first, below, location)
    rows = below if header else [first, *below]
    spelled = asked.roles.get("index") is None and len(first) > 2
    running = spelled and (header or len(first) > 3) and numbers_rows(first[0], [row[0] for row in rows])
    times = [holds_times([row[j] for row in rows]) for j in range(len(first))]
    name = f"the first line of {location.name}" if header else location.name
    names = first if header else [f"column {j + 1}" for j in range(len(first))]
    said = split_line(head.comments.splitlines()[-1].lstrip("#% "), delimiter) if head.comments else []
    if not header and len(said) == len(first) and names_nodes(said):
        names = said  # NumPy begins a header with "#"
    positions, notes = edge_columns(names, asked.columns, name, asked.roles, running, times)
    chosen = tuple(positions)
    if not header and len(first) == 3 == len(chosen) and spelled and asked.columns is None:
        numbers = [row[0] for row in rows], [row[2] for row in rows]
        if is_running(numbers[0]) and all(_INTEGER.fullmatch(field) for field in numbers[1]):
            notes.append(
                f"the first column of {shortened(location.name, 60)} was read as nodes and may number the lines; "
                "index=True (--index) leaves it out."
            )
    # A name among numbers is an error, which the parser reports later with its line.
    named = sum(_named(line, chosen[:2]) for line in fields)
    text = 2 * named > len(fields) or any(is_spelled(row[j]) for row in rows for j in chosen[:2])
    notes = [*([doubt] if doubt else []), *notes]
    quoted = delimiter == " " and all(map(is_quoted, head.lines))
    return Dialect(location.name, delimiter, len(first), chosen, text, quoted=quoted), header, notes


def _delimiter(line: str, suffix: str) -> str:
    if suffix == ".csv":
        best = max(",;\t|", key=line.count)
        if best in line:
            return best
    if all(is_number(field) for field in line.split()):
        return " "
    return next((delimiter for delimiter in "\t,;|" if delimiter in line), " ")


def _is_header(first: list[str], below: list[list[str]], asked: Requested) -> tuple[bool, str]:
    """Return whether the first line names the columns, and a warning if it may be an edge."""
    if asked.header is not None:
        return asked.header, ""
    said = [asked.columns] if isinstance(asked.columns, str) else asked.columns or []
    if any(isinstance(each, str) and not each.isdecimal() for each in (*said, *asked.roles.values())):
        return True, ""
    if names_nodes(first):
        return True, ""
    numeric = [j for j in range(len(first)) if 2 * sum(is_number(row[j]) for row in below) > len(below)]
    unnamed = first[0] == ""
    counted = first[unnamed:] == [str(j) for j in range(len(first) - unnamed)] and len(first) - unnamed > 1
    if unnamed and counted:
        return True, ""
    words = {word for row in below for word in (row[:2] if counted else row)}
    if not below or {*first[:2]} & words:
        return False, ""
    if numeric and not counted:
        return not any(map(is_number, first)), ""
    if any(is_number(word) for word in first) and not counted:
        return False, ""
    return True, (
        f"the first line ({shortened(', '.join(first), 40)}) was read as names of columns, because these words do not "
        "occur below; header=False (--no-header) reads it as an edge."
    )


def _reject_matrix(first: list[str], below: list[list[str]], location: Location) -> None:
    """Reject an adjacency matrix with names, as pandas writes it."""
    named = first[0] == "" and (len(first) > 4 or not all(map(is_number, first[1:])))
    numbers = all(is_number(field, missing=True) for row in below for field in row[1:])
    if named and numbers and len(below) > 1 and sorted(first[1:]) == sorted(row[0] for row in below):
        raise InputError(
            f"{shortened(location.name, 60)} is an adjacency matrix with names; in Python give "
            "pandas.read_csv(path, index_col=0), or write one edge per line."
        )


def _named(fields: list[str], nodes: tuple[int, ...]) -> bool:
    """Return whether one of the nodes of a line is not a number."""
    return any(j < len(fields) and fields[j] != "" and not is_number(fields[j]) for j in nodes)
