"""Rows of a group of subjects.

The rows of a group hold the series of all subjects next to each other. Each subject's part of a row has mean 0 and
length 1 / sqrt(number of subjects). So the product of two rows is the mean over the subjects of the correlations of
their series, and each subject has the same weight, whatever its number of volumes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from mgclust.algorithms.parcellation.unit_rows import unit_rows
from mgclust.base.errors import InputError
from mgclust.data import Dataset
from mgclust.data.readers.volumes import VolumeDataset
from mgclust.outside.quoting import shortened

__all__ = ["SubjectColumns", "columns_of_subjects", "join_subjects"]

SubjectColumns = Mapping[str, Sequence[tuple[int, int]]]
"""Columns of each run (the first, and the one after the last) of each subject."""

PIECE = 1 << 22  # number of values that are standardised at a time


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
        The number of subjects does not fit to `group`, or the subjects are not known.
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
        return None
    subjects = dataset.runs_of_subjects()
    if len(subjects) < 2:
        raise InputError(
            f"group=True needs at least 2 subjects, but all files are of {next(iter(subjects))}; leave group out, or "
            "add files of other subjects."
        )
    ends = np.cumsum([0, *(plan.n_kept for plan in dataset.plans)]).tolist()
    return {name: [(ends[at], ends[at + 1]) for at in runs] for name, runs in subjects.items()}


def join_subjects(series: np.ndarray, subjects: SubjectColumns) -> np.ndarray:
    """Sort the columns by subject, and standardise the series of each subject; all this in place.

    Parameters
    ----------
    series : float32 array of shape (n, n_features)
        Series of all subjects; becomes the rows of the group.
    subjects : mapping of str to sequence of (int, int)
        Columns of each subject.

    Returns
    -------
    ndarray of shape (n_subjects + 1,), int64
        First column of each subject, and the number of columns.
    """
    order = [np.concatenate([np.arange(*run) for run in runs]) for runs in subjects.values()]
    ends = np.cumsum([0, *map(len, order)])
    step = max(1, PIECE // series.shape[1])
    for start in range(0, len(series), step):
        rows = series[start : start + step].copy()
        for own, first, last in zip(order, ends, ends[1:], strict=False):
            series[start : start + step, first:last] = unit_rows(rows[:, own], length=len(order) ** -0.5)
    return ends
