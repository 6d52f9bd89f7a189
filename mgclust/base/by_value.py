"""Functions for Dask graphs, pickled by value, because the scheduler unpickles graphs and may not have mgclust."""

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
    """Wrap a function in a new function that holds it as pickled bytes; only the workers unpickle these bytes.

    Parameters
    ----------
    function : callable
    *modules : module
        Modules to pickle by value; see `pickled`. Without modules, mgclust must be installed on the workers.

    Returns
    -------
    callable
        Function with the same parameter names.
    """
    content = pickled(function, *modules)

    def call(*arguments: Any, **keywords: Any) -> Any:
        import pickle

        return pickle.loads(content)(*arguments, **keywords)

    # Dask checks whether a function takes ``block_id``. Defaults become None, and annotations are dropped, because both
    # could need mgclust.
    absent = inspect.Parameter.empty
    names = [
        each.replace(annotation=absent, default=each.default if each.default is absent else None)
        for each in inspect.signature(function).parameters.values()
    ]
    call.__signature__ = inspect.Signature(names)  # type: ignore[attr-defined]
    return call


def pickled(value: Any, *modules: ModuleType) -> bytes:
    """Pickle a value so that a process without mgclust can load it.

    Parameters
    ----------
    value : object
    *modules : module
        Modules whose functions and classes are pickled by value. The functions and classes that `value` needs may use
        nothing else from mgclust.
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
