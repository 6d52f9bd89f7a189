"""What the process of an attempt answers to an order."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any


def answer_to(order: dict[str, Any]) -> dict[str, Any]:
    """The last that an attempt says, but for heartbeats: these come every second until the process has ended."""
    with subprocess.Popen(
        [sys.executable, "-m", "mgclust.service.runner.attempt"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        process.stdin.write(json.dumps(order) + "\n")
        process.stdin.flush()  # what ends its input ends the process
        return [said for line in process.stdout if (said := json.loads(line))][-1]
