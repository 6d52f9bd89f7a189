"""The log of jobs: one line of JSON when an attempt starts, when it ends, and when the job ends.

::

    {"time": "2026-11-22T07:08:17.123Z", "event": "attempt.ended", "job": ..., "attempt": 1, "owner": ...,
     "method": ..., "state": of the job, "seconds": ..., "shape": rows and columns, "peak_bytes": ...}

Lines are ASCII, and names from users are escaped. Lines hold no tokens and no content of files.
"""

from __future__ import annotations

import contextlib
import datetime
import json
import os
import stat
import sys
from typing import Any

from mgclust.service.queue.models import Job

__all__ = ["JobLog"]

MAX_ERROR_CHARACTERS = 2000


class JobLog:
    """The log of jobs.

    Parameters
    ----------
    path : str
        A regular file, not a link, to which lines are appended. Empty: standard error.
    """

    def __init__(self, path: str) -> None:
        self._path = path

    def __call__(self, event: str, job: Job, **more: Any) -> None:
        """Write an event of a job with the job's current state."""
        now = datetime.datetime.now(datetime.UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
        facts = {
            "time": now, "event": event, "job": job.id, "attempt": job.attempt, "owner": job.owner,
            "method": job.method, "state": job.state,
        } | {name: value for name, value in more.items() if value is not None}  # fmt: skip
        if job.error and "seconds" in facts:
            facts |= {"fault": job.fault, "error": job.error[:MAX_ERROR_CHARACTERS]}
        line = json.dumps(facts) + "\n"
        with contextlib.suppress(OSError):  # a full disk must not stop jobs
            if not self._path:
                sys.stderr.write(line)
                sys.stderr.flush()
                return
            # Open the file for each line, because it may be rotated, and several processes append to it.
            flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
            file = os.open(self._path, flags, 0o600)
            try:
                if stat.S_ISREG(
                    os.fstat(file).st_mode
                ):  # a FIFO could block, and writing to a device could have effects
                    os.write(file, line.encode())
            finally:
                os.close(file)

    def job_ended(self, job: Job) -> None:
        """Write the end of a job."""
        seconds = max(0.0, (job.finished or job.created) - job.created)
        self("job.ended", job, seconds=round(seconds, 3), size=job.size)
