"""Presentation of canopies."""

from __future__ import annotations

from typing import Any

import numpy as np

from mgclust.algorithms.presentation import Drawn, Fact, Presentation, Score, Table
from mgclust.results.result import Result

__all__ = ["CanopyPresentation"]

MAX_CANOPIES = 1_000  # largest number of canopies in the table, which shows the canopies with the most rows


class CanopyPresentation(Presentation):
    """Picture of the canopies, and a table of their sizes."""

    title = "Canopies"
    references = {
        "McCallum et al. 2000": "A. McCallum, K. Nigam, L. H. Ungar, Efficient clustering of high-dimensional data "
        "sets with application to reference matching, KDD 2000:169-178, 2000.",
    }
    scores = {
        "n_clusters": Score("canopies"),
        "memberships_per_row": Score("canopies per row, on average"),
        "rows_in_one": Score("fraction of the rows in exactly one canopy", ".3f"),
        "t1": Score("loose distance t1"),
        "t2": Score("tight distance t2"),
        "n_steps": Score("steps to find the centres"),
    }
    facts = {
        "thresholds": Fact(
            "t1 and t2", {"given": "as given", "suggested": "from the distances in a sample of the rows"}
        ),
    }
    captions = {
        "canopies": "Rows are coloured by their nearest centre. Solid lines, if drawn, are the canopies: all rows "
        "within t1 of a centre. Dotted lines mark t2: rows inside them could not become centres.",
    }

    def method_sentences(self, result: Result) -> list[str]:
        scores, found = result.scores, result.diagnostics.get("thresholds", "given")
        return [
            f"Canopies (McCallum et al. 2000) had the thresholds t1={scores['t1']:.5g} and t2={scores['t2']:.5g} "
            f"({found}), metric {result.parameters['metric']}; each row is in {scores['memberships_per_row']:.3g} "
            "canopies on average."
        ]

    def centers(self, result: Result) -> np.ndarray | None:
        return np.asarray(result.arrays["cluster_centers"], dtype=np.float64)

    def draw(self, result: Result, sample: Any) -> Drawn:
        from mgclust import plots

        if sample is None:
            return {}
        labels = np.asarray(result.labels)
        near, t1, t2 = labels[sample.index], result.scores["t1"], result.scores["t2"]
        metric = result.parameters.get("metric", "euclidean")
        names, total = result.source.get("columns"), len(labels)
        ax = plots.canopies(sample.rows, near, sample.centers, t1, t2, metric=metric, total=total, feature_names=names)
        return {"canopies": ax}

    def tables(self, result: Result) -> list[Table]:
        """Make a table of the canopies with their centres and sizes; it omits small canopies if there are many."""
        from mgclust import plots

        centers, memberships = np.asarray(result.arrays["centers"]), result.arrays["memberships"]
        count = len(centers)
        held = np.bincount(memberships.indices, minlength=count)
        nearest = np.bincount(np.asarray(result.labels), minlength=count)
        largest = np.sort(np.argsort(-held, kind="stable")[:MAX_CANOPIES])
        columns = (largest, centers[largest], held[largest], nearest[largest])
        rows = list(zip(*(column.tolist() for column in columns), strict=True))
        heading = f"{count:,} canop{'y' if count == 1 else 'ies'}"
        if len(largest) < count:
            heading += f", of which the {len(largest):,} with most rows"
        names = ["canopy", "centre (row)", "rows within t1", "rows nearest to its centre"]
        return [Table(heading, names, rows, plots.cluster_colors(count)[largest])]

    def summary(self, result: Result) -> list[tuple[str, str]]:
        count, t1, t2, each = (result.scores[name] for name in ("n_clusters", "t1", "t2", "memberships_per_row"))
        return [("canopies", f"{count:,}, each row in {each:.3g} on average; t1 {t1:.5g}, t2 {t2:.5g}")]
