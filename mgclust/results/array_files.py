"""Files of the arrays of a result. The kind of an array determines the format of its file.

NAME.npy    array in memory, or Dask array (written chunk by chunk); memory-mapped when it is read
NAME.zarr   `Deferred` array; written and read block by block
NAME.npz    sparse array of SciPy, as compressed sparse rows; read as a whole
"""

from __future__ import annotations

import json
import math
import os
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import repeat
from pathlib import Path
from typing import Any

import numpy as np
from numpy.lib import format as npy

from mgclust.base.dask_arrays import computed, empty_chunk, is_dask, parts_of
from mgclust.base.errors import InputError
from mgclust.outside.json_text import parse_json
from mgclust.outside.quoting import shortened
from mgclust.outside.rooted_files import RootedFile

__all__ = [
    "Deferred",
    "file_name",
    "open_zarr",
    "read_array",
    "read_npy_parameter",
    "write_array",
    "write_csv",
    "write_npy",
]

# Codecs of zarr that are accepted. All others are rejected before a chunk is read, because one of them loads pickles.
ZARR_CODECS = {
    "adler32", "bitround", "blosc", "bytes", "bz2", "crc32", "crc32c", "delta", "endian", "fixedscaleoffset",
    "fletcher32", "gzip", "lz4", "lzma", "quantize", "shuffle", "sharding_indexed", "transpose", "zlib", "zstd",
}  # fmt: skip
_LONGEST_METADATA = 2**24  # bytes
CSV_ROWS = 65_536  # rows formatted at a time, to limit the memory for writing labels.csv


@dataclass(frozen=True)
class Deferred:
    """An array of a result that is not in memory. It is computed block by block when the result is saved."""

    shape: tuple[int, ...]
    dtype: np.dtype
    write: Callable[[Path], object]  # writes the array to the given path, as a zarr array


def file_name(name: str, array: Any) -> str:
    """Return the name of the file that holds an array."""
    if isinstance(array, Deferred) or _comes_from("zarr", array):
        return f"{name}.zarr"
    return f"{name}.npz" if _comes_from("scipy", empty_chunk(array)) else f"{name}.npy"


def write_array(path: Path, array: Any) -> None:
    """Write an array to a path whose suffix is the suffix of `file_name`."""
    if isinstance(array, Deferred):
        array.write(path)
    elif _comes_from("zarr", array):
        _copy_zarr(array, path)
    elif path.suffix == ".npz":
        from scipy.sparse import save_npz

        whole = computed(array) if is_dask(array) else array
        save_npz(path, whole.tocsr(), compressed=False)  # compression would take longer than all other steps
    else:
        write_npy(path, array)


def write_npy(path: Path, array: Any) -> None:
    """Write a ``.npy`` file. If the disk is full, the OSError says so; the error of ``numpy.save`` does not."""
    if is_dask(array):
        header = {"descr": npy.dtype_to_descr(array.dtype), "fortran_order": False, "shape": array.shape}
    else:
        array = np.asarray(array, order=None if array.flags.f_contiguous else "C")
        header = npy.header_data_from_array_1_0(array)
    with open(path, "wb") as file:
        npy.write_array_header_1_0(file, header)
        for part in parts_of(array.T if header["fortran_order"] else array):
            file.write(np.ascontiguousarray(part).reshape(-1).view(np.uint8).data)


def read_array(directory: Path | RootedFile, entry: dict[str, Any]) -> Any:
    """Open an array of a result directory from its entry in ``result.json``; only a sparse array is read as a whole."""
    name = str(entry["file"])
    last = Path(name).name
    path = directory.inside(last) if isinstance(directory, RootedFile) else directory / last
    try:
        if last != name:
            raise ValueError(f"result.json names {name!r}, which is not in the directory")
        array = _open(path, entry["shape"])
    except InputError:
        raise
    except Exception as error:  # parsers may raise any error if the bytes are arbitrary
        raise InputError(f"{str(path)!r} is missing or damaged ({error}); run the job again.") from None
    if list(array.shape) != entry["shape"]:
        raise InputError(
            f"{str(path)!r} has shape {array.shape}, but {tuple(entry['shape'])} in result.json; run the job again."
        )
    return array


def read_npy_parameter(name: str, text: str | RootedFile, instead: str) -> np.ndarray:
    """Read a .npy file that is the value of the parameter `name`.

    If the file cannot be read, the `InputError` asks the user to give `instead`.
    """
    try:
        with text.open() if isinstance(text, RootedFile) else open(text, "rb") as file:
            read = npy.read_array_header_1_0 if npy.read_magic(file) == (1, 0) else npy.read_array_header_2_0
            shape, _, dtype = read(file)
            begin, end = file.tell(), file.seek(0, os.SEEK_END)
            if begin + math.prod(shape) * dtype.itemsize > end:  # a header may claim any size
                raise ValueError("it is truncated")
            file.seek(0)
            return np.asarray(npy.read_array(file, allow_pickle=False))
    except InputError:
        raise
    except Exception as error:
        raise InputError(
            f"{name}={str(text)!r} cannot be read as an array ({shortened(error, 1000)}); give {instead}."
        ) from None


def open_zarr(path: str | RootedFile) -> dict[str, Any]:
    """Open a zarr store, and return its arrays by name; the name of a single array is "".

    If `path` is a `RootedFile`, each file of the store is opened under its root folder when it is read.

    Raises
    ------
    InputError
        A codec of an array is not one of `ZARR_CODECS`.
    FileNotFoundError
        There is no store at the path.
    """
    import zarr

    store: Any = path
    remote = isinstance(path, str) and "://" in path
    if isinstance(path, RootedFile):
        from mgclust.outside.zarr_store import RootedStore

        store = RootedStore(path)
    for file, content in () if remote else _zarr_metadata(path):
        _reject_wide(parse_json(content), file)
    # Consolidated metadata of a group may name arrays elsewhere, so local stores are read without it. For a URL, this
    # metadata may be the only list of the arrays.
    node = zarr.open(store, mode="r", use_consolidated=None if remote else False)
    arrays = {"": node} if isinstance(node, zarr.Array) else dict(node.arrays())
    for array in arrays.values():
        unknown = set(_zarr_codecs(array.metadata.to_dict())) - ZARR_CODECS
        if unknown:
            raise InputError(
                f"{str(path)!r} is encoded by {shortened(', '.join(sorted(unknown)))}, which is rejected; write it "
                "with zarr's defaults."
            )
        if isinstance(path, RootedFile):
            store.bound(array, list(_zarr_codecs(array.metadata.to_dict())))
    return arrays


def write_csv(path: Path, labels: Any, halo: Any) -> None:
    """Write labels and, if given, the halo (0 or 1 for each row) as a table for spreadsheets."""
    names = ["row", "label"] + ([] if halo is None else ["halo"])
    with open(path, "w", encoding="utf-8", newline="") as file:
        file.write(",".join(names) + "\n")
        row, line = 0, ",".join(["%d"] * len(names)) + "\n"
        flags: Iterator[Any] = repeat(None) if halo is None else parts_of(halo)
        for part, flag in zip(parts_of(labels), flags, strict=halo is not None):
            for start in range(0, len(part), CSV_ROWS):
                some = slice(start, start + CSV_ROWS)
                columns = [range(row + start, row + len(part)), part[some].tolist()]
                if flag is not None:
                    columns.append(flag[some].astype(int).tolist())
                file.write("".join([line % each for each in zip(*columns, strict=False)]))
            row += len(part)


def _comes_from(package: str, array: Any) -> bool:
    """Return whether the class of an array belongs to a package, without importing the package."""
    return type(array).__module__.partition(".")[0] == package


def _open(path: Path | RootedFile, shape: list[int]) -> Any:
    suffix = os.path.splitext(str(path))[1]
    if suffix == ".zarr":
        return _single_zarr(path)
    file = f"/dev/fd/{path.descriptor()}" if isinstance(path, RootedFile) else path
    if suffix == ".npz":
        from scipy.sparse import load_npz

        array = load_npz(file)
        array.check_format(full_check=True)  # SciPy's loops do not check that indices are in range
        return array
    return _map_npy(file, shape)


def _copy_zarr(array: Any, path: Path) -> None:
    """Copy the array of a loaded result, one chunk of rows at a time."""
    import zarr

    copy = zarr.create_array(path, shape=array.shape, chunks=array.chunks, dtype=array.dtype)
    step = array.chunks[0]
    for start in range(0, array.shape[0], step):
        copy[start : start + step] = array[start : start + step]


def _map_npy(path: str | Path, shape: list[int]) -> np.ndarray:
    # An array without elements cannot be memory-mapped.
    mode = "r" if math.prod(shape) else None
    array: np.ndarray = np.load(path, mmap_mode=mode, allow_pickle=False)  # type: ignore[arg-type]
    return array


def _single_zarr(path: Path | RootedFile) -> Any:
    try:
        return open_zarr(path if isinstance(path, RootedFile) else str(path))[""]
    except ImportError:
        raise InputError(f"{str(path)!r} is a zarr array; install zarr to read it (pip install zarr).") from None


def _zarr_metadata(path: str | RootedFile) -> Iterator[tuple[str, bytes]]:
    """Yield the name and content of each metadata file of a store, including the files of the arrays of a group."""
    if isinstance(path, str):
        for name in (".zarray", "zarr.json", "*/.zarray", "*/zarr.json"):
            for file in Path(path).glob(name):
                yield str(file), file.read_bytes()
        return
    for folder in ["", *(name for name, below in path.listed() if below)]:
        for name, below in path.listed(folder):
            if name in (".zarray", "zarr.json") and not below:
                name = f"{folder}/{name}" if folder else name
                with path.open_inside(name) as opened:
                    yield f"{path}/{name}", opened.read(_LONGEST_METADATA)


def _reject_wide(said: Any, name: str) -> None:
    """Reject elements of 10,000 bytes or more, because zarr creates a fill value of this size on opening the array."""
    kind = json.dumps([said.get("dtype"), said.get("data_type")] if isinstance(said, dict) else None)
    if re.search(r"\d{5}", kind):
        raise InputError(f"{name} has elements of type {shortened(kind, 80)}; they should be numbers.")


def _zarr_codecs(said: Any) -> Iterator[str]:
    """Yield the names of all codecs in the metadata of an array, including codecs nested in other codecs."""
    if isinstance(said, (list, tuple)):
        for each in said:
            yield from _zarr_codecs(each)
    elif isinstance(said, dict):
        if "id" in said or ("name" in said and "zarr_format" not in said):
            yield str(said.get("id", said.get("name"))).removeprefix("numcodecs.")
        for key in ("codecs", "index_codecs", "configuration", "filters", "compressor"):
            yield from _zarr_codecs(said.get(key))
