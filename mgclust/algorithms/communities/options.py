"""Parameters of both community methods, for the estimators, the command line and the service."""

from __future__ import annotations

from typing import Any, ClassVar

from mgclust.algorithms.communities.levels import MAX_RESOLUTION
from mgclust.algorithms.declaration import Declaration, refuses
from mgclust.params import Choice, Constraint, Integer, Real

__all__ = ["CommunitiesOptions", "FastNewmanOptions"]

RESOLUTION = Real(above=0, at_most=MAX_RESOLUTION, help="Above 1: smaller communities; below 1: larger communities.")
WEIGHT = "pass the name of the edge attribute to open_graph(G, weight=...)"


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
        "resolution": RESOLUTION,
    }

    @refuses(weight=WEIGHT)
    def __init__(
        self,
        n_clusters: int | None = None,
        *,
        strategy: str = "auto",
        resolution: float = 1.0,
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
        self.resolution = resolution
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
