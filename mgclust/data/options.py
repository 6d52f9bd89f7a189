"""Options for reading rows and graphs, for the command line and the service."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from mgclust.params import Anything, Boolean, Choice, Integer, Option, Real

__all__ = ["GRAPH_OPTIONS", "PREPARATION_OPTIONS", "ROW_OPTIONS", "Requested"]


@dataclass(frozen=True)
class Requested:
    """Options that were given with the path; None for each option that was not given.

    Attributes
    ----------
    delimiter : str or None
        Separator of the fields of a line.
    columns : sequence of str or int, str or None
        Columns of a table to read.
    n_nodes : int or None
        Number of nodes of a graph.
    header : bool or None
        Whether the first line of a text names the columns.
    index : bool or None
        Whether the first column of a table numbers or names the rows.
    roles : mapping
        Columns of a table of edges that hold the nodes and weights, by role: ``source``, ``target``, ``weight``.
    """

    delimiter: str | None = None
    columns: Sequence[str | int] | str | None = None
    n_nodes: int | None = None
    header: bool | None = None
    index: bool | None = None
    roles: Mapping[str, Any] = field(default_factory=dict)

    @property
    def attribute(self) -> str | None:
        """Edge attribute that holds the weights, for graphs whose edges have attributes."""
        weight = self.roles.get("weight")
        return "weight" if weight is None else None if weight is False else str(weight)


_TABLE_OPTIONS = (
    Option("header", None, Boolean(help="Whether the first line of a text names its columns; detected by default.")),
    Option("index", None,
           Boolean(help="Whether the first column of a table numbers or names the rows; detected by default.")),
)  # fmt: skip

# Steps that prepare a BOLD series, in the order in which they are done. nilearn's names are used for what it has.
PREPARATION_OPTIONS = (
    Option("dummy_volumes", None,
           Integer(at_least=0, optional=True,
                   help="Volumes to leave out at the beginning of each run.")),
    Option("smoothing_fwhm", None,
           Real(above=0, optional=True, remedy="give millimetres, such as 6, or leave it out",
                help="Smooth each volume with a Gaussian of this full width at half maximum, in mm.")),
    Option("low_pass", None,
           Real(above=0, optional=True, remedy="give Hz, such as 0.1, or leave it out",
                help="Remove frequencies above this frequency, in Hz.")),
    Option("high_pass", None,
           Real(above=0, optional=True, remedy="give Hz, such as 0.01, or leave it out",
                help="Remove frequencies below this frequency, in Hz.")),
    Option("t_r", None,
           Real(above=0, optional=True, remedy="give seconds, such as 2, or leave it out",
                help="Time from one volume to the next, in seconds; read from the file by default.")),
    Option("confounds", None,
           Anything(help="fMRIPrep's table of confounds (.tsv) of each run, separated by commas; 'auto' finds them by "
                         "the names of the runs.")),
    Option("confound_names", None,
           Anything(help="Columns of the table to regress out, separated by commas; * stands for any letters.")),
    Option("fd_threshold", None,
           Real(above=0, optional=True, remedy="give millimetres, such as 0.5, or leave it out",
                help="Leave out volumes with a larger framewise displacement, in mm.")),
)  # fmt: skip

# `mgclust.output.file_run.open_sources` accepts these options.
ROW_OPTIONS = (
    Option("mask", None,
           Anything(help="Voxels of a volume that are rows: a 3-D NIfTI file, 1 in these voxels, else 0.")),
    Option("constant", "drop",
           Choice("drop", "refuse", help="What to do with voxels that never change: leave them out, or stop.")),
    Option("columns", None, Anything(help="Columns of a table, by name or position from 0, separated by commas.")),
    Option("delimiter", None, Anything(help="Separator of a .csv or .tsv file; guessed by default.")),
    *_TABLE_OPTIONS,
    Option("standardize", None,
           Choice("zscore", "zscore_sample",
                  help="Scale each row (of each run) to mean 0, standard deviation 1; zscore_sample: of n - 1.")),
    Option("detrend", False,
           Boolean(help="Subtract the least-squares line from each row (of each run), before scaling.")),
    *PREPARATION_OPTIONS,
    Option("surfaces", None,
           Anything(help="Surfaces of a CIFTI file, for parcellation: a .surf.gii file for each hemisphere, separated "
                         "by commas.")),
    Option("atlas", None,
           Anything(help="Compare the clusters with the labels in this volume, .dlabel.nii or .label.gii files; a .tsv "
                         "file with names may follow after a comma.")),
)  # fmt: skip
GRAPH_OPTIONS = (
    Option("columns", None,
           Anything(help="Columns of a table or list of edges, by name or position from 0: nodes, then weight.")),
    Option("source", None, Anything(help="Column of the first node of each edge, by name or position.")),
    Option("target", None, Anything(help="Column of the second node of each edge, by name or position.")),
    Option("weight", None, Anything(help="Column of the weights, by name or position; 'none' for no weights.")),
    *_TABLE_OPTIONS,
    Option("n_nodes", None,
           Integer(at_least=1, help="Number of nodes, which are 0 to N - 1, including nodes without edges.")),
)  # fmt: skip
