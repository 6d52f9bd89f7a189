"""Small real data sets that are part of the package; README.md states their origin and their terms of use."""

from __future__ import annotations

from pathlib import Path

from mgclust.base.errors import InputError
from mgclust.data.base import Dataset
from mgclust.data.dataset import open_dataset
from mgclust.data.graph import open_graph

__all__ = ["NAMES", "load", "mask_path", "path"]

_FILES = {"pendigits": "pendigits.npz", "localizer": "localizer_bold.nii.gz", "lesmis": "lesmis.npz"}
NAMES = tuple(_FILES)


def path(name: str) -> Path:
    """Return the path of the file of a sample.

    Parameters
    ----------
    name : {"pendigits", "localizer", "lesmis"}
        Name of the sample; see `load`.

    Returns
    -------
    pathlib.Path

    Raises
    ------
    InputError
        There is no such sample.

    Examples
    --------
    >>> from mgclust.data import samples
    >>> samples.path("pendigits").name
    'pendigits.npz'
    """
    if name not in NAMES:
        raise InputError(f"name={name!r} should be one of the samples: {', '.join(NAMES)}.")
    return Path(__file__).with_name(_FILES[name])


def mask_path(name: str = "localizer") -> Path:
    """Return the path of the mask of a sample, for ``open_dataset(path, mask=...)``.

    Parameters
    ----------
    name : {"localizer"}
        Name of the sample.

    Returns
    -------
    pathlib.Path

    Raises
    ------
    InputError
        The sample has no mask.

    Examples
    --------
    >>> from mgclust.data import samples
    >>> samples.mask_path().name
    'localizer_mask.nii.gz'
    """
    if name != "localizer":
        raise InputError(f"name={name!r} has no mask; give 'localizer'.")
    return Path(__file__).with_name("localizer_mask.nii.gz")


def load(name: str) -> Dataset:
    """Open a sample. Its `labels` are the true labels, if they are known.

    Parameters
    ----------
    name : {"pendigits", "localizer", "lesmis"}
        "pendigits": 10,992 handwritten digits with 16 features; the labels are the digits. "localizer": 1,983 voxels of
        a BOLD series of 156 points in time, detrended and scaled to z-scores; it needs nibabel. "lesmis": the graph of
        77 characters of Les Misérables; a weight is the number of chapters in which two characters meet.

    Returns
    -------
    Dataset
        For "lesmis", a `mgclust.data.Graph`.

    Raises
    ------
    InputError
        There is no such sample.

    Examples
    --------
    >>> from mgclust.data import samples
    >>> samples.load("lesmis").n_nodes
    77
    """
    file = path(name)
    if name == "localizer":
        dataset: Dataset = open_dataset(file, mask=mask_path(name), standardize="zscore", detrend=True)
    else:
        dataset = (open_graph if name == "lesmis" else open_dataset)(file)
    dataset.name = name  # the path of the installed package is not part of the data
    return dataset
