"""Report of parcellations: texts, captions and tables."""

from __future__ import annotations

from typing import Any

import numpy as np

from mgclust.algorithms.presentation import Drawn, Fact, Presentation, Score, Table
from mgclust.results.result import Result

__all__ = ["ParcellationPresentation"]

COLUMNS = {
    "n_clusters": "parcels",
    "smallest": "smallest parcel",
    "largest": "largest parcel",
    "homogeneity": "homogeneity",
    "held_out": "homogeneity, held out",
    "dcbc": "DCBC, held out",
    "split_half_ari": "ARI of the halves",
    "silhouette": "silhouette",
    "coordinates_held_out": "homogeneity, held out: parcels of the coordinates",
    "coordinates_dcbc": "DCBC, held out: parcels of the coordinates",
    "random_dcbc": "DCBC, held out: random parcels",
    "coordinates_split_half_ari": "ARI of the halves: parcels of the coordinates",
    "coordinates_silhouette": "silhouette: parcels of the coordinates",
}
ALGORITHMS = {
    "ward": "Ward's criterion with connectivity (Ward 1963)",
    "communities": "communities of the graph of neighbours, with weights r^4 (Traag et al. 2019)",
    "affinity-propagation": "affinity propagation between neighbours, repeated on the mean series of its clusters "
    "(Frey and Dueck 2007), with Ward's criterion for the last merges (Ward 1963)",
}


SUBJECT_COLUMNS = {
    "homogeneity": "homogeneity of the subject's parcels",
    "group_homogeneity": "homogeneity of the group's parcels",
    "group_ari": "ARI of the subject's and the group's parcels",
    "held_out": "homogeneity of the subject's parcels, held out",
    "group_held_out": "homogeneity of the group's parcels on the halves",
}


class ParcellationPresentation(Presentation):
    """Report of parcellations: the evaluation of the numbers of parcels."""

    title = "Parcellation"
    colored_by_place = True
    references = {
        "Ward 1963": "J. H. Ward, Hierarchical grouping to optimize an objective function, Journal of the American "
        "Statistical Association 58:236-244, 1963.",
        "Dhillon and Modha 2001": "I. S. Dhillon, D. S. Modha, Concept decompositions for large sparse text data using "
        "clustering, Machine Learning 42:143-175, 2001.",
        "Traag et al. 2019": "V. A. Traag, L. Waltman, N. J. van Eck, From Louvain to Leiden: guaranteeing "
        "well-connected communities, Scientific Reports 9:5233, 2019.",
        "Frey and Dueck 2007": "B. J. Frey, D. Dueck, Clustering by passing messages between data points, Science "
        "315:972-976, 2007.",
        "Zhi et al. 2022": "D. Zhi, M. King, C. R. Hernandez-Castillo, J. Diedrichsen, Evaluating brain parcellations "
        "using the distance-controlled boundary coefficient, Human Brain Mapping 43:3706-3720, 2022.",
    }
    scores = {
        "n_clusters": Score("parcels"),
        "homogeneity": Score("mean correlation within parcels", ".3f"),
        "held_out": Score("the same, of parcels of one half on the other half", ".3f", better="higher"),
        "dcbc": Score("distance-controlled boundary coefficient, held out", ".3f", better="higher"),
        "split_half_ari": Score("agreement of the parcels of both halves (ARI)", ".3f", better="higher"),
    }
    facts = {
        "passes": Fact("passes of moves across borders"),
        "unconverged_levels": Fact("nodes of the levels whose exemplars still changed in the last iterations"),
        "subjects": Fact("subjects"),
    }
    captions = {
        "parcel_evaluation": "Parcels of one half of the series (or of the subjects), judged by the other half. "
        "Dashed: connected parcels "
        "that are computed only from the coordinates and ignore the series.",
    }

    def method_sentences(self, result: Result) -> list[str]:
        given = result.parameters
        k = result.scores["n_clusters"]
        found = f"{k} connected parcel{'s were' if k != 1 else ' was'} found"
        sentences = [f"{found} by {ALGORITHMS[given['algorithm']]}."]
        halves = "both halves of the series"
        if given.get("group"):
            halves, subjects = "both halves of the subjects", result.diagnostics.get("subjects")
            over = f"{len(subjects)} subjects" if subjects else "the subjects"  # a candidate has no diagnostics
            sentences.append(f"The similarity of two voxels was the correlation of their series, averaged over {over}.")
        if given["refine"]:
            sentences.append(
                "Voxels then moved across borders to the neighbouring parcel with whose mean they correlate more, with "
                "all parcels kept connected (Dhillon and Modha 2001)."
            )
        if "scan_dcbc" in result.arrays:
            sentences.append(
                f"Numbers of parcels were compared by the parcels of {halves}: by their adjusted Rand "
                "index, and by held-out homogeneity and boundaries (Zhi et al. 2022)."
            )
        if "individual_labels" in result.arrays:
            sentences.append(
                "The parcels of each subject began as the group's parcels; then their borders moved in the same way, "
                "according to the series of the subject."
            )
        return sentences

    def draw(self, result: Result, sample: Any) -> Drawn:
        from mgclust import plots

        if len(np.atleast_1d(result.arrays.get("scan_n_clusters", ()))) < 2:
            return {}
        return {"parcel_evaluation": plots.parcel_evaluation(result)}

    def tables(self, result: Result) -> list[Table]:
        """Make a table of the numbers of parcels, with the chosen number highlighted, and a table of the subjects."""
        subjects = [] if "subject_homogeneity" not in result.arrays else [_of_subjects(result)]
        if "scan_n_clusters" not in result.arrays:
            return subjects
        numbers = np.asarray(result.arrays["scan_n_clusters"])
        shown = {name: words for name, words in COLUMNS.items() if f"scan_{name}" in result.arrays}
        columns = [np.asarray(result.arrays[f"scan_{name}"]).tolist() for name in shown]
        chosen = int(np.flatnonzero(numbers == result.scores["n_clusters"])[0])
        rows = list(zip(*columns, strict=True))
        return [Table("Evaluation of the numbers of parcels", list(shown.values()), rows, chosen=chosen), *subjects]

    def summary(self, result: Result) -> list[tuple[str, str]]:
        scores = result.scores
        text = f"{scores['n_clusters']:,}, homogeneity {scores['homogeneity']:.3f}"
        if "split_half_ari" in scores:
            text += f", ARI of the halves {scores['split_half_ari']:.3f}"
        return [("parcels", text)]


def _of_subjects(result: Result) -> Table:
    shown = {name: words for name, words in SUBJECT_COLUMNS.items() if f"subject_{name}" in result.arrays}
    columns = [np.asarray(result.arrays[f"subject_{name}"]).tolist() for name in shown]
    rows = list(zip(result.diagnostics["subjects"], *columns, strict=True))
    return Table("Parcels of each subject", ["subject", *shown.values()], rows)
