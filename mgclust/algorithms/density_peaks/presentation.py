"""Presentation of density peaks."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from mgclust.algorithms.presentation import (
    Axis,
    Drawn,
    EdgeSample,
    Fact,
    Presentation,
    Sample,
    Score,
    Table,
    number_text,
)
from mgclust.data import Dataset
from mgclust.results.result import Result

__all__ = ["DensityPeaksPresentation"]

TRIED = ("fraction of the pairs", "dc", "clusters", "drop of rho * delta after them")
NUMBERS = ("clusters", "best fraction", "drop of rho * delta after them (mean at two neighbouring fractions)")
SADDLES = (
    "first cluster",
    "second cluster",
    "saddle (row)",
    "log density at the saddle",
    "height of the first peak, in standard errors",
    "height of the second peak, in standard errors",
)
MAX_SADDLES = 50


class DensityPeaksPresentation(Presentation):
    """Decision graph, prominence of peaks, rho and delta of the centres, halo, and exactness of dc."""

    scores = {
        "dc": Score("cut-off distance dc"),
        "dc_error": None,
        "dc_fraction": Score("fraction of the pairs within dc"),
        "gamma_drop": Score("drop of rho * delta after the centres", better="higher"),
        "halo_rows": Score("rows in the halo"),
        "stability": Score(
            "agreement with the clusters of random halves of the rows (ARI, mean)", ".3f", better="higher"
        ),
        "intrinsic_dim": Score("intrinsic dimension (TwoNN)"),
    }
    facts = {
        "algorithm": Fact(
            "algorithm",
            {
                "brute": "brute force: every pair, never stored",
                "grid": "near-linear: grid cells and a non-uniform FFT",
                "given": "precomputed distances",
            },
        ),
        "dc_pairs": Fact("random pairs from which dc was found"),
        "dc_passes": Fact("exact passes over the pairs to find dc", {0: "none: the sample held every pair"}),
        "norm": Fact(
            "distances computed from",
            {
                "l2": "direct differences",
                "l2-dot": "products; direct differences if a threshold or a minimum depends on the rounding",
                "l1": "absolute differences",
                "given": "nothing: they were precomputed",
            },
        ),
        "equal_pairs": Fact("pairs of equal rows"),
        "different_pairs": Fact("pairs of distinct rows, from which dc was found"),
        "noise_drop": Fact("largest drop of rho * delta in noise, after this number of centres"),
        "dc_choice": None,
        "peaks": None,
        "stability": None,
        "intrinsic_dim_rows": Fact("rows from which the intrinsic dimension was found"),
        "rho_recomputed_rows": Fact("rows whose density was recomputed by the direct sum"),
        "distance_relative_error": Fact("relative error of a typical distance, from rounding of the rows"),
        "rho_relative_error": Fact("largest relative error of the densities"),
    }
    captions = {
        "decision_graph": "Each point is a row: density rho to the right, distance delta to a denser row upwards. "
        "Coloured marks are the cluster centres, with their labels: they are dense, and far from any denser row. The "
        "dashed line separates them from the other rows. There is no line if low density or a test of significance "
        "separated the clusters.",
        "prominence": "Each bar is a peak of the density, most prominent first. Its height is how far the peak exceeds "
        "the saddle to a denser cluster, in standard errors. Coloured bars are clusters (hatched: without a saddle); "
        "grey bars are peaks that belong to a cluster. The dashed line is the significance. A clear step after the "
        "clusters supports their number.",
    }
    references = {
        "Rodriguez and Laio 2014": "A. Rodriguez, A. Laio, Clustering by fast search and find of density peaks, "
        "Science 344:1492-1496, 2014.",
        "Chazal et al. 2013": "F. Chazal, L. J. Guibas, S. Y. Oudot, P. Skraba, Persistence-based clustering in "
        "Riemannian manifolds, Journal of the ACM 60:41, 2013.",
        "d'Errico et al. 2021": "M. d'Errico, E. Facco, A. Laio, A. Rodriguez, Automatic topography of "
        "high-dimensional data sets by non-parametric density peak clustering, Information Sciences 560:476-492, 2021.",
        "Rodriguez et al. 2018": "A. Rodriguez, M. d'Errico, E. Facco, A. Laio, Computing the free energy without "
        "collective variables, Journal of Chemical Theory and Computation 14:1206-1215, 2018.",
        "Facco et al. 2017": "E. Facco, M. d'Errico, A. Rodriguez, A. Laio, Estimating the intrinsic dimension of "
        "datasets by a minimal neighborhood information, Scientific Reports 7:12140, 2017.",
        "Ben-Hur et al. 2002": "A. Ben-Hur, A. Elisseeff, I. Guyon, A stability based method for discovering structure "
        "in clustered data, Pacific Symposium on Biocomputing 7:6-17, 2002.",
    }
    decision_graph = (Axis("rho", "density rho"), Axis("delta", "distance delta to a denser row"))

    def method_sentences(self, result: Result) -> list[str]:
        parameters, scores = result.parameters, result.scores
        sentences = [f"Clusters were found by density peaks (Rodriguez and Laio 2014), metric {parameters['metric']}."]
        if "dc" in scores:
            found = "given" if parameters.get("dc") is not None else "found from the data"
            share = f"; {100 * scores['dc_fraction']:g}% of the pairs lie within it" if "dc_fraction" in scores else ""
            sentences.append(f"The cut-off distance was dc={scores['dc']:.5g} ({found}{share}).")
        if parameters.get("k") == "adaptive":
            sentences.append(
                "Each density comes from a neighbourhood whose size was chosen from the data (Rodriguez et al. 2018)."
            )
        if parameters.get("significance") is not None:
            sentences.append(
                f"Clusters are the peaks that exceed their saddles by at least {parameters['significance']:g} standard "
                f"errors (d'Errico et al. 2021), with intrinsic dimension {scores['intrinsic_dim']:.3g} (Facco et al. "
                "2017)."
            )
        if result.diagnostics.get("assignment") == "separated":
            sentences.append(
                "Clusters separated by low density were found by the persistence of density peaks (Chazal et al. 2013)."
            )
        if "stability" in scores:
            sentences.append(
                f"Clusters of random halves of the rows (Ben-Hur et al. 2002) agree with the result with an adjusted "
                f"Rand index of {scores['stability']:.2f} (mean of {parameters['stability']} halves)."
            )
        return sentences

    def exactness(self, result: Result) -> list[tuple[str, Any]]:
        if "dc" not in result.scores:
            return []
        error = result.scores.get("dc_error", 0.0)
        how = "given" if result.parameters.get("dc") is not None else "exact: the same as sorting all distances"
        found = [("dc", f"sampled, within {error:.2g} of the exact value with 95 % confidence" if error else how)]
        if "rho" in result.diagnostics.get("exactness", {}):
            found.append(("density", "summed over all pairs"))
        return found

    def sample(self, dataset: Dataset, result: Result, most: int) -> Sample | EdgeSample | None:
        if result.parameters.get("metric") == "precomputed":
            return None  # the rows are distances, not points
        return super().sample(dataset, result, most)

    def draw(self, result: Result, sample: Any) -> Drawn:
        from mgclust import plots

        drawn = {}
        if {"rho", "delta", "centers"} <= set(result.arrays):
            drawn["decision_graph"] = plots.decision_graph(result)
        if {"separated_prominence", "significance"} & set(result.arrays):
            drawn["prominence"] = plots.prominence(result)
        return drawn | super().draw(result, sample)

    def faint(self, result: Result, index: np.ndarray) -> np.ndarray | None:
        return np.asarray(result.arrays["halo"])[index] if "halo" in result.arrays else None

    def columns(self, result: Result, sizes: np.ndarray) -> dict[str, Iterable[Any]]:
        columns: dict[str, Iterable[Any]] = {}
        centers = result.arrays.get("centers", ())
        for name in ("rho", "delta"):
            if name in result.arrays and len(centers) == len(sizes):
                columns[name] = map(number_text, np.asarray(result.arrays[name])[centers].tolist())
        if "halo" in result.arrays:
            labels = np.asarray(result.labels)[np.asarray(result.arrays["halo"], dtype=bool)]
            columns["in halo"] = np.bincount(labels[labels >= 0], minlength=len(sizes)).tolist()
        if "significance" in result.arrays:
            columns["height over its highest saddle, in standard errors"] = [
                f"{height:.2f}" if np.isfinite(height) else "no saddle" for height in result.arrays["significance"]
            ]
        return columns

    def tables(self, result: Result) -> list[Table]:
        """Return the tables of clusters, of saddles between significant peaks, and of the choice of dc_fraction."""
        choice = result.diagnostics.get("dc_choice")
        tables = super().tables(result)
        if len(result.arrays.get("saddles", ())):
            tables.append(_saddles(result))
        found = choice.get("separated") if choice else None
        if not choice or not (choice["tried"] or found):
            return tables
        of = f"in a sample of {choice['rows']:,} rows"
        tried = [
            [each["dc_fraction"], number_text(each["dc"]), each["n_clusters"], f"{each['drop']:.3g}"]
            for each in choice["tried"]
        ]
        chosen = next((at for at, row in enumerate(tried) if row[0] == choice["dc_fraction"]), None)
        numbers = [[each["n_clusters"], each["dc_fraction"], f"{each['drop']:.3g}"] for each in choice["numbers"]]
        if found:
            clearly = f"separated by low density, last peak {found['ratio']:.3g} times as prominent as the next"
            numbers.insert(0, [found["n_clusters"], found["dc_fraction"], clearly])
        if tried:
            title = f"Decision graphs {of}, by fraction of the pairs within dc"
            tables.append(Table(title, TRIED, tried, chosen=None if found else chosen))
        title = f"Numbers of clusters that stood out {of}"
        return [*tables, Table(title, NUMBERS, numbers, chosen=0 if found else None)]

    def summary(self, result: Result) -> list[tuple[str, str]]:
        lines = super().summary(result)
        if peaks := result.diagnostics.get("peaks"):
            lowest = float(np.min(result.arrays["significance"]))
            said = [f"{result.scores['n_clusters']:,} of {peaks['found']:,} are significant"]
            said += [f"the lowest {lowest:.3g} standard errors over its saddle"] if np.isfinite(lowest) else []
            said += [] if peaks["merged"] is None else [f"the highest merged peak {peaks['merged']:.3g}"]
            lines.append(("peaks", ", ".join(said)))
        if "dc" in result.scores:
            lines.append(("dc", f"{result.scores['dc']:.5g}"))
        if drawn := result.diagnostics.get("stability"):
            numbers = sorted(set(drawn["n_clusters"]))
            spread = f"{numbers[0]:,}" if len(numbers) == 1 else f"{numbers[0]:,} to {numbers[-1]:,}"
            agree = f"ARI {drawn['mean']:.2f} ± {drawn['std']:.2f}"
            lines.append(("halves", f"{len(drawn['ari'])} random halves of the rows: {agree}, {spread} clusters"))
        if choice := result.diagnostics.get("dc_choice"):
            others = [each for each in choice["numbers"] if each["n_clusters"] != result.scores["n_clusters"]]
            named = [f"{each['n_clusters']} (at {each['dc_fraction']:g}, drop {each['drop']:.3g})" for each in others]
            any_tried = choice["tried"] or choice.get("separated")
            chosen = "chosen from the data" if any_tried else "no other tried: few rows, or many equal rows"
            lines.append(("fraction", f"{choice['dc_fraction']:g} of the pairs within dc, {chosen}"))
            if found := choice.get("separated"):
                lines.append(
                    ("separated", f"by low density, last peak {found['ratio']:.3g} times as prominent as the next")
                )
            lines += [("others", ", ".join(named))] if named else []
        return lines


def _saddles(result: Result) -> Table:
    """Return a table of the densest saddles between clusters, densest first."""
    saddles, centers = np.asarray(result.arrays["saddles"]), np.asarray(result.arrays["centers"])

    def at(name: str, rows: np.ndarray) -> np.ndarray:
        return np.asarray(result.arrays[name][rows])  # reads only these rows of an array that is on Dask workers

    value, error = (at(name, saddles[:, 2]) for name in ("log_density", "log_density_error"))
    peak, peak_error = (at(name, centers) for name in ("log_density", "log_density_error"))
    shown = np.argsort(-value, kind="stable")[:MAX_SADDLES].tolist()
    rows = [
        [*saddles[i].tolist(), number_text(float(value[i]))]
        + [f"{(peak[c] - value[i]) / (peak_error[c] + error[i]):.2f}" for c in saddles[i, :2].tolist()]
        for i in shown
    ]
    few = "" if len(shown) == len(saddles) else f", the {len(shown)} densest of {len(saddles):,}"
    return Table(f"Saddles between clusters{few}", SADDLES, rows)
