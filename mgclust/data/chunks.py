"""Functions that Dask tasks run on chunks of arrays and data frames.

They are sent by value (`mgclust.base.by_value`), so that any worker that can compute a chunk can run them, even if the
worker has no mgclust or another version of it. Therefore this module does not depend on mgclust.
"""

from __future__ import annotations

import hashlib
from typing import Any

import numpy as np

__all__ = [
    "INVALID",
    "NUMBERS_AT_ONCE",
    "constant_rows",
    "distinct",
    "input_error",
    "is_sparse_block",
    "largest_id",
    "number_partition",
    "picked",
    "plain_rows",
    "positions_in",
    "row_digests",
    "transform_chunk",
    "transformed",
]

# Numbers that are converted to float64 at a time: enough for speed, and few compared with the rows themselves.
NUMBERS_AT_ONCE = 2**20
INVALID = np.iinfo(np.int64).max  # return value of `largest_id` for invalid edges


def input_error(text: str) -> Exception:
    """Make an InputError, or a ValueError if this process has no mgclust."""
    try:
        from mgclust.base.errors import InputError
    except ImportError:
        return ValueError(text)
    return InputError(text)


def picked(block: Any, wanted: list[np.ndarray], block_id: tuple[int, ...] = (0, 0)) -> Any:
    """Return some rows of a chunk; `wanted` lists the rows of each chunk by their numbers within the chunk."""
    return block[wanted[block_id[0]]]


def plain_rows(block: Any, dtype: Any) -> Any:
    """Convert a chunk of rows to a NumPy or CuPy array.

    Masked values become NaN; values that a sparse matrix does not store become 0.

    Parameters
    ----------
    block : array
        Chunk of a Dask array. Its type may differ from the type that the array states.
    dtype : dtype
        Floating type to which a masked array is converted.
    """
    if isinstance(block, np.ma.MaskedArray):
        return np.ma.filled(block.astype(dtype), np.nan)
    if is_sparse_block(block):
        return block.toarray() if hasattr(block, "toarray") else block.todense()
    return block


def is_sparse_block(block: Any) -> bool:
    """Return whether a chunk is a sparse matrix of SciPy, CuPy or the package sparse."""
    return hasattr(block, "todense")


def row_digests(rows: Any) -> np.ndarray:
    """Return the SHA-256 of one block of rows, as an array of bytes of shape (1, 32)."""
    host = rows.get() if hasattr(rows, "get") else np.asarray(rows)
    host = np.ascontiguousarray(host, dtype=host.dtype.newbyteorder("<"))
    return np.frombuffer(hashlib.sha256(host.reshape(-1).view(np.uint8).data).digest(), np.uint8)[None, :]


def transformed(x: Any, detrend: bool, zscore: bool, sample: bool = False) -> tuple[Any, Any]:
    """Transform rows: see `mgclust.data.rows.RowTransform`."""
    xp = x.__array_namespace__()
    out = xp.empty(x.shape, dtype="float64")
    constant = xp.zeros(x.shape[0], dtype=bool)
    step = max(1, NUMBERS_AT_ONCE // max(1, x.shape[1]))
    for start in range(0, x.shape[0], step):
        part = slice(start, start + step)
        out[part], constant[part] = _transformed(x[part], detrend, zscore, sample, xp)
    return out, constant


def _transformed(x: Any, detrend: bool, zscore: bool, sample: bool, xp: Any) -> tuple[Any, Any]:
    finite = xp.isfinite(x).all(axis=1, keepdims=True)
    wide = xp.where(finite, x, 0).astype("float64")
    scale = abs(wide).max(axis=1, keepdims=True)
    wide = wide - wide.mean(axis=1, keepdims=True)
    if detrend:
        time = xp.arange(x.shape[1], dtype="float64") - (x.shape[1] - 1) / 2
        wide = wide - (wide * time).sum(axis=1, keepdims=True) / (time * time).sum() * time
    constant = xp.zeros(x.shape[0], dtype=bool)
    if zscore:
        deviation = (wide * wide).mean(axis=1, keepdims=True) ** 0.5
        if sample and x.shape[1] > 1:
            deviation = deviation * (x.shape[1] / (x.shape[1] - 1)) ** 0.5
        # After the mean is subtracted from a constant row, only rounding errors are left.
        flat = deviation <= 1e-12 * scale
        constant = (flat & finite)[:, 0]
        wide = wide / xp.where(flat, 1.0, deviation)
    return xp.where(finite, wide, x), constant


def transform_chunk(chunk: Any, detrend: bool, zscore: bool, sample: bool = False, block_info: Any = None) -> Any:
    """Transform the rows of a chunk; raise an error if a row cannot be scaled."""
    if not chunk.size:  # Dask calls the function with an empty chunk to infer types
        return chunk
    rows, constant = transformed(chunk, detrend, zscore, sample)
    if bool(constant.any()):
        offset = block_info[0]["array-location"][0][0] if block_info else 0
        first = offset + int(constant.argmax())
        raise input_error(constant_rows(int(constant.sum()), len(chunk), first))
    return rows


def constant_rows(count: int, of: int, first: int) -> str:
    """Return the message about rows that cannot be scaled."""
    return (
        f"standardize='zscore' is undefined for constant rows: {count} of {of} rows are constant, the first is row "
        f"{first}; drop them or leave standardize out."
    )


def largest_id(block: Any, bound: int) -> np.ndarray:
    """Return the largest node number in a chunk of edges, as an array of shape (1, 1).

    Parameters
    ----------
    block : array of shape (m, 2) or (m, 3)
        Edges, with weights in the third column if there is one.
    bound : int
        Node numbers must be smaller than this number.

    Returns
    -------
    ndarray
        -1 if there are no edges. INVALID if a node number is not an integer or out of range, or if a weight is negative
        or not finite.
    """
    ids, weights, largest = block[:, :2], block[:, 2:], -1
    if len(block):
        largest = ids.max().item()
        # Comparisons with NaN are False, so NaN is invalid.
        valid = ids.min().item() >= 0 and largest < bound
        valid = valid and (ids.dtype.kind != "f" or bool((ids == np.floor(ids)).all()))
        valid = valid and bool(((weights >= 0) & (weights < np.inf)).all())
        largest = int(largest) if valid else INVALID
    return np.full((1, 1), largest, np.int64)


def distinct(column: Any) -> Any:
    """Return the distinct values of one partition of a column of a Dask DataFrame."""
    return column.drop_duplicates()


def number_partition(part: Any, names: Any, text: bool) -> Any:
    """Replace names by numbers in one partition of a Dask DataFrame.

    Parameters
    ----------
    part : DataFrame
        Two columns of names, and optionally a column of weights.
    names : NodeNames
        Names of all nodes.
    text : bool
        Whether the names are text.
    """
    part = part.copy()
    for label in list(part.columns)[:2]:
        ids = part[label].to_numpy()
        if text:
            import pyarrow as pa

            ids = pa.array([str(item) for item in ids.tolist()], pa.large_string())
        else:
            ids = ids.astype(np.int64)
        part[label] = names.encode(ids)
    return part.astype({label: np.float64 for label in list(part.columns)[2:]})


def positions_in(labels: Any, classes: np.ndarray) -> np.ndarray:
    """Return the positions of labels in the sorted classes, as int32."""
    return np.searchsorted(classes, np.asarray(labels).astype(classes.dtype)).astype(np.int32)
