"""Choice of the fraction of the pairs that lies within dc: ``dc_fraction="auto"``.

Drop of rho * delta. A decision graph of a sample of rows is computed at each of `FRACTIONS`. The drop after k centres
is the ratio of the k-th largest ``rho * delta`` to the next one. A drop at a single fraction is often due to chance,
above all if few rows lie within dc. So each number of clusters is rated by its drops at two neighbouring fractions: the
rating is the geometric mean of both drops, for the two fractions with the largest mean.

The number with the best rating is chosen. The first fraction is kept unless this rating is at least 2, and a third
larger than the rating of the number that the first fraction shows::

    drop after k centres             at 0.02   0.01   0.005   0.002   0.001
    k = 9   (best at 0.02)              1.4    1.1     1.0     1.0     1.1
    k = 50  (best at 0.01 to 0.002)     1.1    5.2     6.3     2.4     1.3      sqrt(5.2 * 6.3) > 4/3 * 1.2: 0.005

The constants of this rule were found on one half of the sets of ``benchmarks/density_peaks/defaults.py``.

Clusters separated by low density (`separation`). If no number stands out by rho * delta, separated clusters are used,
even if their number is the same and only the clusters differ. If a number stands out, separated clusters must be
clearer. If both rules find the same number and the centres stand out, the clusters of the centres are kept, provided
that all rows also show this number. See `separated_number` for the full rule.

Cost. One pass over the pairs of a sample serves all fractions; on a GPU, the density of each fraction takes its own
pass. The sample (`row_sample`) is a third of the distinct rows, at least 3,072 and at most 16,384. Another pass finds
the nearest rows of each row. For nearly all rows, these include the nearest denser row, whatever the densities are.
They are also the edges of the graph of `separation`.

dc. The dc of a fraction is found from 1,024 rows, to within one bin of a histogram. The dc of the chosen fraction is
found from all rows, as if the fraction had been given.

If at least 0.02 of the pairs have equal rows, dc would be 0. Fractions then refer to the pairs whose rows differ.
"""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

import numpy as np

from mgclust.algorithms.density_peaks.cutoff_distance.pair_quantile import sample_quantiles
from mgclust.algorithms.density_peaks.cutoff_distance.row_sample import RowSample
from mgclust.algorithms.density_peaks.cutoff_distance.sample_passes import densities_at, nearest_denser, nearest_rows
from mgclust.algorithms.density_peaks.cutoff_distance.separation import (
    BetterNumber,
    SeparationGraph,
    Shown,
    least_within,
    separated_number,
)
from mgclust.algorithms.density_peaks.cutoff_distance.spanning_tree import MAX_NEIGHBORS, MIN_NEIGHBORS
from mgclust.algorithms.density_peaks.decision_graph import (
    MAX_AUTOMATIC_CENTERS,
    clear_drop,
    largest_gamma,
    log_drops,
    number_of_different,
)
from mgclust.algorithms.density_peaks.passes.precomputed_pairs import GIVEN
from mgclust.engine.spmd import Context
from mgclust.kernels.pairs.metrics import Metric

__all__ = ["BYTES_PER_ROW", "FRACTIONS", "MIN_DROP", "choose_fraction"]

FRACTIONS = (0.02, 0.01, 0.005, 0.002, 0.001)
MIN_WITHIN = 5  # average number of rows within dc that a fraction needs
# A number replaces the number of the first fraction if its rating is CLEARER times as large, and at least MIN_DROP.
CLEARER, MIN_DROP = 4 / 3, 2.0
DC_ROWS = 1024  # rows of the sample from which the dc of each fraction is found
BYTES_PER_ROW = 2048  # densities, nearest rows, and the edges between clusters
MAX_SHOWN = 5  # largest number of entries of "numbers"


class NeighborGraph(NamedTuple):
    """Decision graph of the sample at one fraction."""

    fraction: float
    dc: float
    drops: np.ndarray  # (MAX_AUTOMATIC_CENTERS,): logarithms of the drops after 2, 3, ... centres


def choose_fraction(
    context: Context, measure: Metric, sample: RowSample, *, on_a_line: bool, assignment: str
) -> tuple[dict[str, Any], BetterNumber | None, SeparationGraph | None]:
    """Choose one of `FRACTIONS`, on every rank, and find whether low density separates the clusters.

    Parameters
    ----------
    context : Context
        Its rows are prepared.
    measure : Metric
    sample : RowSample
        The sample, equal on every rank.
    on_a_line : bool
        Whether the rows lie on a line, so that they have one feature whatever the number of columns is.
    assignment : {"auto", "denser", "separated"}
        See `DensityPeaks`.

    Returns
    -------
    choice : dict
        `DensityPeaks.dc_choice_`, of types that JSON can hold: "dc_fraction", the choice; "rows", the size of the
        sample; "tried", the decision graphs; "numbers", the numbers of clusters that stood out, with their ratings;
        "different", whether fractions refer to pairs whose rows differ, because 0.02 of all pairs have equal rows;
        "separated", the clusters separated by low density, or None if they are not used.
    better : BetterNumber or None
        The number of separated clusters, if they are used.
    graph : SeparationGraph or None
        The graph of the sample, if it was made.
    """
    m, host = len(sample), context.kernels.memory.to_host
    given = measure is GIVEN
    few = sample.x[:DC_ROWS, :DC_ROWS] if given else sample.x[:DC_ROWS]
    weights = None if sample.weights is None else sample.weights[:DC_ROWS]
    fractions = FRACTIONS[: least_within(m, FRACTIONS)]
    cuts: list[float] = []
    different = False
    if m > 2:
        cuts, different = sample_quantiles(context, "given" if given else measure.norm, few, fractions, weights)
    usable = [(fraction, measure.distance(s)) for fraction, s in zip(FRACTIONS, cuts, strict=False) if s > 0]
    unknown: dict[str, Any] = {
        "dc_fraction": FRACTIONS[0],
        "rows": m,
        "different": different,
        "tried": [],
        "numbers": [],
        "separated": None,
    }
    if len(usable) < 2 or usable[0][0] != FRACTIONS[0]:
        return unknown, None, None
    near = nearest_rows(context, measure, sample, min(MAX_NEIGHBORS, m - 1))
    graphs, densities, ranked, number = [], [], [], 1
    for (fraction, dc), rho in zip(
        usable, densities_at(context, measure, sample, [dc for _, dc in usable]), strict=True
    ):
        delta = nearest_denser(context, measure, sample, rho, near)
        densities.append(host(rho))
        gamma = densities[-1] * delta
        drops = np.zeros(MAX_AUTOMATIC_CENTERS)
        largest = largest_gamma(np, gamma, min(m, MAX_AUTOMATIC_CENTERS + 1))
        number = number_of_different(delta)
        found = log_drops(gamma[largest], number)
        drops[: len(found)] = found
        graphs.append(NeighborGraph(fraction, dc, drops))
        ranked.append(largest)
    counted = [graph for graph in graphs if graph.fraction == FRACTIONS[0] or graph.fraction * (m - 1) >= MIN_WITHIN]
    choice = unknown | judge(counted)
    features = 1 if on_a_line else context.dataset_shape[1]
    if assignment == "denser" or (assignment == "auto" and features == 1) or m <= MIN_NEIGHBORS:
        return choice, None, None  # with one feature, noise has gaps as wide as the gaps between clusters
    which = next(at for at, graph in enumerate(graphs) if graph.fraction == choice["dc_fraction"])
    first, centers = graphs[which], ranked[which]
    n_clusters = int(first.drops.argmax()) + 2
    drop = float(np.exp(first.drops.max()))
    shown = Shown(
        which,
        centers[:n_clusters],
        drop,
        next((each["drop"] for each in choice["numbers"] if each["n_clusters"] == n_clusters), drop),
        chosen=choice["dc_fraction"] != FRACTIONS[0],
        least=partial(clear_drop, n=number, n_features=features, squares=measure.is_square),
    )
    graph = SeparationGraph(context, measure, sample, near)
    better = separated_number(graph, densities, None if assignment == "separated" else shown)
    if better is None:
        return choice, None, graph
    fraction = usable[better.at][0]
    told = {"n_clusters": better.n_clusters, "dc_fraction": fraction, "ratio": better.ratio}
    return choice | {"dc_fraction": fraction, "separated": told}, better, graph


def judge(graphs: list[NeighborGraph]) -> dict[str, Any]:
    """Choose among decision graphs at descending fractions; return the choice and the ratings behind it.

    Parameters
    ----------
    graphs : list of NeighborGraph

    Returns
    -------
    dict
        "dc_fraction", "tried" and "numbers" as in `choose_fraction`; empty if there are fewer than two graphs.
    """
    if len(graphs) < 2:
        return {}
    drops = np.array([graph.drops for graph in graphs])
    both = (drops[:-1] + drops[1:]) / 2  # log of the geometric mean at two neighbouring fractions
    evidence, own = both.max(axis=0), drops.argmax(axis=1)
    best = int(evidence.argmax())
    chosen = 0
    if best != own[0] and evidence[best] >= max(evidence[own[0]] + np.log(CLEARER), np.log(MIN_DROP)):
        first = int(both[:, best].argmax())
        alike = [at for at in (first, first + 1) if own[at] == best]
        chosen = max(alike, key=lambda at: drops[at, best], default=0)
    ranked = np.argsort(-evidence, kind="stable")[:MAX_SHOWN]
    numbers = [
        {
            "n_clusters": int(at) + 2,
            "dc_fraction": graphs[int(drops[:, at].argmax())].fraction,
            "drop": float(np.exp(evidence[at])),
        }
        for at in ranked
        if evidence[at] > 0
    ]
    tried = [
        {"dc_fraction": graph.fraction, "dc": graph.dc, "n_clusters": int(k) + 2, "drop": float(np.exp(graph.drops[k]))}
        for graph, k in zip(graphs, own, strict=True)
    ]
    return {"dc_fraction": graphs[chosen].fraction, "tried": tried, "numbers": numbers}
