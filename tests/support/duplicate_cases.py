"""Integer data with many equal rows: pendigits rounded to tens, in few features and in many."""

from __future__ import annotations

import numpy as np

from oracles.density_peaks import METRICS
from support.points import load_points

FEATURES = {"few": 3, "all": 16, "many": 24}


def rows(features: str) -> np.ndarray:
    X = np.round(load_points("pendigits")[0] / 10) * 10
    if features == "few":
        return np.ascontiguousarray(X[:, :3])
    return np.hstack([X, X])[:, : FEATURES[features]]


def cases() -> list[tuple[str, str, dict[str, object]]]:
    """Features, metric and more parameters of `DensityPeaks`; of three features, no direction is needed."""
    found = [(features, metric, {}) for features in FEATURES for metric in METRICS[: 3 if features == "few" else None]]
    # With a large dc, distances of many features come from products where there is a kernel for it.
    return [*found, ("many", "euclidean", {"dc_fraction": 0.4})]


def assert_ties_follow_the_rule(model, X) -> None:
    """Equal rows have equal densities, and the first of them is the nearest denser row of the others."""
    _, first, group = np.unique(X, axis=0, return_index=True, return_inverse=True)
    first = first[group.ravel()]
    assert (first != np.arange(len(X))).sum() > 30
    np.testing.assert_array_equal(model.rho_, model.rho_[first])
    others = np.flatnonzero(first != np.arange(len(X)))
    assert not model.delta_[others].any()
    np.testing.assert_array_equal(model.nearest_higher_[others], first[others])
