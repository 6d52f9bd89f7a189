"""Warnings of a result of fuzzy c-means: centres that have not converged, and clusters that mean little."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from mgclust.algorithms.base import Inputs
from mgclust.algorithms.fuzzy_c_means.options import criterion_of
from mgclust.algorithms.fuzzy_c_means.ranks import FuzzyCMeansOutput
from mgclust.algorithms.fuzzy_c_means.run_spec import automatic_m

if TYPE_CHECKING:
    from mgclust.algorithms.fuzzy_c_means.estimator import FuzzyCMeans

__all__ = ["problems_of"]

# Centres nearer to each other than this share of the rows' distance from them count as one: where fits on 24 known sets
# fell together it was below 0.0005, in all others above 0.3 (`benchmarks.fuzzy_c_means.fuzzifier`).
COINCIDE = 0.03
MIN_SHARE = 0.01  # of the mean number of rows: what has fewer is a tiny cluster
ON_A_CENTER = 1e-12  # of the data's spread: rows that lie no farther from their centres are equal to them
SINGLE_OF = 10  # a cluster of one row, or of two, is tiny where the mean of all is so many times as large


def problems_of(model: FuzzyCMeans, value: FuzzyCMeansOutput, inputs: Inputs) -> tuple[list[str], list[str]]:
    """Warnings that centres have not settled, and of clusters that are none."""
    fit, c, n = value.fit, len(value.fit.centers), int(value.sizes.sum())
    unconverged, others, nearest = [], [], fit.prototypes.separations()
    numbers = [each.n_clusters for each in value.candidates]
    if len(numbers) > 1 and c in (numbers[0], numbers[-1]) and c > 2:
        criterion = criterion_of(model.criterion, model.noise_distance, model.covariance_type)
        most = math.isqrt(n)
        advice = (
            "one beyond may be better; widen the range"
            if c <= most
            else f"indices may improve up to a cluster for each row; end the range near sqrt(n_samples)={most}"
        )
        others.append(
            f"criterion={criterion!r} chooses n_clusters={c}, at the end of n_clusters_range="
            f"{(numbers[0], numbers[-1])}: {advice}."
        )
    of_number = f" of the fit with n_clusters={c}" if len(numbers) > 1 else ""
    if fit.stop_reason == "max_iter":
        changed = {
            "centers": "centres still moved by {:.2g} of the data's spread",
            "objective": "the objective still changed by {:.2g} of itself",
            "memberships": "memberships still changed by up to {:.2g}",
        }[model.stop]
        unconverged.append(
            f"{changed.format(fit.change)} in iteration max_iter={fit.n_iter}{of_number}, more than "
            f"tol={model.tol:g}: raise max_iter or tol."
        )
    if moving := [k for k in value.moving if k != c]:
        unconverged.append(
            f"fits with n_clusters={', '.join(map(str, moving))} of n_clusters_range had not settled after max_iter="
            f"{model.max_iter} iterations, so their indices may be better than scan_ says: raise max_iter or tol."
        )
    automatic = automatic_m(
        n if inputs.weights is None else inputs.weights.rows, model.n_features_in_, model.covariance_type
    )
    half = 1 + float(f"{(value.m - 1) / 2:.1g}")
    lower = "lower m " + (f"(m='auto' takes {automatic:.3g})" if automatic < value.m else f"(m={half:g}, say)")
    outside, sizes = int(value.sizes[0]), value.sizes[1:]
    empty, few = int((sizes == 0).sum()), max(math.ceil(MIN_SHARE * n / c) - 1, min(n // (SINGLE_OF * c), 2))
    tiny = int(((sizes > 0) & (sizes <= few)).sum())
    within = fit.within if value.noise is None else min(fit.within, value.noise)  # of clusters, without the noise
    if fit.prototypes.factors is not None:
        within = 1.0  # the unit of separations then
    together = int((nearest <= COINCIDE**2 * within).sum())
    if empty and fit.within <= (ON_A_CENTER * value.scale) ** 2:
        which = "different rows" if inputs.weights is None else "different rows with a positive sample_weight"
        others.append(f"n_clusters={c} is more than the number of {which}, {c - empty}: ask for fewer clusters.")
        return unconverged, others
    if together:
        apart = math.sqrt(nearest.min() / within) if within else 0.0
        others.append(
            f"{together} of {c} centres coincide with another one (the nearest two lie {apart:.1g} times the rows' "
            f"distance from their centres apart): the data do not hold n_clusters={c} at m={value.m:.3g}; {lower}, ask "
            "for fewer clusters, or try another init."
        )
    if value.singular:
        others.append(
            f"the covariances of {value.singular} of {c} clusters are nearly singular, since their rows are few or lie "
            f"in fewer than {model.n_features_in_} dimensions: their shape is a bound's, not the data's; raise "
            f"shrinkage={model.shrinkage:g}, for example to {max(0.01, 2 * model.shrinkage):g}, or, where their rows "
            "are few, ask for fewer clusters."
        )
    d = model.n_features_in_
    lacking = int(((sizes > 0) & (sizes <= d)).sum())
    if fit.prototypes.factors is not None and lacking and not value.singular:
        others.append(
            f"{lacking} of {c} clusters are the nearest of at most n_features={d} rows, too few for a covariance of "
            "their own: in some directions their shape is that of all rows, or of rows with small memberships. Take "
            "fewer features, such as principal components, or ask for fewer clusters."
        )
    if outside > n / 2:
        others.append(
            f"{outside} of {n} rows are noise: they lie farther than noise_distance={model.noise_distance:g} from all "
            "centres; raise noise_distance."
        )
    if c > n / 2:
        others.append(
            f"n_clusters={c} is more than half of the {n} rows: most clusters are a row or two, and say nothing of the "
            f"others; ask for fewer clusters, {math.isqrt(n)} for example."
        )
    if (empty or tiny) and outside <= n / 2:
        what = [f"{empty} of {c} clusters are the nearest of no row"] * bool(empty)
        what += [f"{tiny} of {c} clusters have at most {few} of the {n} rows"] * bool(tiny)
        remedy = "or ask for fewer clusters"
        if tiny and not together and value.noise is None:
            remedy = "ask for fewer clusters, or give noise_distance where these rows are outliers"
        others.append(f"{', '.join(what)}: {lower}, {remedy}.")
    if fit.idle:
        others.append(
            f"{fit.idle} of {c} clusters have no row with a membership above 0, their centres did not move: ask "
            "for fewer clusters or try another init."
        )
    return unconverged, others
