"""What benchmarks of the message passing run on every rank: iterations with a clock, and the matrices by themselves.

Workers import this file by its name, so that a script can hand its functions to `mgclust.engine.spmd.run`.
"""

from __future__ import annotations

import hashlib
import os
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

BYTES = 12  # an element and iteration in float32: S and A read, A written

# Workers are processes of their own: they find this package, and mgclust, on the path.
ROOT = Path(__file__).resolve().parents[2]
os.environ["PYTHONPATH"] = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])


def on(client: Any, size: int, device: str, function: Callable, X: Any, **parameters: Any) -> Any:
    """Outcome of a function on so many ranks; without a client in this process."""
    from mgclust.data import open_dataset
    from mgclust.engine import spmd
    from mgclust.engine.dask.cluster import connect

    options = {"metric": "euclidean"} | parameters.pop("options", {})
    with connect(client=client, device=device, n_workers=None if client is None else size) as cluster:
        return spmd.run(spmd.RunSpec(function, parameters, **options), open_dataset(X), cluster)


def clocked(kernels: Any, call: Callable[[], Any], repeat: int) -> list[float]:
    """Seconds of each of some calls after a warm-up; on a GPU between two events on the device."""
    call()
    kernels.memory.synchronize()
    times = []
    for _ in range(repeat):
        if kernels.xp is np:
            start = time.perf_counter()
            call()
            times.append(time.perf_counter() - start)
            continue
        first, last = kernels.xp.cuda.Event(), kernels.xp.cuda.Event()
        first.record()
        call()
        last.record()
        last.synchronize()
        times.append(kernels.xp.cuda.get_elapsed_time(first, last) / 1e3)
    return times


def copy_bandwidth(kernels: Any, count: int = 1 << 28) -> float:
    """Bytes a second, read and written together, of copying float32 numbers."""
    xp = kernels.xp
    a, b = xp.zeros(count, "float32"), xp.empty(count, "float32")
    took = statistics.median(clocked(kernels, lambda: xp.copyto(b, a), 5))
    return 2 * a.nbytes / took


def device_bytes() -> int:
    """Device memory that this process's pool holds, which is the most it has held; 0 without a GPU."""
    try:
        import cupy

        return int(cupy.get_default_memory_pool().total_bytes())
    except Exception:
        return 0


def free_pool() -> None:
    """Give the pool's unused memory back, so that `device_bytes` tells of the next run alone."""
    try:
        import cupy

        cupy.get_default_memory_pool().free_all_blocks()
    except Exception:
        return


def digest(*arrays: Any) -> str:
    """A short hash over the bits of arrays."""
    found = hashlib.sha256()
    for array in arrays:
        found.update(np.ascontiguousarray(array).tobytes())
    return found.hexdigest()[:16]


def messages_timed(
    context: Any,
    *,
    affinity: str = "euclidean",
    iterations: int,
    settle: int = 0,
    damping: float = 0.5,
    preference_factor: float = 1.0,
    seed: int = 0,
    copy_count: int = 1 << 28,
    repeat: int = 5,
) -> dict[str, Any]:
    """Seconds of every stage, and of batches of iterations: the first ones, and those after `settle` more.

    The preference is the median similarity times a factor. A hash over everything that all ranks know (the diagonals,
    c, all numbers of exemplars, the last exemplars) must not depend on the ranks.
    """
    from mgclust.algorithms.affinity_propagation.message_passing import SLOTS, MessagePassing
    from mgclust.algorithms.affinity_propagation.rows.message_rows import DenseRows
    from mgclust.algorithms.affinity_propagation.rows.similarity_matrix import similarity_matrix
    from mgclust.algorithms.affinity_propagation.rows.similarity_quantiles import median as median_of

    kernels, n = context.kernels, context.dataset_shape[0]
    free_pool()
    out: dict[str, Any] = {"n": n, "ranks": context.size, "slots": SLOTS}
    out["copy_bytes_per_second"] = copy_bandwidth(kernels, copy_count)

    def timed(function: Callable[[], Any]) -> tuple[float, Any]:
        kernels.memory.synchronize()
        start = time.perf_counter()
        value = function()
        kernels.memory.synchronize()
        return time.perf_counter() - start, value

    # Rows are prepared once, at the first call; the first call also compiles.
    out["similarities_first_seconds"], similarities = timed(lambda: similarity_matrix(context, affinity, seed))
    out["preference_seconds"], median = timed(lambda: median_of(context, similarities, with_diagonal=False))
    out["median"] = median
    similarities.synchronize()
    messages = MessagePassing(context, DenseRows(context, similarities), np.full(n, preference_factor * median))
    kernels.memory.synchronize()
    found: list[int] = []

    def batches(count: int) -> list[float]:
        times = []
        done = 0
        while done < count:
            now = min(SLOTS, count - done)
            start = time.perf_counter()
            found.extend(k for k, _ in messages.iterate([damping] * now))
            times.append((time.perf_counter() - start) / now)
            done += now
        return times

    first = batches(iterations)
    out["compile_and_first_batch_seconds"] = first[0] * min(SLOTS, iterations)
    out["first_batches_ms"] = [1e3 * t for t in first]
    out["recent_places_first"] = int(messages.messages.recent_most[0])
    if settle:
        batches(settle)
        out["settled_batches_ms"] = [1e3 * t for t in batches(iterations)]
        out["recent_places_later"] = int(messages.messages.recent_most[0])
    out["clusters"] = found[:: max(1, len(found) // 16)] + found[-1:]
    out["iterations"] = len(found)
    held = messages.messages
    state = (held.c[:n], held.r_diagonal, held.a_diagonal, held.last_exemplars)
    out["bits"] = digest(np.array(found), *map(kernels.memory.to_host, state))
    # From here on the messages make no sense any more.
    out["pass_columns_ms"] = 1e3 * statistics.median(
        clocked(
            kernels,
            lambda: kernels.affinity_propagation.pass_columns(held, damping=damping, scale=messages._scale, slot=0),
            repeat,
        )
    )
    out["all_reduce_ms"] = 1e3 * _all_reduce(context, held.sums)
    out["device_bytes"] = device_bytes()
    return out


def _all_reduce(context: Any, sums: Any) -> float:
    """Seconds of the sum that every iteration needs, queued many times; the sums are zero here."""
    count = 64
    for _ in range(2):
        context.comm.synchronize()
        start = time.perf_counter()
        for _ in range(count):
            context.comm.queue_reduce(sums)
        context.comm.synchronize()
        took = (time.perf_counter() - start) / count
    return took


def matrices_timed(context: Any, *, affinity: str = "euclidean", seed: int = 0, repeat: int = 5) -> dict[str, Any]:
    """Seconds of writing S once, by the kernel and by a fill; and of reading it for the preference."""
    from mgclust.algorithms.affinity_propagation.rows.similarity_matrix import AFFINITIES, prepare_affinity
    from mgclust.algorithms.affinity_propagation.rows.similarity_quantiles import median_ranks
    from mgclust.algorithms.common.pair_matrix import order_statistic
    from mgclust.kernels.affinity_propagation.messages import padded

    kernels, xp, n = context.kernels, context.kernels.xp, context.dataset_shape[0]
    norm, _ = prepare_affinity(context, affinity)
    x = context.rows.read(0, n)
    s = xp.full((n, padded(n)), -xp.inf, dtype=context.dtype)

    def write() -> None:
        kernels.affinity_propagation.similarities(
            x, x, norm=norm, factor=AFFINITIES[affinity][1], first_row=0, y_start=0, seed=seed, out=s
        )

    out: dict[str, Any] = {"n": n, "norm": norm, "similarities_ms": _ms(clocked(kernels, write, repeat))}
    ranks = median_ranks(n * (n - 1))
    out["order_statistic_ms"] = _ms(clocked(kernels, lambda: order_statistic(context, lambda: [s], ranks[0]), repeat))
    out["fill_ms"] = _ms(clocked(kernels, lambda: s.fill(0), repeat))
    return out


def _ms(times: list[float]) -> float:
    return 1e3 * statistics.median(times)
