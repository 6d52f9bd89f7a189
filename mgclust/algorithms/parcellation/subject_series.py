"""Runs and halves of the rows, and rows of a group of subjects.

The rows of a group hold the series of all subjects next to each other. Each subject's part of a row has mean 0 and
length 1 / sqrt(number of subjects). So the product of two rows is the correlation of their series, averaged over
the subjects. Each subject has the same weight, whatever its number of volumes.

The first half of a series is the first half of each of its runs. So the halves do not depend on the order of the runs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import PurePosixPath

import numpy as np

from mgclust.algorithms.parcellation.unit_rows import unit_rows
from mgclust.base.errors import InputError
from mgclust.data import Dataset
from mgclust.data.readers.volumes import VolumeDataset
from mgclust.data.subjects import subject_of
from mgclust.outside.quoting import shortened

__all__ = [
    "Runs",
    "SubjectColumns",
    "columns_of_runs",
    "columns_of_subjects",
    "equal_subjects",
    "first_halves",
    "join_runs",
    "join_subjects",
]

Runs = Sequence[tuple[int, int]]
"""Columns of each run: the first column, and the column after the last."""

SubjectColumns = Mapping[str, Runs]
"""Columns of each run of each subject."""

FIRST_ROWS = 16  # rows that are compared before all rows of two subjects
PIECE = 1 << 22  # number of values that are standardised at a time


def columns_of_runs(dataset: Dataset) -> Runs:
    """Return the columns of each run; rows that are no BOLD series count as one run."""
    lengths = [plan.n_kept for plan in dataset.plans] if isinstance(dataset, VolumeDataset) else [dataset.shape[1]]
    return list(pairwise(np.cumsum([0, *lengths]).tolist()))


def first_halves(runs: Runs) -> int:
    """Return the number of columns in the first halves of the runs, without the middle column of an odd number."""
    return sum((stop - start) // 2 for start, stop in runs)


def columns_of_subjects(dataset: Dataset, group: bool) -> SubjectColumns | None:
    """Return the columns of each subject of a group, or None if the rows are of one subject.

    Parameters
    ----------
    dataset : Dataset
        The rows.
    group : bool
        Whether the rows are of a group of subjects.

    Raises
    ------
    InputError
        The number of subjects does not suit `group`, or only some files state a subject.
    """
    if not isinstance(dataset, VolumeDataset):
        if group:
            raise InputError(f"group=True needs BOLD series of several subjects, not {dataset.name}; give their files.")
        return None
    if not group:
        if len(dataset.subjects) > 1:
            raise InputError(
                f"group=False should be True for files of {len(dataset.subjects)} subjects "
                f"({shortened(', '.join(dataset.subjects), 60)}); give group=True (--group), or files of one subject."
            )
        dataset.runs_of_subjects()  # rejects files without a subject next to files of a subject
        return None
    subjects = dataset.runs_of_subjects()
    if len(subjects) < 2:
        paths = [run.location.path for run in dataset.runs]
        by_folder = len(paths) > 1 and all(subject_of(path) for path in paths)
        by_folder = by_folder and not any(subject_of(PurePosixPath(path).name) for path in paths)
        raise InputError(
            f"group=True needs at least 2 subjects, but all files are of {next(iter(subjects))}"
            + (
                ", by the name of a folder; leave group out, or put the subject into each file name, such as "
                "sub-01_bold.nii.gz."
                if by_folder
                else "; leave group out, or add files of other subjects."
            )
        )
    columns = columns_of_runs(dataset)
    return {name: [columns[at] for at in runs] for name, runs in subjects.items()}


def join_runs(series: np.ndarray, runs: Runs) -> int:
    """Sort the columns in place: the first half of each run, then the other halves. Return `first_halves`."""
    if len(runs) > 1:
        order = _halves_apart(runs)
        step = max(1, PIECE // series.shape[1])
        for start in range(0, len(series), step):
            series[start : start + step] = series[start : start + step, order]
    return first_halves(runs)


def join_subjects(series: np.ndarray, subjects: SubjectColumns) -> np.ndarray:
    """Sort the columns by subject and standardise the series of each subject, in place.

    The columns of a subject are the first half of each run, and then the other halves.

    Parameters
    ----------
    series : float32 array of shape (n, n_features)
        Series of all subjects; becomes the rows of the group.
    subjects : mapping of str to sequence of (int, int)
        Columns of each subject.

    Returns
    -------
    ndarray of shape (n_subjects + 1,), int64
        First column of each subject; the last entry is the number of columns.
    """
    order = [_halves_apart(runs) for runs in subjects.values()]
    ends = np.cumsum([0, *map(len, order)])
    step = max(1, PIECE // series.shape[1])
    for start in range(0, len(series), step):
        rows = series[start : start + step].copy()
        for own, first, last in zip(order, ends, ends[1:], strict=False):
            series[start : start + step, first:last] = unit_rows(rows[:, own], length=len(order) ** -0.5)
    return ends


def equal_subjects(rows: np.ndarray, ends: np.ndarray) -> list[list[int]]:
    """Return the groups of subjects whose series are equal in every bit, as positions of the subjects.

    Parameters
    ----------
    rows : float32 array of shape (n, n_features)
        Rows of a group, as `join_subjects` makes them.
    ends : ndarray of shape (n_subjects + 1,)
        First column of each subject, and the number of columns.
    """
    groups: dict[bytes, list[list[int]]] = {}
    for at, (start, stop) in enumerate(pairwise(ends.tolist())):
        alike = groups.setdefault(rows[:FIRST_ROWS, start:stop].tobytes(), [])
        step = max(1, PIECE // max(1, stop - start))
        for group in alike:
            first, last = ends[group[0]], ends[group[0] + 1]
            if all(
                np.array_equal(rows[i : i + step, first:last], rows[i : i + step, start:stop])
                for i in range(0, len(rows), step)
            ):
                group.append(at)
                break
        else:
            alike.append([at])
    return [group for alike in groups.values() for group in alike if len(group) > 1]


def _halves_apart(runs: Runs) -> np.ndarray:
    """Return the columns of the first half of each run, and then the columns of the other halves."""
    middles = [(start + stop) // 2 for start, stop in runs]
    first = [np.arange(start, middle) for (start, _), middle in zip(runs, middles, strict=True)]
    second = [np.arange(middle, stop) for (_, stop), middle in zip(runs, middles, strict=True)]
    return np.concatenate([*first, *second])
