"""Options of reading rows and graphs, as the command line and the service offer them."""

from __future__ import annotations

from mgclust.params import Anything, Boolean, Choice, Integer, Option

__all__ = ["GRAPH_OPTIONS", "ROW_OPTIONS"]

# `mgclust.output.file_run.open_sources` takes them.
ROW_OPTIONS = (
    Option("mask", None, Anything(help="Which voxels of a volume are rows: 3-D NIfTI, 1 there, else 0.")),
    Option("constant", "drop",
           Choice("drop", "refuse", help="Voxels of a volume that never change: leave them out, or stop.")),
    Option("columns", None, Anything(help="Columns of a table, by name or number, commas between.")),
    Option("delimiter", None, Anything(help="Of a .csv or .tsv; guessed by default.")),
    Option("standardize", None, Choice("zscore", help="Each row (of each run) to mean 0, standard deviation 1.")),
    Option("detrend", False, Boolean(help="Subtract each row's line first (of each run).")),
)  # fmt: skip
GRAPH_OPTIONS = (
    Option("columns", None,
           Anything(help="Columns of a table or list of edges, by name or number: the nodes, and the weight.")),
    Option("n_nodes", None,
           Integer(at_least=1, help="Nodes are numbers from 0 to this one less 1, whether they have edges or not.")),
)  # fmt: skip
