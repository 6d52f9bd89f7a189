"""Functions in Dask's graphs. Schedulers read graphs, but need not have mgclust: what they find travels by value."""

from __future__ import annotations

import inspect
import threading
from collections.abc import Callable
from types import ModuleType
from typing import Any

import cloudpickle

__all__ = ["by_value", "pickled"]

_LOCK = threading.Lock()


def by_value(function: Callable[..., Any], *modules: ModuleType) -> Callable[..., Any]:
    """Wrap a function in one that has no name in a module and holds it in bytes, which workers alone read.

    Parameters
    ----------
    function : callable
    *modules : module
        See `pickled`. By default, workers need mgclust.

    Returns
    -------
    callable
        Of the same signature.
    """
    content = pickled(function, *modules)

    def call(*arguments: Any, **keywords: Any) -> Any:
        import pickle

        return pickle.loads(content)(*arguments, **keywords)

    # Dask asks whether a function takes ``block_id``. Defaults and annotations could be mgclust's own.
    absent = inspect.Parameter.empty
    names = [
        each.replace(annotation=absent, default=each.default if each.default is absent else None)
        for each in inspect.signature(function).parameters.values()
    ]
    call.__signature__ = inspect.Signature(names)  # type: ignore[attr-defined]
    return call


def pickled(value: Any, *modules: ModuleType) -> bytes:
    """Pickle a value, to be loaded where there may be no mgclust.

    Parameters
    ----------
    value : object
    *modules : module
        Modules whose functions and classes are part of the bytes. Those that the value needs may use nothing else of
        mgclust.
    """
    if not modules:
        return bytes(cloudpickle.dumps(value))
    with _LOCK:
        for module in modules:
            cloudpickle.register_pickle_by_value(module)
        try:
            content: bytes = cloudpickle.dumps(value)
        finally:
            for module in modules:
                cloudpickle.unregister_pickle_by_value(module)
    return content
