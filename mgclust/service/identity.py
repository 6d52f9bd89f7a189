"""Detection of a database whose files were deleted, replaced, truncated or damaged while the service runs.

SQLite continues with such files, and would acknowledge writes that the next start does not find. `Identity` checks the
files before each transaction, and again before a commit.
"""

from __future__ import annotations

import contextlib
import os
import sqlite3
import struct
import threading
import time
import weakref
from pathlib import Path
from typing import Any

__all__ = ["DatabaseLost", "Identity"]

LOG, INDEX = "-wal", "-shm"  # the write-ahead log, and its index in shared memory
SUFFIXES = ("", LOG, INDEX)
LOG_HEADER_BYTES = 32  # of the log, before its first page
PROBE_SECONDS = 1.0  # between two reads of the file
CORRUPTION_CODES = (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)
MEANWHILE = "Nothing is accepted meanwhile."


class DatabaseLost(Exception):
    """The database is missing, damaged, or not the one with which this process started."""


class Identity:
    """The database with which an engine started.

    A file that is missing, replaced, or behind a new link may be put back, and the service continues. A file that was
    truncated, overwritten or damaged is lost until the next start: connections cache pages of it, and of what was put
    in its place. Of the log the header is checked, without which the next start reads nothing of it. Another complete
    log written over it could only be detected by the index, which cannot be opened beside SQLite: SQLite's locks on
    that file end when any descriptor of the same process is closed.

    Parameters
    ----------
    place : str or None
        Path of the SQLite database, possibly through links.
    """

    def __init__(self, place: str | None = None) -> None:
        self.folder: str | None = None  # id of its data folder, once known
        self._place = os.path.abspath(place or "")  # as the next start finds it
        self._path: Path | None = None
        self._files: dict[str, tuple[int, int]] = {}
        self._sizes: dict[str, int] = {}
        self._had_header = False  # whether the log had a header at the last check
        self._saved: bool | None = None  # whether the content of a missing log was saved; None: not tried
        self._lost = ""
        self._lock = threading.Lock()
        self._next_probe = 0.0

    def note(self, connection: Any) -> None:
        """Record the files of the first connection to SQLite."""
        with self._lock:
            if self._path is not None or not (name := connection.execute("PRAGMA database_list").fetchone()[2]):
                return
            # While this connection is open, the log and its index stay, and their inode numbers are not reused. Not a
            # plain descriptor: closing it would release SQLite's locks.
            self._anchor = sqlite3.connect(name, timeout=5.0, isolation_level=None, check_same_thread=False)
            weakref.finalize(self, self._anchor.close).atexit = False
            self._anchor.execute("SELECT count(*) FROM sqlite_schema").fetchone()  # opens the log
            found = {ending: os.stat(name + ending) for ending in SUFFIXES}
            self._files = {ending: (each.st_dev, each.st_ino) for ending, each in found.items()}
            self._sizes = {ending: each.st_size for ending, each in found.items()}
            self._path = Path(os.path.realpath(name))
            if os.path.realpath(self._place) != str(self._path):  # for example for a URI
                self._place = str(self._path)

    def check(self) -> None:
        """Raise DatabaseLost if a file is missing, replaced or truncated, or if the database is damaged."""
        if self._path is None:
            return
        with self._lock:
            if self._lost:
                raise DatabaseLost(self._lost)
            if (linked := self._linked()) is not None:
                raise linked
            found = {ending: _stat(f"{self._path}{ending}") for ending in SUFFIXES}
            away = {
                ending: "gone" if each is None else "another one now"
                for ending, each in found.items()
                if each is None or (each.st_dev, each.st_ino) != self._files[ending]
            }
            sizes = {ending: each.st_size for ending, each in found.items() if each is not None}
            if away:
                raise self._missing(away, sizes)
            for ending in (INDEX, LOG, ""):  # while the index is intact, SQLite can tell about the others
                if sizes[ending] < self._sizes[ending] and self._was_truncated(ending, sizes[ending]):
                    raise self._truncated(ending)
            headed = _has_header(f"{self._path}{LOG}")
            if self._had_header and headed is False:
                raise self._truncated(LOG, "overwritten")
            self._had_header = bool(headed)
            self._sizes = sizes
            if time.monotonic() > self._next_probe:
                self._probe()
                self._next_probe = time.monotonic() + PROBE_SECONDS

    def compare(self, connection: Any) -> None:
        """Raise DatabaseLost if a server has another database, or none, after a reconnection."""
        if self.folder is None:
            return
        try:
            rows = connection.execute("SELECT id FROM folders").fetchall()
            connection.rollback()
        except Exception as error:
            if getattr(error, "sqlstate", None) != "42P01":  # undefined table
                raise
            rows = []
        if [row[0] for row in rows] != [self.folder]:
            raise DatabaseLost(
                "the service's database was replaced while the service ran; restore the one that it began with and "
                f"start the service again. {MEANWHILE}"
            )

    def damaged(self, error: BaseException) -> DatabaseLost | None:
        """The exception for an error of SQLite that means a damaged database; None for other errors."""
        if getattr(error, "sqlite_errorcode", 0) & 0xFF not in CORRUPTION_CODES:
            return None
        return self._mark_lost(f"the service's database is damaged: {error}. {self._restore()}")

    def _linked(self) -> DatabaseLost | None:
        """The exception if links would lead the next start to another place; None if not.

        SQLite expects the log beside the file at the end of all links, and does not follow a link at the log's place.
        """
        real = os.path.realpath(self._place)
        if real != str(self._path) and os.path.exists(real):
            name = os.path.basename(self._place)
            return DatabaseLost(
                f"the path of the service's database {name!r} leads through a link to another place now, where the "
                "next start would look for the log; put the file itself, or the link that was there, back in its old "
                f"place, and do not start the service before. {MEANWHILE}"
            )
        for ending in (LOG, INDEX):
            if os.path.islink(name := f"{self._path}{ending}"):
                return DatabaseLost(
                    f"the file {os.path.basename(name)!r} of the service's database is a link now; put the file itself "
                    f"back, and do not start the service before. {MEANWHILE}"
                )
        return None

    def _missing(self, away: dict[str, str], sizes: dict[str, int]) -> DatabaseLost:
        if "" in away:
            return DatabaseLost(
                f"the file of the service's database is {away['']}; put the one back with which the service began, or "
                f"restore the last backup and start the service again. {MEANWHILE}"
            )
        name = f"{self._path}{LOG if LOG in away else INDEX}"
        which = f"the file {os.path.basename(name)!r} of the service's database is {away.get(LOG) or away[INDEX]}"
        kept = "nothing is lost"
        # A process that started after the index was replaced does not see this one's locks.
        if LOG in away and away.get(INDEX) != "another one now":
            if self._saved is None:
                self._saved = not self._was_truncated("", sizes[""]) and self._save()
            kept = "what it held has been saved" if self._saved else "what came last may be lost"
        elif LOG in away:
            kept = "what came last may be lost"
        return DatabaseLost(f"{which}; put it back, or start the service again; {kept}. {MEANWHILE}")

    def _save(self) -> bool:
        """Copy the log, which this process still sees, into the database's file; whether it was complete."""
        with contextlib.suppress(sqlite3.Error):
            busy, log, copied = self._anchor.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()
            return bool(not busy and log == copied)
        return False

    def _was_truncated(self, ending: str, size: int) -> bool:
        """Return whether a file was truncated by another program, not by a VACUUM or a checkpoint."""
        if size >= self._sizes[ending]:
            return False
        try:
            page = self._anchor.execute("PRAGMA page_size").fetchone()[0]
            if ending == "":
                return bool(
                    size == 0 or page * self._anchor.execute("PRAGMA page_count").fetchone()[0] >= self._sizes[""]
                )
            if ending == LOG:
                frames = self._anchor.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()[1]
                return bool(frames and size < LOG_HEADER_BYTES + frames * (24 + page))
        except sqlite3.Error:  # it cannot be read
            return True
        return True

    def _truncated(self, ending: str, what: str = "cut short") -> DatabaseLost:
        assert self._path is not None
        name = f"the file {self._path.name + ending!r} of the service's database was {what} while the service ran"
        if ending == INDEX:
            return self._mark_lost(f"{name}; start the service again, nothing is lost. {MEANWHILE}")
        if ending == LOG:
            return self._mark_lost(
                f"{name}; what came last may be lost. Start the service again with what is left, or stop it, restore "
                f"the last backup, and start it again. {MEANWHILE}"
            )
        return self._mark_lost(f"{name}. {self._restore()}")

    def _restore(self) -> str:
        if self._path is None:
            return f"Restore the last backup, and start the service again. {MEANWHILE}"
        return (
            f"Stop the service, remove {self._path.name + LOG!r} and {self._path.name + INDEX!r}, restore the last "
            f"backup of {self._path.name!r}, and start the service again. {MEANWHILE}"
        )

    def _mark_lost(self, sentence: str) -> DatabaseLost:
        self._lost = self._lost or sentence
        return DatabaseLost(self._lost)

    def _probe(self) -> None:
        """Read the file like a new process, without cached pages."""
        assert self._path is not None
        rows = None
        try:
            with contextlib.closing(sqlite3.connect(f"{self._path.as_uri()}?mode=rw", timeout=0, uri=True)) as fresh:
                tables = {row[0] for row in fresh.execute("SELECT name FROM sqlite_schema WHERE type = 'table'")}
                if self.folder is not None:
                    rows = fresh.execute("SELECT id FROM folders").fetchall() if "folders" in tables else []
        except sqlite3.Error as error:  # it may be locked
            if (lost := self.damaged(error)) is not None:
                raise lost from error
        if rows is not None and [row[0] for row in rows] != [self.folder]:
            raise self._mark_lost(f"the service's database was overwritten while the service ran. {self._restore()}")


def _stat(path: str) -> os.stat_result | None:
    try:
        return os.stat(path)
    except OSError:
        return None


def _has_header(path: str) -> bool | None:
    """Return whether a log has a valid header, by its checksum; None if it is empty."""
    try:
        number = os.open(
            path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
        )  # SQLite does not lock the log
    except OSError:
        return None
    try:
        for _ in range(3):  # it may be being written
            head = os.pread(number, LOG_HEADER_BYTES, 0)
            if len(head) < LOG_HEADER_BYTES:
                return None
            if _is_header(head):
                return True
        return False
    except OSError:
        return None
    finally:
        os.close(number)


def _is_header(head: bytes) -> bool:
    magic = int.from_bytes(head[:4], "big")
    if magic & ~1 != 0x377F0682:
        return False
    words = struct.unpack(">6I" if magic & 1 else "<6I", head[:24])
    first = second = 0
    for one, other in zip(words[::2], words[1::2], strict=True):
        first = (first + one + second) & 0xFFFFFFFF
        second = (second + other + first) & 0xFFFFFFFF
    return (first, second) == struct.unpack(">2I", head[24:])
