"""What tells the database of a process from another one in its place, and from what is left of it.

SQLite goes on with files that were deleted, replaced or cut short, and would acknowledge what the next start does not
find. `Identity` looks at the files before each transaction and, of one that writes, again before its end.
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

LOG, INDEX = "-wal", "-shm"  # what SQLite writes to first, and its index, which all processes share
SUFFIXES = ("", LOG, INDEX)
LOG_HEADER_BYTES = 32  # bytes of the log before its first page
PROBE_SECONDS = 1.0  # seconds between two looks into the file
CORRUPTION_CODES = (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)
MEANWHILE = "Nothing is accepted meanwhile."


class DatabaseLost(Exception):
    """The database is not the one with which this process began, or is not there, or is damaged."""


class Identity:
    """The database with which an engine began.

    A file that is gone, or another one, or behind a link that was not there, may come back, and the service goes on.
    What was cut short, overwritten or damaged is lost until the next start: connections remember pages of it, and of
    what was put in its place. Of a log the head is looked at, without which the next start reads nothing of it; another
    whole log that was written over it would be known by the index alone, which cannot be opened beside SQLite: its
    locks on that file end with any descriptor of the same process.

    Parameters
    ----------
    place : str or None
        The path of the file of an SQLite database, which may lead through links.
    """

    def __init__(self, place: str | None = None) -> None:
        self.folder: str | None = None  # what the database says of its data folder, once that is known
        self._place = os.path.abspath(place or "")  # as the next start finds it, perhaps through links
        self._path: Path | None = None
        self._files: dict[str, tuple[int, int]] = {}
        self._sizes: dict[str, int] = {}
        self._headed = False  # whether the log had a head when it was looked at last
        self._saved: bool | None = None  # whether a log that is gone was saved; None: not tried
        self._lost = ""
        self._lock = threading.Lock()
        self._next_probe = 0.0

    def note(self, connection: Any) -> None:
        """Remember the files of the first connection to SQLite."""
        with self._lock:
            if self._path is not None or not (name := connection.execute("PRAGMA database_list").fetchone()[2]):
                return
            # As long as this connection is open, the log and its index stay the same, and no other file gets their
            # numbers. No descriptor of another kind: to close it would give up SQLite's locks.
            self._anchor = sqlite3.connect(name, timeout=5.0, isolation_level=None, check_same_thread=False)
            weakref.finalize(self, self._anchor.close).atexit = False
            self._anchor.execute("SELECT count(*) FROM sqlite_schema").fetchone()  # opens the log
            found = {ending: os.stat(name + ending) for ending in SUFFIXES}
            self._files = {ending: (each.st_dev, each.st_ino) for ending, each in found.items()}
            self._sizes = {ending: each.st_size for ending, each in found.items()}
            self._path = Path(os.path.realpath(name))
            if os.path.realpath(self._place) != str(self._path):  # as a URI may say it
                self._place = str(self._path)

    def check(self) -> None:
        """Raise DatabaseLost if a file has gone, is another one or was cut short, or if the database is damaged."""
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
                raise self._away(away, sizes)
            for ending in (INDEX, LOG, ""):  # while the index is whole, SQLite can be asked about the others
                if sizes[ending] < self._sizes[ending] and self._was_cut(ending, sizes[ending]):
                    raise self._cut(ending)
            headed = _has_head(f"{self._path}{LOG}")
            if self._headed and headed is False:
                raise self._cut(LOG, "overwritten")
            self._headed = bool(headed)
            self._sizes = sizes
            if time.monotonic() > self._next_probe:
                self._probe()
                self._next_probe = time.monotonic() + PROBE_SECONDS

    def compare(self, connection: Any) -> None:
        """Raise DatabaseLost if a server that was away comes back with another database, or with none."""
        if self.folder is None:
            return
        try:
            rows = connection.execute("SELECT id FROM folders").fetchall()
            connection.rollback()
        except Exception as error:
            if getattr(error, "sqlstate", None) != "42P01":  # there is no such table
                raise
            rows = []
        if [row[0] for row in rows] != [self.folder]:
            raise DatabaseLost(
                "the service's database was replaced while the service ran; restore the one that it began with and "
                f"start the service again. {MEANWHILE}"
            )

    def damaged(self, error: BaseException) -> DatabaseLost | None:
        """What to raise in place of an error of SQLite which says that the database is damaged; None for others."""
        if getattr(error, "sqlite_errorcode", 0) & 0xFF not in CORRUPTION_CODES:
            return None
        return self._lose(f"the service's database is damaged: {error}. {self._restore()}")

    def _linked(self) -> DatabaseLost | None:
        """What to raise if the next start were led to another place; None if not.

        SQLite looks for the log beside the file at the end of all links, and would not find this one, nor follow a
        link in the log's own place.
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

    def _away(self, away: dict[str, str], sizes: dict[str, int]) -> DatabaseLost:
        if "" in away:
            return DatabaseLost(
                f"the file of the service's database is {away['']}; put the one back with which the service began, or "
                f"restore the last backup and start the service again. {MEANWHILE}"
            )
        name = f"{self._path}{LOG if LOG in away else INDEX}"
        which = f"the file {os.path.basename(name)!r} of the service's database is {away.get(LOG) or away[INDEX]}"
        kept = "nothing is lost"
        # A process that began after the index was replaced knows nothing of this one's locks.
        if LOG in away and away.get(INDEX) != "another one now":
            if self._saved is None:
                self._saved = not self._was_cut("", sizes[""]) and self._save()
            kept = "what it held has been saved" if self._saved else "what came last may be lost"
        elif LOG in away:
            kept = "what came last may be lost"
        return DatabaseLost(f"{which}; put it back, or start the service again; {kept}. {MEANWHILE}")

    def _save(self) -> bool:
        """Copy what this process still sees of the log into the database's file; whether that is all of it."""
        with contextlib.suppress(sqlite3.Error):
            busy, log, copied = self._anchor.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()
            return bool(not busy and log == copied)
        return False

    def _was_cut(self, ending: str, size: int) -> bool:
        """Whether a file is shorter than SQLite left it, and not by a VACUUM or a checkpoint that empties the log."""
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
        except sqlite3.Error:  # it is not there to be read
            return True
        return True

    def _cut(self, ending: str, what: str = "cut short") -> DatabaseLost:
        assert self._path is not None
        name = f"the file {self._path.name + ending!r} of the service's database was {what} while the service ran"
        if ending == INDEX:
            return self._lose(f"{name}; start the service again, nothing is lost. {MEANWHILE}")
        if ending == LOG:
            return self._lose(
                f"{name}; what came last may be lost. Start the service again with what is left, or stop it, restore "
                f"the last backup, and start it again. {MEANWHILE}"
            )
        return self._lose(f"{name}. {self._restore()}")

    def _restore(self) -> str:
        if self._path is None:
            return f"Restore the last backup, and start the service again. {MEANWHILE}"
        return (
            f"Stop the service, remove {self._path.name + LOG!r} and {self._path.name + INDEX!r}, restore the last "
            f"backup of {self._path.name!r}, and start the service again. {MEANWHILE}"
        )

    def _lose(self, sentence: str) -> DatabaseLost:
        self._lost = self._lost or sentence
        return DatabaseLost(self._lost)

    def _probe(self) -> None:
        """Read the file as a process would that starts now: what was overwritten is not in its memory."""
        assert self._path is not None
        rows = None
        try:
            with contextlib.closing(sqlite3.connect(f"{self._path.as_uri()}?mode=rw", timeout=0, uri=True)) as fresh:
                tables = {row[0] for row in fresh.execute("SELECT name FROM sqlite_schema WHERE type = 'table'")}
                if self.folder is not None:
                    rows = fresh.execute("SELECT id FROM folders").fetchall() if "folders" in tables else []
        except sqlite3.Error as error:  # others may keep it busy
            if (lost := self.damaged(error)) is not None:
                raise lost from error
        if rows is not None and [row[0] for row in rows] != [self.folder]:
            raise self._lose(f"the service's database was overwritten while the service ran. {self._restore()}")


def _stat(path: str) -> os.stat_result | None:
    try:
        return os.stat(path)
    except OSError:
        return None


def _has_head(path: str) -> bool | None:
    """Whether a log begins as SQLite writes it, with a checksum of the numbers by which its pages are known.

    None where it is empty.
    """
    try:
        number = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)  # SQLite locks no log
    except OSError:
        return None
    try:
        for _ in range(3):  # it may be written meanwhile
            head = os.pread(number, LOG_HEADER_BYTES, 0)
            if len(head) < LOG_HEADER_BYTES:
                return None
            if _is_head(head):
                return True
        return False
    except OSError:
        return None
    finally:
        os.close(number)


def _is_head(head: bytes) -> bool:
    magic = int.from_bytes(head[:4], "big")
    if magic & ~1 != 0x377F0682:
        return False
    words = struct.unpack(">6I" if magic & 1 else "<6I", head[:24])
    first = second = 0
    for one, other in zip(words[::2], words[1::2], strict=True):
        first = (first + one + second) & 0xFFFFFFFF
        second = (second + other + first) & 0xFFFFFFFF
    return (first, second) == struct.unpack(">2I", head[24:])
