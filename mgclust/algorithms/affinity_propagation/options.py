"""Parameters of both affinity propagation methods, for the estimators, the command line and the service."""

from __future__ import annotations

from typing import Any, ClassVar

from mgclust.algorithms.affinity_propagation.adaptive_state import PROFILES
from mgclust.algorithms.affinity_propagation.rows.similarity_matrix import AFFINITIES, PRECOMPUTED
from mgclust.algorithms.declaration import Declaration
from mgclust.params import Boolean, Choice, Constraint, Integer, Range, Real, RealOrPerRow
from mgclust.params.relations import GIVEN, Ignored, Unlike

__all__ = ["SELECTIONS", "AdaptiveAffinityPropagationOptions", "AffinityPropagationOptions"]


SELECTIONS = ("auto", "silhouette", "package")


class AffinityPropagationOptions(Declaration):
    """Affinity propagation of Frey and Dueck (2007): finds exemplars by messages, on one or many CPUs or GPUs."""

    method = "affinity-propagation"
    constraints: ClassVar[dict[str, Constraint]] = {
        "damping": Real(at_least=0.5, below=1, help="Weight of the old value in each new message."),
        "max_iter": Integer(at_least=1, help="Largest number of iterations."),
        "convergence_iter": Integer(
            at_least=1, help="The run ends after this many iterations without a change of exemplars."
        ),
        "preference": RealOrPerRow(
            optional=True, help="Suitability of rows as exemplars; default: the median similarity."
        ),
        "preference_quantile": Real(
            at_least=0, at_most=1, optional=True, help="Preference as a quantile of the similarities, from 0 to 1."
        ),
        "n_clusters": Integer(
            at_least=1, optional=True, help="Number of clusters; the fit searches for a preference that gives it."
        ),
        "affinity": Choice(
            *AFFINITIES, *PRECOMPUTED, help="Similarity of rows; precomputed_nearest_neighbors only in Python."
        ),
        "algorithm": Choice("auto", "dense", "sparse", help="Store all pairs (dense), or neighbour lists (sparse)."),
    }

    def __init__(
        self,
        *,
        damping: float = 0.5,
        max_iter: int = 200,
        convergence_iter: int = 15,
        copy: bool = True,
        preference: Any = None,
        preference_quantile: float | None = None,
        n_clusters: int | None = None,
        affinity: str = "euclidean",
        algorithm: str = "auto",
        device: str = "auto",
        client: Any = "auto",
        n_workers: int | None = None,
        workers: Any = None,
        resources: dict[str, float] | None = None,
        retries: int = 0,
        dtype: str = "float32",
        memory_limit: int | str | None = None,
        random_state: Any = None,
        verbose: bool = False,
    ) -> None:
        self.damping = damping
        self.max_iter = max_iter
        self.convergence_iter = convergence_iter
        self.copy = copy
        self.preference = preference
        self.preference_quantile = preference_quantile
        self.n_clusters = n_clusters
        self.affinity = affinity
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


class AdaptiveAffinityPropagationOptions(Declaration):
    """Adaptive affinity propagation of Wang et al. (2007): finds preference, damping and the number of clusters."""

    method = "adaptive-affinity-propagation"
    constraints: ClassVar[dict[str, Constraint]] = {
        "profile": Choice(
            *PROFILES, help="Rules of the scan; code: the authors' package; paper: their paper; fast: fewer iterations."
        ),
        "max_iter": Integer(at_least=1, help="Largest number of iterations of the whole scan."),
        "preference": RealOrPerRow(optional=True, help="Fixed preference, instead of a scan."),
        "affinity": Choice(*AFFINITIES, "precomputed", help="Similarity of rows."),
        "algorithm": Choice("auto", "dense", "sparse", help="Store all pairs (dense), or neighbour lists (sparse)."),
        "silhouette_metric": Choice(
            "euclidean", "sqeuclidean", help="Distance for the silhouettes that compare candidates."
        ),
        "min_cluster_size": Integer(at_least=1, help="Candidates with a smaller cluster are not chosen."),
        "n_clusters_range": Range(optional=True, help="Smallest and largest number of clusters, such as 5,20."),
        "selection": Choice(
            *SELECTIONS, help="Rule that chooses a candidate; auto: package with profile=code, else silhouette."
        ),
        "save_candidates": Boolean(help="Save all candidates, each as a separate result."),
    }
    ignored_when = (
        # Profiles "code" and "paper" also differ in their damping rules, so they matter with a fixed preference.
        Ignored("profile", {"preference": GIVEN}, values=("fast",)),
        Ignored("silhouette_metric", {"affinity": Unlike("euclidean")}),
        Ignored("selection", {"preference": GIVEN}),
    )

    def __init__(
        self,
        *,
        profile: str = "code",
        max_iter: int = 50_000,
        preference: Any = None,
        affinity: str = "euclidean",
        algorithm: str = "auto",
        silhouette_metric: str = "euclidean",
        min_cluster_size: int = 3,
        n_clusters_range: Any = None,
        selection: str = "auto",
        save_candidates: bool = False,
        device: str = "auto",
        client: Any = "auto",
        n_workers: int | None = None,
        workers: Any = None,
        resources: dict[str, float] | None = None,
        retries: int = 0,
        dtype: str = "float32",
        memory_limit: int | str | None = None,
        random_state: Any = None,
        verbose: bool = False,
    ) -> None:
        self.profile = profile
        self.max_iter = max_iter
        self.preference = preference
        self.affinity = affinity
        self.algorithm = algorithm
        self.silhouette_metric = silhouette_metric
        self.min_cluster_size = min_cluster_size
        self.n_clusters_range = n_clusters_range
        self.selection = selection
        self.save_candidates = save_candidates
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
