"""Functions in Dask's graphs. Schedulers read graphs, but need not have mgclust: what they find travels by value."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import cloudpickle

__all__ = ["by_value"]


def by_value(function: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap a function in one that has no name in a module and holds it in bytes, which workers alone read.

    Parameters
    ----------
    function : callable

    Returns
    -------
    callable
        Of the same signature.
    """
    pickled = cloudpickle.dumps(function)

    def call(*arguments: Any, **keywords: Any) -> Any:
        import pickle

        return pickle.loads(pickled)(*arguments, **keywords)

    # Dask asks whether a function takes ``block_id``. Defaults and annotations could be mgclust's own.
    absent = inspect.Parameter.empty
    names = [
        each.replace(annotation=absent, default=each.default if each.default is absent else None)
        for each in inspect.signature(function).parameters.values()
    ]
    call.__signature__ = inspect.Signature(names)  # type: ignore[attr-defined]
    return call
