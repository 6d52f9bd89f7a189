r"""Fuzzy c-means (Dunn 1973, Bezdek 1981) on any number of ranks; the memberships are never stored.

With w_i the weight of row x_i (1 unless given), and d_ij the distance of row i and centre j, centres v and memberships
u make as small as they can

    J(u, v) = sum_i sum_j w_i u_ij^m d_ij^2        under    sum_j u_ij = 1,  m > 1

by turns:

    u_ij = 1 / sum_k (d_ij / d_ik)^(2 / (m - 1))                            (1)
    v_j  = sum_i w_i u_ij^m x_i / sum_i w_i u_ij^m                          (2)

(1) is computed as r^(1/(m-1)), r = min_k d_ik^2 / d_ij^2, divided by its sum over j: r lies in [0, 1] whatever m is,
and with 0/0 = 1 a row that coincides with several centres is shared evenly between them.

One pass over the rows does both (`mgclust.algorithms.weighted_sums`). A row's memberships exist while its weighted sums
are taken; the pass gives, at the centres v it began with, all sums of (2), J, and the validity indices

    partition coefficient   sum w u^2 / W                 from 1/c (nothing is clear) to 1 (every row has one cluster)
    partition entropy       - sum w u log u / W           from 0 to log c                          W = sum_i w_i
    Xie-Beni                J / (W min over j != k of |v_j - v_k|^2)         the smaller, the farther apart and tighter

Restarts share the pass: it serves several sets of centres at once, each until it has settled.

It ends when no centre moves farther than `tol` times the root mean square distance of the rows from their mean: in the
data's own scale, whatever n, d, c and the units are.

Cost of an iteration on a rank with k rows: k d numbers read once, 3 k c d multiply-adds or so. Memory: c (d + 1) sums
for each block of rows, no n x c array. Communication: 2 (c (d + 1) + 3) numbers, whatever n is.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, field
from functools import partial
from typing import Any, ClassVar, Self

import numpy as np
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils.validation import _check_feature_names, check_is_fitted

from mgclust.algorithms.base import Clusterer, Job, Progress
from mgclust.algorithms.fuzzy_input import Start, checked_weights, kind_of_start
from mgclust.algorithms.memberships import Clusters, Memberships, assign, estimate_rows
from mgclust.algorithms.preparation import prepare_rows
from mgclust.algorithms.seeding import starting_centers
from mgclust.algorithms.weighted_sums import MOST_BITS, WeightedSums
from mgclust.data import Dataset
from mgclust.engine.checkpoint import Checkpoint, Saved
from mgclust.engine.memory import Estimate
from mgclust.engine.partition import Partition
from mgclust.engine.spmd import Context, Outcome
from mgclust.errors import InputError
from mgclust.kernels.metrics import METRICS
from mgclust.params import Choice, Constraint, Integer, Real
from mgclust.result import Result

__all__ = ["FuzzyCMeans"]

Array = Any
SPACES = ("euclidean", "cosine", "correlation")  # where means of rows are what minimises J
# Nearer to 1, memberships in float32 would vanish before the rows' distances tell them apart.
LEAST_M_IN_FLOAT32 = 1.25
# From random memberships all centres start near the mean, and how they part magnifies rounding a thousand times:
# float32 is for data that are large enough for it to matter.
FEW_NUMBERS = 1 << 20
TYPICAL_ROWS = 1024  # heaviest rows, near which the origin should lie
SCRATCH, GROUP = 512 << 20, 128  # bytes of sums that wait to be added, at most; rows in a group, at least
CUSTOMARY_M = 2.0
COINCIDE = 1e-6  # centres nearer than this times the rows' scale count as one


def fuzzy_c_means(
    context: Context,
    *,
    metric: str,
    n_clusters: int,
    m: float,
    init: str,
    given: np.ndarray | None,
    n_init: int,
    max_iter: int,
    tol: float,
    weights: np.ndarray | None,
    keep_memberships: bool,
    seed: int,
) -> dict[str, Any] | None:
    """Run the method on every rank; rank 0 returns what `FuzzyCMeans.fit` reports."""
    saved = context.checkpoint.load()
    with context.stage("prepare"):
        sums = WeightedSums(context, m, weights)
        prepared = prepare_rows(context, METRICS[metric], sums.weights)
        scale = sums.scale()
    if saved is None:
        with context.stage("init"):
            if init == "memberships":
                starts = sums.centers_of(given)[None]
            elif init == "centers":
                starts = _checked_centers(context, given, prepared.origin)[None]
            else:
                starts = starting_centers(
                    context, init, n_clusters, starts=n_init, weights=sums.weights, total=sums.total, seed=seed
                )
                if m > CUSTOMARY_M:
                    # A row on which a centre lies outweighs all others the more, the larger m is: off the rows, at
                    # first.
                    starts = WeightedSums(context, CUSTOMARY_M, weights).means_at(starts)
            fits = [Fit(centers) for centers in starts]
    else:
        fits = saved_fits(saved)
    with context.stage("iterate"):
        iterate(context, sums, fits, saved, max_iter=max_iter, limit=tol * scale)
    with context.stage("labels"):
        best = int(np.argmin([fit.history[-1] for fit in fits]))
        fit = fits[best]
        labels, memberships = assign(context, fit.centers, m, keep_memberships)
    if context.rank != 0:
        return None
    return {
        "fit": fit,
        "prepared": prepared,
        "labels": labels,
        "memberships": memberships,
        "dtype": context.dtype.name,
        "scale": scale,
        "total": sums.total,
        "best": best,
        "objectives": [sums.unit * fit.history[-1] for fit in fits],
        "history": [sums.unit * objective for objective in fit.history],
    }


@dataclass
class Fit:
    """One set of centres on its way.

    Attributes
    ----------
    centers : ndarray of shape (c, d), float64
    history : list of float
        J at the centres that each pass began with.
    n_iter : int
    stop_reason : str
        "" while it goes on; "tol" or "max_iter".
    shift : float
        How far the centre that moved farthest did in the last iteration.
    idle : int
        Clusters that no row has any membership in: their centres stay where they are.
    squares, entropy : float
        Sums of w u^2 and of - w u log u at the final centres.
    """

    centers: np.ndarray
    history: list[float] = field(default_factory=list)
    n_iter: int = 0
    stop_reason: str = ""
    shift: float = math.inf
    idle: int = 0
    squares: float = math.nan
    entropy: float = math.nan

    def score(self, sums: np.ndarray, log2_scale: float) -> None:
        """Take what a pass says of the centres it began with."""
        self.history.append(math.ldexp(sums[-3], -int(log2_scale)))
        self.squares, self.entropy = float(sums[-2]), float(sums[-1])

    def update(self, sums: np.ndarray, moved: np.ndarray) -> None:
        """Go on from where the centres moved."""
        self.idle = int((sums[moved.size : -3] <= 0).sum())
        self.shift = float(np.sqrt(((moved - self.centers) ** 2).sum(axis=1).max()))
        self.centers = moved
        self.n_iter += 1


def iterate(
    context: Context, sums: WeightedSums, fits: list[Fit], saved: Saved | None, *, max_iter: int, limit: float
) -> None:
    """Pass over the rows until every set of centres has settled, and once more to score where it ended.

    Nobody waits for the decision whether to go on: the device moves the centres and begins with the next pass. Where a
    set has settled, that pass is the one that scores it.
    """
    kernels, moving = context.kernels, [fit for fit in fits if not fit.stop_reason]
    log2_scale = sums.log2_scale(len(fits[0].centers))
    centers = kernels.to_device(np.stack([fit.centers for fit in moving]))
    found = sums.at(centers) if saved is None else kernels.to_device(saved.arrays["found"])
    while moving:
        centers = kernels.weighted_means(found, centers)
        scores, moved = context.fetch(found), context.fetch(centers)
        found = sums.at(centers)
        for fit, of_fit, to in zip(moving, scores(), moved(), strict=True):
            fit.score(of_fit, log2_scale)
            fit.update(of_fit, to)
            if fit.shift <= limit:
                fit.stop_reason = "tol"
            elif fit.n_iter == max_iter:
                fit.stop_reason = "max_iter"
        context.progress(moving[0].n_iter / max_iter, objective=min(fit.history[-1] for fit in moving))
        if any(fit.stop_reason for fit in moving):
            scored = context.fetch(found)()
            for fit, of_fit in zip(moving, scored, strict=True):
                if fit.stop_reason:
                    fit.score(of_fit, log2_scale)
            left = [i for i, fit in enumerate(moving) if not fit.stop_reason]
            moving, centers, found = [moving[i] for i in left], centers[left], found[left]
        if moving and context.checkpoint.due():
            save_fits(context, fits, found)


def save_fits(context: Context, fits: list[Fit], found: Array) -> None:
    """Save all sets of centres, and the sums at those that still move: what the next iteration begins with."""
    told = [{name: value for name, value in asdict(fit).items() if name != "centers"} for fit in fits]
    arrays = {"centers": np.stack([fit.centers for fit in fits]), "found": context.fetch(found)()}
    context.checkpoint.save({"fits": told}, arrays)


def saved_fits(saved: Saved) -> list[Fit]:
    """The sets of centres as `save_fits` found them."""
    return [Fit(centers, **told) for centers, told in zip(saved.arrays["centers"], saved.control["fits"], strict=True)]


def _checked_centers(context: Context, given: np.ndarray | None, origin: np.ndarray) -> np.ndarray:
    """Given centres among prepared rows; refuses those whose squared distances the rows' type does not hold."""
    assert given is not None
    with np.errstate(over="ignore", invalid="ignore"):
        centers = given - origin
    most = float(np.finfo(context.dtype).max) ** 0.5 / (4 * centers.shape[1] ** 0.5)
    if not np.abs(centers).max() < most:
        raise InputError(
            f"init holds centres up to {np.abs(centers).max():.3g} from the mean of the rows, that should be below "
            f"{most:.1g} with dtype='{context.dtype}'; give centres among the rows."
        )
    return centers


def separations(centers: np.ndarray) -> np.ndarray:
    """Squared distance of each centre to the nearest other one; inf where there is none."""
    nearest = np.full(len(centers), np.inf)
    for j, center in enumerate(centers):
        away = ((centers - center) ** 2).sum(axis=1)
        away[j] = np.inf
        nearest[j] = away.min()
    return nearest


def estimate(
    shape: tuple[int, int], itemsize: int, size: int, resident_limit: int, *, models: int, c: int, weighted: bool
) -> Estimate:
    """What a rank needs beside its rows."""
    n, d = shape
    blocks = -(-Partition.plan(n, d, size).blocks // size)
    sums = 8 * models * (c * d + c + 3)
    what = {
        "sums of blocks": 4 * blocks * sums,
        "sums of groups of rows": min(SCRATCH, -(-n // (size * GROUP)) * sums),
        **estimate_rows(n, d, c, itemsize),
    }
    if weighted:
        what["weights"] = 8 * n + itemsize * (-(-n // size))
    return Estimate(0, sum(what.values()), what, 4 * sums)


class FuzzyCMeans(Clusterer):
    """Fuzzy c-means of Bezdek (1981): every row belongs to every cluster to some degree, on one or many CPUs or GPUs.

    Parameters
    ----------
    n_clusters : int, default=8
    m : float, default=2.0
        Fuzzifier, above 1: near 1 nearly every row belongs to one cluster (k-means), large m makes all memberships
        alike.
    init : {"k-means++", "random", "canopy"}, array or path of a .npy, default="k-means++"
        Where centres start: drawn far from each other (k-means|| above 65,536 rows); random rows; the largest of as
        many canopies (if m is above 2, followed by one step with m = 2, since a centre would hardly leave the row that
        it lies on); or an array of shape (n_clusters, n_features), centres as `cluster_centers_` has them, or of
        shape (n_samples, n_clusters), memberships whose rows sum to 1.
    n_init : int, default=1
        So many runs from different starts, in one and the same passes over the data; the lowest J is kept. Only where
        starts are drawn ("k-means++", "random").
    max_iter : int, default=300
    tol : float, default=1e-4
        The run ends when no centre moves farther than this times the root mean square distance of the rows from their
        mean.
    metric : {"euclidean", "cosine", "correlation"}, default="euclidean"
        The last two scale each row to unit length first (correlation: centred by its own mean before); centres are
        means of such rows.
    device : {"auto", "cpu", "cuda"}, default="auto"
    client : {"auto", "local"}, None, address or distributed.Client, default="auto"
        As in `DensityPeaks`.
    dtype : {"float32", "float64"}, default="float32"
        Of rows, distances and memberships; sums over rows are float64. Small data (up to 2^20 numbers), m below 1.25
        and ``m log2(n_clusters)`` above 100 take float64 whatever is asked for; see `computed_in_`.
    memory_limit : int or str, optional
        Device memory that one rank may use, for example "4 GiB"; rows that do not fit stay on the host and pass
        through the device once an iteration.
    random_state : int, Generator or RandomState, optional
        Seed of the starts.
    verbose : bool, default=False

    Attributes
    ----------
    cluster_centers_ : ndarray of shape (n_clusters, n_features), float64
        In the units of the data; for cosine and correlation, means of rows of unit length.
    labels_ : ndarray of shape (n_samples,), int32
        Cluster of each row's largest membership; of equal ones the first.
    memberships_ : ndarray of shape (n_samples, n_clusters) or zarr array
        Above 64 MiB they are computed when first asked for, in one pass over the data, to which the model keeps a
        reference; in a temporary zarr store where half of the free memory does not hold them.
    objective_ : float
        J at the final centres.
    objective_history_ : ndarray of shape (n_iter_ + 1,), float64
        J at the initial centres and after each iteration.
    n_iter_ : int
    stop_reason_ : {"tol", "max_iter"}
        If "max_iter", there was a `ConvergenceWarning`.
    partition_coefficient_, partition_entropy_, xie_beni_ : float
        Validity indices at the final centres, see `mgclust.algorithms.fuzzy_c_means`. Xie-Beni is infinite where
        centres coincide, and NaN for one cluster.
    computed_in_ : {"float32", "float64"}
        The type of rows, distances and memberships; see `dtype`.
    timings_ : dict of str to float
        Seconds per stage.
    result_ : Result
        All of it, to save or plot.
    n_features_in_ : int

    References
    ----------
    J. C. Bezdek, Pattern Recognition with Fuzzy Objective Function Algorithms, Plenum, 1981.
    X. L. Xie, G. Beni, A validity measure for fuzzy clustering, IEEE Trans. Pattern Analysis and Machine Intelligence
    13:841-847, 1991.

    Examples
    --------
    >>> import numpy as np
    >>> from mgclust import FuzzyCMeans
    >>> X = np.array([[0.0], [0.2], [0.5], [0.8], [1.0]])
    >>> model = FuzzyCMeans(2, random_state=0).fit(X)
    >>> model.memberships_.max(axis=1).round(2).tolist()
    [0.97, 0.99, 0.5, 0.99, 0.97]
    """

    _memberships: Any  # of the rows that were fitted, once they are known

    method = "fuzzy-c-means"
    constraints: ClassVar[dict[str, Constraint]] = {
        "n_clusters": Integer(at_least=1, help="Number of clusters."),
        "m": Real(above=1, help="Fuzzifier: near 1 as k-means, large all memberships alike.", remedy="2 is customary"),
        "init": Start(help="Where centres start: a way, or a .npy of centres or of memberships."),
        "n_init": Integer(at_least=1, help="Runs from different starts, in the same passes over the data."),
        "max_iter": Integer(at_least=1, help="Most iterations."),
        "tol": Real(at_least=0, help="Largest move of a centre that counts as none, relative to the data's spread."),
        "metric": Choice(*SPACES, help="Distance between rows and centres."),
    }

    def __init__(
        self,
        n_clusters: int = 8,
        *,
        m: float = 2.0,
        init: Any = "k-means++",
        n_init: int = 1,
        max_iter: int = 300,
        tol: float = 1e-4,
        metric: str = "euclidean",
        device: str = "auto",
        client: Any = "auto",
        dtype: str = "float32",
        memory_limit: int | str | None = None,
        random_state: Any = None,
        verbose: bool = False,
    ) -> None:
        self.n_clusters = n_clusters
        self.m = m
        self.init = init
        self.n_init = n_init
        self.max_iter = max_iter
        self.tol = tol
        self.metric = metric
        self.device = device
        self.client = client
        self.dtype = dtype
        self.memory_limit = memory_limit
        self.random_state = random_state
        self.verbose = verbose

    def fit(self, X: Any, y: Any = None, sample_weight: Any = None) -> Self:
        """Find centres.

        Parameters
        ----------
        X : array of shape (n_samples, n_features), path, URL or Dataset
            Whatever `open_dataset` understands.
        y : ignored
        sample_weight : array of shape (n_samples,), optional
            How much each row counts: not negative, not all 0.

        Returns
        -------
        self
        """
        return self._fit(X, sample_weight=sample_weight)

    def fit_dataset(
        self,
        dataset: Dataset,
        on_progress: Progress | None = None,
        *,
        provenance: bool = True,
        checkpoint: Checkpoint | None = None,
        sample_weight: Any = None,
    ) -> Result:
        """See `Method.fit_dataset` and `fit`."""
        # Taken over by `_publish`: what was fitted before stays as it is until a fit has succeeded.
        self._fitting = dataset, checked_weights(sample_weight, dataset.shape[0])
        try:
            return super().fit_dataset(dataset, on_progress, provenance=provenance, checkpoint=checkpoint)
        finally:
            del self._fitting

    def predict(self, X: Any) -> np.ndarray:
        """Find each row's cluster: its nearest centre, of equally near ones the first.

        Parameters
        ----------
        X : array of shape (n_samples, n_features), path, URL or Dataset

        Returns
        -------
        ndarray of shape (n_samples,), int32
        """
        return self._memberships_of(X).labels()

    def predict_memberships(self, X: Any, out: Any = None) -> Any:
        """Memberships (1) of rows in the clusters found, a block of rows at a time.

        Parameters
        ----------
        X : array of shape (n_samples, n_features), path, URL or Dataset
        out : path, optional
            Of a zarr store to make and write into (by all workers of a cluster, which must see the path): for
            memberships that memory does not hold.

        Returns
        -------
        ndarray or zarr array of shape (n_samples, n_clusters)
            float32 or float64, as the distances; rows sum to 1.
        """
        found = self._memberships_of(X)
        return found.array() if out is None else found.store(out)

    @property
    def memberships_(self) -> Any:
        """Memberships of the rows that were fitted."""
        check_is_fitted(self, "cluster_centers_")
        if self._memberships is None:
            self._memberships = self._memberships_of(self._dataset).somewhere()
        return self._memberships

    def _memberships_of(self, X: Any) -> Memberships:
        check_is_fitted(self, "cluster_centers_")
        if hasattr(X, "columns"):
            _check_feature_names(self, X, reset=False)
        dataset = self._open_more(X)
        place = {"client": self.client, "device": self.device, "memory_limit": self._checked()["memory_limit"]}
        return Memberships(self._clusters, dataset, **place)

    def _job(self, parameters: dict[str, Any], shape: tuple[int, int]) -> Job:
        n, d = shape
        c, m, init = parameters["n_clusters"], parameters["m"], parameters["init"]
        given = None if isinstance(init, str) else init
        weights = self._fitting[1]
        available = n if weights is None else int((weights > 0).sum())
        if c > available:
            which = "n_samples" if weights is None else "rows with a positive sample_weight"
            raise InputError(f"{which}={available} should be >= n_clusters={c}; ask for fewer clusters.")
        how = init if given is None else kind_of_start(given, n, d, c)
        dtype = computed_in(n * d, m, c, parameters["dtype"])
        arguments = {name: parameters[name] for name in ("metric", "n_clusters", "m", "max_iter", "tol")}
        arguments["n_init"] = parameters["n_init"] if how in ("k-means++", "random") else 1
        keep = Memberships.are_small(n, c, dtype)
        arguments |= {"init": how, "given": given, "weights": weights, "keep_memberships": keep}
        arguments["seed"] = self._seed(parameters["random_state"])
        need = partial(estimate, models=arguments["n_init"], c=c, weighted=weights is not None)
        typical = None if weights is None else np.argsort(-weights, kind="stable")[:TYPICAL_ROWS]
        euclidean = parameters["metric"] == "euclidean"
        return Job(fuzzy_c_means, arguments, need, shift=euclidean, typical=typical, dtype=dtype)

    def _publish(self, outcome: Outcome, frame: dict[str, Any]) -> Result:
        value = outcome.value
        fit: Fit = value["fit"]
        self._dataset, self.computed_in_ = self._fitting[0], value["dtype"]
        self._clusters = Clusters(fit.centers, value["prepared"], self.metric, self.m, self.computed_in_)
        self.cluster_centers_ = fit.centers + value["prepared"].origin
        self.labels_ = value["labels"]
        self._memberships = value["memberships"]
        self.objective_history_ = np.array(value["history"])
        self.objective_, self.n_iter_, self.stop_reason_ = value["history"][-1], fit.n_iter, fit.stop_reason
        self.partition_coefficient_ = fit.squares / value["total"]
        self.partition_entropy_ = fit.entropy / value["total"]
        nearest = separations(fit.centers)
        self.xie_beni_ = _xie_beni(fit.history[-1], value["total"], nearest)
        self._alerts = alerts_of(self, fit, nearest, value["scale"])
        return Result(
            labels=self.labels_,
            arrays={
                "cluster_centers": self.cluster_centers_,
                "objective_history": self.objective_history_,
                "memberships": self._memberships_of(self._dataset).deferred()
                if self._memberships is None
                else self._memberships,
            },
            scores={
                "n_clusters": len(fit.centers),
                "objective": self.objective_,
                "partition_coefficient": self.partition_coefficient_,
                "partition_entropy": self.partition_entropy_,
                "xie_beni": self.xie_beni_,
                "n_iter": self.n_iter_,
            },
            diagnostics={
                "stop_reason": fit.stop_reason,
                "last_shift": fit.shift / value["scale"] if value["scale"] else 0.0,
                "objectives": value["objectives"],
                "best_init": value["best"],
                "computed_in": self.computed_in_,
            },
            warnings=[text for text, _ in self._alerts],
            **frame,
        )


def computed_in(numbers: int, m: float, c: int, dtype: str) -> str:
    """The type to compute in."""
    enough = numbers > FEW_NUMBERS and m >= LEAST_M_IN_FLOAT32 and m * math.log2(c) <= MOST_BITS
    return dtype if enough else "float64"


def _xie_beni(objective: float, total: float, nearest: np.ndarray) -> float:
    if len(nearest) < 2:
        return math.nan
    least = float(nearest.min())
    return objective / (total * least) if least > 0 else math.inf


def alerts_of(model: FuzzyCMeans, fit: Fit, nearest: np.ndarray, scale: float) -> list[tuple[str, type[Warning]]]:
    """What should not be overlooked."""
    found: list[tuple[str, type[Warning]]] = []
    c = len(fit.centers)
    if fit.stop_reason == "max_iter":
        relative = fit.shift / scale if scale else fit.shift
        found.append(
            (
                f"centres still moved by {relative:.2g} of the data's spread in iteration max_iter={fit.n_iter}, more "
                f"than tol={model.tol:g}: raise max_iter or tol.",
                ConvergenceWarning,
            )
        )
    together = int((nearest <= (COINCIDE * scale) ** 2).sum())
    if together:
        found.append(
            (
                f"{together} of {c} centres coincide with another one: the data do not hold n_clusters={c} at "
                f"m={model.m:g}; lower m (fuzzy c-means draws centres together in many dimensions), ask for fewer "
                "clusters, or try another init.",
                UserWarning,
            )
        )
    if fit.idle:
        found.append(
            (
                f"{fit.idle} of {c} clusters have no row with a membership above 0, their centres did not move: ask "
                "for fewer clusters or try another init.",
                UserWarning,
            )
        )
    return found
