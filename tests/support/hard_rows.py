"""Rows that are hard for affinity propagation, and what a plain oracle expects of their results."""

from __future__ import annotations

import numpy as np

from oracles import affinity_propagation as oracle

FEATURES = (3, 17, 64, 300)
KINDS = (
    "duplicates", "1e-5", "1e-4", "1e-3", "one-hot", "lattice", "offset", "ten orders of norms", "sparse 0/1",
    "heavy tails",
)  # fmt: skip


def rows(kind: str, d: int) -> tuple[np.ndarray, np.ndarray | None]:
    """Rows, and the cluster of each, if it is sure: of those that are equal or nearly so."""
    rng = np.random.default_rng(KINDS.index(kind) * 1000 + d)
    if kind in ("duplicates", "1e-5", "1e-4", "1e-3"):
        distinct = 20 if d < 64 else 60
        y = rng.permutation(np.repeat(np.arange(distinct), 4 if d >= 64 else 8))
        centers = rng.normal(size=(distinct, d))
        if d < 64:
            centers /= np.linalg.norm(centers, axis=1)[:, None] / d  # on a sphere
        apart = 0.0 if kind == "duplicates" else float(kind)
        sure = np.sort(oracle.similarity(centers) + np.diag(np.full(distinct, -np.inf)), axis=1)[:, -1].max()
        X = centers[y] + apart * rng.normal(size=(len(y), d))
        # Equal rows are a cluster where the nearest other ones are farther than an exemplar costs.
        sure_of = np.median(oracle.similarity(X)) > sure * np.bincount(y).min()
        return X, y if sure_of else None
    if kind == "one-hot":
        y = rng.integers(min(d, 6), size=200)
        return np.eye(d)[y], y
    if kind == "lattice":
        X = np.stack(np.meshgrid(*[np.arange(13.0)] * 2), -1).reshape(-1, 2)
        return np.pad(X, ((0, 0), (0, d - 2))), None
    if kind == "offset":
        return rng.normal(size=(200, d)) + 1e3, None
    if kind == "ten orders of norms":
        return rng.normal(size=(200, d)) * 10 ** rng.uniform(-5, 5, (200, 1)), None
    if kind == "sparse 0/1":
        return (rng.random((240, d)) < min(0.4, 3 / d)).astype(float), None
    return rng.standard_t(1.5, size=(200, d)), None


def improved(S: np.ndarray, exemplars: np.ndarray) -> float:
    """The most that one exemplar more, one less, or another one in place of one adds to the net similarity."""
    best, n = -np.inf, len(S)
    own = oracle.net_similarity(S, exemplars)
    similar = S[:, exemplars].copy()
    similar[exemplars] = -np.inf
    similar[exemplars, np.arange(len(exemplars))] = S[exemplars, exemplars]
    nearest = similar.max(axis=1)
    others = [k for k in range(n) if k not in set(exemplars.tolist())]
    for k in others:
        more = np.maximum(nearest, S[:, k])
        more[exemplars], more[k] = nearest[exemplars], S[k, k]
        best = max(best, more.sum() - own)
    for k in exemplars if len(exemplars) > 1 else ():
        best = max(best, oracle.net_similarity(S, exemplars[exemplars != k]) - own)
    return best


def check(model, S: np.ndarray, y: np.ndarray | None) -> None:
    """Whether labels are those of the nearest exemplars, equal rows are together, and poor results are said."""
    exemplars = model.cluster_centers_indices_
    doubt = not model.converged_ or any("poor optimum" in text for text in model.result_.warnings)
    if not len(exemplars):
        assert not model.converged_ and model.result_.warnings
        return
    S = S.copy()
    np.fill_diagonal(S, model.preference_)
    labels = oracle.assign_to_exemplars(S, exemplars)
    different = np.flatnonzero(labels != model.labels_)
    off = S[different, exemplars[labels[different]]] - S[different, exemplars[model.labels_[different]]]
    assert (off <= 1e-5 * np.abs(S).max()).all()
    if y is not None:
        assert not doubt
        pairs = np.unique(np.column_stack([y, model.labels_]), axis=0)
        assert len(exemplars) == len(np.unique(y)) == len(pairs)
    elif not doubt:
        assert improved(S, exemplars) <= max(0.01 * np.abs(oracle.net_similarity(S, exemplars)), abs(model.preference_))
