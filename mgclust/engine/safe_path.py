"""Keep the current folder out of the module search path of processes that `multiprocessing` starts.

These processes run ``python -c``, which searches the current folder first. If another account may write to this folder,
for example to `/tmp`, its modules would be executed. Only later, the processes get the search path of their parent, on
which they find the modules of a script.
"""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Iterator

__all__ = ["safe_path"]

_VARIABLE = "PYTHONSAFEPATH"
_lock = threading.Lock()
_before: list[str | None] = []  # for each running block, the value of the variable before the first block


@contextlib.contextmanager
def safe_path() -> Iterator[None]:
    """Keep processes that are started in this block from importing from the current folder; threads may share it."""
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
