"""Writing of clusters in the format of the input.

For a graph with names, the clusters are written as a table. For a BOLD series, they are written as files that fMRI
programs read: a label volume, a table, and a description of how they were computed. File names follow BIDS derivatives:
``sub-01_task-rest_bold.nii.gz`` becomes ``sub-01_task-rest_desc-densityPeaks_dseg.nii.gz``, with a ``.tsv`` and a
``.json`` of the same name. A CIFTI file gives a ``.dlabel.nii``, and a ``.label.gii`` for each hemisphere.
"""

from __future__ import annotations

import csv
import gzip
import json
import os
import re
from collections.abc import Iterable
from pathlib import Path, PurePosixPath
from typing import Any
from urllib.parse import urlparse

import numpy as np

from mgclust import __version__
from mgclust.algorithms import presentation_of
from mgclust.algorithms.common.atlas_comparison import atlas_arrays
from mgclust.algorithms.parcellation.evaluation.scores import n_pieces
from mgclust.base.errors import InputError
from mgclust.data import Dataset, Graph
from mgclust.data.neighbors import volume_neighbors
from mgclust.data.readers.cifti import CORTICES, brain_models, brain_structures, grayordinate
from mgclust.data.readers.gifti import NO_LABEL
from mgclust.data.readers.nifti import need_nibabel, read_header
from mgclust.data.readers.volumes import VolumeDataset
from mgclust.data.subjects import subject_of
from mgclust.outside.inflation import check_memory
from mgclust.results.array_files import CSV_ROWS

__all__ = ["label_colors", "output_stem", "pieces_of", "write_labels"]

# The intent code of NIfTI for values that are labels.
_LABEL = "label"
# Entities of BIDS that come after the hemisphere in a name.
_AFTER_HEMISPHERE = ("space", "split", "recording", "chunk", "seg", "res", "den", "label", "desc")
# Columns of the table, as the JSON file defines them: description and unit.
_COLUMNS = {
    "index": ("Value of the parcel in the label volume", None),
    "name": ("Name of the parcel", None),
    "size": ("Number of voxels or grayordinates of the parcel", None),
    "pieces": ("Number of connected pieces of the parcel, if each voxel is connected with its 26 neighbours", None),
    "color": ("Colour of the parcel in pictures, as hexadecimal red, green and blue", None),
    "center_{ijk}": ("Voxel of the parcel that is nearest to the mean position of its voxels: index from 0", None),
    "center_{xyz}_mm": ("Position of the voxel that is nearest to the mean position", "mm"),
    "exemplar_{ijk}": ("Voxel that represents the parcel by its series: index from 0", None),
    "exemplar_{xyz}_mm": ("Position of the voxel that represents the parcel", "mm"),
    "exemplar_grayordinate": ("Grayordinate that represents the parcel by its series: index from 0", None),
    "exemplar_structure": ("Brain structure of the grayordinate that represents the parcel", None),
    "exemplar_vertex": ("Vertex of the grayordinate that represents the parcel, on its surface: index from 0", None),
    "exemplar_voxel": ("Voxel of the grayordinate that represents the parcel: indices from 0", None),
    "atlas_index": ("Label of the atlas with the largest overlap", None),
    "atlas_name": ("Name of the label with the largest overlap", None),
    "atlas_dice": ("Dice coefficient of the parcel and the label with the largest overlap", None),
}


def write_labels(
    dataset: Dataset,
    labels: Any,
    directory: str | os.PathLike[str],
    *,
    method: str = "labels",
    centers: Any = None,
    parameters: dict[str, Any] | None = None,
    subject: str | None = None,
    colors: Any = None,
) -> list[Path]:
    """Write clusters in the format of the input, in addition to ``labels.csv``.

    - BOLD series (NIfTI): a volume, a table and a JSON file. The volume ``<stem>_desc-<method>_dseg.nii.gz`` has the
      grid of the series (int32; 0 is background, cluster k has the value k + 1). The table ``_dseg.tsv`` has one line
      per cluster; cluster 0 is called ``parcel 1``. If the series was opened with an atlas, the columns
      ``atlas_index``, ``atlas_name`` and ``atlas_dice`` describe the label with the largest overlap. ``_dseg.json``
      describes how the clusters were computed, and defines the columns of the table.
    - CIFTI file: the same, with ``_dseg.dlabel.nii`` instead of the volume. In addition, each cortex gets a GIFTI file
      of labels with the same values and colours, ``<stem>_hemi-L_desc-<method>_dseg.label.gii`` or ``hemi-R``. A vertex
      that is not a row has the value 0.
    - Graph with names of nodes: ``labels.csv`` with these names instead of row numbers.
    - Any other input: no further file.

    Parameters
    ----------
    dataset : Dataset or Graph
        The data that were clustered.
    labels : array of shape (n_samples,), int
        Cluster of each row: 0, 1, ..., or -1 for no cluster. For a graph, one label per node: shape (n_nodes,).
    directory : path
        Directory to write to, which must exist.
    method : str
        Name of the method, which becomes a part of the file names.
    centers : array of shape (n_clusters,), int, optional
        Index of the row that represents each cluster.
    parameters : dict, optional
        Parameters of the method, for the JSON file.
    subject : str, optional
        Name of the subject, if the labels are of one subject of a group: a key of the return value of
        ``VolumeDataset.runs_of_subjects``. The files are named after the runs of this
        subject.
    colors : array of shape (n_clusters, 3), optional
        Red, green and blue of each cluster from 0 to 1. By default, the colours that `label_colors` returns.

    Returns
    -------
    list of Path
        The files that were written. It is empty if ``labels.csv`` is enough.

    Raises
    ------
    InputError
        The directory does not exist, or the labels, centers or colors do not match the data.

    Examples
    --------
    >>> import tempfile
    >>> from mgclust import open_graph
    >>> from mgclust.output.label_output import write_labels
    >>> graph = open_graph([("Ann", "Bob"), ("Cem", "Dan")])
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     files = write_labels(graph, [0, 0, 1, 1], folder)
    ...     print([path.name for path in files], files[0].read_text())
    ['labels.csv'] node,label
    Ann,0
    Bob,0
    Cem,1
    Dan,1
    <BLANKLINE>
    """
    if isinstance(dataset, VolumeDataset):
        return _write_segmentation(dataset, labels, Path(directory), method, centers, parameters or {}, subject, colors)
    if isinstance(dataset, Graph) and dataset.names is not None:
        return [_write_names(dataset.names, np.asarray(labels), Path(directory))]
    return []


def label_colors(method: str, n_clusters: int, volume: Any = None, affine: Any = None) -> np.ndarray:
    """Choose the colours of clusters: by their place for parcels in a volume, by their labels otherwise.

    Parameters
    ----------
    method : str
        Name of the method on the command line.
    n_clusters : int
        Number of clusters.
    volume : array of shape (i, j, k), int, optional
        Cluster of each voxel, from 1; 0 for none.
    affine : array of shape (4, 4), optional
        Matrix that maps voxel indices to millimetres.

    Returns
    -------
    ndarray of shape (n_clusters, 3), float
        Red, green and blue from 0 to 1.

    Examples
    --------
    >>> import numpy as np
    >>> from mgclust.output.label_output import label_colors
    >>> label_colors("parcellation", 2, np.arange(3).reshape(3, 1, 1)).shape
    (2, 3)
    """
    from mgclust import plots

    if volume is None or not presentation_of(method).colored_by_place:
        return plots.cluster_colors(n_clusters)
    return plots.parcel_colors(volume, affine)


def pieces_of(dataset: VolumeDataset, labels: np.ndarray) -> np.ndarray:
    """Count the connected pieces of clusters of voxels; a voxel is connected with its 26 neighbours.

    Parameters
    ----------
    dataset : VolumeDataset
        A series in a volume (NIfTI).
    labels : ndarray of shape (n_samples,), int
        Cluster of each row; -1 for none.

    Returns
    -------
    ndarray of shape (n_clusters,), int64
        Number of pieces of each cluster.
    """
    return n_pieces(labels, *volume_neighbors(dataset.chosen, dataset.runs[0].grid.shape))


def _write_names(names: np.ndarray, labels: np.ndarray, directory: Path) -> Path:
    path = directory / "labels.csv"
    with open(path, "w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(["node", "label"])
        for start in range(0, len(names), CSV_ROWS):
            part = slice(start, start + CSV_ROWS)
            writer.writerows(zip(names[part].tolist(), labels[part].tolist(), strict=True))
    return path


def _write_segmentation(
    dataset: VolumeDataset,
    labels: Any,
    directory: Path,
    method: str,
    centers: Any,
    parameters: dict[str, Any],
    subject: str | None,
    colors: Any,
) -> list[Path]:
    labels = _checked(labels, dataset.shape[0])
    if not directory.is_dir():
        raise InputError(f"directory={str(directory)!r} is not a directory; create it.")
    n_clusters = int(labels.max(initial=-1)) + 1
    if centers is not None:
        centers = np.asarray(centers)
        if len(centers) != n_clusters:
            raise InputError(f"centers has {len(centers)} rows, it should have one for each of {n_clusters} clusters.")
    runs = list(range(len(dataset.runs))) if subject is None else dataset.runs_of_subjects()[subject]
    stem = output_stem([dataset.runs[at].location.path for at in runs], method, subject)
    keys = dataset.to_grid(labels + 1).astype(np.int32)
    surfaces: list[Path] = []
    volume = directory / f"{stem}{'.nii.gz' if dataset.kind == 'nifti' else '.dlabel.nii'}"
    names = [f"parcel {index}" for index in range(1, n_clusters + 1)]  # numbered as in the volume
    if colors is None:
        place = (keys, dataset.runs[0].grid.affine) if dataset.kind == "nifti" else ()
        colors = label_colors(method, n_clusters, *place)
    colors = np.asarray(colors, dtype=float)
    if colors.shape != (n_clusters, 3):
        raise InputError(f"colors has shape {colors.shape}, it should be ({n_clusters}, 3): a row per cluster.")
    pieces = None
    if dataset.kind == "nifti":
        _write_volume(volume, keys, dataset)
        pieces = pieces_of(dataset, labels)
        places = _voxel_columns(dataset, labels, centers)
    else:
        models = brain_models(dataset.runs[0].location)
        table_of_labels = _label_table(names, colors)
        _write_dlabel(volume, keys, table_of_labels, models, method)
        surfaces = _write_surfaces(directory, stem, keys, table_of_labels, models, dataset)
        places = _grayordinate_columns(dataset, models, centers)
    table, sidecar = directory / f"{stem}.tsv", directory / f"{stem}.json"
    columns = {
        "index": range(1, n_clusters + 1),
        "name": names,
        "size": np.bincount(labels[labels >= 0], minlength=n_clusters).tolist(),
        **({} if pieces is None else {"pieces": pieces.tolist()}),
        "color": ["#" + "".join(f"{round(255 * float(part)):02x}" for part in color) for color in colors],
        **places,
        **_atlas_columns(dataset, labels),
    }
    _write_table(table, columns)
    facts: dict[str, Any] = {"Name": stem.removesuffix("_dseg")}
    facts |= _facts(dataset, labels, method, parameters, n_clusters, runs, pieces)
    if subject is not None:
        facts |= {"Subject": subject, "GroupSources": dataset.describe()["files"]}
    facts |= _defined(columns)
    sidecar.write_text(json.dumps(facts, indent=2, default=str) + "\n", encoding="utf-8")
    return [volume, table, sidecar, *surfaces]


def output_stem(paths: list[str], method: str, subject: str | None = None) -> str:
    """Name the output files after the input files, like BIDS derivatives.

    Parameters
    ----------
    paths : list of str
        Paths of the runs. If there are several, the name has only the parts that they share, without ``run``.
    method : str
        Name of the method. Its words become one word in camel case, because BIDS reserves hyphens.
    subject : str, optional
        Subject of all runs, such as ``sub-01``. The name begins with the subject even if only a folder states it.
    """
    parts, *others_parts = (_name_parts(path, subject) for path in paths)
    if others_parts:
        shared = [part for part in parts if all(part in each for each in others_parts)]
        kept = [part for part in shared if not re.fullmatch(r"run-\d+", part)]
        parts = kept or [part for part in parts if "-" not in part]  # not BIDS names: use the first
    first, *others = re.findall(r"[A-Za-z0-9]+", method) or ["labels"]
    return "_".join([*parts, f"desc-{first}{''.join(map(str.capitalize, others))}", "dseg"])


def _name_parts(path: str, subject: str | None) -> list[str]:
    """Return the entities of a BIDS name, without its suffix."""
    name = PurePosixPath(urlparse(path).path if "://" in path else Path(path).name).name
    name = re.sub(r"(\.dtseries)?\.nii(\.gz)?$", "", name, flags=re.IGNORECASE)
    parts = [part for part in name.split("_") if not part.startswith("desc-")]
    if subject is not None and subject.startswith("sub-") and subject not in parts:
        parts = [subject, *(part for part in parts if subject_of(part) != subject)]  # such as SUB-01
    return parts[:-1] if len(parts) > 1 and parts[-1] == "bold" else parts


def _checked(labels: Any, n: int) -> np.ndarray:
    labels = np.asarray(labels)
    if labels.shape != (n,) or labels.dtype.kind not in "iu":
        raise InputError(f"labels has shape {labels.shape} and dtype {labels.dtype}, it should be {n} integers.")
    if labels.min(initial=0) < -1:
        raise InputError(f"labels holds {labels.min()}; give 0, 1, ... for clusters and -1 for none.")
    return labels.astype(np.int64)


def _write_volume(path: Path, keys: np.ndarray, dataset: VolumeDataset) -> None:
    nibabel = need_nibabel(str(path))
    source = read_header(dataset.runs[0].location)
    kind = nibabel.Nifti2Image if int(source["sizeof_hdr"]) == 540 else nibabel.Nifti1Image
    # A copy of the header of the series keeps its units and both transforms with their codes.
    header = source.copy()
    header.extensions.clear()
    header.set_data_dtype(np.int32)
    header.set_data_shape(keys.shape)
    header.set_slope_inter(1, 0)
    header.set_intent(_LABEL)
    header["cal_min"], header["cal_max"] = 0, 0
    header["descrip"] = f"mgclust {__version__}".encode()
    image = kind(keys, source.get_best_affine(), header)
    # Write no time stamp, so that equal clusters give equal files.
    path.write_bytes(gzip.compress(image.to_bytes(), compresslevel=6, mtime=0))


def _label_table(names: list[str], colors: np.ndarray) -> dict[int, tuple[str, tuple[float, ...]]]:
    """Return name and colour (red, green, blue, alpha; 0 to 1) for each key: 0 for no cluster, then the names."""
    table: dict[int, tuple[str, tuple[float, ...]]] = {0: (NO_LABEL, (1.0, 1.0, 1.0, 0.0))}
    return table | {k + 1: (name, (*map(float, colors[k]), 1.0)) for k, name in enumerate(names)}


def _write_dlabel(path: Path, keys: np.ndarray, table: dict[int, Any], models: Any, title: str) -> None:
    """Write one key per grayordinate."""
    nibabel = need_nibabel(str(path))
    axes = (nibabel.cifti2.LabelAxis([title], [table]), models)
    image = nibabel.cifti2.Cifti2Image(keys[None, :].astype(np.float32), axes)
    image.nifti_header.set_intent("ConnDenseLabel", name="ConnDenseLabel")
    nibabel.save(image, path)


def _write_surfaces(
    directory: Path, stem: str, keys: np.ndarray, table: dict[int, Any], models: Any, dataset: VolumeDataset
) -> list[Path]:
    """Write one key per vertex of each cortex."""
    paths = []
    for structure in brain_structures(models, dataset.runs[0].location.name):
        if structure.name in CORTICES and structure.n_vertices:
            check_memory(f"labels of {structure.name}", 40 * structure.n_vertices)
            values = np.zeros(structure.n_vertices, dtype=np.int32)
            values[structure.places] = keys[structure.grayordinates]
            name, hemisphere = CORTICES[structure.name]
            path = directory / f"{_of_hemisphere(stem, hemisphere)}.label.gii"
            _write_label_gifti(path, values, table, name)
            paths.append(path)
    return paths


def _of_hemisphere(stem: str, hemisphere: str) -> str:
    """Put the hemisphere into a name, at its place in the order of BIDS."""
    parts = stem.split("_")
    place = next((i for i, part in enumerate(parts) if part.partition("-")[0] in _AFTER_HEMISPHERE), len(parts))
    return "_".join([*parts[:place], f"hemi-{hemisphere}", *parts[place:]])


def _write_label_gifti(path: Path, values: np.ndarray, table: dict[int, Any], structure: str) -> None:
    gifti = need_nibabel(str(path)).gifti
    labels = gifti.GiftiLabelTable()
    for key, (name, color) in table.items():
        label = gifti.GiftiLabel(key, *color)
        label.label = name
        labels.labels.append(label)
    own = gifti.GiftiMetaData({"AnatomicalStructurePrimary": structure})
    values_of_vertices = gifti.GiftiDataArray(values, intent="NIFTI_INTENT_LABEL", datatype="NIFTI_TYPE_INT32")
    image = gifti.GiftiImage(meta=own, labeltable=labels, darrays=[values_of_vertices])
    path.write_bytes(image.to_bytes())


def _voxel_columns(dataset: VolumeDataset, labels: np.ndarray, centers: Any) -> dict[str, Any]:
    """Return columns with the position of each cluster: the voxel nearest to its mean position, and its exemplar.

    The mean position itself may be outside the cluster.
    """
    voxels = dataset.voxels
    affine = np.array(dataset.runs[0].grid.affine)
    columns = _voxel_and_place("center", _central_rows(_places(voxels, affine), labels), voxels, affine)
    return columns if centers is None else columns | _voxel_and_place("exemplar", centers, voxels, affine)


def _central_rows(places: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """Return the row of each cluster that is nearest to the cluster's mean position; -1 for a cluster without rows."""
    rows = np.flatnonzero(labels >= 0)
    own, where = labels[rows], places[rows]
    sizes = np.bincount(own)
    means = np.stack([np.bincount(own, where[:, axis]) / np.maximum(sizes, 1) for axis in range(3)], axis=1)
    away = ((where - means[own]) ** 2).sum(axis=1)
    order = np.lexsort((away, own))  # stable, so the first of equally near rows comes first
    first = np.cumsum(sizes) - sizes
    found = np.full(len(sizes), -1)
    found[sizes > 0] = rows[order[first[sizes > 0]]]
    return found


def _places(voxels: np.ndarray, affine: np.ndarray) -> np.ndarray:
    return voxels @ affine[:3, :3].T + affine[:3, 3]


def _voxel_and_place(name: str, rows: Any, voxels: np.ndarray, affine: np.ndarray) -> dict[str, Any]:
    """Return columns with the voxels of some rows, and with their positions in mm; ``n/a`` for the row -1."""
    rows = np.asarray(rows)
    chosen = voxels[rows]
    where = _places(chosen, affine)
    columns = {f"{name}_{axis}": chosen[:, place].tolist() for place, axis in enumerate("ijk")}
    columns |= {f"{name}_{axis}_mm": [f"{x:.2f}" for x in where[:, place]] for place, axis in enumerate("xyz")}
    return {
        column: [value if row >= 0 else "n/a" for row, value in zip(rows, values, strict=True)]
        for column, values in columns.items()
    }


def _grayordinate_columns(dataset: VolumeDataset, models: Any, centers: Any) -> dict[str, Any]:
    if centers is None:
        return {}
    places = [grayordinate(models, int(index)) for index in dataset.voxels[centers, 0]]
    return {
        "exemplar_grayordinate": dataset.voxels[centers, 0].tolist(),
        "exemplar_structure": [structure for structure, _, _ in places],
        "exemplar_vertex": [place[0] if what == "vertex" else "n/a" for _, what, place in places],
        "exemplar_voxel": [" ".join(map(str, place)) if what == "voxel" else "n/a" for _, what, place in places],
    }


def _atlas_columns(dataset: VolumeDataset, labels: np.ndarray) -> dict[str, Any]:
    """Return columns with the label of the atlas that overlaps most with each cluster."""
    found = atlas_arrays(dataset, labels)
    if not found:
        return {}
    return {
        "atlas_index": [each or "n/a" for each in found["atlas_index"].tolist()],
        "atlas_name": [each or "n/a" for each in found["atlas_name"].tolist()],
        "atlas_dice": [f"{each:.4f}" for each in found["atlas_dice"]],
    }


def _write_table(path: Path, columns: dict[str, Any]) -> None:
    with open(path, "w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, delimiter="\t", lineterminator="\n")
        writer.writerow(columns)
        writer.writerows(zip(*columns.values(), strict=True))


def _defined(columns: Iterable[str]) -> dict[str, dict[str, str]]:
    """Return the definition of each column of the table, as BIDS requires it in the JSON file."""
    found = {}
    for column in columns:
        key = re.sub(r"(?<=_)[ijk]$", "{ijk}", re.sub(r"(?<=_)[xyz](?=_mm$)", "{xyz}", column))
        description, unit = _COLUMNS[key]
        found[column] = {"Description": description} | ({} if unit is None else {"Units": unit})
    return found


def _facts(
    dataset: VolumeDataset,
    labels: np.ndarray,
    method: str,
    parameters: dict[str, Any],
    n_clusters: int,
    runs: list[int],
    pieces: np.ndarray | None,
) -> dict[str, Any]:
    source = dataset.describe()
    parts = "voxels" if dataset.kind == "nifti" else "grayordinates"
    description = f"{n_clusters} clusters of {len(labels)} {parts} by their time series"
    if pieces is not None:
        description += f", in {int(pieces.sum())} connected pieces"
    return {
        "Description": f"{description}; 0 is background",
        "Sources": [source["files"][at] for at in runs],
        "Mask": source["mask"],
        **({"Surfaces": source["surfaces"]} if "surfaces" in source else {}),
        **({"Atlas": source["atlas"]} if "atlas" in source else {}),
        "GeneratedBy": [{"Name": "mgclust", "Version": __version__}],
        "Method": method,
        "Parameters": parameters,
        "Standardize": source["standardize"],
        "Detrend": source["detrend"],
        "Preparation": source["preparation"],
        "TimePoints": [source["time_points"][at] for at in runs],
        "ConstantDropped": source["constant_voxels_dropped"],
        "WithoutCluster": int((labels < 0).sum()),
    }
