"""Report of fuzzy c-means: texts, captions and tables."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from mgclust.algorithms.fuzzy_c_means.options import criterion_of
from mgclust.algorithms.presentation import Drawn, Fact, Presentation, Score, Table, number_text
from mgclust.results.result import Result

__all__ = ["FuzzyCMeansPresentation"]

UNCLEAR = 0.5  # a row is between clusters if its second membership exceeds this fraction of its largest
SUMMARY = {
    "objective": "objective",
    "partition_coefficient": "partition coefficient",
    "partition_entropy": "partition entropy",
    "xie_beni": "Xie-Beni",
    "fuzzy_silhouette": "fuzzy silhouette",
    "fuzzy_hypervolume": "fuzzy hypervolume",
}


SCAN_COLUMNS = {
    "n_clusters": "clusters",
    "xie_beni": "Xie-Beni",
    "modified_partition_coefficient": "modified partition coefficient",
    "partition_coefficient": "partition coefficient",
    "partition_entropy": "partition entropy",
    "fuzzy_silhouette": "fuzzy silhouette",
    "fuzzy_hypervolume": "fuzzy hypervolume",
    "objective": "objective",
    "n_iter": "iterations",
}


RARE = ("fuzzy_silhouette", "fuzzy_hypervolume")  # indices that only some scans compute


class FuzzyCMeansPresentation(Presentation):
    """Report of fuzzy c-means: the history of the objective, memberships per cluster, and validity indices."""

    title = "Fuzzy c-means"
    references = {
        "Bezdek 1981": "J. C. Bezdek, Pattern Recognition with Fuzzy Objective Function Algorithms, Plenum, 1981.",
        "Schwämmle and Jensen 2010": "V. Schwämmle, O. N. Jensen, A simple and fast method to determine the parameters "
        "for fuzzy c-means cluster analysis, Bioinformatics 26:2841-2848, 2010.",
        "Davé 1991": "R. N. Davé, Characterization and detection of noise in clustering, Pattern Recognition Letters "
        "12:657-664, 1991.",
        "Gustafson and Kessel 1979": "D. E. Gustafson, W. C. Kessel, Fuzzy clustering with a fuzzy covariance matrix, "
        "IEEE Conference on Decision and Control 761-766, 1979.",
        "Xie and Beni 1991": "X. L. Xie, G. Beni, A validity measure for fuzzy clustering, IEEE Transactions on "
        "Pattern Analysis and Machine Intelligence 13:841-847, 1991.",
    }
    scores = {
        "m": Score("fuzzifier m"),
        "objective": Score("objective J"),
        "partition_coefficient": Score("partition coefficient (1 = crisp)", ".3f"),
        "partition_entropy": Score("partition entropy (0 = crisp)"),
        "xie_beni": Score("Xie-Beni index (lower is better)", better="lower"),
        "fuzzy_silhouette": Score("fuzzy silhouette (1 is best)", ".3f", better="higher"),
        "fuzzy_hypervolume": Score("fuzzy hypervolume, relative to all rows (lower is better)", better="lower"),
        "noise_share": Score("fraction of rows that are noise", ".3f"),
    }
    facts = {
        "best_init": Fact("start with the lowest objective (counted from 0)"),
        "last_change": Fact("change of the quantity that stop names, in the last iteration"),
        "last_shift": Fact("largest move of a centre in the last iteration, in units of the data's spread"),
        "objectives": Fact("objective of each start"),
        "stop_reason": Fact(
            "end of the iterations",
            {
                "tol": "converged: the quantity that stop names changed by no more than tol",
                "max_iter": "reached max_iter before it converged",
            },
        ),
    }
    captions = {
        "objective": "Objective J against the iteration. J can rise only by rounding. The dotted line shows how much "
        "each iteration lowered it.",
        "validity": "Validity indices against the number of clusters. Left axis, lower is better: Xie-Beni index, or "
        "fuzzy hypervolume if clusters have covariances. Right axis, higher is better: modified partition coefficient, "
        "and fuzzy silhouette if computed. The dashed line marks the chosen number.",
    }

    def method_sentences(self, result: Result) -> list[str]:
        parameters, scores = result.parameters, result.scores
        m = "by the rule of Schwämmle and Jensen 2010" if parameters["m"] == "auto" else "given"
        full = " and full covariances (Gustafson and Kessel 1979)" if "covariances" in result.arrays else ""
        noise = " and a noise cluster (Davé 1991)" if parameters.get("noise_distance") is not None else ""
        sentences = [
            f"Clusters were found by fuzzy c-means (Bezdek 1981){full}{noise} with m={scores['m']:.4g} ({m}), after "
            f"{scores['n_iter']:,} iterations, with objective {scores['objective']:.6g}."
        ]
        if "xie_beni" in scores:
            sentences.append(f"The validity index (Xie and Beni 1991) is {scores['xie_beni']:.4g}.")
        return sentences

    def centers(self, result: Result) -> np.ndarray | None:
        if result.parameters.get("metric", "euclidean") != "euclidean":
            return None  # centres are means of rows of unit length, but the picture shows the original rows
        return np.asarray(result.arrays["cluster_centers"], dtype=np.float64)

    def draw(self, result: Result, sample: Any) -> Drawn:
        from mgclust import plots

        drawn = {"objective": plots.objective(result)} if "objective_history" in result.arrays else {}
        if "scan_n_clusters" in result.arrays:
            drawn = {"validity": plots.validity(result)} | drawn
        return drawn | super().draw(result, sample)

    def tables(self, result: Result) -> list[Table]:
        """Add a table of all numbers of clusters with their validity indices, and the chosen number in bold."""
        if "scan_n_clusters" not in result.arrays:
            return super().tables(result)
        arrays = {name: result.arrays[f"scan_{name}"] for name in SCAN_COLUMNS if f"scan_{name}" in result.arrays}
        columns = {name: np.asarray(array) for name, array in arrays.items()}
        columns = {name: column for name, column in columns.items() if name not in RARE or not np.isnan(column).all()}
        rows = [[_figure(value) for value in row] for row in zip(*(c.tolist() for c in columns.values()), strict=True)]
        chosen = np.flatnonzero(columns["n_clusters"] == result.scores.get("n_clusters"))
        given = result.parameters
        covariance_type = given.get("covariance_type", "spherical")
        criterion = criterion_of(given.get("criterion", "auto"), given.get("noise_distance"), covariance_type)
        heading = f"{len(rows):,} numbers of clusters, chosen by {criterion}"
        names = [SCAN_COLUMNS[name] for name in columns]
        return [*super().tables(result), Table(heading, names, rows, chosen=int(chosen[0]) if len(chosen) else None)]

    def faint(self, result: Result, index: np.ndarray) -> np.ndarray | None:
        """Mark rows whose second membership is more than half of the largest."""
        memberships = result.arrays.get("memberships")
        if not isinstance(memberships, np.ndarray) or memberships.shape[1] < 2:
            return None
        second, first = np.partition(memberships[index], -2, axis=1)[:, -2:].T
        return np.asarray(second > UNCLEAR * first)

    def columns(self, result: Result, sizes: np.ndarray) -> dict[str, Iterable[Any]]:
        memberships = result.arrays.get("memberships")
        if not isinstance(memberships, np.ndarray) or memberships.shape[1] != len(sizes):
            return {}
        labels = np.asarray(result.labels)
        rows = np.flatnonzero(labels >= 0)  # without noise
        labels = labels[rows]
        own = memberships[rows, labels]
        sums = np.bincount(labels, weights=own, minlength=len(sizes))
        means = (f"{s / n:.3f}" if n else "no rows" for s, n in zip(sums.tolist(), sizes.tolist(), strict=True))
        totals = (f"{total:,.1f}" for total in memberships.sum(axis=0, dtype=np.float64).tolist())
        return {"sum of memberships": totals, "mean membership of its rows": means}

    def summary(self, result: Result) -> list[tuple[str, str]]:
        scores = result.scores
        indices = [f"{words} {scores[name]:.5g}" for name, words in SUMMARY.items() if name in scores]
        noise = scores.get("noise_share")
        told = [] if noise is None else [("noise", f"{100 * noise:.1f} % of the rows")]
        return [*super().summary(result), *told, ("score", ", ".join(indices))]


def _figure(value: float) -> str:
    if isinstance(value, int):
        return f"{value:,}"
    return number_text(value) if np.isfinite(value) else "undefined"
