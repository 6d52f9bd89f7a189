"""Reading of a text file, compressed or not, in chunks of whole lines, in any order."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any, NamedTuple

from mgclust.base.errors import InputError
from mgclust.data.location import Location
from mgclust.outside.inflation import LONGEST_LINE

__all__ = ["Chunk", "TextChunks"]

CHUNK_BYTES = 2**24


class Chunk(NamedTuple):
    """Position of a chunk of whole lines."""

    # offset and length are bytes of the uncompressed text
    offset: int
    length: int
    line: int  # number of the first line, from 1


class TextChunks:
    """Lines of a file.

    Parameters
    ----------
    location : Location
        Location of the file. If the file is compressed, a read in the middle decompresses all text before it.
    chunk_bytes : int
        Largest number of bytes of a chunk, unless a line is longer.
    """

    def __init__(self, location: Location, chunk_bytes: int = CHUNK_BYTES) -> None:
        self.location = location
        self._chunk_bytes = chunk_bytes
        self._open: tuple[contextlib.ExitStack, Any] | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_open": None}

    def scan(self, offset: int = 0, line: int = 1) -> Iterator[tuple[Chunk, bytes]]:
        """Yield all whole lines from a position on, chunk by chunk. The last line may lack its line end."""
        with self.location.reading(), contextlib.ExitStack() as stack:
            file = self._enter(stack)
            file.seek(offset)
            rest = b""
            while True:
                block = file.read(self._chunk_bytes)
                end = block.rfind(b"\n") + 1
                if block and not end:
                    rest += block  # a line longer than a chunk
                    if len(rest) > LONGEST_LINE:
                        raise InputError(
                            f"{self.location.name}, line {line} has more than {LONGEST_LINE:,} bytes; check the file."
                        )
                    continue
                text, rest = (rest + block[:end], block[end:]) if block else (rest, b"")
                if text:
                    yield Chunk(offset, len(text), line), text
                    offset += len(text)
                    line += text.count(b"\n")
                if not block:
                    return

    def read(self, chunk: Chunk) -> bytes:
        """Read one chunk again. Consecutive chunks are read without decompressing text twice."""
        with self.location.reading():
            if self._open is None:
                stack = contextlib.ExitStack()
                self._open = stack, self._enter(stack)
            file = self._open[1]
            file.seek(chunk.offset)
            text = file.read(chunk.length)
        if len(text) != chunk.length:
            raise InputError(f"{self.location.name} is truncated; copy or write it again.")
        return text

    def _enter(self, stack: contextlib.ExitStack) -> Any:
        return stack.enter_context(self.location.open_text())
