"""Voxels or grayordinates as rows: BOLD series in NIfTI and CIFTI files.

Rows are the voxels (i, j, k) of the mask in C order of the grid: k runs fastest. This is the order of ``volume[mask]``
in NumPy and of nilearn's maskers. Several runs are joined in time. Each run is detrended and standardised by itself, so
that a step between runs is not a signal.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from typing import Any

import numpy as np

from mgclust.base.errors import InputError
from mgclust.data.base import Dataset
from mgclust.data.images import mask_location
from mgclust.data.location import Location, is_path
from mgclust.data.readers.nifti import SeriesFile, open_series, read_mask
from mgclust.data.rows import RowTransform
from mgclust.outside.inflation import check_memory
from mgclust.outside.quoting import shortened

__all__ = ["VolumeDataset", "open_volumes"]

_FEWER = "give a mask of fewer voxels, or fewer runs"
_VOXEL_BYTES = 40  # bytes of memory per voxel of the grid while rows are selected
_CONSTANT = ("drop", "refuse")
# Numbers that are converted to float64 at a time, in addition to the stored numbers.
_NUMBERS_AT_ONCE = 2**21


class VolumeDataset(Dataset):
    """The voxels of one BOLD series or of several runs.

    The files are read once when the dataset is opened, because the rows depend on which voxels are constant and on
    whether any value is NaN. From then on, the stored numbers stay in memory, as float32 if it holds them exactly. Each
    read scales, detrends and standardises its rows in float64. Another process gets only the paths and the selection of
    voxels. It also reads the files once, and keeps only the rows that it passed to `expect`.

    Attributes
    ----------
    runs : tuple of SeriesFile
        The files.
    mask : Location or None
        File of the mask.
    warnings : list of str
        Warnings about voxels that were left out, and about runs of several subjects.
    """

    def __init__(
        self, runs: Sequence[SeriesFile], mask: Location | None, transform: RowTransform, constant: str
    ) -> None:
        self.runs = tuple(runs)
        self.mask = mask
        self.transform = transform
        first = self.runs[0]
        chosen = _choose(self.runs, mask)
        self._pack(chosen)
        name = first.location.name + (f" and {len(runs) - 1} more" if len(runs) > 1 else "")
        narrow = not transform and all(run.lossless and run.plain for run in runs)
        dtype = np.dtype(np.float32 if narrow else np.float64)
        super().__init__((int(chosen.sum()), sum(run.n_times for run in runs)), dtype, name)
        self.kind = first.kind
        self.masked = self.shape[0]
        self._window = (0, self.masked)  # start and stop of the rows that are kept
        self._opened: _Series | None = _Series.read(self.runs, chosen, transform)
        flat = self._opened.constant
        self.dropped = int(flat.sum())
        if self.dropped:
            self._drop(chosen, flat, constant)

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_opened": None, "_window": (0, self.shape[0])}

    @property
    def chosen(self) -> np.ndarray:
        """Mask of the voxels that are rows: bool of shape (grid size,), in C order of the grid."""
        return np.unpackbits(self._packed, count=self.runs[0].grid.size).astype(bool)

    @property
    def voxels(self) -> np.ndarray:
        """Voxel (i, j, k) of each row; for a CIFTI file, its grayordinate."""
        return np.stack(np.unravel_index(np.flatnonzero(self.chosen), self.runs[0].grid.shape), axis=1)

    @property
    def warnings(self) -> list[str]:
        """Warnings about the rows for the user of a result, one sentence each."""
        subjects = _subjects(self.runs)
        sentences = [] if len(subjects) < 2 else [
            f"runs are of {len(subjects)} subjects ({shortened(', '.join(subjects), 60)}), whose series are joined in "
            "each voxel; to avoid this, cluster the subjects one by one."
        ]  # fmt: skip
        if not self.dropped:
            return sentences
        return [
            *sentences,
            f"{self.dropped:,} of {self.masked:,} {self._parts} do not change over time"
            f"{' in at least one run' if len(self.runs) > 1 else ''} and were left out "
            "(label 0 in the volume); constant='refuse' stops instead, and a mask selects the voxels.",
        ]

    @property
    def _parts(self) -> str:
        return "voxels" if self.kind == "nifti" else "grayordinates"

    def to_grid(self, values: Any, fill: float = 0) -> np.ndarray:
        """Put one value per row at its place in the grid.

        Parameters
        ----------
        values : array of shape (n_samples,)
            One value per row.
        fill : number
            Value of the voxels that are not rows.

        Returns
        -------
        ndarray of the grid's shape
            3-D for NIfTI; for CIFTI, one value per grayordinate.
        """
        values = np.asarray(values)
        if values.shape != self.shape[:1]:
            raise InputError(f"values has shape {values.shape}, it should be ({self.shape[0]},): one per row.")
        out = np.full(self.runs[0].grid.size, fill, dtype=values.dtype)
        out[self.chosen] = values
        return out.reshape(self.runs[0].grid.shape)

    def mean(self) -> np.ndarray:
        """Return the mean over time of each row, before detrending and standardising."""
        return self._series(0, self.shape[0]).mean.astype(np.float32)

    def fingerprint(self) -> str:
        """Return the SHA-256 of the file; for several files, of the SHA-256 of each run and of the mask.

        `describe` lists the transformations.
        """
        for run in self.runs:
            run.location.check(run.stamp)
        locations = [run.location for run in self.runs] + ([] if self.mask is None else [self.mask])
        hashes = [location.sha256() for location in locations]
        return hashes[0] if len(hashes) == 1 else hashlib.sha256("\n".join(hashes).encode()).hexdigest()

    def describe(self) -> dict[str, Any]:
        """Describe the source: which voxels are rows, and how rows are transformed."""
        first = self.runs[0]
        return {
            **super().describe(),
            "files": [run.location.name for run in self.runs],
            "time_points": [run.n_times for run in self.runs],
            "repetition_time": first.repetition_time,
            "mask": None if self.mask is None else self.mask.name,
            "grid": list(first.grid.shape),
            "voxels_in_mask": self.masked,
            "constant_voxels_dropped": self.dropped,
            "standardize": "zscore" if self.transform.zscore else None,
            "detrend": self.transform.detrend,
        }

    def label_volume(self, labels: Any) -> dict[str, Any] | None:
        """Return the clusters over the mean volume; None for CIFTI, because the cortex is a surface."""
        if self.kind != "nifti":
            return None
        grid = self.runs[0].grid
        return {
            "volume": self.to_grid(np.asarray(labels, dtype=np.int64) + 1),
            "background": self.to_grid(self.mean(), fill=np.nan),
            "affine": np.array(grid.affine),
            "oriented": grid.oriented,
        }

    def expect(self, start: int, stop: int) -> None:
        """Keep only these rows in memory, unless all rows are in memory already; see `Dataset.expect`."""
        if self._opened is None:
            self._window = (start, stop)

    def reading_bytes(self, rows: int) -> int:
        """Return the bytes of the stored numbers, unless they are in memory already, and of some rows in float64."""
        stored = rows * self.shape[1] * self.dtype.itemsize if self._opened is None else 0
        return stored + 5 * 8 * max(_NUMBERS_AT_ONCE, self.shape[1])

    def _read(self, start: int, stop: int) -> np.ndarray:
        series, begin = self._series(start, stop), 0  # reads the files again if these rows were not kept
        part = slice(start - self._window[0], stop - self._window[0])
        if self.dtype == np.float32:
            return series.stored[part]
        rows = np.empty((stop - start, self.shape[1]))
        for run in self.runs:
            columns = slice(begin, begin := begin + run.n_times)
            values = run.values(series.stored[part, columns])
            rows[:, columns] = self.transform(values)[0] if self.transform else values
        return rows

    def _series(self, start: int, stop: int) -> _Series:
        """Return the stored numbers of at least these rows; read the files if they are not in memory."""
        if self._opened is not None and not (self._window[0] <= start and stop <= self._window[1]):
            self._opened, self._window = None, (0, self.shape[0])
        if self._opened is None:
            chosen = np.zeros(self.runs[0].grid.size, dtype=bool)
            chosen[np.flatnonzero(self.chosen)[slice(*self._window)]] = True
            self._opened = _Series.read(self.runs, chosen, self.transform)
        return self._opened

    def _pack(self, chosen: np.ndarray) -> None:
        self._packed = np.packbits(chosen)

    def _drop(self, chosen: np.ndarray, flat: np.ndarray, constant: str) -> None:
        assert self._opened is not None
        if constant == "refuse":
            where = f"the first is {self._parts[:-1]} {_place(self, int(flat.argmax()))}"
            other = ", or choose a mask without them" if self.kind == "nifti" else ""
            raise InputError(
                f"{self.name}: {self.dropped:,} of {self.masked:,} {self._parts} do not change over time, {where}; "
                f"leave them out by constant='drop'{other}."
            )
        if flat.all():
            part = "the mask" if self.mask is not None else "the file"
            raise InputError(f"{self.name}: none of its {self.masked:,} {self._parts} changes over time; check {part}.")
        chosen[np.flatnonzero(chosen)[flat]] = False
        self._pack(chosen)
        self.shape = (self.masked - self.dropped, self.shape[1])
        self._window = (0, self.shape[0])
        self._opened.leave_out(flat)


class _Series:
    """The stored numbers of all runs in memory."""

    def __init__(self, n: int, n_times: int, dtype: Any) -> None:
        self.stored = np.empty((n, n_times), dtype)
        self.mean = np.zeros(n)
        self.constant = np.zeros(n, dtype=bool)

    @classmethod
    def read(cls, runs: Sequence[SeriesFile], chosen: np.ndarray, transform: RowTransform) -> _Series:
        n, n_times = int(chosen.sum()), sum(run.n_times for run in runs)
        dtype = np.dtype(np.float32 if all(run.lossless for run in runs) else np.float64)
        check_memory(f"the rows of {runs[0].location.name}", dtype.itemsize * n * n_times, _FEWER)
        series = cls(n, n_times, dtype)
        start = 0
        for run in runs:
            columns = slice(start, start + run.n_times)
            start += run.n_times
            with run.location.reading():
                run.fill(series.stored[:, columns], chosen)
            series._look(run, columns, transform, chosen)
        series.mean /= n_times
        return series

    def leave_out(self, flat: np.ndarray) -> None:
        """Remove constant rows in place, because a copy would need the memory twice."""
        kept = np.flatnonzero(~flat)
        step = max(1, _NUMBERS_AT_ONCE // self.stored.shape[1])
        for start in range(0, len(kept), step):
            part = kept[start : start + step]
            self.stored[start : start + len(part)] = self.stored[part]
        self.stored = self.stored[: len(kept)]
        self.mean, self.constant = self.mean[kept], self.constant[kept]

    def _look(self, run: SeriesFile, columns: slice, transform: RowTransform, chosen: np.ndarray) -> None:
        """Compute means, find constant rows and reject values that are not finite, with some rows at a time."""
        step = max(1, _NUMBERS_AT_ONCE // run.n_times)
        bad, first = 0, -1
        for start in range(0, len(self.stored), step):
            part = slice(start, start + step)
            values = run.values(self.stored[part, columns])
            finite = np.isfinite(values).all(axis=1)
            if not finite.all():
                first = first if bad else start + int((~finite).argmax())
                bad += int((~finite).sum())
                continue
            self.constant[part] |= (values == values[:, :1]).all(axis=1)
            self.mean[part] += values.sum(axis=1)
            if transform.zscore:
                self.constant[part] |= transform(values)[1]
        if bad:
            voxel = np.flatnonzero(chosen)[first]
            place = tuple(int(index) for index in np.unravel_index(voxel, run.grid.shape))
            raise InputError(
                f"{run.location.name}: {bad:,} of {len(self.stored):,} voxels hold NaN or infinite values, the first "
                f"is voxel {place}; give a mask without them, or repair the file."
            )


def open_volumes(
    locations: Sequence[Location], mask: Any, transform: RowTransform, constant: str | None = None
) -> VolumeDataset:
    """Open one BOLD series, or several runs on one grid.

    Parameters
    ----------
    locations : sequence of Location
        .nii, .nii.gz or .dtseries.nii files, one per run, in the order of time.
    mask : path, nibabel image, array or None
        Voxels that are rows; only for NIfTI. None: each voxel whose series has a value other than 0 is a row.
    transform : RowTransform
        Transformation of the rows, which is applied to each run by itself.
    constant : {None, "drop", "refuse"}
        What to do with voxels that do not change over time in at least one run: leave them out ("drop" and None), or
        raise an error ("refuse").
    """
    constant = constant or "drop"
    if constant not in _CONSTANT:
        raise InputError(f"constant={constant!r} should be 'drop' or 'refuse'.")
    runs = [open_series(location) for location in locations]
    _check_alike(runs)
    for run in runs:
        if transform.detrend and run.n_times < 3:
            raise InputError(
                f"detrend=True needs at least 3 points in time, {run.location.name} has {run.n_times}: a line fits "
                "two values exactly; leave detrend out."
            )
    if mask is not None and runs[0].kind == "cifti":
        raise InputError(
            f"mask applies to NIfTI; {runs[0].location.name} is a CIFTI file, whose "
            "grayordinates are selected already: leave mask out."
        )
    where = None
    if mask is not None:
        where = Location.of(mask) if is_path(mask) else mask_location(mask, runs[0].grid)
    return VolumeDataset(runs, where, transform, constant)


def _subjects(runs: Sequence[SeriesFile]) -> list[str]:
    """Return the subjects that the BIDS names of files contain."""
    found = (re.search(r"(?:^|[/_])(sub-[A-Za-z0-9]+)", run.location.path) for run in runs)
    return sorted({match[1] for match in found if match})


def _check_alike(runs: Sequence[SeriesFile]) -> None:
    first = runs[0]
    for run in runs[1:]:
        if run.kind != first.kind:
            raise InputError(
                f"{first.location.name} is {first.kind}, {run.location.name} is {run.kind}; give runs of one kind."
            )
        if run.kind == "cifti":
            from mgclust.data.readers.cifti import brain_models

            if brain_models(run.location) != brain_models(first.location):
                raise InputError(
                    f"{run.location.name} has other grayordinates than {first.location.name}; give runs with the same "
                    "grayordinates."
                )
        elif not run.grid.same_as(first.grid):
            raise InputError(
                f"{run.location.name} is on another grid than {first.location.name}: it has {run.grid}, and the first "
                f"run has {first.grid}; resample the runs to one grid."
            )


def _choose(runs: Sequence[SeriesFile], mask: Location | None) -> np.ndarray:
    first = runs[0]
    check_memory(f"the grid of {first.location.name}", _VOXEL_BYTES * first.grid.size, _FEWER)
    if mask is not None:
        return read_mask(mask, first.grid, first.location.name)
    if first.kind == "cifti":
        return np.ones(first.grid.size, dtype=bool)
    chosen = np.zeros(first.grid.size, dtype=bool)
    for run in runs:
        with run.location.reading():
            chosen |= run.nonzero()
    if not chosen.any():
        raise InputError(f"{first.location.name} holds only zeros; check the file.")
    return chosen


def _place(dataset: VolumeDataset, row: int) -> tuple[int, ...]:
    return tuple(int(index) for index in dataset.voxels[row])
