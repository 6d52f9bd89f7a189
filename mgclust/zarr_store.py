"""A zarr store beneath a root, as zarr reads it: no component of a key is followed as a link."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable
from typing import Any

from zarr.abc.store import OffsetByteRequest, RangeByteRequest, Store, SuffixByteRequest
from zarr.core.buffer import default_buffer_prototype

from mgclust.beneath import Beneath
from mgclust.errors import InputError

__all__ = ["BeneathStore"]

_LARGEST = 2**31  # bytes of one file of a store


class BeneathStore(Store):  # type: ignore[misc]
    """The files of a folder beneath a root, for reading."""

    supports_writes = supports_deletes = False
    supports_listing = True

    def __init__(self, folder: Beneath) -> None:
        super().__init__(read_only=True)
        self._folder = folder

    def __eq__(self, other: object) -> bool:
        return isinstance(other, BeneathStore) and self._folder == other._folder

    def __str__(self) -> str:
        return f"beneath://{self._folder.path}"

    def with_read_only(self, read_only: bool = True) -> BeneathStore:
        """The same store: it is for reading anyway."""
        return self

    async def get(self, key: str, prototype: Any = None, byte_range: Any = None) -> Any:
        """Bytes of a file, or of a part of it; None where there is none."""
        part = await asyncio.to_thread(self._read, key, byte_range)
        return None if part is None else (prototype or default_buffer_prototype()).buffer.from_bytes(part)

    async def get_partial_values(self, prototype: Any, key_ranges: Iterable[tuple[str, Any]]) -> list[Any]:
        """Parts of several files."""
        return [await self.get(key, prototype, byte_range) for key, byte_range in key_ranges]

    async def exists(self, key: str) -> bool:
        """Whether there is such a file."""
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
            return file.read(max(0, end - begin))
