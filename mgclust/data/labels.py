"""`read_labels` reads labels from files and result directories."""

from __future__ import annotations

import os

import numpy as np

from mgclust.base.errors import InputError
from mgclust.data.base import Dataset
from mgclust.data.formats import at_hand
from mgclust.data.location import Location
from mgclust.data.readers.nifti import is_volume, read_label_volume
from mgclust.data.readers.volumes import VolumeDataset
from mgclust.outside.rooted_files import RootedFile
from mgclust.results.result import load_result

__all__ = ["labels_location", "read_label_pair", "read_labels"]


def labels_location(source: str | os.PathLike[str] | RootedFile) -> Location:
    """Return the location of labels: the file itself, or the file of labels in a result directory."""
    location = Location.of(source)
    if location.remote or not location.is_directory():
        return location
    inside = os.path.join(location.path, "labels.npy")
    return Location.of(inside if location.beneath is None else location.beneath.inside("labels.npy"))


def read_label_pair(first: str, second: str) -> tuple[np.ndarray, np.ndarray]:
    """Read two labellings of the same rows, or of the same voxels.

    Parameters
    ----------
    first, second : path or URL
        Files or directories that `read_labels` reads. If one is a volume, the other must also be a volume, or the
        result of clustering a volume.

    Returns
    -------
    ndarray, ndarray of shape (n,)
        The labels. For volumes, a voxel is left out if it has no label in both volumes.
    """
    given = [Location.of(each) for each in (first, second)]
    if not any(map(is_volume, given)):
        return read_labels(first), read_labels(second)
    one, other = map(_volume_of, given)
    grid, labels = read_label_volume(one)
    others = read_label_volume(other, grid, one.name)[1]
    kept = (labels >= 0) | (others >= 0)
    return labels[kept], others[kept]


def _volume_of(location: Location) -> Location:
    """Return the location of the volume of labels: the file itself, or the volume in a result directory."""
    if is_volume(location):
        return location
    found = []
    if not location.remote and location.is_directory():
        found = [name for name in location.listed() if name.endswith("_dseg.nii.gz") and "/" not in name]
    if len(found) != 1:
        raise InputError(
            f"labels={location.name!r} is not a volume, but the other labels are; give a .nii or .nii.gz file, or "
            "the result directory of a volume."
        )
    return location.inside(found[0])


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
        - a result directory.

        Text may be compressed (.gz, .bz2, .zst).
    dataset : Dataset, optional
        The clustered rows. If the source is a volume, the labels of the voxels of this dataset are returned; by
        default, the labels of all voxels.

    Returns
    -------
    ndarray of shape (n,)
        Labels as integers or strings; -1 for voxels of a volume without a label.

    Raises
    ------
    InputError
        The source holds no labels, or cannot be read.
    """
    location = Location.of(source)
    if is_volume(location):
        if dataset is None:
            return read_label_volume(location)[1]
        if not isinstance(dataset, VolumeDataset) or dataset.kind != "nifti":
            raise InputError(
                f"labels={location.name!r} is a volume, but the rows are not voxels; give one label for each row."
            )
        return read_label_volume(location, dataset.runs[0].grid, dataset.runs[0].location.name)[1][dataset.chosen]
    if location.beneath is not None:
        location = labels_location(location.beneath)
    elif not location.remote and location.is_directory():
        labels = load_result(location.path).labels
        if labels is None:
            raise InputError(f"labels={location.name!r} is a result without labels; give a result with labels.")
        return np.array(labels)
    with location.reading(), at_hand(location, "labels") as (file, format):
        assert format.labels is not None
        return format.labels(file)
