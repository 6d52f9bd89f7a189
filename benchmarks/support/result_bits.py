"""Runs whose results stay where they are: one hash over them, the same on any number of ranks, is what comes back.

A result of gigabytes would take longer to its caller than the run itself. An array's hash is the sum, modulo 2^64, of a
mixed word for each element and its position in the whole array, so ranks add up theirs whatever rows they have.
"""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np

from benchmarks.support import on_ranks
from benchmarks.support.made_rows import hashed

PIECE = 1 << 24  # elements that are hashed together


class Hashed(NamedTuple):
    """What a run found, hashed: its value on rank 0 and all arrays that the ranks delivered."""

    bits: str
    device_bytes: int  # that the pool of the fullest device has held
    facts: dict[str, Any]  # numbers and words in the value, by name, and lengths of its arrays


def run(model: Any, dataset: Any, on_progress: Callable[[dict[str, Any]], None] | None = None) -> Any:
    """Outcome of a method's run; its value is a `Hashed`, and it has no arrays."""
    from mgclust.algorithms.base import Inputs
    from mgclust.engine import spmd
    from mgclust.engine.dask.cluster import connect

    spec = model._run_spec(model._checked(), Inputs(dataset, False))
    arguments = {**spec.arguments, "function_hashed": spec.function}
    spec = dataclasses.replace(spec, function=run_hashed, arguments=arguments)
    with connect(**model._place(), work=spec.work) as cluster:
        return spmd.run(spec, dataset, cluster, on_progress)


def run_hashed(context: Any, *, function_hashed: Callable[..., Any], **arguments: Any) -> Hashed:
    """Run a method's function on a rank, and hash what it leaves; that takes the stage "bits"."""
    value = function_hashed(context, **arguments)
    held = on_ranks.device_bytes()
    with context.stage("bits"):
        digest = hashlib.sha256()
        if context.rank == 0:
            for part in _parts(value):
                digest.update(part)
        for name in sorted(context.delivered):
            for array in _arrays(context.delivered.pop(name)):
                digest.update(f"{name} {array.dtype.kind} {array.shape[1:]} {_sum(context, array)}".encode())
        held = int(context.comm.all_gather(np.array([held])).max())
    return Hashed(digest.hexdigest()[:16], held, dict(_facts(value)) if context.rank == 0 else {})


def _sum(context: Any, array: np.ndarray) -> int:
    """The hash of an array of which each rank has some rows; of integers the same in every type."""
    kernels, comm = context.kernels, context.comm
    flat = np.ascontiguousarray(array).reshape(-1)
    flat = flat.view(f"u{flat.itemsize}")
    first = int(comm.all_gather(np.array([len(flat)]))[: context.rank].sum())
    total = 0
    for start in range(0, len(flat), PIECE):
        words = kernels.xp.asarray(flat[start : start + PIECE]).astype(np.uint64)
        places = kernels.xp.arange(first + start, first + start + len(words)).astype(np.uint64)
        total += int(hashed(words ^ hashed(places)).sum())
    own = np.array([total % 2**64], np.uint64).view(np.int64)
    return sum(int(each) for each in comm.all_gather(own)) % 2**64


def _arrays(array: Any) -> tuple[np.ndarray, ...]:
    """An array, or those of a sparse one: how many entries its rows have, their columns and values."""
    if hasattr(array, "indptr"):
        return np.diff(array.indptr), array.indices, array.data
    return (np.asarray(array),)


def _facts(value: Any, name: str = "") -> Iterator[tuple[str, Any]]:
    value = _named(value)
    if isinstance(value, Mapping):
        for key, part in value.items():
            yield from _facts(part, f"{name}.{key}" if name else str(key))
    elif isinstance(value, np.ndarray):
        yield f"len({name})", len(np.atleast_1d(value))
    elif isinstance(value, str | int | float | np.generic):
        yield name, value


def _named(value: Any) -> Any:
    if dataclasses.is_dataclass(value):
        return {each.name: getattr(value, each.name) for each in dataclasses.fields(value)}
    return value


def _parts(value: Any) -> Iterator[bytes]:
    """The bytes of all that a value holds, but how it was computed: pairs kept in lists depend on the ranks."""
    value = _named(value)
    if isinstance(value, Mapping):
        value = [part for name in sorted(value, key=str) if name != "exactness" for part in (str(name), value[name])]
    if isinstance(value, list | tuple):
        yield str(len(value)).encode()
        for part in value:
            yield from _parts(part)
    elif isinstance(value, np.ndarray | np.generic):
        yield f"{value.dtype} {value.shape}".encode()
        yield np.ascontiguousarray(value).tobytes()
    elif value is None or isinstance(value, str | int | float | np.dtype):
        yield repr(value).encode()
    else:
        raise TypeError(f"a value of type {type(value).__name__} has no bits to hash")
