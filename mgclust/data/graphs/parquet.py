"""Edges in columns of Parquet and Feather files, read by row groups."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from mgclust.base.errors import InputError
from mgclust.data.graphs.base import Graph, as_weights, check_ids, edge_rows, row_number
from mgclust.data.graphs.edge_roles import edge_columns, mention_columns
from mgclust.data.graphs.node_names import IntegerIds, TextIds, without_gaps
from mgclust.data.graphs.numpy_files import FileGraph
from mgclust.data.location import Location
from mgclust.data.readers.arrow_files import ArrowTable
from mgclust.data.readers.tables import read_groups
from mgclust.data.table_columns import SAMPLE_LINES, holds_times, numbers_rows
from mgclust.outside.inflation import check_memory
from mgclust.outside.quoting import reason, shortened

__all__ = ["open_parquet_graph"]


class _ParquetGraph(FileGraph):
    """Edges of a Parquet file. The row group that was read last is kept."""

    kind = "parquet"

    def __init__(self, columns: _Columns, n_nodes: int, names: np.ndarray | None) -> None:
        self._columns = columns
        self._kept: tuple[int, np.ndarray] | None = None
        super().__init__(
            columns.location, int(self._columns.edges[-1]), n_nodes, weighted=len(columns.labels) == 3, names=names
        )
        mention_columns(self, *columns.asked, columns.numeric.__getitem__, columns.notes)

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_kept": None}

    def describe(self) -> dict[str, Any]:
        """Describe the source, with the names of its columns."""
        return {**super().describe(), "columns": list(self._columns.labels)}

    def _read(self, start: int, stop: int) -> np.ndarray:
        return read_groups(self, self._columns.edges, self._group, start, stop)

    def _group(self, group: int) -> np.ndarray:
        if self._kept is None or self._kept[0] != group:
            self._kept = None  # free one row group before the next is read
            u, v, weights = self._columns.read(group)
            if self._names is not None:
                u, v = self._names.encode(u), self._names.encode(v)
            where = row_number(self.name, int(self._columns.edges[group]))
            self._kept = group, edge_rows(np.stack([u, v], axis=1), weights, self.n_nodes, where)
        return self._kept[1]


class _Columns:
    """The columns of a file that hold nodes and weights."""

    def __init__(self, location: Location, columns: Sequence[str | int] | str | None, roles: Mapping[str, Any]) -> None:
        import pyarrow as pa

        self.location = location
        self._table = table = ArrowTable(location)
        names, self.edges = table.names, table.edges
        kinds = [table.types(name)[0] if names.count(name) == 1 else None for name in names]
        times = [
            kind is not None and (pa.types.is_temporal(kind) or holds_times(self._first(name)))
            for name, kind in zip(names, kinds, strict=True)
        ]
        chosen, notes = edge_columns(names, columns, location.name, roles, self._numbers_rows(kinds), times)
        self.labels = [names[j] for j in chosen]
        types = [table.types(label)[0] for label in self.labels[:2]]
        self.numeric = [names.count(name) == 1 and _is_number(table.types(name)[0]) for name in names]
        self.asked, self.notes = (names, chosen, columns), notes
        self.text = not all(pa.types.is_integer(kind) for kind in types)
        for label, kind in zip(self.labels, types, strict=False):
            if pa.types.is_floating(kind) or pa.types.is_nested(kind):
                raise InputError(
                    f"{location.name}, column {shortened(label)!r} holds {shortened(kind)}; nodes should be integers "
                    "or text: choose other columns with columns=[...]."
                )

    def _numbers_rows(self, kinds: Sequence[Any]) -> bool:
        """Return whether the first of three or more columns holds 0, 1, ... in the first row group."""
        from pyarrow import types

        if len(kinds) < 3 or kinds[0] is None or not types.is_integer(kinds[0]):
            return False
        return numbers_rows(self._table.names[0], self._first(self._table.names[0]))

    def _first(self, name: str) -> np.ndarray:
        """Return the first values of a column."""
        if len(self.edges) < 2:
            return np.empty(0)
        size = max(1, min(SAMPLE_LINES, int(self.edges[1])))
        first = next(iter(self._table.batches(0, [name], size)), None)
        return np.empty(0) if first is None else first.column(0).to_numpy(zero_copy_only=False)

    def read(self, group: int) -> tuple[Any, Any, np.ndarray | None]:
        """Read the columns u and v and the weights of one row group."""
        import pyarrow as pa

        first, size = int(self.edges[group]), int(self.edges[group + 1] - self.edges[group])
        check_memory(self.location.name, 8 * size * len(self.labels))
        table = pa.Table.from_batches(list(self._table.batches(group, self.labels, max(1, size))))
        columns: list[Any] = []
        for position, label in enumerate(self.labels):
            column = table.column(label)
            kind = pa.float64() if position == 2 else pa.large_string() if self.text else pa.int64()
            if column.null_count:
                row = first + int(np.argmax(column.is_null().to_numpy()))
                raise InputError(
                    f"row {row} of {self.location.name} has nothing in column {shortened(label)!r}; drop the row "
                    "or fill it in."
                )
            try:
                column = column.cast(kind).combine_chunks()
            except pa.ArrowException as error:
                if position == 2:
                    ends = zip(*(table.column(each).to_pylist() for each in self.labels[:2]), strict=True)
                    without = "weight=None"
                    as_weights(column.to_pylist(), ends, self.location.name, without, first)
                raise InputError(
                    f"{self.location.name}, column {shortened(label)!r} is not {kind}: {reason(error)}."
                ) from error
            columns.append(column if kind == pa.large_string() else column.to_numpy(zero_copy_only=False))
        u, v = columns[:2]
        if not self.text:
            check_ids(np.stack([u, v], axis=1), None, row_number(self.location.name, first))
        return u, v, columns[2] if len(columns) == 3 else None


def _is_number(kind: Any) -> bool:
    from pyarrow import types

    return bool(types.is_integer(kind) or types.is_floating(kind) or types.is_decimal(kind))


def open_parquet_graph(
    location: Location, n_nodes: int | None, columns: Sequence[str | int] | str | None, roles: Mapping[str, Any]
) -> Graph:
    """Open a Parquet file; without `n_nodes`, one pass collects the nodes."""
    found = _Columns(location, columns, roles)
    if n_nodes is not None:
        if found.text:
            raise InputError(
                f"n_nodes={n_nodes} needs nodes that are numbers, but {location.name} has names; leave n_nodes out."
            )
        return _ParquetGraph(found, n_nodes, None)
    ids: Any = TextIds() if found.text else IntegerIds()
    with location.reading():
        for group in np.flatnonzero(np.diff(found.edges)).tolist():
            u, v, _ = found.read(group)
            ids.add(u)
            ids.add(v)
    names = ids.names()
    if not len(names):
        raise InputError(f"{location.name} is an empty graph: it has no edges; give n_nodes.")
    return _ParquetGraph(found, len(names), None if not found.text and without_gaps(names) else names)
