"""Presentation of silhouettes, also for methods that choose the number of clusters by them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from mgclust.algorithms.presentation import Drawn, Fact, Presentation, Score
from mgclust.results.result import Result

__all__ = ["SilhouettePresentation"]


class SilhouettePresentation(Presentation):
    """Picture of the silhouette of every row, and the mean of each cluster."""

    references = {
        "Rousseeuw 1987": "P. J. Rousseeuw, Silhouettes: a graphical aid to the interpretation and validation of "
        "cluster analysis, Journal of Computational and Applied Mathematics 20:53-65, 1987.",
    }
    scores = {
        "silhouette": Score("silhouette, mean of all rows", ".3f", better="higher"),
        "min_cluster_silhouette": Score("lowest mean of a cluster", ".3f", better="higher"),
    }
    facts = {
        "algorithm": Fact(
            "algorithm",
            {
                "closed-form": "closed form about the means of the clusters, in double precision",
                "pairs": "every pair, never stored",
                "given": "precomputed distances",
            },
        ),
        "negative_rows": Fact("rows with a negative silhouette"),
    }
    captions = {
        "silhouettes": "Silhouette of each row, sorted within its cluster: near 1, the row is well inside its cluster; "
        "below 0, it is nearer to another cluster.",
    }

    def method_sentences(self, result: Result) -> list[str]:
        return [
            f"The mean silhouette (Rousseeuw 1987) is {result.scores['silhouette']:.4f}, metric "
            f"{result.parameters['metric']}; the lowest mean of a cluster is "
            f"{result.scores['min_cluster_silhouette']:.4f}."
        ]

    def draw(self, result: Result, sample: Any) -> Drawn:
        from mgclust import plots

        drawn = {}
        if "samples" in result.arrays and result.labels is not None:
            drawn["silhouettes"] = plots.silhouettes(result.arrays["samples"], result.labels)
        return drawn | super().draw(result, sample)

    def columns(self, result: Result, sizes: np.ndarray) -> dict[str, Iterable[Any]]:
        columns: dict[str, Iterable[Any]] = {}
        if len(result.arrays.get("cluster_silhouettes", ())) == len(sizes):
            means = np.asarray(result.arrays["cluster_silhouettes"]).tolist()
            columns["silhouette"] = (f"{value:.3f}" for value in means)
        if len(result.arrays.get("classes", ())) == len(sizes):
            columns["label"] = map(str, np.asarray(result.arrays["classes"]).tolist())
        return columns

    def summary(self, result: Result) -> list[tuple[str, str]]:
        lines = super().summary(result)
        if "silhouette" not in result.scores:
            return lines
        lowest = result.scores.get("min_cluster_silhouette")
        worst = "" if lowest is None else f", lowest mean of a cluster {lowest:.4f}"
        meaning = "(near 1: rows lie well inside their clusters; near 0: between two clusters)"
        return [*lines, ("score", f"silhouette {result.scores['silhouette']:.4f}{worst} {meaning}")]
