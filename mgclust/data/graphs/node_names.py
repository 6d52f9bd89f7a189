"""Names of nodes, which are collected chunk by chunk and numbered 0, 1, ...

Integer ids without gaps need no names. All other ids are sorted; the number of a node is the position of its name.
pyarrow hashes text.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from mgclust.data.chunks import input_error
from mgclust.outside.inflation import check_memory

__all__ = ["IntegerIds", "NodeNames", "TextIds", "names_of", "number_nodes", "without_gaps"]

_MARKS = 2**28  # ids below this are marked in a table of one byte per id
_TABLE_FACTOR = 8  # largest number of entries per node in a table from ids to nodes


class NodeNames:
    """Sorted distinct names.

    Parameters
    ----------
    array : ndarray of shape (n_nodes,), int64 or str
        Names of all nodes. They need not be sorted if `encode` is not called.
    """

    def __init__(self, array: np.ndarray) -> None:
        self.array = array
        self._lookup: Any = None

    def __len__(self) -> int:
        return len(self.array)

    def __getstate__(self) -> dict[str, Any]:
        # The names are sent to every rank, and one bit per possible id is less than eight bytes per id.
        names = self.array
        if names.dtype.kind == "i" and len(names) and names[0] >= 0 and names[-1] < 32 * len(names) and _ascend(names):
            marks = np.zeros(int(names[-1]) + 1, bool)
            marks[names] = True
            return {"bits": np.packbits(marks), "dtype": names.dtype}
        return {"array": names}

    def __setstate__(self, state: dict[str, Any]) -> None:
        if "bits" in state:
            self.array = np.flatnonzero(np.unpackbits(state["bits"])).astype(state["dtype"])
        else:
            self.array = state["array"]
        self._lookup = None

    def encode(self, ids: Any) -> np.ndarray:
        """Convert names to node numbers, as int32.

        Parameters
        ----------
        ids : array
            NumPy integers, or text in a pyarrow array. Each id must be one of the names.
        """
        text = self.array.dtype.kind == "U"
        numbers = self._encode_text(ids) if text else self._encode_integers(ids)
        if len(numbers) and numbers.min() < 0:
            raise input_error("a node has a name that did not exist when the graph was opened; open it again.")
        return numbers

    def _encode_text(self, ids: Any) -> np.ndarray:
        import pyarrow as pa
        from pyarrow import compute

        if self._lookup is None:
            self._lookup = pa.array(self.array, pa.large_string())
        found = compute.index_in(ids.cast(pa.large_string()), value_set=self._lookup)
        return compute.fill_null(found, -1).to_numpy(zero_copy_only=False)

    def _encode_integers(self, ids: np.ndarray) -> np.ndarray:
        if not len(ids):
            return np.empty(0, np.int32)
        names = self.array
        largest = int(names[-1])
        if names[0] < 0 or largest > _TABLE_FACTOR * len(names) + 2**16:
            places = np.minimum(np.searchsorted(names, ids), len(names) - 1)
            return np.where(names[places] == ids, places, -1).astype(np.int32)
        if self._lookup is None:
            lookup = np.full(largest + 2, -1, np.int32)  # the last entry is for all larger ids
            lookup[names] = np.arange(len(names), dtype=np.int32)
            self._lookup = lookup  # assigned only when complete, because other threads may read it
        return self._lookup[np.minimum(ids, largest + 1)]


class IntegerIds:
    """Collector of the distinct values of very many integers >= 0."""

    def __init__(self) -> None:
        self._marks = np.zeros(2**16, bool)
        self._large = np.empty(0, np.int64)
        self._pending: list[np.ndarray] = []

    def add(self, ids: np.ndarray) -> None:
        """Add ids; they may repeat."""
        if not len(ids):
            return
        largest = int(ids.max())
        if largest >= _MARKS:
            beyond = ids >= _MARKS
            self._pending.append(np.unique(ids[beyond]))
            # Merge when the number of ids has doubled, so that they are sorted only a few times.
            if sum(map(len, self._pending)) > len(self._large):
                self._merge()
            ids = ids[~beyond]
            largest = int(ids.max()) if len(ids) else -1
        if largest >= len(self._marks):
            marks = np.zeros(min(_MARKS, 1 << largest.bit_length()), bool)
            marks[: len(self._marks)] = self._marks
            self._marks = marks
        self._marks[ids] = True

    def names(self) -> np.ndarray:
        """Return all distinct ids in ascending order, as int64."""
        self._merge()
        return np.concatenate([np.flatnonzero(self._marks), self._large])

    def _merge(self) -> None:
        self._large = np.unique(np.concatenate([self._large, *self._pending]))
        self._pending = []


class TextIds:
    """Collector of the distinct values of very many strings in pyarrow arrays."""

    def __init__(self) -> None:
        self._known: Any = None
        self._pending: list[Any] = []

    def add(self, ids: Any) -> None:
        """Add a pyarrow array of strings."""
        from pyarrow import compute

        self._pending.append(compute.unique(ids.cast("large_string")))
        if sum(map(len, self._pending)) > (0 if self._known is None else len(self._known)):
            self._merge()

    def names(self) -> np.ndarray:
        """Return all distinct names in the order of their characters, as NumPy strings."""
        from pyarrow import compute

        self._merge()
        if self._known is None:
            return np.empty(0, "U1")
        ordered = self._known.take(compute.array_sort_indices(self._known))
        longest = max(1, compute.max(compute.utf8_length(ordered)).as_py() or 1)
        check_memory(
            f"an array of {len(ordered):,} names, the longest of {longest:,} characters,", 4 * longest * len(ordered)
        )
        return ordered.to_numpy(zero_copy_only=False).astype(f"U{longest}")

    def _merge(self) -> None:
        import pyarrow as pa
        from pyarrow import compute

        parts = [*([] if self._known is None else [self._known]), *self._pending]
        self._pending = []
        if parts:
            self._known = compute.unique(pa.concat_arrays(parts))


def number_nodes(u: Any, v: Any) -> tuple[np.ndarray, int, np.ndarray | None]:
    """Number the nodes of edges in memory.

    Parameters
    ----------
    u, v : array of shape (m,)
        NumPy integers >= 0, or both text in pyarrow arrays.

    Returns
    -------
    pairs : ndarray of shape (m, 2)
    n_nodes : int
    names : ndarray of shape (n_nodes,) or None
        None if the ids are 0 to n_nodes - 1.
    """
    ids: Any = IntegerIds() if isinstance(u, np.ndarray) else TextIds()
    ids.add(u)
    ids.add(v)
    found = ids.names()
    if isinstance(u, np.ndarray) and without_gaps(found):
        return np.stack([u, v], axis=1), len(found), None
    names = NodeNames(found)
    return np.stack([names.encode(u), names.encode(v)], axis=1), len(found), found


def without_gaps(names: np.ndarray) -> bool:
    """Return whether sorted distinct integers are 0, 1, ..., n - 1."""
    return not len(names) or (int(names[-1]) == len(names) - 1 and int(names[0]) == 0)


def _ascend(names: np.ndarray) -> bool:
    return bool((names[1:] > names[:-1]).all())


def names_of(nodes: Sequence[Any]) -> np.ndarray | None:
    """Return names of nodes as an array of integers or of text; None if the names are the node numbers."""
    if all(isinstance(node, (int, np.integer)) and not isinstance(node, bool) for node in nodes):
        if all(node == i for i, node in enumerate(nodes)):
            return None
        if all(-(2**63) <= node < 2**63 for node in nodes):
            return np.array(nodes, np.int64)
    return np.array([str(node) for node in nodes])
