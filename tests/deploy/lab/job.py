"""Jobs of a deployment that runs.

::

    job.py submit METHOD ROWS [NAME=VALUE...]
    job.py remote METHOD PATH [NAME=VALUE...]
    job.py points ID
    job.py wait ID SECONDS [STATE]
    job.py log ID

It runs where mgclust is installed, with MGCLUST_URL and MGCLUST_TOKEN_FILE.
"""

from __future__ import annotations

import hashlib
import json
import sys
import tempfile
import time
from typing import Any

import numpy as np

from mgclust import Service

ENDED = ("SUCCEEDED", "FAILED", "CANCELLED")


def values(parameters: tuple[str, ...]) -> dict[str, Any]:
    """Parse NAME=VALUE, with values of JSON."""
    return {name: json.loads(value) for name, value in (each.split("=", 1) for each in parameters)}


def submit(method: str, rows: str, *parameters: str) -> None:
    """Send points around five centers; print the number of the job."""
    rng = np.random.default_rng(7)
    centers = 6 * rng.integers(0, 3, (5, 8))
    points = rng.normal(size=(int(rows), 8)) + centers[rng.integers(0, 5, int(rows))]
    with tempfile.NamedTemporaryFile(suffix=".npy") as file:
        np.save(file, points)
        file.flush()
        print(Service().submit(method, file.name, report=False, **values(parameters)).id)


def remote(method: str, path: str, *parameters: str) -> None:
    """Queue a job on a file that the service may read, with a report; print its number."""
    print(Service().submit(method, path, remote=True, **values(parameters)).id)


def points(id_: str) -> None:
    """Print how many points the page draws of a job, which a confined process reads."""
    found = Service().call("GET", f"/jobs/{id_}/points")
    if not found["x"]:
        sys.exit(f"job {id_} has no points: {found['why']}")
    print(len(found["x"]), "points")


def wait(id_: str, seconds: str, state: str = "SUCCEEDED") -> None:
    """Print the attempt, and a hash of the labels, once the job has that state."""
    end = time.monotonic() + float(seconds)
    while True:
        info = Service().job(id_).info
        if info["state"] == state:
            break
        if info["state"] in ENDED or time.monotonic() > end:
            sys.exit(f"job {id_} should be {state}: {json.dumps(info)}")
        time.sleep(0.5)
    digest = ""
    if state == "SUCCEEDED":
        with tempfile.TemporaryDirectory() as folder:
            labels = Service().job(id_).result(f"{folder}/out").labels
        digest = hashlib.sha256(np.ascontiguousarray(labels).tobytes()).hexdigest()[:16]
    print(info["attempt"], digest)


def log(id_: str) -> None:
    """Print the log of all attempts."""
    print(Service().job(id_).log())


if __name__ == "__main__":
    {"submit": submit, "remote": remote, "points": points, "wait": wait, "log": log}[sys.argv[1]](*sys.argv[2:])
