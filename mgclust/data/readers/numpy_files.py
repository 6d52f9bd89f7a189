"""Rows in .npy and .npz files and in memory maps.

A .npy file, a member of an uncompressed .npz file and a memory map are the same thing: numbers at an offset in a file.
The requested rows are read with ordinary reads, because a memory map would kill the process if another process
truncated the file. Pickles are never loaded: only the header is interpreted.
"""

from __future__ import annotations

import io
import math
import mmap
import os
import struct
import warnings
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import IO

import numpy as np
from numpy.lib import format as npy

from mgclust.base.errors import InputError
from mgclust.data.base import Dataset
from mgclust.data.files import FileDataset, LoadedDataset
from mgclust.data.location import Location
from mgclust.outside.inflation import check_holds, check_memory
from mgclust.outside.quoting import reason, shortened

__all__ = [
    "NpyLayout",
    "NumpyFileDataset",
    "data_offset",
    "fill",
    "member_layout",
    "member_stream",
    "open_memmap",
    "open_npy",
    "open_npz",
    "read_layout",
]

_LONGEST_HEADER = 2**14  # bytes of a .npy header; NumPy itself accepts no longer header
_ZIP_ENCRYPTED = 1
SPARSE = {"format", "shape", "data"}  # arrays that `scipy.sparse.save_npz` always writes


@dataclass(frozen=True)
class NpyLayout:
    """Header of a .npy file: type, shape and offset of its numbers."""

    shape: tuple[int, ...]
    dtype: np.dtype
    fortran: bool
    offset: int

    @property
    def nbytes(self) -> int:
        """Number of bytes of the numbers, without the header."""
        return math.prod(self.shape) * self.dtype.itemsize

    @property
    def end(self) -> int:
        """Byte after the last number."""
        return self.offset + self.nbytes


class NumpyFileDataset(FileDataset):
    """An array at an offset of a local file.

    Parameters
    ----------
    location : Location
        Location of the file.
    layout : NpyLayout
        Type, shape and offset of the numbers.
    labels_member : str, optional
        Member of the .npz file that holds the labels.
    whole_file : bool
        Whether the fingerprint is the hash of the file. False for a memory map, which may be a part of its file.
    """

    kind = "npy"

    def __init__(
        self, location: Location, layout: NpyLayout, labels_member: str | None = None, whole_file: bool = True
    ) -> None:
        super().__init__(location, layout.shape, layout.dtype)
        self._layout = layout
        self._labels_member = labels_member
        self._whole_file = whole_file
        check_holds(location.name, layout.end, self._stamp.size)

    @property
    def labels(self) -> np.ndarray | None:
        """The array ``y`` of a .npz file."""
        return _read_labels(self.location, self._labels_member)

    def fingerprint(self) -> str:
        """Return the SHA-256 of the file's bytes, or of the mapped rows."""
        return super().fingerprint() if self._whole_file else Dataset.fingerprint(self)

    def _read(self, start: int, stop: int) -> np.ndarray:
        n, d = self.shape
        size = self._layout.dtype.itemsize
        with self.location.open() as file:
            if not self._layout.fortran:
                rows = np.empty((stop - start, d), dtype=self._layout.dtype)
                self._fill(file, start * d * size, rows)
                return rows.astype(self.dtype, copy=False)
            rows = np.empty((stop - start, d), dtype=self.dtype)
            column = np.empty(stop - start, dtype=self._layout.dtype)
            for j in range(d):
                self._fill(file, (j * n + start) * size, column)
                rows[:, j] = column
            return rows

    def _fill(self, file: IO[bytes], position: int, out: np.ndarray) -> None:
        file.seek(self._layout.offset + position)
        fill(file, out, self.location)


class _StreamedNumpyDataset(LoadedDataset):
    """A compressed member of a .npz file, or a .npy or .npz file behind a URL."""

    kind = "npz"

    def __init__(
        self, location: Location, layout: NpyLayout, member: str | None, labels_member: str | None = None
    ) -> None:
        super().__init__(location, layout.shape, layout.dtype)
        self._member = member
        self._labels_member = labels_member

    @property
    def labels(self) -> np.ndarray | None:
        """The array ``y`` of a .npz file."""
        return _read_labels(self.location, self._labels_member)

    def _load(self) -> np.ndarray:
        with member_stream(self.location, self._member) as stream:
            return _read_array(stream, self.location)


def open_npy(location: Location) -> Dataset:
    """Open a .npy file."""
    with location.open() as file:
        layout = read_layout(file, location)
    if location.remote:
        return _StreamedNumpyDataset(location, layout, None)
    return NumpyFileDataset(location, layout)


def open_npz(location: Location) -> Dataset:
    """Open a .npz file: its array ``X``, or its only array. The array ``y`` becomes the labels."""
    with location.open() as file, zipfile.ZipFile(file) as archive:
        names = [info.filename.removesuffix(".npy") for info in archive.infolist()]
        if "X" in names:
            chosen = "X"
        else:
            others = [name for name in names if name != "y"]
            if set(names) >= SPARSE:
                raise InputError(
                    f"{location.name} holds a sparse matrix of SciPy, which can only be used in Python; give "
                    "scipy.sparse.load_npz(path), or write numpy.savez(path, X=matrix.toarray())."
                )
            if len(others) != 1:
                listed = shortened(", ".join(others)) or "none"
                raise InputError(
                    f"{location.name} holds {len(others)} arrays ({listed}); name the "
                    "array to cluster X: numpy.savez(path, X=array)."
                )
            chosen = others[0]
        info = archive.infolist()[names.index(chosen)]
        layout = member_layout(archive, info, location)
        stored = info.compress_type == zipfile.ZIP_STORED
        if stored and not location.remote:
            layout = replace(layout, offset=layout.offset + data_offset(file, info))
        labels = _labels_member(archive, names, location, layout.shape[:1])
    if stored and not location.remote:
        return NumpyFileDataset(location, layout, labels)
    return _StreamedNumpyDataset(location, layout, info.filename, labels)


def open_memmap(array: np.memmap) -> Dataset | None:
    """Open a memory map by its file, so that a pickle holds only the path; return None if it must stay in memory."""
    if array.filename is None or array.mode == "c" or array.ndim != 2 or not array.size:
        return None
    if not (array.flags.c_contiguous or array.flags.f_contiguous) or not os.path.isfile(array.filename):
        return None
    # A slice inherits the `offset` of its parent, so only the addresses show where it begins.
    mapped: object = array
    while isinstance(mapped, np.ndarray):  # the base of a slice is its parent, whose base is the map
        mapped = mapped.base
    if not isinstance(mapped, mmap.mmap):
        return None
    base = np.frombuffer(mapped, dtype=np.uint8)
    begin = array.offset - array.offset % mmap.ALLOCATIONGRANULARITY
    offset = begin + array.__array_interface__["data"][0] - base.__array_interface__["data"][0]
    location = Location.of(array.filename)
    layout = NpyLayout(array.shape, array.dtype, not array.flags.c_contiguous, offset)
    if offset < 0 or offset + layout.nbytes > os.path.getsize(location.path):
        return None
    dataset = NumpyFileDataset(location, layout, whole_file=False)
    ends = ((0, 1), (array.shape[0] - 1, array.shape[0]))
    same = all(dataset.read(i, j).tobytes() == array[i:j].astype(dataset.dtype).tobytes() for i, j in ends)
    return dataset if same else None  # None if the path is now another file than the mapped one


def data_offset(file: IO[bytes], info: zipfile.ZipInfo) -> int:
    """Return the offset of a stored member, whose local header repeats the name and has its own extra fields."""
    file.seek(info.header_offset + 26)
    name_length, extra_length = struct.unpack("<HH", file.read(4))
    return info.header_offset + 30 + int(name_length) + int(extra_length)


@contextmanager
def member_stream(location: Location, member: str | None) -> Iterator[IO[bytes]]:
    """Open a .npy file, or a member of a .npz file, as a stream."""
    with location.open() as file:
        if member is None:
            yield file
        else:
            with zipfile.ZipFile(file) as archive, archive.open(member) as stream:
                yield stream


def member_layout(archive: zipfile.ZipFile, info: zipfile.ZipInfo, location: Location) -> NpyLayout:
    """Interpret the header of an array in a .npz file; reject an array that is larger than the archive."""
    if info.flag_bits & _ZIP_ENCRYPTED or info.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        raise InputError(
            f"{shortened(info.filename)} of {location.name} is encrypted or compressed in a way that NumPy does not "
            "write; write it with numpy.savez or numpy.savez_compressed."
        )
    with archive.open(info) as stream:
        layout = read_layout(stream, location)
    stored = min(info.compress_size, archive.start_dir)
    check_holds(location.name, layout.end, info.file_size)
    check_holds(location.name, layout.end, stored, deflated=info.compress_type == zipfile.ZIP_DEFLATED)
    return layout


def read_layout(stream: IO[bytes], location: Location) -> NpyLayout:
    """Interpret the header of a .npy file. `stream` must be at its beginning, and is left where the numbers begin."""
    head = io.BytesIO(stream.read(_LONGEST_HEADER))
    try:
        version = npy.read_magic(head)
        read = npy.read_array_header_1_0 if version == (1, 0) else npy.read_array_header_2_0
        with warnings.catch_warnings(action="ignore"):
            shape, fortran, dtype = read(head)
        if min(shape, default=0) < 0 or not dtype.itemsize:
            raise ValueError(f"shape={shape} and dtype={dtype} are not valid for an array")
    except Exception as error:  # the header is a Python expression, which may be wrong in many ways
        empty = not head.getvalue()
        fault = "is empty" if empty else f"is not a whole .npy array ({reason(error)})"
        raise InputError(f"{location.name} {fault}; write it with numpy.save.") from error
    if dtype.hasobject:
        raise InputError(
            f"{location.name} holds a pickle (dtype {shortened(str(dtype))}), which is rejected: loading it could run "
            "any code; save numbers with X.astype(float)."
        )
    stream.seek(head.tell())
    return NpyLayout(tuple(map(int, shape)), dtype, fortran, head.tell())


def fill(stream: IO[bytes], out: np.ndarray, location: Location) -> None:
    """Fill `out` from a stream."""
    view = out.reshape(-1).view(np.uint8).data
    done = 0
    while done < len(view):
        got = stream.readinto(view[done : done + 2**30])  # type: ignore[attr-defined]
        if not got:
            raise InputError(f"{location.name} is truncated; copy or write it again.")
        done += got


def _read_array(stream: IO[bytes], location: Location) -> np.ndarray:
    layout = read_layout(stream, location)
    check_memory(location.name, layout.nbytes)
    flat = np.empty(math.prod(layout.shape), dtype=layout.dtype)
    fill(stream, flat, location)
    return flat.reshape(layout.shape, order="F" if layout.fortran else "C")


def _labels_member(
    archive: zipfile.ZipFile, names: list[str], location: Location, shape: tuple[int, ...]
) -> str | None:
    """Find the member ``y`` with one label per row; None if it is not a plain array."""
    if "y" not in names:
        return None
    info = archive.infolist()[names.index("y")]
    try:
        layout = member_layout(archive, info, location)
    except InputError:
        return None
    if layout.shape != shape:
        raise InputError(
            f"{location.name} has {shape[0]} rows and a y of shape {layout.shape}; give one label per row, or no y."
        )
    return info.filename


def _read_labels(location: Location, member: str | None) -> np.ndarray | None:
    if member is None:
        return None
    with member_stream(location, member) as stream:
        return _read_array(stream, location)
