"""Roles of the columns of a table of edges: which columns are nodes, weights, times or row numbers."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from mgclust.base.errors import InputError
from mgclust.data.arrays import Columns, integers_as_names, select_columns
from mgclust.data.graphs.base import Graph
from mgclust.data.table_columns import NAMES, NUMBERS, TIMES, index_columns, left_out
from mgclust.outside.quoting import shortened

__all__ = ["edge_columns", "mention_columns", "names_nodes"]

_PAIRS = (
    ("source", "target"), ("src", "dst"), ("src", "dest"), ("src", "tgt"), ("source", "destination"), ("from", "to"),
    ("u", "v"), ("node1", "node2"), ("node_1", "node_2"), ("nodea", "nodeb"), ("node_a", "node_b"), ("id1", "id2"),
    ("id_1", "id_2"), ("from_node", "to_node"), ("fromnode", "tonode"), ("vertex1", "vertex2"), ("v1", "v2"),
    ("start", "end"), ("sender", "receiver"), ("follower", "followee"), ("head", "tail"), ("i", "j"), ("id", "parent"),
    ("node", "parent"), ("child", "parent"),
)  # fmt: skip
_ROLES = ("source", "target", "weight")
_WEIGHTS = ("weight", "weights", "w", "edge_weight", "strength", "value", "count")
_TIMES = re.compile(r"(time(stamp)?|date(time)?|year|month|day|epoch|duration|created(_at)?|ts)", re.IGNORECASE)


def edge_columns(
    names: Sequence[str],
    columns: Columns,
    name: str,
    roles: Mapping[str, Any],
    is_index: bool = False,
    is_time: Sequence[bool | None] = (),
) -> tuple[list[int], list[str]]:
    """Find the columns of the two nodes and, if there is one, of the weight; also return warnings.

    Parameters
    ----------
    names : sequence of str
        Names of all columns of the table.
    columns : sequence of str or int, optional
        The user's option `columns`: two nodes, then the weight.
    name : str
        Name of the table in messages.
    roles : mapping
        The user's options ``source``, ``target``, ``weight`` and ``index``.
    is_index : bool
        Whether the first column numbers the rows.
    is_time : sequence of bool or None
        Whether each column holds dates or durations; None: its numbers may be times. By default, no column holds them.
    """
    index = roles.get("index")
    if columns is None:
        held = list(is_time) or [False] * len(names)
        first = is_index if index is None else index
        chosen, notes = _edge_roles(names, dict(roles), name, first, held, may_guess=index is None)
        return chosen, notes if index is None else []
    if any(roles.get(role) is not None for role in ("source", "target", "index")):
        raise InputError("columns=... names all columns of a table of edges; leave out source, target and index.")
    chosen = select_columns(list(names), columns, name)
    if len(chosen) not in (2, 3):
        raise InputError(f"columns={columns!r} should be two columns of nodes, and at most one column of weights.")
    if len(set(chosen)) != len(chosen):
        raise InputError(f"columns={columns!r} names a column twice; name different columns.")
    return chosen, []


def _edge_roles(
    names: Sequence[str],
    asked: Mapping[str, Any],
    name: str,
    is_index: bool,
    is_time: Sequence[bool | None],
    may_guess: bool = True,
) -> tuple[list[int], list[str]]:
    """Find the columns of the two nodes and of the weight of a table of edges, by names and positions.

    Parameters
    ----------
    names : sequence of str
        Names of all columns.
    asked : mapping
        The user's ``source``, ``target`` and ``weight`` as names or positions; None: not given.
    name : str
        Name of the table in messages.
    is_index : bool
        Whether the first column numbers the rows. If so, it is left out, unless its name marks it as a node.
    is_time : sequence of bool or None
        Whether each column holds dates or durations; None: its numbers may be times.
    may_guess : bool
        Whether the first column may also be taken as an index because of its name.

    Returns
    -------
    positions : list of int
        Two or three columns: the nodes, and the weight if there is one.
    notes : list of str
        Warnings about columns that are left out.
    """
    notes: list[str] = []
    listed = shortened(", ".join(map(repr, names[:8])), 50)
    plain = [_plain(each) for each in names]
    wanted = dict(zip(_ROLES, integers_as_names(names, [asked.get(role) for role in _ROLES]), strict=True))
    given = {role: _position(names, each, role, name) for role, each in wanted.items()}
    found = next(((plain.index(a), plain.index(b)) for a, b in _PAIRS if a in plain and b in plain), None)
    left = index_columns(names) if may_guess else 0
    left = max(left, int(is_index))
    fit = [j for j in range(left, len(names)) if is_time[j] is False and plain[j] not in _WEIGHTS]
    if may_guess and found is None and len(fit) < 2:
        left = 0  # too few other columns can be nodes
    others = [j for j in range(len(names)) if j not in given.values()]
    if found is None or given["source"] is not None or given["target"] is not None:
        named = [j for j in others if plain[j] in _WEIGHTS] if len(names) > 2 else []
        free = iter([j for j in others if j not in named and not (j < left and len(names) > 2)])
        u, v = given["source"], given["target"]
        u = next(free, None) if u is None else u
        v = next(free, None) if v is None else v
    else:
        u, v = found
    if u is None or v is None or u == v:
        raise InputError(
            f"{name} has {len(names)} columns ({listed}); name the two columns of nodes with source=... and target=...."
        )
    rest = [j for j in others if j not in (u, v)]
    if left and 0 in rest:
        notes.append(left_out(str(names[0]), name, NUMBERS if is_index else TIMES if is_time[0] else NAMES))
        rest = [j for j in rest if j >= left]
    weight = given["weight"]
    if weight is None and asked.get("weight") is not False:
        weight = next((j for each in _WEIGHTS for j in rest if plain[j] == each and not is_time[j]), None)
        unnamed = found is None or all(j <= 2 + (u > 0) for j in rest)
        if weight is None and len(rest) == 1 and unnamed:
            only = rest[0]
            if is_time[only] is not False or _TIMES.fullmatch(plain[only]):
                notes.append(
                    f"column {shortened(repr(names[only]), 30)} of {shortened(name, 60)} holds times, which are not "
                    "weights; weight=... (--weight) names a column of weights."
                )
            else:
                weight = only
    elif weight is not None and is_time[weight]:
        raise InputError(f"weight={asked['weight']!r} holds dates or durations; name a column of numbers.")
    if len(rest) > 1 and found is None and (given["source"] is None or given["target"] is None):
        raise InputError(
            f"{name} has {len(names)} columns ({listed}); name the two columns of nodes with source=... and "
            "target=..., and weight=... if there is one."
        )
    return [u, v, *([] if weight is None else [weight])], notes


def _position(names: Sequence[str], asked: Any, role: str, name: str) -> int | None:
    if asked is None or asked is False:
        return None
    if isinstance(asked, (int, np.integer)) and not isinstance(asked, bool):
        if 0 <= asked < len(names):
            return int(asked)
    elif list(names).count(asked) == 1:
        return list(names).index(asked)
    elif isinstance(asked, str) and asked.isdecimal() and len(asked) < 19 and int(asked) < len(names):
        return int(asked)
    listed = shortened(", ".join(map(repr, names[:20])), 80)
    raise InputError(f"{role}={asked!r} is not a column of {name}; give one of {listed}, or a position from 0.")


def names_nodes(names: Sequence[str]) -> bool:
    """Return whether the names of the columns show which columns are nodes."""
    plain = {_plain(each) for each in names}
    return any(a in plain and b in plain for a, b in _PAIRS)


def _plain(name: str) -> str:
    return re.sub(r"[\s\-.]+", "_", str(name).strip().strip('"').lower()).removesuffix("_id")


def mention_columns(
    graph: Graph,
    names: Sequence[str],
    chosen: Sequence[int],
    columns: Columns,
    is_number: Callable[[int], bool],
    notes: Sequence[str],
) -> None:
    """Add `notes` to the warnings; also warn of columns of numbers if a graph has no weights and `columns` is None."""
    for note in notes:
        graph.note(note)
    if columns is None and len(chosen) == 2 and not notes:
        left = [names[j] for j in range(len(names)) if j not in chosen and is_number(j)]
        graph.mention(left, f"weight={shortened(repr(left[0] if left else ''), 40)} uses it as weights")
