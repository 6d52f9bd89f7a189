"""Content of files in sentences: shortened, or left out where it is not to be shown.

Errors travel far: to a user, a log, another process. Where a file is named by a path or a URL that the reader of the
sentence may not be able to open, the sentence says what is wrong and where, not what stands there.
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
    """Leave content out of every sentence that this process makes from now on, or end that."""
    global _nowhere
    _nowhere = wanted


@contextmanager
def without_quotes() -> Iterator[None]:
    """Leave content out of the sentences that this thread makes in the block."""
    _here.depth += 1
    try:
        yield
    finally:
        # A generator may be closed by another thread than began it.
        _here.depth = max(0, _here.depth - 1)


def quoting() -> bool:
    """Return whether content may be shown."""
    return not (_nowhere or _here.depth)


def shortened(text: object, most: int = 200) -> str:
    """Shorten what a file says, which may be long, for a sentence."""
    if not quoting():
        return _LEFT_OUT
    said = str(text)
    return said if len(said) <= most else f"{said[: most - 3]}..."


def reason(error: Exception) -> str:
    """The first line of what a library said, to be put into a sentence; libraries quote content, too."""
    lines = str(error).strip().splitlines()
    return shortened(lines[0].rstrip(". ")) if lines and quoting() else type(error).__name__
