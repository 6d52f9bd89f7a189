"""A zarr store under a root folder, which zarr reads without following links.

A compressed chunk may grow to thousands of times its size when it is decoded. Its decoded size is known in advance from
the shape and type of the array, so a chunk that would grow far beyond this size is rejected before zarr decodes it. The
chunks of sharded arrays are parts of files and are not checked; only the memory limits of the process apply to them.
"""

from __future__ import annotations

import asyncio
import bz2
import lzma
import math
import zlib
from collections.abc import AsyncIterator, Iterable, Sequence
from typing import Any

from zarr.abc.store import OffsetByteRequest, RangeByteRequest, Store, SuffixByteRequest

from mgclust.base.errors import InputError
from mgclust.outside.rooted_files import RootedFile

__all__ = ["RootedStore"]

_LARGEST = 2**31  # bytes that may be read at once from a file of a store
_SLACK = 8  # compressed values may have a wider type than the array, to which later codecs convert them
_MARGIN = 2**16
_CHUNK = 2**20
_METADATA = (".zarray", ".zattrs", ".zgroup", ".zmetadata", "zarr.json")
_COMPRESSORS = {"blosc", "bz2", "gzip", "lz4", "lzma", "zlib", "zstd"}


class RootedStore(Store):  # type: ignore[misc]
    """A read-only store of the files in a folder under a root folder."""

    supports_writes = supports_deletes = False
    supports_listing = True

    def __init__(self, folder: RootedFile) -> None:
        super().__init__(read_only=True)
        self._folder = folder
        self._bounds: dict[str, tuple[str, int]] = {}  # by array path: compressor, largest size of a decoded chunk

    def bound(self, array: Any, codecs: Sequence[str]) -> None:
        """Reject, from now on, chunks of an array that are decoded to many more bytes than its shape and type need.

        Parameters
        ----------
        array : zarr.Array
            Array of this store.
        codecs : sequence of str
            Names of all codecs of the array.
        """
        compressors = [name for name in codecs if name in _COMPRESSORS]
        if array.shards or not compressors:
            return
        before = getattr(array.metadata, "filters", None) or ()
        if len(compressors) > 1 or any(getattr(each, "codec_id", None) in _COMPRESSORS for each in before):
            raise InputError(f"{self._folder.path} is compressed twice; write it with one compressor.")
        most = _SLACK * math.prod(array.chunks) * array.dtype.itemsize + _MARGIN
        self._bounds[array.path.strip("/")] = compressors[0], most

    def __eq__(self, other: object) -> bool:
        return isinstance(other, RootedStore) and self._folder == other._folder

    def __str__(self) -> str:
        return f"beneath://{self._folder.path}"

    def with_read_only(self, read_only: bool = True) -> RootedStore:
        """Return this store, which is read-only in any case."""
        return self

    async def get(self, key: str, prototype: Any, byte_range: Any = None) -> Any:
        """Read a file or a part of it; return None if there is no such file."""
        part = await asyncio.to_thread(self._read, key, byte_range)
        return None if part is None else prototype.buffer.from_bytes(part)

    async def get_partial_values(self, prototype: Any, key_ranges: Iterable[tuple[str, Any]]) -> list[Any]:
        """Read parts of several files."""
        return [await self.get(key, prototype, byte_range) for key, byte_range in key_ranges]

    async def exists(self, key: str) -> bool:
        """Return whether the store has a file for a key."""
        try:
            with self._folder.open_inside(key):
                return True
        except (FileNotFoundError, IsADirectoryError):
            return False

    async def set(self, key: str, value: Any) -> None:
        """Refuse to write."""
        raise NotImplementedError

    async def delete(self, key: str) -> None:
        """Refuse to delete."""
        raise NotImplementedError

    async def list(self) -> AsyncIterator[str]:
        """Yield the names of all files."""
        for name in self._folder.files():
            yield name

    async def list_prefix(self, prefix: str) -> AsyncIterator[str]:
        """Yield the names of all files in a subfolder, including its own subfolders."""
        for name in self._folder.files(prefix.strip("/")):
            yield name

    async def list_dir(self, prefix: str) -> AsyncIterator[str]:
        """Yield the names of files and folders in a subfolder."""
        try:
            names = self._folder.listed(prefix.strip("/"))
        except (FileNotFoundError, NotADirectoryError):
            return
        for name, _ in names:
            yield name

    def _read(self, key: str, wanted: Any) -> bytes | None:
        try:
            file = self._folder.open_inside(key)
        except (FileNotFoundError, IsADirectoryError):
            return None
        with file:
            begin, end = 0, file.seek(0, 2)
            if isinstance(wanted, RangeByteRequest):
                begin, end = wanted.start, min(wanted.end, end)
            elif isinstance(wanted, OffsetByteRequest):
                begin = wanted.offset
            elif isinstance(wanted, SuffixByteRequest):
                begin = max(0, end - wanted.suffix)
            if end - begin > _LARGEST:
                raise InputError(
                    f"{self._folder.path}: one of its files has more than {_LARGEST:,} bytes; write smaller chunks."
                )
            file.seek(begin)
            part = file.read(max(0, end - begin))
        for path, (codec, most) in self._bounds.items():
            chunk = key.startswith(f"{path}/" if path else "") and key.rpartition("/")[2] not in _METADATA
            if chunk and _is_more(codec, part, most):
                raise InputError(
                    f"{self._folder.path}: a chunk of it is decoded to more than {most:,} bytes, far more than its "
                    "shape and type need; write it again."
                )
        return part


def _is_more(codec: str, part: bytes, most: int) -> bool:
    """Return whether a chunk is decoded to more than `most` bytes; False if it is damaged, which zarr reports."""
    if codec == "blosc":
        return int.from_bytes(part[4:8], "little") > most
    if codec == "lz4":
        return int.from_bytes(part[:4], "little") > most
    try:
        return _counted(codec, part, most) > most
    except (zlib.error, lzma.LZMAError, OSError, EOFError):
        return False


def _counted(codec: str, part: bytes, most: int) -> int:
    if codec == "zstd":
        import pyarrow as pa

        with pa.CompressedInputStream(pa.BufferReader(part), "zstd") as stream:
            count = 0
            while count <= most and (chunk := stream.read(_CHUNK)):
                count += len(chunk)
            return count
    count = 0
    while part and count <= most:
        decoder: Any = {"bz2": bz2.BZ2Decompressor, "lzma": lzma.LZMADecompressor}.get(codec, _Inflate)()
        while not decoder.eof and count <= most:
            chunk = decoder.decompress(part, _CHUNK)
            part = b""
            if not chunk and decoder.needs_input:
                return count
            count += len(chunk)
        part = decoder.unused_data  # another compressed stream may follow
    return count


class _Inflate:
    """Decoder of zlib and gzip with the same methods as the decoders of bz2 and lzma."""

    def __init__(self) -> None:
        self._decoder, self._rest = zlib.decompressobj(47), b""

    def decompress(self, data: bytes, most: int) -> bytes:
        chunk = self._decoder.decompress(self._rest + data, most)
        self._rest = self._decoder.unconsumed_tail
        return chunk

    @property
    def eof(self) -> bool:
        return self._decoder.eof

    @property
    def needs_input(self) -> bool:
        return not self._rest

    @property
    def unused_data(self) -> bytes:
        return self._decoder.unused_data
