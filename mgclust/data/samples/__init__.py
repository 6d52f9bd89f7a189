"""Small real data sets that travel with the package; README.md tells their origin and terms."""

from __future__ import annotations

from pathlib import Path

from mgclust.data.base import Dataset
from mgclust.data.dataset import open_dataset
from mgclust.data.graphs.graph import open_graph
from mgclust.errors import InputError

__all__ = ["GRAPHS", "NAMES", "POINTS", "load", "path"]

POINTS = ("r15", "d31", "birch1")
GRAPHS = ("lesmis",)
NAMES = (*POINTS, *GRAPHS)


def path(name: str) -> Path:
    """Return the file of a sample.

    Parameters
    ----------
    name : {"r15", "d31", "birch1", "lesmis"}

    Returns
    -------
    pathlib.Path
    """
    if name not in NAMES:
        raise InputError(f"name={name!r} should be one of the samples: {', '.join(NAMES)}.")
    return Path(__file__).with_name(f"{name}.npz")


def load(name: str) -> Dataset:
    """Open a sample; its `labels` are the known truth, where there is one.

    Parameters
    ----------
    name : {"r15", "d31", "birch1", "lesmis"}
        600 x 2 in 15 clusters, 3,100 x 2 in 31, 100,000 x 2 in 100; the graph of 77 characters of Les Misérables, whose
        weights say in how many chapters two of them meet.

    Returns
    -------
    Dataset
        A `Graph` where the sample is one.
    """
    dataset = (open_graph if name in GRAPHS else open_dataset)(path(name))
    dataset.name = name  # where the package is installed says nothing about the data
    return dataset
