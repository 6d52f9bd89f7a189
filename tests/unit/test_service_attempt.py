"""What an attempt's process says, and to whom."""

from __future__ import annotations

import errno
import sys

from mgclust.errors import ClusterUnavailableError, InputError, InsufficientMemoryError, WorkerLost
from mgclust.service import attempt


class Full:
    """A log on a disk without space."""

    def write(self, text):
        raise OSError(errno.ENOSPC, "No space left on device")

    def flush(self):
        raise OSError(errno.ENOSPC, "No space left on device")


def test_a_line_of_the_log_is_not_worth_a_job(monkeypatch):
    monkeypatch.setattr(sys, "stderr", Full())
    attempt._log("rho 10%")


def test_whose_fault_it_is():
    faults = {
        InputError("bad"): "input",
        ClusterUnavailableError("away"): "cluster",
        InsufficientMemoryError("too much"): "memory",
        WorkerLost("one died"): "cluster",
        OSError(errno.ENOSPC, "No space left on device"): "cluster",
        KeyboardInterrupt(): "cluster",
        ZeroDivisionError(): "mgclust",
    }
    for error, fault in faults.items():
        assert attempt.fault_of(error) == fault
    assert "no space left" in attempt.sentence_of(OSError(errno.ENOSPC, "No space left on device"))
