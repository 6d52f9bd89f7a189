"""Small real data sets that travel with the package; README.md tells their origin and terms."""

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
    """Return the file of a sample.

    Parameters
    ----------
    name : {"pendigits", "localizer", "lesmis"}

    Returns
    -------
    pathlib.Path
    """
    if name not in NAMES:
        raise InputError(f"name={name!r} should be one of the samples: {', '.join(NAMES)}.")
    return Path(__file__).with_name(_FILES[name])


def mask_path(name: str = "localizer") -> Path:
    """Return the file of a sample's mask.

    Parameters
    ----------
    name : {"localizer"}

    Returns
    -------
    pathlib.Path
    """
    if name != "localizer":
        raise InputError(f"name={name!r} has no mask; 'localizer' has one.")
    return Path(__file__).with_name("localizer_mask.nii.gz")


def load(name: str) -> Dataset:
    """Open a sample; its `labels` are the known truth, where there is one.

    Parameters
    ----------
    name : {"pendigits", "localizer", "lesmis"}
        10,992 handwritten digits of 16 features, with their digit; 1,983 voxels of a BOLD series of 156 points in
        time, detrended and scaled to z-scores, which needs nibabel; the graph of 77 characters of Les Misérables, whose
        weights say in how many chapters two of them meet.

    Returns
    -------
    Dataset
        A `mgclust.data.Graph` where the sample is one.
    """
    file = path(name)
    if name == "localizer":
        dataset: Dataset = open_dataset(file, mask=mask_path(name), standardize="zscore", detrend=True)
    else:
        dataset = (open_graph if name == "lesmis" else open_dataset)(file)
    dataset.name = name  # where the package is installed says nothing about the data
    return dataset
