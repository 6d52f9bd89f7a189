r"""Parcels on any number of ranks; rank 0 collects all series, because each merge and move depends on earlier ones.

Stages::

    collect      send all series to rank 0, as float32
    merge        Ward's merges of neighbours        (`mgclust.kernels.parcels.ward`), or communities, or affinity
                 propagation
    refine       moves across the borders           (`mgclust.kernels.parcels.borders`)
    evaluate     compare the parcels of both halves of the series, which are also merged and refined
    individual   moves across the borders according to the series of each subject of a group (`individual_parcels`)
    describe     the most typical row and the homogeneity of each parcel

Every stage after the first runs on the host of rank 0; only communities and affinity propagation use the GPU of rank 0.
Before the merges, each series is centred and scaled to length 1. So a product of two series is their correlation r, and
|z_i - z_j|^2 = 2 (1 - r). For a group, r is the mean of the subjects' correlations (`subject_series`), and the halves
are halves of the subjects instead of halves in time. Without a group, the first half is the first half of each run.

The cost is stated for n series of T numbers with c neighbours each. The merges need about 2 c n T operations for all
numbers of parcels together. A pass of moves needs at most c n T, and there are 10 to 40 passes. Rank 0 needs about
16 n T + 40 c n bytes of memory (12 n T + 40 c n for a group). An evaluation and affinity propagation each need 4 n T
bytes more; `estimate` has all terms.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from mgclust.algorithms.parcellation.evaluation.given_data import part_of
from mgclust.algorithms.parcellation.evaluation.number_choice import chosen, evaluate, random_dcbc
from mgclust.algorithms.parcellation.evaluation.scores import homogeneity
from mgclust.algorithms.parcellation.exemplar_levels import ExemplarLevels, needed_by_levels
from mgclust.algorithms.parcellation.individual_parcels import IndividualParcels, individual_parcels
from mgclust.algorithms.parcellation.merge_cuts import labels_after
from mgclust.algorithms.parcellation.subject_series import (
    Runs,
    SubjectColumns,
    equal_subjects,
    first_halves,
    join_runs,
    join_subjects,
)
from mgclust.algorithms.parcellation.unit_rows import unit_rows
from mgclust.algorithms.parcellation.voxel_communities import VoxelCommunities
from mgclust.base.errors import InputError
from mgclust.engine.memory import Estimate
from mgclust.engine.spmd import Context
from mgclust.kernels.parcels.borders import PASSES, add_rows, move_borders, products_with_sums
from mgclust.kernels.parcels.ward import ward_merges

EVALUATED = 0.8  # fraction of the evaluation that is done before the chosen number is compared with random parcels

LABEL_BYTES = 250  # bytes of memory per row and number of parcels in an evaluation (measured)

__all__ = ["ParcellationOutput", "estimate", "parcellate"]


@dataclass(frozen=True)
class ParcellationOutput:
    """Results of rank 0. The labels for each number of parcels are the delivered array ``candidates``."""

    numbers: tuple[int, ...]  # numbers of parcels, ascending
    chosen: int  # position of the chosen number
    centers: list[np.ndarray]  # for each number, and for each parcel: the row that is most similar to the parcel's mean
    homogeneity: list[float]
    passes: list[int]  # for each number, passes of moves; `PASSES` if the moves had not ended
    unconverged: list[int]  # for each level of affinity propagation that had not converged, its number of nodes
    evaluation: dict[str, np.ndarray] | None  # see `evaluate`
    random_dcbc: np.ndarray | None  # DCBC of random parcels of the chosen number; see `random_dcbc`
    n_constant: int  # number of constant rows
    equal_subjects: list[list[int]]  # positions of subjects of a group whose series are equal
    individual: IndividualParcels | None  # parcels of each subject of a group, for the chosen number of parcels


def parcellate(
    context: Context,
    *,
    numbers: tuple[int, ...],
    algorithm: str,
    compactness: float | None,
    evaluated: bool,
    starts: np.ndarray,
    columns: np.ndarray,
    coordinates: np.ndarray | None,
    runs: Runs,
    subjects: SubjectColumns | None,
    seed: int,
) -> ParcellationOutput | None:
    """Run on every rank: find parcels. Rank 0 returns the results, and each rank delivers the labels of its rows.

    `subjects` is None if the rows are not of a group. `runs` has the columns of each run.
    """
    with context.stage("collect"):
        series = _on_rank_0(context)
    output, labels = None, None
    if series is not None:
        if not (series.max(axis=1) > series.min(axis=1)).any():
            raise InputError(f"X: none of the {len(series)} series changes over time; give series that vary.")
        graph = starts, columns
        equal: list[list[int]] = []
        if subjects is None:
            half = join_runs(series, runs)
            rows = unit_rows(series)
        else:
            ends = join_subjects(series, subjects)
            equal = equal_subjects(series, ends)
            rows, half = series, int(ends[len(subjects) // 2])
        candidates, passes, unconverged = _candidates(context, rows, numbers, algorithm, compactness, *graph, seed)
        found, null, best, individual = None, None, len(numbers) - 1, None
        if evaluated:
            assert coordinates is not None
            halves = series[:, :half], series[:, half:]
            of_halves = [
                _candidates(context, unit_rows(part), numbers, algorithm, compactness, *graph, seed)[0]
                for part in halves
            ]
            with context.stage("evaluate"):
                whole, first, second = (np.stack(each, axis=1) for each in (candidates, *of_halves))
                progress = context.progress
                found = evaluate(
                    whole,
                    first,
                    second,
                    rows,
                    *halves,
                    *graph,
                    coordinates,
                    seed=seed,
                    on_progress=part_of(progress, 0.0, EVALUATED),
                )
                best, rest = numbers.index(chosen(found)), part_of(progress, EVALUATED, 1.0)
                null = random_dcbc(numbers[best], *halves, *graph, coordinates, seed=seed, on_progress=rest)
        if subjects is not None and compactness is not None:
            with context.stage("individual"):
                middles = [first_halves(own) for own in subjects.values()]
                individual = individual_parcels(
                    rows, ends, middles, candidates[best], *graph, compactness, evaluated, context.progress
                )
        labels = np.stack(candidates if individual is None else [*candidates, *individual.labels.T], axis=1)
        described = []
        with context.stage("describe"):
            for at, each in enumerate(candidates):
                context.progress(at / len(candidates), n_clusters=numbers[at])
                described.append(_describe(rows, each))
        output = ParcellationOutput(
            numbers,
            best,
            [typical for typical, _ in described],
            [mean for _, mean in described],
            passes,
            unconverged,
            found,
            null,
            int(np.count_nonzero(~rows.any(axis=1))),
            equal,
            individual,
        )
    context.comm.barrier(limited=False)  # without a deadline, because only rank 0 has worked so far
    whole = context.comm.broadcast(None if labels is None else context.kernels.memory.to_device(labels))
    own = whole[context.rows.start : context.rows.stop]
    context.deliver(candidates=own[:, : len(numbers)])
    if subjects is not None and compactness is not None:
        context.deliver(individual_labels=own[:, len(numbers) :])
    return output


def _on_rank_0(context: Context) -> np.ndarray | None:
    """Collect the rows of all ranks on the host of rank 0; float32."""
    kernels, comm = context.kernels, context.comm
    series = np.empty(context.dataset_shape, np.float32) if context.rank == 0 else None
    for chunk in context.rows.chunks():
        ends = comm.all_gather(kernels.memory.to_device(np.array([[chunk.start, chunk.stop]], np.int64)))
        sent = kernels.memory.to_host(comm.exchange([chunk.x, *[chunk.x[:0]] * (context.size - 1)]))
        if series is not None:
            at = 0
            for start, stop in kernels.memory.to_host(ends).tolist():
                series[start:stop] = sent[at : at + stop - start]
                at += stop - start
    context.rows.release()
    return series


def _candidates(
    context: Context,
    rows: np.ndarray,
    numbers: tuple[int, ...],
    algorithm: str,
    compactness: float | None,
    starts: np.ndarray,
    columns: np.ndarray,
    seed: int,
) -> tuple[list[np.ndarray], list[int], list[int]]:
    """Return the labels and the passes of moves for each number, and the sizes of the levels that did not converge.

    If `compactness` is None, no row moves.
    """
    n, unconverged = len(rows), []
    with context.stage("merge"):
        if algorithm == "ward":
            merges, _ = ward_merges(rows, starts, columns, lambda done: context.progress(done / n, n_clusters=n - done))
            candidates = [labels_after(merges, n, k) for k in numbers]
        elif algorithm == "communities":
            found = VoxelCommunities(context, rows, starts, columns, seed)
            candidates = [found.parcels(k) for k in numbers]
        else:
            levels = ExemplarLevels(context, rows, starts, columns, seed)
            candidates, unconverged = [levels.parcels(k) for k in numbers], levels.unconverged
    passes = [0] * len(numbers)
    if compactness is not None:
        with context.stage("refine"):
            for at, labels in enumerate(candidates):

                def progress(done: float, at: int = at) -> None:
                    context.progress((at + done / PASSES) / len(numbers), n_clusters=numbers[at])

                candidates[at], passes[at] = move_borders(rows, starts, columns, labels, progress, compactness)
    return candidates, passes, unconverged


def _describe(rows: np.ndarray, labels: np.ndarray) -> tuple[np.ndarray, float]:
    """Return the most typical row of each parcel, and the homogeneity of the parcels."""
    count = int(labels.max()) + 1
    sums = np.zeros((count, rows.shape[1]))
    add_rows(rows, labels, sums)
    likeness = products_with_sums(rows, labels, sums)
    order = np.lexsort((-likeness, labels))
    return order[np.searchsorted(labels[order], np.arange(count))], homogeneity(rows, labels)


def estimate(
    shape: tuple[int, int],
    itemsize: int,
    size: int,
    room: int,
    *,
    entries: int,
    algorithm: str,
    evaluated: bool,
    n_subjects: int,
    count: int,
) -> Estimate:
    """Estimate the memory of rank 0; see `mgclust.engine.memory.EstimateFunction`.

    Parameters
    ----------
    shape, itemsize, size, room
        Shape of the data set, bytes of a number, number of ranks, and bytes that rows may take.
    entries : int
        Number of neighbours of all rows together.
    algorithm : str
        Algorithm of the parcellation.
    evaluated : bool
        True if the halves of the series are compared.
    n_subjects : int
        Number of subjects of a group; 0 for rows of one subject.
    count : int
        How many numbers of parcels are requested.
    """
    n, t = shape
    what: dict[str, Any] = {
        "all series on rank 0": 4 * n * t if n_subjects else 2 * 4 * n * t,  # a group is standardised in place
        "sums of clusters": 8 * n * t,
        "pairs of neighbours": 40 * entries,
    }
    if algorithm == "affinity-propagation":
        what |= needed_by_levels(n, t, entries)
    if evaluated:
        what["a half of the series"] = 4 * n * t
        what["labels of all numbers of parcels"] = LABEL_BYTES * n * count
    else:
        what["labels of all numbers of parcels"] = 2 * 4 * n * count
    if n_subjects:
        what["parcels of the subjects"] = 16 * n * n_subjects
    return Estimate(what)
