"""Images of nibabel, masks and atlases in memory, as locations: they are converted to the bytes of a NIfTI file."""

from __future__ import annotations

import os
from typing import Any

import numpy as np

from mgclust.base.errors import InputError
from mgclust.data.location import Location
from mgclust.data.readers.nifti import VOLUMES, Grid, need_nibabel
from mgclust.outside.quoting import reason

__all__ = ["image_location", "is_image", "volume_location"]


def is_image(source: Any) -> bool:
    """Return whether `source` is a nibabel image on a grid."""
    return any(
        kind.__module__.partition(".")[0] == "nibabel" and kind.__name__ == "SpatialImage"
        for kind in type(source).__mro__
    )


def image_location(image: Any) -> Location:
    """Return the location of an image, which is written to memory as NIfTI.

    The stored numbers and the scaling stay the same, and for NIfTI also both transforms.

    Parameters
    ----------
    image : nibabel image on a grid
        NIfTI, MGH, Analyze or another format. If its values are not in memory yet, its file is read.
    """
    nibabel = need_nibabel("an image in memory")
    two = isinstance(image.header, nibabel.Nifti2Header)
    kind: Any = nibabel.Nifti2Header if two else nibabel.Nifti1Header
    path = image.get_filename() or "image.nii"
    path = path if path.lower().endswith(VOLUMES) else f"{os.path.splitext(path)[0]}.nii"
    name = image.get_filename() or f"{type(image).__name__} in memory"
    source = image.dataobj
    try:
        header = kind.from_header(image.header, check=False).copy()
        affine = header.get_best_affine() if image.affine is None else image.affine
        if not isinstance(image.header, nibabel.nifti1.Nifti1PairHeader) or not np.array_equal(
            affine, header.get_best_affine()
        ):
            header.set_sform(affine, code="aligned")
            header.set_qform(None, code="unknown")
        if nibabel.is_proxy(source) and hasattr(source, "get_unscaled"):
            stored, slope, inter = np.asanyarray(source.get_unscaled()), float(source.slope), float(source.inter)
        else:
            stored, slope, inter = np.asanyarray(source), 1.0, 0.0
        return Location(name, path, content=_bytes(header, stored, slope, inter))
    except nibabel.spatialimages.HeaderDataError as error:
        raise InputError(f"{name} cannot be read: {reason(error)}; save it as .nii.gz and give the path.") from error


def volume_location(volume: Any, grid: Grid, what: str) -> Location:
    """Return the location of a mask or an atlas in memory: an image, or an array on the grid of the series.

    Parameters
    ----------
    volume : nibabel image or array of shape (x, y, z)
    grid : Grid
        Grid of the series, which an array must have.
    what : {"mask", "atlas"}
        The option, for messages.
    """
    if is_image(volume):
        return image_location(volume)
    array = np.asarray(volume)
    if array.dtype.kind not in "iufb" or array.shape != grid.shape:
        holds = "0 and 1" if what == "mask" else "labels"
        raise InputError(
            f"{what} is a {type(volume).__name__} of shape {array.shape}; give the path of a NIfTI file, an image of "
            f"nibabel, or an array of {holds} of shape {grid.shape}."
        )
    header = need_nibabel(f"the {what} in memory").Nifti1Header()
    header.set_sform(np.array(grid.affine), code="aligned")
    wide = array.astype(np.float64) if array.dtype.kind == "f" else array
    return Location(f"{what} in memory", f"{what}.nii", content=_bytes(header, wide, 1.0, 0.0))


def _bytes(header: Any, stored: np.ndarray, slope: float, inter: float) -> bytes:
    """Return the bytes of a NIfTI file with these stored numbers, without extensions."""
    if stored.dtype == bool or stored.dtype == np.float16:
        stored = stored.astype(np.uint8 if stored.dtype == bool else np.float32)
    stored = stored.astype(stored.dtype.newbyteorder(header.endianness), copy=False)
    header.extensions.clear()
    header.set_data_shape(stored.shape)
    header.set_data_dtype(stored.dtype)
    header.set_slope_inter(slope, inter)
    header["magic"] = header.single_magic
    header["vox_offset"] = header.single_vox_offset
    gap = header.single_vox_offset - len(header.binaryblock)
    return bytes(header.binaryblock) + bytes(gap) + stored.tobytes(order="F")
