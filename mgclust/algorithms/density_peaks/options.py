"""Parameters of density peaks, as the command line and the service offer them."""

from __future__ import annotations

from typing import Any, ClassVar

from mgclust.algorithms.declaration import Declaration
from mgclust.kernels.pairs.metrics import METRICS
from mgclust.params import (
    Boolean,
    Choice,
    Constraint,
    Integer,
    IntegerOrWord,
    Real,
    RealOrWord,
    RowNumbers,
)
from mgclust.params.relations import GIVEN, Ignored

__all__ = ["MIN_PAIRS", "DensityPeaksOptions"]

MIN_PAIRS = 100  # with fewer random pairs, the estimated error of dc is unreliable


class DensityPeaksOptions(Declaration):
    """Density peaks clustering of Rodriguez and Laio (2014), exact, on one or many CPUs or GPUs."""

    method = "density-peaks"
    constraints: ClassVar[dict[str, Constraint]] = {
        "n_clusters": Integer(
            at_least=1, optional=True, help="Number of clusters; automatic if left out.",
            remedy="give the number of clusters or leave it out",
        ),
        "dc": Real(above=0, optional=True, help="Cut-off distance; found from dc_fraction if left out."),
        "dc_fraction": RealOrWord(
            "auto", above=0, at_most=1, help="Fraction of the pairs of rows within dc; auto: chosen from the data.",
        ),
        "assignment": Choice(
            "auto", "denser", "separated",
            help="Cluster that a row joins; denser: the cluster of its nearest denser row; separated: one of the "
            "clusters separated by low density.",
        ),
        "dc_method": Choice("exact", "sample", help="Find dc from all pairs of rows, or from a sample."),
        "sample_size": Integer(
            at_least=MIN_PAIRS, optional=True,
            help="With dc_method=sample: number of random pairs to draw, instead of all pairs of a sample of rows.",
        ),
        "density": Choice(
            "gaussian", "cutoff", "knn",
            help="Definition of rho; gaussian: a sum over all other rows; cutoff: number of rows within dc; knn: from "
            "the distance to the k-th nearest row.",
        ),
        "k": IntegerOrWord(
            "adaptive", at_least=1,
            help="With density=knn: number of nearest rows; adaptive: chosen for each row from the data.",
        ),
        "significance": Real(
            at_least=0, optional=True,
            help="With density=knn: keep clusters whose peaks exceed their saddles by this number of standard errors, "
            "such as 1.65.",
        ),
        "metric": Choice(*METRICS, "precomputed", help="Distance between rows; precomputed: X is a distance matrix."),
        "rho_min": Real(optional=True, help="Centres have a rho above this limit."),
        "delta_min": Real(optional=True, help="Centres have a delta above this limit."),
        "stability": Integer(
            at_least=0,
            help="Number of random halves of the rows whose clusters are compared with the result; 0: none.",
        ),
        "halo": Boolean(help="Also find the halo of each cluster, the rows that may be noise."),
        "algorithm": Choice(
            "auto", "brute", "grid", help="brute: all pairs; grid: near-linear time, in 1 to 3 dimensions.",
        ),
    }  # fmt: skip
    center_parameters: ClassVar[dict[str, Constraint]] = {
        "n_clusters": constraints["n_clusters"],
        "rho_min": constraints["rho_min"],
        "rho_max": Real(optional=True, help="Centres have at most this rho."),
        "delta_min": constraints["delta_min"],
        "delta_max": Real(optional=True, help="Centres have at most this delta."),
        "indices": RowNumbers(optional=True, help="Row numbers of the centres, instead of all other parameters."),
    }
    discarded_by_centers = ("halo", "significance", "stability")
    # With a test of significance, dc has no effect, because the saddles define the halo. With "knn" densities, only the
    # halo needs dc.
    ignored_when = (
        *(Ignored(name, {"dc": GIVEN}) for name in ("dc_fraction", "dc_method", "sample_size")),
        *(Ignored(name, {"significance": GIVEN}) for name in ("dc", "dc_fraction", "dc_method", "sample_size")),
        *(
            Ignored(name, {"density": "knn", "halo": False}, remedy="leave it out, or give halo=True")
            for name in ("dc", "dc_fraction", "dc_method", "sample_size")
        ),
        Ignored("k", {"density": ("gaussian", "cutoff")}, remedy="leave it out, or give density='knn'"),
        *(Ignored(name, {"metric": "precomputed"}) for name in ("dc_method", "algorithm")),
    )

    def __init__(
        self,
        n_clusters: int | None = None,
        *,
        dc: float | None = None,
        dc_fraction: float | str = "auto",
        assignment: str = "auto",
        dc_method: str = "exact",
        sample_size: int | None = None,
        density: str = "gaussian",
        k: int | str = 16,
        significance: float | None = None,
        metric: str = "euclidean",
        rho_min: float | None = None,
        delta_min: float | None = None,
        halo: bool = False,
        stability: int = 0,
        algorithm: str = "auto",
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
        self.dc = dc
        self.dc_fraction = dc_fraction
        self.assignment = assignment
        self.dc_method = dc_method
        self.sample_size = sample_size
        self.density = density
        self.k = k
        self.significance = significance
        self.metric = metric
        self.rho_min = rho_min
        self.delta_min = delta_min
        self.halo = halo
        self.stability = stability
        self.algorithm = algorithm
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
