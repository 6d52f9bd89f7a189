"""Streams that convert the bytes of a file: they decompress within limits, or replace line ends."""

from __future__ import annotations

import bz2
import contextlib
import gzip
import io
import os
from collections.abc import Callable
from typing import IO, Any

from mgclust.outside.inflation import check_inflated

__all__ = ["COMPRESSIONS", "inflated", "with_line_ends"]

_HEAD = 2**16  # bytes at the beginning of a file that are searched for line ends


def _zstd(file: IO[bytes]) -> Any:
    import pyarrow as pa

    return pa.CompressedInputStream(pa.PythonFile(_Other(file), "r"), "zstd")  # closes only the wrapper


COMPRESSIONS: dict[str, Callable[[IO[bytes]], Any]] = {
    ".gz": lambda file: gzip.GzipFile(fileobj=file),
    ".bz2": bz2.BZ2File,
    ".zst": _zstd,
}


def inflated(file: IO[bytes], suffix: str, name: str) -> IO[bytes]:
    """Return a stream of the decompressed file; seeking backwards decompresses the file again from its beginning.

    Parameters
    ----------
    file : binary file
        The compressed file.
    suffix : str
        A key of `COMPRESSIONS`.
    name : str
        Name of the file, for messages.
    """
    return io.BufferedReader(_Inflated(file, suffix, name), 2**20)


def with_line_ends(file: IO[bytes]) -> IO[bytes]:
    """Return the file, with line feeds instead of carriage returns if its lines end only with carriage returns.

    Parameters
    ----------
    file : binary file
        File whose position is at its beginning.
    """
    head = file.read(_HEAD)
    file.seek(0)
    return io.BufferedReader(_LineEnds(file), 2**20) if b"\r" in head[:-1] and b"\n" not in head else file


class _Seekable(io.RawIOBase):
    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True


class _Other(_Seekable):
    """A stream of another file, which stays open when the stream is closed."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file

    def readinto(self, buffer: Any) -> int:
        data = self._changed(self._file.read(len(buffer)))
        buffer[: len(data)] = data
        return len(data)

    def _changed(self, data: bytes) -> bytes:
        return data

    def tell(self) -> int:
        return self._file.tell()

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        return self._file.seek(offset, whence)


class _LineEnds(_Other):
    def _changed(self, data: bytes) -> bytes:
        return data.replace(b"\r", b"\n")


class _Inflated(_Seekable):
    def __init__(self, file: IO[bytes], suffix: str, name: str) -> None:
        self._file, self._suffix, self._name = file, suffix, name
        self._stored: int | None = None
        with contextlib.suppress(OSError):  # some servers do not report a size
            self._stored = file.seek(0, os.SEEK_END)
        self._rewind()

    def _rewind(self) -> None:
        self._file.seek(0)
        self._stream, self._position = COMPRESSIONS[self._suffix](self._file), 0

    def readinto(self, buffer: Any) -> int:
        data = self._stream.read(len(buffer))
        buffer[: len(data)] = data
        self._position += len(data)
        check_inflated(self._name, self._position, self._stored)
        return len(data)

    def tell(self) -> int:
        return self._position

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        if whence == os.SEEK_CUR:
            offset += self._position
        elif whence == os.SEEK_END:
            raise io.UnsupportedOperation("the end of a compressed file is not known")
        if offset < self._position:
            self._rewind()
        skipped = bytearray(2**20)
        while self._position < offset:
            if not self.readinto(memoryview(skipped)[: offset - self._position]):
                break
        return self._position
