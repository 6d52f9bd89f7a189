"""`read_labels`: one way in for labels in files and result directories."""

from __future__ import annotations

import os

import numpy as np

from mgclust.base.errors import InputError
from mgclust.data.formats import at_hand
from mgclust.data.location import Location
from mgclust.outside.rooted_files import RootedFile
from mgclust.results.result import load_result

__all__ = ["labels_location", "read_labels"]


def labels_location(source: str | os.PathLike[str] | RootedFile) -> Location:
    """Location of labels: a file, or that of a result directory."""
    location = Location.of(source)
    if location.remote or not location.is_directory():
        return location
    inside = os.path.join(location.path, "labels.npy")
    return Location.of(inside if location.beneath is None else location.beneath.inside("labels.npy"))


def read_labels(source: str | os.PathLike[str] | RootedFile) -> np.ndarray:
    """Read labels as results hold them.

    Parameters
    ----------
    source : path or URL
        A .npy; a .npz with ``labels``, ``y`` or one array; a .csv or .tsv with a column ``label`` (and perhaps one
        ``row``, from 0) or with one column; a .txt with a label a line; a result directory.

    Returns
    -------
    ndarray of shape (n,)
        Integers or strings.

    Raises
    ------
    InputError
        If it holds no labels, or cannot be read.
    """
    location = Location.of(source)
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
