"""``mgclust warmup``: compile kernels before they are needed."""

from __future__ import annotations

import multiprocessing
import time
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from typing import Any

import click

from mgclust.cli.options import CONTEXT
from mgclust.errors import InputError

__all__ = ["warmup"]

# A method, its parameters, and the shape of its rows; of a graph, edges and twice 1. Between them they compile what
# methods use by default, few features and many, few rows and many. What takes longest comes first.
CASES: tuple[tuple[str, dict[str, Any], tuple[int, int]], ...] = (
    ("fast-newman", {}, (3000, 2)),
    ("fuzzy-c-means", {"n_clusters": 8}, (3000, 8)),
    ("fast-newman", {"strategy": "parallel"}, (3000, 2)),
    ("adaptive-affinity-propagation", {}, (200, 8)),
    ("density-peaks", {"halo": True}, (12_000, 2)),
    ("density-peaks", {"halo": True}, (3000, 20)),
    ("affinity-propagation", {}, (300, 20)),
    ("canopy", {}, (3000, 4)),
    ("nearest-neighbors", {}, (6000, 2)),
    ("nearest-neighbors", {}, (3000, 20)),
    ("silhouette", {}, (3000, 8)),
)


@click.command("warmup", context_settings=CONTEXT)
@click.argument("methods", nargs=-1, metavar="[METHOD]...")
@click.option("--cpu", is_flag=True, help="Use no GPU.")
def warmup(methods: tuple[str, ...], cpu: bool) -> None:
    """Compile the kernels of some methods, or of all, in float32, so that first runs need not.

    They are kept on disk, for this user, processor and GPU, by Numba (NUMBA_CACHE_DIR) and CuPy (CUPY_CACHE_DIR). Each
    method runs on small made data, as many at a time as there are cores.
    """
    from mgclust.engine import devices
    from mgclust.engine.safe_path import safe_path

    known = list(dict.fromkeys(name for name, _, _ in CASES))
    for name in methods:
        if name not in known:
            raise InputError(f"method={name!r} should be one of {', '.join(map(repr, known))}.")
    cases = [case for case in CASES if not methods or case[0] in methods]
    started = time.monotonic()
    device = "cpu" if cpu or devices.why_no_gpu() else "cuda"
    spawn = multiprocessing.get_context("spawn")  # a process that forks from one with threads may hang
    with safe_path(), ProcessPoolExecutor(min(len(cases), devices.cores()), mp_context=spawn) as pool:
        running = {pool.submit(_run, *case, device): case for case in cases}
        for done in as_completed(running):
            name, parameters, shape = running[done]
            given = "".join(f", {key}={value}" for key, value in parameters.items())
            click.echo(f"{name}, {shape[0]:,} x {shape[1]}{given}: {done.result():.1f} s")
    click.echo(f"done in {time.monotonic() - started:.1f} s")


def _run(name: str, parameters: dict[str, Any], shape: Sequence[int], device: str) -> float:
    """Run a method once; the seconds that it takes."""
    import numpy as np

    from mgclust.algorithms import METHODS
    from mgclust.data import open_dataset, open_graph

    method, rng = METHODS[name], np.random.default_rng(0)
    if method.opens == "graph":
        dataset: Any = open_graph(rng.integers(0, shape[0] // 6, shape))
    else:
        dataset = open_dataset((rng.normal(size=shape) + 9 * rng.integers(0, 3, (shape[0], 1))).astype("float32"))
    if name == "silhouette":
        parameters = {"labels": rng.integers(0, 4, shape[0])}
    started = time.monotonic()
    method(client=None, device=device, **parameters).fit_dataset(dataset, provenance=False)
    return time.monotonic() - started
