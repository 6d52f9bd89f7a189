"""Which of CuPy's own kernels each method asks for first, as expressions of tiny arrays that make CuPy compile them.

CuPy compiles a kernel for each operation, with its types and dimensions, when it first meets it: some 0.1 s each, 40 to
60 a first fit. Evaluated side by side before they are needed, they take a fraction of that. As with the lists of
`mgclust.kernels.gpu_ahead`, what is missing is compiled when it is asked for.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import cupy as cp
import numpy as np

__all__ = ["METHODS", "expressions"]

LARGE = 1 << 20  # elements; CuPy selects from a large array by other kernels than from a small one

Expression = Callable[[], Any]


class Tiny:
    """Arrays of two elements, ``x`` of the rows' type; with 2, of two rows; with 1, a row that is broadcast."""

    def __init__(self, features: int, rows: int, dtype: np.dtype) -> None:
        self.features, self.type = features, dtype.type
        self.x, self.f, self.d = self._ones(dtype), self._ones("float32"), self._ones("float64")
        self.i, self.l, self.u = self._ones("int32"), self._ones("int64"), self._ones("uint64")
        self.byte, self.bool, self.zero = self._ones("uint8"), self._ones("bool"), self._ones("int64", value=0)
        self.x2, self.d2, self.l2, self.u2 = (
            self._ones(each, (2, 2)) for each in (dtype, "float64", "int64", "uint64")
        )
        self.d1, self.u1, self.l1, self.x1 = self.d2[:1], self.u2[:1], self.l2[:1], self.x2[:1]
        n = max(2, min(rows, LARGE))
        self.mask, self.numbers = self._ones("bool", n, 0), self._ones("int64", n)

    @staticmethod
    def _ones(dtype: Any, shape: int | tuple[int, int] = 2, value: int = 1) -> Any:
        return cp.asarray(np.full(shape, value, dtype))  # copied from the host: to fill on the device is a kernel


def expressions(function: str, features: int, rows: int, dtype: np.dtype) -> list[Expression]:
    """Return the expressions of a method's default path; see `Kernels.compile_ahead`."""
    return METHODS[function](Tiny(features, rows, dtype)) if function in METHODS else []


def _rows(t: Tiny) -> list[Expression]:
    """Rows are checked, summed by column, moved to their centre and gathered."""
    return [
        lambda: cp.isfinite(t.x),
        lambda: t.x.reshape(1, 1, 2).sum(axis=1, dtype="float64"),
        lambda: t.x2.reshape(1, 2, 2).sum(axis=1, dtype="float64"),
        lambda: t.d.reshape(1, 1, 2).sum(axis=1, dtype="float64"),
        lambda: t.d2.reshape(1, 2, 2).sum(axis=1, dtype="float64"),
        lambda: t.d.reshape(1, 1, 2).sum(axis=1),
        lambda: t.d2.reshape(1, 2, 2).sum(axis=1),
        lambda: t.d + t.d,
        lambda: t.x2 - t.d1,
        lambda: t.d**2,
        lambda: t.d.astype(t.x.dtype),
        lambda: abs(t.x),
        lambda: cp.maximum(t.d, t.x.max()),
        lambda: t.d.copy(),
        lambda: t.x.copy(),
        lambda: t.l.copy(),
        lambda: t.x2[t.zero],
        lambda: cp.full(2, np.inf, t.x.dtype),
        lambda: cp.arange(2),
        lambda: cp.full(2, -1, "int64"),
        lambda: cp.full(2, -1, "int32"),
        lambda: t.l.astype("int32"),
        lambda: t.i.astype("int64"),
    ]


def _hashes(t: Tiny) -> list[Expression]:
    return [lambda: t.u >> np.uint64(30), lambda: t.u ^ t.u, lambda: t.u * np.uint64(3)]


def _selection(t: Tiny) -> list[Expression]:
    """``x[mask]`` of many rows."""
    return [lambda: t.numbers[t.mask], lambda: cp.flatnonzero(t.mask)]


def _density_peaks(t: Tiny) -> list[Expression]:
    found = [
        *_rows(t),
        lambda: cp.cumsum(t.l),
        lambda: t.l[[0, -1]],
        lambda: cp.searchsorted(t.l, t.l),
        lambda: t.l + t.l,
        lambda: -t.d,
        lambda: cp.arange(2, dtype="int32"),
        lambda: t.i.__setitem__(t.zero, t.i),
        lambda: t.l.__setitem__(t.zero, t.l),
        lambda: t.i.copy(),
        lambda: t.i[t.zero],
        lambda: t.x.astype("float64"),
        lambda: cp.sqrt(t.d),
        lambda: t.l == t.l,
        lambda: t.x.copy().__setitem__(0, 1.0),
    ]
    if t.features <= 3:
        return [*found, *_near_linear(t)]
    return [
        *found,
        *_hashes(t),
        lambda: t.x[t.zero],
        lambda: cp.maximum(t.x.max(), -t.x.min()),
        lambda: t.x * t.type(2),
        lambda: t.x + t.type(0),
        lambda: t.x.view(f"u{t.x.itemsize}").astype("uint64"),
        lambda: t.u2 + t.u1,
        lambda: t.u.copy(),
        lambda: t.u == t.u,
        lambda: t.l != t.l,
        lambda: t.l - 1,
        lambda: cp.full(2, 1, np.uint64),
    ]


def _near_linear(t: Tiny) -> list[Expression]:
    x3, complex2 = t.x2.reshape(1, 2, 2), cp.asarray(np.ones((2, 2), complex))
    return [
        lambda: t.x2.astype("float64").min(axis=0),
        lambda: t.x2.astype("float64").max(axis=0),
        lambda: t.d - t.d,
        lambda: t.d2 - t.d1,
        lambda: 2.0 / t.d,
        lambda: t.l2[:, 0] << 1,
        lambda: t.l2[:, 0] | t.l,
        lambda: t.l & 1,
        lambda: t.l << 1,
        lambda: t.l | t.l,
        lambda: x3.min(axis=1),
        lambda: x3.max(axis=1),
        lambda: x3.transpose(0, 2, 1).copy(),
        lambda: t.x2.T.copy(),
        lambda: t.x2.min(axis=0),
        lambda: t.x2.max(axis=0),
        lambda: t.l.astype("float64"),
        lambda: complex2 * t.d1,
        lambda: complex2.copy(),
        lambda: t.d - 1.0,
        lambda: t.d < 1.0,
        lambda: t.d > 1.0,
        lambda: cp.where(t.bool, t.d, 1.0),
        lambda: t.d2 * t.d1,
        lambda: t.d.astype("int64"),
        lambda: t.d / 2.0,
        lambda: t.d.__setitem__(t.zero, t.d),
        lambda: t.x.__setitem__(t.zero, t.x),
        lambda: cp.flatnonzero(t.mask),
    ]


def _fuzzy_c_means(t: Tiny) -> list[Expression]:
    return [
        *_rows(t),
        *_hashes(t),
        *_selection(t),
        lambda: cp.ones(2),
        lambda: t.l.astype("uint64"),
        lambda: t.u + np.uint64(1),
        lambda: t.u + t.u[:1],
        lambda: t.u.astype("float64"),
        lambda: t.d * 2.0,
        lambda: t.d > 0,
        lambda: -t.d,
        lambda: cp.log1p(t.d),
        lambda: cp.where(t.bool, t.d, 1.0),
        lambda: t.d / t.d,
        lambda: t.d == t.d[:1],
        lambda: cp.arange(2, dtype="int32"),
        lambda: t.x.astype("float64"),
        lambda: t.d * t.d,
        lambda: cp.concatenate([t.l, t.l]).astype("float64"),
        lambda: cp.stack([t.l, t.l]) / 2.0,
        lambda: 2.0 * t.d,
        lambda: t.d / 2.0,
        lambda: t.l + 1,
        lambda: t.d < t.d,
        lambda: cp.rint(t.d),
        lambda: t.d.astype("int64"),
        lambda: cp.cumsum(t.l),
        lambda: cp.searchsorted(t.l, t.l, side="right"),
        lambda: cp.minimum(t.d1, t.d2),
    ]


def _canopy(t: Tiny) -> list[Expression]:
    return [
        *_rows(t),
        lambda: -t.x,
        lambda: cp.minimum(t.x, t.x2.min(axis=0)),
        lambda: cp.maximum(t.x, t.x2.max(axis=0)),
        lambda: cp.ones(2, dtype="int32"),
        lambda: cp.flatnonzero(t.mask.view("uint8")),
        lambda: cp.flatnonzero(t.mask.view("uint8") == 0),
        lambda: t.l[t.zero],
        lambda: cp.arange(2, dtype="int32"),
    ]


def _silhouette(t: Tiny) -> list[Expression]:
    return [
        *_rows(t),
        lambda: 2.0 * t.l,
        lambda: t.l2 / t.d1,
        lambda: t.d2[t.i],
        lambda: t.d2[t.zero],
        lambda: t.x - t.d,
        lambda: t.x2[t.i],
        lambda: t.x2 + t.x1,
        lambda: t.type(2) * t.x,
        lambda: t.x < t.x,
        lambda: t.d[t.i],
        lambda: t.x2 + t.d1,
        lambda: t.x > t.d,
        lambda: t.bool | t.bool,
        lambda: t.bool & t.bool,
        lambda: cp.searchsorted(t.i, t.i),
        lambda: t.l2 / t.l1,
        lambda: t.i - np.int32(1),
        lambda: t.l[t.i],
        lambda: cp.maximum(t.l, 1),
        lambda: t.d * t.d,
        lambda: t.d * t.l,
        lambda: t.d / t.l,
        lambda: t.d / t.d,
        lambda: t.d - t.d,
        lambda: cp.maximum(t.d, t.d),
        lambda: t.l > 1,
        lambda: t.d > 0,
        lambda: cp.where(t.bool, t.d, 1.0),
        lambda: t.i.copy(),
        lambda: t.l - 1,
        lambda: t.i[t.zero],
    ]


def _nearest_neighbors(t: Tiny) -> list[Expression]:
    return [
        *_rows(t),
        lambda: cp.maximum(t.x.max(), -t.x.min()),
        lambda: t.x2[:, -1] * t.type(2),
        lambda: t.x * t.type(2),
        lambda: t.i > 1,
        lambda: cp.flatnonzero(t.mask),
        lambda: cp.sqrt(t.x),
    ]


def _affinity_propagation(t: Tiny) -> list[Expression]:
    return [
        *_rows(t),
        lambda: t.x2[:, 1:].fill(-np.inf),
        lambda: cp.full(1, np.inf),
        lambda: t.x > -np.inf,
        lambda: cp.where(t.bool, t.x, np.inf),
        lambda: cp.minimum(t.d, t.x.min()),
        lambda: t.x == -np.inf,
        lambda: t.x.__setitem__(t.bool, -np.inf),
        lambda: t.x2[t.zero, t.zero],
        lambda: t.l[t.zero],
        lambda: t.x.astype("float64"),
    ]


def _fast_newman(t: Tiny) -> list[Expression]:
    return [
        lambda: t.i.copy(),
        lambda: t.l2.astype("int32")[:, 0].copy(),
        lambda: cp.zeros(2, "int64").fill(1),
        lambda: cp.ones(2, dtype="int32"),
        lambda: t.l + t.l,
        lambda: t.i[t.i],
        lambda: t.i == t.i,
        lambda: t.l * t.l,
        lambda: t.l - t.l,
        lambda: cp.arange(2, dtype="int32"),
    ]


METHODS: Mapping[str, Callable[[Tiny], list[Expression]]] = {
    "density_peaks": _density_peaks,
    "fuzzy_c_means": _fuzzy_c_means,
    "canopy": _canopy,
    "silhouette": _silhouette,
    "search_neighbors": _nearest_neighbors,
    "affinity_propagation": _affinity_propagation,
    "adaptive_affinity_propagation": _affinity_propagation,
    "fast_newman": _fast_newman,
}
