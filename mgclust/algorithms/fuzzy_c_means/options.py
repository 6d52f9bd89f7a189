"""Parameters of fuzzy c-means, for the estimator, the command line and the service."""

from __future__ import annotations

from typing import Any, ClassVar

from mgclust.algorithms.declaration import Declaration
from mgclust.algorithms.fuzzy_c_means.initialization import DRAWN
from mgclust.algorithms.fuzzy_c_means.input import Start
from mgclust.params import Choice, Constraint, Integer, Range, Real, RealOrWord
from mgclust.params.relations import GIVEN, LEFT_OUT, Ignored, Unlike

__all__ = ["STOPS", "FuzzyCMeansOptions", "criterion_of"]


SPACES = ("euclidean", "cosine", "correlation")  # metrics for which weighted means of rows minimise J
STOPS = ("centers", "objective", "memberships")  # quantities that `tol` can bound
CRITERIA = {  # validity indices, and the function that selects the best value
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
        "n_clusters_range": Range(
            optional=True, help="Smallest and largest number of clusters, such as 2,10; criterion chooses one."
        ),
        "criterion": Choice("auto", *CRITERIA, help="Validity index that chooses the number of clusters."),
        "m": RealOrWord(
            "auto",
            above=1,
            help="Fuzzifier. Near 1: like k-means. Large: all memberships alike. auto: from the size of X, at most 2.",
            remedy="'auto' chooses m from the number of rows and features",
        ),
        "covariance_type": Choice(
            "spherical", "full", help="Shape of clusters: all round, or each with its own covariance."
        ),
        "shrinkage": Real(
            at_least=0,
            at_most=1,
            help="With full: fraction of the covariance of all rows in each cluster's covariance.",
        ),
        "init": Start(help="Start of the iterations: a name, or a .npy of centres or memberships."),
        "n_init": Integer(
            at_least=1, help="Number of runs from different starts; they share the passes over the data."
        ),
        "max_iter": Integer(at_least=1, help="Largest number of iterations."),
        "tol": Real(at_least=0, help="The run ends when the quantity that stop names changes by no more than this."),
        "stop": Choice(
            *STOPS,
            help="Quantity that tol bounds: change of centres (relative), of J (relative), or of memberships.",
        ),
        "noise_distance": Real(
            above=0,
            optional=True,
            help="Distance of a noise cluster from all rows; rows farther from all centres get label -1.",
        ),
        "metric": Choice(*SPACES, help="Distance between rows and centres."),
    }
    ignored_when = (
        Ignored("n_clusters", {"n_clusters_range": GIVEN}),
        # "fuzzy_silhouette" is missing here because it is also computed for a single number of clusters.
        Ignored(
            "criterion",
            {"n_clusters_range": LEFT_OUT},
            values=tuple(name for name in CRITERIA if name != "fuzzy_silhouette"),
            remedy="the index is computed in any case; leave criterion out, or give n_clusters_range, such as (2, 10)",
        ),
        Ignored(
            "n_init", {"init": Unlike(*DRAWN)}, remedy="such a start is the same in each run; leave one of them out"
        ),
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
    """Return the validity index that `criterion` names; "auto" depends on the noise and the shape of clusters.

    With noise, a row of the noise cluster adds the same amount to J wherever it lies, and nothing to a covariance. So
    Xie-Beni is lowest if few clusters lie far apart, and the hypervolume is lowest if few clusters are small; the rows
    of the other clusters become noise. With covariances, Xie-Beni compares only centres, and long parallel clusters
    have centres near each other. The hypervolume of clusters with many features falls with the number of clusters.
    """
    if criterion != "auto":
        return criterion
    round_ = noise_distance is None and covariance_type == "spherical"
    return "xie_beni" if round_ else "modified_partition_coefficient"
