"""`open_graph` opens every source of edges."""

from __future__ import annotations

from typing import Any, cast

import numpy as np

from mgclust.base.dask_arrays import unannotated
from mgclust.base.errors import InputError
from mgclust.data.arrays import Columns, collected, reject_containers
from mgclust.data.files import InFile
from mgclust.data.formats import at_hand
from mgclust.data.graphs.adjacency import adjacency_frame, is_adjacency, open_dense, open_matrix
from mgclust.data.graphs.arrays import ArrayGraph, DaskGraph, open_edges
from mgclust.data.graphs.base import Graph, check_n_nodes
from mgclust.data.graphs.frames import open_dask_frame, open_frame, open_pairs
from mgclust.data.graphs.libraries import DEFAULT_WEIGHT, open_igraph, open_networkx
from mgclust.data.location import Location, is_path
from mgclust.data.options import Requested

__all__ = ["Graph", "open_graph"]


@unannotated
def open_graph(
    graph: Any,
    n_nodes: int | None = None,
    columns: Columns = None,
    weight: str | int | None = DEFAULT_WEIGHT,
    *,
    source: str | int | None = None,
    target: str | int | None = None,
    header: bool | None = None,
    index: bool | None = None,
) -> Graph:
    """Open an undirected graph, without reading more of it than needed.

    Edges are checked when they are read. Text and tables are read once when they are opened, to count edges and nodes.

    Parameters
    ----------
    graph : array, tuple, matrix, graph, table, path, URL or Graph
        One of the following.

        - Edges: a NumPy, CuPy or Dask array of shape (m, 2) with node numbers, or (m, 3) with a weight as the third
          column. Node numbers are integers, or floats without a fraction. A CuPy array stays on its device. Tuples add
          the weights, the number of nodes or both: ``(edges, n_nodes)``, ``(edges, weights)``,
          ``(edges, weights, n_nodes)``. A list of pairs may also hold names: ``[("Ann", "Bob"), ...]``.
        - An adjacency matrix: of `scipy.sparse`, or a square array that is not an array of edges. If it is symmetric up
          to rounding, or triangular, its edges are undirected. An entry on the diagonal is the weight of a self-loop. A
          table of pandas with equal names of rows and columns is also an adjacency matrix.
        - A graph of networkx or igraph. The option `weight` names the edge attribute with the weights; in igraph, the
          vertex attribute ``name`` holds the names of the nodes.
        - A table of pandas, polars, pyarrow or Dask: two columns of nodes, and optionally a column of weights.
        - The return value of `mgclust.datasets.make_random_network`.
        - A path or URL; the suffix determines the format.

        Suffixes of files:

        - ``.npz``: arrays ``edges`` and optionally ``n``, ``weights``, ``names`` and ``labels`` (the true communities);
          or a matrix that `scipy.sparse.save_npz` wrote.
        - ``.npy``: an array of edges.
        - ``.parquet``, ``.pq`` (or a folder of these), ``.feather``: a table.
        - ``.txt``, ``.tsv``, ``.csv``, ``.edges``, ``.edgelist``, ``.el`` (SNAP and similar): one edge per line.
          Fields are separated by blanks, tabs, commas, semicolons or bars. Lines that begin with ``#`` or ``%`` are
          comments. A third field is the weight.
        - ``.mtx``: Matrix Market, coordinate.
        - ``.graph``, ``.metis``: METIS.
        - ``.graphml``, ``.gml``: read by networkx.

        Text may be compressed (``.gz``, ``.bz2``, ``.zst``) or come from a named pipe or standard input (``-``).
    n_nodes : int, optional
        Number of nodes. Nodes are 0 to n_nodes - 1, including nodes without edges. By default, the nodes of an array of
        numbers are 0 to the largest number. The nodes of a table, a text file or a list of names are the ids that occur
        in it, in ascending order (as integers, or else as text).
    columns : sequence of str or int, optional
        Columns of a table or list of edges: the two nodes, and optionally the weight. By default, columns are found by
        name: ``source`` and ``target`` (or ``src`` and ``dst``, ``from`` and ``to``, ``u`` and ``v``, or a similar
        pair), and ``weight``. If there is no such pair, the first two columns are the nodes. A third column is then the
        weight, unless it holds dates, times or durations. Integers are taken as names if each of them is the name of a
        column, else as positions from 0.
    weight : str, int or None, default="weight"
        Weights of the edges. In a table: the column, by name or position. In a graph of networkx, igraph, GraphML or
        GML: the edge attribute; edges without it have weight 1. None (on the command line: "none"): all edges have
        weight 1. If edges have numbers that could be weights, but none of them are used, there is a warning.
    source, target : str or int, optional
        Columns of the two nodes of a table or list of edges, by name or position from 0.
    header : bool, optional
        Whether the first line of a text file names the columns. By default it does if it has one of the names above,
        words above columns of numbers, or words that do not occur in the lines below. In the last case there is a
        warning.
    index : bool, optional
        Whether to leave out the first column of a table, because it numbers or names the rows. By default, it is
        left out with a warning in two cases: it has no name (or is called ``index`` or ``Unnamed: 0``), or it holds
        0, 1, 2, ... under a header. A column whose name marks it as a node is kept.

    Returns
    -------
    Graph
        Its attribute `mgclust.data.Graph.names` holds the names of the nodes, or None if the source numbers them
        without gaps.

    Raises
    ------
    InputError
        The source is not a graph, is empty, or cannot be read, or ids or weights are invalid.

    Examples
    --------
    >>> from mgclust import open_graph
    >>> graph = open_graph([("Ann", "Bob"), ("Bob", "Cem"), ("Ann", "Cem")])
    >>> graph.n_nodes, graph.shape, graph.names.tolist()
    (3, (3, 2), ['Ann', 'Bob', 'Cem'])
    >>> graph.read(0, 2)
    array([[0, 1],
           [1, 2]], dtype=int32)
    """
    if n_nodes is not None:
        n_nodes = check_n_nodes(n_nodes, "the graph")
    for option, value in (("header", header), ("index", index)):
        if value not in (None, True, False):
            raise InputError(f"{option}={value!r} should be True, False or None.")
    weight = None if isinstance(weight, str) and weight == "none" else weight  # the command line writes None as "none"
    roles = {"source": source, "target": target, "index": index}
    roles["weight"] = None if weight == DEFAULT_WEIGHT else False if weight is None else weight
    asked = Requested(columns=columns, n_nodes=n_nodes, header=header, roles=roles)
    if is_path(graph):
        location = Location.of(graph)
        with location.reading():
            return _open_location(location, asked)
    reject_containers(graph)
    found = collected(graph)
    if _is_a(found, "networkx", "Graph") or _is_a(found, "igraph", "Graph"):
        _reject_roles(asked, "a graph of networkx or igraph", weight=False)
        opened = open_networkx if _is_a(found, "networkx", "Graph") else open_igraph
        return _agreed(opened(found, None if weight is None else str(weight)), n_nodes, columns)
    whole = _open_whole(found)
    if whole is not None:
        _reject_roles(asked, whole.name)
        return _agreed(whole, n_nodes, columns)
    return _open_edges(found, asked)


def _reject_roles(asked: Requested, name: str, weight: bool = True) -> None:
    """Reject options that apply only to tables."""
    given = {"header": asked.header, **asked.roles}
    for option, value in given.items():
        if value is not None and (weight or option != "weight"):
            shown = None if option == "weight" and value is False else value
            raise InputError(
                f"{option}={shown!r} applies to tables and lists of edges; leave it out for {name}"
                f"{', or give (edges, weights)' if option == 'weight' else ''}."
            )


def _open_location(location: Location, asked: Requested) -> Graph:
    with at_hand(location, "graph") as (file, format):
        if not format.table:
            _reject_roles(asked, location.name, weight=not format.attributes)
            if asked.columns is not None:
                raise InputError(f"columns=... applies to tables and lists of edges; leave it out for {location.name}.")
        elif asked.header is not None and not format.text:
            raise InputError(f"header={asked.header} applies to text; leave it out for {location.name}.")
        assert format.graph is not None
        graph = format.graph(file, asked)
        if location.once:
            cast(InFile, graph).hold()
        return _agreed(graph, asked.n_nodes, None)


def _open_whole(source: Any) -> Graph | None:
    """Open a source that defines all of its nodes; return None for anything else."""
    package = type(source).__module__.partition(".")[0]
    if isinstance(source, Graph):
        return source
    if package in ("scipy", "cupyx") and hasattr(source, "tocoo"):
        return open_matrix(source.get() if package == "cupyx" else source, f"{package} {type(source).__name__}")
    return _open_network(source) if isinstance(source, tuple) else None


def _open_network(source: Any) -> Graph | None:
    """Open the return value of `mgclust.datasets.make_random_network`, which is also a tuple."""
    if not all(hasattr(source, name) for name in ("edges", "labels", "n_nodes")):
        return None
    return open_edges(source.edges, None, source.n_nodes, "random network", labels=source.labels)


def _open_edges(source: Any, asked: Requested) -> Graph:
    n_nodes, columns = asked.n_nodes, asked.columns
    dask = hasattr(source, "to_dask_array") and hasattr(source, "columns")
    if dask or hasattr(source, "column_names") or (hasattr(source, "to_numpy") and hasattr(source, "columns")):
        if asked.header is not None:
            raise InputError(f"header={asked.header} applies to text files; leave it out for a table in memory.")
        if dask:
            return open_dask_frame(source, columns, n_nodes, asked.roles)
        said = columns is not None or any(value is not None for value in asked.roles.values())
        matrix = None if said else adjacency_frame(source)
        return open_frame(source, columns, n_nodes, asked.roles) if matrix is None else _agreed(matrix, n_nodes, None)
    _reject_roles(asked, "an array or a list")
    if columns is not None:
        raise InputError("columns=... applies to tables and lists of edges; slice the array instead.")
    if type(source).__module__.startswith("dask.array"):
        return DaskGraph(source, n_nodes)
    weights, told = None, False
    if isinstance(source, tuple) and len(source) in (2, 3) and getattr(_array(source[0]), "ndim", 0) == 2:
        source, weights, n_nodes = _unpack(source, n_nodes)
        told = True  # the first element of a pair holds edges, even if they look like an adjacency matrix
    edges = _array(source)
    if edges is None or edges.dtype.kind in "OUST":
        return open_pairs(source, n_nodes)
    # A list of tuples holds edges: a matrix would be a list of lists.
    told |= isinstance(source, (list, tuple)) and {type(row) for row in source} == {tuple} and edges.shape[1:] < (4,)
    if edges.ndim == 2 and not told and is_adjacency(edges):
        return _agreed(open_dense(edges), n_nodes, None)
    if edges.ndim == 2 and not edges.shape[0] and n_nodes is not None:
        return ArrayGraph(np.empty((0, 2), np.int32), None, n_nodes)
    return open_edges(edges, weights, n_nodes)


def _unpack(source: tuple[Any, ...], n_nodes: int | None) -> tuple[Any, Any, int | None]:
    """Unpack ``(edges, n)``, ``(edges, weights)`` or ``(edges, weights, n)``."""
    last = source[-1]
    if np.ndim(last) == 0:
        own = check_n_nodes(last, "the graph")
        if n_nodes not in (None, own):
            raise InputError(
                f"n_nodes={n_nodes} contradicts n_nodes={own} in the tuple (edges, ...); leave one of them out."
            )
        return source[0], source[1] if len(source) == 3 else None, own
    if len(source) == 3:
        raise InputError("the last element of (edges, weights, n_nodes) is not a number; give the number of nodes.")
    return source[0], last, n_nodes


def _array(source: Any) -> Any:
    """Convert the source to an array of NumPy or CuPy; return None if it is not a table."""
    if hasattr(source, "__cuda_array_interface__"):
        if hasattr(source, "get"):
            return source
        raise InputError(
            f"a CUDA array of type {type(source).__name__} cannot be read; wrap it with cupy.asarray(edges)."
        )
    if source is None or isinstance(source, (dict, set, bytes, int, float)) or hasattr(source, "__next__"):
        raise InputError(
            f"the graph is a {type(source).__name__}; give an array of edges (m, 2), a path, a scipy.sparse matrix, or "
            "a graph of networkx or igraph."
        )
    try:
        return np.asarray(source)
    except (TypeError, ValueError):
        return None


def _agreed(graph: Graph, n_nodes: int | None, columns: Columns) -> Graph:
    if n_nodes not in (None, graph.n_nodes):
        raise InputError(f"n_nodes={n_nodes} should be {graph.n_nodes}, as in {graph.name}; leave it out.")
    if columns is not None:
        raise InputError(f"columns=... applies to tables and lists of edges; leave it out for {graph.name}.")
    return graph


def _is_a(source: Any, package: str, name: str) -> bool:
    """Return whether an object is an instance of the class `name` of a package, without importing the package."""
    return any(kind.__module__.partition(".")[0] == package and kind.__name__ == name for kind in type(source).__mro__)
