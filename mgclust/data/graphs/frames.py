"""Tables of edges in memory: data frames (also of Dask) and lists of pairs."""

from __future__ import annotations

import datetime
import sys
from collections.abc import Mapping
from functools import partial
from typing import Any

import numpy as np

from mgclust.base.by_value import by_value
from mgclust.base.dask_arrays import computed
from mgclust.base.errors import InputError
from mgclust.data import chunks
from mgclust.data.arrays import Columns
from mgclust.data.graphs import node_names
from mgclust.data.graphs.arrays import ArrayGraph, DaskGraph
from mgclust.data.graphs.base import Graph, as_weights, check_ids, reject_empty, row_number
from mgclust.data.graphs.edge_roles import edge_columns, mention_columns
from mgclust.data.graphs.node_names import IntegerIds, NodeNames, TextIds, number_nodes, without_gaps
from mgclust.data.table_columns import SAMPLE_LINES, holds_times, numbers_rows

__all__ = ["open_dask_frame", "open_frame", "open_pairs"]

_TIMES = (datetime.date, datetime.time, datetime.timedelta)


def open_pairs(source: Any, n_nodes: int | None) -> Graph:
    """Open a list or array of edges with named nodes, such as ``[("Ann", "Bob"), ...]``; a third item is the weight."""
    rows = list(source) if hasattr(source, "__iter__") else []
    widths = {len(row) if hasattr(row, "__len__") and not isinstance(row, str) else 0 for row in rows}
    if not rows or not widths <= {2, 3} or len(widths) != 1:
        raise InputError(
            f"the graph is a {type(source).__name__} of {len(rows)} items; give edges as pairs of nodes (all "
            "of 2 items, or all of 3 with the weight), an array (m, 2), a path, or a graph of networkx or igraph."
        )
    try:
        columns = [np.asarray(list(column)) for column in zip(*rows, strict=True)]
    except ValueError as error:  # arrays of different shapes
        raise InputError(
            f"the graph is a {type(source).__name__} whose items contain arrays; give (edges, weights) or "
            "(edges, n_nodes) with an array of edges (m, 2), or pairs of nodes that are numbers or text."
        ) from error
    return _from_columns(columns, n_nodes, "edge list", "give only pairs of nodes")


def open_frame(frame: Any, columns: Columns, n_nodes: int | None, roles: Mapping[str, Any]) -> Graph:
    """Open a pandas, polars or pyarrow table: two columns of nodes, and a column of weights if there is one."""
    name = f"{type(frame).__module__.split('.')[0]} {type(frame).__name__}"
    names = [str(label) for label in (frame.column_names if hasattr(frame, "column_names") else frame.columns)]
    times = [_is_time(frame, position) for position in range(len(names))]
    first: Any = (
        np.asarray((frame.iloc[:, 0] if hasattr(frame, "iloc") else frame[names[0]]).to_numpy()) if names else []
    )
    chosen, notes = edge_columns(names, columns, name, roles, len(names) > 2 and numbers_rows(names[0], first), times)
    without = "weight=None"
    chosen_columns = [_column(frame, position, names[position], name) for position in chosen]
    graph = _from_columns(chosen_columns, n_nodes, name, without)
    mention_columns(graph, names, chosen, columns, lambda position: _is_numeric(frame, position), notes)
    return graph


def open_dask_frame(frame: Any, columns: Columns, n_nodes: int | None, roles: Mapping[str, Any]) -> Graph:
    """Open a Dask DataFrame. It stays on the workers, which collect its nodes in two passes."""
    name = "Dask DataFrame"
    labels = list(frame.columns)
    names = [str(label) for label in labels]
    times = [getattr(dtype, "kind", "O") in "mM" for dtype in frame.dtypes]
    positions, notes = edge_columns(names, columns, name, roles, False, times)
    graph = _open_dask_columns(frame[[labels[j] for j in positions]], n_nodes, name)
    mention_columns(
        graph, names, positions, columns, lambda position: _is_number_type(frame.dtypes.iloc[position]), notes
    )
    return graph


def _open_dask_columns(frame: Any, n_nodes: int | None, name: str) -> Graph:
    chosen = list(frame.columns)
    text = not all(_is_number_type(frame.dtypes[label]) for label in chosen[:2])
    if n_nodes is not None:
        if text:
            raise _numbers_wanted(name)
        return DaskGraph(_dask_rows(frame), n_nodes, name)
    ids: Any = TextIds() if text else IntegerIds()
    for label in chosen[:2]:
        column = frame[label]
        # Names are made distinct per partition, because repeating a few of them costs less than sorting all names.
        meta = sys.modules["dask.dataframe"].utils.make_meta(column)
        distinct = computed(column.map_partitions(by_value(chunks.distinct, chunks), meta=meta)).to_numpy()
        ids.add(_as_text(distinct, name, 0) if text else _as_ids(distinct, name))
    names = ids.names()
    if not text and without_gaps(names):
        return DaskGraph(_dask_rows(frame), len(names), name)
    reject_empty(len(names), name)
    types = {label: np.int32 for label in chosen[:2]} | {label: np.float64 for label in chosen[2:]}
    number = partial(chunks.number_partition, names=NodeNames(names), text=text)
    numbered = frame.map_partitions(by_value(number, chunks, node_names), meta=types)
    return DaskGraph(_dask_rows(numbered), len(names), name, names)


def _dask_rows(frame: Any) -> Any:
    """Convert a Dask data frame to an array. The client that owns the frame counts its rows, even if inactive."""
    return frame.to_dask_array(lengths=tuple(computed(frame.map_partitions(len))))


def _is_time(frame: Any, position: int) -> bool | None:
    """Return whether a column of a table holds dates, times or durations; None if its numbers may be times."""
    values = _first(frame, position, SAMPLE_LINES)
    if values.dtype.kind == "O" and isinstance(next(iter(values), None), _TIMES):
        return True
    return values.ndim == 1 and holds_times(values)


def _is_numeric(frame: Any, position: int) -> bool:
    return _is_number_type(_first(frame, position, 1).dtype)


def _first(frame: Any, position: int, most: int) -> np.ndarray:
    """Return the first values of a column."""
    if hasattr(frame, "iloc"):
        first = frame.iloc[:most, position]
    else:
        first = frame.column(position)[:most] if hasattr(frame, "column_names") else frame[:most, position]
    return np.asarray(first.to_numpy())


def _from_columns(columns: list[Any], n_nodes: int | None, name: str, without: str) -> Graph:
    """Make a graph from two or three columns; `without` is the advice in messages on how to leave out the weights."""
    u, v = columns[:2]
    weights = None
    if len(columns) == 3:
        weights = as_weights(columns[2], zip(u, v, strict=True), name, without)
    if not len(u):
        if n_nodes is None:
            raise InputError(f"{name} is an empty graph: it has no edges; give n_nodes.")
        return ArrayGraph(np.empty((0, 2), np.int32), weights, n_nodes, name)
    text = u.dtype.kind not in "iuf" or v.dtype.kind not in "iuf"
    if n_nodes is not None:
        if text:
            raise _numbers_wanted(name)
        return ArrayGraph(np.stack([u, v], axis=1), weights, n_nodes, name)
    ids = [_as_text(c, name, j) if text else _as_ids(c, name) for j, c in enumerate((u, v))]
    pairs, count, names = number_nodes(*ids)
    return ArrayGraph(pairs, weights, count, name, names=names)


def _as_ids(ids: np.ndarray, name: str) -> np.ndarray:
    """Convert integers >= 0 of any type to int64."""
    check_ids(np.stack([ids, ids], axis=1), None, row_number(name))
    return ids.astype(np.int64, copy=False)


def _as_text(column: np.ndarray, name: str, position: int) -> Any:
    import pyarrow as pa

    items = column.tolist()
    for row, item in enumerate(items):
        # NaN is not equal to itself, and comparing pandas' NA gives neither True nor False.
        if item is None or (item == item) is not True or item == "":
            raise InputError(f"row {row} of {name} has no node in column {position + 1}; drop the row or fill it in.")
    return pa.array([str(item) for item in items], pa.large_string())


def _column(frame: Any, position: int, label: str, name: str) -> np.ndarray:
    if hasattr(frame, "iloc"):
        values = frame.iloc[:, position]
        missing = values.isna()
    else:
        values = frame.column(position) if hasattr(frame, "column_names") else frame[:, position]
        missing = values.is_null()
    gaps = np.flatnonzero(np.asarray(missing.to_numpy()))
    if len(gaps):
        raise InputError(f"row {gaps[0]} of {name} has nothing in column {label!r}; drop the row or fill it in.")
    array = np.asarray(values.to_numpy())
    if array.ndim != 1:
        raise InputError(f"column {label!r} of {name} holds arrays; give a node or a weight in each row.")
    if array.dtype.kind == "O" and all(isinstance(item, (int, float, np.number)) for item in array[:1]):
        return np.asarray(array.tolist())  # numbers of a pandas type that allows missing values
    return array


def _is_number_type(dtype: Any) -> bool:
    return getattr(dtype, "kind", "O") in "iuf"


def _numbers_wanted(name: str) -> InputError:
    return InputError(f"n_nodes=... needs nodes that are numbers, but {name} has names; leave n_nodes out.")
