"""`read_labels` reads labels from files and result directories."""

from __future__ import annotations

import os
from typing import NamedTuple

import numpy as np

from mgclust.base.errors import InputError
from mgclust.data.base import Dataset
from mgclust.data.formats import at_hand
from mgclust.data.label_files import read_table
from mgclust.data.location import Location
from mgclust.data.readers.cifti import (
    brain_models,
    is_dlabel,
    labels_on_rows,
    matching_grayordinates,
    read_grayordinate_labels,
)
from mgclust.data.readers.gifti import VertexLabels, is_gifti, read_vertex_labels
from mgclust.data.readers.nifti import is_volume, read_label_volume
from mgclust.data.readers.volumes import VolumeDataset
from mgclust.outside.quoting import shortened
from mgclust.outside.rooted_files import RootedFile
from mgclust.results.result import load_result

__all__ = ["LabelPair", "labels_location", "read_label_pair", "read_labels", "read_node_labels"]

# Suffix of a written file of labels -> what it is, which files can be compared with it, and what was clustered.
_KINDS = {
    ".nii.gz": ("a volume", "a .nii or .nii.gz", "a volume"),
    ".dlabel.nii": ("a CIFTI file of labels", "a .dlabel.nii", "a CIFTI file"),
}


def labels_location(source: str | os.PathLike[str] | RootedFile) -> Location:
    """Return the location of labels: the file itself, or the file of labels in a result directory."""
    location = Location.of(source)
    if location.remote or not location.is_directory():
        return location
    inside = os.path.join(location.path, "labels.npy")
    return Location.of(inside if location.beneath is None else location.beneath.inside("labels.npy"))


class LabelPair(NamedTuple):
    """Two labellings of the same rows, voxels, vertices or grayordinates.

    Attributes
    ----------
    first, second : ndarray of shape (n,)
        The labels.
    warnings : list of str
        Doubts that the labels belong to the same rows, one sentence each.
    """

    first: np.ndarray
    second: np.ndarray
    warnings: list[str]


def read_label_pair(first: str, second: str) -> LabelPair:
    """Read two labellings of the same rows, voxels, vertices or grayordinates.

    Labels of voxels, vertices and grayordinates are matched by their places. The labels of two result
    directories are also matched by places if the series or masks differ. Other labels are matched by row numbers.

    Parameters
    ----------
    first, second : path or URL
        Files or directories that `read_labels` reads. If one is a volume, the other must also be a volume, or the
        result of clustering a volume. If one is a GIFTI file, the other must also be a GIFTI file, or the result of
        clustering a CIFTI file. The same holds for a .dlabel.nii file.

    Returns
    -------
    LabelPair
        A voxel, vertex or grayordinate is left out if it has a label in neither file.
    """
    given = [Location.of(each) for each in (first, second)]
    if any(map(is_gifti, given)):
        return LabelPair(*_read_vertex_pair(given), [])
    if any(map(is_dlabel, given)):
        return LabelPair(*_read_grayordinate_pair(given), [])
    if any(map(is_volume, given)):
        return LabelPair(*_read_volume_pair(given), [])
    if not all(not each.remote and each.is_directory() for each in given):
        return LabelPair(read_labels(first), read_labels(second), [])
    hashes = [load_result(each.path).source.get("sha256") for each in given]
    if None not in hashes and hashes[0] != hashes[1]:
        for suffix, read in ((".nii.gz", _read_volume_pair), (".dlabel.nii", _read_grayordinate_pair)):
            if all(len(_label_files(each, suffix)) == 1 for each in given):
                return LabelPair(*read(given), [])
        doubt = f"{first!r} and {second!r} are results of different data: check that their rows are the same."
        return LabelPair(read_labels(first), read_labels(second), [doubt])
    return LabelPair(read_labels(first), read_labels(second), [])


def _read_volume_pair(given: list[Location]) -> tuple[np.ndarray, np.ndarray]:
    one, other = map(_volume_of, given)
    grid, labels = read_label_volume(one)
    others = read_label_volume(other, grid, one.name)[1]
    kept = (labels >= 0) | (others >= 0)
    return labels[kept], others[kept]


def _read_vertex_pair(given: list[Location]) -> tuple[np.ndarray, np.ndarray]:
    files = [each for each in given if is_gifti(each)]
    structure = read_vertex_labels(files[0]).structure
    one, other = (_vertex_labels_of(each, structure, files[0].name) for each in given)
    if one.structure and other.structure and one.structure != other.structure:
        raise InputError(
            f"labels={given[0].name!r} is of {shortened(one.structure, 40)}, and {given[1].name!r} of "
            f"{shortened(other.structure, 40)}; give labels of one structure."
        )
    if len(one.labels) != len(other.labels):
        raise InputError(
            f"labels={given[0].name!r} has {len(one.labels):,} vertices, and {given[1].name!r} has "
            f"{len(other.labels):,}; resample one of them to the other's surface."
        )
    kept = (one.labels >= 0) | (other.labels >= 0)
    return one.labels[kept], other.labels[kept]


def _vertex_labels_of(location: Location, structure: str, other: str) -> VertexLabels:
    """Read a GIFTI file, or the GIFTI file of the structure of another file in a result directory."""
    if is_gifti(location):
        return read_vertex_labels(location)
    found = []
    if not location.remote and location.is_directory():
        names = [name for name in location.listed() if name.endswith("_dseg.label.gii") and "/" not in name]
        found = [each for each in (read_vertex_labels(location.inside(name)) for name in names)
                 if each.structure == structure or not structure]  # fmt: skip
    if len(found) > 1 and not structure:
        raise InputError(
            f"labels={other!r}: neither its metadata nor its name state its structure, but {location.name!r} holds "
            f"labels of {' and '.join(sorted(each.structure for each in found))}; put hemi-L or hemi-R into its name."
        )
    if len(found) != 1:
        of = f" of {shortened(structure, 40)}" if structure else ""
        raise InputError(
            f"labels={location.name!r} holds no labels of vertices{of}, but the other labels are of vertices; give a "
            ".label.gii file, or the result directory of a CIFTI file."
        )
    return found[0]


def _read_grayordinate_pair(given: list[Location]) -> tuple[np.ndarray, np.ndarray]:
    files = [each if is_dlabel(each) else _written(each, ".dlabel.nii") for each in given]
    (models, labels, _), (others_models, others, _) = map(read_grayordinate_labels, files)
    with files[0].reading():
        at = matching_grayordinates(models, files[0].name, others_models, files[1].name)
    if (at < 0).all():
        raise InputError(
            f"labels={given[0].name!r} has no grayordinate in common with {given[1].name}; give labels of the same "
            "structures."
        )
    rest = np.setdiff1d(np.arange(len(others)), at)  # grayordinates that only the second file has
    one = np.concatenate([labels, np.full(len(rest), -1)])
    other = np.concatenate([np.where(at >= 0, others[at], -1), others[rest]])
    kept = (one >= 0) | (other >= 0)
    return one[kept], other[kept]


def _volume_of(location: Location) -> Location:
    """Return the location of the volume of labels: the file itself, or the volume in a result directory."""
    if is_volume(location):
        return location
    return _written(location, ".nii.gz")


def _written(location: Location, suffix: str) -> Location:
    """Return the location of the label file with a suffix in a result directory."""
    found = _label_files(location, suffix)
    if len(found) != 1:
        what, remedy, source = _KINDS[suffix]
        raise InputError(
            f"labels={location.name!r} is not {what}, but the other labels are; give {remedy} file, or the result "
            f"directory of {source}."
        )
    return location.inside(found[0])


def _label_files(location: Location, suffix: str) -> list[str]:
    """Return the names of the label files with a suffix in a result directory; empty if it is not a directory."""
    if location.remote or not location.is_directory():
        return []
    return [name for name in location.listed() if name.endswith(f"_dseg{suffix}") and "/" not in name]


def read_labels(source: str | os.PathLike[str] | RootedFile, dataset: Dataset | None = None) -> np.ndarray:
    """Read labels from a file or a result directory: one integer or string per row.

    Parameters
    ----------
    source : path or URL
        One of the following:

        - .npy: an array of labels;
        - .npz: an array ``labels`` or ``y``, or only one array;
        - .csv or .tsv: a column ``label`` (and optionally a column ``row``, from 0), or only one column;
        - .txt: one label per line;
        - .nii or .nii.gz: a volume of labels, with 0 for no label;
        - .dlabel.nii: one label per grayordinate, with 0 for no label;
        - .gii: one label per vertex of a surface, with 0 for no label;
        - a result directory. If the directory has a label file and `dataset` is a BOLD series, voxels or grayordinates
          are matched by their places.

        Text may be compressed (.gz, .bz2, .zst).
    dataset : Dataset, optional
        The clustered rows. If the source is a volume, a CIFTI file or a GIFTI file, the labels of the voxels or
        grayordinates of this dataset are returned. Rows of structures that a GIFTI file does not describe have the
        label -1. By default, the labels of all voxels, grayordinates or vertices are returned.

    Returns
    -------
    ndarray of shape (n,)
        Labels as integers or strings; -1 for voxels or vertices without a label.

    Raises
    ------
    InputError
        The source holds no labels, or cannot be read.
    """
    location = Location.of(source)
    if is_dlabel(location):
        return _grayordinate_labels(location, dataset)
    if is_volume(location):
        if dataset is None:
            return read_label_volume(location)[1]
        if not isinstance(dataset, VolumeDataset) or dataset.kind != "nifti":
            raise InputError(
                f"labels={location.name!r} is a volume, but the rows are not voxels; give one label for each row."
            )
        return read_label_volume(location, dataset.runs[0].grid, dataset.runs[0].location.name)[1][dataset.chosen]
    if is_gifti(location) and isinstance(dataset, VolumeDataset):
        if dataset.kind != "cifti":
            raise InputError(f"labels={location.name!r} are of vertices, but the rows are voxels; give a volume.")
        return labels_on_rows(location, dataset.runs[0].location)[1][dataset.chosen]
    if location.beneath is not None:
        location = labels_location(location.beneath)
    elif not location.remote and location.is_directory():
        written = _label_file_of_rows(location, dataset)
        if written is not None:
            own = read_labels(written, dataset)
            return np.where(own > 0, own - 1, -1)  # cluster k has the value k + 1
        labels = load_result(location.path).labels
        if labels is None:
            raise InputError(f"labels={location.name!r} is a result without labels; give a result with labels.")
        return np.array(labels)
    with location.reading(), at_hand(location, "labels") as (file, format):
        assert format.labels is not None
        return format.labels(file)


def read_node_labels(location: Location) -> tuple[np.ndarray, np.ndarray | None]:
    """Read labels from a file, and the names of the nodes if the file is a table with such a column.

    Parameters
    ----------
    location : Location
        A file as for `read_labels`.

    Returns
    -------
    labels : ndarray of shape (n,)
        Labels as integers or strings.
    names : ndarray of shape (n,), str, or None
        Content of the column ``node``, ``name`` or ``id``, or of the column without a title; None if there is none.
    """
    with location.reading(), at_hand(location, "labels") as (file, format):
        if format.delimited:
            return read_table(file, nodes=True)
        assert format.labels is not None
        return format.labels(file), None


def _label_file_of_rows(location: Location, dataset: Dataset | None) -> str | None:
    """Return the path of the only label file in a result directory; None if there is none, or rows have no places."""
    if not isinstance(dataset, VolumeDataset):
        return None
    found = _label_files(location, ".nii.gz" if dataset.kind == "nifti" else ".dlabel.nii")
    return location.inside(found[0]).path if len(found) == 1 else None


def _grayordinate_labels(location: Location, dataset: Dataset | None) -> np.ndarray:
    models, labels, _ = read_grayordinate_labels(location)
    if dataset is None:
        return labels
    if not isinstance(dataset, VolumeDataset) or dataset.kind != "cifti":
        raise InputError(
            f"labels={location.name!r} are of grayordinates, but the rows are not; give one label for each row."
        )
    series = dataset.runs[0].location
    with series.reading():
        at = matching_grayordinates(brain_models(series), series.name, models, location.name)
    return np.where(at >= 0, labels[at], -1)[dataset.chosen]
