"""Series on a grid with the graph of their neighbours, and a context of one CPU rank for them."""

from __future__ import annotations

import numpy as np
from scipy.sparse import csr_array

from mgclust.data.arrays import ArrayDataset
from mgclust.data.neighbors import volume_neighbors
from mgclust.engine.abort import Abort
from mgclust.engine.context import Context
from mgclust.engine.partition import Partition
from mgclust.engine.rows import Rows
from mgclust.engine.transport.comm import SoloComm
from mgclust.kernels import load


def context_of(rows, abort=None, emit=None):
    kernels, partition = load("cpu"), Partition.plan(len(rows), 1)
    own = Rows(
        ArrayDataset(rows), 0, len(rows), dtype=np.dtype("float32"), kernels=kernels, block_rows=partition.block_rows
    )
    return Context(
        comm=SoloComm(partition, len(rows)),
        partition=partition,
        rows=own,
        kernels=kernels,
        free=1 << 28,
        spare=1 << 26,
        abort=abort or Abort(),
        emit=emit,
        host_free=lambda: 1 << 28,
    )


def unit(rows):
    rows = rows - rows.mean(axis=1, keepdims=True)
    return (rows / np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1e-12)).astype(np.float32)


def edges_of(graph):
    own = np.repeat(np.arange(len(graph.starts) - 1), np.diff(graph.starts))
    return np.stack([own, graph.columns], axis=1)[own < graph.columns]


def matrix_of(graph):
    n = len(graph.starts) - 1
    return csr_array((np.ones(len(graph.columns)), graph.columns, graph.starts), shape=(n, n))


def smooth(shape, connectivity=26, seed=0, features=30):
    """Rows on a grid, neighbours of which are similar, with their graph."""
    rng = np.random.default_rng(seed)
    graph = volume_neighbors(np.ones(shape, bool), shape, connectivity)
    rows = rng.normal(size=(int(np.prod(shape)), features))
    own = np.repeat(np.arange(len(rows)), np.diff(graph.starts))
    for _ in range(2):
        total = rows.copy()
        np.add.at(total, own, rows[graph.columns])
        rows = total
    return unit(rows + rng.normal(size=rows.shape)), graph
