r"""Modularity of given communities (Newman and Girvan 2004), on any number of ranks.

    Q = sum over communities of [ m_c / m - resolution (d_c / 2m)^2 ]
    Q = sum over communities of [ m_c / m - resolution out_c in_c / m^2 ]        # directed (Leicht and Newman 2008)

m_c is the weight of the edges inside community c, d_c the sum of its nodes' strengths, and m the weight of all edges.
out_c and in_c are the weights of the edges that leave and that enter nodes of c, including the edges inside c.
Edges are read once. The only exchange is n sums and one number.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from functools import partial
from typing import Any

import numpy as np

from mgclust.algorithms.communities.directions import check_directions
from mgclust.algorithms.communities.levels import MAX_RESOLUTION, at_resolution, modularity_of, read_level
from mgclust.algorithms.communities.memory import estimate
from mgclust.base.dask_arrays import is_dask, reject_lost
from mgclust.base.errors import InputError
from mgclust.data import open_graph
from mgclust.engine.dask.cluster import connect
from mgclust.engine.spmd import Context, RunSpec, run
from mgclust.params import Boolean, Real

__all__ = ["modularity"]


def modularity(
    graph: Any,
    labels: Any,
    resolution: float = 1.0,
    *,
    directed: bool = False,
    weight: str | None = "weight",
    client: Any = "auto",
    n_workers: int | None = None,
    workers: Any = None,
    resources: dict[str, float] | None = None,
    retries: int = 0,
    device: str = "auto",
) -> float:
    """Compute the modularity of communities in a graph.

    Parameters
    ----------
    graph : array, matrix, graph, path, URL or Graph
        Any input of `open_graph`.
    labels : array of shape (n_nodes,), int
        Community of each node, in the order of the graph's nodes; any integers. A Dask array stays on the workers.
    resolution : float, default=1.0
        Values above 1 favour small communities, values below 1 large communities.
    directed : bool, default=False
        Whether edges have a direction, from their first to their second node; see `Communities`.
    weight : str or None, default="weight"
        See `open_graph`.
    client : {"auto", "local"}, None, address or distributed.Client, default="auto"
    n_workers : int, optional
    workers : str, int or sequence of these, optional
    resources : dict of str to float, optional
    retries : int, default=0
    device : {"auto", "cpu", "cuda"}, default="auto"
        See `Communities`.

    Returns
    -------
    float
        Modularity, at most 1; 0.0 for a graph without edges.

    Raises
    ------
    InputError
        `labels` does not hold one integer per node, or `directed` is true and the edges have no direction.

    See Also
    --------
    Communities : Finds communities of large modularity.

    Examples
    --------
    >>> from mgclust import modularity
    >>> modularity([(0, 1), (1, 2), (0, 2), (2, 3), (3, 4), (4, 5), (3, 5)], [0, 0, 0, 1, 1, 1], client=None)
    0.3571428571428571
    """
    resolution = Real(above=0, at_most=MAX_RESOLUTION, help="").check("resolution", resolution)
    directed = Boolean(help="").check("directed", directed)
    opened = open_graph(graph, weight=weight)
    if directed:
        check_directions(opened)
    if isinstance(labels, Mapping) or (isinstance(labels, Sequence) and any(_is_group(each) for each in labels)):
        raise InputError(
            f"labels is a {type(labels).__name__} of node names; give one integer for each of the graph's "
            f"n_nodes={opened.n_nodes} nodes, such as labels_ of Communities."
        )
    given = labels if is_dask(labels) else np.asarray(labels.get() if hasattr(labels, "get") else labels)
    if given.shape != (opened.n_nodes,) or given.dtype.kind not in "iu":
        raise InputError(
            f"labels (shape={given.shape}, dtype={given.dtype}) should be one integer for each of the graph's "
            f"n_nodes={opened.n_nodes} nodes."
        )
    reject_lost(given)
    arguments = {"n": opened.n_nodes, "labels": given if is_dask(given) else _dense(given)}
    arguments |= {"resolution": resolution, "directed": directed}
    spec = RunSpec(evaluate, arguments, partial(estimate, n=opened.n_nodes), opened.dtype.name)
    with connect(
        client=client, device=device, n_workers=n_workers, workers=workers, resources=resources, retries=retries
    ) as cluster:
        return float(run(spec, opened, cluster).value)


def _is_group(value: Any) -> bool:
    return isinstance(value, (Set, Sequence)) and not isinstance(value, str)


def evaluate(context: Context, *, n: int, labels: np.ndarray, resolution: float, directed: bool) -> float:
    """Compute the modularity on every rank."""
    level, _ = read_level(context, n, directed=directed)
    return modularity_of(at_resolution(level, resolution), level.kernels.memory.to_device(_dense(labels)))


def _dense(labels: np.ndarray) -> np.ndarray:
    """Number communities from 0 without gaps, unless they already are. For a Dask array, only the ranks call this."""
    n = len(labels)
    if labels.dtype == np.int32 and n and labels.min() == 0 and labels.max() < n and (np.bincount(labels) > 0).all():
        return labels
    return np.unique(labels, return_inverse=True)[1].astype(np.int32)
