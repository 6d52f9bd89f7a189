"""Choice between all elements and neighbour lists, and the memory that each form needs.

`message_rows` has all elements, and `listed_rows` has the lists.
"""

from __future__ import annotations

import numpy as np

from mgclust.algorithms.affinity_propagation.rows.list_storage import LIST_GROWTH, first_length
from mgclust.algorithms.affinity_propagation.rows.listed_rows import ListedRows
from mgclust.algorithms.affinity_propagation.rows.message_rows import SPARSE, DenseRows, MessageRows, vector_bytes
from mgclust.algorithms.affinity_propagation.rows.similarity_matrix import Similarities
from mgclust.engine.checkpoint import Saved
from mgclust.engine.memory import Estimate, check
from mgclust.engine.spmd import Context
from mgclust.kernels.affinity_propagation.messages import padded

__all__ = ["estimate", "estimate_of_either", "estimate_of_lists", "is_listed", "rows_of"]

FEW_ROWS = {"cpu": 1000, "cuda": 4000}  # with fewer rows, all elements are faster than lists


def is_listed(context: Context, algorithm: str, affinity: str, saved: Saved | None) -> bool:
    """Return whether a run begins with lists; raise an error if all elements are needed, but do not fit into memory.

    Parameters
    ----------
    context : Context
    algorithm : {"auto", "dense", "sparse"}
    affinity : str
    saved : Saved or None
        Checkpoint to resume from.

    Raises
    ------
    InsufficientMemoryError
        All elements are needed, and do not fit.
    """
    free = int(context.comm.all_reduce(np.array([context.free]), "min")[0])  # all ranks make the same decision
    sizes = context.dataset_shape, context.dtype.itemsize, context.size, free
    if saved is not None:
        listed = bool(saved.control["messages"]["rows"] == SPARSE)
    elif algorithm == "auto":
        enough = affinity != "precomputed" and context.dataset_shape[0] >= FEW_ROWS[context.kernels.device]
        listed = enough and estimate_of_lists(*sizes).needed <= free // 2
    else:
        listed = algorithm == "sparse"
    if not listed:
        itemsize = context.dtype.itemsize
        check(
            lambda shape, size, room: estimate(shape, itemsize, size, room), context.dataset_shape, context.size, free
        )
    return listed


def rows_of(
    context: Context, similarities: Similarities, algorithm: str, listed: bool, *, can_end: bool = False
) -> MessageRows:
    """Return rows before their first iteration; with `can_end`, few columns may replace lists that grow too large."""
    if listed:
        return ListedRows(context, similarities, keep_lists=algorithm == "sparse", can_end=can_end)
    return DenseRows(context, similarities)


def estimate(shape: tuple[int, int], itemsize: int, size: int, room: int) -> Estimate:
    """Estimate the memory of a rank with all elements, in addition to its rows: two matrices, and vectors."""
    n = shape[0]
    own = -(-n // size)
    matrices, vectors = 2 * own * padded(n) * itemsize, vector_bytes(n, own, itemsize)
    return Estimate({"similarities and availabilities": matrices, "vectors": vectors})


def estimate_of_lists(shape: tuple[int, int], itemsize: int, size: int, room: int) -> Estimate:
    """Estimate the memory of a rank with lists in their first length."""
    n, d = shape
    own = -(-n // size)
    lists = int(own * first_length(n) * LIST_GROWTH * (4 + 2 * itemsize))
    rows, block, vectors = n * d * itemsize, 8 * padded(n) * itemsize, vector_bytes(n, own, itemsize)
    what = {"rows of all ranks": rows, "neighbour lists": lists, "a block of similarities": block, "vectors": vectors}
    return Estimate(what)


def estimate_of_either(shape: tuple[int, int], itemsize: int, size: int, room: int) -> Estimate:
    """Estimate the least memory of a rank, with all elements or with lists."""
    either = (each(shape, itemsize, size, room) for each in (estimate, estimate_of_lists))
    return min(either, key=lambda needed: needed.needed)
