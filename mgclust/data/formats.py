"""Table of file formats: for each suffix, the functions that open a file as rows, as a graph or as labels.

Volumes (.nii, .nii.gz) are not in this table, because several of them are one data set
(`mgclust.data.readers.volumes`).
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any, Literal, NamedTuple

from mgclust.base.errors import InputError
from mgclust.data import label_files
from mgclust.data.base import Dataset
from mgclust.data.graphs.base import Graph
from mgclust.data.graphs.edge_list import open_edge_list
from mgclust.data.graphs.matrix_market import open_matrix_market
from mgclust.data.graphs.metis import open_metis
from mgclust.data.graphs.network_files import open_gml, open_graphml
from mgclust.data.graphs.numpy_files import open_npy_graph, open_npz_graph
from mgclust.data.graphs.parquet import open_parquet_graph
from mgclust.data.graphs.text_chunks import TextChunks
from mgclust.data.location import Location
from mgclust.data.options import Requested
from mgclust.data.readers.arrow_files import holds_parquet
from mgclust.data.readers.gifti import read_vertex_labels
from mgclust.data.readers.nifti import VOLUMES
from mgclust.data.readers.numpy_files import open_npy, open_npz
from mgclust.data.readers.tables import ParquetDataset, TextDataset
from mgclust.data.readers.zarr_files import ZarrDataset
from mgclust.outside.streams import COMPRESSIONS

__all__ = ["FORMATS", "Format", "at_hand", "reject_foreign", "reject_name", "suffixes"]

What = Literal["rows", "graph", "labels"]


class Format(NamedTuple):
    """Functions that open files of one format.

    Attributes
    ----------
    rows : callable or None
        ``rows(location, asked)`` opens a file as rows, with the options `Requested`. None: files are not read as rows.
    graph : callable or None
        ``graph(location, asked)`` opens a file as a graph. None: files are not read as graphs.
    labels : callable or None
        ``labels(location)`` reads a file of labels. None: files are not read as labels.
    table : bool
        Whether the option `columns` selects columns.
    attributes : bool
        Whether edges have attributes; the option `weight` selects one.
    delimited : bool
        Whether the option `delimiter` applies.
    text : bool
        Whether files are text, which may be compressed or come from a pipe.
    """

    rows: Callable[[Location, Requested], Dataset] | None = None
    graph: Callable[[Location, Requested], Graph] | None = None
    labels: Callable[[Location], Any] | None = None
    table: bool = False
    attributes: bool = False
    delimited: bool = False
    text: bool = False


def _text(location: Location, asked: Requested) -> Dataset:
    return TextDataset(location, asked.delimiter, asked.columns, asked.header, asked.index)


def _edges(location: Location, asked: Requested) -> Graph:
    return open_edge_list(TextChunks(location), location.suffix, asked)


_EDGES = Format(graph=_edges, table=True, text=True)
_DELIMITED = Format(_text, _edges, label_files.read_text_labels, table=True, delimited=True, text=True)
_METIS = Format(graph=lambda location, asked: open_metis(TextChunks(location)), text=True)
_PARQUET = Format(
    lambda location, asked: ParquetDataset(location, asked.columns, asked.index),
    lambda location, asked: open_parquet_graph(location, asked.n_nodes, asked.columns, asked.roles),
    table=True,
)
FORMATS = {
    ".npy": Format(
        lambda location, asked: open_npy(location),
        lambda location, asked: open_npy_graph(location, asked.n_nodes),
        label_files.read_npy_labels,
    ),
    ".npz": Format(
        lambda location, asked: open_npz(location),
        lambda location, asked: open_npz_graph(location, asked.n_nodes),
        label_files.read_npz_labels,
    ),
    ".csv": _DELIMITED,
    ".tsv": _DELIMITED,
    ".parquet": _PARQUET,
    ".pq": _PARQUET,
    ".feather": _PARQUET,
    ".zarr": Format(lambda location, asked: ZarrDataset(location)),
    ".mtx": Format(graph=lambda location, asked: open_matrix_market(TextChunks(location)), text=True),
    ".graph": _METIS,
    ".metis": _METIS,
    ".graphml": Format(
        graph=lambda location, asked: open_graphml(location, asked.attribute), attributes=True, text=True
    ),
    ".gml": Format(graph=lambda location, asked: open_gml(location, asked.attribute), attributes=True, text=True),
    ".txt": _EDGES._replace(labels=label_files.read_plain_labels),
    ".edges": _EDGES,
    ".edgelist": _EDGES,
    ".el": _EDGES,
    ".gii": Format(labels=lambda location: read_vertex_labels(location).labels),
}
_VOLUMES = f", {', '.join(VOLUMES)}"
_MORE = {"rows": _VOLUMES, "graph": "", "labels": f"{_VOLUMES} or a result directory"}


def suffixes(what: What) -> str:
    """List the suffixes that are read as rows, as a graph or as labels, for messages and help texts."""
    listed = ", ".join(suffix for suffix, each in FORMATS.items() if getattr(each, what))
    return f"{listed}{_MORE[what]}; text also as {', '.join(COMPRESSIONS)}"


# Formats that are not read, with Python code that reads them.
_FOREIGN = dict.fromkeys((".mgz", ".mgh", ".img", ".hdr", ".mnc"), "the image that nibabel.load(path) returns") | {
    ".gii": "numpy.stack([each.data for each in nibabel.load(path).darrays], axis=1)",
    ".net": "networkx.read_pajek(path)",
    ".gexf": "networkx.read_gexf(path)",
    ".h5ad": "anndata.read_h5ad(path).X, or a graph in its obsp",
    ".h5": "an array of h5py.File(path)",
    ".hdf5": "an array of h5py.File(path)",
    ".mat": "an array of scipy.io.loadmat(path)",
    ".xlsx": "pandas.read_excel(path)",
}


def reject_foreign(location: Location, what: What) -> None:
    """Reject a format that mgclust does not read, with advice; `what` is "rows", "graph" or "labels"."""
    remedy = _FOREIGN.get(location.suffix)
    if remedy and not _inside_zarr(location):
        raise InputError(
            f"{location.name} has suffix {location.suffix!r}, which mgclust does not read; in Python give {remedy}, or "
            f"convert it to one of {suffixes(what)}."
        )


def reject_name(name: str, what: What) -> None:
    """Reject the name of a file that is never read as `what`: rows, a graph or labels; nothing is opened.

    Raises
    ------
    InputError
        The suffix is known, but not for `what`. A name without a known suffix may be a directory, and passes.
    """
    location = Location(name, name)
    volume = name.lower().endswith(VOLUMES)
    known = FORMATS.get(location.suffix)
    if (what == "graph" and volume) or (known and not volume and not getattr(known, what)):
        suffix = location.suffix + location.compression
        raise InputError(f"{name} has suffix {suffix!r}; it should be {suffixes(what)}: convert it to one of them.")


@contextlib.contextmanager
def at_hand(location: Location, what: What) -> Iterator[tuple[Location, Format]]:
    """Yield a location to read and the format of a file that is opened as `what`: rows, a graph or labels.

    Standard input and named pipes are copied to a temporary file. The file is deleted at the end of the ``with`` block,
    so the caller must call `hold` of the opened dataset before the end.

    Raises
    ------
    InputError
        The file does not exist, or its suffix is not known for `what`.
    """
    if not location.once:
        yield location, _format_of(location, what)
        return
    found = _format_of(location, what) if location.suffix else _DELIMITED
    if not found.text:
        raise InputError(f"{location.name} is a pipe, and only text can be read from pipes; write it to a file.")
    with location.copied() as copy:
        yield copy, found


def _format_of(location: Location, what: What) -> Format:
    found = FORMATS.get(location.suffix, Format())
    if what == "rows" and found.rows is None and _inside_zarr(location):
        found = FORMATS[".zarr"]
    if found == Format() and holds_parquet(location):
        found = _PARQUET
    if getattr(found, what) and (found.text or not location.compression):
        return found
    reject_foreign(location, what)
    known = suffixes(what)
    name = location.name
    if not location.remote and not location.exists():
        raise InputError(f"{name} does not exist, and its suffix is not one of {known}; check the path.")
    if not location.remote and location.is_directory():
        raise InputError(
            f"{name} is a directory, but not a zarr store, and holds no .parquet; give the path of a file: {known}."
        )
    suffix = location.suffix + location.compression
    raise InputError(f"{name} has suffix {suffix!r}; it should be {known}: convert it to one of them.")


def _inside_zarr(location: Location) -> bool:
    """Return whether a path without a known suffix is a zarr store, or an array in one."""
    if location.remote:
        return ".zarr/" in location.path
    return any(location.holds(name) for name in ("zarr.json", ".zarray", ".zgroup"))
