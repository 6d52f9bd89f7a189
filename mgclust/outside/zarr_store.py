"""A zarr store beneath a root, as zarr reads it: no component of a key is followed as a link.

A chunk says how it is compressed, and may grow to thousands of times its size. How much it is to hold is known before:
a chunk that would be decoded to far more than that is refused before zarr decodes it. Of sharded arrays, whose chunks
are parts of files, this is left to the limits of the process.
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

_LARGEST = 2**31  # bytes of one file of a store
_SLACK = 8  # what is compressed may be of a wider type than what comes out at the end
_MARGIN = 2**16
_CHUNK = 2**20
_METADATA = (".zarray", ".zattrs", ".zgroup", ".zmetadata", "zarr.json")
_COMPRESSORS = {"blosc", "bz2", "gzip", "lz4", "lzma", "zlib", "zstd"}


class RootedStore(Store):  # type: ignore[misc]
    """The files of a folder beneath a root, for reading."""

    supports_writes = supports_deletes = False
    supports_listing = True

    def __init__(self, folder: RootedFile) -> None:
        super().__init__(read_only=True)
        self._folder = folder
        self._bounds: dict[str, tuple[str, int]] = {}  # by the array's path: what compresses a chunk, and its bytes

    def bound(self, array: Any, codecs: Sequence[str]) -> None:
        """Refuse, from now on, chunks of an array that are decoded to more than they say.

        Parameters
        ----------
        array : zarr.Array
        codecs : sequence of str
            Names of all that encode it.
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
        """The same store: it is for reading anyway."""
        return self

    async def get(self, key: str, prototype: Any, byte_range: Any = None) -> Any:
        """Bytes of a file, or of a part of it; None where there is none."""
        part = await asyncio.to_thread(self._read, key, byte_range)
        return None if part is None else prototype.buffer.from_bytes(part)

    async def get_partial_values(self, prototype: Any, key_ranges: Iterable[tuple[str, Any]]) -> list[Any]:
        """Parts of several files."""
        return [await self.get(key, prototype, byte_range) for key, byte_range in key_ranges]

    async def exists(self, key: str) -> bool:
        """Return whether there is such a file."""
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
        """All files."""
        for name in self._folder.files():
            yield name

    async def list_prefix(self, prefix: str) -> AsyncIterator[str]:
        """All files in one of the folders."""
        for name in self._folder.files(prefix.strip("/")):
            yield name

    async def list_dir(self, prefix: str) -> AsyncIterator[str]:
        """Names in one of the folders."""
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
                raise InputError(f"{self._folder.path}: one of its files has more than {_LARGEST:,} bytes.")
            file.seek(begin)
            part = file.read(max(0, end - begin))
        for path, (codec, most) in self._bounds.items():
            chunk = key.startswith(f"{path}/" if path else "") and key.rpartition("/")[2] not in _METADATA
            if chunk and _is_more(codec, part, most):
                raise InputError(
                    f"{self._folder.path}: a chunk of it is decoded to more than {most:,} bytes, which its shape and "
                    "type cannot mean; write it again."
                )
        return part


def _is_more(codec: str, part: bytes, most: int) -> bool:
    """Return whether a chunk is decoded to more than so many bytes; what is damaged is left to zarr."""
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
        part = decoder.unused_data  # another one may follow
    return count


class _Inflate:
    """Deflate with either header, with the methods of the other decoders."""

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
