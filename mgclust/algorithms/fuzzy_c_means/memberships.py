"""Memberships of rows in given clusters, computed block by block unless all are requested at once.

Memberships are cheap to compute again (one distance per centre) and large to store (n x c). So a fit stores them only
for small data. This module computes them block by block, into an array, a zarr store, or labels.
"""

from __future__ import annotations

import os
import shutil
import tempfile
import weakref
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import psutil

from mgclust.algorithms.common.nearest_centers import nearest_centers
from mgclust.algorithms.common.preparation import Prepared, prepare_again
from mgclust.algorithms.common.weights import RowWeights
from mgclust.algorithms.fuzzy_c_means.covariances import CovarianceSums
from mgclust.algorithms.fuzzy_c_means.prototypes import Prototypes
from mgclust.algorithms.fuzzy_c_means.weighted_sums import OwnWeights, WeightedSums, rows_of_piece
from mgclust.base.dask_arrays import reject_lost
from mgclust.base.errors import InputError, InsufficientMemoryError
from mgclust.data import Dataset
from mgclust.engine.dask.cluster import connect
from mgclust.engine.memory import Estimate, EstimateFunction, human
from mgclust.engine.partition import Partition
from mgclust.engine.spmd import Context, Outcome, RunSpec, run, stays_on_workers
from mgclust.kernels.pairs.metrics import METRICS
from mgclust.results.array_files import Deferred
from mgclust.results.atomic_directory import atomic_directory

__all__ = [
    "Clusters",
    "Memberships",
    "assign",
    "estimate_rows",
    "pieces_of_memberships",
    "pieces_of_rows",
]

Array = Any
SMALL = 64 << 20  # up to this many bytes, a fit returns the memberships at once
PIECE_COPIES = 3  # copies of the memberships of a piece: one computed, one on the host, and one to compare


@dataclass(frozen=True)
class Clusters:
    """Prototypes, and the values that are needed to compute memberships of other rows."""

    prototypes: Prototypes  # in the coordinates of prepared rows
    prepared: Prepared  # how the fitted rows were prepared
    metric: str
    m: float
    dtype: str  # type of the computation
    noise: float | None = None  # squared distance of a noise cluster


class Memberships:
    """Memberships of a data set's rows in some clusters.

    Parameters
    ----------
    clusters : Clusters
    dataset : Dataset
    place : mapping
        Arguments of `connect`, which define where to compute.
    memory_limit : int, optional
        Bytes by which the memory of each rank may grow.
    """

    def __init__(
        self,
        clusters: Clusters,
        dataset: Dataset,
        place: Mapping[str, Any],
        memory_limit: int | None,
    ) -> None:
        self._clusters, self._dataset = clusters, dataset
        self._place, self._memory_limit = place, memory_limit
        self.shape = (dataset.shape[0], len(clusters.prototypes.centers))
        self.dtype = np.dtype(clusters.dtype)

    @staticmethod
    def are_small(n: int, c: int, dtype: str) -> bool:
        """Return whether a fit should return the memberships at once."""
        return n * c * np.dtype(dtype).itemsize <= SMALL

    @property
    def nbytes(self) -> int:
        """Bytes of all memberships."""
        return self.shape[0] * self.shape[1] * self.dtype.itemsize

    def labels(self) -> Any:
        """Return the label of each row, int32: the nearest centre (ties: the first), or -1 for noise."""
        return self._run("labels").arrays["labels"]

    def array(self) -> Any:
        """Return all memberships, in the caller's memory or in the memory of the workers that hold the rows."""
        return self._run("memberships").arrays["memberships"]

    def _check_room(self) -> None:
        """Raise `InsufficientMemoryError` if the caller's memory cannot hold the memberships."""
        free = psutil.virtual_memory().available
        if 2 * self.nbytes > free:
            raise InsufficientMemoryError(
                f"not enough memory: memberships of {self.shape[0]} rows in {self.shape[1]} clusters need "
                f"{human(self.nbytes)}, and half of the free memory is {human(free // 2)}; call predict_memberships(X, "
                "out='memberships.zarr'), which writes them block by block, or give fewer rows."
            )

    def store(self, path: str | os.PathLike[str]) -> Any:
        """Write all memberships into a new zarr store, and open it for reading.

        The store appears under its name when it is complete.
        """
        import zarr

        if not isinstance(path, (str, os.PathLike)):
            raise InputError(f"out={path!r} should be the path of a new zarr store; give a path or None.")
        target = Path(os.path.abspath(path))
        if os.path.lexists(target):
            raise InputError(f"out={str(path)!r} exists; choose another name or remove the file.")
        if not target.parent.is_dir():
            raise InputError(
                f"out={str(path)!r} cannot be created: {str(target.parent)!r} is not a directory; create the directory "
                "or choose another path."
            )
        with atomic_directory(target) as unfinished:
            # Only one rank writes a block of rows, so two ranks never write the same chunk of the store.
            rows = Partition.plan(self.shape[0], 1).block_rows
            chunks = (min(rows, self.shape[0]), self.shape[1])
            zarr.create_array(unfinished, shape=self.shape, chunks=chunks, dtype=self.dtype.name)
            self._run(str(unfinished))
        return zarr.open_array(target, mode="r")

    def somewhere(self) -> Any:
        """Return the memberships in memory if they fit into half of the free memory, else in a temporary zarr store.

        The temporary store exists as long as the array. Memberships of a Dask array stay on the workers with its rows.
        """
        reject_lost(self._dataset.dask_array)
        with connect(**self._place, optional=True) as cluster:
            on_workers = stays_on_workers(cluster, self._dataset)
        if on_workers or 2 * self.nbytes <= psutil.virtual_memory().available:
            return self.array()
        folder = tempfile.mkdtemp(prefix="mgclust-")
        stored = self.store(Path(folder) / "memberships.zarr")
        weakref.finalize(stored, shutil.rmtree, folder, ignore_errors=True)
        return stored

    def deferred(self) -> Deferred:
        """Return an array that is computed when a result is saved."""
        return Deferred(self.shape, self.dtype, self.store)

    def objective(self, weights: RowWeights | None, need: EstimateFunction) -> float:
        """Return J of the rows with their weights; this needs as much memory as an iteration."""
        return float(self._run("objective", weights, need).value)

    def _run(self, what: str, weights: RowWeights | None = None, need: EstimateFunction | None = None) -> Outcome:
        spec = RunSpec(
            memberships_of_rows,
            {"clusters": self._clusters, "what": what},
            need or partial(_estimate, c=self.shape[1], all_at_once=what == "memberships"),
            self.dtype.name,
            self._memory_limit,
            metric=self._clusters.metric,
            resident=False,
            row_arguments={} if weights is None else {"weights": weights.array},
        )
        reject_lost(self._dataset.dask_array)
        with connect(**self._place, optional=True) as cluster:
            if what == "memberships" and not stays_on_workers(cluster, self._dataset):
                self._check_room()
            return run(spec, self._dataset, cluster)


def memberships_of_rows(
    context: Context, *, clusters: Clusters, what: str, weights: np.ndarray | None = None
) -> float | None:
    """Compute `what` on every rank: "labels", "memberships" or "objective"; any other `what` is a path.

    Labels and memberships are delivered, and J is returned. With a path, the memberships are written to the zarr store
    at this path. `weights` are the weights of the local rows.
    """
    prototypes = clusters.prototypes
    found = prototypes, clusters.m, clusters.noise
    with context.stage("prepare"):
        prepare_again(context, METRICS[clusters.metric], clusters.prepared)
    with context.stage("memberships"):
        if what == "labels":
            context.deliver(labels=own_labels(context, *found))
        elif what == "memberships":
            context.deliver(memberships=own_memberships(context, *found))
        elif what == "objective":
            own = OwnWeights.of(context, weights)
            return _sums_of(context, prototypes, clusters.m, own, clusters.noise).objective_at(prototypes)
        else:
            import zarr

            store = zarr.open_array(what, mode="r+")
            for start, stop, u in pieces_of_memberships(context, *found):
                if stop > start:
                    store[start:stop] = u
            context.comm.barrier()
    return None


def assign(context: Context, prototypes: Prototypes, m: float, keep: bool, noise: float | None) -> np.ndarray:
    """Deliver the labels of prepared rows, and their memberships if `keep` is True.

    Returns
    -------
    ndarray of shape (1 + c,), int64
        Number of rows in the noise cluster, and in each cluster; on every rank.
    """
    labels = own_labels(context, prototypes, m, noise)
    context.deliver(labels=labels)
    if keep:
        context.deliver(memberships=own_memberships(context, prototypes, m, noise))
    sizes = np.zeros(1 + len(prototypes.centers), np.int64)
    for start in range(0, len(labels), step := context.rows.piece):
        sizes += np.bincount(labels[start : start + step] + 1, minlength=len(sizes))
    return np.asarray(context.comm.all_reduce(sizes, "sum"))


def own_labels(context: Context, prototypes: Prototypes, m: float, noise: float | None) -> np.ndarray:
    """Return the nearest centre of each local row, or -1 if its membership in the noise exceeds all others."""
    if prototypes.factors is None:
        labels = context.kernels.memory.to_host(nearest_centers(context, prototypes.centers))
    else:
        labels = _nearest_in_norms(context, prototypes)
    if noise is not None:
        pieces = pieces_of_memberships(context, prototypes, m, noise)
        outside = [1 - u.sum(axis=1, dtype=np.float64) > u.max(axis=1) for _, _, u in pieces]
        labels = np.where(np.concatenate([np.zeros(0, bool), *outside]), np.int32(-1), labels)
    return labels


def _nearest_in_norms(context: Context, prototypes: Prototypes) -> np.ndarray:
    """Return the nearest centre of each local row in the clusters' norms (ties: the first); int32, on the host."""
    labels, rows, sums = np.empty(len(context.rows), np.int32), context.rows, CovarianceSums(context, 2.0, None)
    (ready,) = sums.readied(prototypes.packed[None])
    for start, stop in pieces_of_rows(context, len(prototypes.centers)):
        if stop > start:
            nearest = sums.distances(rows.read(start, stop), ready).argmin(axis=1)
            labels[start - rows.start : stop - rows.start] = context.kernels.memory.to_host(nearest)
    return labels


def own_memberships(context: Context, prototypes: Prototypes, m: float, noise: float | None) -> np.ndarray:
    """Return the memberships of the local rows, on the host."""
    rows = context.rows
    memberships = np.empty((len(rows), len(prototypes.centers)), context.dtype)
    for start, stop, u in pieces_of_memberships(context, prototypes, m, noise):
        memberships[start - rows.start : stop - rows.start] = u
    return memberships


def pieces_of_memberships(
    context: Context, prototypes: Prototypes, m: float, noise: float | None
) -> Iterator[tuple[int, int, np.ndarray]]:
    """Yield bounds and memberships of pieces of the local rows, in whole blocks; every rank yields the same number."""
    sums = _sums_of(context, prototypes, m, None, noise)
    (ready,) = sums.readied(sums.placed(prototypes.packed[None]))
    bounds = pieces_of_rows(context, len(prototypes.centers))
    for piece, (start, stop) in enumerate(bounds):
        u = np.empty((0, len(prototypes.centers)), context.dtype)
        if stop > start:
            u = context.kernels.memory.to_host(sums.memberships(context.rows.read(start, stop), ready))
        yield start, stop, np.asarray(u)
        context.progress((piece + 1) / len(bounds))


def _sums_of(
    context: Context, prototypes: Prototypes, m: float, weights: OwnWeights | None, noise: float | None
) -> WeightedSums:
    return (WeightedSums if prototypes.factors is None else CovarianceSums)(context, m, weights, noise)


def pieces_of_rows(context: Context, columns: int) -> list[tuple[int, int]]:
    """Return bounds of pieces of the local rows, in whole blocks, for `columns` numbers per row.

    Every rank has the same number of pieces, and some pieces may be empty.
    """
    rows, step = context.rows, rows_of_piece(context, PIECE_COPIES * columns * context.dtype.itemsize)
    count = int(context.comm.all_reduce(np.array([-(-len(rows) // step)]), "max")[0])
    edges = [min(rows.start + piece * step, rows.stop) for piece in range(count + 1)]
    return list(pairwise(edges))


def estimate_rows(n: int, size: int, c: int, itemsize: int) -> dict[str, int]:
    """Estimate the memory of a rank for labels and memberships of some rows, with n rows on `size` ranks."""
    block = min(n, Partition.plan(n, size).block_rows)
    return {"labels": 12 * -(-n // size), "memberships of some rows": PIECE_COPIES * c * itemsize * block}


def _estimate(shape: tuple[int, int], itemsize: int, size: int, room: int, *, c: int, all_at_once: bool) -> Estimate:
    what = estimate_rows(shape[0], size, c, itemsize)
    if all_at_once:
        what["memberships of own rows"] = -(-shape[0] // size) * c * itemsize
    return Estimate(what)
