"""Presentation of nearest neighbours."""

from __future__ import annotations

from typing import Any

from mgclust.algorithms.presentation import Drawn, Presentation, Score
from mgclust.results.result import Result

__all__ = ["NearestNeighborsPresentation"]


class NearestNeighborsPresentation(Presentation):
    """Picture of the distances, and their median and maximum for the last neighbour."""

    scores = {
        "median_distance": Score("distance to the last neighbour, median of all rows"),
        "max_distance": Score("distance to the last neighbour, largest of all rows"),
    }

    captions = {
        "neighbor_distances": "Distance of each row to its first, a middle and its last neighbour, sorted over the "
        "rows. A sharp rise at the right end shows rows that are far from all others.",
    }

    def draw(self, result: Result, sample: Any) -> Drawn:
        from mgclust import plots

        drawn = {}
        if "distances" in result.arrays:
            drawn["neighbor_distances"] = plots.neighbor_distances(result)
        return drawn | super().draw(result, sample)

    def method_sentences(self, result: Result) -> list[str]:
        neighbors, metric = result.parameters["n_neighbors"], result.parameters["metric"]
        return [f"The {neighbors} nearest rows of each row were found exactly, metric {metric}."]

    def summary(self, result: Result) -> list[tuple[str, str]]:
        scores = result.scores
        if "median_distance" not in scores:
            return super().summary(result)
        last = f"{result.parameters['n_neighbors']} of each row, the last at {scores['median_distance']:.4g} (median)"
        return [*super().summary(result), ("nearest", f"{last}, at most {scores['max_distance']:.4g}")]
