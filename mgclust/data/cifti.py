"""CIFTI-2: what its header says of the grayordinates, and label files (.dlabel.nii)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from mgclust.data.location import Location
from mgclust.data.nifti import cifti_axes, need_nibabel, read_header

__all__ = ["brain_models", "grayordinate", "write_dlabel"]


def brain_models(location: Location) -> Any:
    """What each grayordinate is: nibabel's BrainModelAxis."""
    return cifti_axes(read_header(location))[1]


def grayordinate(models: Any, index: int) -> tuple[str, str, tuple[int, ...]]:
    """One grayordinate: its structure, "vertex" or "voxel", and its vertex number or its i, j, k."""
    element, where, structure = models[index]
    name = structure.removeprefix("CIFTI_STRUCTURE_").lower()
    if element == "CIFTI_MODEL_TYPE_SURFACE":
        return name, "vertex", (int(where),)
    return name, "voxel", tuple(int(value) for value in where)


def write_dlabel(path: Path, keys: np.ndarray, names: list[str], colors: np.ndarray, models: Any, title: str) -> None:
    """Write one label a grayordinate.

    Parameters
    ----------
    path : Path
        Ends with ``.dlabel.nii``.
    keys : ndarray of shape (n_grayordinates,), int
        0 where there is none, else from 1 to the number of names.
    names : list of str
        Of the labels 1, 2, ...
    colors : ndarray of shape (n_labels, 3)
        From 0 to 1.
    models : BrainModelAxis
        What the grayordinates are.
    title : str
        Of the map.
    """
    nibabel = need_nibabel(str(path))
    table: dict[int, tuple[str, tuple[float, ...]]] = {0: ("???", (1.0, 1.0, 1.0, 0.0))}
    table |= {k + 1: (name, (*map(float, colors[k]), 1.0)) for k, name in enumerate(names)}
    axes = (nibabel.cifti2.LabelAxis([title], [table]), models)
    image = nibabel.cifti2.Cifti2Image(keys[None, :].astype(np.float32), axes)
    image.nifti_header.set_intent("ConnDenseLabel", name="ConnDenseLabel")
    nibabel.save(image, path)
