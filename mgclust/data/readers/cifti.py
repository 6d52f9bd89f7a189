"""CIFTI-2: the description of the grayordinates in the header."""

from __future__ import annotations

from typing import Any

from mgclust.data.location import Location
from mgclust.data.readers.nifti import cifti_axes, read_header

__all__ = ["brain_models", "grayordinate"]


def brain_models(location: Location) -> Any:
    """Return the meaning of each grayordinate: nibabel's BrainModelAxis."""
    return cifti_axes(read_header(location))[1]


def grayordinate(models: Any, index: int) -> tuple[str, str, tuple[int, ...]]:
    """Return the structure of a grayordinate, "vertex" or "voxel", and the number of the vertex or (i, j, k)."""
    element, where, structure = models[index]
    name = structure.removeprefix("CIFTI_STRUCTURE_").lower()
    if element == "CIFTI_MODEL_TYPE_SURFACE":
        return name, "vertex", (int(where),)
    return name, "voxel", tuple(int(value) for value in where)
