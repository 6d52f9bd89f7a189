"""The audit log: one line of JSON for each request that changes something, fetches a result or is rejected.

Two actions of the service itself also have lines: it creates the first administrator's token, and deletes expired jobs.

Lines hold no secret, no query and no body. A separate thread writes them, so that no request waits for the disk. Lines
that cannot be written are counted, and the next line holds their number. The number of lines for rejected requests is
limited, so that a flood of such requests does not fill the disk; rejected requests without a line are counted.
"""

from __future__ import annotations

import contextlib
import contextvars
import datetime
import fcntl
import json
import os
import queue
import sys
import threading
import time
from pathlib import Path
from typing import Any

from mgclust.outside.json_text import parse_json

__all__ = ["Audit", "latest_lines", "note"]

MAX_FILE_BYTES = 16 << 20  # size at which a file is rotated
KEPT_FILES = 4  # number of rotated files that are kept
LOCK_SECONDS = 1.0  # longest wait for a file that another process has locked
MAX_QUEUED_LINES = 10_000  # lines that may wait to be written
GATHER_SECONDS = 0.01  # pause in which lines to write together are gathered, unless many lines wait already
REFUSALS, REFUSALS_AT_ONCE = 2.0, 50.0  # lines for rejected requests: average per second, and largest burst
MAX_VALUE_CHARACTERS = 256
MAX_READ_BYTES = 4 << 20  # of the newest lines that are searched

noted: contextvars.ContextVar[dict[str, Any]] = contextvars.ContextVar("noted")


def note(**facts: Any) -> None:
    """Add facts to the audit line of the current request, such as the id of the object that the request created."""
    with contextlib.suppress(LookupError):  # there is no request
        noted.get().update(facts)


def latest_lines(path: Path, limit: int, user: str | None, action: str | None) -> list[dict[str, Any]]:
    """Return the newest lines of an audit log that match, the newest first, from at most the last `MAX_READ_BYTES`."""
    found: list[dict[str, Any]] = []
    left = MAX_READ_BYTES
    for number in range(KEPT_FILES + 1):
        try:
            file = os.fdopen(os.open(path if not number else f"{path}.{number}", os.O_RDONLY | os.O_NOFOLLOW), "rb")
        except OSError:
            break
        with file:
            size = file.seek(0, os.SEEK_END)
            start = file.seek(max(0, size - left))
            lines = file.read(size - start).split(b"\n")[1 if start else 0 :]
        left -= size - start
        for line in reversed(lines):
            with contextlib.suppress(ValueError):  # a torn line
                facts = parse_json(line.decode("utf-8", "replace")) if line else None
                if not isinstance(facts, dict) or (user and facts.get("user") != user):
                    continue
                if action is None or facts.get("action") == action:
                    found.append(facts)
                if len(found) == limit:
                    return found
        if left <= 0:
            break
    return found


class Audit:
    """The audit log.

    Parameters
    ----------
    path : Path or None
        File of the log. None: standard error.
    """

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self._lines: queue.Queue[str | None] = queue.Queue(MAX_QUEUED_LINES)
        self._file, self._torn = -1, False
        self._lost = 0
        self._allowed, self._since, self._suppressed = REFUSALS_AT_ONCE, time.monotonic(), 0
        self._thread: threading.Thread | None = None
        self._starting = threading.Lock()

    @property
    def lost(self) -> int:
        """Number of lines that could not be written."""
        return self._lost

    def write(self, **facts: Any) -> None:
        """Add a line. Values that are None are left out."""
        now = datetime.datetime.now(datetime.UTC).isoformat(timespec="milliseconds")
        known = {
            name: v[:MAX_VALUE_CHARACTERS] if isinstance(v, str) else v for name, v in facts.items() if v is not None
        }
        try:
            self._lines.put_nowait(json.dumps({"time": now} | known))
        except queue.Full:
            self._lost += 1
        if self._thread is None:
            self._start()

    def refused(self, **facts: Any) -> None:
        """Add a line for a request without a valid token, unless there are too many such lines."""
        now = time.monotonic()
        self._allowed = min(REFUSALS_AT_ONCE, self._allowed + (now - self._since) * REFUSALS)
        self._since = now
        if self._allowed < 1:
            self._suppressed += 1
            return
        self._allowed -= 1
        unsaid, self._suppressed = self._suppressed, 0
        self.write(**facts, not_logged_before=unsaid or None)

    def close(self) -> None:
        """Write the waiting lines, and stop."""
        if self._thread is not None:
            self._lines.put(None)
            self._thread.join(5)

    def _start(self) -> None:
        with self._starting:
            if self._thread is None:
                self._thread = threading.Thread(target=self._write_lines, name="audit", daemon=True)
                self._thread.start()

    def _write_lines(self) -> None:
        reported, ended, most = 0, False, MAX_FILE_BYTES >> 15
        while not ended:
            taken = [self._lines.get()]
            if self._lines.qsize() < most:
                time.sleep(GATHER_SECONDS)
            taken += [self._lines.get() for _ in range(min(self._lines.qsize(), most))]
            ended, lost = None in taken, self._lost
            lines = [line for line in taken if line is not None]
            if lines and lost > reported:
                lines[0] = f'{lines[0][:-1]}, "lost_before": {lost - reported}}}'
            try:
                self._add("".join(f"{line}\n" for line in lines).encode())
                reported = lost
            except OSError:
                self._lost += len(lines)

    def _add(self, line: bytes) -> None:
        if self._path is None:
            sys.stderr.buffer.write(line)
            sys.stderr.flush()
            return
        self._open(self._path, len(line))
        line = b"\n" * self._torn + line
        try:
            self._torn = os.write(self._file, line) < len(line)  # on a full disk, only a part may be written
        finally:
            with contextlib.suppress(OSError):
                fcntl.flock(self._file, fcntl.LOCK_UN)
        if self._torn:
            raise OSError("the line could not be written whole.")

    def _open(self, path: Path, more: int) -> None:
        """Open and lock the file at the path; rotate it if the line does not fit. Several processes may write to it."""
        while True:
            if self._file >= 0 and not self._has(path):
                self._close_file()
            if self._file < 0:
                flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
                self._file = os.open(path, flags, 0o600)
            locked = _lock(self._file)  # so that no process adds lines between the check of the size and the write
            if not self._has(path):
                continue
            size = os.fstat(self._file).st_size
            if not locked or not size or size + more <= MAX_FILE_BYTES:
                return
            for number in range(KEPT_FILES, 0, -1):
                earlier = path if number == 1 else path.with_name(f"{path.name}.{number - 1}")
                with contextlib.suppress(FileNotFoundError):
                    earlier.rename(path.with_name(f"{path.name}.{number}"))
            self._close_file()

    def _close_file(self) -> None:
        os.close(self._file)  # closing also releases the lock
        self._file = -1

    def _has(self, path: Path) -> bool:
        """Return whether the path still leads to the open file."""
        try:
            there, here = os.lstat(path), os.fstat(self._file)
        except FileNotFoundError:
            return False
        return (there.st_dev, there.st_ino) == (here.st_dev, here.st_ino)


def _lock(file: int) -> bool:
    """Lock a file; return False if another, e.g. stopped, process keeps it locked: lines are added even then."""
    end = time.monotonic() + LOCK_SECONDS
    while True:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
        except BlockingIOError:
            if time.monotonic() > end:
                return False
            time.sleep(GATHER_SECONDS)
        except OSError:  # on network file systems without locks, a file may become one line too long
            return True
