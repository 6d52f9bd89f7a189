"""Slices of a label volume, which show the position of each cluster.

`label_slices` draws axial slices. The report has slices in three orthogonal views; it also uses the functions that turn
a volume, crop it and scale its background.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from scipy.optimize import linear_sum_assignment

from mgclust.base.errors import InputError
from mgclust.plots.style import INK, MUTED, cluster_colors, own_axes

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["OPACITY", "TurnedVolume", "bounding_box", "brightness", "label_slices", "turned_volume"]

OPACITY = 0.78  # opacity of the clusters over the background
MAX_SLICES = 24
_GAP = 0.04  # gap between slices, as a fraction of their width
_TEXT = 0.09  # room for the text above a slice, as a fraction of its height
_FIGURE_WIDTH, _MAX_HEIGHT = 9.2, 9.2  # inches
_PIXELS = 1_600  # across the picture, so that borders can be thinner than voxels
_BORDER = 0.5  # brightness of the line between two clusters


def label_slices(
    volume: Any,
    background: Any = None,
    ax: Axes | None = None,
    *,
    affine: Any = None,
    oriented: bool = True,
    colors: Any = None,
) -> Axes:
    """Axial slices of a label volume, each cluster in its own colour.

    At most 24 slices are drawn, evenly spaced over the slices that hold clusters.

    Parameters
    ----------
    volume : array of shape (x, y, z), int
        Cluster of each voxel: 0 for the background, 1, 2, ... for clusters. By default, cluster ``k`` of the volume has
        the colour that label ``k - 1`` has in other pictures.
    background : array of shape (x, y, z), optional
        Values to draw in grey below the clusters, e.g. the mean over time; NaN is left white.
    ax : matplotlib Axes, optional
        Where to draw; by default a new figure.
    affine : array of shape (4, 4), optional
        Matrix that maps voxel indices to millimetres, as in NIfTI. Slices are then turned so that left is left and
        front is up. By default, slices are taken along the last axis, and voxels are drawn as cubes.
    oriented : bool, default=True
        Whether the directions in `affine` are known. If not, the picture uses only the voxel sizes and does not name
        left and right.
    colors : array of shape (n_clusters, 3), optional
        Red, green and blue of each cluster from 0 to 1, e.g. from `mgclust.plots.parcel_colors`. By default, the
        colours of `mgclust.plots.cluster_colors`.

    Returns
    -------
    matplotlib Axes

    Raises
    ------
    InputError
        `volume` is not three-dimensional, or `colors` does not have a row for each cluster.

    Examples
    --------
    >>> import numpy as np
    >>> from mgclust import plots
    >>> volume = np.zeros((4, 4, 3), int)
    >>> volume[1:3, 1, 1], volume[1:3, 2, 1] = 1, 2
    >>> plots.label_slices(volume).get_title()
    '2 clusters of 4 voxels, 1 axial slice'
    """
    volume = np.asarray(volume)
    if volume.ndim != 3:
        raise InputError(f"volume has shape {volume.shape}, it should be (x, y, z): a label per voxel, 0 for none.")
    colors = _colors_of(volume, colors)
    oriented_by_affine = affine is not None and oriented
    turned, sizes, places = turned_volume(volume, affine, oriented_by_affine)
    grey = None
    if background is not None:
        grey = turned_volume(np.asarray(background, dtype=float), affine, oriented_by_affine).values
    box = bounding_box(turned != 0 if grey is None else (turned != 0) | np.isfinite(grey))
    turned, heights = turned[box], places[2][box[2]]
    grey = None if grey is None else brightness(grey[box])
    shown = _chosen_slices(turned)
    columns, rows = _layout(len(shown), turned.shape[0] * sizes[0], turned.shape[1] * sizes[1])
    mosaic, corners = _mosaic(turned, grey, shown, columns, rows, colors)

    width = _FIGURE_WIDTH * (0.6 if len(shown) == 1 else 1)
    height = width * mosaic.shape[0] * sizes[1] / (mosaic.shape[1] * sizes[0]) + 0.6
    ax = own_axes(ax, (width, min(height, _MAX_HEIGHT)))
    # If the mosaic has more pixels than the figure, "nearest" would drop some lines between clusters.
    ax.imshow(mosaic, aspect=sizes[1] / sizes[0], interpolation="antialiased")
    ax.set(xticks=[], yticks=[])
    ax.grid(False)
    for spine in ax.spines.values():
        spine.set_visible(False)
    for k, (top, left) in zip(shown, corners, strict=True):
        text = f"z = {round(float(heights[k]), 1):g} mm" if oriented_by_affine else f"slice {heights[k]}"
        ax.annotate(
            text, (left, top), xytext=(0, 1), textcoords="offset points", va="bottom", fontsize=7.5, color=MUTED
        )
    _name_sides(ax, oriented_by_affine)
    n_clusters, labelled = int(turned.max(initial=0)), int((volume > 0).sum())
    filled = int((turned > 0).any(axis=(0, 1)).sum())
    slices = f"{len(shown)}{f' of {filled}' * (filled > len(shown))} axial slice{'s' * (len(shown) != 1)}"
    ax.set_title(f"{n_clusters:,} clusters of {labelled:,} voxels, {slices}")
    return ax


class TurnedVolume(NamedTuple):
    """A volume whose axes point right, forward and up.

    Attributes
    ----------
    values : ndarray of shape (x, y, z)
        The volume.
    sizes : ndarray of shape (3,)
        Size of a voxel along each axis, in mm.
    places : tuple of 3 ndarrays
        Coordinate x, y or z of each slice along its axis, in mm; its index if the orientation is not known.
    """

    values: np.ndarray
    sizes: np.ndarray
    places: tuple[np.ndarray, ...]


def turned_volume(volume: np.ndarray, affine: Any, known: bool) -> TurnedVolume:
    """Turn a volume so that its axes point right, forward and up.

    Parameters
    ----------
    volume : ndarray of shape (i, j, k)
        Values of the voxels.
    affine : array of shape (4, 4) or None
        Matrix that maps voxel indices to millimetres.
    known : bool
        Whether the affine states the directions. If not, the volume is not turned.

    Returns
    -------
    TurnedVolume
    """
    if affine is None or not known:
        sizes = np.ones(3) if affine is None else np.sqrt((np.asarray(affine, dtype=float)[:3, :3] ** 2).sum(axis=0))
        return TurnedVolume(volume, sizes, tuple(map(np.arange, volume.shape)))
    affine = np.asarray(affine, dtype=float)
    directions = affine[:3, :3]
    sizes = np.sqrt((directions**2).sum(axis=0))
    world, own = linear_sum_assignment(-abs(directions / sizes))
    order = own[np.argsort(world)]
    turned = np.transpose(volume, order)
    # A slice of an oblique volume has no single coordinate: take the coordinate of its middle.
    middle = (np.array(volume.shape) - 1) / 2
    places = []
    for axis, from_axis in enumerate(order):
        along = np.arange(volume.shape[from_axis]) - middle[from_axis]
        place = affine[axis, :3] @ middle + affine[axis, 3] + affine[axis, from_axis] * along
        if directions[axis, from_axis] < 0:
            turned, place = np.flip(turned, axis), place[::-1]
        places.append(place)
    return TurnedVolume(turned, sizes[order], tuple(places))


def bounding_box(inside: np.ndarray) -> tuple[slice, slice, slice]:
    """Return the smallest box that holds all True voxels; the whole volume if there are none."""
    if not inside.any():
        return (slice(None),) * 3
    limits = []
    for axis in range(3):
        occupied = np.flatnonzero(inside.any(axis=tuple({0, 1, 2} - {axis})))
        limits.append(slice(int(occupied[0]), int(occupied[-1]) + 1))
    return limits[0], limits[1], limits[2]


def brightness(values: np.ndarray) -> np.ndarray:
    """Brightness from 0.2 to 0.95; NaN stays NaN."""
    finite = values[np.isfinite(values)]
    low, high = np.percentile(finite, [2, 98]) if len(finite) else (0.0, 1.0)
    return 0.2 + 0.75 * np.clip((values - low) / max(high - low, np.finfo(float).tiny), 0, 1)


def _colors_of(volume: np.ndarray, colors: Any) -> np.ndarray:
    """Return the given colours, or the colours of the labels."""
    count = int(volume.max(initial=0))
    if colors is None:
        return cluster_colors(count)
    colors = np.asarray(colors, dtype=float)
    if colors.shape != (count, 3):
        raise InputError(
            f"colors has shape {colors.shape}, it should be ({count}, 3): a row per cluster of the volume."
        )
    return colors


def _chosen_slices(volume: np.ndarray) -> np.ndarray:
    """Indices of the slices to draw: slices with clusters, evenly spaced if there are many."""
    filled = np.flatnonzero((volume > 0).any(axis=(0, 1)))
    if not len(filled):
        filled = np.arange(volume.shape[2])
    if len(filled) <= MAX_SLICES:
        return filled
    return filled[np.linspace(0, len(filled) - 1, MAX_SLICES).round().astype(int)]


def _layout(count: int, width: float, height: float) -> tuple[int, int]:
    """Numbers of columns and rows of slices for a picture that is somewhat wider than high."""
    columns = max(1, min(count, round(math.sqrt(1.5 * count * height / width))))
    rows = -(-count // columns)
    return -(-count // rows), rows


def _mosaic(
    volume: np.ndarray, grey: np.ndarray | None, shown: np.ndarray, columns: int, rows: int, colors: np.ndarray
) -> tuple[np.ndarray, list[tuple[int, int]]]:
    """The slices as one RGB image, front up, and the position of the upper left corner of each slice."""
    scale = max(1, _PIXELS // (columns * volume.shape[0]))
    width, height = volume.shape[0] * scale, volume.shape[1] * scale
    gap, text = max(1, round(_GAP * width)), max(1, round(_TEXT * height))
    mosaic = np.ones((rows * (height + text), columns * (width + gap) - gap, 3))
    corners = []
    for number, k in enumerate(shown):
        top, left = (number // columns) * (height + text) + text, (number % columns) * (width + gap)
        beneath = None if grey is None else grey[:, ::-1, k].T
        mosaic[top : top + height, left : left + width] = _slice(volume[:, ::-1, k].T, beneath, colors, scale)
        corners.append((top, left))
    return mosaic, corners


def _slice(labels: np.ndarray, grey: np.ndarray | None, colors: np.ndarray, scale: int) -> np.ndarray:
    """One slice in colours, with `scale` pixels per voxel, and dark lines between clusters."""
    image = np.ones((*labels.shape, 3))
    if grey is not None:
        image[np.isfinite(grey)] = grey[np.isfinite(grey), None]
    own = labels > 0
    opacity = 1.0 if grey is None else OPACITY
    image[own] = opacity * colors[labels[own] - 1] + (1 - opacity) * image[own]
    image, labels = (np.repeat(np.repeat(part, scale, axis=0), scale, axis=1) for part in (image, labels))
    if scale > 2:
        for axis in (0, 1):
            here, there = (np.take(labels, np.arange(1, labels.shape[axis]) - back, axis) for back in (1, 0))
            meet = (here != there) & (here > 0) & (there > 0)
            meet = np.insert(meet, 0, False, axis=axis)
            image[meet] *= _BORDER
    return image


def _name_sides(ax: Axes, known: bool) -> None:
    if not known:
        ax.set_xlabel("The file does not say which side is left.", color=MUTED, fontsize=9)
        return
    look: dict[str, Any] = {"xycoords": "axes fraction", "textcoords": "offset points", "va": "center", "fontsize": 12}
    ax.annotate("L", (0, 0.5), xytext=(-6, 0), ha="right", color=INK, fontweight="bold", **look)
    ax.annotate("R", (1, 0.5), xytext=(6, 0), ha="left", color=INK, fontweight="bold", **look)
    ax.set_xlabel("Left is left (L), front is up; z from the file's affine.", color=MUTED, fontsize=9)
