"""How a report says things: names and captions for readers, numbers as text, the look of the page."""

from __future__ import annotations

import html
import math
from collections.abc import Mapping
from typing import Any

import numpy as np

__all__ = [
    "EXACTNESS_NAMES",
    "EXACTNESS_VALUES",
    "METHOD_TITLES",
    "OWN_SCORE_NAMES",
    "PICTURE_CAPTIONS",
    "SCORE_NAMES",
    "STYLE",
    "WIDE_PICTURES",
    "escaped",
    "figure_text",
    "flat",
    "number_text",
    "value_text",
]

# Of others: the name with spaces.
METHOD_TITLES = {"canopy": "Canopies", "fast-newman": "Communities (fast Newman)", "fuzzy-c-means": "Fuzzy c-means"}
# What the computation says about itself, in the reader's words; unknown facts keep their own name.
EXACTNESS_NAMES = {
    "algorithm": "algorithm",
    "best_init": "start that was kept (counted from 0)",
    "last_shift": "largest move of a centre in the last iteration, in units of the data's spread",
    "n_components": "connected components",
    "negative_rows": "rows with a negative silhouette",
    "dc_passes": "exact passes over the pairs to find dc",
    "norm": "squared distances by",
    "objectives": "objective of each start",
    "rho_recomputed_rows": "rows whose density was recomputed directly",
    "rho_relative_error": "relative error of the densities, at most",
    "stop_reason": "the iterations ended",
    "strategy": "communities by",
    "thresholds": "t1 and t2",
    "weight_rounding": "weights rounded by, relative to their mean",
}
EXACTNESS_VALUES: dict[tuple[str, Any], str] = {
    ("algorithm", "brute"): "brute force: every pair, never stored",
    ("algorithm", "grid"): "near-linear: grid cells and a non-uniform FFT",
    ("algorithm", "closed-form"): "closed form about the means of the clusters, in double precision",
    ("algorithm", "pairs"): "every pair, never stored",
    ("dc_passes", 0): "none: the sample held every pair",
    ("norm", "l2"): "direct differences",
    ("norm", "l2-dot"): "matrix products; pairs at a threshold again by direct differences",
    ("norm", "l1"): "absolute differences",
    ("weight_rounding", 0.0): "not at all",
    ("strategy", "greedy"): "greedy merging: of all pairs the best, decided by exact comparisons",
    ("strategy", "parallel"): "handshakes of communities and moves of nodes, in rounds",
    ("thresholds", "given"): "as given",
    ("thresholds", "suggested"): "from the distances in a sample of the rows",
    ("stop_reason", "tol"): "when no centre moved further than tol",
    ("stop_reason", "max_iter"): "at max_iter, before the centres came to rest",
}
SCORE_NAMES = {
    "n_clusters": "clusters",
    "dc": "cut-off distance dc",
    "ari": "agreement with the known truth (ARI, 1 = the same)",
    "nmi": "agreement with the known truth (NMI, 1 = the same)",
    "halo_rows": "rows in the halo",
    "silhouette": "silhouette, mean of all rows",
    "min_cluster_silhouette": "lowest mean of a cluster",
    "net_similarity": "net similarity",
    "n_iter": "iterations",
    "modularity": "modularity Q",
    "n_canopies": "canopies",
    "memberships_per_row": "canopies of a row, on average",
    "t1": "loose distance t1",
    "t2": "tight distance t2",
    "n_steps": "steps to find the centres",
    "objective": "objective J",
    "partition_coefficient": "partition coefficient (1 = crisp)",
    "partition_entropy": "partition entropy (0 = crisp)",
    "xie_beni": "Xie-Beni index (lower is better)",
}
OWN_SCORE_NAMES = {("fast-newman", "n_clusters"): "communities"}
# From -1 to 1: three decimals say enough.
_SHARES = ("ari", "nmi", "silhouette", "min_cluster_silhouette", "partition_coefficient")
PICTURE_CAPTIONS = {
    "adjacency": "A mark is an edge between the node of its row and that of its column; in larger graphs a darker cell "
    "holds more edge weight. Nodes stand by community and then by their number of edges; grey: between communities.",
    "canopies": "The rows in the colour of their nearest centre. Where lines are drawn, canopies end there, at t1; the "
    "dotted lines, at t2, hold the rows that a centre kept from becoming one.",
    "decision_graph": "Each point is a row. Centres are dense and far from anything denser; the numbers are "
    "their labels. The dashed line is what set them apart.",
    "dendrogram": "The last merges. Below the dashed line branches have the colour of their community; a leaf's mark "
    "is as large as its number of nodes. A fork stands as high as the number of communities that it left.",
    "label_slices": "The clusters in their place, over the mean of the series; dark lines where clusters meet. In the "
    "label volume cluster k has the value k + 1, and 0 is none.",
    "modularity": "The modularity Q at every number of communities. The circle marks the communities of this result; "
    "in the shaded part parts of the graph that no edge connects are joined, which can only lower it.",
    "objective": "The objective J at the centres after each iteration, which does not rise but for rounding; dotted, "
    "by how much each iteration lowered it.",
    "scan": "Each point is a candidate that the scan found, by its number of clusters. The circle marks the chosen "
    "one: the largest mean silhouette among those without a cluster that is too small.",
    "silhouettes": "Each row's silhouette, sorted within its cluster: near 1 well inside, below 0 nearer to another "
    "cluster.",
    "scatter": "The rows by cluster; marks at the centres, where clusters have such. Faint: rows of a halo, or with a "
    "second membership of more than half of the largest.",
}
WIDE_PICTURES = ("dendrogram", "label_slices")  # over the whole width of the page

STYLE = """
:root { color-scheme: light; }
* { box-sizing: border-box; }
body { margin: 0; background: #f4f5f7; color: #22262b; font: 15px/1.5 system-ui, "Segoe UI", Roboto,
  "Helvetica Neue", Arial, sans-serif; font-variant-numeric: tabular-nums; }
main { max-width: 1080px; margin: 0 auto; padding: 32px 40px 48px; background: #fff; }
h1 { margin: 0 0 2px; font-size: 26px; letter-spacing: -0.01em; overflow-wrap: anywhere; }
h2 { margin: 34px 0 10px; padding-bottom: 5px; font-size: 16px; border-bottom: 1px solid #dfe2e6; }
p.lead { margin: 0; color: #5b6470; }
dl.figures { display: flex; flex-wrap: wrap; gap: 12px 44px; margin: 24px 0 0; }
dl.figures dt { color: #5b6470; font-size: 13px; }
dl.figures dd { margin: 0; font-size: 25px; font-weight: 600; letter-spacing: -0.01em; }
.columns { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(400px, 100%), 1fr)); gap: 0 40px; }
.pictures { align-items: start; gap: 8px 24px; margin-top: 22px; }
figure { margin: 0; min-width: 0; }
figure.wide { grid-column: 1 / -1; }
figure img { width: 100%; display: block; }
figcaption { color: #5b6470; font-size: 13px; margin-top: 4px; }
table { border-collapse: collapse; width: 100%; }
th, td { text-align: left; padding: 4px 14px 4px 0; border-bottom: 1px solid #eceef0; vertical-align: top;
  overflow-wrap: anywhere; }
th { color: #5b6470; font-weight: 500; }
.facts th { width: 46%; }
.clusters th, .clusters td, td.number { text-align: right; }
.clusters th:first-child, .clusters td:first-child { text-align: left; }
.clusters th.words, .clusters td.words { text-align: left; padding-left: 24px; width: 60%; }
.clusters thead th { position: sticky; top: 0; background: #fff; }
.box { max-height: 470px; overflow-y: auto; border-bottom: 1px solid #dfe2e6; }
tr.chosen td { font-weight: 600; background: #eef3fb; }
.swatch { display: inline-block; width: 11px; height: 11px; border-radius: 50%; margin-right: 9px; }
.bar { display: block; height: 9px; min-width: 1px; margin-top: 7px; background: #3566b0; border-radius: 2px;
  }
.time td:first-child { width: 22%; white-space: nowrap; padding-right: 14px; }
.time td.number { width: 18%; padding-right: 20px; white-space: nowrap; }
ul.warnings { margin: 22px 0 0; padding: 10px 16px 10px 32px; background: #fff6e0;
  border-left: 3px solid #d99a1c; }
pre { margin: 0 0 8px; padding: 10px 14px; background: #f4f5f7; border-radius: 4px; font-size: 13px;
  white-space: pre-wrap; overflow-wrap: anywhere; }
.hash { font-family: ui-monospace, "SF Mono", Menlo, Consolas, monospace; font-size: 13px; }
footer { margin-top: 34px; color: #5b6470; font-size: 13px; }
@media (max-width: 600px) { main { padding: 20px 16px 32px; } dl.figures { gap: 10px 28px; } }
@media print { body { background: #fff; } main { max-width: none; padding: 0; } .box { max-height: none; } }
"""


def flat(facts: Mapping[str, Any], prefix: str = "") -> list[tuple[str, Any]]:
    """Nested facts as a list of pairs, with dotted names."""
    pairs: list[tuple[str, Any]] = []
    for name, value in facts.items():
        if isinstance(value, Mapping):
            pairs += flat(value, f"{prefix}{name}.")
        else:
            pairs.append((f"{prefix}{name}", value))
    return pairs


def escaped(value: Any) -> str:
    """Make text safe within the page."""
    return html.escape(str(value))


def value_text(value: Any) -> str:
    """Write a fact of a table."""
    if value is None:
        return '<span style="color:#8a929c">none</span>'
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, (int, np.integer)):
        return f"{value:,}"
    if isinstance(value, (float, np.floating)):
        return escaped(f"{value:,.6g}")
    if isinstance(value, (list, tuple)):
        return ", ".join(value_text(item) for item in value)
    text = escaped(value)
    return f'<span class="hash">{text}</span>' if len(str(value)) == 64 else text


def figure_text(name: str, value: Any) -> str:
    """Write one of the large figures at the head of the page."""
    if isinstance(value, (bool, np.bool_)):
        return "yes" if value else "no"
    if isinstance(value, (int, np.integer)):
        return f"{value:,}"
    if isinstance(value, (float, np.floating)):
        return f"{value:.3f}" if name in _SHARES else number_text(float(value))
    return str(value)


def number_text(value: float) -> str:
    """Write with four significant digits, and all digits before the point while they are few."""
    if value == 0 or not 1e-3 <= abs(value) < 1e9:
        return f"{value:.4g}"
    return f"{value:,.{max(0, 3 - math.floor(math.log10(abs(value))))}f}"
