"""Colours of parcels by their place: parcels at one place have similar colours in several label volumes."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
from scipy.spatial.distance import cdist

from mgclust.base.errors import InputError
from mgclust.plots.style import oklab_of_oklch, oklab_of_srgb, srgb_of_oklab

__all__ = ["parcel_colors"]

# Along these directions, the hue, the lightness and the chroma repeat after so many mm. The distances are such that the
# next parcel but one has another colour, and that a parcel whose centre moves by a few mm keeps nearly its colour.
_DIRECTIONS = np.array([[0.62, 0.58, 0.53], [-0.70, 0.71, 0.04], [0.35, 0.40, -0.85]])
_PERIODS = np.array([50.0, 44.0, 38.0])
_LIGHTNESS, _CHROMA = (0.42, 0.84), (0.08, 0.17)  # limits of Oklch
_APART = 0.1  # smallest difference (Oklab) between parcels that touch, where colours are left that differ so much
_HUES, _STEPS = 24, 6  # other colours: so many hues, with so many steps of lightness and of chroma


def parcel_colors(volume: Any, affine: Any = None) -> np.ndarray:
    """Colour of each parcel of a label volume, by its place.

    A smooth function of the position of a parcel's centre gives its colour. So a parcel has a similar colour in two
    label volumes of one space, e.g. of 100 and of 200 parcels, if its centre is at nearly the same place. If a parcel
    touches another that has a similar colour already, then it gets the most similar colour that differs enough. Parcels
    choose in the order of their numbers.

    Parameters
    ----------
    volume : array of shape (i, j, k), int
        Parcel of each voxel: 0 for the background, 1, 2, ... for parcels.
    affine : array of shape (4, 4), optional
        Matrix that maps voxel indices to millimetres, as in NIfTI. By default, voxels are cubes of 1 mm.

    Returns
    -------
    ndarray of shape (n_parcels, 3), float
        Red, green and blue from 0 to 1, in whole 255ths.

    Raises
    ------
    InputError
        `volume` is not three-dimensional.

    Examples
    --------
    >>> import numpy as np
    >>> from mgclust import plots
    >>> halves = np.repeat([1, 2], 8).reshape(4, 2, 2)
    >>> plots.parcel_colors(halves).shape
    (2, 3)
    """
    volume = np.asarray(volume)
    if volume.ndim != 3:
        raise InputError(f"volume has shape {volume.shape}, it should be (x, y, z): a label per voxel, 0 for none.")
    matrix = np.eye(4) if affine is None else np.asarray(affine, dtype=float)
    preferred = _by_place(_centers(volume, matrix))
    others = _seen(_other_colors())
    found = np.full(preferred.shape, np.nan)
    for k, near in enumerate(_touching(volume, len(preferred))):
        given = found[near[near < k]]
        gaps = _gaps(preferred[k : k + 1], given)
        if gaps[0] >= _APART:
            found[k] = preferred[k]
            continue
        gaps = _gaps(others, given)
        away = ((others - preferred[k]) ** 2).sum(axis=1)
        enough = gaps >= _APART
        found[k] = others[np.where(enough, away, np.inf).argmin() if enough.any() else gaps.argmax()]
    return np.round(255 * srgb_of_oklab(found)) / 255


def _centers(volume: np.ndarray, affine: np.ndarray) -> np.ndarray:
    """Return the mean position of the voxels of each parcel, in mm."""
    voxels = np.argwhere(volume > 0)
    labels = volume[volume > 0] - 1
    sizes = np.maximum(np.bincount(labels), 1)
    middle = np.stack([np.bincount(labels, voxels[:, axis]) / sizes for axis in range(3)], axis=1)
    return middle @ affine[:3, :3].T + affine[:3, 3]


def _by_place(centers: np.ndarray) -> np.ndarray:
    """Return the colour of each position, in Oklab."""
    turns = centers @ _DIRECTIONS.T / _PERIODS
    low = np.array([_LIGHTNESS[0], _CHROMA[0]])
    high = np.array([_LIGHTNESS[1], _CHROMA[1]])
    lightness, chroma = (low + (high - low) * (1 - abs(2 * (turns[:, 1:] % 1) - 1))).T  # up and down in each period
    return _seen(oklab_of_oklch(lightness, chroma, turns[:, 0]))


def _other_colors() -> np.ndarray:
    """Return colours that fill the same part of Oklab."""
    steps = (np.linspace(*_LIGHTNESS, _STEPS), np.linspace(*_CHROMA, _STEPS), np.arange(_HUES) / _HUES)
    return oklab_of_oklch(*map(np.ravel, np.meshgrid(*steps, indexing="ij")))


def _seen(colors: np.ndarray) -> np.ndarray:
    """Return the colours that a screen can show instead of these, in Oklab."""
    return oklab_of_srgb(np.round(255 * srgb_of_oklab(colors)) / 255)


def _gaps(colors: np.ndarray, given: np.ndarray) -> np.ndarray:
    """Return the difference of each colour from the most similar given colour."""
    if not len(given):
        return np.full(len(colors), np.inf)
    return cdist(colors, given).min(axis=1)


def _touching(volume: np.ndarray, count: int) -> list[np.ndarray]:
    """Return the parcels that each parcel touches, also at edges and corners of voxels."""
    found = []
    for step in product((-1, 0, 1), repeat=3):
        if step > (0, 0, 0):  # the opposite step gives the same pairs
            moves = list(zip(step, volume.shape, strict=True))
            here = tuple(slice(max(0, -shift), size - max(0, shift)) for shift, size in moves)
            there = tuple(slice(max(0, shift), size - max(0, -shift)) for shift, size in moves)
            one, other = volume[here], volume[there]
            meet = (one != other) & (one > 0) & (other > 0)
            found.append(np.unique(one[meet].astype(np.int64) * (count + 1) + other[meet]))
    pairs = np.stack(np.divmod(np.unique(np.concatenate(found)), count + 1), axis=1) - 1
    pairs = np.unique(np.concatenate([pairs, pairs[:, ::-1]]), axis=0)
    return np.split(pairs[:, 1], np.searchsorted(pairs[:, 0], np.arange(1, count)))[:count]
