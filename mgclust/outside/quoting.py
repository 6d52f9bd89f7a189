"""Content of files in messages: shortened, or left out if the reader of the message may not see it.

A message may reach a user, a log or another process. If its reader may not be allowed to open the file that a path or
URL names, the message states the error and its place in the file, but quotes no content.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["quote_nothing", "quoting", "reason", "shortened", "without_quotes"]

_LEFT_OUT = "..."


class _Here(threading.local):
    depth = 0


_here = _Here()
_nowhere = False


def quote_nothing(wanted: bool = True) -> None:
    """Leave content of files out of all messages that this process makes from now on; with False, quote it again."""
    global _nowhere
    _nowhere = wanted


@contextmanager
def without_quotes() -> Iterator[None]:
    """Leave content of files out of the messages that this thread makes in the block."""
    _here.depth += 1
    try:
        yield
    finally:
        # The thread that closes a generator may differ from the thread that started it.
        _here.depth = max(0, _here.depth - 1)


def quoting() -> bool:
    """Return whether messages may quote content of files."""
    return not (_nowhere or _here.depth)


def shortened(text: object, most: int = 200) -> str:
    """Shorten content of a file for a message; return "..." if content may not be quoted."""
    if not quoting():
        return _LEFT_OUT
    said = str(text)
    return said if len(said) <= most else f"{said[: most - 3]}..."


def reason(error: Exception) -> str:
    """Return the first line of a library's error for a message, or the error's class if content may not be quoted."""
    lines = str(error).strip().splitlines()
    return shortened(lines[0].rstrip(". ")) if lines and quoting() else type(error).__name__
