"""Known communities of a graph's nodes, and nodes that keep them, from the parameters `init` and `fixed`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np

from mgclust.base.dask_arrays import computed, is_dask
from mgclust.base.errors import DataWarning, Doubt, InputError
from mgclust.data import Graph
from mgclust.data.labels import read_labels, read_node_labels
from mgclust.data.location import Location
from mgclust.outside.quoting import shortened
from mgclust.outside.rooted_files import RootedFile
from mgclust.results.result import load_result

__all__ = ["fixed_nodes", "initial_labels", "mostly_unknown", "taken_in_order"]

LEAST_BOUND = 100_000  # labels may be up to this number in any graph; in larger graphs, below the number of nodes


def initial_labels(given: Any, graph: Graph) -> tuple[np.ndarray, list[Doubt]]:
    """Return the initial label of each node, and doubts about them.

    Parameters
    ----------
    given : array, mapping, path or RootedFile
        Checked value of `init`. Names are matched if the value has names: a mapping, a table with a column of names, or
        the result of a graph whose nodes have names. Nodes without a match get the label -1, and names that no node has
        are ignored.
    graph : Graph

    Returns
    -------
    labels : int32 array of shape (n_nodes,)
    doubts : list of Doubt

    Raises
    ------
    InputError
        The labels do not fit the nodes.
    """
    names, doubts = None, list[Doubt]()
    if isinstance(given, (str, RootedFile)):
        with _naming("init"):
            given, names = _read_result_or_labels(given, graph)
        if names is None and graph.names is not None:
            doubts.append(taken_in_order())
    if isinstance(given, Mapping):
        names, given = list(given), list(given.values())
    elif is_dask(given):
        given = computed(given)
    labels = np.asarray(given) if names is None or len(given) == 0 else _column(given)
    bound = max(graph.n_nodes, LEAST_BOUND)
    if names is None and labels.shape != (graph.n_nodes,):
        raise InputError(
            f"init has {len(labels)} labels and should have one for each of the graph's n_nodes={graph.n_nodes} nodes; "
            "append -1 for added nodes, or give a mapping of node names to labels."
        )
    if labels.dtype.kind not in "iu" and len(labels):
        raise InputError(
            f"init has values of dtype {shortened(labels.dtype)} and should have integers: the community of each node, "
            "or -1."
        )
    wrong = (labels < -1) | (labels >= bound)
    if wrong.any():
        raise InputError(
            f"init={labels[wrong][0]} for {'a node' if names is not None else f'node {int(wrong.argmax())}'} should be "
            f"from -1 to {bound - 1}; number the communities from 0."
        )
    if names is None:
        return labels.astype(np.int32), doubts
    found, known = _by_name(names, labels, graph)
    if 2 * known < len(names):
        doubts.append(mostly_unknown(len(names), known))
    return found, doubts


def fixed_nodes(given: Any, graph: Graph, labels: np.ndarray) -> np.ndarray:
    """Return the nodes that keep their community.

    Parameters
    ----------
    given : array, path or RootedFile
        Checked value of `fixed`. Integers are names if the names of the graph's nodes are integers, else node numbers.
    graph : Graph
    labels : int32 array of shape (n_nodes,)
        Initial labels.

    Returns
    -------
    int32 array, ascending

    Raises
    ------
    InputError
        A value is not a node, or a node has no initial label.
    """
    if isinstance(given, (str, RootedFile)):
        with _naming("fixed"):
            given = read_labels(given)
    elif is_dask(given):
        given = computed(given)
    values, n = np.asarray(given), graph.n_nodes
    if values.dtype.kind == "b":
        if len(values) != n:
            raise InputError(f"fixed has {len(values)} Booleans and should have one for each of n_nodes={n} nodes.")
        nodes = np.flatnonzero(values)
    elif not len(values):
        nodes = np.empty(0, np.int64)
    elif graph.names is not None and (values.dtype.kind == "U" or graph.names.dtype.kind == "i"):
        numbers = _numbers_of_nodes(graph)
        found = [numbers.get(name, -1) for name in _as_names(values.tolist(), graph)]
        nodes = np.array(found, np.int64)
        if (nodes < 0).any():
            missing = values[int((nodes < 0).argmax())]
            raise InputError(f"fixed={shortened(repr(missing.item()))} is not the name of a node; see node_names_.")
    elif values.dtype.kind in "iu":
        nodes = values.astype(np.int64)
        if nodes.min() < 0 or nodes.max() >= n:
            wrong = nodes[(nodes < 0) | (nodes >= n)][0]
            raise InputError(f"fixed={wrong} should be a node number from 0 to {n - 1}; leave it out.")
    else:
        raise InputError(
            f"fixed has values of dtype {shortened(values.dtype)}, and the graph's nodes have "
            f"{'no names' if graph.names is None else 'names'}; give node numbers, node names or a Boolean per node."
        )
    nodes = np.unique(nodes).astype(np.int32)
    alone = nodes[labels[nodes] < 0]
    if len(alone):
        raise InputError(
            f"fixed node {alone[0]} has no community in init (-1); give it a label of 0 or more, or do not fix it."
        )
    return nodes


def taken_in_order() -> Doubt:
    """Return the doubt about labels without names for a graph with names."""
    text = "init has no node names, so its labels were taken in the order of the graph's nodes; give a table with the "
    return Doubt(f"{text}columns node and label, or a result directory.", DataWarning)


def mostly_unknown(names: int, known: int) -> Doubt:
    """Return the doubt that the graph does not have most of the nodes that `init` names."""
    text = f"init names {names:,} nodes, but the graph has only {known:,} of them, so the other labels are ignored; "
    return Doubt(f"{text}check that init and the graph use the same node names.", DataWarning)


def _read_result_or_labels(path: str | RootedFile, graph: Graph) -> tuple[np.ndarray, Any]:
    """Read labels, and the names of their nodes if the path is a result of a graph with names, else None."""
    location = Location.of(path)
    if location.remote or not location.is_directory():
        return read_node_labels(location)
    if location.beneath is not None:  # the result of a job
        table = location.inside("labels.csv")
        return read_node_labels(table) if table.exists() else (read_labels(path), None)
    result = load_result(path)
    if result.labels is None:
        raise InputError(f"init={location.name!r} is a result without labels; give a result of communities.")
    names = result.arrays.get("names")
    if (names is None) != (graph.names is None):
        raise InputError(
            f"init={location.name!r} is the result of a graph {'without' if names is None else 'with'} node names, but "
            f"this graph has {'no names' if graph.names is None else 'names'}; give a mapping of node names to labels, "
            "or a file of labels in the order of the nodes."
        )
    return np.asarray(result.labels), names


@contextmanager
def _naming(parameter: str) -> Iterator[None]:
    """Name the parameter in errors about its file."""
    try:
        yield
    except InputError as error:
        raise InputError(f"{parameter} (--{parameter}): {str(error).removeprefix('labels=')}") from error


def _by_name(names: Iterable[Any], labels: np.ndarray, graph: Graph) -> tuple[np.ndarray, int]:
    """Return the label of each node of the graph (-1 if its name is not in `names`), and the number of known names."""
    nodes = range(graph.n_nodes) if graph.names is None else graph.names.tolist()
    if isinstance(names, np.ndarray):
        text, names = names.dtype.kind == "U", names.tolist()
        if text:  # names of a table, which may have spaces around them
            nodes = [str(node) for node in nodes]
            there = set(nodes)
            names = [name if name in there else name.strip() for name in names]
    label_of = dict(zip(_as_names(names, graph), labels.tolist(), strict=True))
    if len(label_of) < len(labels):
        twice = next(name for name, count in Counter(_as_names(names, graph)).items() if count > 1)
        raise InputError(f"init names node {shortened(repr(twice))} more than once; give each node one label.")
    found = np.array([label_of.get(node, -1) for node in nodes], np.int32)
    known = sum(node in label_of for node in nodes)
    if len(label_of) and not known:
        raise InputError(
            f"init names {len(label_of)} nodes, such as {shortened(repr(next(iter(label_of))))}, but the graph has "
            "none of them; give labels of this graph's nodes (see node_names_)."
        )
    return found, known


def _column(values: Any) -> np.ndarray:
    """Return values of a mapping as an array; values that are no numbers become objects."""
    try:
        array = np.asarray(values)
    except ValueError:  # lists of unequal lengths
        array = np.empty((0, 0))
    return array if array.ndim == 1 else np.array([None] * len(values))


def _as_names(values: Iterable[Any], graph: Graph) -> Iterable[Any]:
    """Return names as the graph has them: any node of a graph with text as names has its text as name."""
    return map(str, values) if graph.names is not None and graph.names.dtype.kind == "U" else values


def _numbers_of_nodes(graph: Graph) -> dict[Any, int]:
    assert graph.names is not None
    return {name: number for number, name in enumerate(graph.names.tolist())}
