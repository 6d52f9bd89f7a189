"""Parameters of fuzzy c-means, as the command line and the service offer them."""

from __future__ import annotations

from typing import Any, ClassVar

from mgclust.algorithms.declaration import Declaration
from mgclust.algorithms.fuzzy_c_means.initialization import DRAWN
from mgclust.algorithms.fuzzy_c_means.input import Start
from mgclust.params import Choice, Constraint, Integer, Range, Real, RealOrWord
from mgclust.params.relations import GIVEN, LEFT_OUT, Ignored, Unlike

__all__ = ["STOPS", "FuzzyCMeansOptions", "criterion_of"]


SPACES = ("euclidean", "cosine", "correlation")  # where means of rows are what minimises J
STOPS = ("centers", "objective", "memberships")  # what has to change by no more than tol
CRITERIA = {  # and what is best
    "xie_beni": min,
    "modified_partition_coefficient": max,
    "fuzzy_silhouette": max,
    "fuzzy_hypervolume": min,
}


class FuzzyCMeansOptions(Declaration):
    """Fuzzy c-means of Bezdek (1981): rows belong to every cluster to some degree, on one or many CPUs or GPUs."""

    method = "fuzzy-c-means"
    constraints: ClassVar[dict[str, Constraint]] = {
        "n_clusters": Integer(at_least=1, help="Number of clusters."),
        "n_clusters_range": Range(optional=True, help="Numbers of clusters of which one is chosen, such as 2,10."),
        "criterion": Choice("auto", *CRITERIA, help="Validity index that chooses the number of clusters."),
        "m": RealOrWord(
            "auto",
            above=1,
            help="Fuzzifier: near 1 as k-means, large all memberships alike; auto: by features and rows, at most 2.",
            remedy="'auto' chooses by the shape of the data",
        ),
        "covariance_type": Choice(
            "spherical", "full", help="Shape of clusters: all alike and round, or each with a covariance of its own."
        ),
        "shrinkage": Real(
            at_least=0, at_most=1, help="Share of the covariance of all rows in that of each cluster, where it is full."
        ),
        "init": Start(help="Where centres start: a way, or a .npy of centres or of memberships."),
        "n_init": Integer(at_least=1, help="Runs from different starts, in the same passes over the data."),
        "max_iter": Integer(at_least=1, help="Most iterations."),
        "tol": Real(at_least=0, help="Largest change that counts as none, of what stop names."),
        "stop": Choice(
            *STOPS, help="What tol bounds: moves of centres over the data's spread, J over J before, or memberships."
        ),
        "noise_distance": Real(
            above=0, optional=True, help="Distance of a noise cluster from all rows: those farther from centres get -1."
        ),
        "metric": Choice(*SPACES, help="Distance between rows and centres."),
    }
    ignored_when = (
        Ignored("n_clusters", {"n_clusters_range": GIVEN}),
        # The fuzzy silhouette is computed with one number of clusters, too.
        Ignored(
            "criterion",
            {"n_clusters_range": LEFT_OUT},
            values=tuple(name for name in CRITERIA if name != "fuzzy_silhouette"),
            remedy="the index is there without it; leave it out, or give n_clusters_range, such as (2, 10)",
        ),
        Ignored("n_init", {"init": Unlike(*DRAWN)}, remedy="such a start is the same each time; leave one of them out"),
    )

    def __init__(
        self,
        n_clusters: int = 8,
        *,
        n_clusters_range: Any = None,
        criterion: str = "auto",
        m: float | str = "auto",
        covariance_type: str = "spherical",
        shrinkage: float = 0.0,
        init: Any = "k-means++",
        n_init: int = 1,
        max_iter: int = 300,
        tol: float = 1e-4,
        stop: str = "centers",
        noise_distance: float | None = None,
        metric: str = "euclidean",
        device: str = "auto",
        client: Any = "auto",
        n_workers: int | None = None,
        workers: Any = None,
        resources: dict[str, float] | None = None,
        retries: int = 1,
        dtype: str = "float32",
        memory_limit: int | str | None = None,
        random_state: Any = None,
        verbose: bool = False,
    ) -> None:
        self.n_clusters = n_clusters
        self.n_clusters_range = n_clusters_range
        self.criterion = criterion
        self.m = m
        self.covariance_type = covariance_type
        self.shrinkage = shrinkage
        self.init = init
        self.n_init = n_init
        self.max_iter = max_iter
        self.tol = tol
        self.stop = stop
        self.noise_distance = noise_distance
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


def criterion_of(criterion: str, noise_distance: float | None, covariance_type: str) -> str:
    """The validity index that a criterion stands for.

    A row of the noise adds the same to J wherever it lies, and nothing to a covariance, so Xie-Beni and the
    hypervolume are least where few clusters lie far apart, or are small, and the others' rows are noise. Without noise,
    Xie-Beni looks at centres alone, which long clusters side by side have near each other, and the hypervolume of
    clusters with many features falls with their number.
    """
    if criterion != "auto":
        return criterion
    round_ = noise_distance is None and covariance_type == "spherical"
    return "xie_beni" if round_ else "modified_partition_coefficient"
