"""Parameters of silhouettes, as the command line and the service offer them."""

from __future__ import annotations

import os
from typing import Any, ClassVar

from mgclust.algorithms.declaration import Declaration
from mgclust.data.formats import suffixes
from mgclust.kernels.pairs.metrics import METRICS
from mgclust.outside.rooted_files import RootedFile
from mgclust.params import Choice, Constraint

__all__ = ["SilhouetteOptions"]


class _Labels(Constraint):
    """Labels, or the path of a file with labels."""

    type = "file"

    @property
    def expected(self) -> str:
        """See `Constraint`."""
        return f"a label for each row, or the path of a file with the labels ({suffixes('labels')})"

    def _check(self, name: str, value: Any) -> Any:
        return os.fspath(value) if isinstance(value, os.PathLike) else value

    def _read(self, name: str, file: RootedFile) -> Any:
        return file  # `read_labels` reads it, once the rows are known


class SilhouetteOptions(Declaration):
    """Silhouette of each row under given labels: near 1 well inside its cluster, below 0 nearer to another one."""

    method = "silhouette"
    constraints: ClassVar[dict[str, Constraint]] = {
        "labels": _Labels(
            help=f"File with the cluster of each row: {suffixes('labels')}.",
            remedy="on the command line, give --labels FILE",
        ),
        "metric": Choice(
            *METRICS,
            "precomputed",
            help="Distance between rows; precomputed: X is a distance matrix.",
            remedy="give such a name; for another metric, give the matrix of sklearn.metrics.pairwise_distances, and "
            "metric='precomputed'",
        ),
    }

    def __init__(
        self,
        labels: Any = None,
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
        self.labels = labels
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
