"""Generated BOLD series with known parcels."""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from mgclust.base.errors import InputError

__all__ = ["Bold", "make_bold"]

VOXEL_SIZE = 3.0  # mm
REPETITION_TIME = 2.0  # s
_SMOOTHING = 2.0  # standard deviation of the Gaussian that smooths the signals, in points in time


class Bold(NamedTuple):
    """Generated BOLD series; unpacks as ``bold, mask, truth``.

    Attributes
    ----------
    bold : ndarray of shape (x, y, z, n_timepoints), float32
        The series of each voxel; 0 outside the mask.
    mask : ndarray of shape (x, y, z), bool
        True for the voxels of the brain.
    truth : ndarray of shape (x, y, z), int32
        Parcel of each voxel: 1 to n_parcels in the mask, 0 outside.
    """

    bold: np.ndarray
    mask: np.ndarray
    truth: np.ndarray

    @property
    def affine(self) -> np.ndarray:
        """Affine matrix from voxels to mm.

        Voxels are cubes of 3 mm. The origin is in the middle of the grid, and the first axis points to the right.
        """
        affine = np.diag([VOXEL_SIZE] * 3 + [1.0])
        affine[:3, 3] = -VOXEL_SIZE * (np.array(self.mask.shape) - 1) / 2
        return affine

    def save(self, directory: str | os.PathLike[str]) -> list[Path]:
        """Write ``bold.nii.gz``, ``mask.nii.gz`` and ``truth.nii.gz``.

        Parameters
        ----------
        directory : path
            Directory for the files. It is created if it does not exist; existing files of these names are replaced.

        Returns
        -------
        list of Path
            The three files.
        """
        from mgclust.data.readers.nifti import need_nibabel

        nibabel = need_nibabel("bold.nii.gz")
        directory = Path(directory)
        directory.mkdir(parents=True, exist_ok=True)
        volumes = {"bold": self.bold, "mask": self.mask.astype(np.uint8), "truth": self.truth}
        paths = []
        for name, volume in volumes.items():
            image = nibabel.Nifti1Image(volume, self.affine)
            image.header.set_xyzt_units("mm", "sec")
            if volume.ndim == 4:
                image.header.set_zooms((*[VOXEL_SIZE] * 3, REPETITION_TIME))
            paths.append(directory / f"{name}.nii.gz")
            nibabel.save(image, paths[-1])
        return paths


def make_bold(
    shape: Sequence[int] = (20, 24, 18),
    n_parcels: int = 12,
    n_timepoints: int = 120,
    noise: float = 0.5,
    random_state: Any = 0,
) -> Bold:
    """Make a BOLD series of spatially contiguous parcels.

    The brain is an ellipsoid. Each parcel has its own signal, which is smooth in time. The series of a voxel is the sum
    of the signal of its parcel, noise that is as smooth as the signal, a baseline and a slow drift. Without the drift,
    the correlation of two voxels is about ``1 / (1 + noise**2)`` if they are in the same parcel, else about 0.

    Parameters
    ----------
    shape : sequence of 3 int
        Number of voxels along x, y and z.
    n_parcels : int
        Number of parcels.
    n_timepoints : int
        Number of points in time.
    noise : float
        Standard deviation of the noise, relative to the standard deviation of the signal.
    random_state : int or numpy.random.Generator
        Seed or generator; equal seeds give equal data.

    Returns
    -------
    Bold
        ``bold, mask, truth``; `Bold.save` writes them as NIfTI.

    Examples
    --------
    >>> from mgclust.datasets import make_bold
    >>> bold, mask, truth = make_bold((8, 8, 6), n_parcels=4, n_timepoints=30)
    >>> bold.shape, int(truth.max()), bool((truth[mask] > 0).all())
    ((8, 8, 6, 30), 4, True)
    """
    shape = tuple(int(size) for size in shape)
    if len(shape) != 3 or min(shape) < 3:
        raise InputError(f"shape={shape} should be three numbers >= 3.")
    if n_timepoints < 3:
        raise InputError(f"n_timepoints={n_timepoints} should be >= 3.")
    if not noise >= 0 or not np.isfinite(noise):
        raise InputError(f"noise={noise} should be a finite number >= 0.")
    mask = _ellipsoid(shape)
    if not 1 <= n_parcels <= mask.sum():
        raise InputError(f"n_parcels={n_parcels} should be from 1 to {mask.sum()}, the voxels of the mask.")
    rng = np.random.default_rng(random_state)
    truth = _grow(mask, _seeds(mask, n_parcels, rng))
    signals = _smooth(rng, n_parcels, n_timepoints)
    parcels = truth[mask] - 1
    n = len(parcels)
    drift = rng.uniform(-2, 2, size=(n, 1)) * np.linspace(-1, 1, n_timepoints)
    baseline = rng.uniform(800, 1200, size=(n, 1))
    bold = np.zeros((*shape, n_timepoints), dtype=np.float32)
    # The signal has a standard deviation of about one percent of the baseline, as in real data.
    bold[mask] = baseline + 10 * (signals[parcels] + noise * _smooth(rng, n, n_timepoints) + drift)
    return Bold(bold, mask, truth)


def _ellipsoid(shape: tuple[int, ...]) -> np.ndarray:
    axes = (np.linspace(-1, 1, size + 2)[1:-1] for size in shape)
    return sum(axis**2 for axis in np.meshgrid(*axes, indexing="ij")) <= 1  # type: ignore[return-value]


def _seeds(mask: np.ndarray, count: int, rng: np.random.Generator) -> np.ndarray:
    """Return voxels that are far from each other: each next voxel is the one farthest from all earlier voxels."""
    voxels = np.argwhere(mask)
    chosen = [int(rng.integers(len(voxels)))]
    distance = np.full(len(voxels), np.inf)
    for _ in range(count - 1):
        distance = np.minimum(distance, ((voxels - voxels[chosen[-1]]) ** 2).sum(axis=1))
        chosen.append(int(distance.argmax()))
    return voxels[chosen]


def _grow(mask: np.ndarray, seeds: np.ndarray) -> np.ndarray:
    """Grow parcels from their seeds across the faces of voxels until they fill the mask; each parcel is connected."""
    padded = np.full([size + 2 for size in mask.shape], -1, dtype=np.int32)
    inner = padded[1:-1, 1:-1, 1:-1]
    inner[mask] = 0
    inner[tuple(seeds.T)] = np.arange(1, len(seeds) + 1)
    grown = True
    while grown:
        before = padded.copy()
        for axis in range(3):
            for step in (1, -1):
                neighbour = np.roll(before, step, axis=axis)[1:-1, 1:-1, 1:-1]
                free = (inner == 0) & (neighbour > 0)
                inner[free] = neighbour[free]
        grown = bool((padded != before).any())
    return np.maximum(inner, 0)


def _smooth(rng: np.random.Generator, n: int, n_timepoints: int) -> np.ndarray:
    """Draw n random series that are smooth in time, with mean 0 and standard deviation 1."""
    reach = math.ceil(4 * _SMOOTHING)
    kernel = np.exp(-0.5 * (np.arange(-reach, reach + 1) / _SMOOTHING) ** 2)
    white = rng.standard_normal((n, n_timepoints + 2 * reach))
    series = sum(w * white[:, k : k + n_timepoints] for k, w in enumerate(kernel))
    series -= series.mean(axis=1, keepdims=True)
    return series / series.std(axis=1, keepdims=True)
