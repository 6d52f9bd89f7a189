"""``mgclust warmup``: compile kernels before they are needed."""

from __future__ import annotations

import multiprocessing
import time
from concurrent.futures import ProcessPoolExecutor, as_completed
from typing import TYPE_CHECKING, Any

import click

from mgclust.base.errors import InputError
from mgclust.cli.options import CONTEXT

if TYPE_CHECKING:
    from mgclust.algorithms.base import Method, WarmUp

__all__ = ["warmup"]


@click.command("warmup", context_settings=CONTEXT)
@click.argument("methods", nargs=-1, metavar="[METHOD]...")
@click.option("--cpu", is_flag=True, help="Use no GPU.")
def warmup(methods: tuple[str, ...], cpu: bool) -> None:
    """Compile the float32 kernels of some methods, or of all methods, so that later runs need not compile them.

    Numba (NUMBA_CACHE_DIR) and CuPy (CUPY_CACHE_DIR) keep the kernels on disk for this user, processor and GPU. Each
    method runs on small generated data; as many methods run at a time as there are cores.
    """
    from mgclust.algorithms import METHODS
    from mgclust.engine import devices
    from mgclust.engine.safe_path import safe_path

    for name in methods:
        if name not in METHODS:
            raise InputError(f"method={name!r} should be one of {', '.join(map(repr, METHODS))}.")
    cases = [(METHODS[name], case) for name in dict.fromkeys(methods or METHODS) for case in METHODS[name].warm_ups()]
    cases.sort(key=lambda case: case[1].seconds, reverse=True)
    started = time.monotonic()
    device = "cpu" if cpu or devices.why_no_gpu() else "cuda"
    spawn = multiprocessing.get_context("spawn")  # a process that is forked from a process with threads may hang
    with safe_path(), ProcessPoolExecutor(min(len(cases), devices.cores()), mp_context=spawn) as pool:
        running = {pool.submit(_fit, *case, device): case for case in cases}
        for done in as_completed(running):
            method, case = running[done]
            scalars = {key: value for key, value in case.parameters.items() if isinstance(value, (str, int, float))}
            given = "".join(f", {key}={value}" for key, value in scalars.items())
            click.echo(f"{method.method}, {case.shape[0]:,} x {case.shape[1]}{given}: {done.result():.1f} s")
    click.echo(f"done in {time.monotonic() - started:.1f} s")


def _fit(method: type[Method], case: WarmUp, device: str) -> float:
    """Run a method once and return the seconds that it takes."""
    import numpy as np

    from mgclust.data import Dataset, open_dataset, open_graph

    shape, rng = case.shape, np.random.default_rng(0)
    if method.opens == "graph":
        dataset: Dataset = open_graph(rng.integers(0, shape[0] // 6, shape))
    else:
        dataset = open_dataset((rng.normal(size=shape) + 9 * rng.integers(0, 3, (shape[0], 1))).astype("float32"))
    started = time.monotonic()
    model: Any = method(client=None, device=device, **case.parameters)
    if method.opens == "series":
        line = np.arange(shape[0])[:, None]
        model.fit(dataset, neighbors=line[1:] - [0, 1], coordinates=line * [1, 0, 0])  # rows along a line
    else:
        model.fit_dataset(dataset, provenance=False)
    return time.monotonic() - started
