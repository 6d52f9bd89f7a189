"""Fits in the background: several fits at a time, each with a future that coroutines can await.

Each fit has its own thread, which sleeps while the ranks compute on a cluster. Fits that need the same workers wait for
each other, just as runs of several clients wait.
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
    """Future of a fit in the background: a ``concurrent.futures.Future`` that coroutines can also await.

    `submit` returns this future. ``concurrent.futures.wait`` and ``as_completed`` accept it. The result of the future
    is the fitted estimator. If the fit fails, ``result()`` raises the error and ``exception()`` returns it. Warnings of
    the fit are issued when the fit ends, in the thread of the fit.

    See Also
    --------
    mgclust.submit : Start a fit in the background.
    """

    def __init__(self) -> None:
        super().__init__()
        self._cancelling = threading.RLock()

    def cancel(self) -> bool:
        """End the fit on all ranks, even while it runs.

        In contrast, the future of an executor cannot be cancelled while its call runs. All callers that wait for the
        fit get ``concurrent.futures.CancelledError`` at once. Each rank stops at its next check, at most one tile of
        work later.

        Returns
        -------
        bool
            False if the fit had already ended, else True.
        """
        with self._cancelling:
            if self.cancelled():
                return True
            if not super().cancel():
                return False
            self.set_running_or_notify_cancel()  # wakes `concurrent.futures.wait` and `as_completed`
        return True

    def __await__(self) -> Generator[Any, None, Any]:
        """Wait in a coroutine. If the coroutine is cancelled, the fit is also cancelled."""
        return asyncio.wrap_future(self).__await__()


def submit(model: Clusterer, X: Any, *, on_progress: Progress | None = None, **fit_parameters: Any) -> FitFuture:
    """Run ``model.fit(X)`` in the background, and return a future at once.

    Parameters
    ----------
    model : estimator
        The estimator to fit. Do not use it for anything else until the future is done: for several fits, make copies
        with ``sklearn.base.clone``. To run on a Dask client, pass the client to the estimator as ``client=``, or make
        it the active client. The client may be a ``Client(asynchronous=True)``.
    X : array of shape (n_samples, n_features), path, URL or Dataset
        The rows, as for ``fit``.
    on_progress : callable, optional
        Receives the progress, as described for `fit_dataset`. It is called in the thread of the fit.
    **fit_parameters
        Further arguments of ``fit``, such as ``sample_weight`` if the method accepts it.

    Returns
    -------
    FitFuture
        A ``concurrent.futures.Future`` that coroutines can also await. Its result is the fitted model. If the fit
        fails, ``result()`` raises the error. ``future.cancel()`` also ends a fit that is running; see
        ``FitFuture.cancel``.

    Raises
    ------
    InputError
        If `model` is not an estimator of mgclust, or if its ``fit`` does not accept one of the arguments. `submit`
        raises this error at once. The future raises all other errors.

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
        with contextlib.suppress(InvalidStateError):  # the fit was cancelled meanwhile
            try:
                fitted = model._fit(X, on_progress=told, **fit_parameters)
            except BaseException as error:
                future.set_exception(error)
            else:
                future.set_result(fitted)

    # The caller's context holds the client of ``Client.as_current()``.
    context = contextvars.copy_context()
    threading.Thread(target=context.run, args=(fit,), name="mgclust-fit", daemon=True).start()
    return future


def _reject_unknown(model: Clusterer, given: Iterable[str]) -> None:
    """Raise an error at once for unknown arguments of the fit, instead of later in the future."""
    of_fits = inspect.signature(model.fit_dataset).parameters.keys() - {"dataset", "on_progress", "provenance"}
    unknown = sorted(set(given) - of_fits)
    if unknown:
        name = type(model).__name__
        raise InputTypeError(
            f"{unknown[0]}= is not a parameter of {name}.fit, which takes X and {', '.join(sorted(of_fits))}; pass "
            f"parameters of the method to {name}(...)."
        )
