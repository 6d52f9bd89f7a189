"""A line of JSON for each event of a job: when an attempt begins and ends, and when the job does.

::

    {"time": "2026-11-22T07:08:17.123Z", "event": "attempt.ended", "job": ..., "attempt": 1, "owner": ...,
     "method": ..., "state": what the job is now, "seconds": ..., "shape": rows and columns, "peak_bytes": ...}

Whatever users call things, a line is one line of ASCII. It holds neither tokens nor what is in files.
"""

from __future__ import annotations

import contextlib
import datetime
import json
import os
import sys
from typing import Any

from mgclust.service.models import Job

__all__ = ["JobLog"]

MAX_ERROR_CHARACTERS = 2000  # characters of an error


class JobLog:
    """Where events of jobs are written.

    Parameters
    ----------
    path : str
        A file to append to; empty: the standard error.
    """

    def __init__(self, path: str) -> None:
        self._path = path

    def __call__(self, event: str, job: Job, **more: Any) -> None:
        """Write an event of a job as it is now."""
        now = datetime.datetime.now(datetime.UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
        told = {
            "time": now, "event": event, "job": job.id, "attempt": job.attempt, "owner": job.owner,
            "method": job.method, "state": job.state,
        } | {name: value for name, value in more.items() if value is not None}  # fmt: skip
        if job.error and "seconds" in told:
            told |= {"fault": job.fault, "error": job.error[:MAX_ERROR_CHARACTERS]}
        line = json.dumps(told) + "\n"
        with contextlib.suppress(OSError):  # a full disk should not stop jobs
            if not self._path:
                sys.stderr.write(line)
                sys.stderr.flush()
                return
            # Opened each time: it may be moved away, and several processes append to it.
            file = os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
            try:
                os.write(file, line.encode())
            finally:
                os.close(file)
