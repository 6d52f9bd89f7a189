"""Parameters of both community methods, for the estimators, the command line and the service."""

from __future__ import annotations

import os
from collections.abc import Mapping, Set
from typing import Any, ClassVar

import numpy as np

from mgclust.algorithms.communities.levels import MAX_RESOLUTION
from mgclust.algorithms.declaration import Declaration, refuses
from mgclust.base.dask_arrays import is_dask
from mgclust.data.formats import suffixes
from mgclust.outside.rooted_files import RootedFile
from mgclust.params import Boolean, Choice, Constraint, Integer, Real, Reals
from mgclust.params.relations import GIVEN, Ignored

__all__ = ["RESOLUTION", "CommunitiesOptions", "FastNewmanOptions"]

RESOLUTION = Real(above=0, at_most=MAX_RESOLUTION, help="Above 1: smaller communities; below 1: larger communities.")
WEIGHT = "pass the name of the edge attribute to open_graph(G, weight=...)"


class _InitialLabels(Constraint):
    """Constraint of `init`: labels, a mapping of node names to labels, or a path."""

    type = "file"

    @property
    def expected(self) -> str:
        """See `Constraint`."""
        return (
            "an integer for each node (-1: none), a mapping of node names to such integers, or the path of a result "
            f"directory or a file of labels ({suffixes('labels')})"
        )

    def _check(self, name: str, value: Any) -> Any:
        return _path_or_array(self, name, value)

    def _read(self, name: str, file: RootedFile) -> Any:
        return file  # `initial_labels` reads it, once the graph is known


class _FixedNodes(Constraint):
    """Constraint of `fixed`: node numbers, node names, a mask, or a path."""

    type = "file"

    @property
    def expected(self) -> str:
        """See `Constraint`."""
        return (
            "a list of node numbers or node names, a Boolean for each node, or the path of a file with one of these "
            f"({suffixes('labels')})"
        )

    def _check(self, name: str, value: Any) -> Any:
        if isinstance(value, Mapping):
            raise self.refuse(name, value)
        return _path_or_array(self, name, sorted(value, key=str) if isinstance(value, Set) else value)

    def _read(self, name: str, file: RootedFile) -> Any:
        return file  # `fixed_nodes` reads it, once the graph is known


def _path_or_array(constraint: Constraint, name: str, value: Any) -> Any:
    """Return a path as text, and values as an array; mappings and Dask arrays stay as they are."""
    if isinstance(value, (str, os.PathLike)):
        return os.fspath(value)
    if isinstance(value, (RootedFile, Mapping)) or is_dask(value):
        return value
    try:
        array = np.asarray(value.get() if hasattr(value, "__cuda_array_interface__") else value)
    except ValueError:  # lists of unequal lengths
        raise constraint.refuse(name, value) from None
    if array.ndim != 1:
        raise constraint.refuse(name, value)
    return array


class CommunitiesOptions(Declaration):
    """Communities of a graph by modularity: local moving in parallel, or greedy merging."""

    method = "communities"
    opens = "graph"
    constraints: ClassVar[dict[str, Constraint]] = {
        "n_clusters": Integer(
            at_least=1, optional=True, help="Number of communities; default: the number with the largest modularity."
        ),
        "strategy": Choice(
            "auto",
            "greedy",
            "parallel",
            help="greedy: merge pairs; parallel: move nodes; auto: greedy with n_clusters, else parallel.",
            synonyms={"leiden": "parallel", "louvain": "parallel"},
        ),
        "objective": Choice(
            "modularity", "cpm", help="What communities maximise: modularity, or the constant Potts model."
        ),
        "directed": Boolean(help="Maximise directed modularity: edges lead from their first to their second node."),
        # The upper bound depends on the objective; see `Communities`.
        "resolution": Real(above=0, help="Above 1: smaller communities; below 1: larger communities."),
        "resolutions": Reals(
            above=0,
            optional=True,
            help="Several resolutions that share the graph, such as 1,0.5,2; the first one gives the labels.",
        ),
        "init": _InitialLabels(
            optional=True, help="File of known communities (a label per node; -1: none), or an earlier result."
        ),
        "fixed": _FixedNodes(
            optional=True, help="File of nodes (numbers or names, one per line) that keep their community of init."
        ),
        "consensus": Integer(
            at_least=0, at_most=1000, help="Number of seeds whose communities are combined, such as 20; 0: one search."
        ),
        "null": Integer(
            at_least=0,
            at_most=10_000,
            optional=True,
            help="Number of random graphs with the same degrees to compare, such as 20; default: up to 5 if the "
            "modularity is low.",
        ),
        "stability": Integer(
            at_least=0,
            at_most=10_000,
            help="Number of graphs without 10% of the edges whose communities are compared, such as 20; 0: none.",
        ),
    }

    ignored_when = (Ignored("resolution", {"resolutions": GIVEN}, remedy="the first of resolutions gives the labels"),)

    @refuses(weight=WEIGHT)
    def __init__(
        self,
        n_clusters: int | None = None,
        *,
        strategy: str = "auto",
        objective: str = "modularity",
        directed: bool = False,
        resolution: float = 1.0,
        resolutions: Any = None,
        init: Any = None,
        fixed: Any = None,
        consensus: int = 0,
        null: int | None = None,
        stability: int = 0,
        device: str = "auto",
        client: Any = "auto",
        n_workers: int | None = None,
        workers: Any = None,
        resources: dict[str, float] | None = None,
        retries: int = 0,
        memory_limit: int | str | None = None,
        random_state: Any = None,
        verbose: bool = False,
    ) -> None:
        self.n_clusters = n_clusters
        self.strategy = strategy
        self.objective = objective
        self.directed = directed
        self.resolution = resolution
        self.resolutions = resolutions
        self.init = init
        self.fixed = fixed
        self.consensus = consensus
        self.null = null
        self.stability = stability
        self.device = device
        self.client = client
        self.n_workers = n_workers
        self.workers = workers
        self.resources = resources
        self.retries = retries
        self.memory_limit = memory_limit
        self.random_state = random_state
        self.verbose = verbose


class FastNewmanOptions(Declaration):
    """Communities of a graph by Fast Newman: greedy merging by modularity (Newman 2004)."""

    method = "fast-newman"
    opens = "graph"
    constraints: ClassVar[dict[str, Constraint]] = {
        "n_clusters": Integer(
            at_least=1, optional=True, help="Number of communities; default: the number with the largest modularity."
        ),
        "resolution": RESOLUTION,
    }

    @refuses(weight=WEIGHT)
    def __init__(
        self,
        n_clusters: int | None = None,
        *,
        resolution: float = 1.0,
        device: str = "auto",
        client: Any = "auto",
        n_workers: int | None = None,
        workers: Any = None,
        resources: dict[str, float] | None = None,
        retries: int = 0,
        memory_limit: int | str | None = None,
        verbose: bool = False,
    ) -> None:
        self.n_clusters = n_clusters
        self.resolution = resolution
        self.device = device
        self.client = client
        self.n_workers = n_workers
        self.workers = workers
        self.resources = resources
        self.retries = retries
        self.memory_limit = memory_limit
        self.verbose = verbose
