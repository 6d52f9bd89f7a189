"""Tables of a report that have a row for each cluster or candidate."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from mgclust import plots
from mgclust.report.words import escaped, number_text, value_text
from mgclust.result import Result

__all__ = ["canopies_table", "clusters_table", "communities_table", "log_text", "rounds_table", "scan_table"]

OPEN_TABLE = 20  # longer tables scroll in a box
MOST_CANOPIES = 1_000  # that are listed, those with most rows
MOST_COMMUNITIES = 1_000  # that are listed, the largest
NAMED_MEMBERS = 8  # of each community
ROUND_COLUMNS = {
    "start": "start",
    "cycle": "cycle",
    "levels": "levels of contraction",
    "n_clusters": "communities",
    "modularity": "modularity Q",
}
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


def clusters_table(result: Result) -> str:
    """A row for each cluster: how large it is, where its centre is; empty without clusters."""
    sizes = result.cluster_sizes
    if not len(sizes):
        return ""
    # Clusters of a fuzzy partition may be the nearest of no row.
    sizes = np.pad(sizes, (0, max(0, len(result.arrays.get("cluster_centers", ())) - len(sizes))))
    centers = result.arrays.get("centers")
    names = ["cluster", "rows", "share"]
    columns: list[Iterable[Any]] = [sizes.tolist(), (f"{100 * s / sizes.sum():.1f} %" for s in sizes)]
    if centers is not None and len(centers) == len(sizes):
        names.append("centre (row)")
        columns.append(np.asarray(centers).tolist())
        for name in ("rho", "delta"):
            if name in result.arrays:
                names.append(name)
                columns.append(number_text(value) for value in np.asarray(result.arrays[name])[centers].tolist())
    if "halo" in result.arrays:
        labels = np.asarray(result.labels)[np.asarray(result.arrays["halo"], dtype=bool)]
        names.append("in halo")
        columns.append(np.bincount(labels[labels >= 0], minlength=len(sizes)).tolist())
    memberships = result.arrays.get("memberships")
    if isinstance(memberships, np.ndarray) and memberships.shape[1] == len(sizes):
        names += ["sum of memberships", "mean membership of its rows"]
        columns += [_column_sums(memberships), _mean_of_own(memberships, np.asarray(result.labels), sizes)]
    if len(result.arrays.get("cluster_silhouettes", ())) == len(sizes):
        names.append("silhouette")
        columns.append(f"{value:.3f}" for value in np.asarray(result.arrays["cluster_silhouettes"]).tolist())
    if len(result.arrays.get("classes", ())) == len(sizes):
        names.append("label")
        columns.append(f"{name}" for name in np.asarray(result.arrays["classes"]).tolist())
    lines = []
    colors = plots.cluster_colors(len(sizes))
    for k, values in enumerate(zip(*columns, strict=True)):
        cells = "".join(f"<td>{value_text(v)}</td>" for v in values)
        lines.append(f"<tr><td>{_swatch(colors[k])}{k}</td>{cells}</tr>")
    return f"<section><h2>{len(sizes):,} clusters</h2>{_table(names, lines)}</section>"


def canopies_table(result: Result) -> str:
    """A row for each canopy: its centre, and how many rows it holds; of very many, those that hold most."""
    centers, memberships = np.asarray(result.arrays["center_indices"]), result.arrays["memberships"]
    count = len(centers)
    held = np.bincount(memberships.indices, minlength=count)
    nearest = np.bincount(np.asarray(result.labels), minlength=count)
    shown = np.sort(np.argsort(-held, kind="stable")[:MOST_CANOPIES])
    colors = plots.cluster_colors(count)[shown]
    values = zip(shown.tolist(), *(array[shown].tolist() for array in (centers, held, nearest)), strict=True)
    lines = [
        f"<tr><td>{_swatch(color)}{k}</td>{''.join(f'<td>{value_text(value)}</td>' for value in row)}</tr>"
        for color, (k, *row) in zip(colors, values, strict=True)
    ]
    names = ["canopy", "centre (row)", "rows within t1", "rows nearest to its centre"]
    heading = f"{count:,} canop{'y' if count == 1 else 'ies'}"
    if len(shown) < count:
        heading += f", of which the {len(shown):,} with most rows"
    return f"<section><h2>{heading}</h2>{_table(names, lines)}</section>"


def communities_table(result: Result) -> str:
    """A row for each community, with some of its nodes where they have names; of very many, the largest."""
    sizes = result.cluster_sizes
    count = len(sizes)
    shown = np.sort(np.argsort(-sizes, kind="stable")[:MOST_COMMUNITIES])
    colors = plots.cluster_colors(count)[shown]
    members = _members(np.asarray(result.labels), result.arrays.get("names"), shown)
    lines = []
    for color, k, some in zip(colors, shown.tolist(), members, strict=True):
        share = f"{100 * sizes[k] / sizes.sum():.1f} %"
        cells = f"<td>{sizes[k]:,}</td><td>{share}</td>" + ("" if some is None else f'<td class="words">{some}</td>')
        lines.append(f"<tr><td>{_swatch(color)}{k}</td>{cells}</tr>")
    heading = f"{count:,} communit{'y' if count == 1 else 'ies'}"
    if len(shown) < count:
        heading += f", of which the {len(shown):,} largest"
    names = ["community", "nodes", "share"]
    words = "" if "names" not in result.arrays else '<th class="words">some of its nodes</th>'
    return f"<section><h2>{heading}</h2>{_table(names, lines, words)}</section>"


def rounds_table(result: Result) -> str:
    """A row for each round of a method that works in rounds, with the modularity after it; empty without such."""
    rounds = result.diagnostics.get("rounds") or ()
    if not len(rounds):
        return ""
    known = [name for name in ROUND_COLUMNS if any(entry.get(name) is not None for entry in rounds)]
    lines = [
        f"<tr><td>{number:,}</td>{''.join(f'<td>{_round_text(name, entry.get(name))}</td>' for name in known)}</tr>"
        for number, entry in enumerate(rounds, 1)
    ]
    heading = f"{len(lines):,} round{'' if len(lines) == 1 else 's'}"
    return f"<section><h2>{heading}</h2>{_table(['round', *(ROUND_COLUMNS[name] for name in known)], lines)}</section>"


def scan_table(result: Result) -> str:
    """Every candidate of a scan, by ascending number of clusters, the chosen one in bold; empty if there was none."""
    known = {name: f"scan_{name}" for name in SCAN_COLUMNS if f"scan_{name}" in result.arrays}
    if "n_clusters" not in known:
        return ""
    columns = {name: np.asarray(result.arrays[array]) for name, array in known.items()}
    lines = []
    for at in np.argsort(columns["n_clusters"], kind="stable"):
        row = {name: values[at].item() for name, values in columns.items()}
        cells = "".join(f"<td>{escaped(_candidate_text(name, value))}</td>" for name, value in row.items())
        chosen = row["n_clusters"] == result.scores.get("n_clusters")
        lines.append(f'<tr class="chosen">{cells}</tr>' if chosen else f"<tr>{cells}</tr>")
    count = len(lines)
    heading = f"{count:,} candidates of the scan" if count != 1 else "One candidate of the scan"
    return f"<section><h2>{heading}</h2>{_table([SCAN_COLUMNS[name] for name in known], lines)}</section>"


def log_text(result: Result) -> str:
    """What the method did, in its own lines, in a box that scrolls; empty if it said nothing."""
    lines = result.diagnostics.get("log") or ()
    if not len(lines):
        return ""
    text = "\n".join([lines] if isinstance(lines, str) else map(str, lines))
    return f'<section><h2>Log</h2><div class="box"><pre>{escaped(text)}</pre></div></section>'


def _swatch(color: np.ndarray) -> str:
    red, green, blue = (color * 255).round().astype(int)
    return f'<span class="swatch" style="background:rgb({red},{green},{blue})"></span>'


def _members(labels: np.ndarray, names: Any, communities: np.ndarray) -> list[str | None]:
    """The first few names of each of some communities."""
    if names is None:
        return [None] * len(communities)
    order = np.argsort(labels, kind="stable")
    first = np.searchsorted(labels[order], communities)
    after = np.searchsorted(labels[order], communities, side="right")
    texts: list[str | None] = []
    for start, stop in zip(first.tolist(), after.tolist(), strict=True):
        some = np.asarray(names)[order[start : min(stop, start + NAMED_MEMBERS)]].tolist()
        texts.append(escaped(", ".join(map(str, some)) + (", ..." if stop - start > NAMED_MEMBERS else "")))
    return texts


def _round_text(name: str, value: Any) -> str:
    if value is None:
        return ""
    return f"{value:.4f}" if name == "modularity" else value_text(value)


def _table(names: list[str], lines: list[str], more: str = "") -> str:
    head = "".join(f"<th>{name}</th>" for name in names) + more
    table = f'<table class="clusters"><thead><tr>{head}</tr></thead><tbody>{"".join(lines)}</tbody></table>'
    return f'<div class="box">{table}</div>' if len(lines) > OPEN_TABLE else table


def _column_sums(memberships: np.ndarray) -> Iterable[str]:
    return (f"{total:,.1f}" for total in memberships.sum(axis=0, dtype=np.float64).tolist())


def _mean_of_own(memberships: np.ndarray, labels: np.ndarray, sizes: np.ndarray) -> Iterable[str]:
    """Mean, over the rows of each cluster, of how much they belong to it."""
    own = np.take_along_axis(memberships, labels[:, None].astype(np.int64), axis=1)[:, 0]
    sums = np.bincount(labels, weights=own, minlength=len(sizes))
    return (f"{s / n:.3f}" if n else "no rows" for s, n in zip(sums.tolist(), sizes.tolist(), strict=True))


def _candidate_text(name: str, value: Any) -> str:
    if name in ("silhouette", "min_cluster_silhouette"):
        return "undefined" if np.isnan(value) else f"{value:.4f}"
    if name == "damping":
        return f"{value:.3f}"
    return number_text(value) if isinstance(value, float) else f"{value:,}"
