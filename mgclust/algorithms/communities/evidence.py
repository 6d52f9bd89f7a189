"""Evidence that communities exist: comparison with random graphs, and with graphs without some of the edges.

Significance. The quality of the fit is compared with the quality that the same search finds in rewired graphs: random
graphs in which every node has the same degree (see `random_graphs`). The p-value is exact if the graph itself is such a
random graph: its quality is then as likely to have any rank among the qualities. The fit is doubted if its quality does
not exceed the mean by more than three standard deviations, or, with fewer than five rewired graphs, by more than
``1 / sqrt(m)`` for m edges. The standard deviation of random graphs is about ``0.2 / sqrt(m)``; if a few graphs have a
lower one than ``0.12 / sqrt(m)``, this value replaces it. For weighted edges, m is the squared sum of the weights over
the sum of their squares.

By default, no graph is rewired if the modularity is clearly above `expected_modularity`. If it is not, and the graph
has at most half a million edges, one graph is rewired, and four more if the first leaves the answer open. In larger
graphs, the expected modularity decides.

Stability. A tenth of the edges is removed at random, the communities are found again with another seed, and compared
with those of the fit: by the adjusted Rand index, and for each community by its Jaccard index with the most similar
community.

References
----------
R. Guimera, M. Sales-Pardo, L. A. N. Amaral, Modularity from fluctuations in random graphs and complex networks, Phys.
Rev. E 70:025101 (2004); J. Reichardt, S. Bornholdt, When are networks truly modular?, Physica D 224:20-26 (2006);
C. Hennig, Cluster-wise assessment of cluster stability, Comput. Stat. Data Anal. 52:258-271 (2007).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from mgclust.algorithms.communities.levels import SHARED_ENTRIES, Level
from mgclust.algorithms.communities.random_graphs import entry_rows, rewired, thinned
from mgclust.base.errors import Doubt, WeakStructureWarning
from mgclust.kernels import Kernels

__all__ = ["Evidence", "agreement", "doubts_of", "evidence_of", "expected_modularity"]

Array = Any
Find = Callable[[Level, int, str], tuple[Array, float]]  # labels and quality of a graph, for a seed, in a stage

REMOVED = 0.1  # fraction of the edges that are removed
LEAST_EDGES = 10  # by default, graphs with fewer edges are not compared
UNSTABLE = 0.6  # a fit is doubted if the mean adjusted Rand index is lower; the same value as for density peaks
DEVIATIONS, FEW = 3.0, 5  # see the docstring of the module
LEAST_DEVIATION = 0.12  # standard deviation of random graphs, times sqrt(m), below which a few of them agree by luck
UNSURE = 0.4  # more graphs are rewired if the first difference, times sqrt(m), is between this number and 1
# A single graph is rewired by default if the modularity is below this multiple of the expected modularity. Random
# graphs have from 0.6 times the expected modularity (34 nodes) to 1.0 times (1,000 nodes and more).
NEAR = 1.25
SURE = 1.05  # multiple below which the modularity of a larger graph is doubted
PIECE = 1 << 25  # number of entries whose weights are squared at once, which bounds the memory
SQUARED_BITS = 15  # bits of a weight whose square is summed as an integer


class Evidence(NamedTuple):
    """Results of `evidence_of`."""

    significance: dict[str, Any] | None = None  # see `significance_` of `Communities`
    stability: dict[str, Any] | None = None  # see `stability_` of `Communities`
    expected: float | None = None  # expected modularity that a large graph does not exceed
    n_edges: int = 0  # effective number of edges


def evidence_of(
    level: Level,
    find: Find,
    labels: Array,
    quality: float,
    *,
    null: int | None,
    stability: int,
    seed: int,
    agree: Callable[[bool], bool],
) -> Evidence:
    """Compare the communities of a graph with those of random graphs, on every rank.

    Parameters
    ----------
    level : Level
        The graph, with the strengths and the gain of modularity at resolution 1.
    find : callable
        ``find(level, seed, stage)`` returns the labels and the quality that the search of the fit finds in a graph.
    labels : int32 array of shape (n,)
        Communities of the fit.
    quality : float
        Their quality.
    null : int, optional
        Number of rewired graphs; None: at most five, see the docstring of this module.
    stability : int
        Number of graphs without some edges.
    seed : int
        Seed of the fit. Random graph number i has the seed ``seed * 65536 + i``; its search has the seed
        ``seed + i + 1``.
    agree : callable
        Returns the value that rank 0 passes.

    Returns
    -------
    Evidence
    """
    if null == stability == 0:
        return Evidence()
    expected, m = None, effective_edges(level)

    def rewired_quality(number: int) -> float:
        return find(rewired(level, seed * 65536 + number), seed + number + 1, "rewired graphs")[1]

    found = [rewired_quality(number) for number in range(null or 0)]
    if null is None and m >= LEAST_EDGES:
        random, large = expected_modularity(level), level.entries > SHARED_ENTRIES
        near = agree(quality < (SURE if large else NEAR) * random)
        if near and large:
            expected = random
        elif near:
            found = [rewired_quality(0)]
            if UNSURE < (quality - found[0]) * m**0.5 < 1:
                found += [rewired_quality(number) for number in range(1, FEW)]
    significance = None
    if found:
        significance = {
            "mean": float(np.mean(found)),
            "std": float(np.std(found)),
            "p_value": None if null is None else (1 + sum(each >= quality for each in found)) / (1 + len(found)),
            "rewired": found,
            "seed": seed,
        }
    stable = None
    if stability:
        runs = [
            find(thinned(level, seed * 65536 + i, REMOVED), seed + i + 1, "removed edges") for i in range(stability)
        ]
        pairs = [agreement(level.kernels, labels, each) for each, _ in runs]
        indices = [ari for ari, _ in pairs]
        stable = {
            "mean": float(np.mean(indices)),
            "std": float(np.std(indices)),
            "ari": indices,
            "n_clusters": [int(each.max()) + 1 for each, _ in runs],
            "jaccard": np.mean([jaccard for _, jaccard in pairs], axis=0),
            "removed": REMOVED,
            "seed": seed,
        }
    return Evidence(significance, stable, expected, m)


def expected_modularity(level: Level) -> float:
    """Estimate the modularity that a search finds in a random graph with the degrees of a graph.

    The formula is that of Reichardt and Bornholdt (2006), for weighted edges, and with a factor of the mean degree that
    was fitted to random graphs of 1,000 and 2,000 nodes with mean degrees from 2 to 30. It is off by up to 5% for them.

    Parameters
    ----------
    level : Level
        A graph with edges, with the strengths of modularity.
    """
    squares, shift = _squares(level)
    strength = level.kernels.memory.to_host(level.strength)
    linked = int(np.count_nonzero(squares))
    degree = 2.0 * effective_edges(level) / linked
    return float(
        1.455 * degree**-0.15 * np.sqrt(squares.astype(float)).sum() * 2.0**shift / strength.astype(float).sum()
    )


def effective_edges(level: Level) -> int:
    """Return the squared sum of all weights over the sum of their squares, which is the number of edges of weight 1."""
    squares, shift = _squares(level)
    total = int(squares.sum())
    weight = int(level.strength.sum()) / 2.0**shift
    return round(weight**2 / total / 2) if total else 0


def _squares(level: Level) -> tuple[np.ndarray, int]:
    """Return the sum of the squared weights of each node, int64, in units of 4^shift, and the shift."""
    kernels, rows, shift = level.kernels, level.rows, 0
    sums = kernels.xp.zeros(level.n, np.int64)
    if rows.weights is None:
        sums[rows.first : rows.first + rows.rows] = kernels.xp.diff(rows.starts)
    else:
        heaviest = np.array([int(rows.weights.max()) if rows.entries else 0], np.int64)
        shift = max(0, int(level.comm.all_reduce(heaviest, "max")[0]).bit_length() - SQUARED_BITS)
        for start in range(0, rows.entries, PIECE):
            weights = rows.weights[start : start + PIECE].astype(np.int64) >> shift
            sums += kernels.graph.sum_by_id(weights * weights, entry_rows(level, start, start + PIECE), level.n)
    return kernels.memory.to_host(level.comm.all_reduce(sums)), shift


def agreement(kernels: Kernels, labels: Array, found: Array) -> tuple[float, np.ndarray]:
    """Compare two labellings of the same nodes.

    Parameters
    ----------
    kernels : Kernels
    labels, found : int32 arrays of shape (n,), at least 0

    Returns
    -------
    ari : float
        Adjusted Rand index.
    jaccard : float64 ndarray of shape (max(labels) + 1,)
        For each community of `labels`, the largest Jaccard index with a community of `found`; NaN for unused labels.
    """
    count = int(found.max()) + 1
    keys, common = kernels.xp.unique(labels.astype(np.int64) * count + found, return_counts=True)
    first, second = np.divmod(kernels.memory.to_host(keys), count)
    common = kernels.memory.to_host(common).astype(np.int64)
    sizes, others = np.zeros(int(labels.max()) + 1, np.int64), np.zeros(count, np.int64)
    np.add.at(sizes, first, common)
    np.add.at(others, second, common)
    jaccard = np.full(len(sizes), np.nan)
    np.fmax.at(jaccard, first, common / (sizes[first] + others[second] - common))
    together, ours, theirs, n = (
        int((each * (each - 1)).sum()) for each in (common, sizes, others, np.array([len(labels)]))
    )
    by_chance, largest = ours * theirs / n if n else 0.0, (ours + theirs) / 2
    return (together - by_chance) / (largest - by_chance) if largest != by_chance else 1.0, jaccard


def doubts_of(evidence: Evidence, quality: float, score: str) -> list[Doubt]:
    """Return the doubts about communities; `score` is the name of the quality."""
    doubts = []
    significance, stable = evidence.significance, evidence.stability
    if significance is not None:
        draws, mean = len(significance["rewired"]), significance["mean"]
        few = draws < FEW
        unit = evidence.n_edges**-0.5
        std = max(significance["std"], LEAST_DEVIATION * unit)
        margin = unit if few else DEVIATIONS * std * (draws / (draws - 1)) ** 0.5
        if not quality > mean + margin:
            text = (
                f"{score}={quality:.4g} is not clearly above {mean:.4g}, the mean of graphs with the same degrees and "
            )
            text += "random edges, so the communities may be due to chance; "
            remedy = "check with null=20." if few else "do not rely on them."
            doubts.append(Doubt(text + remedy, WeakStructureWarning))
    elif evidence.expected is not None:
        text = f"modularity={quality:.4g} is about as high as in graphs with the same degrees and random edges ("
        text += f"estimated: {evidence.expected:.2g}), so the communities may be due to chance; check with null=5."
        doubts.append(Doubt(text, WeakStructureWarning))
    if stable is not None and stable["mean"] < UNSTABLE:
        text = f"the communities are unstable: without {REMOVED:.0%} of the edges, the search finds others (mean ARI "
        text += f"{stable['mean']:.2g}); rely only on communities with a high Jaccard index, or try consensus=20."
        doubts.append(Doubt(text, WeakStructureWarning))
    return doubts
