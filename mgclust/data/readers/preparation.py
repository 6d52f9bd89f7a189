"""Preparation of BOLD series before they are clustered: smoothing, temporal filters, confounds, scrubbing.

nilearn computes these steps, so that the rows agree with its ``NiftiMasker`` and ``signal.clean``. `RunPlan.clean` does
not call ``signal.clean`` for all steps at once. Instead, it calls nilearn's functions for detrending, filter and
confounds one after the other, in the order of ``signal.clean``, for two reasons:

- ``clean`` of nilearn 0.14 filters one voxel at a time, which takes more than ten times as long.
- With a filter, ``clean`` does not interpolate a volume that is left out if the volume at the mirrored place is also
  left out. (The mirrored place is as far from the end as the volume is from the beginning.) The spikes of such volumes
  then spread to other volumes.

The rounding of a matrix product depends on its number of columns and on the number of threads. Therefore, each process
prepares the same blocks of `block_rows` voxels, with one thread.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np

from mgclust.base.errors import InputError
from mgclust.data.options import PREPARATION_OPTIONS
from mgclust.data.readers.confounds import FRAMEWISE_DISPLACEMENT, Confounds, find_tables, names_of, read_confounds
from mgclust.data.readers.nifti import SeriesFile
from mgclust.outside.quoting import reason

__all__ = [
    "SMOOTHED_NUMBERS",
    "Preparation",
    "RunPlan",
    "block_rows",
    "describe_plans",
    "one_thread",
    "plan_runs",
    "smoothed",
]

_BLOCK_ROWS, _BLOCK_NUMBERS = 512, 2**20
# If the deviation of a cleaned row is at most this fraction of its largest value before, only rounding errors are left.
_FLAT = 1e-9
# The filter of nilearn (order 5, forwards and backwards) needs more volumes than this, by number of cutoff frequencies.
_FILTER_VOLUMES = {1: 18, 2: 33}
_BY_NILEARN = ("smoothing_fwhm", "low_pass", "high_pass", "confounds")  # options that need nilearn
SMOOTHED_NUMBERS = 2**22  # number of values that are smoothed at a time


@dataclass(frozen=True)
class Preparation:
    """Steps that prepare each run, in addition to detrending and scaling. The attributes are the options."""

    dummy_volumes: int = 0
    smoothing_fwhm: float | None = None  # mm
    low_pass: float | None = None  # Hz
    high_pass: float | None = None  # Hz
    t_r: float | None = None  # seconds; None: the file states it
    confounds: Any = None
    confound_names: tuple[str, ...] = ()
    fd_threshold: float | None = None  # mm

    @classmethod
    def of(cls, given: dict[str, Any]) -> Preparation:
        """Check the options.

        Parameters
        ----------
        given : dict
            Values by the names of `PREPARATION_OPTIONS`, as text or Python objects; None if an option is not given.

        Raises
        ------
        InputError
            A value is not allowed, or an option is given without another option that it needs.
        """
        checked = {}
        for option in PREPARATION_OPTIONS:
            value, limits = given.get(option.name), option.constraint
            if isinstance(value, str) and limits.type != "text":
                checked[option.name] = limits.parse(value, option.name)
            else:
                checked[option.name] = limits.check(option.name, value)
        names = checked["confound_names"]
        checked |= {"dummy_volumes": checked["dummy_volumes"] or 0, "confound_names": names and tuple(names_of(names))}
        found = cls(**{name: value for name, value in checked.items() if value is not None})
        if found.confounds is None:
            for name in ("confound_names", "fd_threshold"):
                if getattr(found, name):
                    raise InputError(f"{name} needs a table of confounds; give confounds='auto' or the path of a .tsv.")
        elif not found.confound_names and found.fd_threshold is None:
            raise InputError(
                "confounds has no effect without confound_names or fd_threshold; give confound_names, such as "
                "'trans_*,rot_*,csf,white_matter', or fd_threshold, such as 0.5."
            )
        if found.low_pass is not None and found.high_pass is not None and found.high_pass >= found.low_pass:
            raise InputError(
                f"high_pass={found.high_pass:g} should be below low_pass={found.low_pass:g}; frequencies between them "
                "are kept."
            )
        return found

    def __bool__(self) -> bool:
        """True if any step of the preparation is done."""
        return self.cleans or self.dummy_volumes > 0 or self.smoothing_fwhm is not None

    @property
    def needs_nilearn(self) -> bool:
        """True if any step is computed by nilearn."""
        return self.cleans or self.smoothing_fwhm is not None

    @property
    def filters(self) -> int:
        """Number of cutoff frequencies."""
        return (self.low_pass is not None) + (self.high_pass is not None)

    @property
    def cleans(self) -> bool:
        """True if the rows are changed along time, so that they are computed once and kept."""
        return self.filters > 0 or self.confounds is not None


@dataclass(frozen=True, eq=False)
class RunPlan:
    """Preparation of one run, with the contents of its table of confounds.

    Attributes
    ----------
    steps : Preparation
        The options.
    detrend : bool
        Whether `clean` subtracts the least-squares line from each row.
    kept : ndarray of shape (n_times - dummy_volumes,), bool
        For each volume after the dummy volumes, true if it is kept.
    t_r : float or None
        Repetition time: seconds from one volume to the next.
    confounds : Confounds or None
        Columns that are regressed out, with one value for each volume of the file.
    table : Confounds or None
        Some columns of the table of this run; they identify the table.
    """

    steps: Preparation
    detrend: bool
    kept: np.ndarray
    t_r: float | None
    confounds: Confounds | None = None
    table: Confounds | None = None

    @property
    def n_kept(self) -> int:
        """Number of volumes that become features."""
        return int(self.kept.sum())

    @property
    def left_out(self) -> list[int]:
        """Numbers of the volumes that were left out for their framewise displacement; the file's first volume is 0."""
        return [int(volume) + self.steps.dummy_volumes for volume in np.flatnonzero(~self.kept)]

    def clean(self, values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Detrend and filter rows, regress confounds out and leave volumes out.

        Parameters
        ----------
        values : ndarray of shape (m, len(kept)), float64
            Series of some voxels, without the dummy volumes; all values must be finite.

        Returns
        -------
        rows : ndarray of shape (m, n_kept), float64
            The prepared series.
        constant : ndarray of shape (m,), bool
            True for rows that do not change over time, and for rows that the confounds explain completely.
        """
        from nilearn import signal

        kept, series = self.kept, np.ascontiguousarray(values.T)
        confounds = None if self.confounds is None else _scaled(self.confounds.values[self.steps.dummy_volumes :])
        if self.steps.filters:
            inside = slice(int(kept.argmax()), len(kept) - int(kept[::-1].argmax()))
            kept, series = kept[inside], self._filtered(series[inside], kept[inside])
            confounds = None if confounds is None else self._filtered(confounds[inside], kept)
        rows = signal.clean(
            series,
            detrend=self.detrend and not self.steps.filters,
            standardize=None,
            sample_mask=None if kept.all() else np.flatnonzero(kept),
            confounds=confounds,
            filter=False,
        ).T
        deviation = rows.std(axis=1)
        return rows, deviation <= _FLAT * abs(values).max(axis=1)

    def _filtered(self, columns: np.ndarray, kept: np.ndarray) -> np.ndarray:
        """Interpolate volumes that are not kept, then detrend and filter columns.

        The first and the last volume must be kept volumes.
        """
        from nilearn import signal

        assert self.t_r is not None
        columns = _interpolated(columns, kept)
        if self.detrend:
            columns = signal.clean(columns, detrend=True, standardize=None, filter=False)
        return signal.butterworth(
            columns, 1.0 / self.t_r, low_pass=self.steps.low_pass, high_pass=self.steps.high_pass, copy=True
        )


def block_rows(plans: Sequence[RunPlan]) -> int:
    """Return how many rows `RunPlan.clean` gets at a time; this number depends only on the lengths of the runs."""
    return max(16, min(_BLOCK_ROWS, _BLOCK_NUMBERS // max(len(plan.kept) for plan in plans)))


def plan_runs(steps: Preparation, runs: Sequence[SeriesFile], detrend: bool) -> tuple[RunPlan, ...]:
    """Check the steps against the runs, and read the tables of confounds.

    Raises
    ------
    InputError
        A step is not possible for a run.
    """
    if steps:
        _need_nilearn(steps)
    if steps.smoothing_fwhm is not None:
        _check_width(steps.smoothing_fwhm, runs[0])
    tables = [None] * len(runs) if steps.confounds is None else find_tables(
        steps.confounds, [run.location for run in runs]
    )  # fmt: skip
    plans = []
    for run, table in zip(runs, tables, strict=True):
        name, n_times = run.location.name, run.n_times
        if n_times - steps.dummy_volumes < 2:
            raise InputError(
                f"dummy_volumes={steps.dummy_volumes} leaves fewer than 2 of the {n_times} volumes of {name}; give "
                "fewer."
            )
        kept = np.ones(n_times - steps.dummy_volumes, dtype=bool)
        confounds = moved = None
        if table is not None and steps.confound_names:
            confounds = read_confounds(table, steps.confound_names, n_times, name)
        if table is not None and steps.fd_threshold is not None:
            moved = read_confounds(table, [FRAMEWISE_DISPLACEMENT], n_times, name, first=0.0)
            kept = moved.values[steps.dummy_volumes :, 0] <= steps.fd_threshold
        t_r = run.repetition_time if steps.t_r is None else steps.t_r
        plan = RunPlan(steps, detrend, kept, t_r, confounds, confounds or moved)
        _check_volumes(plan, name)
        plans.append(plan)
    return tuple(plans)


def describe_plans(plans: Sequence[RunPlan]) -> dict[str, Any]:
    """Describe the steps of all runs by values that JSON can hold.

    Returns
    -------
    dict
        The options of the steps that are done. ``confounds`` lists the table of each run, and ``confound_names`` the
        columns of each run. ``volumes_left_out`` lists, for each run, the volumes whose framewise displacement is too
        large, by their number in the file, from 0.
    """
    steps = plans[0].steps
    done: dict[str, Any] = {
        option.name: getattr(steps, option.name)
        for option in PREPARATION_OPTIONS
        if getattr(steps, option.name) not in (None, (), 0)
    }
    if steps.filters:
        done["t_r"] = [plan.t_r for plan in plans]
    if steps.confounds is not None:
        done["confounds"] = [plan.table.table for plan in plans if plan.table is not None]
    if steps.confound_names:
        done["confound_names"] = [list(plan.confounds.names) for plan in plans if plan.confounds is not None]
    if steps.fd_threshold is not None:
        done["volumes_left_out"] = [plan.left_out for plan in plans]
    if steps.needs_nilearn:
        from nilearn import __version__

        done["nilearn"] = __version__
    return done


def _need_nilearn(steps: Preparation) -> None:
    if not steps.needs_nilearn:
        return
    try:
        import nilearn.signal  # noqa: F401
    except ImportError as error:
        names = [name for name in _BY_NILEARN if getattr(steps, name) is not None]
        raise InputError(f"{', '.join(names)}: nilearn prepares series; run pip install 'mgclust[fmri]'.") from error


def _check_width(width: float, run: SeriesFile) -> None:
    if run.kind == "cifti":
        raise InputError(
            f"smoothing_fwhm={width:g} applies to volumes, and {run.location.name} is a CIFTI file; smooth it along "
            "the surface first, e.g. by wb_command -cifti-smoothing, and leave smoothing_fwhm out."
        )
    extent = float(max(np.array(run.grid.shape) * np.sqrt((np.array(run.grid.affine)[:3, :3] ** 2).sum(axis=0))))
    if width > extent:
        raise InputError(
            f"smoothing_fwhm={width:g} is wider than the grid of {run.location.name} ({extent:.4g} mm); give "
            "millimetres, such as 6."
        )


def _check_volumes(plan: RunPlan, name: str) -> None:
    """Reject a run that has too few volumes, or whose repetition time does not suit the filter."""
    steps, n_kept, n_all = plan.steps, plan.n_kept, len(plan.kept)
    if not n_kept:
        raise InputError(
            f"fd_threshold={steps.fd_threshold:g} leaves out all {n_all} volumes of {name}; give a larger threshold, "
            "or leave this run out."
        )
    if steps.filters:
        if plan.t_r is None:
            raise InputError(f"{name} does not state its repetition time, which a filter needs; give t_r in seconds.")
        for option in ("low_pass", "high_pass"):
            cutoff = getattr(steps, option)
            if cutoff is not None and cutoff >= 0.5 / plan.t_r:
                raise InputError(
                    f"{option}={cutoff:g} should be below {0.5 / plan.t_r:.4g} Hz, half the sampling rate of {name} "
                    f"(one volume in {plan.t_r:g} s); give a lower frequency, or the right t_r."
                )
        span = n_all - int(plan.kept.argmax()) - int(plan.kept[::-1].argmax())
        if span <= _FILTER_VOLUMES[steps.filters]:
            raise InputError(
                f"a filter needs more than {_FILTER_VOLUMES[steps.filters]} volumes, but {name} has {span}; leave "
                "low_pass and high_pass out."
            )
    n_columns = 0 if plan.confounds is None else len(plan.confounds.names)
    needed = 2 + n_columns + plan.detrend
    if steps and n_kept < needed:
        raise InputError(
            f"{name} keeps {n_kept} of {n_all + steps.dummy_volumes} volumes, but needs at least {needed} with "
            f"{n_columns} confounds{' and detrending' if plan.detrend else ''}; give fewer confounds, or a larger "
            "fd_threshold."
        )


def _scaled(columns: np.ndarray) -> np.ndarray:
    """Scale each column by a power of 2, so that its largest absolute value is from 0.5 to 1.

    The residuals of the regression stay bitwise identical, but squares cannot overflow or become 0. nilearn would keep
    confounds whose standard deviation is below 2e-16.
    """
    return np.ldexp(columns, -np.frexp(abs(columns).max(axis=0))[1])


def _interpolated(series: np.ndarray, kept: np.ndarray) -> np.ndarray:
    """Replace the volumes that are not kept by values of a cubic spline through the other volumes."""
    if kept.all():
        return series
    from scipy.interpolate import CubicSpline

    volumes = np.arange(len(kept), dtype=np.float64)
    series = series.copy()
    series[~kept] = CubicSpline(volumes[kept], series[kept])(volumes[~kept])
    return series


def smoothed(run: SeriesFile, stored: np.ndarray, width: float) -> Iterator[tuple[slice, np.ndarray]]:
    """Smooth volumes with nilearn, and yield some of them at a time.

    Parameters
    ----------
    run : SeriesFile
        File that holds the volumes.
    stored : ndarray of shape (n_times, grid size)
        Volumes as they are stored, with the voxels in the order of the file: index i changes fastest.
    width : float
        Full width at half maximum of the Gaussian, in mm.

    Yields
    ------
    times : slice
        Volumes that were smoothed.
    values : ndarray of shape (m, grid size), float32 or float64
        The smoothed values, in the same order. NaN and infinity count as 0. As in nilearn, volumes without scaling are
        smoothed in float32 if they hold float32 or integers of at most 32 bits.
    """
    import nibabel
    from nilearn import image

    affine, shape = np.array(run.grid.affine), run.grid.shape
    native = run.dtype.newbyteorder("=")
    if not run.plain or native.itemsize > (4 if native.kind in "iu" else 8):
        native = np.dtype(np.float64)
    step = max(1, SMOOTHED_NUMBERS // run.grid.size)
    for start in range(0, len(stored), step):
        part = stored[start : start + step]
        part = (part if run.plain else run.values(part)).astype(native)
        volumes = part.reshape(len(part), *shape[::-1]).T
        done = np.asanyarray(image.smooth_img(nibabel.Nifti1Image(volumes, affine), width).dataobj)
        yield slice(start, start + len(part)), done.reshape(run.grid.size, len(part), order="F").T


@contextmanager
def one_thread(name: str) -> Iterator[None]:
    """Compute matrix products with one thread within a block of code, and convert nilearn's exceptions there."""
    from threadpoolctl import threadpool_limits

    with threadpool_limits(1, "blas"):
        try:
            yield
        except (ValueError, TypeError, np.linalg.LinAlgError) as error:
            if isinstance(error, InputError):
                raise
            raise InputError(f"{name} cannot be prepared: {reason(error)}; leave steps out.") from error
