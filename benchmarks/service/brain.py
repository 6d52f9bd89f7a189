"""A whole brain's adaptive scan as a job of the service on several GPUs, one of whose workers is killed on the way.

Two calls, the first undisturbed, with the rows that `--prepare` of affinity_propagation/brain.py writes; the hashes
must be the same:

    python -m benchmarks.service.brain brain.npy --gpus 2 --out benchmarks/results/service/brain.json
    python -m benchmarks.service.brain brain.npy --gpus 2 --kill-after 125 --out NAME.json

`--workers 2` in place of `--gpus` tries it out on a CPU, with fewer rows in the file.
"""

from __future__ import annotations

import hashlib
import signal
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import psutil

from benchmarks.support import record as bench
from mgclust import Service


def kill_one_worker(web: int) -> None:
    """Kill the process of one rank of the job that the service runs."""
    processes = psutil.Process(web).children(recursive=True)
    workers = [process for process in processes if "spawn_main" in " ".join(process.cmdline())]
    max(workers, key=lambda process: process.memory_info().rss).kill()


def serve(folder: Path) -> tuple[subprocess.Popen[bytes], Service]:
    """Start a service of this machine in a folder."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [sys.executable, "-m", "mgclust", "serve", "--data", str(folder), "--port", str(port)]
    web = subprocess.Popen(command, stderr=subprocess.DEVNULL)
    url = f"http://127.0.0.1:{port}"
    while True:
        try:
            httpx.get(f"{url}/healthz")
            return web, Service(url, (folder / "token").read_text().strip())
        except httpx.TransportError:
            time.sleep(0.2)


def main() -> None:
    parser = bench.parser(__doc__)
    parser.add_argument("rows", type=Path)
    parser.add_argument("--gpus", type=int)
    parser.add_argument("--workers", type=int)
    parser.add_argument("--kill-after", type=float, metavar="SECONDS", help="after the submit")
    options = parser.parse_args()
    out = bench.Record(__doc__, options.out)
    resources = {name: getattr(options, name) for name in ("gpus", "workers") if getattr(options, name)}
    with tempfile.TemporaryDirectory() as name:
        web, service = serve(Path(name) / "data")
        try:
            begin = time.perf_counter()
            job = service.submit(
                "adaptive-affinity-propagation", options.rows, resources=resources, report=False,
                affinity="correlation", random_state=0,
            )  # fmt: skip
            folder = Path(name) / "data" / "jobs" / job.id / "checkpoint"
            seen: dict[str, float] = {}
            killed = None
            while job.refresh().state in ("PENDING", "RUNNING"):
                now = time.perf_counter() - begin
                for path in folder.glob("*/*"):
                    seen.setdefault(path.name, now)
                if options.kill_after is not None and killed is None and now > options.kill_after:
                    kill_one_worker(web.pid)
                    killed = now
                time.sleep(0.2)
            seconds = time.perf_counter() - begin
            result = job.result(Path(name) / "result")
            arrays: dict[str, Any] = {"labels": result.labels, **result.arrays}
            out.add(
                "undisturbed" if killed is None else "one worker killed", **resources, shape=result.source["shape"],
                state=job.state, attempts=job.info["attempt"], seconds=seconds, killed_at=killed,
                checkpoints_seen_at=seen, timings=result.timings, scores=job.info["scores"],
                sha256={name: hashlib.sha256(np.ascontiguousarray(each).tobytes()).hexdigest()
                        for name, each in arrays.items()},
            )  # fmt: skip
        finally:
            web.send_signal(signal.SIGTERM)
            web.wait(40)


if __name__ == "__main__":
    main()
