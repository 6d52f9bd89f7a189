"""Lists of edges as text, one a line: SNAP, KONECT, .csv, .tsv and their like."""

from __future__ import annotations

import io
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from mgclust.base.errors import InputError
from mgclust.data.graphs.attribute_text import has_attributes, numbers_among, plain_lines
from mgclust.data.graphs.base import Graph
from mgclust.data.graphs.edge_text import Dialect, split_line
from mgclust.data.graphs.objects import edge_columns
from mgclust.data.graphs.text import LinesGraph, scan_edges
from mgclust.data.graphs.text_chunks import TextChunks
from mgclust.data.location import Location
from mgclust.data.readers.tables import utf8_line

__all__ = ["SIZE", "Head", "open_edge_list", "read_head"]

_SAMPLE_LINES = 1000
_MAX_LINES = 100_000  # comments among them
_LONGEST_FIRST = 2**20  # bytes of a line by which the format is guessed
SIZE = re.compile(r"[0-9]{1,18}")  # a number in the line of sizes of a format that has one
_BOM = b"\xef\xbb\xbf"
_DIRECTED = re.compile(r"^\s*[#%]\s*(directed|asym)\b", re.IGNORECASE | re.MULTILINE)
_BIPARTITE = re.compile(r"^\s*%\s*bip\b", re.MULTILINE)
_HEADER_WORDS = {"source", "target", "src", "dst", "from", "to", "node1", "node2", "node_1", "node_2", "id_1", "id_2"}


@dataclass
class Head:
    """First lines of a file."""

    comments: str  # what stands before the first line that is no comment
    lines: list[str]  # that line and others after it, without blank ones and comments
    starts: list[tuple[int, int]]  # where the first line begins, and what follows it: bytes, and number of the line


def read_head(chunks: TextChunks, most: int = _SAMPLE_LINES) -> Head:
    """Read the first lines of a file, at most so many that are no comments."""
    name = chunks.location.name
    comments: list[str] = []
    lines: list[str] = []
    starts = [(0, 1), (0, 1)]
    for offset, number, raw in _raw_lines(chunks):
        if len(raw) > _LONGEST_FIRST:
            raise InputError(
                f"{name}, line {number} has {len(raw):,} bytes; the first lines should have at most {_LONGEST_FIRST:,}."
            )
        line = utf8_line(raw, name, number).strip()
        if line and line[0] not in "#%":
            lines.append(line)
        elif not lines and len(comments) < _SAMPLE_LINES:
            comments.append(line)
        if len(lines) <= 1:
            starts = [(offset, number) if lines == [line] else starts[0], (offset + len(raw), number + 1)]
        if len(lines) == most:
            break
        if number >= _MAX_LINES:
            if not lines:
                raise InputError(f"{name} has {number:,} lines of comments and nothing else; is it a graph?")
            break
    return Head("\n".join(comments), lines, starts)


def _raw_lines(chunks: TextChunks) -> Iterator[tuple[int, int, bytes]]:
    """Lines as they stand, with their places: bytes and number."""
    for chunk, text in chunks.scan():
        offset, skip = chunk.offset, len(_BOM) if not chunk.offset and text.startswith(_BOM) else 0
        for number, raw in enumerate(io.BytesIO(text), start=chunk.line):
            yield offset + skip, number, raw[skip:]
            offset += len(raw)
            skip = 0


def open_edge_list(
    chunks: TextChunks, suffix: str, n_nodes: int | None, columns: Sequence[str | int] | str | None
) -> Graph:
    """Open a text file of one edge a line.

    Parameters
    ----------
    chunks : TextChunks
    suffix : str
        Of the file; a .csv has commas where it has some.
    n_nodes : int or None
        If given, ids are numbers of nodes, from 0.
    columns : sequence of str or int, optional
        Of the two nodes, and of the weight.
    """
    location = chunks.location
    head = read_head(chunks)
    if _BIPARTITE.search(head.comments):
        raise InputError(
            f"{location.name} is bipartite, and both sides number their nodes from 1: give every node its own number."
        )
    attributes = has_attributes(head.lines)
    numbers, weights = numbers_among(head.lines) if attributes else ([], 0)
    if attributes:
        head.lines = [plain_lines(line.encode(), weights > 0).decode() for line in head.lines]
    dialect, header = _dialect(head, suffix, columns, location)
    dialect = replace(dialect, attributes=attributes)
    if len(head.lines) <= header and n_nodes is None:
        raise InputError(f"{location.name} is an empty graph: no line of it has an edge; give n_nodes.")
    if dialect.text and n_nodes is not None:
        raise InputError(
            f"n_nodes={n_nodes} applies to nodes that are numbers; {location.name} names them: leave it out."
        )
    index, count, names = scan_edges(chunks, dialect, *head.starts[header], n_nodes)
    directed = bool(_DIRECTED.search(head.comments))
    graph = LinesGraph(chunks, index, count, dialect, "edge list", names=names, directed=directed)
    if attributes and weights:
        graph.mention_missing("weight", len(head.lines) - weights)
    elif attributes:
        graph.mention(numbers, "open_graph(networkx.read_edgelist(path), weight=name) takes one of these as weights")
    return graph


def _dialect(
    head: Head, suffix: str, columns: Sequence[str | int] | str | None, location: Location
) -> tuple[Dialect, bool]:
    """Find the dialect of the lines, and whether the first of them names the columns."""
    if not head.lines:
        return Dialect(location.name, " ", 2, (0, 1)), False
    delimiter = _delimiter(head.lines[0], suffix)
    fields = [split_line(line, delimiter) for line in head.lines]
    chosen = tuple(edge_columns(fields[0], columns, f"the first line of {location.name}"))
    nodes = chosen[:2]
    # One odd name among numbers is a slip, which the line that has it will tell.
    named = sum(_named(line, nodes) for line in fields)
    text = 2 * named > len(fields)
    by_name = columns is not None and any(
        isinstance(c, str) for c in ([columns] if isinstance(columns, str) else columns)
    )
    header = by_name or (len(fields[0]) > 3 and columns is None) or _is_header(fields, chosen, text)
    return Dialect(location.name, delimiter, len(fields[0]), chosen, text), header


def _delimiter(line: str, suffix: str) -> str:
    if suffix == ".csv":
        best = max(",;\t|", key=line.count)
        if best in line:
            return best
    if all(_is_number(field) for field in line.split()):
        return " "
    return next((delimiter for delimiter in "\t,;|" if delimiter in line), " ")


def _is_header(fields: list[list[str]], chosen: tuple[int, ...], text: bool) -> bool:
    first = fields[0]
    if not text:
        return not any(_is_number(first[j]) for j in chosen)
    if len(chosen) == 3 and len(fields) > 1:
        return not _is_number(first[chosen[2]]) and len(fields[1]) == len(first) and _is_number(fields[1][chosen[2]])
    return {first[j].lower() for j in chosen[:2]} <= _HEADER_WORDS


def _named(fields: list[str], nodes: tuple[int, ...]) -> bool:
    """Return whether one of the nodes of a line is no number."""
    return any(j < len(fields) and fields[j] != "" and not _is_number(fields[j]) for j in nodes)


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return "_" not in text
