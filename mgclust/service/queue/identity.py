"""Detection of a database that was deleted, replaced or damaged while the service runs.

If the file of SQLite is no longer at its path, SQLite continues to use it, and would acknowledge writes that the next
start does not find. `Identity` checks the file whenever a connection is made and, at most once a second, when a
transaction begins.
"""

from __future__ import annotations

import contextlib
import os
import sqlite3
import time
from pathlib import Path
from typing import Any

__all__ = ["DatabaseLost", "Identity"]

CHECK_SECONDS = 1.0
DAMAGES = (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)
NO_TABLE = (sqlite3.SQLITE_ERROR, "42P01")
REMEDY = (
    "put back the original files, or stop the service, restore the last backup and start it again; nothing is accepted "
    "meanwhile."
)
# An I/O error of the disk can look like damage, and pass; the files on the disk may then be complete.
RESTART = "restart the service first, which loses nothing; only if this message comes back:"


class DatabaseLost(Exception):
    """The database is missing, damaged, or not the database with which this process started."""


class Identity:
    """The database with which an engine started.

    Parameters
    ----------
    place : str or None
        Path of the SQLite database; None for a database server.
    """

    def __init__(self, place: str | None = None) -> None:
        self._place = os.path.abspath(place) if place else None
        self._file: tuple[int, int] | None = None
        self._folder: str | None = None  # id of the data folder, once it is known
        self._next_check = 0.0

    def check_place(self) -> None:
        """Raise DatabaseLost if the file at the path is missing or replaced; SQLite would create a missing file."""
        if self._place is None:
            return
        try:
            status = os.stat(self._place)
            found = status.st_dev, status.st_ino
        except OSError:
            found = None
        self._file = self._file or found
        if found != self._file:
            raise DatabaseLost(f"the service's database file is missing or is now a different file; {REMEDY}")

    def check(self) -> None:
        """Check, at most once a second, that the database's files are in place; raise DatabaseLost if they are not."""
        if self._place is None or time.monotonic() < self._next_check:
            return
        self._next_check = 0.0  # check at each transaction until the check succeeds
        self.check_place()
        real = os.path.realpath(self._place)
        if self._folder and not os.path.exists(f"{real}-wal"):  # it must exist, because this connection has it open
            raise DatabaseLost(f"the log of the service's database, {os.path.basename(real)}-wal, is missing; {REMEDY}")
        fresh = sqlite3.connect(f"{Path(real).as_uri()}?mode=rw", timeout=0, uri=True)  # without cached pages
        with contextlib.closing(fresh), contextlib.suppress(sqlite3.OperationalError):  # the database may be locked
            try:
                self.compare(fresh)
            except sqlite3.DatabaseError as error:
                raise self.damaged(error) or error from None
        self._next_check = time.monotonic() + CHECK_SECONDS

    def compare(self, connection: Any) -> None:
        """Raise DatabaseLost if a new connection reads the id of another data folder, or no id."""
        try:
            rows = connection.execute("SELECT id FROM folders").fetchall()
        except Exception as error:
            if {getattr(error, "sqlstate", None), getattr(error, "sqlite_errorcode", None)}.isdisjoint(NO_TABLE):
                raise
            rows = []
        connection.rollback()
        found = rows[0][0] if rows else None
        self._folder = self._folder or found
        if found != self._folder:
            raise DatabaseLost(f"the service's database was replaced while the service ran; {REMEDY}")

    def damaged(self, error: BaseException) -> DatabaseLost | None:
        """Return the exception for an error of SQLite that means a damaged database; None for other errors."""
        if getattr(error, "sqlite_errorcode", 0) & 0xFF not in DAMAGES:
            return None
        return DatabaseLost(f"the service's database is damaged ({error}); {RESTART} {REMEDY}")
