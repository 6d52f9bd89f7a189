"""Checks, chunks and values of Dask arrays; this module does not import Dask."""

from __future__ import annotations

import contextlib
import contextvars
import functools
import sys
from collections.abc import Callable, Iterator
from typing import Any, ParamSpec, TypeVar

from mgclust.base.errors import InputError, MgclustError, RunFailed, described

__all__ = [
    "check_chunk",
    "computed",
    "empty_chunk",
    "in_event_loop",
    "is_dask",
    "lost_array",
    "parts_of",
    "reject_lost",
    "unannotated",
    "without_annotations",
]

# Errors of Dask for futures whose client is closed or whose workers have gone.
_LOST = {"CancelledError", "FutureCancelledError", "FuturesCancelledError", "ClosedClientError"}

P = ParamSpec("P")
T = TypeVar("T")


@contextlib.contextmanager
def without_annotations() -> Iterator[None]:
    """Ignore the caller's annotations (``dask.annotate``) for tasks and graphs created in the ``with`` block.

    The annotations are meant for the caller's own tasks. With them, the task of a rank might wait forever or run on
    another worker. Dask spans are kept.
    """
    dask = sys.modules.get("dask")
    given = {} if dask is None else dask.get_annotations()
    # Dask has functions to add annotations, but none to drop them. Values without effect are not enough: plugins of the
    # scheduler may read any name. So the context variable that holds the annotations is found by its value, and set.
    held = next((each for each, value in contextvars.copy_context().items() if value is given), None)
    if held is None:
        yield
        return
    before = held.set({name: value for name, value in given.items() if name == "span"})
    try:
        yield
    finally:
        held.reset(before)


def unannotated(function: Callable[P, T]) -> Callable[P, T]:
    """Wrap a function so that its tasks and graphs ignore the caller's annotations; see `without_annotations`."""

    @functools.wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> T:
        with without_annotations():
            return function(*args, **kwargs)

    return call


def is_dask(array: Any) -> bool:
    """Return whether an array is a Dask array, without an import of Dask."""
    return hasattr(array, "__dask_graph__")


def empty_chunk(array: Any) -> Any:
    """Make an empty array of the same type as the chunks of a Dask array; return any other array unchanged."""
    # If there is a Dask array, Dask is already imported.
    return sys.modules["dask.array"].utils.meta_from_array(array) if is_dask(array) else array


@unannotated
def computed(array: Any) -> Any:
    """Compute a Dask array with the client that has its chunks, even if another client is active."""
    clients = [each.client for each in dict(array.__dask_graph__()).values() if hasattr(each, "client")]
    if clients and clients[0].asynchronous:
        raise in_event_loop(clients[0])
    try:
        return array.compute(scheduler=clients[0].get) if clients else array.compute()
    except MgclustError:
        raise
    except BaseException as error:
        if type(error).__name__ in _LOST:
            raise lost_array() from None
        if not isinstance(error, Exception):
            raise
        if "asynchronous Client" in str(error):
            raise in_event_loop("auto") from None
        raise RunFailed(
            f"a chunk of the Dask array could not be computed: {described(error)}; check that X.compute() returns an "
            "array of numbers."
        ) from error


def check_chunk(array: Any, shape: tuple[int, ...]) -> None:
    """Reject a computed chunk whose shape differs from the shape in the Dask array.

    Parameters
    ----------
    array : array
        The computed chunk.
    shape : tuple of int
        Shape according to ``X.chunks``.
    """
    found = getattr(array, "shape", None)
    if found != shape:
        raise InputError(
            f"a chunk of the Dask array has shape {found}, but X.chunks lists {shape}: call X.compute_chunk_sizes(); "
            "if each computation gives different rows, call X = X.persist() first."
        )


def reject_lost(array: Any) -> None:
    """Raise the error of `lost_array` if a Dask array belongs to a closed client.

    Parameters
    ----------
    array : object
        Dask array. Only materialized layers of its graph are checked, because futures are in these layers. All other
        objects, including None, are accepted.
    """
    layers = getattr(array.__dask_graph__(), "layers", {}) if is_dask(array) else {}
    for layer in layers.values():
        some = next(iter(layer.values()), None) if layer.is_materialized() else None
        if getattr(getattr(some, "client", None), "status", "") in ("closed", "closing"):
            raise lost_array()


def lost_array() -> RunFailed:
    """Make the error for a Dask array that can no longer be computed."""
    return RunFailed(
        "a Dask array is lost: its client is closed, or a worker with part of the array has gone; create the array "
        "again, or repeat the fit if it is part of a result (X.compute() makes a copy that stays)."
    )


def in_event_loop(client: object) -> InputError:
    """Make the error for a call that would wait for an asynchronous client in the client's own event loop.

    Parameters
    ----------
    client : object
        The client, or the value of the parameter `client`.
    """
    return InputError(
        f"client={client!r} is asynchronous, and this call would wait in the client's event loop; await "
        "asyncio.to_thread(function, ...), such as asyncio.to_thread(model.predict, X), or, for a fit, "
        "mgclust.submit(model, X)."
    )


def parts_of(array: Any) -> Iterator[Any]:
    """Yield the chunks of a Dask array along its first axis, as arrays in memory; yield any other array whole."""
    if not is_dask(array):
        yield array
        return
    for number in range(array.numblocks[0]):
        with without_annotations():
            block = array.blocks[number]
        yield computed(block)
