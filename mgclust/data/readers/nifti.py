"""One NIfTI or CIFTI file of time series: its header, and its numbers as a stream.

nibabel interprets the header. The numbers are read here, in the order in which they are stored, because a compressed
file can only be read once from front to back. A NIfTI file stores one volume after the other; a CIFTI file
(.dtseries.nii) stores the whole series of one grayordinate after the other.
"""

from __future__ import annotations

import gzip
import io
import math
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import product
from typing import IO, Any, Literal

import numpy as np

from mgclust.base.errors import InputError
from mgclust.data.base import float_dtype
from mgclust.data.location import Location, Stamp
from mgclust.outside.inflation import check_holds, check_memory
from mgclust.outside.quoting import reason, shortened

__all__ = [
    "CIFTI_EXTENSION",
    "VOLUMES",
    "Grid",
    "SeriesFile",
    "cifti_axes",
    "is_volume",
    "need_nibabel",
    "open_series",
    "read_header",
    "read_label_volume",
    "read_mask",
]

VOLUMES = (".nii", ".nii.gz")
CIFTI_EXTENSION = 32  # code of the header extension
# Bytes of the file that are read at a time.
_CHUNK_BYTES = 2**25
# Maximum bytes of a header with extensions. The largest headers in use describe a few hundred thousand grayordinates.
_LONGEST_HEADER = 2**26
_VOLUMES = {"mask": "a mask", "labels": "a volume of labels", "atlas": "an atlas"}
Smooth = Callable[[np.ndarray], Iterator[tuple[slice, np.ndarray]]]  # type of the argument of `SeriesFile.fill`
_ONE_VALUE = 1e-6  # relative difference that scaling may cause between nonzero values of a mask


@dataclass(frozen=True)
class Grid:
    """Grid of the voxels of a file."""

    shape: tuple[int, ...]  # voxels along i, j and k; for a CIFTI file, the number of grayordinates
    affine: tuple[tuple[float, ...], ...]  # maps (i, j, k, 1) to millimetres
    oriented: bool  # whether the file defines its affine, so that left and right are known

    @property
    def size(self) -> int:
        """Number of voxels."""
        return math.prod(self.shape)

    def same_as(self, other: Grid) -> bool:
        """Return whether both grids have the same shape, and the places of their voxels agree to 0.001 mm."""
        if self.shape != other.shape:
            return False
        # The largest difference of two affine maps on the grid is at one of its corners.
        corners = np.array([(*corner, 1) for corner in product(*((0, n - 1) for n in self.shape))])
        difference = np.array(self.affine) - np.array(other.affine)
        return bool(abs(difference @ corners.T).max() < 1e-3)

    def __str__(self) -> str:
        rows = ", ".join("[" + " ".join(f"{value:.6g}" for value in row) + "]" for row in self.affine[:3])
        return f"{' x '.join(map(str, self.shape))} voxels with affine {shortened(rows, 1000)}"


@dataclass(frozen=True)
class SeriesFile:
    """Facts about a file that workers need to read it."""

    location: Location
    stamp: Stamp
    kind: Literal["nifti", "cifti"]
    grid: Grid
    n_times: int
    dtype: np.dtype  # as stored, with its byte order
    offset: int  # byte of the first number in the uncompressed file
    # slope, inter: a value is ``slope * stored + inter``
    slope: float
    inter: float
    repetition_time: float | None  # seconds from one volume to the next, if the file states them

    @property
    def lossless(self) -> bool:
        """True if float32 holds every stored number."""
        return float_dtype(self.dtype, self.location.name) == np.float32

    @property
    def plain(self) -> bool:
        """True if the values equal the stored numbers."""
        return self.slope == 1 and self.inter == 0

    def values(self, stored: np.ndarray) -> np.ndarray:
        """Return the values of stored numbers, in float64."""
        with np.errstate(over="ignore", invalid="ignore"):
            return stored.astype(np.float64) * self.slope + self.inter

    def nonzero(self) -> np.ndarray:
        """Return the mask of the voxels whose value is not 0 at some time, in C order of the grid."""
        chosen = np.zeros(self.grid.size, dtype=bool)

        def look(voxels: slice, times: slice, stored: np.ndarray) -> None:
            chosen[voxels] |= ((stored if self.plain else self.values(stored)) != 0).any(axis=0)

        self._stream(look)
        return chosen[self._file_order()]

    def fill(self, out: np.ndarray, chosen: np.ndarray, skipped: int = 0, smooth: Smooth | None = None) -> None:
        """Read the series of some voxels as they are stored.

        Parameters
        ----------
        out : ndarray of shape (n, n_times - skipped), float32 or float64
            Receives the stored numbers.
        chosen : ndarray of shape (grid size,), bool
            Mask of the n voxels in C order of the grid, which is the order of the rows.
        skipped : int
            Number of volumes at the beginning that are left out.
        smooth : callable, optional
            ``smooth(stored)`` yields slices of volumes with their smoothed values, in the order of the file; only for
            NIfTI. `out` then receives these values instead of the stored numbers. It receives NaN for each value that
            is not finite before smoothing.
        """
        rows = self._file_order()[chosen]  # position in the file of each row

        def take(voxels: slice, times: slice, stored: np.ndarray) -> None:
            stored = stored[max(0, skipped - times.start) :]
            times = slice(max(0, times.start - skipped), max(0, times.stop - skipped))
            if smooth is not None:
                for some, values in smooth(stored):
                    here = values[:, rows]
                    here[~np.isfinite(self.values(stored[some][:, rows]))] = np.nan
                    out[:, times.start + some.start : times.start + some.stop] = here.T
                return
            if voxels.stop - voxels.start == self.grid.size:
                own: Any = slice(None)
                part = stored[:, rows]
            else:
                low, high = np.searchsorted(rows, (voxels.start, voxels.stop))
                own = slice(low, high)
                part = stored[:, rows[own] - voxels.start]
            out[own, times] = part.T

        self._stream(take)

    def _file_order(self) -> np.ndarray:
        """Return the position in the file of each voxel, for the voxels in C order of the grid."""
        return np.arange(self.grid.size).reshape(self.grid.shape, order="F").reshape(-1)

    def _stream(self, visit: Callable[[slice, slice, np.ndarray], None]) -> None:
        """Call `visit` with chunks (times x voxels, in file order) that together cover the whole file."""
        self.location.check(self.stamp)
        size, times = self.grid.size, self.n_times
        outer, inner = (times, size) if self.kind == "nifti" else (size, times)
        step = max(1, _CHUNK_BYTES // (inner * self.dtype.itemsize))
        with _decompressed(self.location) as stream:
            stream.seek(self.offset)
            for start in range(0, outer, step):
                stop = min(start + step, outer)
                wanted = (stop - start) * inner * self.dtype.itemsize
                data = stream.read(wanted)
                if len(data) < wanted:
                    raise _truncated(self.location, f"{start:,} of {outer:,} {_PARTS[self.kind]} are whole")
                stored = np.frombuffer(data, dtype=self.dtype).reshape(stop - start, inner)
                if self.kind == "nifti":
                    visit(slice(0, size), slice(start, stop), stored)
                else:
                    visit(slice(start, stop), slice(0, times), stored.T)
            while stream.read(_CHUNK_BYTES):  # read to the end, because the checksum of a compressed file is there
                pass


_PARTS = {"nifti": "volumes", "cifti": "series"}


def is_volume(location: Location) -> bool:
    """Return whether the name has the suffix of a NIfTI or CIFTI file."""
    return location.path.lower().endswith(VOLUMES)


def need_nibabel(name: str) -> Any:
    """Import nibabel, or raise an error with advice on how to install it."""
    try:
        import nibabel
        import nibabel.cifti2  # registers the header extension of CIFTI
    except ImportError as error:
        raise InputError(
            f"{name} is a NIfTI or CIFTI file, which needs nibabel; run pip install 'mgclust[fmri]'."
        ) from error
    return nibabel


def read_header(location: Location) -> Any:
    """Read the NIfTI-1 or NIfTI-2 header with its extensions, as an object of nibabel."""
    nibabel = need_nibabel(location.name)
    with _decompressed(location) as stream:
        start = stream.read(4)
        sizes = {348: nibabel.Nifti1Header, 540: nibabel.Nifti2Header}
        kind = sizes.get(int.from_bytes(start, "little")) or sizes.get(int.from_bytes(start, "big"))
        if kind is None:
            what = "is not a NIfTI file" if start else "is empty"
            raise InputError(f"{location.name} {what}; mgclust reads NIfTI-1, NIfTI-2 and CIFTI-2 (.nii, .nii.gz).")
        try:
            length = kind.template_dtype.itemsize
            start += stream.read(length - 4)
            with nibabel.imageglobals.LoggingOutputSuppressor(), warnings.catch_warnings(action="ignore"):
                offset = float(kind(start, check=False)["vox_offset"])
                if not offset <= _LONGEST_HEADER:
                    raise ValueError(f"vox_offset={offset:g} should be at most {_LONGEST_HEADER}")
                # Read no more than the header states: an extension may claim any size.
                start += stream.read(max(int(offset) - length, 4))
                header = kind.from_fileobj(io.BytesIO(start))
        except (EOFError, OSError):
            raise
        except Exception as error:  # parsers may fail in many ways on arbitrary bytes
            raise InputError(
                f"{location.name} is not a whole NIfTI file ({reason(error)}); copy or write it again."
            ) from error
    if bytes(header["magic"]).startswith(b"ni"):
        raise InputError(f"{location.name} is half of a pair (.hdr and .img); save it as one .nii or .nii.gz.")
    return header


def open_series(location: Location) -> SeriesFile:
    """Interpret the header of a file of time series; reject anything else."""
    with location.reading():
        stamp = location.stamp()
        header = read_header(location)
        cifti = CIFTI_EXTENSION in header.extensions.get_codes()
        shape = tuple(int(size) for size in header.get_data_shape())
        while len(shape) > 4 and shape[-1] == 1 and not cifti:
            shape = shape[:-1]
        if not cifti and len(shape) != 4:
            what = "one volume" if len(shape) == 3 else f"{len(shape)}-dimensional"
            raise InputError(f"{location.name} is {what} (shape={shape}); a BOLD series is 4-D: x, y, z and time.")
        if cifti:
            _check_cifti(location, header)
            shape = (shape[5], shape[4])
        if min(shape) < 1 or shape[-1] < 2:
            raise InputError(f"{location.name} has shape={shape}; clustering needs at least 2 points in time.")
        slope, inter = header.get_slope_inter()
        series = SeriesFile(
            location=location,
            stamp=stamp,
            kind="cifti" if cifti else "nifti",
            grid=Grid(shape[:-1], _affine(header), cifti or _oriented(header)),
            n_times=shape[-1],
            dtype=header.get_data_dtype(),
            offset=int(header.get_data_offset()),
            slope=1.0 if slope is None else float(slope),
            inter=0.0 if inter is None else float(inter),
            repetition_time=_step(header) if cifti else _repetition_time(header),
        )
        float_dtype(series.dtype, location.name)  # rejects colours and complex numbers
        _check_size(location, stamp, series.offset + math.prod(shape) * series.dtype.itemsize)
        return series


def cifti_axes(header: Any) -> list[Any]:
    """Return the axes of a CIFTI file; the axis of the points in time is first."""
    content = next(e.get_content() for e in header.extensions if e.get_code() == CIFTI_EXTENSION)
    return [content.get_axis(index) for index in sorted(content.mapped_indices)]


def read_mask(location: Location, grid: Grid, of: str) -> np.ndarray:
    """Read a mask of voxels.

    Parameters
    ----------
    location : Location
        A 3-D NIfTI file of 0 and 1. One other number may be used instead of 1, and NaN instead of 0.
    grid : Grid
        Grid that the mask must have.
    of : str
        Name of the file that has this grid, for messages.

    Returns
    -------
    ndarray of shape (grid size,), bool
        The mask in C order of the grid.
    """
    values = _read_volume(location, "mask", grid, of)
    chosen = (values != 0) & (values == values)
    if not chosen.any():
        raise InputError(f"mask={location.name!r} is empty: all its values are 0; give a mask that holds the brain.")
    largest = values[chosen].flat[abs(values[chosen]).argmax()]
    with np.errstate(invalid="ignore"):
        others = chosen & ~(abs(values - largest) <= _ONE_VALUE * abs(largest))
    if others.any():
        raise InputError(
            f"mask={location.name!r}: {100 * others.mean():.2g}% of its values are neither 0 nor {largest:g}, such as "
            f"{values[others][0]:g}; give a mask of 0 and 1, e.g. nilearn.image.math_img('img > 0.5', img=...)."
        )
    return chosen


def read_label_volume(
    location: Location, grid: Grid | None = None, of: str = "", what: str = "labels"
) -> tuple[Grid, np.ndarray]:
    """Read a volume of labels, such as an atlas.

    Parameters
    ----------
    location : Location
        A 3-D NIfTI file of whole numbers.
    grid : Grid, optional
        Grid that the volume must have.
    of : str
        Name of the file that has this grid, for messages.
    what : {"labels", "atlas"}
        Name of the option that names the volume, for messages.

    Returns
    -------
    grid : Grid
        Grid of the volume.
    labels : ndarray of shape (grid size,), int64
        Labels in C order of the grid; -1 (no label) where the volume is 0.
    """
    values = _read_volume(location, what, grid, of)
    wrong = ~(values == np.floor(values)) | (abs(values) >= 2**53)
    if wrong.any():
        raise InputError(
            f"{what}={location.name!r}: {100 * wrong.mean():.2g}% of its values are not whole numbers, such as "
            f"{values[wrong][0]:g}; give a volume with one label in each voxel."
        )
    labels = values.astype(np.int64)
    return _grid_of(location, what), np.where(labels == 0, -1, labels)


def _grid_of(location: Location, what: str) -> Grid:
    with location.reading():
        header = read_header(location)
        shape = tuple(int(size) for size in header.get_data_shape())
        while len(shape) > 3 and shape[-1] == 1:
            shape = shape[:-1]
        if len(shape) != 3:
            raise InputError(
                f"{what}={location.name!r} has shape={shape}; {_VOLUMES[what]} is 3-D: one value per voxel."
            )
        return Grid(shape, _affine(header), _oriented(header))


def _read_volume(location: Location, what: str, grid: Grid | None, of: str) -> np.ndarray:
    """Return the values of a 3-D file in C order of its grid."""
    with location.reading():
        if not is_volume(location):
            raise InputError(f"{what}={location.name!r} should be a NIfTI file (.nii, .nii.gz).")
        own = _grid_of(location, what)
        if grid is not None and not own.same_as(grid):
            raise InputError(
                f"{what}={location.name!r} is on another grid than {of}: it has {own}, and {of} has {grid}; "
                f"resample it to the grid of {of} with nearest neighbour."
            )
        header = read_header(location)
        dtype, offset = header.get_data_dtype(), int(header.get_data_offset())
        float_dtype(dtype, location.name)  # rejects colours and complex numbers
        wanted = own.size * dtype.itemsize
        _check_size(location, location.stamp(), offset + wanted)
        check_memory(f"{what}={location.name!r}", wanted + 9 * own.size)
        with _decompressed(location) as stream:
            stream.seek(offset)
            data = stream.read(wanted)
        if len(data) < wanted:
            raise _truncated(location, f"{len(data):,} of {wanted:,} bytes are there")
        stored = np.frombuffer(data, dtype=dtype).reshape(own.shape, order="F").reshape(-1)
        slope, inter = header.get_slope_inter()
        values: np.ndarray = stored if slope is None else float(slope) * stored.astype(float) + float(inter)
        return values


@contextmanager
def _decompressed(location: Location) -> Iterator[IO[bytes]]:
    """Open the uncompressed bytes of a file. Its content shows whether it is compressed; its name is not used."""
    with location.open() as file:
        magic = file.read(2)
        file.seek(0)
        if magic != b"\x1f\x8b":
            yield file
            return
        try:
            with gzip.GzipFile(fileobj=file) as stream:
                yield stream  # type: ignore[misc]
        except gzip.BadGzipFile as error:
            raise EOFError(str(error)) from error


def _truncated(location: Location, what: str) -> InputError:
    return InputError(f"{location.name} is truncated: {what}; copy or write it again.")


def _check_size(location: Location, stamp: Stamp, wanted: int) -> None:
    """Reject a file that is too small for its header, before memory is allocated for it."""
    with location.open() as file:
        compressed = file.read(2) == b"\x1f\x8b"
    if stamp.size:  # some servers do not report the size
        check_holds(location.name, wanted, stamp.size, compressed)


def _affine(header: Any) -> tuple[tuple[float, ...], ...]:
    affine = header.get_best_affine()
    if not np.isfinite(affine).all():
        raise ValueError("its affine holds NaN or infinite values")
    return tuple(tuple(float(value) for value in row) for row in affine)


def _oriented(header: Any) -> bool:
    return int(header["sform_code"]) > 0 or int(header["qform_code"]) > 0


def _repetition_time(header: Any) -> float | None:
    seconds = {"sec": 1.0, "msec": 1e-3, "usec": 1e-6}.get(header.get_xyzt_units()[1])
    step = float(header["pixdim"][4])
    return step * seconds if seconds and 0 < step < math.inf else None


def _step(header: Any) -> float | None:
    """Return the seconds between two points in time of a CIFTI file."""
    axis = cifti_axes(header)[0]
    return float(axis.step) if axis.unit == "SECOND" and 0 < axis.step < math.inf else None


def _check_cifti(location: Location, header: Any) -> None:
    axes = cifti_axes(header)
    names = [type(axis).__name__ for axis in axes]
    if names != ["SeriesAxis", "BrainModelAxis"]:
        kinds = " by ".join(name.removesuffix("Axis") for name in names)
        raise InputError(
            f"{location.name} is a CIFTI file of {kinds}; mgclust reads time series of grayordinates (.dtseries.nii)."
        )
    described, stored = tuple(map(len, axes)), tuple(header.get_data_shape())[4:]
    if described != stored:
        raise InputError(
            f"{location.name} describes {described[0]:,} points in time of {described[1]:,} grayordinates, but its "
            f"shape is {stored}; write it again."
        )
