"""Presentation of nearest neighbours."""

from __future__ import annotations

from mgclust.algorithms.presentation import Presentation, Score
from mgclust.results.result import Result

__all__ = ["NearestNeighborsPresentation"]


class NearestNeighborsPresentation(Presentation):
    """Presentation of the median and the largest distance to the last neighbour."""

    scores = {
        "median_distance": Score("distance to the last neighbour, median of all rows"),
        "max_distance": Score("distance to the last neighbour, largest of all rows"),
    }

    def method_sentences(self, result: Result) -> list[str]:
        neighbors, metric = result.parameters["n_neighbors"], result.parameters["metric"]
        return [f"The {neighbors} nearest rows of each row were found exactly, metric {metric}."]

    def summary(self, result: Result) -> list[tuple[str, str]]:
        scores = result.scores
        if "median_distance" not in scores:
            return super().summary(result)
        last = f"{result.parameters['n_neighbors']} of each row, the last at {scores['median_distance']:.4g} (median)"
        return [*super().summary(result), ("nearest", f"{last}, at most {scores['max_distance']:.4g}")]
