"""Presentation of fuzzy c-means."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from mgclust.algorithms.fuzzy_c_means.options import criterion_of
from mgclust.algorithms.presentation import Drawn, Fact, Presentation, Score, Table, number_text
from mgclust.results.result import Result

__all__ = ["FuzzyCMeansPresentation"]

UNCLEAR = 0.5  # a second membership of more than this share of the largest: the row lies between clusters
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


RARE = ("fuzzy_silhouette", "fuzzy_hypervolume")  # indices that not every scan has


class FuzzyCMeansPresentation(Presentation):
    """The objective's way down, memberships of each cluster, and the indices of a fuzzy partition."""

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
        "xie_beni": Score("Xie-Beni index (lower is better)"),
        "fuzzy_silhouette": Score("fuzzy silhouette (1 is best)", ".3f"),
        "fuzzy_hypervolume": Score("fuzzy hypervolume, relative to all rows (lower is better)"),
        "noise_share": Score("share of the rows that are noise", ".3f"),
    }
    facts = {
        "best_init": Fact("start that was kept (counted from 0)"),
        "last_change": Fact("what stop names changed in the last iteration by"),
        "last_shift": Fact("largest move of a centre in the last iteration, in units of the data's spread"),
        "objectives": Fact("objective of each start"),
        "stop_reason": Fact(
            "the iterations ended",
            {
                "tol": "when what stop names changed by no more than tol",
                "max_iter": "at max_iter, before it had settled",
            },
        ),
    }
    captions = {
        "objective": "The objective J at the centres after each iteration, which does not rise but for rounding; "
        "dotted, by how much each iteration lowered it.",
        "validity": "Validity indices of the partitions into each number of clusters. Low is better at the left "
        "(Xie-Beni, or of clusters with covariances the fuzzy hypervolume), high at the right (the others). The dashed "
        "line marks the chosen number.",
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
            return None  # they lie among rows of unit length, the picture shows the rows as they were given
        return np.asarray(result.arrays["cluster_centers"], dtype=np.float64)

    def draw(self, result: Result, sample: Any) -> Drawn:
        from mgclust import plots

        drawn = {"objective": plots.objective(result)} if "objective_history" in result.arrays else {}
        if "scan_n_clusters" in result.arrays:
            drawn = {"validity": plots.validity(result)} | drawn
        return drawn | super().draw(result, sample)

    def tables(self, result: Result) -> list[Table]:
        """After the clusters every number of clusters with its validity indices, the chosen one in bold."""
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
        """Rows that belong to a second cluster nearly as much as to the first."""
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
        rows = np.flatnonzero(labels >= 0)  # the others are noise
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
