"""Parameters of canopies, as the command line and the service offer them."""

from __future__ import annotations

from typing import Any, ClassVar

from mgclust.algorithms.declaration import Declaration
from mgclust.kernels.pairs.metrics import METRICS
from mgclust.params import Choice, Constraint, Real

__all__ = ["CanopyOptions"]


DISTANCES = tuple(name for name in METRICS if name != "sqeuclidean")  # a square is not a distance


class CanopyOptions(Declaration):
    """Canopy clustering of McCallum, Nigam and Ungar (2000), exact, on one or many CPUs or GPUs."""

    method = "canopy"
    constraints: ClassVar[dict[str, Constraint]] = {
        "t1": Real(
            above=0,
            optional=True,
            help="Loose distance: a canopy consists of all rows within this distance of its centre.",
        ),
        "t2": Real(
            above=0,
            optional=True,
            help="Tight distance, below t1: rows within this distance of a centre cannot become centres.",
        ),
        "order": Choice("index", "random", help="Order in which rows become centres."),
        "metric": Choice(*DISTANCES, help="Distance between rows."),
    }

    def __init__(
        self,
        t1: float | None = None,
        t2: float | None = None,
        *,
        order: str = "index",
        metric: str = "euclidean",
        device: str = "auto",
        client: Any = "auto",
        n_workers: int | None = None,
        workers: Any = None,
        resources: dict[str, float] | None = None,
        retries: int = 1,
        dtype: str = "float64",
        memory_limit: int | str | None = None,
        random_state: Any = None,
        verbose: bool = False,
    ) -> None:
        self.t1 = t1
        self.t2 = t2
        self.order = order
        self.metric = metric
        self.device = device
        self.client = client
        self.n_workers = n_workers
        self.workers = workers
        self.resources = resources
        self.retries = retries
        self.dtype = dtype
        self.memory_limit = memory_limit
        self.random_state = random_state
        self.verbose = verbose
