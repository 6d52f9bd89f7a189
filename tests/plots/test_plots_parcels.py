"""Colours of parcels by place, and the picture of their evaluation."""

from __future__ import annotations

from itertools import pairwise, product

import numpy as np
import pytest

from mgclust import plots
from mgclust.base.errors import InputError
from mgclust.results.result import Result

AFFINE = np.array([[-3.0, 0, 0, 60], [0, 3, 0, -70], [0, 0, 3.3, -40], [0, 0, 0, 1]])


def nearest_parcels(shape, seeds):
    """Parcels of a box: each voxel belongs to the nearest seed."""
    voxels = np.stack(np.meshgrid(*map(np.arange, shape), indexing="ij"), axis=-1)
    away = ((voxels[..., None, :] - seeds) ** 2).sum(axis=-1)
    _, labels = np.unique(away.argmin(axis=-1), return_inverse=True)
    return labels.reshape(shape) + 1


def touching(volume):
    """Pairs of parcels that touch, by a loop over all voxels and their 26 neighbours."""
    found = set()
    for voxel in np.ndindex(volume.shape):
        for step in product((-1, 0, 1), repeat=3):
            other = tuple(np.add(voxel, step))
            if all(0 <= k < size for k, size in zip(other, volume.shape, strict=True)):
                pair = sorted((int(volume[voxel]), int(volume[other])))
                if 0 < pair[0] < pair[1]:
                    found.add(tuple(pair))
    return found


def cielab(color):
    """CIELAB of one sRGB colour under the white D65, from the standards' formulas."""
    r, g, b = (c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in color)
    x = (0.4124564 * r + 0.3575761 * g + 0.1804375 * b) / 0.95047
    y = 0.2126729 * r + 0.7151522 * g + 0.0721750 * b
    z = (0.0193339 * r + 0.1191920 * g + 0.9503041 * b) / 1.08883
    f = [t ** (1 / 3) if t > 216 / 24389 else (24389 / 27 * t + 16) / 116 for t in (x, y, z)]
    return np.array([116 * f[1] - 16, 500 * (f[0] - f[1]), 200 * (f[1] - f[2])])


@pytest.mark.parametrize("n", [2, 8, 60])
def test_parcels_that_touch_have_colours_apart(n):
    rng = np.random.default_rng(n)
    volume = nearest_parcels((14, 16, 12), rng.uniform(0, 14, (n, 3)))
    volume[:2] = 0
    _, volume = np.unique(volume, return_inverse=True)
    volume = volume.reshape(14, 16, 12)
    colors = plots.parcel_colors(volume, AFFINE)
    assert colors.shape == (volume.max(), 3) and (colors >= 0).all() and (colors <= 1).all()
    np.testing.assert_allclose(255 * colors, np.round(255 * colors), atol=1e-9)
    gaps = [np.linalg.norm(cielab(colors[a - 1]) - cielab(colors[b - 1])) for a, b in touching(volume)]
    assert min(gaps) > 9  # 2.3 is a difference that people just notice
    np.testing.assert_array_equal(colors, plots.parcel_colors(volume, AFFINE))


def test_a_parcel_keeps_its_colour_in_another_parcellation():
    rng = np.random.default_rng(1)
    seeds = rng.uniform(0, 24, (40, 3))
    coarse = nearest_parcels((24, 24, 24), seeds)
    fine = nearest_parcels((24, 24, 24), np.concatenate([rng.uniform(18, 24, (20, 3)), seeds]))  # other numbers
    one, other = plots.parcel_colors(coarse, AFFINE), plots.parcel_colors(fine, AFFINE)
    differences, unrelated = [], []
    for k in range(1, coarse.max() + 1):
        inside = np.bincount(fine[coarse == k])
        match = int(inside.argmax())
        if 2 * inside[match] > 0.9 * ((coarse == k).sum() + (fine == match).sum()):
            differences.append(np.linalg.norm(cielab(one[k - 1]) - cielab(other[match - 1])))
            unrelated += [np.linalg.norm(cielab(one[k - 1]) - cielab(color)) for color in other]
    assert len(differences) > 15
    assert np.median(differences) < 0.4 * np.median(unrelated)


def test_the_order_of_the_voxels_does_not_matter():
    """A file that stores the same brain with other axes gets the same colours."""
    volume = nearest_parcels((10, 12, 9), np.random.default_rng(2).uniform(0, 10, (12, 3)))
    turned = np.flip(volume, 0).transpose(2, 0, 1)
    matrix = AFFINE.copy()
    matrix[:3, 3] += 9 * AFFINE[:3, 0]
    matrix[:3, 0] *= -1
    matrix = matrix[:, [2, 0, 1, 3]]
    np.testing.assert_allclose(plots.parcel_colors(turned, matrix), plots.parcel_colors(volume, AFFINE), atol=1 / 255)


def test_few_or_no_parcels():
    assert plots.parcel_colors(np.zeros((3, 3, 3), int)).shape == (0, 3)
    assert plots.parcel_colors(np.ones((1, 1, 1), int)).shape == (1, 3)
    gap = np.array([[[1, 0, 3]]])  # no voxel has the number 2
    assert np.isfinite(plots.parcel_colors(gap)).all()
    with pytest.raises(InputError, match=r"volume has shape \(3,\)"):
        plots.parcel_colors(np.ones(3, int))


def test_slices_take_the_colours():
    volume = np.ones((4, 4, 2), int)
    volume[2:] = 2
    colors = np.array([[1.0, 0, 0], [0, 0, 1.0]])
    image = plots.label_slices(volume, colors=colors).images[0].get_array()
    shown = {tuple(color) for color in image.reshape(-1, 3).tolist()}
    assert {(1.0, 0.0, 0.0), (0.0, 0.0, 1.0)} <= shown
    with pytest.raises(InputError, match=r"colors has shape \(3, 3\), it should be \(2, 3\)"):
        plots.label_slices(volume, colors=np.eye(3))


def evaluated(numbers, chosen):
    k = np.array(numbers)
    rise = np.linspace(0.1, 0.9, len(k))
    scores = {"held_out": rise, "dcbc": rise / 2, "split_half_ari": rise[::-1]}
    arrays = {f"scan_{name}": values for name, values in scores.items()}
    arrays |= {f"scan_coordinates_{name}": values / 2 for name, values in scores.items()}
    return Result("parcellation", np.zeros(4, int), {"scan_n_clusters": k, **arrays}, scores={"n_clusters": chosen})


@pytest.mark.parametrize(
    ("numbers", "labels"),
    [
        ([50, 100, 200], "50 100 200"),
        ([4, 6, 8, 12, 16, 32], "4 6 8 12 16 32"),
        ([50, 100, 200, 400, 1000], "50 100 200 400 1,000"),
        ([100], "100"),
    ],
)
def test_the_axis_shows_the_compared_numbers(numbers, labels):
    ax = plots.parcel_evaluation(evaluated(numbers, numbers[0]))
    ax.figure.canvas.draw()
    assert " ".join(text.get_text() for text in ax.get_xticklabels()) == labels


@pytest.mark.parametrize("numbers", [range(50, 1050, 50), range(2, 60), [10, 11, 12, 5000]])
def test_labels_of_the_axis_do_not_overlap(numbers):
    numbers = list(numbers)
    chosen = numbers[len(numbers) // 3]
    ax = plots.parcel_evaluation(evaluated(numbers, chosen))
    ax.figure.canvas.draw()
    shown = [text for text in ax.get_xticklabels() if text.get_text()]
    assert f"{chosen:,}" in {text.get_text() for text in shown}
    boxes = [text.get_window_extent() for text in shown]
    assert all(one.x1 < other.x0 for one, other in pairwise(boxes))
    assert set(ax.xaxis.get_minorticklocs()) | set(ax.xaxis.get_majorticklocs()) == set(numbers)


def test_the_legend_is_below_the_lines():
    ax = plots.parcel_evaluation(evaluated([50, 100, 200], 100))
    ax.figure.canvas.draw()
    legend, box = ax.get_legend().get_window_extent(), ax.get_window_extent()
    assert legend.y1 < min(text.get_window_extent().y0 for text in ax.get_xticklabels()) < box.y0
    assert legend.y0 >= 0 and legend.x0 >= 0 and legend.x1 <= ax.figure.bbox.x1
    assert [text.get_text() for text in ax.get_legend().get_texts()][-1] == "the same, if parcels ignore the series"
