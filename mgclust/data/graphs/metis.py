"""Graphs as lists of neighbours: METIS files (.graph)."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from mgclust.base.errors import InputError
from mgclust.base.hashing import GOLDEN, splitmix64
from mgclust.data.graphs.base import Graph, Where, check_ids, check_n_nodes, check_weights, edge_rows
from mgclust.data.graphs.edge_list import SIZE, read_head
from mgclust.data.graphs.edge_text import line_of
from mgclust.data.graphs.text import ChunkedGraph
from mgclust.data.graphs.text_chunks import Chunk, TextChunks
from mgclust.outside.quoting import reason, shortened

__all__ = ["open_metis"]

_COMMENT_LINE = re.compile(rb"^[ \t]*%[^\n]*\n?", re.MULTILINE)
_BLANKS_TO_NEWLINES = bytes.maketrans(b" \t\r\x0b\x0c", b"\n\n\n\n\n")


@dataclass(frozen=True)
class _Format:
    """Content of the first line."""

    name: str  # name of the file
    n_nodes: int
    n_edges: int
    skip: int  # numbers at the beginning of a line that describe the node itself
    weighted: bool  # whether each neighbour is followed by the weight of the edge


class _Part(NamedTuple):
    """Parsed lines of a chunk: one entry per neighbour of each node."""

    lines: int
    u: np.ndarray  # the node of the line
    v: np.ndarray  # its neighbour
    weights: np.ndarray | None


class _MetisGraph(ChunkedGraph):
    kind = "metis"

    def __init__(self, chunks: TextChunks, form: _Format, index: list[tuple[Chunk, int]], first: list[int]) -> None:
        self._form = form
        self._first_nodes = first
        super().__init__(chunks, index, form.n_nodes, weighted=form.weighted, undirected=True)

    def _parse(self, number: int, text: bytes) -> np.ndarray:
        line, first = self._index[number].line, self._first_nodes[number]
        part = _neighbours(text, line, first, self._form)
        once = part.u <= part.v
        weights = None if part.weights is None else part.weights[once]
        return edge_rows(np.stack([part.u[once], part.v[once]], axis=1), weights, self.n_nodes, lambda _: self.name)


def open_metis(chunks: TextChunks) -> Graph:
    """Open a METIS file: a line of sizes, then one line per node with its neighbours, which are numbered from 1."""
    head = read_head(chunks, 1)
    form = _format(head.lines[0] if head.lines else "", chunks.location.name, head.starts[0][1])
    index, first_nodes, node = [], [], 0
    entries = loops = 0
    balance = 0  # each edge adds its hash at one end and subtracts it at the other
    for chunk, text in chunks.scan(*head.starts[1]):
        part = _neighbours(text, chunk.line, node, form)
        up, down = part.u < part.v, part.u > part.v
        balance += _hash(part.u, part.v, part.weights, up) - _hash(part.v, part.u, part.weights, down)
        upper, lower = int(up.sum()), int(down.sum())
        index.append((chunk, len(part.u) - lower))
        first_nodes.append(node)
        loops += len(part.u) - upper - lower
        entries += len(part.u)
        node += part.lines
    if node < form.n_nodes:
        raise InputError(
            f"{form.name} has lines for {node} nodes, but its first line states {shortened(form.n_nodes)}; write "
            "the file again."
        )
    if balance % 2**64:
        raise InputError(
            f"{form.name} lists an edge only at one of its nodes, or with two weights; list every edge at both nodes."
        )
    found = (entries - loops) // 2 + loops
    if found != form.n_edges:
        raise InputError(
            f"{form.name} has {found} edges, but its first line states {shortened(form.n_edges)}; write the file again."
        )
    return _MetisGraph(chunks, form, index, first_nodes)


def _format(line: str, name: str, number: int) -> _Format:
    sizes = line.split()
    if not 2 <= len(sizes) <= 4 or not all(SIZE.fullmatch(size) for size in sizes):
        raise InputError(
            f"{name}, line {number} ({shortened(line[:60])!r}) should be 2 to 4 numbers: nodes, edges, format, weights."
        )
    form = sizes[2].zfill(3) if len(sizes) > 2 else "000"
    if not re.fullmatch("[01]{3}", form):
        raise InputError(
            f"{name}, line {number}: format {shortened(sizes[2])} should be up to three digits 0 or 1, such as 1 or 11."
        )
    per_node = int(sizes[3]) if len(sizes) > 3 else 1
    skip = int(form[0]) + int(form[1]) * per_node
    return _Format(name, check_n_nodes(int(sizes[0]), name), int(sizes[1]), skip, form[2] == "1")


def _neighbours(text: bytes, first_line: int, first_node: int, form: _Format) -> _Part:
    """Parse lines of neighbours."""
    where = line_of(form.name, text, first_line, left_out=(b"%",))  # a blank line is a node without neighbours
    tidy = _COMMENT_LINE.sub(b"", text) if b"%" in text else text
    if tidy and not tidy.endswith(b"\n"):
        tidy += b"\n"
    symbols = np.frombuffer(tidy, np.uint8)
    newline = symbols == 10
    blank = symbols <= 32
    begins = ~blank
    begins[1:] &= blank[:-1]
    line = np.cumsum(newline, dtype=np.int32)[begins]
    lines = int(newline.sum())
    counts = np.bincount(line, minlength=lines)
    if first_node + lines > form.n_nodes:
        extra = np.flatnonzero(counts[form.n_nodes - first_node :])
        if len(extra):
            at = where(form.n_nodes - first_node + int(extra[0]))
            raise InputError(
                f"{at} comes after the last node: the first line states n_nodes={shortened(form.n_nodes)}; "
                "correct the first line, or remove the lines after the last node."
            )
        lines = form.n_nodes - first_node
        counts = counts[:lines]
    values = _numbers(tidy, form, where)
    place = np.arange(len(line)) - np.repeat(np.cumsum(counts) - counts, counts) - form.skip
    step = 2 if form.weighted else 1
    wrong = (counts < form.skip) | ((counts - form.skip) % step != 0)
    if wrong.any():
        raise InputError(f"{where(int(wrong.argmax()))} does not have {_expected(form)}; fix the line.")
    chosen = (place >= 0) & (place % step == 0)
    node, neighbour = line[chosen], values[chosen] - 1

    def of_node(index: int) -> str:
        return where(int(node[index]))

    check_ids(neighbour.reshape(-1, 1).repeat(2, axis=1), form.n_nodes, of_node, base=1)
    weights = None
    if form.weighted:
        weights = values[(place >= 0) & (place % 2 == 1)]
        check_weights(weights, of_node)
    return _Part(lines, node + np.int32(first_node), neighbour.astype(np.int32), weights)


def _numbers(tidy: bytes, form: _Format, where: Where) -> np.ndarray:
    """Return all numbers of some lines as one column. Blanks become line ends, so that pyarrow reads one column."""
    import pyarrow as pa
    from pyarrow import csv

    if not tidy.strip():
        return np.empty(0, np.int64)
    kind = pa.float64() if form.weighted else pa.int64()
    try:
        table = csv.read_csv(
            pa.BufferReader(tidy.translate(_BLANKS_TO_NEWLINES)),
            read_options=csv.ReadOptions(column_names=["0"]),
            # No number contains this delimiter, so each line is one field.
            parse_options=csv.ParseOptions(delimiter="\x1f", quote_char=False),
            convert_options=csv.ConvertOptions(column_types={"0": kind}, null_values=[]),
        )
    except pa.ArrowInvalid as error:
        for index, raw in enumerate(tidy.split(b"\n")):
            for token in raw.split():
                if not re.fullmatch(rb"-?\d+" if not form.weighted else rb"[-+.\deE]+|nan|inf|-inf", token):
                    shown = token[:40].decode(errors="replace")
                    raise InputError(f"{where(index)}: {shortened(shown)!r} is not a number; fix the line.") from None
        raise InputError(f"{form.name} cannot be read: {reason(error)}.") from None
    return table.column("0").to_numpy()


def _hash(low: np.ndarray, high: np.ndarray, weights: np.ndarray | None, chosen: np.ndarray) -> int:
    """Hash many edges into one number that does not depend on their order."""
    mixed = (low[chosen].astype(np.uint64) << np.uint64(32)) | high[chosen].astype(np.uint64)
    if weights is not None:
        mixed ^= weights[chosen].view(np.uint64) * np.uint64(GOLDEN)
    return int(splitmix64(mixed).sum())


def _expected(form: _Format) -> str:
    own = f"{form.skip} number(s) of the node and then " if form.skip else ""
    return own + ("neighbours with a weight each" if form.weighted else "its neighbours")
