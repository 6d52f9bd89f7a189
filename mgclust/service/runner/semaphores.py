"""Semaphores of killed attempts.

Workers of an attempt make named semaphores in shared memory and remove them at their end. If they are killed, nobody
does: the names hold no process, and the kernel keeps them until the machine starts again.
"""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

import psutil

__all__ = ["remove_semaphores"]

FOLDER = Path("/dev/shm")
PATTERN = "sem.mp-*"  # names of Python's `multiprocessing`


def remove_semaphores(since: float) -> None:
    """Remove this account's semaphores that were made after a time and that no process has open."""
    left: dict[int, Path] = {}  # by inode: the C library maps a file under another name, and then links it
    for path in FOLDER.glob(PATTERN):
        with contextlib.suppress(OSError):
            status = path.lstat()
            if status.st_uid == os.geteuid() and status.st_mtime >= since:
                left[status.st_ino] = path
    if not left:
        return
    for process in psutil.process_iter(["uids"]):
        if (uids := process.info["uids"]) is None or uids.real != os.geteuid():
            continue
        try:
            maps = Path(f"/proc/{process.pid}/maps").read_text()
        except OSError:  # it has ended, or is a reader of the web process, which has no semaphores
            continue
        for line in maps.splitlines():
            if f"{FOLDER}/" in line:
                left.pop(int(line.split()[4]), None)
    for path in left.values():
        path.unlink(missing_ok=True)
