"""What the process of an attempt answers to an order."""

from __future__ import annotations

import functools
import json
from typing import Any

from mgclust.service.confined.fork_server import ForkServer
from support.waiting import wait_for


@functools.cache
def _server() -> ForkServer:
    """A fork server of this process, with which it ends: an attempt of its own imports for seconds."""
    server = ForkServer("mgclust.service.runner.attempt", adopt=False)
    server.begin()
    wait_for(server.is_ready)
    return server


def answer_to(order: dict[str, Any]) -> dict[str, Any]:
    """The last that an attempt says, but for heartbeats: these come every second until the process has ended."""
    process, told = _server().start(), b""
    process.send(order)
    while not process.silenced:
        told += process.exchange(60.0)
    process.close(at_once=True)
    return [said for line in told.splitlines() if (said := json.loads(line))][-1]
