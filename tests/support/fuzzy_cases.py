"""Rows and initial memberships from which fuzzy c-means programs are compared, in tests and in a benchmark."""

from __future__ import annotations

import numpy as np

from oracles import fuzzy_c_means as reference
from support.points import load_points

ITERATIONS = (1, 10, 100)
# name: clusters; random memberships, m = 2
PLAIN = {"clusters": 31, "overlap1": 15, "overlap2": 15, "overlap3": 15, "pendigits": 10}
CASES = (
    *PLAIN,
    "shifted by 1000 sigma",
    "duplicates of centres",
    "every row has its centre",
    "c = 1",
    "c = n",
    "c = n, each its own",
    "c = 1000",
    "m = 10",
    "m = 10, around rows",
    "m = 1.001",
)


def random_memberships(n: int, c: int, seed: int = 0) -> np.ndarray:
    """Random rows: the first centres lie close together near the mean, the hardest start there is."""
    U = np.random.default_rng(seed).random((n, c))
    return U / U.sum(axis=1, keepdims=True)


def around_rows(X: np.ndarray, c: int, seed: int = 0) -> np.ndarray:
    """The memberships of c rows as centres."""
    rows = np.random.default_rng(seed).choice(len(X), c, replace=False)
    return reference.memberships(X, np.asarray(X, "float64")[rows], 2.0)


def start_of(name: str) -> tuple[np.ndarray, np.ndarray, float, np.ndarray | None]:
    """X, initial memberships, m, and the true labels where there are any."""
    if name in PLAIN:
        X, y = load_points(name)
        return X, random_memberships(len(X), PLAIN[name]), 2.0, y
    X, y = load_points("clusters")
    if name == "shifted by 1000 sigma":
        return X + 1000 * X.std(axis=0), random_memberships(len(X), 31), 2.0, y
    if name == "duplicates of centres":
        return (*_duplicates(X), 2.0, None)
    if name == "every row has its centre":
        places = np.random.default_rng(3).permutation(np.repeat(X[::620], 40, axis=0))
        return places, np.eye(5)[np.unique(places, axis=0, return_inverse=True)[1]], 2.0, None
    if name == "c = 1":
        return X, np.ones((len(X), 1)), 2.0, None
    if name == "c = n":
        return X[::16], random_memberships(194, 194), 2.0, None
    if name == "c = n, each its own":
        return X[::16], np.eye(194), 2.0, None
    if name == "c = 1000":
        # Of 20 of the 31 clusters: rounding then grows to 1e-10 in 100 iterations, of rows of all clusters to 1e-4.
        return X[y < 20], random_memberships(2000, 1000), 2.0, None
    if name == "m = 10":
        return X, random_memberships(len(X), 31), 10.0, None
    if name == "m = 10, around rows":
        return X, around_rows(X, 31), 10.0, y
    # From random memberships m = 1.001 amplifies rounding more than 1000-fold an iteration: two float64 programs that
    # differ in the last digit share nothing after ten. From distinct rows it is as well behaved as k-means.
    return X, around_rows(X, 31), 1.001, y


def _duplicates(X: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """2,000 copies of three rows among others, with memberships whose means are these very rows."""
    chosen = X[[100, 1100, 2100]]
    mixed = np.concatenate([X[::4], np.repeat(chosen, 2000, axis=0)])
    U = np.full((len(mixed), 31), 0.0)
    U[: len(X[::4]), 3:] = around_rows(X[::4], 28)
    U[len(X[::4]) :, :3] = np.repeat(np.eye(3), 2000, axis=0)
    return mixed, U
