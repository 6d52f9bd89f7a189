"""Parcels of each subject of a group, which correspond to the parcels of the group.

The parcels of a subject begin as the parcels of the group. Then voxels move across borders according to the subject's
own series (`mgclust.kernels.parcels.borders`). Every parcel stays connected and keeps at least one voxel. So parcel p
of a subject corresponds to parcel p of the group, without a search for matching parcels.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from mgclust.algorithms.parcellation.evaluation.scores import agreement, homogeneity
from mgclust.algorithms.parcellation.unit_rows import unit_rows
from mgclust.kernels.parcels.borders import PASSES, move_borders

__all__ = ["IndividualParcels", "individual_parcels"]


@dataclass(frozen=True)
class IndividualParcels:
    """Parcels of each subject.

    Attributes
    ----------
    labels : ndarray of shape (n, n_subjects), int32
        Parcel of each row.
    passes : list of int
        For each subject, number of passes of moves; `PASSES` if voxels still moved in the last pass.
    scores : dict of str to ndarray of shape (n_subjects,)
        ``subject_homogeneity`` and ``subject_group_homogeneity``: homogeneity of the subject's parcels, and of the
        group's parcels, on the series of the subject. ``subject_group_ari``: adjusted Rand index of both
        parcellations. With an evaluation, each half of the subject's series also gets its own parcels.
        ``subject_held_out`` is the mean homogeneity of these parcels on the other half. ``subject_group_held_out`` is
        the mean homogeneity of the group's parcels on the halves.
    """

    labels: np.ndarray
    passes: list[int]
    scores: dict[str, np.ndarray]


def individual_parcels(
    series: np.ndarray,
    ends: np.ndarray,
    middles: Sequence[int],
    group: np.ndarray,
    starts: np.ndarray,
    columns: np.ndarray,
    compactness: float,
    evaluated: bool,
    on_progress: Callable[[float], None],
) -> IndividualParcels:
    """Move the borders of the group's parcels according to the series of each subject.

    Parameters
    ----------
    series : float32 array of shape (n, n_features)
        Series of all subjects.
    ends : int array of shape (n_subjects + 1,)
        First column of each subject; the last entry is the number of columns.
    middles : sequence of int
        For each subject, number of columns in the first half of its series.
    group : int32 array of shape (n,)
        Parcels of the group.
    starts, columns : int64 array of shape (n + 1,), int32 array
        Graph of neighbours.
    compactness : float
        See `move_borders`.
    evaluated : bool
        True if halves of each subject's series are compared.
    on_progress : callable
        Receives the completed fraction.
    """
    n_subjects = len(ends) - 1
    labels, passes = np.empty((len(series), n_subjects), np.int32), []
    scores: dict[str, list[float]] = {}

    def moved(rows: np.ndarray, progress: Callable[[float], None]) -> tuple[np.ndarray, int]:
        return move_borders(rows, starts, columns, group, progress, compactness)

    def keep(name: str, value: float) -> None:
        scores.setdefault(f"subject_{name}", []).append(value)

    for at in range(n_subjects):

        def progress(done: float, at: int = at) -> None:
            on_progress((at + done / PASSES) / n_subjects)

        own = unit_rows(series[:, ends[at] : ends[at + 1]])
        labels[:, at], count = moved(own, progress)
        passes.append(count)
        keep("homogeneity", homogeneity(own, labels[:, at]))
        keep("group_homogeneity", homogeneity(own, group))
        keep("group_ari", agreement(labels[:, at], group))
        if evaluated:
            halves = unit_rows(own[:, : middles[at]]), unit_rows(own[:, middles[at] :])
            crossed = [homogeneity(other, moved(half, lambda done: None)[0]) for half, other in (halves, halves[::-1])]
            keep("held_out", float(np.mean(crossed)))
            keep("group_held_out", float(np.mean([homogeneity(half, group) for half in halves])))
    return IndividualParcels(labels, passes, {name: np.array(values) for name, values in scores.items()})
