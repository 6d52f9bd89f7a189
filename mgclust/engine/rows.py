"""The rows that one rank owns, wherever they are.

Rows that fit stay on the device (resident) for the whole run. Others stay on the host or in their source and
are copied in chunk by chunk and block by block; an algorithm sees the same arrays, only more of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple, Protocol

import numpy as np

from mgclust.engine.memory import MAX_PIECE
from mgclust.kernels import Kernels
from mgclust.kernels.masks import all_true, any_true
from mgclust.kernels.pairs.metrics import METRICS

__all__ = ["Beside", "Block", "RowSource", "Rows", "few_digits", "offset_of", "share_of"]

Array = Any
Transform = Callable[[Array], Array]

MIN_CHUNK = 1 << 18  # numbers that are read together, though they lie in several arrays
OFFSET_ROWS = 1024
SMALLEST_DEVIATION = 1e-12  # of a row's numbers beside their mean, which is more than their rounding


class RowSource(Protocol):
    """Source of rows; a `mgclust.data.Dataset` is one."""

    shape: tuple[int, int]
    dtype: np.dtype
    kind: str

    def read(self, start: int, stop: int) -> Array:
        """Rows start to stop - 1."""

    def take(self, indices: Any) -> np.ndarray:
        """A few rows by their numbers, on the host."""


class Beside(NamedTuple):
    """A rank's share of rows that are met with those of the data, such as new ones of a prediction.

    Attributes
    ----------
    source : RowSource
    start, stop : int
        The share; all are as large, to a row.
    """

    source: RowSource
    start: int
    stop: int

    @classmethod
    def of(cls, source: RowSource, rank: int, size: int) -> Beside:
        """The share of a rank among so many.

        Parameters
        ----------
        source : RowSource
        rank, size : int
        """
        return cls(source, *share_of(source.shape[0], rank, size))

    def read(self) -> np.ndarray:
        """The rows, on the host."""
        rows = self.source.read(self.start, self.stop)
        return np.asarray(rows.get() if hasattr(rows, "get") else rows)


def share_of(rows: int, rank: int, size: int) -> tuple[int, int]:
    """The first and one more than the last of the rows that are one rank's of so many."""
    return rows * rank // size, rows * (rank + 1) // size


class Block(NamedTuple):
    """Consecutive rows, with their numbers in the whole data.

    Attributes
    ----------
    start, stop : int
        The first row's number, and one more than the last one's.
    x : array
        The rows, on the device.
    """

    start: int
    stop: int
    x: Array


def few_digits(mean: np.ndarray, deviation: np.ndarray) -> np.ndarray:
    """Round a mean to a power of two below the standard deviation of each feature.

    Subtracting a number with few digits is exact for data that have few themselves, such as integers: distances that
    are equal then stay equal, which the mean itself would not grant.
    """
    # Of a constant feature only rounding is left.
    step = np.exp2(np.floor(np.log2(np.maximum(deviation, np.abs(mean) * 1e-15 + 1e-300))) - 2)
    with np.errstate(invalid="ignore"):  # NaN where the deviation has overflown
        return np.round(mean / step) * step


def offset_of(source: RowSource, dtype: np.dtype, metric: str, typical: np.ndarray | None = None) -> np.ndarray | None:
    """Find a point near the data to subtract before rows are rounded to a narrower type, or None if they are not.

    float64 rows far from the origin would lose in float32 the digits by which they differ.

    Parameters
    ----------
    source : RowSource
    dtype : numpy.dtype
        The narrower type.
    metric : str
        None either, where it is not one whose distances the point changes not.
    typical : int array, optional
        Numbers of rows near which the point should lie; the first rows by default.
    """
    if source.dtype.itemsize <= np.dtype(dtype).itemsize or metric not in METRICS or METRICS[metric].unit_rows:
        return None
    few = source.read(0, min(OFFSET_ROWS, source.shape[0])) if typical is None else source.take(typical)
    host = np.asarray(few.get() if hasattr(few, "get") else few, np.float64)
    host = host[np.isfinite(host).all(axis=1)]
    with np.errstate(over="ignore", invalid="ignore"):  # what overflows is refused once the rows are read
        if len(host):  # one row that the type cannot hold would carry the mean, and so all others, beyond it
            host = host[(abs(host - np.median(host, axis=0)) <= np.finfo(dtype).max).all(axis=1)]
        return few_digits(host.mean(axis=0), host.std(axis=0)) if len(host) else None


def _own_means(rows: Array) -> Array:
    """Mean of each row, of few digits; 0 where nothing but rounding is left beside it, or it is beyond float64.

    It depends on the row alone, and in the last places of the sum, which devices add in other orders, hardly ever.
    """
    with np.errstate(over="ignore", invalid="ignore"):
        mean, deviation = rows.mean(axis=1, keepdims=True), rows.std(axis=1, keepdims=True)
        near = few_digits(mean, deviation)
        return np.where((deviation > SMALLEST_DEVIATION * abs(mean)) & np.isfinite(near), near, 0.0)


class Rows:
    """A rank's rows ``start`` to ``stop - 1``.

    Parameters
    ----------
    source : RowSource
        Read by global row numbers.
    start, stop : int
        The rows of this rank.
    dtype : numpy.dtype
        What kernels see: float32 or float64; int32 where rows are the edges of a graph.
    kernels : module
        Of this rank's device.
    block_rows : int
        Rows of a block.
    piece : int
        Numbers that are read, converted and transformed together, so that temporaries stay small; at least a row is.
        Also an attribute.
    chunk_rows : int or None
        None: resident. Else the rows that are on the device at a time.
    keep_on_host : bool
        Streamed rows are read from the source once and kept in host memory (see ``host_empty`` of the kernels).
    offset : ndarray of shape (n_features,), float64, optional
        Subtracted before rows become `dtype`; see `offset_of`. Also an attribute.
    metric : str, optional
        Where it centres each row by its own mean, that of wider rows is subtracted before they become `dtype`.
    """

    def __init__(
        self,
        source: RowSource,
        start: int,
        stop: int,
        *,
        dtype: np.dtype,
        kernels: Kernels,
        block_rows: int,
        piece: int = MAX_PIECE,
        chunk_rows: int | None = None,
        keep_on_host: bool = False,
        offset: np.ndarray | None = None,
        metric: str = "",
    ) -> None:
        self.start = start
        self.stop = stop
        self.n_features = source.shape[1]
        self.dtype = np.dtype(dtype)
        self.block_rows = block_rows
        self.piece = piece
        self._kernels = kernels
        self._chunk_rows = chunk_rows
        self._source: RowSource | None = source
        self._transforms: list[Transform] = []
        self._device: Array | None = None
        self._host: np.ndarray | None = None
        self._keep_on_host = keep_on_host
        self.offset = offset
        self._center = metric in METRICS and METRICS[metric].center_rows
        self.vanished = 0.0  # the largest number of the source, where each that was read became 0 in `dtype`; else 0
        self.overflown = 0.0  # the largest one, where some became infinite in `dtype`; else 0
        self.rounded = False  # whether a number that was read has changed in `dtype`
        self._seen = False  # a number other than 0 in `dtype`

    def __len__(self) -> int:
        return self.stop - self.start

    @property
    def resident(self) -> bool:
        """True if all rows are on the device."""
        return self._chunk_rows is None

    @property
    def chunk_count(self) -> int:
        """Number of chunks of this rank; at least one."""
        return 1 if self._chunk_rows is None else max(1, -(-len(self) // self._chunk_rows))

    def load(self) -> tuple[int, int | None]:
        """Read every row once and look for NaN and infinity.

        Returns
        -------
        bad : int
            How many values are not finite in `dtype`.
        first : int or None
            The first row, by its number in the whole data, that has one.
        """
        shape = (len(self), self.n_features)
        if self.resident:
            self._device = self._kernels.xp.empty(shape, self.dtype)
        elif self._keep_on_host:
            self._host = self._kernels.memory.host_empty(shape, self.dtype)
        if self._source is not None and hasattr(self._source, "expect"):
            self._source.expect(self.start, self.stop)
        bad, first = 0, None
        for start, stop in self._cut(self.start, self.stop, getattr(self._source, "edges", ())):
            chunk = self._read_source(start, stop)
            if self._host is not None:
                self._host[start - self.start : stop - self.start] = self._kernels.memory.to_host(chunk)
            x = self._kernels.memory.to_device(chunk)
            if self._device is not None:
                self._device[start - self.start : stop - self.start] = x
            count, row = self._not_finite(x)
            if count and first is None:
                first = start + row
            bad += count
            if count and self.dtype == np.float32:
                self.overflown = max(self.overflown, self._largest_finite(start, stop))
        if self._device is not None or self._host is not None:
            self._source = None  # what the caller handed over may now be freed
        return bad, first

    def apply(self, transform: Transform) -> None:
        """Pass every row through ``transform`` from now on.

        Parameters
        ----------
        transform : callable
            Maps device rows (m, n_features) to rows of the same shape and dtype; a row's result may depend on
            that row alone. Resident rows are replaced at once, others at each read.
        """
        if self._device is None:
            self._transforms.append(transform)
            return
        self._replace(self._device, transform)

    def read(self, start: int, stop: int) -> Array:
        """Own rows by global number, on the device; a view where they are resident: do not write into it.

        Parameters
        ----------
        start, stop : int
            The first row, and one more than the last one.
        """
        if self._device is not None:
            return self._device[start - self.start : stop - self.start]
        if start == stop:
            return self._kernels.xp.empty((0, self.n_features), self.dtype)
        pieces = list(self._cut(start, stop))
        if len(pieces) == 1:
            return self._read_piece(start, stop)
        x = self._kernels.xp.empty((stop - start, self.n_features), self.dtype)
        for first, last in pieces:
            x[first - start : last - start] = self._read_piece(first, last)
        return x

    def narrowed(self, rows: Array) -> tuple[Array, Array]:
        """Subtract from rows what `fit` subtracts, and return the result as it is and in `dtype`.

        Parameters
        ----------
        rows : array of shape (m, n_features)
            Rows of the source, or rows that are compared with them.
        """
        # Too large for float32 becomes infinite and is refused as such.
        with np.errstate(over="ignore", invalid="ignore"):
            if self.offset is not None:
                rows = rows - (self._kernels.xp.asarray(self.offset) if hasattr(rows, "get") else self.offset)
            if self._center and rows.dtype.itemsize > self.dtype.itemsize:
                rows = rows.astype(rows.dtype, order="C", copy=False)
                rows = rows - _own_means(rows)
            return rows, rows.astype(self.dtype, order="C", copy=False)

    def release(self) -> None:
        """Free the memory of rows that the function will not ask for again."""
        self._device = self._host = self._source = None

    def block(self, block: int) -> Array:
        """Rows of one own block, on the device.

        Parameters
        ----------
        block : int
            Its number among all blocks.
        """
        start = block * self.block_rows
        return self.read(start, min(start + self.block_rows, self.stop))

    def chunks(self) -> Iterator[Block]:
        """Rows of this rank, one device array after the other: a single one where they are resident.

        Those kept in host memory come over the link while the caller works on the ones before.
        """
        step = self._chunk_rows or max(1, len(self))
        starts = [min(self.start + index * step, self.stop) for index in range(self.chunk_count)]
        bounds = [(start, min(start + step, self.stop)) for start in starts]
        if self._host is None or not len(self):
            for start, stop in bounds:
                yield Block(start, stop, self.read(start, stop))
            return
        chunks = (self._host[start - self.start : stop - self.start] for start, stop in bounds)
        for (start, stop), x in zip(bounds, self._kernels.memory.prefetch(chunks), strict=True):
            for transform in self._transforms:
                self._replace(x, transform)
            yield Block(start, stop, x)

    def _read_piece(self, start: int, stop: int) -> Array:
        x = self._kernels.memory.to_device(self._read_source(start, stop))
        for transform in self._transforms:
            x = transform(x)
        return x

    def _replace(self, x: Array, transform: Transform) -> None:
        """Transform rows where they are, piece by piece: temporaries are float64."""
        for start, stop in self._cut(0, len(x)):
            x[start:stop] = transform(x[start:stop])

    def _cut(self, start: int, stop: int, edges: Iterable[int] = ()) -> Iterator[tuple[int, int]]:
        """Cut rows into pieces; those that are not small, at edges: reading across would first copy arrays into one."""
        step, least = max(1, self.piece // self.n_features), max(1, min(self.piece, MIN_CHUNK) // self.n_features)
        ends = [*(edge for edge in edges if start < edge < stop), stop]
        for end in ends:
            if end < stop and end - start < least:
                continue
            for first in range(start, end, step):
                yield first, min(first + step, end)
            start = end

    def _read_source(self, start: int, stop: int) -> Array:
        if self._host is not None and self._source is None:
            return self._host[start - self.start : stop - self.start]
        assert self._source is not None
        rows = self._source.read(start, stop)
        if hasattr(rows, "__cuda_array_interface__") and self._kernels.xp is np:
            rows = rows.get()
        rows, narrow = self.narrowed(rows)
        if narrow.dtype.itemsize < rows.dtype.itemsize and not self.rounded:
            self.rounded = any_true(narrow != rows)
        if narrow.dtype.itemsize < rows.dtype.itemsize and not self._seen:
            self._seen = any_true(narrow != 0)
            # Without `initial=`, which arrays of CuPy do not take.
            self.vanished = 0.0 if self._seen or not rows.size else max(self.vanished, float(abs(rows).max()))
        return narrow

    def _largest_finite(self, start: int, stop: int) -> float:
        """The largest number of some rows of the source, 0 where `dtype` holds it."""
        assert self._source is not None
        rows = self._source.read(start, stop)  # on the host or on the device, whatever computes
        rows = np.asarray(rows.get() if hasattr(rows, "get") else rows)
        largest = float(abs(np.where(np.isfinite(rows), rows, 0)).max())
        return largest if largest > float(np.finfo(self.dtype).max) else 0.0

    def _not_finite(self, x: Array) -> tuple[int, int]:
        if x.dtype.kind != "f":
            return 0, -1
        finite = self._kernels.xp.isfinite(x)
        if all_true(finite):
            return 0, -1
        return int((~finite).sum()), int((~finite.all(axis=1)).argmax())
