"""Keep the current folder out of the module search path of processes that `multiprocessing` starts.

They run ``python -c``, which searches the current folder first. Another account may write there, for example in `/tmp`,
and its modules would be executed. Each gets the path of its parent only later: what a script imports is found there.
"""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Iterator

__all__ = ["safe_path"]

_VARIABLE = "PYTHONSAFEPATH"
_lock = threading.Lock()
_before: list[str | None] = []  # for each block that runs: the variable's value before all of them


@contextlib.contextmanager
def safe_path() -> Iterator[None]:
    """Let processes that are started in this block not import from the current folder; threads may share it."""
    with _lock:
        _before.append(_before[0] if _before else os.environ.get(_VARIABLE))
        os.environ[_VARIABLE] = "1"
    try:
        yield
    finally:
        with _lock:
            value = _before.pop()
            if not _before:
                del os.environ[_VARIABLE]
                os.environ.update({} if value is None else {_VARIABLE: value})
