"""Jobs of a deployment that runs.

::

    job.py submit METHOD ROWS [NAME=VALUE...]
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

import numpy as np

from mgclust import Service

ENDED = ("SUCCEEDED", "FAILED", "CANCELLED")


def submit(method: str, rows: str, *parameters: str) -> None:
    """Send points around some centers; print the number of the job."""
    given = {name: json.loads(value) for name, value in (each.split("=", 1) for each in parameters)}
    rng = np.random.default_rng(7)
    points = rng.normal(size=(int(rows), 8)) + 6 * rng.integers(0, 3, (int(rows), 8))
    with tempfile.NamedTemporaryFile(suffix=".npy") as file:
        np.save(file, points)
        file.flush()
        print(Service().submit(method, file.name, report=False, **given).id)


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
    {"submit": submit, "wait": wait, "log": log}[sys.argv[1]](*sys.argv[2:])
