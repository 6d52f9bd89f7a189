"""The rows that one rank owns, wherever they are stored.

Rows that fit stay on the device for the whole run (resident). Other rows stay on the host or in their source, and are
copied to the device chunk by chunk. An algorithm gets the same kind of arrays in both cases: one array if the rows are
resident, else one per chunk.
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

MIN_CHUNK = 1 << 18  # count of numbers that are read together even if they are in several arrays
OFFSET_ROWS = 1024
SMALLEST_DEVIATION = 1e-12  # relative to the mean of a row: smaller standard deviations are only rounding errors


class RowSource(Protocol):
    """Source of rows, such as a `mgclust.data.Dataset`."""

    shape: tuple[int, int]
    dtype: np.dtype
    kind: str

    def read(self, start: int, stop: int) -> Array:
        """Read rows start to stop - 1."""

    def take(self, indices: Any) -> np.ndarray:
        """Read a few rows by their numbers, to the host."""


class Beside(NamedTuple):
    """A rank's part of a second set of rows, such as new rows to predict, which is combined with the rows of the data.

    Attributes
    ----------
    source : RowSource
        Source of all rows of the second set.
    start, stop : int
        Range of this rank. The ranges of the ranks differ by at most one row.
    """

    source: RowSource
    start: int
    stop: int

    @classmethod
    def of(cls, source: RowSource, rank: int, size: int) -> Beside:
        """Make the part of a rank.

        Parameters
        ----------
        source : RowSource
            Source of all rows of the second set.
        rank, size : int
            Number of the rank, and number of ranks.
        """
        return cls(source, *share_of(source.shape[0], rank, size))

    def read(self) -> np.ndarray:
        """Read the rows of this part, to the host."""
        rows = self.source.read(self.start, self.stop)
        return np.asarray(rows.get() if hasattr(rows, "get") else rows)


def share_of(rows: int, rank: int, size: int) -> tuple[int, int]:
    """Range of rows (start, stop) of one rank, if rows are divided evenly among the ranks."""
    return rows * rank // size, rows * (rank + 1) // size


class Block(NamedTuple):
    """Consecutive rows, with their numbers in the whole data.

    Attributes
    ----------
    start, stop : int
        Number of the first row, and one more than the number of the last row.
    x : array
        The rows, on the device.
    """

    start: int
    stop: int
    x: Array


def few_digits(mean: np.ndarray, deviation: np.ndarray) -> np.ndarray:
    """Round a mean to a multiple of a power of two below the standard deviation of each feature.

    Subtracting a number with few digits is exact for data with few digits, such as integers. So distances that are
    equal stay equal. Subtracting the mean itself would not guarantee this.
    """
    # The deviation of a constant feature is only a rounding error.
    step = np.exp2(np.floor(np.log2(np.maximum(deviation, np.abs(mean) * 1e-15 + 1e-300))) - 2)
    with np.errstate(invalid="ignore"):  # NaN if the deviation overflows
        return np.round(mean / step) * step


def offset_of(source: RowSource, dtype: np.dtype, metric: str, typical: np.ndarray | None = None) -> np.ndarray | None:
    """Find a point near the data, to be subtracted before rows are rounded to a narrower type.

    Otherwise, when float64 rows far from the origin become float32, they would lose the digits in which they differ.

    Parameters
    ----------
    source : RowSource
        The rows.
    dtype : numpy.dtype
        Type on the device.
    metric : str
        Metric of the distances.
    typical : int array, optional
        Numbers of rows near which the point should lie; by default the first rows.

    Returns
    -------
    ndarray of shape (n_features,) or None
        None if the type is not narrower, or if subtracting a point would change distances of this metric.
    """
    if source.dtype.itemsize <= np.dtype(dtype).itemsize or metric not in METRICS or METRICS[metric].unit_rows:
        return None
    few = source.read(0, min(OFFSET_ROWS, source.shape[0])) if typical is None else source.take(typical)
    host = np.asarray(few.get() if hasattr(few, "get") else few, np.float64)
    host = host[np.isfinite(host).all(axis=1)]
    with np.errstate(over="ignore", invalid="ignore"):  # rows that overflow are rejected when they are read
        if len(host):  # a single row that the type cannot hold would make the mean overflow, and then all rows
            host = host[(abs(host - np.median(host, axis=0)) <= np.finfo(dtype).max).all(axis=1)]
        return few_digits(host.mean(axis=0), host.std(axis=0)) if len(host) else None


def _own_means(rows: Array) -> Array:
    """Return each row's mean, rounded to few digits; 0 if the deviation is a rounding error, or the mean overflows.

    The mean depends only on the row. Devices add in different orders, but the last digits of a sum hardly ever change
    the rounded mean.
    """
    with np.errstate(over="ignore", invalid="ignore"):
        mean, deviation = rows.mean(axis=1, keepdims=True), rows.std(axis=1, keepdims=True)
        near = few_digits(mean, deviation)
        return np.where((deviation > SMALLEST_DEVIATION * abs(mean)) & np.isfinite(near), near, 0.0)


class Rows:
    """Rows ``start`` to ``stop - 1`` of the data, which a rank owns.

    Parameters
    ----------
    source : RowSource
        Source of the rows, by global row numbers.
    start, stop : int
        Range of the rows of this rank.
    dtype : numpy.dtype
        Type in which kernels get the rows: float32 or float64; int32 if rows are the edges of a graph.
    kernels : module
        Kernels for the device of this rank.
    block_rows : int
        Number of rows of a block.
    piece : int
        Count of numbers that are read, converted and transformed together, but at least one row. It limits the size of
        temporary arrays. Also an attribute.
    chunk_rows : int or None
        Number of rows that are on the device at a time. None: all rows are resident.
    keep_on_host : bool
        Whether streamed rows are read from the source only once, and kept in host memory (see ``host_empty`` of the
        kernels).
    offset : ndarray of shape (n_features,), float64, optional
        Point that is subtracted before rows are converted to `dtype`; see `offset_of`. Also an attribute.
    metric : str, optional
        If this metric centres each row by its own mean, and the rows have a wider type than `dtype`, the mean is
        subtracted before the rows are converted.
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
        self.vanished = 0.0  # largest number of the source if all numbers became 0 in `dtype`, else 0
        self.overflown = 0.0  # largest number of the source if some became infinite in `dtype`, else 0
        self.rounded = False  # whether any number changed when it was converted to `dtype`
        self._seen = False  # whether any number is not 0 in `dtype`

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
        """Read every row once, and check for NaN and infinity.

        Returns
        -------
        bad : int
            Number of values that are not finite in `dtype`.
        first : int or None
            Global number of the first row with such a value; None if there is none.
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
            self._source = None  # rows of the caller may now be freed
        return bad, first

    def apply(self, transform: Transform) -> None:
        """Apply ``transform`` to every row from now on.

        Parameters
        ----------
        transform : callable
            Maps device rows of shape (m, n_features) to rows of the same shape and dtype. The result for a row may
            depend only on this row. Resident rows are replaced at once, other rows are transformed at each read.
        """
        if self._device is None:
            self._transforms.append(transform)
            return
        self._replace(self._device, transform)

    def read(self, start: int, stop: int) -> Array:
        """Return local rows by global number, on the device. Do not write into them: resident rows are a view.

        Parameters
        ----------
        start, stop : int
            Number of the first row, and one more than the number of the last row.
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
        """Subtract from rows what a fit subtracts; return the result in the type of the source and in `dtype`.

        Parameters
        ----------
        rows : array of shape (m, n_features)
            Rows of the source, or rows to be compared with them.
        """
        # Numbers that are too large for float32 become infinite, and are then rejected.
        with np.errstate(over="ignore", invalid="ignore"):
            if self.offset is not None:
                rows = rows - (self._kernels.xp.asarray(self.offset) if hasattr(rows, "get") else self.offset)
            if self._center and rows.dtype.itemsize > self.dtype.itemsize:
                rows = rows.astype(rows.dtype, order="C", copy=False)
                rows = rows - _own_means(rows)
            return rows, rows.astype(self.dtype, order="C", copy=False)

    def release(self) -> None:
        """Free the memory of rows that the function will not read again."""
        self._device = self._host = self._source = None

    def block(self, block: int) -> Array:
        """Return the rows of a block that this rank owns, on the device.

        Parameters
        ----------
        block : int
            Number of the block among all blocks.
        """
        start = block * self.block_rows
        return self.read(start, min(start + self.block_rows, self.stop))

    def chunks(self) -> Iterator[Block]:
        """Yield the rows of this rank as device arrays, one after the other: a single array if they are resident.

        Rows in host memory are copied while the caller works on the previous array.
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
        """Transform rows in place, piece by piece, because temporary float64 arrays would take much memory."""
        for start, stop in self._cut(0, len(x)):
            x[start:stop] = transform(x[start:stop])

    def _cut(self, start: int, stop: int, edges: Iterable[int] = ()) -> Iterator[tuple[int, int]]:
        """Split rows into pieces. Large pieces end at `edges` of arrays: a read across an edge would copy arrays."""
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
            # `initial=` is not used, because arrays of CuPy do not support it.
            self.vanished = 0.0 if self._seen or not rows.size else max(self.vanished, float(abs(rows).max()))
        return narrow

    def _largest_finite(self, start: int, stop: int) -> float:
        """Return the largest finite magnitude in some rows of the source; 0 if `dtype` can represent it."""
        assert self._source is not None
        rows = self._source.read(start, stop)  # on the host, or on the device that computes
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
