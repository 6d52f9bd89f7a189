"""Waiting for what other processes do."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import psutil


def wait_for(condition: Callable[[], Any], seconds: float = 120.0, pause: float = 0.02) -> None:
    """Until something holds; files and processes that vanish while it is looked at mean that it does not yet."""
    end = time.monotonic() + seconds
    while not holds(condition):
        assert time.monotonic() < end, f"waited {seconds:g} s in vain"
        time.sleep(pause)


def holds(condition: Callable[[], Any]) -> bool:
    try:
        return bool(condition())
    except (FileNotFoundError, NotADirectoryError, ProcessLookupError, psutil.NoSuchProcess):
        return False
