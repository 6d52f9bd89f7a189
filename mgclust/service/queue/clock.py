"""Trust in the clock of the machine, which decides what has expired.

A clock that is wrong by a year, as after a start without a time server, must not delete a year of results. So the time
of the last sweep is kept in the data folder. If the clock has jumped since then, nothing expires for a day, in which
the clock is usually corrected.
"""

from __future__ import annotations

import contextlib
import json
import time
from pathlib import Path

from mgclust.outside.json_text import parse_json
from mgclust.service.queue.durable import write_durably

__all__ = ["is_trusted"]

FILE = "clock"  # in the data folder: the time of the last sweep, and the time since when the clock has not jumped
MAX_GAP_SECONDS = 2 * 86_400.0  # longer times between two sweeps count as a jump, also if the service was stopped
BACKWARDS_SECONDS = 60.0  # corrections of the clock up to this length are no jump
TRUST_SECONDS = 86_400.0


def is_trusted(data: Path) -> bool:
    """Return whether the clock has not jumped for a day, and record the present time.

    Parameters
    ----------
    data : Path
        The data folder. If it has no record yet, the clock is trusted.
    """
    now = time.time()
    seen, since = now, now - TRUST_SECONDS
    with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
        kept = parse_json((data / FILE).read_text())
        seen, since = float(kept["seen"]), float(kept["since"])
    if not -BACKWARDS_SECONDS <= now - seen <= MAX_GAP_SECONDS:
        since = now
    with contextlib.suppress(OSError):  # on a full disk, the next sweep tries again
        write_durably(data / FILE, json.dumps({"seen": now, "since": since}))
    return now - since >= TRUST_SECONDS
