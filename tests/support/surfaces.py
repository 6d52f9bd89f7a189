"""Made surfaces: spheres of triangles, their GIFTI files, and a CIFTI series on two of them."""

from __future__ import annotations

from itertools import combinations

import nibabel
import numpy as np

AFFINE = np.array([[-2.0, 0, 0, 90], [0, 2.0, 0, -126], [0, 0, 2.0, -72], [0, 0, 0, 1]])
TIMES = 12


def sphere(subdivisions):
    """Coordinates and triangles of an icosahedron whose triangles are split into four, several times."""
    golden = (1 + 5**0.5) / 2
    corners = [(0, a, b) for a in (-1, 1) for b in (-golden, golden)]
    points = [np.roll(corner, shift) for shift in range(3) for corner in corners]
    near = [{j for j in range(12) if abs(np.linalg.norm(points[i] - points[j]) - 2) < 1e-9} for i in range(12)]
    triangles = [t for t in combinations(range(12), 3) if all(b in near[a] for a, b in combinations(t, 2))]
    for _ in range(subdivisions):
        middle = {}

        def between(a, b, middle=middle):
            key = (min(a, b), max(a, b))
            if key not in middle:
                middle[key] = len(points)
                points.append((points[a] + points[b]) / 2)
            return middle[key]

        split = []
        for a, b, c in triangles:
            ab, bc, ca = between(a, b), between(b, c), between(c, a)
            split += [(a, ab, ca), (b, bc, ab), (c, ca, bc), (ab, bc, ca)]
        triangles = split
    coordinates = np.array([60 * p / np.linalg.norm(p) for p in points])
    return coordinates.astype(np.float32), np.array(triangles, dtype=np.int32)


def save_surface(path, coordinates, triangles, structure=None, encoding="GIFTI_ENCODING_B64GZ", of_file=False):
    """Write a .surf.gii; the structure stands in the metadata of the coordinates, or of the file."""
    gifti = nibabel.gifti
    meta = gifti.GiftiMetaData({"AnatomicalStructurePrimary": structure} if structure else {})
    arrays = [
        gifti.GiftiDataArray(
            array, intent=f"NIFTI_INTENT_{intent}", datatype=kind, encoding=encoding,
            meta=meta if intent == "POINTSET" and not of_file else gifti.GiftiMetaData(),
        )
        for array, intent, kind in (
            (coordinates, "POINTSET", "NIFTI_TYPE_FLOAT32"), (triangles, "TRIANGLE", "NIFTI_TYPE_INT32")
        )
    ]  # fmt: skip
    image = gifti.GiftiImage(meta=meta if of_file else None, darrays=arrays)
    path.write_bytes(image.to_bytes())
    return path


def models_of(rng, size=42, left=True, right=True, subcortical=True):
    """Both cortices without a medial wall, and two structures of voxels that touch each other."""
    axis = nibabel.cifti2.BrainModelAxis
    parts = []
    for there, name in ((left, "CortexLeft"), (right, "CortexRight")):
        if there:
            wall = rng.choice(size, size // 5, replace=False)
            parts.append(axis.from_surface(np.setdiff1d(np.arange(size), wall), size, name=name))
    if subcortical:
        box = np.zeros((6, 7, 8), dtype=bool)
        for where, name in ((np.s_[1:3, 2:5, 3:6], "thalamus_left"), (np.s_[3:5, 2:5, 3:5], "pallidum_left")):
            mask = np.zeros_like(box)
            mask[where] = rng.random(mask[where].shape) < 0.8
            voxels = np.argwhere(mask)
            voxels = voxels[np.lexsort(voxels.T)]  # the first index runs fastest, as in files of the HCP
            parts.append(
                axis(
                    np.full(len(voxels), f"CIFTI_STRUCTURE_{name.upper()}"),
                    voxel=voxels,
                    affine=AFFINE,
                    volume_shape=mask.shape,
                )
            )
    whole = parts[0]
    for part in parts[1:]:
        whole = whole + part
    return whole


def save_series(path, models, rng, constant=()):
    """Write a .dtseries.nii; the series of some grayordinates are constant."""
    data = rng.normal(100, 10, size=(TIMES, len(models))).astype(np.float32)
    data[:, list(constant)] = 5
    axes = (nibabel.cifti2.SeriesAxis(0, 0.72, TIMES), models)
    nibabel.save(nibabel.cifti2.Cifti2Image(data, axes), path)
    return path
