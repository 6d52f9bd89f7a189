"""Folders of jobs and uploads that no row of the database names.

After a restore of an older backup of the database, the folders of later jobs and uploads have no row. A week later they
are removed: until then, a newer backup can still be restored. A mark in such a folder holds the time of the first sweep
that found it.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import time
from pathlib import Path

from sqlalchemy import Engine, select

from mgclust.service.confined.folders import remove, set_aside
from mgclust.service.queue.models import Job, Upload, reading
from mgclust.service.settings import Settings

__all__ = ["RECEIVED_NAME", "remove_orphans"]

RECEIVED_NAME = ".partial"  # of an upload until it is complete; the name of an upload cannot begin with a dot
MARK = ".without-row"
KEPT_SECONDS = 7 * 86_400.0
NEW_SECONDS = 3600.0  # the row of a newer folder may be about to be written
FOLDER_NAME = re.compile("[0-9a-f]{32}")
IDS_PER_QUERY = 500


def remove_orphans(engine: Engine, settings: Settings) -> None:
    """Mark folders without a row, and remove those that were marked a week ago."""
    for table, place in ((Job, settings.data / "jobs"), (Upload, settings.data / "uploads")):
        names = [path.name for path in place.glob("*") if FOLDER_NAME.fullmatch(path.name)]
        for first in range(0, len(names), IDS_PER_QUERY):
            some = names[first : first + IDS_PER_QUERY]
            with reading(engine) as session:
                known = set(session.scalars(select(table.id).where(table.id.in_(some))))
            for name in some:
                if name in known:  # a newer backup has the row again
                    (place / name / MARK).unlink(missing_ok=True)
                else:
                    with contextlib.suppress(OSError):  # another web process may also sweep
                        _mark_or_remove(place / name, settings.data / "jobs")


def _mark_or_remove(folder: Path, beside: Path) -> None:
    now, mark = time.time(), folder / MARK
    try:
        marked = os.lstat(mark).st_mtime
    except FileNotFoundError:
        if now - os.lstat(folder).st_mtime > NEW_SECONDS and not _is_arriving(folder):
            os.close(os.open(mark, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600))
        return
    if now - marked > KEPT_SECONDS and (aside := set_aside(folder, beside)) is not None:
        remove(aside)


def _is_arriving(folder: Path) -> bool:
    """Return whether a process still receives this upload, and so holds the lock of its file."""
    try:
        with open(folder / RECEIVED_NAME, "rb") as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        pass
    return False
