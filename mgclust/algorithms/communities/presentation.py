"""Reports of both community methods: texts, captions and tables."""

from __future__ import annotations

from typing import Any

import numpy as np

from mgclust.algorithms.presentation import Drawn, EdgeSample, Fact, Presentation, Sample, Score, Table, shares
from mgclust.data import Dataset
from mgclust.results.result import Result

__all__ = ["CommunitiesPresentation", "FastNewmanPresentation"]

MAX_EDGES = 10_000_000  # largest number of edges in a picture; larger graphs are sampled in PARTS parts
PARTS = 64
MAX_COMMUNITIES = 1_000  # largest number of communities in the table
NAMED_MEMBERS = 8  # number of nodes that the table names per community
ROUND_COLUMNS = {
    "start": "start",
    "cycle": "cycle",
    "levels": "levels of contraction",
    "n_clusters": "communities",
    "quality": "CPM quality",
    "modularity": "modularity Q",
    "unsure": "edges on which partitions differ",
}
RESOLUTION_COLUMNS = {
    "scan_resolution": "resolution",
    "scan_n_clusters": "communities",
    "scan_quality": "CPM quality",
    "scan_modularity": "modularity Q",
}


class CommunitiesPresentation(Presentation):
    """Report of communities: the sorted adjacency matrix, modularity, the last merges, and the largest communities."""

    title = "Communities"
    references = {
        "Newman and Girvan 2004": "M. E. J. Newman, M. Girvan, Finding and evaluating community structure in networks, "
        "Physical Review E 69:026113, 2004.",
        "Newman 2004": "M. E. J. Newman, Fast algorithm for detecting community structure in networks, Physical Review "
        "E 69:066133, 2004.",
        "Clauset et al. 2004": "A. Clauset, M. E. J. Newman, C. Moore, Finding community structure in very large "
        "networks, Physical Review E 70:066111, 2004.",
        "Blondel et al. 2008": "V. D. Blondel, J.-L. Guillaume, R. Lambiotte, E. Lefebvre, Fast unfolding of "
        "communities in large networks, Journal of Statistical Mechanics P10008, 2008.",
        "Leicht and Newman 2008": "E. A. Leicht, M. E. J. Newman, Community structure in directed networks, Physical "
        "Review Letters 100:118703, 2008.",
        "Traag et al. 2011": "V. A. Traag, P. Van Dooren, Y. Nesterov, Narrow scope for resolution-limit-free "
        "community detection, Physical Review E 84:016114, 2011.",
        "Maslov and Sneppen 2002": "S. Maslov, K. Sneppen, Specificity and stability in topology of protein networks, "
        "Science 296:910-913, 2002.",
        "Hennig 2007": "C. Hennig, Cluster-wise assessment of cluster stability, Computational Statistics & Data "
        "Analysis 52:258-271, 2007.",
        "Lancichinetti and Fortunato 2012": "A. Lancichinetti, S. Fortunato, Consensus clustering in complex networks, "
        "Scientific Reports 2:336, 2012.",
        "Traag et al. 2019": "V. A. Traag, L. Waltman, N. J. van Eck, From Louvain to Leiden: guaranteeing "
        "well-connected communities, Scientific Reports 9:5233, 2019.",
    }
    scores = {
        "n_clusters": Score("communities"),
        "quality": Score("CPM quality", ".6g"),
        "modularity": Score("modularity Q", better="higher"),
        "stability": Score(
            "agreement with the communities of graphs without 10% of the edges (ARI, mean)", ".3f", better="higher"
        ),
        "n_nodes": None,  # the report already shows it as the source
        "n_edges": None,
    }
    facts = {
        "n_components": Fact("connected components"),
        "strategy": Fact(
            "algorithm",
            {
                "greedy": "greedy merging: the best of all pairs, found by exact comparisons",
                "parallel": "matching of communities and local moving of nodes, in rounds",
            },
        ),
        "weight_rounding": Fact("largest rounding of a weight, relative to the mean weight", {0.0: "none"}),
        "significance": None,  # a line of the summary
        "stability": None,
        "rounds": None,  # shown as a table
    }
    captions = {
        "adjacency": "Adjacency matrix, with nodes sorted by community and then by their number of edges. Each mark is "
        "an edge between the nodes of its row and its column. In larger graphs, darker cells hold more edge weight. "
        "Grey marks are edges between communities.",
        "dendrogram": "The last merges. Each fork is a merge; its height is the number of communities after it. Below "
        "the dashed line, branches have the colour of their community. A leaf with a larger mark has more nodes.",
        "modularity": "Modularity Q against the number of communities. The circle marks this result. In the shaded "
        "range there are fewer communities than connected components: unconnected parts are merged, which can only "
        "lower Q.",
    }
    wide = ("dendrogram",)
    progress = {**Presentation.progress, "modularity": "Q={:.4f}"}

    def method_sentences(self, result: Result) -> list[str]:
        how = "greedy merges (Newman 2004; Clauset et al. 2004)"
        if result.diagnostics.get("strategy") == "parallel":
            how = "parallel local moving with refinement (after Blondel et al. 2008 and Traag et al. 2019)"
        found = f"Communities were found by {how}; "
        if "quality" in result.scores:
            sentences = [
                f"{found}their quality in the constant Potts model (Traag et al. 2011) is "
                f"{result.scores['quality']:.6g} at resolution {result.parameters['resolution']:g}."
            ]
        else:
            which = "modularity (Newman and Girvan 2004)"
            if result.parameters.get("directed"):
                which = "directed modularity (Leicht and Newman 2008)"
            sentences = [f"{found}their {which} is {result.scores['modularity']:.4f}."]
        if result.parameters.get("init") is not None:
            fixed = "" if result.parameters.get("fixed") is None else ", and some nodes were fixed in them"
            sentences.append(f"Local moving began with given initial communities, whose ids were kept{fixed}.")
        if partitions := result.parameters.get("consensus"):
            sentences.append(
                f"They are the consensus of {partitions} partitions (Lancichinetti and Fortunato 2012), on the "
                "edges of the graph."
            )
        if (drawn := result.diagnostics.get("significance")) and result.parameters.get("null"):
            sentences.append(
                f"In {len(drawn['rewired'])} random graphs with the same degrees (Maslov and Sneppen 2002), the same "
                f"search found {drawn['mean']:.4g} ± {drawn['std']:.2g} (p = {drawn['p_value']:.2g})."
            )
        if drawn := result.diagnostics.get("stability"):
            sentences.append(
                f"Communities of {len(drawn['ari'])} graphs without {drawn['removed']:.0%} of the edges agree with the "
                f"result with an adjusted Rand index of {drawn['mean']:.2f}; each community has the mean Jaccard index "
                "with the most similar community (Hennig 2007)."
            )
        return sentences

    def lead(self, result: Result) -> list[str]:
        resolution = result.parameters.get("resolution", 1.0)
        return [] if resolution == 1.0 else [f"resolution {resolution:g}"]

    def sample(self, dataset: Dataset, result: Result, most: int) -> Sample | EdgeSample | None:
        """Read all edges, or parts of them that are spread evenly over the graph."""
        m = dataset.shape[0]
        bounds = [(0, m)]
        if m > MAX_EDGES:
            each = MAX_EDGES // PARTS
            bounds = [(start, start + each) for start in np.linspace(0, m - each, PARTS).astype(int).tolist()]
        parts = [dataset.read(start, stop) for start, stop in bounds]
        return EdgeSample(np.concatenate([part.get() if hasattr(part, "get") else part for part in parts]), m)

    def draw(self, result: Result, sample: Any) -> Drawn:
        """Draw the pictures for which the result has data.

        A graph without edges has neither a matrix nor a dendrogram. If merges are not stored, the curve of modularity
        shows the rounds instead.
        """
        from mgclust import plots

        assert result.labels is not None
        drawn = {}
        rounds = result.diagnostics.get("rounds") or ()
        if "modularity_history" in result.arrays or any("modularity" in each for each in rounds):
            drawn["modularity"] = plots.modularity(result)
        if sample is not None and sample.total:
            names = result.arrays.get("names")
            drawn["adjacency"] = plots.adjacency(sample.edges, result.labels, names=names, total=sample.total)
        if len(result.arrays.get("merges", ())) and result.diagnostics.get("n_components", 1) < len(result.labels):
            drawn["dendrogram"] = plots.dendrogram(result)
        return drawn

    def tables(self, result: Result) -> list[Table]:
        """Return a table of the communities (only the largest, if there are many), and one of the rounds, if any."""
        from mgclust import plots

        sizes = result.cluster_sizes
        count = int(np.count_nonzero(sizes))  # labels that began with known communities may leave out numbers
        largest = np.sort(np.argsort(-sizes, kind="stable")[: min(count, MAX_COMMUNITIES)])
        columns = {
            "community": largest.tolist(),
            "nodes": sizes[largest].tolist(),
            "share": shares(sizes[largest], sizes.sum()),
        }
        if "stability" in result.arrays:
            columns["stability (mean Jaccard index)"] = [
                f"{value:.2f}" for value in np.asarray(result.arrays["stability"])[largest]
            ]
        named = "names" in result.arrays
        if named:
            columns["some of its nodes"] = _members(np.asarray(result.labels), result.arrays["names"], largest)
        rows = list(zip(*columns.values(), strict=True))
        heading = f"{count:,} communit{'y' if count == 1 else 'ies'}"
        if len(largest) < count:
            heading += f", of which the {len(largest):,} largest"
        colors = plots.cluster_colors(len(sizes))[largest]
        communities = Table(heading, list(columns), rows, colors, words=named)
        return [communities, *_resolutions(result), *_rounds(result)]

    def summary(self, result: Result) -> list[tuple[str, str]]:
        where = "".join(f" at {place}" for place in self.lead(result))
        score = f"modularity {result.scores['modularity']:.4f}"
        if "quality" in result.scores:
            score = f"CPM quality {result.scores['quality']:.6g}"
        sizes = result.cluster_sizes
        sizes = sizes[sizes > 0]
        spread = f"{sizes.min():,}" if sizes.min() == sizes.max() else f"{sizes.min():,} to {sizes.max():,}"
        lines = [
            ("clusters", f"{len(sizes):,}, of {spread} nodes"),
            ("score", f"{score}{where}"),
        ]
        if found := result.diagnostics.get("significance"):
            count, p = len(found["rewired"]), found["p_value"]
            text = f"{found['mean']:.4f}" + (f" ± {found['std']:.4f}" if count > 1 else "")
            text += f" in {count} graph{'' if count == 1 else 's'} with the same degrees"
            lines.append(("random", text + ("" if p is None else f", p = {p:.2g}")))
        if found := result.diagnostics.get("stability"):
            text = f"ARI {found['mean']:.2f} ± {found['std']:.2f} in {len(found['ari'])} graphs without "
            lines.append(("stability", f"{text}{found['removed']:.0%} of the edges"))
        return lines


class FastNewmanPresentation(CommunitiesPresentation):
    """Report of Fast Newman: the same as `CommunitiesPresentation`, with another title."""

    title = "Communities (Fast Newman)"


def _members(labels: np.ndarray, names: Any, communities: np.ndarray) -> list[str]:
    """Return the first few node names of some communities."""
    order = np.argsort(labels, kind="stable")
    first = np.searchsorted(labels[order], communities)
    after = np.searchsorted(labels[order], communities, side="right")
    texts = []
    for start, stop in zip(first.tolist(), after.tolist(), strict=True):
        some = np.asarray(names)[order[start : min(stop, start + NAMED_MEMBERS)]].tolist()
        texts.append(", ".join(map(str, some)) + (", ..." if stop - start > NAMED_MEMBERS else ""))
    return texts


def _resolutions(result: Result) -> list[Table]:
    """Return a table with a row for each resolution, and highlight the resolution that gave the labels."""
    if "scan_resolution" not in result.arrays:
        return []
    columns = {
        words: np.asarray(result.arrays[name]).tolist()
        for name, words in RESOLUTION_COLUMNS.items()
        if name in result.arrays
    }
    sizes = [_sizes(column) for column in np.asarray(result.arrays["candidates"]).T]
    columns |= {"smallest": [int(each.min()) for each in sizes], "largest": [int(each.max()) for each in sizes]}
    formats = {"resolution": "g", "CPM quality": ".6g", "modularity Q": ".4f"}
    shown = [
        [format(value, formats[words]) for value in column] if words in formats else column
        for words, column in columns.items()
    ]
    rows = list(zip(*shown, strict=True))
    return [Table("Resolutions", list(columns), rows, chosen=0)]


def _sizes(labels: np.ndarray) -> np.ndarray:
    """Return the number of nodes of each community."""
    sizes = np.bincount(labels)
    return sizes[sizes > 0]


def _rounds(result: Result) -> list[Table]:
    """Return a table of the rounds, with the modularity after each round."""
    rounds = result.diagnostics.get("rounds") or ()
    if not len(rounds):
        return []
    present = [name for name in ROUND_COLUMNS if any(entry.get(name) is not None for entry in rounds)]
    rows = [
        [number, *(_round_text(name, entry.get(name)) for name in present)] for number, entry in enumerate(rounds, 1)
    ]
    heading = f"{len(rows):,} round{'' if len(rows) == 1 else 's'}"
    return [Table(heading, ["round", *(ROUND_COLUMNS[name] for name in present)], rows)]


def _round_text(name: str, value: Any) -> Any:
    if value is None:
        return ""
    formats = {"modularity": ".4f", "quality": ".6g", "unsure": ".2%"}
    return format(value, formats[name]) if name in formats else value
