"""Warnings about a result of fuzzy c-means: iterations that have not converged, and doubtful clusters."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from mgclust.algorithms.base import Inputs, UnconvergedWarning
from mgclust.algorithms.common.preparation import warnings_of_distances
from mgclust.algorithms.fuzzy_c_means.options import criterion_of
from mgclust.algorithms.fuzzy_c_means.ranks import FuzzyCMeansOutput
from mgclust.algorithms.fuzzy_c_means.run_spec import automatic_m
from mgclust.base.errors import AmbiguousCountWarning, DegenerateClustersWarning, Doubt, ParameterWarning

if TYPE_CHECKING:
    from mgclust.algorithms.fuzzy_c_means.estimator import FuzzyCMeans

__all__ = ["problems_of"]

# Two centres coincide if their distance is below this fraction of the rows' distance from them. In fits on 24 known
# data sets, the fraction was below 0.0005 if centres had coincided, else above 0.3
# (`benchmarks.fuzzy_c_means.fuzzifier`).
COINCIDE = 0.03
MIN_SHARE = 0.01  # a cluster with less than this fraction of the mean number of rows is tiny
ON_A_CENTER = 1e-12  # rows within this fraction of the data's spread count as equal to their centre
FEW = 5  # largest number of values that a warning lists
SINGLE_OF = 10  # a cluster of one or two rows is tiny if the mean size is at least this many times as large


def problems_of(model: FuzzyCMeans, value: FuzzyCMeansOutput, inputs: Inputs) -> list[Doubt]:
    """Return all warnings about a result."""
    doubts = _of_range(model, value) + _of_convergence(model, value)
    doubts += warnings_of_distances(value.distance_error, model.metric, value.dtype)
    return doubts + (_distinct(value, inputs) or _of_clusters(model, value, inputs))


def _of_range(model: FuzzyCMeans, value: FuzzyCMeansOutput) -> list[Doubt]:
    c, n = len(value.fit.centers), int(value.sizes.sum())
    numbers = [each.n_clusters for each in value.candidates]
    if len(numbers) < 2 or c not in (numbers[0], numbers[-1]) or c <= 2:
        return []
    criterion = criterion_of(model.criterion, model.noise_distance, model.covariance_type)
    most = math.isqrt(n)
    advice = "a number beyond the range may be better; widen the range"
    if c > most:
        advice = f"indices may improve up to one cluster per row; end the range near sqrt(n_samples)={most}"
    chosen = f"criterion={criterion!r} chooses n_clusters={c}, at the end of n_clusters_range"
    return [Doubt(f"{chosen}={(numbers[0], numbers[-1])}: {advice}.", AmbiguousCountWarning)]


def _of_convergence(model: FuzzyCMeans, value: FuzzyCMeansOutput) -> list[Doubt]:
    fit, c, doubts = value.fit, len(value.fit.centers), []
    if fit.stop_reason == "max_iter":
        of_number = f" of the fit with n_clusters={c}" if len(value.candidates) > 1 else ""
        changed = {
            "centers": "centres still moved by {:.2g} of the data's spread",
            "objective": "the objective still changed by {:.2g} of its value",
            "memberships": "memberships still changed by up to {:.2g}",
        }[model.stop]
        text = f"{changed.format(fit.change)} in iteration max_iter={fit.n_iter}{of_number}, more than "
        doubts.append(Doubt(f"{text}tol={model.tol:g}: raise max_iter or tol.", UnconvergedWarning))
    if moving := [k for k in value.moving if k != c]:
        named = ", ".join(map(str, moving[:FEW])) + (f" and {len(moving) - FEW} more" if len(moving) > FEW else "")
        text = (
            f"fits with n_clusters={named} had not converged after max_iter={model.max_iter} iterations, so their "
            "indices may be better than in scan_: raise max_iter or tol."
        )
        doubts.append(Doubt(text, UnconvergedWarning))
    return doubts


def _distinct(value: FuzzyCMeansOutput, inputs: Inputs) -> list[Doubt]:
    """Return a warning if there are more clusters than distinct rows."""
    c, empty = len(value.fit.centers), int((value.sizes[1:] == 0).sum())
    if not empty or value.fit.within > (ON_A_CENTER * value.scale) ** 2:
        return []
    which = "distinct rows" if inputs.weights is None else "distinct rows with a positive sample_weight"
    text = f"n_clusters={c} is more than the number of {which}, {c - empty}: request fewer clusters."
    return [Doubt(text, DegenerateClustersWarning)]


def _of_clusters(model: FuzzyCMeans, value: FuzzyCMeansOutput, inputs: Inputs) -> list[Doubt]:
    fit, d, texts, nearest = value.fit, model.n_features_in_, [], value.fit.prototypes.separations()
    c, n = len(fit.centers), int(value.sizes.sum())
    rows = n if inputs.weights is None else inputs.weights.rows
    automatic = automatic_m(rows, d, model.covariance_type)
    half = 1 + float(f"{(value.m - 1) / 2:.1g}")
    lower = f"lower m (m='auto' takes {automatic:.3g})" if automatic < value.m else f"lower m (for example m={half:g})"
    outside, sizes = int(value.sizes[0]), value.sizes[1:]
    empty, few = int((sizes == 0).sum()), max(math.ceil(MIN_SHARE * n / c) - 1, min(n // (SINGLE_OF * c), 2))
    tiny = int(((sizes > 0) & (sizes <= few)).sum())
    within = (
        fit.within if value.noise is None else min(fit.within, value.noise)
    )  # mean square distance within clusters, without the noise
    if fit.prototypes.factors is not None:
        within = 1.0  # separations are already relative to the covariances
    together = int((nearest <= COINCIDE**2 * within).sum())
    if together:
        texts.append(
            f"{together} of {c} centres coincide with another centre: at m={value.m:.3g} the data have fewer than "
            f"n_clusters={c} clusters; {lower}, request fewer clusters, or try another init."
        )
    if value.singular:
        texts.append(
            f"the covariances of {value.singular} of {c} clusters are nearly singular, so shrinkage="
            f"{model.shrinkage:g} decides their shape; raise shrinkage, for example to "
            f"{max(0.01, 2 * model.shrinkage):g}, or request fewer clusters."
        )
    lacking = int(((sizes > 0) & (sizes <= d)).sum())
    if fit.prototypes.factors is not None and lacking and not value.singular:
        texts.append(
            f"{lacking} of {c} clusters have at most n_features={d} rows, too few for a covariance: use fewer "
            "features, such as principal components, or request fewer clusters."
        )
    if c > n / 2:
        texts.append(
            f"n_clusters={c} is more than half of the {n} rows: most clusters have one or two rows, and do not "
            f"describe the other rows; request fewer clusters, for example {math.isqrt(n)}."
        )
    if (empty or tiny) and outside <= n / 2:
        what = [f"{empty} of {c} clusters have no rows"] * bool(empty)
        what += [f"{tiny} of {c} clusters have at most {few} of {n} rows"] * bool(tiny)
        remedy = "or request fewer clusters"
        if tiny and not together and value.noise is None:
            remedy = "request fewer clusters, or give noise_distance if tiny clusters are outliers"
        texts.append(f"{', '.join(what)}: {lower}, {remedy}.")
    if fit.idle:
        texts.append(
            f"{fit.idle} of {c} clusters have no row with a membership above 0, so their centres did not move: request "
            "fewer clusters or try another init."
        )
    doubts = [Doubt(text, DegenerateClustersWarning) for text in texts]
    if outside > n / 2:
        text = (
            f"{outside} of {n} rows are noise: they are farther than noise_distance={model.noise_distance:g} from all "
        )
        doubts.append(Doubt(f"{text}centres; raise noise_distance.", ParameterWarning))
    return doubts
