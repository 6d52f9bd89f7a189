"""Fits in the background: a future of each, several at a time, and for coroutines something to await.

A fit waits in a thread of its own, which sleeps while ranks compute on a cluster. Where several fits ask for the same
workers, they wait for each other as runs of other clients do.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import inspect
import threading
from collections.abc import Generator, Iterable
from concurrent.futures import Future, InvalidStateError
from typing import Any

from mgclust.algorithms.base import Clusterer, Progress
from mgclust.base.errors import InputError, RunCancelled
from mgclust.data.base import InputTypeError
from mgclust.engine.dask.cluster import leave_pool

__all__ = ["FitFuture", "submit"]


class FitFuture(Future[Any]):
    """Fit that is under way: a ``concurrent.futures.Future`` of the estimator, which can also be awaited.

    Made by `submit`. ``concurrent.futures.wait`` and ``as_completed`` take it. An error of the fit is raised by
    ``result()`` and told by ``exception()``; warnings of the fit are given when it ends, in its thread.
    """

    def __init__(self) -> None:
        super().__init__()
        self._cancelling = threading.RLock()

    def cancel(self) -> bool:
        """End the fit, on all ranks; unlike those of an executor, one that is running, too.

        Returns
        -------
        bool
            False where it had ended already. Ranks stop at their next look, within a tile of their work; whoever waits
            for the fit learns of it at once, by ``concurrent.futures.CancelledError``.
        """
        with self._cancelling:
            if self.cancelled():
                return True
            if not super().cancel():
                return False
            self.set_running_or_notify_cancel()  # tells those who wait for several
        return True

    def __await__(self) -> Generator[Any, None, Any]:
        """Wait in a coroutine; where that is cancelled, so is the fit."""
        return asyncio.wrap_future(self).__await__()


def submit(model: Clusterer, X: Any, *, on_progress: Progress | None = None, **fit_parameters: Any) -> FitFuture:
    """Fit in the background: ``model.fit(X)`` without waiting for it.

    Parameters
    ----------
    model : estimator
        Nothing else may use it until the future is done; several fits take copies (``sklearn.base.clone``). With a
        ``Client(asynchronous=True)``, as with the others, ``client=`` of the estimator has it, or it is the active one.
    X : array of shape (n_samples, n_features), path, URL or Dataset
        As of ``fit``.
    on_progress : callable, optional
        As of `fit_dataset`; called in the thread of the fit.
    **fit_parameters
        As ``sample_weight`` of ``fit``, where the method has it. Others are refused at once.

    Returns
    -------
    FitFuture
        A ``concurrent.futures.Future`` that can also be awaited. Its result is the fitted model, or the error of the
        fit is raised. ``future.cancel()`` ends a fit that runs, too: whoever waits is told at once, and the ranks stop
        at their next look, within a tile of their work.

    Examples
    --------
    >>> from mgclust import DensityPeaks, submit
    >>> rows = [[0.0], [0.1], [0.2], [5.0], [5.1], [5.2]]
    >>> futures = [submit(DensityPeaks(k, client=None), rows) for k in (1, 2)]
    >>> [future.result().n_clusters_ for future in futures]
    [1, 2]

    In a coroutine: ``model = await submit(DensityPeaks(), X)``.
    """
    if not isinstance(model, Clusterer):
        raise InputError(f"model={type(model).__name__} should be an estimator of mgclust, such as DensityPeaks().")
    _reject_unknown(model, fit_parameters)
    leave_pool(model.client)
    future = FitFuture()

    def told(event: dict[str, Any]) -> None:
        if future.cancelled():
            raise RunCancelled("the fit was cancelled.")
        if on_progress is not None:
            on_progress(event)

    def fit() -> None:
        with contextlib.suppress(InvalidStateError):  # it was cancelled meanwhile
            try:
                fitted = model._fit(X, on_progress=told, **fit_parameters)
            except BaseException as error:
                future.set_exception(error)
            else:
                future.set_result(fitted)

    # With the caller's context, which has the client of ``Client.as_current()``.
    context = contextvars.copy_context()
    threading.Thread(target=context.run, args=(fit,), name="mgclust-fit", daemon=True).start()
    return future


def _reject_unknown(model: Clusterer, given: Iterable[str]) -> None:
    """Refuse what no fit of the model takes, before there is a future that would be the only one to know."""
    of_fits = inspect.signature(model.fit_dataset).parameters.keys() - {"dataset", "on_progress", "provenance"}
    unknown = sorted(set(given) - of_fits)
    if unknown:
        name = type(model).__name__
        raise InputTypeError(
            f"{unknown[0]}= is nothing that a fit of {name} takes; beside X it takes {', '.join(sorted(of_fits))}. "
            f"Parameters of the method belong to {name}(...)."
        )
