"""``mgclust compare``: agreement of two labellings."""

from __future__ import annotations

import json
from typing import Any

import click

from mgclust.cli.options import CONTEXT

__all__ = ["compare"]


@click.command("compare", context_settings=CONTEXT)
@click.argument("first")
@click.argument("second")
@click.option(
    "--noise", metavar="cluster|drop", default="cluster",
    help="Rows in no cluster (labels below 0): count them as one more cluster, or drop them. [default: cluster]",
)  # fmt: skip
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def compare(first: str, second: str, noise: str, as_json: bool) -> None:
    """Compare two labellings of the same rows.

    FIRST and SECOND are result directories, files of labels or volumes of labels. A file of labels is .npy, .npz, .csv
    or .tsv, or .txt with one label per line. A volume is .nii or .nii.gz; voxels that are 0 in both volumes are left
    out. Labels of vertices (.label.gii) and of grayordinates (.dlabel.nii) are treated in the same way. If the results
    in two directories are of different series or masks on one grid, they are compared by voxels. FIRST may be the known
    truth.
    """
    from mgclust.data.labels import read_label_pair
    from mgclust.results.label_agreement import compare_labels

    pair = read_label_pair(first, second)
    figures = compare_labels(pair.first, pair.second, noise=noise)
    for text in pair.warnings:
        click.echo(f"warning: {text}", err=True)
    if as_json:
        said = {"first": first, "second": second, **figures, "warnings": pair.warnings}
        click.echo(json.dumps(said, allow_nan=False))
        return
    click.echo("\n".join(f"{name:20} {text}" for name, text in _lines(figures)))


def _lines(figures: dict[str, Any]) -> list[tuple[str, str]]:
    k, outside = figures["clusters"], figures["noise"]
    rows = f"{figures['rows']:,}; in no cluster: {outside[0]:,} and {outside[1]:,} of all rows"
    lines = [("rows compared", rows), ("clusters", f"{k[0]:,} and {k[1]:,}")]
    names = {
        "ari": "adjusted Rand index", "nmi": "NMI", "fowlkes_mallows": "Fowlkes-Mallows",
        "purity": "purity", "inverse_purity": "inverse purity", "error_rate": "error rate",
    }  # fmt: skip
    meant = {
        "purity": "  1: each cluster of the second lies within one cluster of the first",
        "inverse_purity": "  1: each cluster of the first lies within one cluster of the second",
        "error_rate": "  fraction of rows outside the best one-to-one matching of clusters",
    }
    for key, name in names.items():
        value = figures[key]
        told = "not computed: too many pairs of clusters" if value is None else f"{value:.4f}{meant.get(key, '')}"
        lines.append((name, told))
    return lines
