"""Arrays and tables of a Python program as the content of files that a job can read."""

from __future__ import annotations

import io
from typing import Any

import numpy as np

from mgclust.base.errors import InputError

__all__ = ["array_content", "file_of"]


def file_of(data: Any) -> tuple[str, bytes] | None:
    """Return the name and the content of a file for an array or a table; None if `data` is neither.

    Parameters
    ----------
    data : object
        Argument of the caller.

    Raises
    ------
    InputError
        The array holds no numbers, or the table cannot be written.
    """
    if hasattr(data, "__arrow_c_stream__"):
        return "data.parquet", _table_content(data)
    if hasattr(data, "tocsr") and hasattr(data, "nnz"):
        from scipy import sparse

        file = io.BytesIO()
        sparse.save_npz(file, data.tocsr())
        return "data.npz", file.getvalue()
    if hasattr(data, "__array__"):
        return "data.npy", array_content(data, "sources")
    return None


def array_content(array: Any, name: str) -> bytes:
    """Return the content of a .npy file.

    Parameters
    ----------
    array : array-like
        Numbers.
    name : str
        Name of the argument, for the message.

    Raises
    ------
    InputError
        The array holds Python objects.
    """
    array = np.asarray(array)
    if array.dtype.hasobject:
        raise InputError(f"{name} has dtype={array.dtype}; give an array of numbers.")
    file = io.BytesIO()
    np.save(file, array, allow_pickle=False)
    return file.getvalue()


def _table_content(table: Any) -> bytes:
    import pyarrow as pa
    from pyarrow import parquet

    file = io.BytesIO()
    try:
        parquet.write_table(pa.table(table), file)
    except (pa.ArrowException, TypeError, ValueError) as error:
        raise InputError(f"sources is a table that cannot be written as Parquet: {error}; give a file.") from None
    return file.getvalue()
