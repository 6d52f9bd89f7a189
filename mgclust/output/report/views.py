"""Slices of a label volume in three orthogonal views, which one slider moves.

The report has no scripts, so the slider is a row of radio buttons. Each view is one picture with all its slices, one
below the other, of which a window shows one slice. The rule of the checked button shifts the pictures.
"""

from __future__ import annotations

import io
import math
from typing import Any, NamedTuple

import numpy as np
from PIL import Image

from mgclust.plots.volumes import OPACITY, TurnedVolume, bounding_box, brightness, turned_volume

__all__ = ["Position", "SliceViews", "View", "slice_views"]

# Positions of the slider, and pixels of all views together: large grids get fewer positions, and then coarser pixels.
MIN_POSITIONS, MAX_POSITIONS = 16, 40
MAX_PIXELS = 800_000
GREYS = 24  # shades of the background: fewer shades make smaller files
MARGIN = 1  # voxels around the clusters, which separate a slice from the next in the picture

# Name, axis that the slices are along, axes to the right and up, and what lies left, right, above and below.
VIEWS = (
    ("sagittal", 0, (1, 2), "PASI"),
    ("coronal", 1, (0, 2), "LRSI"),
    ("axial", 2, (0, 1), "LRAP"),
)
AXES = "xyz"


class View(NamedTuple):
    """One view.

    Attributes
    ----------
    name : str
        Name of the view, e.g. ``sagittal``.
    axes : tuple of 3 str
        Axis that the slices are along, axis to the right, axis up.
    ends : str
        Letters for left, right, above and below; empty if the orientation is not known.
    alt : str
        Description of the picture.
    clusters, background : bytes
        PNG files with all slices, the first at the top. `background` is empty if there is none.
    slices : int
        Number of slices in the pictures.
    width, height : float
        Size of a slice in mm.
    """

    name: str
    axes: tuple[str, str, str]
    ends: str
    alt: str
    clusters: bytes
    background: bytes
    slices: int
    width: float
    height: float


class Position(NamedTuple):
    """One position of the slider.

    Attributes
    ----------
    text : str
        Coordinates of the three slices.
    shifts : tuple of 3 float
        For each axis, by how many percent of its height the picture of its view is shifted.
    lines : tuple of 3 float
        For each axis, the place of the slice between both ends of the axis, in percent.
    """

    text: str
    shifts: tuple[float, ...]
    lines: tuple[float, ...]


class SliceViews(NamedTuple):
    """Three views and the positions of their slider.

    Attributes
    ----------
    views : list of View
        The views.
    positions : list of Position
        The positions of the slider.
    opacity : float
        Opacity of the clusters over the background.
    note : str
        A sentence about the clusters, for the caption.
    """

    views: list[View]
    positions: list[Position]
    opacity: float
    note: str = ""


def slice_views(
    volume: np.ndarray,
    background: np.ndarray | None = None,
    *,
    affine: Any = None,
    oriented: bool = True,
    colors: np.ndarray,
) -> SliceViews:
    """Draw a label volume in sagittal, coronal and axial slices; the parameters are those of `label_slices`.

    Parameters
    ----------
    volume : ndarray of shape (i, j, k), int
        Cluster of each voxel, from 1; 0 for none.
    background : ndarray of shape (i, j, k), optional
        Values to draw in grey; NaN is left white.
    affine : array of shape (4, 4), optional
        Matrix that maps voxel indices to millimetres.
    oriented : bool
        Whether the directions in `affine` are known. If not, the volume is not turned, and no side is named.
    colors : ndarray of shape (n_clusters, 3)
        Red, green and blue of each cluster from 0 to 1.

    Returns
    -------
    SliceViews
    """
    known = affine is not None and oriented
    turned = turned_volume(volume, affine, known)
    grey = None if background is None else turned_volume(background, affine, known).values
    box = bounding_box(turned.values > 0)
    labels = np.pad(turned.values[box], MARGIN)
    shades = None if grey is None else np.pad(brightness(grey)[box], MARGIN, constant_values=np.nan)
    shape = np.array(labels.shape)
    n_positions, step = _resolution(shape)
    # Slices of the padded volume, from the first to the last one that has clusters.
    chosen = [np.linspace(MARGIN, size - 1 - MARGIN, n_positions).round().astype(int) for size in shape]
    shown = [np.unique(slices) for slices in chosen]
    mm = shape * turned.sizes
    views = []
    for name, along, (right, up), ends in VIEWS:
        stack = _stack(labels, shown[along], along, step)
        beneath = None if shades is None else _stack(shades, shown[along], along, step)
        names = (name, ends) if known else (f"slices along axis {'ijk'[along]}", "")
        axes = AXES if known else "ijk"
        alt = f"{names[0].capitalize()} slices of the clusters, one below the other: {len(shown[along])} slices"
        views.append(
            View(
                names[0], (axes[along], axes[right], axes[up]), names[1], alt, _clusters_png(stack, colors),
                b"" if beneath is None else _background_png(beneath), len(shown[along]),
                float(mm[right]), float(mm[up]),
            )
        )  # fmt: skip
    return SliceViews(views, _positions(chosen, shown, shape, turned, box, known), 1.0 if grey is None else OPACITY)


def _resolution(shape: np.ndarray) -> tuple[int, int]:
    """Return the number of positions, and the step between drawn voxels."""
    pixels = int(shape[0] * shape[1] + shape[0] * shape[2] + shape[1] * shape[2])  # of one slice in each view
    positions = min(MAX_POSITIONS, max(MIN_POSITIONS, MAX_PIXELS // pixels), int(shape.max()) - 2 * MARGIN)
    return positions, max(1, math.ceil(math.sqrt(positions * pixels / MAX_PIXELS)))


def _stack(volume: np.ndarray, slices: np.ndarray, along: int, step: int) -> np.ndarray:
    """Return slices one below the other, with their axes right and up."""
    planes = np.moveaxis(volume, along, 0)[slices][:, ::step, ::step]  # slice, right, up
    return np.concatenate(planes.transpose(0, 2, 1)[:, ::-1])


def _positions(
    chosen: list[np.ndarray],
    shown: list[np.ndarray],
    shape: np.ndarray,
    turned: TurnedVolume,
    box: tuple[slice, slice, slice],
    known: bool,
) -> list[Position]:
    places = [place[part] for place, part in zip(turned.places, box, strict=True)]
    positions = []
    for slices in zip(*chosen, strict=True):
        at = [place[k - MARGIN] for place, k in zip(places, slices, strict=True)]
        text = ", ".join(
            f"{axis} = {round(float(x), 1):g}" for axis, x in zip(AXES if known else "ijk", at, strict=True)
        )
        shifts = [100 * np.searchsorted(each, k) / len(each) for each, k in zip(shown, slices, strict=True)]
        lines = [100 * (k + 0.5) / size for k, size in zip(slices, shape, strict=True)]
        positions.append(Position(text + " mm" * known, tuple(map(float, shifts)), tuple(map(float, lines))))
    return positions


def _clusters_png(labels: np.ndarray, colors: np.ndarray) -> bytes:
    """Return a picture of clusters; transparent where there are none."""
    present, inverse = np.unique(labels, return_inverse=True)
    palette = np.zeros((int(present.max(initial=0)) + 1, 4), np.uint8)
    palette[1:, :3], palette[1:, 3] = np.round(255 * colors[: len(palette) - 1]), 255
    palette = palette[present]
    if len(present) > 256:
        return _png(Image.fromarray(palette[inverse].reshape(*labels.shape, 4)))
    image = Image.frombytes("P", labels.shape[::-1], inverse.astype(np.uint8).tobytes())
    image.putpalette(palette[:, :3].tobytes())
    return _png(image, transparency=palette[:, 3].tobytes())


def _background_png(shades: np.ndarray) -> bytes:
    """Return a picture in grey; white where the brightness is NaN."""
    steps = np.round(np.nan_to_num(shades, nan=1.0) * GREYS) / GREYS
    return _png(Image.fromarray(np.round(255 * steps).astype(np.uint8)))


def _png(image: Image.Image, **options: Any) -> bytes:
    buffer = io.BytesIO()
    image.save(buffer, format="png", optimize=True, **options)
    return buffer.getvalue()
