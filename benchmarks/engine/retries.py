"""What a lost worker costs a run with `retries=1`: whether the bits are the same, and the seconds lost.

Each round kills (SIGKILL) a worker of two at a random moment of a run, on a cluster with nannies; the run goes on
without its user. Methods take turns. A round is right if the run ends with the bits of a run in one process. Seconds
lost are those beyond the undisturbed run just before, which a busy machine slows down, too.

    python -m benchmarks.engine.retries --rounds 20 --out benchmarks/results/engine/retries_kills.json
"""

from __future__ import annotations

import functools
import hashlib
import logging
import os
import random
import signal
import statistics
import threading
import time
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np

from benchmarks.support import record as bench

LIMIT = 300.0  # seconds for workers to come back


def groups(n: int, d: int) -> np.ndarray:
    rng = np.random.default_rng(n)
    centers = 8 * rng.normal(size=(20, d))
    return (centers[rng.integers(0, 20, n)] + rng.normal(size=(n, d))).astype(np.float32)


def methods(scale: float) -> dict[str, Callable[..., list[np.ndarray]]]:
    """Calls by name, which take some seconds on two cores; each gives the arrays whose bits count."""
    from mgclust import Canopy, DensityPeaks, FuzzyCMeans, silhouette_samples

    many, some = groups(int(100_000 * scale), 16), groups(int(50_000 * scale**0.5), 16)
    labels = np.arange(len(some)) % 7

    def fuzzy(**how: Any) -> list[np.ndarray]:
        model = FuzzyCMeans(30, m=1.3, tol=0, max_iter=60, init="random", **how).fit(many)
        return [model.cluster_centers_, model.labels_]

    def peaks(**how: Any) -> list[np.ndarray]:
        model = DensityPeaks(20, algorithm="brute", **how).fit(some)
        return [model.rho_, model.delta_, model.labels_]

    def canopies(**how: Any) -> list[np.ndarray]:
        model = Canopy(t1=5.0, t2=4.0, **how).fit(some)
        return [model.cluster_centers_, model.labels_]

    def silhouettes(**how: Any) -> list[np.ndarray]:
        return [silhouette_samples(some, labels, metric="manhattan", **how)]

    return {"fuzzy c-means": fuzzy, "density peaks": peaks, "canopies": canopies, "silhouettes": silhouettes}


def bits(arrays: list[np.ndarray]) -> str:
    return hashlib.sha256(b"".join(np.ascontiguousarray(each).tobytes() for each in arrays)).hexdigest()


def killed(client: Any, call: Callable[[], list[np.ndarray]], after: float, victim: int) -> dict[str, Any]:
    """A run whose worker is killed after so many seconds."""
    from mgclust.base.errors import MgclustError, RetryWarning

    pids = list(client.run(os.getpid).values())
    timer = threading.Timer(after, os.kill, (pids[victim], signal.SIGKILL))
    began = time.monotonic()
    timer.start()
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        try:
            found = bits(call())
        except MgclustError as error:
            found = f"{type(error).__name__}: {error}"
        except Exception as error:
            found = f"fault {type(error).__name__}: {error}"
    seconds = time.monotonic() - began
    timer.cancel()
    timer.join()
    said = [str(each.message) for each in told if each.category is RetryWarning]
    return {"bits": found, "seconds": seconds, "said": said}


def main() -> None:
    from distributed import Client, LocalCluster

    from mgclust.engine import checkpoint_memory, spmd

    parser = bench.parser(__doc__)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--every", type=float, default=1.0, help="seconds between checkpoints (5 by default elsewhere)")
    parser.add_argument("--scale", type=float, default=1.0, help="of the amount of work")
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    spmd.MemoryCheckpoint = functools.partial(checkpoint_memory.MemoryCheckpoint, seconds=arguments.every)
    record, chance = bench.Record(__doc__, arguments.out), random.Random(arguments.seed)
    rounds: dict[str, list[dict[str, Any]]] = {}
    with (
        LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None, silence_logs=logging.CRITICAL) as local,
        Client(local, set_as_default=False) as client,
    ):
        calls = methods(arguments.scale)
        where = {"client": client, "device": "cpu", "n_workers": 2, "retries": 1}
        right = {}
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            for name, call in calls.items():
                right[name] = bits(call(client=None, device="cpu"))
                call(**where)  # compiles
        for number in range(arguments.rounds):
            name = list(calls)[number % len(calls)]
            call = functools.partial(calls[name], **where)
            client.wait_for_workers(2, timeout=LIMIT)
            began = time.monotonic()
            with warnings.catch_warnings():
                warnings.simplefilter("error")
                warnings.simplefilter("ignore", UserWarning)
                assert bits(call()) == right[name]
            undisturbed = time.monotonic() - began
            found = {"said": []}
            while not found["said"]:  # it may end before the kill
                wait_for_workers(client)
                found = killed(client, call, chance.random() * undisturbed, chance.randrange(2))
                if found["bits"] != right[name]:
                    break
            rounds.setdefault(name, []).append(
                {**found, "undisturbed": undisturbed, "right": found["bits"] == right[name]}
            )
            print(name, rounds[name][-1], flush=True)
            wait_for_workers(client)
    for name, each in rounds.items():
        retried = [one for one in each if one["said"]]
        record.add(
            name,
            rounds=len(each),
            same_bits=sum(one["right"] for one in each),
            killed_during_the_run=len(retried),
            resumed=sum("resumes" in one["said"][0] for one in retried),
            restarted=sum("restarts" in one["said"][0] for one in retried),
            undisturbed_seconds=statistics.median(one["undisturbed"] for one in each),
            lost_seconds=[one["seconds"] - one["undisturbed"] for one in retried],
            wrong=[one["bits"] for one in each if not one["right"]],
        )
    every = [one for each in rounds.values() for one in each]
    lost = [one["seconds"] - one["undisturbed"] for one in every if one["said"]]
    record.add(
        "all", rounds=len(every), same_bits=sum(one["right"] for one in every), killed_during_the_run=len(lost),
        median_lost_seconds=statistics.median(lost), most_lost_seconds=max(lost),
    )  # fmt: skip


def wait_for_workers(client: Any) -> None:
    """Wait for the two workers and their nannies, which start them again."""
    from distributed.core import Status

    client.wait_for_workers(2, timeout=LIMIT)
    end = time.monotonic() + LIMIT
    while not all(nanny.process.status == Status.running for nanny in client.cluster.workers.values()):
        assert time.monotonic() < end, "a nanny does not hear of its worker"
        time.sleep(0.05)


if __name__ == "__main__":
    main()
