"""Adjacency matrices: sparse and dense matrices, and data frames."""

from __future__ import annotations

from typing import Any

import numpy as np

from mgclust.base.errors import InputError
from mgclust.data.graphs.arrays import ArrayGraph
from mgclust.data.graphs.base import MAX_NODES, Graph, reject_empty
from mgclust.data.graphs.node_names import names_of

__all__ = ["adjacency_frame", "is_adjacency", "open_dense", "open_matrix"]

# Largest relative differences that count as rounding, without a warning and with a warning, by bytes per number.
_ROUNDING = {4: (1e-6, 1e-5), 8: (1e-12, 1e-6)}
_EDGE_NAMES = {"source", "target", "weight"}


def open_matrix(matrix: Any, name: str, names: np.ndarray | None = None) -> Graph:
    """Open a SciPy sparse adjacency matrix.

    A matrix that is triangular, or symmetric up to rounding, holds undirected edges. Any other matrix holds arcs
    (directed edges). Duplicate entries are added up. An entry on the diagonal is the weight of a self-loop. If all
    entries are 1, edges have no weights.
    """
    if matrix.ndim != 2 or matrix.shape[0] != matrix.shape[1]:
        raise InputError(f"{name} has shape {tuple(matrix.shape)}; an adjacency matrix should be square.")
    reject_empty(matrix.shape[0], name)
    if matrix.shape[0] > MAX_NODES or matrix.dtype.kind not in "iufb":
        raise InputError(
            f"{name} is {matrix.shape[0]} x {matrix.shape[0]} of dtype {matrix.dtype}; it should be real "
            f"numbers for at most {MAX_NODES} nodes."
        )
    entries, difference, symmetric = _undirected(matrix)
    u, v, weights = entries.row, entries.col, entries.data
    pairs = np.stack([u, v], axis=1).astype(np.int32, copy=False)
    weighted = not (weights == 1).all()
    directed = not ((u <= v).all() or (u >= v).all())
    about = {"names": names, "directed": directed, "undirected": symmetric}
    graph = ArrayGraph(pairs, weights if weighted else None, matrix.shape[0], name, **about)
    if difference > _rounding(matrix.dtype)[0] and not directed:
        graph.note(
            f"{name} is symmetric except for differences of up to {difference:.0e} of a weight, taken as "
            "rounding: each edge has the mean weight; give the arcs as edges if they have a direction."
        )
    return graph


def _rounding(dtype: Any) -> tuple[float, float]:
    """Return the largest relative differences that count as rounding, without a warning and with a warning."""
    return (0.0, 0.0) if dtype.kind != "f" else _ROUNDING.get(dtype.itemsize, _ROUNDING[8])


def _undirected(matrix: Any) -> tuple[Any, float, bool]:
    """Return the entries, with duplicates added up, the asymmetry, and whether the matrix is symmetric.

    The entries of a symmetric matrix are only the upper half. A triangular matrix does not count as symmetric.

    Differences are relative to the largest weight of either node, whichever is smaller. They are not relative to the
    weight itself, because a small weight may be the difference of large numbers and have their absolute error.
    """
    # In uint8, 257 duplicates of 1 would add up to 1. An entry that is stored as True twice counts once.
    wide = matrix if matrix.dtype.kind == "b" else matrix.astype(np.float64)
    rows = wide.tocsr(copy=True)  # copy, so that the given CSR matrix is not sorted in place
    rows.sum_duplicates()
    rows = rows.astype(np.float64, copy=False)
    rows.eliminate_zeros()
    entries = rows.tocoo(copy=False)
    upper = entries.row <= entries.col
    if upper.all() or (entries.row >= entries.col).all():
        return entries, 0.0, False
    columns = rows.T.tocsr()
    with np.errstate(invalid="ignore"):  # infinite weights are rejected later
        apart = abs(rows - columns).tocoo()
        largest = np.maximum(*(abs(each).max(axis=1).toarray().reshape(-1) for each in (rows, columns)))
        scale = np.minimum(largest[apart.row], largest[apart.col])
        difference = float((apart.data / scale).max()) if apart.nnz else 0.0
    if not difference <= _rounding(matrix.dtype)[1]:
        return entries, difference, False
    if difference:
        entries = ((rows + columns) / 2).tocoo()
        upper = entries.row <= entries.col
    kept = (entries.data[upper], (entries.row[upper], entries.col[upper]))
    return type(entries)(kept, shape=entries.shape), difference, True


def is_adjacency(edges: Any) -> bool:
    """Return whether a two-dimensional array is an adjacency matrix instead of a list of edges.

    Raises
    ------
    InputError
        The array may be a matrix or a list of edges.
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
        graph.note(
            f"an array of {n} x {n} was read as an adjacency matrix; if its rows are edges, give (edges, n_nodes)."
        )
    return graph


def adjacency_frame(frame: Any) -> Graph | None:
    """Open a table as an adjacency matrix if its row names equal its column names; return None if it holds edges."""
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
        return open_dense(values, names_of(own or []), name)
    if square and (n > 3 or (symmetric and {dtype.kind for dtype in frame.dtypes} <= {"f", "b"})):
        return open_dense(values, None, name)
    if n == 3 and symmetric and not values.diagonal().any() and not _EDGE_NAMES & {*map(str, labels)}:
        raise InputError(
            f"{name} of 3 x 3 may be 3 edges or an adjacency matrix; name the columns of edges by columns=[...], or "
            "give a scipy.sparse matrix."
        )
    return None
