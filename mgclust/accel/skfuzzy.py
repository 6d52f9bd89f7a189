"""Calls of scikit-fuzzy: fuzzy c-means from given memberships, with scikit-fuzzy's iterations and stop rule."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from mgclust.accel.calls import AccelSettings, Call, Unsupported

__all__ = ["CALLS"]

EPS = float(np.finfo(np.float64).eps)


def cmeans(
    settings: AccelSettings,
    data: Any,
    c: int,
    m: float,
    error: float,
    maxiter: int,
    metric: str = "euclidean",
    init: Any = None,
    seed: int | None = None,
) -> tuple[Any, ...]:
    """Cluster the columns of `data` in float64, by scikit-fuzzy's iterations from the same initial memberships."""
    if not (isinstance(c, (int, np.integer)) and c >= 1):
        raise Unsupported(f"c={c!r} should be an integer >= 1")
    return _iterations(settings, data, c, None, m, error, maxiter, metric, init, seed)


def cmeans_predict(
    settings: AccelSettings,
    test_data: Any,
    cntr_trained: Any,
    m: float,
    error: float,
    maxiter: int,
    metric: str = "euclidean",
    init: Any = None,
    seed: int | None = None,
) -> tuple[Any, ...]:
    """Compute the memberships of columns for given centres, with the same number of iterations as scikit-fuzzy."""
    centers = _matrix(cntr_trained, "cntr_trained")
    return _iterations(settings, test_data, len(centers), centers, m, error, maxiter, metric, init, seed)[1:]


def _iterations(
    settings: AccelSettings,
    data: Any,
    c: int,
    centers: np.ndarray | None,
    m: float,
    error: float,
    maxiter: int,
    metric: str,
    init: Any,
    seed: int | None,
) -> tuple[Any, ...]:
    from mgclust.algorithms.fuzzy_c_means.membership_iterations import iterate_memberships

    rows = _matrix(data, "data").T
    n, d = rows.shape
    if metric != "euclidean":
        raise Unsupported(f"metric={metric!r}: centres are means of rows only for 'euclidean'")
    if not (_is_real(m) and m > 1 and _is_real(error) and isinstance(maxiter, (int, np.integer)) and maxiter >= 1):
        raise Unsupported(f"m={m!r}, error={error!r}, maxiter={maxiter!r}: needs m > 1 and an integer maxiter >= 1")
    if n < 2 or (centers is not None and centers.shape[1] != d):
        raise Unsupported(
            f"mgclust does not support data of shape {(d, n)}"
            + ("" if centers is None else f" with centres of shape {centers.shape}")
        )
    put_back = _generator_as_it_is()
    try:
        start = _drawn(c, n, seed) if init is None else init
        u0 = _matrix(start, "init")
        if u0.shape != (c, n):
            raise Unsupported(f"init has shape {u0.shape}, but should have shape (c, N) = {(c, n)}")
        if not (u0 >= 0).all() or not u0.any(axis=0).all():
            raise Unsupported("init must not be negative, and each column needs a positive entry")
        found = iterate_memberships(
            rows, np.fmax(u0, EPS).T, centers, m=float(m), error=float(error), max_iter=int(maxiter), **settings.place
        )
    except BaseException:
        put_back()  # the original function will draw the same numbers
        raise
    history, n_iter = np.array(found.history), found.n_iter
    u, distances = np.ascontiguousarray(found.memberships.T), np.fmax(found.distances.T, EPS, order="C")
    return found.centers, u, start, distances, history, n_iter, np.float64(found.partition_coefficient)


def _drawn(c: int, n: int, seed: int | None) -> np.ndarray:
    """Draw memberships from NumPy's global generator, as scikit-fuzzy does."""
    if seed is not None:
        np.random.seed(seed=seed)
    drawn = np.random.rand(c, n)
    return drawn / drawn.sum(axis=0, keepdims=True)


def _generator_as_it_is() -> Callable[[], None]:
    state = np.random.get_state()
    return lambda: np.random.set_state(state)


def _matrix(given: Any, name: str) -> np.ndarray:
    array = given if isinstance(given, np.ndarray) else None
    if array is None or type(array) is not np.ndarray or array.ndim != 2 or array.dtype.kind not in "iuf":
        raise Unsupported(f"{name} should be a two-dimensional array of real numbers")
    return array.astype(np.float64, copy=False)


def _is_real(value: Any) -> bool:
    return isinstance(value, (int, float, np.integer, np.floating)) and not isinstance(value, bool)


CALLS = (
    Call(home="skfuzzy.cluster", path="cmeans", shown="skfuzzy.cmeans", ours=cmeans),
    Call(home="skfuzzy.cluster", path="cmeans_predict", shown="skfuzzy.cmeans_predict", ours=cmeans_predict),
)
