"""Voxels or grayordinates as rows: BOLD series in NIfTI and CIFTI files.

Rows are the voxels (i, j, k) of the mask in C order of the grid: k runs fastest. This is the order of ``volume[mask]``
in NumPy and of nilearn's maskers. Several runs are joined in time. Each run is detrended and standardised by itself, so
that a step between runs is not a signal.
"""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np

from mgclust.base.errors import InputError
from mgclust.data.base import Dataset
from mgclust.data.images import volume_location
from mgclust.data.location import Location, is_path
from mgclust.data.readers.atlas import Atlas, atlas_locations, read_atlas
from mgclust.data.readers.cifti import brain_models, read_meshes, surface_locations
from mgclust.data.readers.gifti import Mesh
from mgclust.data.readers.nifti import SeriesFile, open_series, read_mask
from mgclust.data.readers.preparation import (
    SMOOTHED_NUMBERS,
    Preparation,
    RunPlan,
    block_rows,
    describe_plans,
    one_thread,
    plan_runs,
    smoothed,
)
from mgclust.data.rows import RowTransform
from mgclust.data.subjects import subject_at
from mgclust.outside.inflation import check_memory
from mgclust.outside.quoting import shortened

__all__ = ["VolumeDataset", "open_volumes"]

_FEWER = "give a mask of fewer voxels, or fewer runs"
_VOXEL_BYTES = 40  # bytes of memory per voxel of the grid while rows are selected
# Bytes of temporary arrays per number that is smoothed, and per number that is cleaned of confounds.
_SMOOTHED_BYTES, _CLEANED_BYTES = 40, 64
_CONSTANT = ("drop", "refuse")
# Numbers that are converted to float64 at a time, in addition to the stored numbers.
_NUMBERS_AT_ONCE = 2**21


class VolumeDataset(Dataset):
    """The voxels of one BOLD series or of several runs.

    The files are read once when the dataset is opened, because the rows depend on which voxels are constant and on
    whether any value is NaN. From then on, the stored numbers stay in memory, as float32 if it holds them exactly. Each
    read scales, detrends and standardises its rows in float64. Another process gets only the paths and the selection of
    voxels. It also reads the files once, and keeps only the rows that it passed to `expect`.

    If rows are filtered, scrubbed or cleaned of confounds, this is done once after the files are read, and the prepared
    rows stay in memory instead of the stored numbers, in the same type. Another process prepares its rows again, from
    the confounds that it got with the paths. It prepares the same blocks of voxels of the mask, so its rows are bitwise
    identical, if its processor and its versions of SciPy, NumPy and nilearn are the same.

    Attributes
    ----------
    runs : tuple of SeriesFile
        The files.
    mask : Location or None
        File of the mask.
    preparation : Preparation
        Steps that prepare each run.
    plans : tuple of RunPlan
        The steps of each run.
    surfaces : tuple of Location
        Files of the surfaces of a CIFTI file; empty if none were given.
    atlas : Atlas or None
        Labels of the rows in an atlas.
    warnings : list of str
        Warnings about voxels that were left out, and about runs of several subjects.
    """

    def __init__(
        self,
        runs: Sequence[SeriesFile],
        mask: Location | None,
        transform: RowTransform,
        constant: str,
        preparation: Preparation | None = None,
        surfaces: Sequence[Location] = (),
        atlas: Atlas | None = None,
    ) -> None:
        self.runs = tuple(runs)
        self.mask = mask
        self.transform = transform
        self.preparation = Preparation() if preparation is None else preparation
        self.plans = plan_runs(self.preparation, self.runs, transform.detrend)
        first = self.runs[0]
        self.surfaces = tuple(surfaces)
        self._meshes = read_meshes(self.surfaces, first.location) if surfaces else None
        used = (self._meshes or {}).values()
        self._surface_names, self._surface_hashes = [mesh.name for mesh in used], [mesh.sha256 for mesh in used]
        chosen = _choose(self.runs, mask)
        self._pack(chosen)
        name = first.location.name + (f" and {len(runs) - 1} more" if len(runs) > 1 else "")
        smooth = self.preparation.smoothing_fwhm is not None
        exact = all(run.lossless and (run.plain or not smooth) for run in runs)
        self._stored_type = np.dtype(np.float32 if exact else np.float64)
        # Whether rows are read as they are in memory.
        self._ready = self.preparation.cleans or (not transform and (smooth or all(run.plain for run in runs)))
        dtype = self._stored_type if self._ready else np.dtype(np.float64)
        super().__init__((int(chosen.sum()), sum(plan.n_kept for plan in self.plans)), dtype, name)
        self.kind = first.kind
        self.masked = self.shape[0]
        self._in_mask = self._packed
        self._window = (0, self.masked)  # start and stop of the rows that are kept
        self._opened: _Series | None = _Series.read(self, chosen)
        flat = self._opened.constant
        self.dropped = int(flat.sum())
        self._constant_in = self._opened.constant_in
        if self.dropped:
            self._drop(chosen, flat, constant)
        self.atlas = None if atlas is None else atlas.of_rows(self.chosen, name)

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_opened": None, "_meshes": None, "_window": (0, self.shape[0])}

    @property
    def chosen(self) -> np.ndarray:
        """Mask of the voxels that are rows: bool of shape (grid size,), in C order of the grid."""
        return np.unpackbits(self._packed, count=self.runs[0].grid.size).astype(bool)

    @property
    def voxels(self) -> np.ndarray:
        """Voxel (i, j, k) of each row; for a CIFTI file, its grayordinate."""
        return np.stack(np.unravel_index(np.flatnonzero(self.chosen), self.runs[0].grid.shape), axis=1)

    @property
    def subjects(self) -> list[str]:
        """Subjects that the names or folders of the files state, such as ``sub-01``, sorted; see `subject_at`."""
        return sorted({name for name in map(_subject, self.runs) if name is not None})

    def runs_of_subjects(self) -> dict[str, list[int]]:
        """Return the runs of each subject, as positions in `runs`.

        Subjects are sorted by name. If no file states a subject, each file counts as a subject. These subjects are
        called ``file-1``, ``file-2`` and so on, in the order of the files.

        Returns
        -------
        dict of str to list of int

        Raises
        ------
        InputError
            Some files state a subject, and others do not.
        """
        names = [_subject(run) for run in self.runs]
        if not self.subjects:
            return {f"file-{at + 1}": [at] for at in range(len(names))}
        if None in names:
            raise InputError(
                f"{self.runs[names.index(None)].location.name} states no subject, but other files do "
                f"({shortened(', '.join(self.subjects), 60)}); put the subject into the file name, such as "
                "sub-01_bold.nii.gz."
            )
        return {subject: [at for at, name in enumerate(names) if name == subject] for subject in self.subjects}

    @property
    def joined_subjects(self) -> list[str]:
        """The warning that the rows join series of several subjects; empty if the files state fewer than two."""
        subjects = self.subjects
        return [] if len(subjects) < 2 else [
            f"runs are of {len(subjects)} subjects ({shortened(', '.join(subjects), 60)}), whose series are joined in "
            "each voxel; to avoid this, cluster the subjects one by one."
        ]  # fmt: skip

    @property
    def warnings(self) -> list[str]:
        """Warnings about the rows for the user of a result, one sentence each."""
        sentences = self.joined_subjects
        if self.preparation.fd_threshold is not None:
            count, of = sum(len(plan.left_out) for plan in self.plans), sum(len(plan.kept) for plan in self.plans)
            sentences.append(
                f"{count:,} of {of:,} volumes were left out, because their framewise displacement is above "
                f"fd_threshold={self.preparation.fd_threshold:g} mm."
            )
        if self.preparation.t_r is not None and not self.preparation.filters:
            sentences.append(
                f"t_r={self.preparation.t_r:g} has no effect on the rows without low_pass or high_pass: leave it out, "
                "or give a filter."
            )
        if not self.dropped:
            return sentences
        is_, was = ("is", "was") if self.dropped == 1 else ("are", "were")
        explained = f" or {is_} explained by confounds" if self.preparation.confound_names else ""
        return [
            *sentences,
            f"{self._constants}{explained}{self._most_constant} and {was} left out "
            "(label 0 in the volume); constant='refuse' stops instead, and a mask selects the voxels.",
        ]

    @property
    def _constants(self) -> str:
        verb = "does" if self.dropped == 1 else "do"
        return f"{self.dropped:,} of {self.masked:,} {self._parts} {verb} not change over time"

    @property
    def _most_constant(self) -> str:
        """Words that name the run with the largest number of constant voxels; empty for a single run."""
        if len(self.runs) == 1:
            return ""
        most = int(np.argmax(self._constant_in))
        return f" in at least one run ({self._constant_in[most]:,} in {self.runs[most].location.name})"

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

    def meshes(self) -> dict[str, Mesh]:
        """Return the meshes of a CIFTI file: a dict from the name of each structure with vertices to its mesh.

        Raises
        ------
        InputError
            The dataset was opened without its surfaces, or a surface has changed since then.
        """
        if self._meshes is None:  # opened without surfaces, or sent to another process
            meshes = read_meshes(self.surfaces, self.runs[0].location)
            if self.surfaces and [mesh.sha256 for mesh in meshes.values()] != self._surface_hashes:
                raise InputError(f"surfaces of {self.name} changed since they were opened; open the series again.")
            self._meshes = meshes
        return self._meshes

    def mean(self) -> np.ndarray:
        """Return the mean over time of each row, before detrending and standardising."""
        return self._series(0, self.shape[0]).mean.astype(np.float32)

    def fingerprint(self) -> str:
        """Return the SHA-256 of the file; for several files, the SHA-256 of the hashes of all files except the atlas.

        The files are runs, mask, tables and surfaces; the atlas does not change the clusters. `describe` lists the
        transformations.
        """
        for run in self.runs:
            run.location.check(run.stamp)
        locations = [run.location for run in self.runs] + ([] if self.mask is None else [self.mask])
        hashes = [location.sha256() for location in locations]
        hashes += [plan.table.sha256 for plan in self.plans if plan.table is not None]
        hashes += self._surface_hashes
        return hashes[0] if len(hashes) == 1 else hashlib.sha256("\n".join(hashes).encode()).hexdigest()

    def describe(self) -> dict[str, Any]:
        """Describe the source: which voxels are rows, and how rows are transformed."""
        first = self.runs[0]
        surfaces = {"surfaces": list(self._surface_names), "surfaces_sha256": list(self._surface_hashes)}
        atlas = self.atlas and {"atlas": list(self.atlas.files), "atlas_sha256": list(self.atlas.sha256)}
        return {
            **super().describe(),
            "files": [run.location.name for run in self.runs],
            "time_points": [plan.n_kept for plan in self.plans],
            "repetition_time": self.plans[0].t_r,
            "mask": None if self.mask is None else self.mask.name,
            "grid": list(first.grid.shape),
            "voxels_in_mask": self.masked,
            "constant_voxels_dropped": self.dropped,
            "standardize": self.transform.standardize,
            "detrend": self.transform.detrend,
            "preparation": describe_plans(self.plans) if self.preparation else None,
            **(surfaces if self.surfaces else {}),
            **(atlas or {}),
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
        """Return the bytes of the rows in memory, unless they are there already, and of what computes some of them."""
        if self.preparation.cleans:  # whole blocks are read
            rows = min(self.masked, rows + 2 * block_rows(self.plans)) if rows else 0
        stored = 0 if self._opened is not None else rows * self._width * self._stored_type.itemsize + self._work_bytes
        return stored + 5 * 8 * max(_NUMBERS_AT_ONCE, self.shape[1])

    @property
    def _width(self) -> int:
        """Columns in memory while the runs are prepared: those of earlier runs, and all volumes of the present one."""
        before, width = 0, 0
        for plan in self.plans:
            width = max(width, before + len(plan.kept))
            before += plan.n_kept
        return width

    @property
    def _work_bytes(self) -> int:
        """Bytes of temporary arrays while the runs are smoothed and cleaned."""
        most = 0
        if self.preparation.smoothing_fwhm is not None:
            most = max(SMOOTHED_NUMBERS, self.runs[0].grid.size) * _SMOOTHED_BYTES
        if self.preparation.cleans:
            longest = max(len(plan.kept) for plan in self.plans)
            projection = 16 * longest**2 if self.preparation.confound_names else 0  # nilearn's, between all times
            most = max(most, block_rows(self.plans) * longest * _CLEANED_BYTES + projection)
        return most

    def _read(self, start: int, stop: int) -> np.ndarray:
        series, begin = self._series(start, stop), 0  # reads the files again if these rows were not kept
        part = slice(start - self._window[0], stop - self._window[0])
        if self._ready:
            return np.ascontiguousarray(series.stored[part])
        rows = np.empty((stop - start, self.shape[1]))
        for run, plan in zip(self.runs, self.plans, strict=True):
            columns = slice(begin, begin := begin + plan.n_kept)
            values = self._values(run, series.stored[part, columns])
            rows[:, columns] = self.transform(values)[0] if self.transform else values
        return rows

    def _values(self, run: SeriesFile, stored: np.ndarray) -> np.ndarray:
        """Return the values of numbers in memory, in float64."""
        return run.values(stored) if self.preparation.smoothing_fwhm is None else stored.astype(np.float64)

    def _series(self, start: int, stop: int) -> _Series:
        """Return the rows in memory, which include these rows; read the files if they are not in memory."""
        if self._opened is not None and not (self._window[0] <= start and stop <= self._window[1]):
            self._opened, self._window = None, (0, self.shape[0])
        if self._opened is None:
            self._opened = self._read_window()
        return self._opened

    def _read_window(self) -> _Series:
        """Read the rows of the window, and rows around it that are prepared in the same blocks."""
        size = self.runs[0].grid.size
        chosen = np.zeros(size, dtype=bool)
        if not self.preparation.cleans:
            chosen[np.flatnonzero(self.chosen)[slice(*self._window)]] = True
            return _Series.read(self, chosen)
        masked = np.flatnonzero(np.unpackbits(self._in_mask, count=size))
        kept = self.chosen[masked]  # rows that were not left out as constant
        places = np.flatnonzero(kept)[slice(*self._window)]
        block = block_rows(self.plans)
        low = high = 0
        if len(places):
            low, high = int(places[0]) // block * block, min(len(masked), -(-int(places[-1] + 1) // block) * block)
            self._window = (int(kept[:low].sum()), int(kept[:high].sum()))
        chosen[masked[low:high]] = True
        series = _Series.read(self, chosen)
        series.leave_out(~kept[low:high])
        return series

    def _pack(self, chosen: np.ndarray) -> None:
        self._packed = np.packbits(chosen)

    def _drop(self, chosen: np.ndarray, flat: np.ndarray, constant: str) -> None:
        assert self._opened is not None
        if constant == "refuse":
            where = f"the first is {self._parts[:-1]} {_place(self, int(flat.argmax()))}"
            other = ", or choose a mask without them" if self.kind == "nifti" else ""
            raise InputError(
                f"{self.name}: {self._constants}{self._most_constant}, {where}; leave them out by "
                f"constant='drop'{other}."
            )
        if flat.all():
            several = len(self.runs) > 1
            part = "the mask" if self.mask is not None else "the files" if several else "the file"
            most = int(np.argmax(self._constant_in))
            if self._constant_in[most] == self.masked:
                other = ", or leave this run out" if several else ""
                raise InputError(
                    f"{self.runs[most].location.name}: none of its {self.masked:,} {self._parts} changes over time; "
                    f"check {part}{other}."
                )
            raise InputError(
                f"{self.name}: each of {self.masked:,} {self._parts} is constant in at least one run "
                f"({self._constant_in[most]:,} in {self.runs[most].location.name}); check {part}, or leave runs out."
            )
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
        self.constant_in: list[int] = []  # number of constant rows of each run

    @classmethod
    def read(cls, dataset: VolumeDataset, chosen: np.ndarray) -> _Series:
        """Read the series of the chosen voxels, and prepare them if they are prepared along time."""
        runs, n, width = dataset.runs, int(chosen.sum()), dataset._width
        dtype, smoothing = dataset._stored_type, dataset.preparation.smoothing_fwhm
        needed = dtype.itemsize * n * width + dataset._work_bytes
        check_memory(f"the rows of {runs[0].location.name}", needed, _FEWER)
        series = cls(n, width, dtype)
        start = 0
        for run, plan in zip(runs, dataset.plans, strict=True):
            columns = slice(start, start + len(plan.kept))
            smooth = None if smoothing is None else partial(smoothed, run, width=smoothing)
            with run.location.reading():
                run.fill(series.stored[:, columns], chosen, dataset.preparation.dummy_volumes, smooth)
            series._look(dataset, run, plan, columns, chosen)
            start += plan.n_kept
        series.stored = series.stored[:, :start]
        series.mean /= start
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

    def _look(self, dataset: VolumeDataset, run: SeriesFile, plan: RunPlan, columns: slice, chosen: np.ndarray) -> None:
        """Compute means, find constant rows and reject values that are not finite, with some rows at a time.

        If rows are prepared along time, replace the columns of the run by the prepared columns.
        """
        cleans, transform = dataset.preparation.cleans, dataset.transform
        after = RowTransform(False, transform.zscore, transform.sample) if cleans else transform
        step = block_rows(dataset.plans) if cleans else max(1, _NUMBERS_AT_ONCE // len(plan.kept))
        bad, first = 0, -1
        constant = np.zeros(len(self.stored), dtype=bool)
        with one_thread(run.location.name) if cleans else contextlib.nullcontext():
            for start in range(0, len(self.stored), step):
                part = slice(start, start + step)
                values = dataset._values(run, self.stored[part, columns])
                finite = np.isfinite(values).all(axis=1)
                if not finite.all():
                    first = first if bad else start + int((~finite).argmax())
                    bad += int((~finite).sum())
                    continue
                seen = values[:, plan.kept] if cleans else values
                constant[part] |= (seen == seen[:, :1]).all(axis=1)
                self.mean[part] += seen.sum(axis=1)
                if cleans and not bad:
                    values, flat = plan.clean(values)
                    constant[part] |= flat
                if after.zscore:
                    values, flat = after(values)
                    constant[part] |= flat
                if cleans and not bad:
                    self.stored[part, columns.start : columns.start + plan.n_kept] = values
        self.constant |= constant
        self.constant_in.append(int(constant.sum()))
        if bad:
            voxel = np.flatnonzero(chosen)[first]
            place = tuple(int(index) for index in np.unravel_index(voxel, run.grid.shape))
            raise InputError(
                f"{run.location.name}: {bad:,} of {len(self.stored):,} voxels hold NaN or infinite values, the first "
                f"is voxel {place}; give a mask without them, or repair the file."
            )


def open_volumes(
    locations: Sequence[Location],
    mask: Any,
    transform: RowTransform,
    constant: str | None = None,
    preparation: Preparation | None = None,
    surfaces: Any = None,
    atlas: Any = None,
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
    preparation : Preparation, optional
        Steps that prepare each run by itself.
    surfaces : path, sequence of paths, or None
        Surfaces of a CIFTI file, as `surface_locations` takes them.
    atlas : path, image, array, sequence of paths, or None
        Labels with which clusters are compared, as `atlas_locations` takes them.
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
    if surfaces is not None and runs[0].kind == "nifti":
        raise InputError(
            f"surfaces applies to CIFTI files (.dtseries.nii), but {runs[0].location.name} is a volume; leave surfaces "
            "out."
        )
    where = None
    if mask is not None:
        where = Location.of(mask) if is_path(mask) else volume_location(mask, runs[0].grid, "mask")
    meshes = () if surfaces is None else surface_locations(surfaces)
    labels = None if atlas is None else read_atlas(atlas_locations(atlas, runs[0]), runs[0])
    return VolumeDataset(runs, where, transform, constant, preparation, meshes, labels)


def _subject(run: SeriesFile) -> str | None:
    return subject_at(run.location)


def _check_alike(runs: Sequence[SeriesFile]) -> None:
    first = runs[0]
    for run in runs[1:]:
        if run.kind != first.kind:
            raise InputError(
                f"{first.location.name} is {first.kind}, {run.location.name} is {run.kind}; give runs of one kind."
            )
        if run.kind == "cifti":
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
