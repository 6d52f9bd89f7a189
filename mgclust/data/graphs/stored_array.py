"""Reading of an array in a .npy or .npz file by rows, in the type in which it was written."""

from __future__ import annotations

import contextlib
import math
import weakref
import zipfile
from dataclasses import replace
from typing import IO, Any

import numpy as np

from mgclust.base.errors import InputError
from mgclust.data.location import Location
from mgclust.data.readers.numpy_files import NpyLayout, data_offset, fill, member_layout, read_layout
from mgclust.outside.inflation import check_holds, check_memory
from mgclust.outside.quoting import shortened

__all__ = ["StoredArray"]


class StoredArray:
    """An array in a file. A pickle does not hold its numbers.

    Parameters
    ----------
    location : Location
        Location of the file.
    member : str, optional
        Member of a .npz file, as the archive lists it; None for a .npy file.

    Notes
    -----
    A member that is not compressed is read at its place in the file. A compressed member is read as a stream, which is
    kept open for the next read. Only the requested numbers are held in memory.
    """

    def __init__(self, location: Location, member: str | None = None) -> None:
        self.location = location
        self._member = member
        self._direct = not location.remote
        self._stream: _ArrayStream | None = None
        with location.open() as file:
            if member is None:
                self._layout = read_layout(file, location)
            else:
                self._layout = self._member_layout(file, member)
            if self._direct:
                check_holds(location.name, self._layout.end, file.seek(0, 2))
        if self._layout.dtype.kind not in "iufbSU":
            raise InputError(
                f"{self.name} holds {shortened(self._layout.dtype)}, neither numbers nor text; write numbers or text."
            )

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_stream": None}

    @property
    def name(self) -> str:
        """Name of the array in messages."""
        return (
            self.location.name
            if self._member is None
            else f"{shortened(self._member.removesuffix('.npy'))} of {self.location.name}"
        )

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the array."""
        return self._layout.shape

    @property
    def dtype(self) -> np.dtype:
        """Type in which the array was written."""
        return self._layout.dtype

    def read(self, start: int, stop: int) -> np.ndarray:
        """Read the rows ``start`` to ``stop - 1``."""
        layout = self._layout
        if layout.fortran and len(layout.shape) > 1:
            return np.ascontiguousarray(self._columns(start, stop).T)
        out = np.empty((stop - start, *layout.shape[1:]), layout.dtype)
        row = math.prod(layout.shape[1:]) * layout.dtype.itemsize
        self._fill(start * row, out)
        return out

    def whole(self) -> np.ndarray:
        """Read the whole array. It may have no dimensions, as the ``n`` of a graph."""
        check_memory(self.name, self._layout.nbytes)
        if self.shape:
            return self.read(0, self.shape[0])
        out = np.empty(1, self.dtype)
        self._fill(0, out)
        return out.reshape(())

    def _columns(self, start: int, stop: int) -> np.ndarray:
        """Return rows of an array in Fortran order, as the transposed array."""
        n, d = self.shape
        columns = np.empty((d, stop - start), self.dtype)
        for j in range(d):
            self._fill((j * n + start) * self.dtype.itemsize, columns[j])
        return columns

    def _fill(self, position: int, out: np.ndarray) -> None:
        if not out.size:
            return
        with self.location.reading():
            if self._direct:
                with self.location.open() as file:
                    file.seek(self._layout.offset + position)
                    fill(file, out, self.location)
                return
            if self._stream is None or self._stream.position > position:
                self._close()
                self._stream = _ArrayStream(self.location, self._member, self._layout.offset)
            try:
                self._stream.skip_to(position)
                fill(self._stream.file, out, self.location)
                self._stream.position += out.nbytes
                if self._stream.position == self._layout.nbytes:
                    self._close()
            except BaseException:
                self._close()
                raise

    def _member_layout(self, file: IO[bytes], member: str) -> NpyLayout:
        with zipfile.ZipFile(file) as archive:
            info = archive.getinfo(member)
            layout = member_layout(archive, info, self.location)
            self._direct &= info.compress_type == zipfile.ZIP_STORED
            return replace(layout, offset=layout.offset + data_offset(file, info)) if self._direct else layout

    def _close(self) -> None:
        if self._stream is not None:
            self._stream.close()
            self._stream = None


class _ArrayStream:
    """Stream of the numbers of a compressed member or of a file behind a URL."""

    def __init__(self, location: Location, member: str | None, offset: int) -> None:
        self.position = 0
        self._stack = contextlib.ExitStack()
        self._close = weakref.finalize(self, self._stack.close)
        try:
            self.file: Any = self._stack.enter_context(location.open())
            if member is not None:
                archive = self._stack.enter_context(zipfile.ZipFile(self.file))
                self.file = self._stack.enter_context(archive.open(member))
            self._skip(offset)
        except BaseException:
            self._stack.close()
            raise

    def skip_to(self, position: int) -> None:
        """Skip the bytes before a position."""
        self._skip(position - self.position)
        self.position = position

    def close(self) -> None:
        """Close all open files."""
        self._close()

    def _skip(self, count: int) -> None:
        while count > 0:
            got = len(self.file.read(min(count, 2**24)))
            if not got:
                return  # the next read reports that the file is truncated
            count -= got
