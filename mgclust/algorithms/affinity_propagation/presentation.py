"""Reports of both affinity propagation methods: texts, captions and tables."""

from __future__ import annotations

from typing import Any

import numpy as np

from mgclust.algorithms.affinity_propagation.rows.similarity_matrix import PRECOMPUTED
from mgclust.algorithms.presentation import Drawn, EdgeSample, Fact, Presentation, Sample, Score, Table, number_text
from mgclust.algorithms.silhouette.presentation import SilhouettePresentation
from mgclust.data import Dataset
from mgclust.results.result import Result

__all__ = ["AdaptiveAffinityPropagationPresentation", "AffinityPropagationPresentation"]

SCAN_COLUMNS = {
    "n_clusters": "clusters",
    "silhouette": "silhouette",
    "min_cluster_silhouette": "lowest mean of a cluster",
    "min_cluster_size": "smallest cluster",
    "net_similarity": "net similarity",
    "preference": "preference",
    "damping": "damping",
    "n_iter": "iteration",
}


class AffinityPropagationPresentation(Presentation):
    """Report of affinity propagation; with precomputed similarities, it has no picture of rows."""

    references = {
        "Frey and Dueck 2007": "B. J. Frey, D. Dueck, Clustering by passing messages between data points, Science "
        "315:972-976, 2007.",
    }
    scores = {"net_similarity": Score("net similarity")}
    progress = {
        "iteration": "iteration {:,}",
        "max_iter": "of at most {:,}",
        "n_clusters": "K={:,} clusters",
        "preference": "preference={:.4g}",
        "damping": "damping={:.2f}",
        "rate": "{:,.0f} it/s",
    }

    def method_sentences(self, result: Result) -> list[str]:
        scores, parameters, found = result.scores, result.parameters, "the median similarity"
        if parameters.get("preference") is not None:
            found = "given"
        elif parameters.get("n_clusters") is not None or parameters.get("preference_quantile") is not None:
            found = "computed from the given number of clusters or quantile"
        ended = "converged" if scores["converged"] else "had not converged"
        return [
            f"Exemplars were found by affinity propagation (Frey and Dueck 2007) with {parameters['affinity']} "
            f"similarities and preference {scores['preference']:.5g} ({found}); it {ended} after "
            f"{scores['n_iter']:,} iterations, with net similarity {scores['net_similarity']:.6g}."
        ]

    def sample(self, dataset: Dataset, result: Result, most: int) -> Sample | EdgeSample | None:
        if result.parameters.get("affinity") in PRECOMPUTED:
            return None  # the input holds similarities, not rows that a picture could show
        return super().sample(dataset, result, most)


class AdaptiveAffinityPropagationPresentation(AffinityPropagationPresentation, SilhouettePresentation):
    """Report of the adaptive scan: its candidates, and the silhouettes by which one of them was chosen."""

    references = {
        "Wang et al. 2007": "K. Wang, J. Zhang, D. Li, X. Zhang, T. Guo, Adaptive affinity propagation clustering, "
        "Acta Automatica Sinica 33:1242-1246, 2007.",
        **AffinityPropagationPresentation.references,
        **SilhouettePresentation.references,
    }
    scores = {**AffinityPropagationPresentation.scores, **SilhouettePresentation.scores}
    captions = {
        **SilhouettePresentation.captions,
        "scan": "Silhouettes of the candidates against the number of clusters: the mean of all rows, and the lowest "
        "mean of a cluster. White points cannot be chosen, because a cluster is too small. The circle marks the chosen "
        "candidate; the rule that chose it is listed below. The dotted line shows the preference.",
    }
    facts = {
        **SilhouettePresentation.facts,
        "selection": Fact(
            "rule of the choice",
            {
                "silhouette": "largest mean silhouette among the candidates whose clusters are all large enough",
                "package": "second rule of the authors' package, because the best mean silhouette is below 0.3: the "
                "largest minimum cluster silhouette among the candidates with at least the median number of clusters "
                "(the lower one of two medians)",
            },
        ),
    }

    def method_sentences(self, result: Result) -> list[str]:
        parameters, scores = result.parameters, result.scores
        metric = parameters["silhouette_metric"] if parameters["affinity"] == "euclidean" else parameters["affinity"]
        return [
            "Exemplars were found by adaptive affinity propagation (Wang et al. 2007, after Frey and Dueck 2007) with "
            f"profile={parameters['profile']} and {parameters['affinity']} similarities.",
            f"The number of clusters was chosen by silhouettes (Rousseeuw 1987; {metric} distance): the mean "
            f"silhouette is {scores['silhouette']:.3f} at preference {scores['preference']:.5g}. The scan took "
            f"{scores['n_iter']:,} iterations{'' if scores['converged'] else ', and had not reached its end'}.",
        ]

    def draw(self, result: Result, sample: Any) -> Drawn:
        from mgclust import plots

        drawn = {"scan": plots.scan(result)} if "scan_n_clusters" in result.arrays else {}
        return drawn | super().draw(result, sample)

    def tables(self, result: Result) -> list[Table]:
        """Add a table of all candidates by ascending number of clusters, with the chosen candidate in bold."""
        present = {name: f"scan_{name}" for name in SCAN_COLUMNS if f"scan_{name}" in result.arrays}
        if "n_clusters" not in present:
            return super().tables(result)
        columns = {name: np.asarray(result.arrays[array]) for name, array in present.items()}
        order = np.argsort(columns["n_clusters"], kind="stable")
        rows = [[_candidate_text(name, values[at].item()) for name, values in columns.items()] for at in order]
        chosen = np.flatnonzero(columns["n_clusters"][order] == result.scores.get("n_clusters"))
        count = len(rows)
        heading = f"{count:,} candidates of the scan" if count != 1 else "One candidate of the scan"
        names = [SCAN_COLUMNS[name] for name in present]
        return [*super().tables(result), Table(heading, names, rows, chosen=int(chosen[0]) if len(chosen) else None)]


def _candidate_text(name: str, value: Any) -> str:
    if name in ("silhouette", "min_cluster_silhouette"):
        return "undefined" if np.isnan(value) else f"{value:.4f}"
    if name == "damping":
        return f"{value:.3f}"
    return number_text(value) if isinstance(value, float) else f"{value:,}"
