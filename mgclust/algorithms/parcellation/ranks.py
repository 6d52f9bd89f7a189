r"""Parcels on any number of ranks; rank 0 collects all series, because each merge and move depends on earlier ones.

Stages::

    collect      send all series to rank 0, as float32
    merge        Ward's merges of neighbours        (`mgclust.kernels.parcels.ward`), or communities, or affinity
                 propagation
    refine       moves across the borders           (`mgclust.kernels.parcels.borders`)
    evaluate     compare the parcels of both halves of the series, which are also merged and refined
    describe     the most typical row and the homogeneity of each parcel

Every stage after the first runs on the host of rank 0; only communities and affinity propagation use the GPU of rank 0.
Before the merges, each series is centred and scaled to length 1. So a product of two series is their correlation r, and
|z_i - z_j|^2 = 2 (1 - r).

The cost is stated for n series of T numbers with c neighbours each. The merges need about 2 c n T operations for all
numbers of parcels together. A pass of moves needs at most c n T, and there are 10 to 40 passes. Rank 0 needs 20 n T
bytes of memory, and 40 c n bytes in addition.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from mgclust.algorithms.parcellation.evaluation import evaluate, homogeneity
from mgclust.algorithms.parcellation.exemplar_levels import ExemplarLevels, needed_by_levels
from mgclust.algorithms.parcellation.merge_cuts import labels_after
from mgclust.algorithms.parcellation.voxel_communities import VoxelCommunities
from mgclust.base.errors import InputError
from mgclust.engine.memory import Estimate
from mgclust.engine.spmd import Context
from mgclust.kernels.parcels.borders import PASSES, add_rows, move_borders, products_with_sums
from mgclust.kernels.parcels.ward import ward_merges

__all__ = ["ParcellationOutput", "estimate", "parcellate"]

PIECE = 1 << 22  # number of values that are standardised at a time
LABEL_BYTES = 250  # bytes of memory per row and number of parcels in an evaluation, by measurement


@dataclass(frozen=True)
class ParcellationOutput:
    """Results of rank 0. The labels for each number of parcels are the delivered array ``candidates``."""

    numbers: tuple[int, ...]  # numbers of parcels, ascending
    centers: list[np.ndarray]  # for each number, and for each parcel: the row that is most similar to the parcel's mean
    homogeneity: list[float]
    passes: list[int]  # for each number, passes of moves; `PASSES` if the moves had not ended
    unconverged: list[int]  # for each level of affinity propagation that had not converged, its number of nodes
    evaluation: dict[str, np.ndarray] | None  # see `evaluate`


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
    seed: int,
) -> ParcellationOutput | None:
    """Run on every rank: find parcels. Rank 0 returns the results, and each rank delivers the labels of its rows."""
    with context.stage("collect"):
        series = _on_rank_0(context)
    output, labels = None, None
    if series is not None:
        if not (series.max(axis=1) > series.min(axis=1)).any():
            raise InputError(f"X: none of the {len(series)} series changes over time; give series that vary.")
        graph = starts, columns
        candidates, passes, unconverged = _candidates(
            context, _standardised(series), numbers, algorithm, compactness, *graph, seed
        )
        found = None
        if evaluated:
            assert coordinates is not None
            half = series.shape[1] // 2
            halves = series[:, :half], series[:, half:]
            of_halves = [
                _candidates(context, _standardised(part), numbers, algorithm, compactness, *graph, seed)[0]
                for part in halves
            ]
            with context.stage("evaluate"):
                whole, first, second = (np.stack(each, axis=1) for each in (candidates, *of_halves))
                found = evaluate(
                    whole, first, second, *halves, *graph, coordinates, seed=seed, on_progress=context.progress
                )
        labels = np.stack(candidates, axis=1)
        described = []
        with context.stage("describe"):
            rows = _standardised(series)
            for at, each in enumerate(candidates):
                context.progress(at / len(candidates), n_clusters=numbers[at])
                described.append(_describe(rows, each))
        output = ParcellationOutput(
            numbers, [rows for rows, _ in described], [mean for _, mean in described], passes, unconverged, found
        )
    context.comm.barrier(limited=False)  # rank 0 has worked alone
    whole = context.comm.broadcast(None if labels is None else context.kernels.memory.to_device(labels))
    context.deliver(candidates=whole[context.rows.start : context.rows.stop])
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


def _standardised(series: np.ndarray) -> np.ndarray:
    """Return rows of mean 0 and length 1, in float32; constant rows become 0."""
    out = np.empty(series.shape, np.float32)
    step = max(1, PIECE // series.shape[1])
    for start in range(0, len(series), step):
        rows = series[start : start + step].astype(np.float64)
        size = np.abs(rows).max(axis=1, keepdims=True, initial=0)
        rows -= rows.mean(axis=1, keepdims=True)
        length = np.sqrt((rows * rows).sum(axis=1, keepdims=True))
        constant = length <= 1e-6 * size * series.shape[1] ** 0.5
        out[start : start + step] = np.divide(rows, length, out=np.zeros_like(rows), where=~constant)
    return out


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
    count : int
        How many numbers of parcels are requested.
    """
    n, t = shape
    what: dict[str, Any] = {
        "all series on rank 0": 2 * 4 * n * t,
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
    return Estimate(what)
