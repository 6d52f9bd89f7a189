"""Parameters of nearest neighbours, as the command line and the service offer them."""

from __future__ import annotations

from typing import Any, ClassVar

from mgclust.algorithms.declaration import Declaration
from mgclust.kernels.pairs.metrics import METRICS
from mgclust.params import Choice, Constraint, Integer

__all__ = ["NearestNeighborsOptions"]


class NearestNeighborsOptions(Declaration):
    """The nearest rows of each row, exact, on one or many CPUs or GPUs."""

    method = "nearest-neighbors"
    constraints: ClassVar[dict[str, Constraint]] = {
        "n_neighbors": Integer(at_least=1, help="Number of nearest rows, without the row itself."),
        "metric": Choice(*METRICS, help="Distance between rows."),
    }

    def __init__(
        self,
        n_neighbors: int = 5,
        *,
        metric: str = "euclidean",
        device: str = "auto",
        client: Any = "auto",
        n_workers: int | None = None,
        workers: Any = None,
        resources: dict[str, float] | None = None,
        retries: int = 0,
        dtype: str = "float32",
        memory_limit: int | str | None = None,
        verbose: bool = False,
    ) -> None:
        self.n_neighbors = n_neighbors
        self.metric = metric
        self.device = device
        self.client = client
        self.n_workers = n_workers
        self.workers = workers
        self.resources = resources
        self.retries = retries
        self.dtype = dtype
        self.memory_limit = memory_limit
        self.verbose = verbose
