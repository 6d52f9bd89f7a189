"""Sources of pictures: results, fitted estimators, and arrays with an entry per row."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from mgclust.base.errors import InputError
from mgclust.outside.quoting import shortened

if TYPE_CHECKING:
    from mgclust.results.result import Result

__all__ = ["feature_names_of", "holds_result", "labels_of", "one_per_row", "result_of", "result_with", "rows_of"]


def holds_result(source: Any) -> bool:
    """Return whether `source` is a `Result` or an estimator instead of an array."""
    return hasattr(source, "arrays") or hasattr(source, "get_params")


def result_of(source: Any) -> Any:
    """Return the result of a fitted estimator of mgclust; anything else is returned unchanged."""
    if hasattr(source, "fit_dataset") and not hasattr(source, "result_"):
        raise InputError(f"{type(source).__name__} is not fitted; call fit first.")
    return getattr(source, "result_", source)


def result_with(source: Any, needed: str, remedy: str) -> Result:
    """Return the result of a source; raise an error with `remedy` if the result lacks the array `needed`."""
    found = result_of(source)
    if not hasattr(found, "arrays"):
        raise InputError(f"{shortened(repr(source), 60)} is neither a result nor a fitted estimator; {remedy}.")
    if needed and needed not in found.arrays:
        raise InputError(f"a result of method={found.method!r} has no {needed}; {remedy}.")
    result: Result = found
    return result


def labels_of(labels: Any) -> Any:
    """Return labels as an array, from an array, a result or a fitted estimator (also of scikit-learn)."""
    if hasattr(labels, "get_params") and hasattr(labels, "labels_"):
        return np.asarray(labels.labels_)
    labels = result_of(labels)
    return np.asarray(labels.labels if hasattr(labels, "arrays") else labels)


def feature_names_of(X: Any, labels: Any = None) -> list[str] | None:
    """Return the column names of a table, or else the column names that a result or an estimator holds."""
    held = getattr(X, "column_names", getattr(X, "columns", None))
    if held is None:
        held = getattr(labels, "feature_names_in_", None)
    if held is None and holds_result(labels):
        held = getattr(result_of(labels), "source", {}).get("columns")
    return None if held is None or callable(held) else [str(name) for name in held]


def rows_of(X: Any) -> np.ndarray:
    """Return rows as a matrix of floats."""
    X = np.asarray(X.toarray() if hasattr(X, "toarray") else X, dtype=float)
    if X.ndim != 2:
        raise InputError(f"X has shape {X.shape}, it should be (n_samples, n_features).")
    return X


def one_per_row(name: str, values: Any, n: int, what: str = "row of X") -> np.ndarray:
    """Return values as an array after a check that there is one entry per row."""
    values = np.asarray(values)
    if values.shape != (n,):
        raise InputError(f"{name} has shape {values.shape}, it should be ({n},): one entry per {what}.")
    return values
