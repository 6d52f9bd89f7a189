"""Leases of workers on a scheduler that is none: no cluster, no processes, and time that a test sets."""

from __future__ import annotations

import asyncio
import time
from types import SimpleNamespace
from typing import Any

from mgclust.engine.dask.leases import Leases


def worker(address: str, name: str = "", **metrics: Any) -> SimpleNamespace:
    return SimpleNamespace(
        address=address,
        server_id=f"of {address}",
        name=name or address,
        metrics=metrics,
        memory_limit=8 << 30,
        nbytes=0,
        nthreads=1,
        processing={},
        long_running=set(),
        resources={},
        used_resources={},
    )


def leases_of(workers: list[SimpleNamespace], clients: tuple[str, ...], **options: Any) -> Leases:
    """Leases of these workers and clients; a question is answered at once."""
    scheduler = SimpleNamespace(
        running=workers,
        workers={each.address: each for each in workers},
        clients={name: SimpleNamespace(last_seen=time.time()) for name in clients},
        client_comms={"a": SimpleNamespace(comm=SimpleNamespace(peer_address="tcp://10.0.0.7:4711"))},
        handlers={},
        tasks={},
        adaptive_target=lambda target_duration=None: 1,
    )
    made = Leases(turn=-1.0, **options)
    made.start(scheduler)  # without an HTTP server
    return made


def ask(
    plugin: Leases, run: str, client: str, least: int, method: str = "density-peaks", most: int = 0, **more: Any
) -> dict[str, str]:
    """The workers that a run is given now."""
    found: dict[str, str] = asyncio.run(plugin.ask(run, client, least, most or least, method, **more))["workers"]
    return found
