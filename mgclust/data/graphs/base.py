"""Base class of all sources of edges. Community methods take a `Graph`; all other methods take a `Dataset`."""

from __future__ import annotations

import hashlib
import importlib
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from mgclust.base.errors import InputError
from mgclust.data.base import Dataset
from mgclust.data.graphs.node_names import NodeNames
from mgclust.outside.quoting import shortened

__all__ = [
    "MAX_NODES",
    "Graph",
    "as_weights",
    "check_ids",
    "check_n_nodes",
    "check_weights",
    "edge_rows",
    "namespace_of",
    "reject_empty",
    "row_number",
]

MAX_NODES = 2**31 - 1  # nodes are numbered in int32

Where = Callable[[int], str]
"""Function that names an edge for messages: ``row 3 of array``, ``line 7 of web.txt ('1 x')``."""


class Graph(Dataset):
    """Undirected edges that are read on demand; each edge is a row.

    `mgclust.open_graph` makes graphs. Each undirected edge is listed once. If the source repeats an edge, the edge is
    listed repeatedly, and its weights add up. A self-loop counts once in the number of edges and twice in the degree of
    its node.

    Parameters
    ----------
    n_edges : int
        Number of edges.
    n_nodes : int
        Number of nodes, including nodes without edges. Also an attribute.
    name : str
        Name of the graph in messages and in the provenance of a result.
    weighted : bool
        Whether edges have weights. Also an attribute.
    directed : bool
        Whether the source states that its edges are directed. All methods drop the direction, except
        `mgclust.Communities` with ``directed=True``. Also an attribute.
    undirected : bool
        Whether the source states that its edges have no direction. Both are False for an edge list, for example. Also
        an attribute.
    names : array of shape (n_nodes,), str or int, optional
        Names of the nodes in the source.
    labels : array of shape (n_nodes,), optional
        True community of each node.

    Attributes
    ----------
    shape : tuple of int
        (n_edges, 2), or (n_edges, 3) if edges have weights.
    dtype : numpy.dtype
        int32 for rows (u, v); float64 for rows (u, v, weight). u and v are numbers from 0 to n_nodes - 1.
    names : ndarray of shape (n_nodes,), str or int, or None
        Names of the nodes in the source; None if the source numbers them.
    labels : ndarray of shape (n_nodes,) or None
        True community of each node, if the source holds them.

    Examples
    --------
    >>> from mgclust import open_graph
    >>> open_graph([(0, 1), (1, 2)])
    <ArrayGraph 'edge array': 3 nodes, 2 edges>
    """

    kind = "array"

    def __init__(
        self,
        n_edges: int,
        n_nodes: int,
        name: str,
        *,
        weighted: bool = False,
        directed: bool = False,
        undirected: bool = False,
        names: np.ndarray | None = None,
        labels: np.ndarray | None = None,
    ) -> None:
        super().__init__((n_edges, 3 if weighted else 2), np.float64 if weighted else np.int32, name)
        self.n_nodes = check_n_nodes(n_nodes, name)
        self.directed, self.undirected = directed, undirected
        self._notes: list[str] = []
        names = _one_a_node(names, self.n_nodes, "names", name)
        self._names = None if names is None else NodeNames(names)
        self._labels = _one_a_node(labels, self.n_nodes, "labels", name)

    @property
    def weighted(self) -> bool:
        """True if edges have weights."""
        return self.shape[1] == 3

    @property
    def names(self) -> np.ndarray | None:
        """Names of the nodes in the source; None if the source numbers them."""
        return None if self._names is None else self._names.array

    @property
    def labels(self) -> np.ndarray | None:
        """True community of each node, if the source holds them."""
        return self._labels

    @property
    def warnings(self) -> list[str]:
        """Warnings about these edges for the user of a result, one sentence each."""
        return [*self.direction_warnings, *self._notes]

    @property
    def direction_warnings(self) -> list[str]:
        """The warnings that do not concern methods that keep the direction of edges."""
        if not self.directed:
            return []
        return [
            f"{shortened(self.name, 60)} is directed, and the direction is dropped: two opposite arcs become "
            "an edge of weight 2 (or their sum); make it undirected, or use Communities with directed=True."
        ]

    def mention(self, numbers: Sequence[str], remedy: str) -> None:
        """Warn that edges have numbers, but that none of these numbers are used as weights.

        Parameters
        ----------
        numbers : sequence of str
            Names of the attributes or columns that hold numbers. If it is empty, there is no warning.
        remedy : str
            How the user can use the first of these numbers as weights, or avoid the warning.
        """
        if numbers:
            listed = shortened(", ".join(map(repr, numbers)), 40)
            self._notes.append(
                f"every edge of {self.name} has weight 1, although edges have numbers ({listed}): {remedy}."
            )

    def mention_missing(self, weight: str, missing: int) -> None:
        """Warn that some edges lack the attribute that holds the weights.

        Parameters
        ----------
        weight : str
            Name of the attribute.
        missing : int
            Number of edges without the attribute. If it is 0, there is no warning.
        """
        if missing:
            self._notes.append(
                f"{missing} of {self.shape[0]} edges of {self.name} have no {shortened(repr(weight))} and have "
                "weight 1: give it to all edges, or to none."
            )

    def note(self, sentence: str) -> None:
        """Add a sentence to `warnings`.

        Parameters
        ----------
        sentence : str
            At most 200 characters.
        """
        self._notes.append(sentence)

    def describe(self) -> dict[str, Any]:
        """Describe the source by values that JSON can hold."""
        return {
            **super().describe(),
            "n_nodes": self.n_nodes,
            "n_edges": self.shape[0],
            "weighted": self.weighted,
            "directed": self.directed,
            "named": self.names is not None,
        }

    def _combine(self, digests: Any) -> str:
        # Nodes without edges and names of nodes are also part of the data.
        total = hashlib.sha256(f"{super()._combine(digests)} {self.n_nodes}".encode())
        names = self.names
        if names is not None:
            total.update("\n".join(map(str, names.tolist())).encode())
        return total.hexdigest()

    def __repr__(self) -> str:
        weights = ", weighted" if self.weighted else ""
        return f"<{type(self).__name__} {self.name!r}: {self.n_nodes} nodes, {self.shape[0]} edges{weights}>"


def check_n_nodes(n_nodes: Any, name: str) -> int:
    """Return a number of nodes as an integer; reject invalid values."""
    number = _as_integer(n_nodes)
    if number is None:
        raise InputError(f"n_nodes={n_nodes!r} of {name} should be an integer from 1 to {MAX_NODES}.")
    if number < 1:
        raise InputError(f"{name} is an empty graph (n_nodes={number}); a graph should have at least one node.")
    if number > MAX_NODES:
        raise InputError(f"n_nodes={number} of {name} should be at most {MAX_NODES}: nodes are numbered in int32.")
    return number


def namespace_of(array: Any) -> Any:
    """Return the module with the functions for an array; arrays of older versions of CuPy do not provide it."""
    if hasattr(array, "__array_namespace__"):
        return array.__array_namespace__()
    return importlib.import_module(type(array).__module__.split(".")[0])


def row_number(name: str, start: int = 0) -> Where:
    """Return a function that names an edge by its row in the source, if the edges in memory begin at row ``start``."""
    return lambda index: f"row {start + index} of {name}"


def edge_rows(pairs: Any, weights: Any, n_nodes: int, where: Where) -> Any:
    """Check edges, and convert them to the rows that `mgclust.data.Graph.read` returns.

    Parameters
    ----------
    pairs : array of shape (m, 2)
        Node numbers, as a NumPy or CuPy array of any number type.
    weights : array of shape (m,) or None
        Weights of the edges, if they have any.
    n_nodes : int
        Number of nodes. Node numbers must be smaller.
    where : callable
        ``where(index)`` names an edge in messages, e.g. "line 7 of web.txt".

    Returns
    -------
    array of shape (m, 2), int32, or (m, 3), float64
        `pairs` itself if it has this form already. A CuPy array if `pairs` is one.

    Raises
    ------
    InputError
        A node number is not an integer or out of range, or a weight is negative or not finite. The message names the
        first invalid edge.
    """
    xp = namespace_of(pairs)
    check_ids(pairs, n_nodes, where)
    if weights is None:
        return xp.ascontiguousarray(pairs, dtype=np.int32)
    check_weights(weights, where)
    rows = xp.empty((len(pairs), 3), np.float64)
    rows[:, :2] = pairs
    rows[:, 2] = weights
    return rows


def check_ids(pairs: Any, n_nodes: int | None, where: Where, base: int = 0) -> int:
    """Return the largest node number, or -1; reject numbers that are not integers, negative, or too large.

    The upper limit is checked only if `n_nodes` is given. In `pairs`, nodes are numbered from 0; in messages, they are
    numbered from `base`, as in the file.
    """
    if not len(pairs):
        return -1
    if pairs.dtype.kind == "f":
        whole = pairs == namespace_of(pairs).floor(pairs)  # also False for NaN
        if not bool(whole.all()):
            index, node = _first(~whole, pairs)
            raise InputError(f"{where(index)}: node id {shortened(node)} is not an integer; ids should be 0, 1, 2, ...")
    low, high = pairs.min().item(), pairs.max().item()
    if low < 0:
        index, node = _first(pairs < 0, pairs)
        if base:
            raise InputError(f"{where(index)}: node id {shortened(node + base)} should be at least {base}.")
        raise InputError(f"{where(index)}: node id {shortened(node)} is negative; ids should be >= 0.")
    if n_nodes is not None and high >= n_nodes:
        index, node = _first(pairs >= n_nodes, pairs)
        if n_nodes == MAX_NODES:
            raise InputError(
                f"{where(index)}: node id {shortened(node)} should be at most {MAX_NODES - 1}, since nodes are "
                "numbered in int32; number the nodes from 0 without gaps."
            )
        raise InputError(
            f"{where(index)}: node id {shortened(node + base)} is out of range: n_nodes={n_nodes}, so ids should be "
            f"at most {n_nodes - 1 + base}; give a larger n_nodes or fix the edge."
        )
    return int(high)


def check_weights(weights: Any, where: Where) -> None:
    """Reject weights that are negative, NaN or infinite."""
    xp = namespace_of(weights)
    good = (weights >= 0) & (weights < xp.inf)
    if bool(good.all()):
        return
    index = int((~good).argmax())
    raise InputError(
        f"{where(index)}: weight {shortened(weights[index].item())} should be a finite number >= 0, because "
        "modularity is not defined for other weights; drop the edge or fix its weight."
    )


def _first(bad: Any, pairs: Any) -> tuple[int, Any]:
    """Return the row and the value of the first invalid node number."""
    position = int(bad.reshape(-1).argmax())
    value = pairs[position // 2, position % 2].item()
    return position // 2, int(value) if isinstance(value, float) and value.is_integer() else value


def _as_integer(value: Any) -> int | None:
    if isinstance(value, (bool, np.bool_)):
        return None
    try:
        number = int(value)
    except (TypeError, ValueError, OverflowError):
        return None
    return number if number == value else None


def _one_a_node(values: np.ndarray | None, n_nodes: int, what: str, name: str) -> np.ndarray | None:
    if values is not None and values.shape != (n_nodes,):
        raise InputError(f"{what} of {name} has shape {values.shape}, it should be ({n_nodes},): one for every node.")
    return values


def as_weights(
    values: Sequence[Any], ends: Iterable[Sequence[Any]], name: str, without: str, first: int = 0
) -> np.ndarray:
    """Convert weights of edges to float64.

    Parameters
    ----------
    values : sequence
        One weight per edge.
    ends : iterable of (node, node)
        The nodes of the edges, in the same order.
    name : str
        Name of the graph in messages.
    without : str
        Advice on how to leave out the weights, for the message if a weight is not a number.
    first : int
        Number of the first of these edges in the source.
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


def reject_empty(n_nodes: int, name: str) -> None:
    """Reject a graph without nodes."""
    if not n_nodes:
        raise InputError(f"{name} is an empty graph; a graph should have at least one node.")
