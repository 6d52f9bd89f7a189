"""A whole brain's adaptive scan as a job of the service, undisturbed and with a process of it killed half-way.

The rows are those that `--prepare` of affinity_propagation/brain.py writes. A first run compiles; of a third one a
process is killed at half of the time that the second one took, and it must end with the same hashes:

    python -m benchmarks.service.brain brain.npy --gpus 1 --profile fast --out NAME.json

`--workers 2` in place of `--gpus` tries it out on a CPU, with fewer rows in the file. Two calls of an earlier form, on
two GPUs and with matrices in place of lists, made brain.json.
"""

from __future__ import annotations

import hashlib
import os
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


def kill_one_process(web: int) -> str:
    """Kill the process that computes most within a moment: that of a rank of the job."""
    processes = psutil.Process(web).children(recursive=True)
    before = [sum(process.cpu_times()[:2]) for process in processes]
    time.sleep(0.3)
    victim = max(zip(processes, before, strict=True), key=lambda each: sum(each[0].cpu_times()[:2]) - each[1])[0]
    command = " ".join(victim.cmdline())
    victim.kill()
    return command


def serve(folder: Path) -> tuple[subprocess.Popen[bytes], Service]:
    """Start a service of this machine in a folder."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [sys.executable, "-m", "mgclust", "serve", "--data", str(folder), "--port", str(port)]
    web = subprocess.Popen(command)
    url = f"http://127.0.0.1:{port}"
    while web.poll() is None:
        try:
            httpx.get(f"{url}/healthz")
            return web, Service(url, (folder / "token").read_text().strip())
        except httpx.TransportError:
            time.sleep(0.2)
    raise SystemExit(f"mgclust serve ended with {web.returncode} before it answered")


def run(service: Service, data: Path, web: int, kill_after: float | None, options: Any) -> dict[str, Any]:
    """One job, of which a process is killed so many seconds after the submit; what it took and found."""
    resources = {name: getattr(options, name) for name in ("gpus", "workers") if getattr(options, name)}
    begin = time.perf_counter()
    job = service.submit(
        "adaptive-affinity-propagation", options.rows, resources=resources, report=False,
        affinity="correlation", random_state=0, profile=options.profile,
    )  # fmt: skip
    folder = data / "jobs" / job.id / "checkpoint"
    seen: dict[str, float] = {}
    killed: dict[str, Any] = {}
    while job.refresh().state in ("PENDING", "RUNNING"):
        now = time.perf_counter() - begin
        for path in folder.glob("*/*"):
            seen.setdefault(path.name, now)
        if kill_after is not None and not killed and now > kill_after:
            killed = {"killed_at": now, "killed": kill_one_process(web)[:80]}
        time.sleep(0.1)
    seconds = time.perf_counter() - begin
    with tempfile.TemporaryDirectory() as name:
        result = job.result(Path(name) / "result")
        arrays: dict[str, Any] = {"labels": result.labels, **result.arrays}
        hashes = {
            name: hashlib.sha256(np.ascontiguousarray(each).tobytes()).hexdigest() for name, each in arrays.items()
        }
        return {
            **resources, "shape": result.source["shape"], "state": job.state, "attempts": job.info["attempt"],
            "seconds": seconds, **killed, "checkpoints_seen_at": seen, "timings": result.timings,
            "scores": job.info["scores"], "sha256": hashes,
        }  # fmt: skip


def main() -> None:
    parser = bench.parser(__doc__)
    parser.add_argument("rows", type=Path)
    parser.add_argument("--gpus", type=int)
    parser.add_argument("--workers", type=int)
    parser.add_argument("--profile", default="code", choices=["code", "paper", "fast"])
    parser.add_argument("--checkpoint-seconds", type=float, default=60.0)
    options = parser.parse_args()
    out = bench.Record(__doc__, options.out)
    os.environ["MGCLUST_SERVICE_CHECKPOINT_SECONDS"] = str(options.checkpoint_seconds)
    with tempfile.TemporaryDirectory() as name:
        data = Path(name) / "data"
        web, service = serve(data)
        try:
            out.add("first, which compiles", **run(service, data, web.pid, None, options))
            first = run(service, data, web.pid, None, options)
            out.add("undisturbed", **first)
            second = run(service, data, web.pid, first["seconds"] / 2, options)
            out.add("killed half-way", **second, same_bits=second["sha256"] == first["sha256"])
        finally:
            web.send_signal(signal.SIGTERM)
            web.wait(40)


if __name__ == "__main__":
    main()
