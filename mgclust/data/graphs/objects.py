"""Graphs of other libraries, adjacency matrices and tables of edges in memory.

networkx, igraph, SciPy, pandas and Dask are recognised without importing them: a caller with such an object
has imported its library.
"""

from __future__ import annotations

import datetime
import numbers
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from mgclust.base.by_value import by_value
from mgclust.base.dask_arrays import computed
from mgclust.base.errors import InputError
from mgclust.data.arrays import Columns, select_columns
from mgclust.data.graphs.arrays import ArrayGraph, DaskGraph
from mgclust.data.graphs.base import MAX_NODES, Graph, check_ids, row_number
from mgclust.data.graphs.node_names import IntegerIds, NodeNames, TextIds, number_nodes, without_gaps
from mgclust.data.table_columns import edge_roles, holds_times, numbers_rows
from mgclust.outside.quoting import shortened

__all__ = [
    "DEFAULT_WEIGHT",
    "adjacency_frame",
    "as_weights",
    "edge_columns",
    "is_adjacency",
    "mention_columns",
    "open_dask_frame",
    "open_dense",
    "open_frame",
    "open_igraph",
    "open_matrix",
    "open_networkx",
    "open_pairs",
]

DEFAULT_WEIGHT = "weight"
# By the bytes of a number: relative differences up to which a matrix is symmetric, without and with a warning.
_ROUNDING = {4: (1e-6, 1e-5), 8: (1e-12, 1e-6)}
_TIMES = (datetime.date, datetime.time, datetime.timedelta)
_EDGE_NAMES = {"source", "target", "weight"}
FEW_EDGES = 1000  # whose attributes are looked at for numbers that could be weights


def open_networkx(graph: Any, weight: str | None, name: str = "") -> Graph:
    """Open a networkx graph; node number i is the i-th of ``graph.nodes``, weights are an attribute."""
    nodes = list(graph.nodes)
    name = name or f"networkx {type(graph).__name__}"
    _reject_empty(len(nodes), name)
    number = {node: i for i, node in enumerate(nodes)}
    edges = list(graph.edges(data=True))
    ends = (number[node] for u, v, _ in edges for node in (u, v))
    pairs = np.fromiter(ends, np.int32, 2 * len(edges)).reshape(-1, 2)
    samples = [(str(key), value) for _, _, data in edges[:FEW_EDGES] for key, value in data.items()]
    weights = _Weights([data.get(weight) for _, _, data in edges], weight, samples, edges, name)
    opened = ArrayGraph(pairs, weights.array, len(nodes), name, names=_names(nodes), directed=graph.is_directed())
    weights.mention(opened)
    return opened


def open_igraph(graph: Any, weight: str | None) -> Graph:
    """Open an igraph graph; names are the attribute ``name`` of vertices, weights one of edges."""
    name = "igraph Graph"
    _reject_empty(graph.vcount(), name)
    pairs = np.array(graph.get_edgelist(), np.int32).reshape(-1, 2)
    attributes = graph.es.attributes()
    samples = [(key, value) for key in attributes for value in graph.es[:FEW_EDGES][key]]
    values = graph.es[weight] if weight in attributes else [None] * len(pairs)
    weights = _Weights(values, weight, samples, pairs, name)
    names = _names(graph.vs["name"]) if "name" in graph.vs.attributes() else None
    opened = ArrayGraph(pairs, weights.array, graph.vcount(), name, names=names, directed=graph.is_directed())
    weights.mention(opened)
    return opened


def open_matrix(matrix: Any, name: str, names: np.ndarray | None = None) -> Graph:
    """Open a SciPy sparse adjacency matrix.

    A symmetric or triangular one holds undirected edges, and differences of rounding do not matter; any other one,
    arcs. What is stored twice adds up. An entry on the diagonal is the weight of a self-loop. Entries that all are 1
    are no weights.
    """
    if matrix.ndim != 2 or matrix.shape[0] != matrix.shape[1]:
        raise InputError(f"{name} has shape {tuple(matrix.shape)}; an adjacency matrix should be square.")
    _reject_empty(matrix.shape[0], name)
    if matrix.shape[0] > MAX_NODES or matrix.dtype.kind not in "iufb":
        raise InputError(
            f"{name} is {matrix.shape[0]} x {matrix.shape[0]} of dtype {matrix.dtype}; it should be real "
            f"numbers for at most {MAX_NODES} nodes."
        )
    entries, difference = _undirected(matrix)
    u, v, weights = entries.row, entries.col, entries.data
    pairs = np.stack([u, v], axis=1).astype(np.int32, copy=False)
    weighted = not (weights == 1).all()
    directed = not ((u <= v).all() or (u >= v).all())
    graph = ArrayGraph(pairs, weights if weighted else None, matrix.shape[0], name, names=names, directed=directed)
    if difference > _rounding(matrix.dtype)[0] and not directed:
        graph.note(
            f"{name} is symmetric but for differences of up to {difference:.0e} of a weight, which were taken for "
            "rounding: each edge has the mean; give the arcs as edges if they have a direction."
        )
    return graph


def _rounding(dtype: Any) -> tuple[float, float]:
    """Relative differences that are rounding and not a direction, without and with a warning."""
    return (0.0, 0.0) if dtype.kind != "f" else _ROUNDING.get(dtype.itemsize, _ROUNDING[8])


def _undirected(matrix: Any) -> tuple[Any, float]:
    """Return the entries, duplicates added, and the asymmetry; only the upper half if the matrix is symmetric.

    A difference is relative to the smaller of the largest weights of both nodes, because a small number that is the
    difference of large ones has their absolute error.
    """
    # In uint8, 257 ones would add up to 1. A link that is True twice is there once.
    wide = matrix if matrix.dtype.kind == "b" else matrix.astype(np.float64)
    rows = wide.tocsr(copy=True)  # a matrix in CSR is not sorted
    rows.sum_duplicates()
    rows = rows.astype(np.float64, copy=False)
    rows.eliminate_zeros()
    entries = rows.tocoo(copy=False)
    upper = entries.row <= entries.col
    if upper.all() or (entries.row >= entries.col).all():
        return entries, 0.0
    columns = rows.T.tocsr()
    with np.errstate(invalid="ignore"):  # infinite weights are refused later
        apart = abs(rows - columns).tocoo()
        largest = np.maximum(*(abs(each).max(axis=1).toarray().reshape(-1) for each in (rows, columns)))
        scale = np.minimum(largest[apart.row], largest[apart.col])
        difference = float((apart.data / scale).max()) if apart.nnz else 0.0
    if not difference <= _rounding(matrix.dtype)[1]:
        return entries, difference
    if difference:
        entries = ((rows + columns) / 2).tocoo()
        upper = entries.row <= entries.col
    kept = (entries.data[upper], (entries.row[upper], entries.col[upper]))
    return type(entries)(kept, shape=entries.shape), difference


def is_adjacency(edges: Any) -> bool:
    """Return whether a two-dimensional array is an adjacency matrix rather than edges.

    Raises
    ------
    InputError
        It may be either.
    """
    n, d = edges.shape
    if n != d:
        return False
    if d > 3 or d == 1:
        return True
    symmetric = bool((edges == edges.T).all())
    if edges.dtype.kind in "iu" and not (n == 3 and symmetric):
        return False
    if edges.dtype.kind == "b" or (edges.dtype.kind == "f" and symmetric):
        return True
    raise InputError(
        f"a {n} x {n} array may be {n} edges or an adjacency matrix; give (edges, weights), (edges, n_nodes), or a "
        "scipy.sparse matrix."
    )


def open_dense(matrix: Any, names: Any = None, name: str = "adjacency matrix") -> Graph:
    """Open a square array as an adjacency matrix."""
    from scipy.sparse import coo_array

    matrix = matrix.get() if hasattr(matrix, "get") else matrix
    graph = open_matrix(coo_array(matrix.astype(np.float32) if matrix.dtype == np.float16 else matrix), name, names)
    n = len(matrix)
    if n in (2, 3) and matrix.dtype.kind == "f" and names is None:
        graph.note(f"an array of {n} x {n} was read as an adjacency matrix; if it has edges, give (edges, n_nodes).")
    return graph


def adjacency_frame(frame: Any) -> Graph | None:
    """Open a table as an adjacency matrix if its row names equal its column names; None if it holds edges."""
    labels = list(frame.column_names if hasattr(frame, "column_names") else frame.columns)
    n, numbered = len(labels), list(range(len(labels)))
    if len(frame) != n or n < 2:
        return None
    own = list(frame.index) if hasattr(frame, "iloc") else None
    square = own is not None and len(set(labels)) == n and set(own) == set(labels)
    if square:
        frame = frame[own]
    elif n > 3:
        return None
    values = np.asarray(frame.to_pandas().to_numpy() if hasattr(frame, "column_names") else frame.to_numpy())
    if values.dtype.kind not in "iufb":
        return None
    name = f"{type(frame).__module__.split('.')[0]} {type(frame).__name__}"
    symmetric = bool((values == values.T).all())
    if square and own != numbered:
        return open_dense(values, _names(own or []), name)
    if square and (n > 3 or (symmetric and {dtype.kind for dtype in frame.dtypes} <= {"f", "b"})):
        return open_dense(values, None, name)
    if n == 3 and symmetric and not values.diagonal().any() and not _EDGE_NAMES & {*map(str, labels)}:
        raise InputError(
            f"{name} of 3 x 3 may be 3 edges or an adjacency matrix; name the columns of edges by columns=[...], give "
            "the matrix as a scipy.sparse matrix."
        )
    return None


def open_pairs(source: Any, n_nodes: int | None) -> Graph:
    """Open a list of edges, or a table of text: ``[("Ann", "Bob"), ...]`` or with a third item, the weight."""
    rows = list(source) if hasattr(source, "__iter__") else []
    widths = {len(row) if hasattr(row, "__len__") and not isinstance(row, str) else 0 for row in rows}
    if not rows or not widths <= {2, 3} or len(widths) != 1:
        raise InputError(
            f"the graph is a {type(source).__name__} of {len(rows)} items; give edges as pairs of nodes (all "
            "of 2 items, or all of 3 with the weight), an array (m, 2), a path, or a graph of networkx or igraph."
        )
    columns = [np.asarray(list(column)) for column in zip(*rows, strict=True)]
    return _from_columns(columns, n_nodes, "edge list", "give pairs of nodes alone")


def open_frame(frame: Any, columns: Columns, n_nodes: int | None, roles: Mapping[str, Any]) -> Graph:
    """Open a pandas, polars or pyarrow table: two columns of nodes, and one of weights where there is a third."""
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
    """Open a Dask DataFrame, which stays where it is; its nodes are collected by two passes of the workers."""
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
        # Of each partition by itself: the few that are in several cost less than sorting all.
        meta = sys.modules["dask.dataframe"].utils.make_meta(column)
        distinct = computed(column.map_partitions(by_value(_distinct), meta=meta)).to_numpy()
        ids.add(_as_text(distinct, name, 0) if text else _as_ids(distinct, name))
    names = ids.names()
    if not text and without_gaps(names):
        return DaskGraph(_dask_rows(frame), len(names), name)
    _reject_empty(len(names), name)
    types = {label: np.int32 for label in chosen[:2]} | {label: np.float64 for label in chosen[2:]}
    numbered = frame.map_partitions(by_value(partial(_number_partition, names=NodeNames(names), text=text)), meta=types)
    return DaskGraph(_dask_rows(numbered), len(names), name, names)


def _dask_rows(frame: Any) -> Any:
    """A Dask data frame as an array; the client that has it counts its rows, be it the active one or not."""
    return frame.to_dask_array(lengths=tuple(computed(frame.map_partitions(len))))


def edge_columns(
    names: Sequence[str],
    columns: Columns,
    name: str,
    roles: Mapping[str, Any],
    is_index: bool = False,
    is_time: Sequence[bool | None] = (),
) -> tuple[list[int], list[str]]:
    """Find the columns of the two nodes and of the weight, if there is one, and sentences on other columns.

    Parameters
    ----------
    names : sequence of str
        All columns of the table.
    columns : sequence of str or int, optional
        The user's columns of nodes and weight, in this order.
    name : str
        The table, for messages.
    roles : mapping
        The user's ``source``, ``target``, ``weight`` and ``index``.
    is_index : bool
        Whether the first column numbers the rows.
    is_time : sequence of bool or None
        Which columns hold dates or durations; None: the numbers look like times. By default no column does.
    """
    index = roles.get("index")
    if columns is None:
        held = list(is_time) or [False] * len(names)
        first = is_index if index is None else index
        chosen, notes = edge_roles(names, dict(roles), name, first, held, may_guess=index is None)
        return chosen, notes if index is None else []
    if any(roles.get(role) is not None for role in ("source", "target", "index")):
        raise InputError("columns=... names all columns of a table of edges; leave out source, target and index.")
    chosen = select_columns(list(names), columns, name)
    if len(chosen) not in (2, 3):
        raise InputError(f"columns={columns!r} should be two columns of nodes, and at most one of weights.")
    if len(set(chosen)) != len(chosen):
        raise InputError(f"columns={columns!r} should be different ones.")
    return chosen, []


def mention_columns(
    graph: Graph,
    names: Sequence[str],
    chosen: Sequence[int],
    columns: Columns,
    is_number: Callable[[int], bool],
    notes: Sequence[str],
) -> None:
    """Let a graph warn of columns of numbers, where it has no weights and nothing was said of its columns."""
    for note in notes:
        graph.note(note)
    if columns is None and len(chosen) == 2 and not notes:
        left = [names[j] for j in range(len(names)) if j not in chosen and is_number(j)]
        graph.mention(left, f"weight={shortened(repr(left[0] if left else ''), 40)} takes it as weights")


def _is_time(frame: Any, position: int) -> bool | None:
    """Return whether a column of a table holds dates, times or durations; None if its numbers look like times."""
    if hasattr(frame, "iloc"):
        first = frame.iloc[:FEW_EDGES, position]
    else:
        first = frame.column(position)[:FEW_EDGES] if hasattr(frame, "column_names") else frame[:FEW_EDGES, position]
    values = np.asarray(first.to_numpy())
    if values.dtype.kind == "O" and isinstance(next(iter(values), None), _TIMES):
        return True
    return values.ndim == 1 and holds_times(values)


def _is_numeric(frame: Any, position: int) -> bool:
    if hasattr(frame, "iloc"):
        first = frame.iloc[:1, position]
    else:
        first = frame.column(position)[:1] if hasattr(frame, "column_names") else frame[:1, position]
    return _is_number_type(first.to_numpy().dtype)


def _from_columns(columns: list[Any], n_nodes: int | None, name: str, without: str) -> Graph:
    """The graph of two or three columns; `without` says how its weights are left out."""
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
    """Integers >= 0 as int64, whatever type they had."""
    check_ids(np.stack([ids, ids], axis=1), None, row_number(name))
    return ids.astype(np.int64, copy=False)


def _as_text(column: np.ndarray, name: str, position: int) -> Any:
    import pyarrow as pa

    items = column.tolist()
    for row, item in enumerate(items):
        # NaN is not equal to itself, and pandas' NA does not say.
        if item is None or (item == item) is not True or item == "":
            raise InputError(f"row {row} of {name} has no node in column {position + 1}; drop the row or fill it in.")
    return pa.array([str(item) for item in items], pa.large_string())


def as_weights(
    values: Sequence[Any], ends: Iterable[Sequence[Any]], name: str, without: str, first: int = 0
) -> np.ndarray:
    """Weights of edges as float64.

    Parameters
    ----------
    values : sequence
        One an edge.
    ends : iterable of (node, node)
        Of the edges, in the same order.
    name : str
        Of the graph.
    without : str
        What leaves the weights out, for the sentence where one is no number.
    first : int
        Number of the first edge.
    """
    try:
        return np.asarray(values).astype(np.float64)
    except (TypeError, ValueError) as error:
        values = np.asarray(values).tolist()
        wrong = (
            (at, value, ends)
            for at, (value, ends) in enumerate(zip(values, ends, strict=False))
            if not _is_float(value)
        )
        at, value, (u, v, *_) = next(wrong)
        pair = shortened(f"{u} - {v}")
        raise InputError(
            f"edge {first + at} of {name}, {pair}: weight {shortened(repr(value))} is not a number; fix it, or leave "
            f"the weights out: {without}."
        ) from error


def _is_float(value: Any) -> bool:
    try:
        float(value)
    except (TypeError, ValueError):
        return False
    return True


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
        return np.asarray(array.tolist())  # numbers of a type that may lack some
    return array


def _distinct(column: Any) -> Any:
    return column.drop_duplicates()


def _number_partition(part: Any, names: NodeNames, text: bool) -> Any:
    """One partition of a Dask DataFrame with numbers in place of names; runs on the workers."""
    part = part.copy()
    for position, label in enumerate(list(part.columns)[:2]):
        ids = part[label].to_numpy()
        ids = _as_text(ids, "a partition of the Dask DataFrame", position) if text else ids.astype(np.int64)
        part[label] = names.encode(ids)
    return part.astype({label: np.float64 for label in list(part.columns)[2:]})


def _is_number_type(dtype: Any) -> bool:
    return getattr(dtype, "kind", "O") in "iuf"


def _names(nodes: Sequence[Any]) -> np.ndarray | None:
    """Names of nodes as an array of integers or of text; None where they are their numbers."""
    if all(isinstance(node, (int, np.integer)) and not isinstance(node, bool) for node in nodes):
        if all(node == i for i, node in enumerate(nodes)):
            return None
        if all(-(2**63) <= node < 2**63 for node in nodes):
            return np.array(nodes, np.int64)
    return np.array([str(node) for node in nodes])


class _Weights:
    """Weights of edges by an attribute: 1 where an edge has none, none where no edge has it.

    Parameters
    ----------
    values : list
        Of the attribute; None where an edge has none.
    weight : str or None
        Its name; None for no weights.
    samples : list of (str, object)
        Attributes of some edges, which could have been meant.
    edges : iterable
        Their nodes first.
    name : str
        Of the graph.
    """

    def __init__(
        self, values: list[Any], weight: str | None, samples: list[tuple[str, Any]], edges: Iterable[Any], name: str
    ) -> None:
        self.array: np.ndarray | None = None
        self._weight, self._missing, self._unused = weight, 0, list[str]()
        if weight is None:
            return
        missing = sum(value is None for value in values)
        if missing < len(values):
            given = [1.0 if value is None else value for value in values]
            self.array = as_weights(given, edges, name, "open_graph(graph, weight=None)")
            self._missing = missing
            return
        numeric = {key for key, value in samples if isinstance(value, numbers.Real) and not isinstance(value, bool)}
        if weight != DEFAULT_WEIGHT and values:
            listed = ", ".join(map(repr, sorted(numeric)))
            there = shortened(f"those that are numbers are {listed}" if numeric else "none is a number")
            raise InputError(f"weight={shortened(weight)!r} is no attribute of the edges of {name}; {there}.")
        self._unused = sorted(numeric)

    def mention(self, graph: Graph) -> None:
        """Let the graph warn of edges without a weight, or of attributes that could have been meant."""
        if self._missing:
            graph.mention_missing(str(self._weight), self._missing)
        if self._unused:
            first = shortened(self._unused[0])
            remedy = f"open_graph(graph, weight={first!r}) takes one of these as weights, weight=None none"
            graph.mention(self._unused, remedy)


def _reject_empty(n_nodes: int, name: str) -> None:
    if not n_nodes:
        raise InputError(f"{name} is an empty graph; a graph should have at least one node.")


def _numbers_wanted(name: str) -> InputError:
    return InputError(f"n_nodes=... applies to nodes that are numbers; {name} names them: leave it out.")
