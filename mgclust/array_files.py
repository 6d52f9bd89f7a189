"""Arrays of a result as files: one rule decides the file of each kind of array, for writing and for reading.

NAME.npy    an array in memory; read by mapping it
NAME.zarr   a `Deferred` one, written by blocks; read block by block, too
NAME.npz    a SciPy sparse one, as compressed sparse rows; read whole
"""

from __future__ import annotations

import math
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from mgclust.errors import InputError

__all__ = ["Deferred", "file_name", "read_array", "write_array", "write_csv"]

CSV_ROWS = 65_536  # rows formatted at a time: bounds the memory that labels.csv needs


@dataclass(frozen=True)
class Deferred:
    """An array of a result that nobody holds: it is computed, block by block, when the result is saved.

    Attributes
    ----------
    shape : tuple of int
    dtype : numpy.dtype
    write : callable
        Writes the array, as a zarr array, to the path that it is given.
    """

    shape: tuple[int, ...]
    dtype: np.dtype
    write: Callable[[Path], object]


def file_name(name: str, array: Any) -> str:
    """Return the name of the file that holds an array."""
    if isinstance(array, Deferred) or _comes_from("zarr", array):
        return f"{name}.zarr"
    return f"{name}.npz" if _comes_from("scipy", array) else f"{name}.npy"


def write_array(path: Path, array: Any) -> None:
    """Write an array to a path that ends as `file_name` says."""
    if isinstance(array, Deferred):
        array.write(path)
    elif _comes_from("zarr", array):
        _copy_zarr(array, path)
    elif _comes_from("scipy", array):
        from scipy.sparse import save_npz

        save_npz(path, array.tocsr(), compressed=False)  # which takes longer than everything else
    else:
        np.save(path, array, allow_pickle=False)


def read_array(directory: Path, entry: dict[str, Any]) -> Any:
    """Open an array of a result directory, described as in ``result.json``; only a sparse one is read at once."""
    path = directory / str(entry["file"])
    try:
        array = _open(path, entry["shape"])
    except InputError:
        raise
    except (EOFError, OSError, ValueError, zipfile.BadZipFile) as error:
        raise InputError(f"{str(path)!r} is missing or damaged ({error}); run the job again.") from None
    if list(array.shape) != entry["shape"]:
        raise InputError(
            f"{str(path)!r} has shape {array.shape}, result.json says {tuple(entry['shape'])}; run the job again."
        )
    return array


def write_csv(path: Path, labels: np.ndarray, halo: np.ndarray | None) -> None:
    """Write labels, and which rows are in a halo, for spreadsheets."""
    names = ["row", "label"] + ([] if halo is None else ["halo"])
    with open(path, "w", encoding="utf-8", newline="") as file:
        file.write(",".join(names) + "\n")
        for start in range(0, len(labels), CSV_ROWS):
            stop = min(start + CSV_ROWS, len(labels))
            columns = [range(start, stop), labels[start:stop].tolist()]
            if halo is not None:
                columns.append(halo[start:stop].astype(int).tolist())
            line = ",".join(["%d"] * len(columns)) + "\n"
            file.write("".join([line % row for row in zip(*columns, strict=True)]))


def _comes_from(package: str, array: Any) -> bool:
    """Whether a package made the array, without importing it."""
    return type(array).__module__.partition(".")[0] == package


def _open(path: Path, shape: list[int]) -> Any:
    if path.suffix == ".zarr":
        return _open_zarr(path)
    if path.suffix == ".npz":
        from scipy.sparse import load_npz

        return load_npz(path)
    return _map_npy(path, shape)


def _copy_zarr(array: Any, path: Path) -> None:
    """Copy the array of a result that was loaded, so many rows at a time as its chunks have."""
    import zarr

    copy = zarr.create_array(path, shape=array.shape, chunks=array.chunks, dtype=array.dtype)
    step = array.chunks[0]
    for start in range(0, array.shape[0], step):
        copy[start : start + step] = array[start : start + step]


def _map_npy(path: Path, shape: list[int]) -> np.ndarray:
    # An empty file section cannot be mapped.
    mode = "r" if math.prod(shape) else None
    array: np.ndarray = np.load(path, mmap_mode=mode, allow_pickle=False)  # type: ignore[arg-type]
    return array


def _open_zarr(path: Path) -> Any:
    try:
        import zarr
    except ImportError:
        raise InputError(f"{str(path)!r} is a zarr array; install zarr to read it (pip install zarr).") from None
    return zarr.open_array(path, mode="r")
