"""Choice of the next pair of communities: each community has a key for its best pair, and a tree finds the best key.

A community has a *slot*, the number of the node whose row it uses, and a *label*, its smallest node. The key of a slot
is the gain of its best pair, or an upper bound of this gain. Keys are compared by gain, then by tie. So the top of the
tree is the pair to merge, unless its gain is only a bound.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from mgclust.kernels.toolkit.cpu_compiler import called, inlined

__all__ = [
    "KEYS",
    "LAST",
    "SLOTS",
    "MergeGraph",
    "gain_of",
    "lowest_of",
    "new_keys",
    "put",
    "raise_key",
    "tie_of",
]

Array = Any

FAN = 3  # a node of the tree has 2^FAN children
LAST = np.int64(2**63 - 1)  # tie of a slot without a pair, which comes after all others
SLOTS = np.dtype(
    [
        ("begin", np.int64),
        ("length", np.int32),
        ("label", np.int32),
        ("version", np.int32),
    ],
    align=True,
)
# For a slot, `other` is the other slot of its best pair, and `stamp` is the version of that slot at that time, or -1
# for a bound. For an inner node, `other` is the slot from which its key comes.
KEYS = {
    kind: np.dtype([("gain", real), ("tie", np.int64), ("other", np.int32), ("stamp", np.int32)])
    for kind, real in (("i", np.int64), ("f", np.float64))
}


class MergeGraph(NamedTuple):
    """State of a run, a tuple of arrays."""

    cells: Array  # (slot, weight): tables of 2^bits cells each, see `cpu_rows`
    seen: Array  # for each cell of a hub: the neighbour's strength when the cell was last updated
    nodes: Array  # for hubs: the winner among some cells, and how long it stays the winner; see `cpu_hubs`
    tail: Array  # (1,) int64: number of cells in use, including cells of absorbed rows
    slots: Array  # begin: first cell; length: number of neighbours; label; version: number of merges so far
    bits: Array  # uint8: log2 of the number of cells of each slot's table
    strength: Array  # int64 or float64: strength of each slot
    keys: Array  # keys of the slots, then of the inner nodes, level by level; the root comes last
    levels: Array  # int64: start of each level in `keys`
    way: Array  # (3, 16) int64: work array of `settle`
    two_m: Any  # sum of all strengths
    factor: Any  # resolution, in the type of the strengths
    lowest: Any  # gain of a slot that has no pair


def lowest_of(dtype: Any) -> Any:
    """Return a number that is less than any gain."""
    return dtype.type(np.iinfo(np.int64).min if dtype.kind == "i" else -np.inf)


def new_keys(n: int, dtype: Any) -> tuple[Array, Array]:
    """Return the initial keys of n slots: bounds above any gain, so that each slot is refreshed when it comes first.

    Returns
    -------
    keys, levels : arrays
        As in `MergeGraph`.
    """
    counts, left = [], max(n, 2)
    while left > 1:
        counts.append(left + -left % (1 << FAN))
        left = counts[-1] >> FAN
    counts.append(1)
    levels = np.cumsum([0, *counts[:-1]], dtype=np.int64)
    keys = np.zeros(sum(counts), KEYS[dtype.kind])
    keys["gain"], keys["tie"], keys["stamp"] = lowest_of(dtype), LAST, -1
    for level, first in enumerate(levels):
        slots = np.arange(0, n, 1 << (FAN * level))  # the first slot below each node that has slots
        known = keys[first : first + len(slots)]
        known["gain"] = np.iinfo(np.int64).max if dtype.kind == "i" else np.inf
        known["tie"] = slots
        known["other"] = slots if level else 0
    return keys, levels


@inlined
def gain_of(graph: MergeGraph, weight: Any, d: Any, e: Any) -> Any:
    """Return the gain of a merge; gains are not accumulated over merges."""
    return graph.two_m * weight - graph.factor * (d * e)


@inlined
def tie_of(a: int, b: int) -> Any:
    """Return a number that orders pairs with equal gains: by the smaller label, then by the larger."""
    return (np.int64(min(a, b)) << 32) | max(a, b)


@inlined
def better(gain: Any, tie: int, than: Any) -> bool:
    """Return whether a gain and a tie come before a key."""
    return gain > than.gain or (gain == than.gain and tie < than.tie)


@called
def put(keys: Array, levels: Array, slot: int, gain: Any, tie: int) -> None:
    """Set a slot's key, and update the tree above it."""
    rises = better(gain, tie, keys[slot])
    keys[slot].gain, keys[slot].tie = gain, tie
    node = slot
    for level in range(1, len(levels)):
        first = levels[level - 1] + ((node >> FAN) << FAN)
        node >>= FAN
        key = keys[levels[level] + node]
        if rises:
            if not better(gain, tie, key):
                return
            key.gain, key.tie, key.other = gain, tie, slot
        else:
            if key.other != slot:
                return
            best = first
            for child in range(first + 1, first + (1 << FAN)):
                if better(keys[child].gain, keys[child].tie, keys[best]):
                    best = child
            key.gain, key.tie = keys[best].gain, keys[best].tie
            key.other = keys[best].other if level > 1 else best


@inlined
def raise_key(graph: MergeGraph, row: int, slot: int, gain: Any) -> None:
    """Set a row's key to its pair with this slot, if this pair comes before the key."""
    key = graph.keys[row]
    if gain < key.gain:
        return
    tie = tie_of(graph.slots[row].label, graph.slots[slot].label)
    if gain > key.gain or tie <= key.tie:
        put(graph.keys, graph.levels, row, gain, tie)
        key.other = slot
        key.stamp = graph.slots[slot].version
