"""Another time of day, for mgclust alone.

``time.time`` itself belongs to the whole process: a loop of Dask that is open beside a test would take a date of 2001
for now, and set a timer that it waits for some decades.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from types import SimpleNamespace

import pytest


def set_time(patch: pytest.MonkeyPatch, now: Callable[[], float]) -> None:
    """Let all modules of mgclust that are imported read `now` in place of ``time.time``."""
    own = SimpleNamespace(**{**vars(time), "time": now})
    for name, module in list(sys.modules.items()):
        found = getattr(module, "time", None) if name.startswith("mgclust.") else None
        if found is time or getattr(found, "sleep", None) is time.sleep:  # given another one before
            patch.setattr(module, "time", own)
