"""`read_labels`: one way in for labels in files and result directories."""

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
    """Location of labels: a file, or that of a result directory."""
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
        As for `read_labels`. If one is a volume, so is the other, or it is the result of a volume.

    Returns
    -------
    ndarray, ndarray of shape (n,)
        Volumes lose the voxels that have no label in either.
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
    """The volume of labels at a location, or in a result directory."""
    if is_volume(location):
        return location
    found = []
    if not location.remote and location.is_directory():
        found = [name for name in location.listed() if name.endswith("_dseg.nii.gz") and "/" not in name]
    if len(found) != 1:
        raise InputError(
            f"labels={location.name!r} is no volume, and the other labels are one; give a .nii or .nii.gz, or the "
            "result directory of a volume."
        )
    return location.inside(found[0])


def read_labels(source: str | os.PathLike[str] | RootedFile, dataset: Dataset | None = None) -> np.ndarray:
    """Read labels as results hold them.

    Parameters
    ----------
    source : path or URL
        A .npy; a .npz with ``labels``, ``y`` or one array; a .csv or .tsv with a column ``label`` (and perhaps one
        ``row``, from 0) or with one column; a .txt with a label a line; a .nii or .nii.gz of labels, 0 where there is
        none; a result directory. Text may be compressed (.gz, .bz2, .zst).
    dataset : Dataset, optional
        The rows. Of a volume the labels of its voxels are taken; without it, those of all voxels.

    Returns
    -------
    ndarray of shape (n,)
        Integers or strings; -1 for voxels of a volume without a label.

    Raises
    ------
    InputError
        If it holds no labels, or cannot be read.
    """
    location = Location.of(source)
    if is_volume(location):
        if dataset is None:
            return read_label_volume(location)[1]
        if not isinstance(dataset, VolumeDataset) or dataset.kind != "nifti":
            raise InputError(
                f"labels={location.name!r} is a volume, and rows are no voxels; give one label for each row."
            )
        return read_label_volume(location, dataset.runs[0].grid, dataset.runs[0].location.name)[1][dataset.chosen]
    if location.beneath is not None:
        location = labels_location(location.beneath)
    elif not location.remote and location.is_directory():
        labels = load_result(location.path).labels
        if labels is None:
            raise InputError(f"labels={location.name!r} is a result without labels; give another.")
        return np.array(labels)
    with location.reading(), at_hand(location, "labels") as (file, format):
        assert format.labels is not None
        return format.labels(file)
