"""Gaussian point sets: what they promise about their truth, and the same bits everywhere."""

from __future__ import annotations

import hashlib

import numpy as np
import pytest
from scipy import stats
from scipy.spatial.distance import pdist

from mgclust import open_dataset
from mgclust.base.errors import InputError
from mgclust.datasets import make_gaussian_clusters, make_gaussian_grid, make_gaussian_rings

MAKERS = {
    "grid": (make_gaussian_grid, 100, 1000, "3d0a3bb57325d64f"),
    "rings": (make_gaussian_rings, 15, 40, "caf0378224ad250e"),
    "clusters": (make_gaussian_clusters, 31, 100, "ed87a871c956c273"),
}


@pytest.mark.parametrize("name", MAKERS)
def test_the_defaults(name):
    make, k, size, _ = MAKERS[name]
    X, labels, centers = make()
    assert X.shape == (k * size, 2) and X.dtype == np.float64
    assert labels.dtype == np.int32 and centers.shape == (k, 2)
    assert (np.bincount(labels) == size).all()
    assert not (np.diff(labels) >= 0).all()  # rows in random order


@pytest.mark.parametrize("name", MAKERS)
def test_the_same_bits_everywhere(name):
    """Equal in NumPy 2.0.2 and 2.4.6: figures quoted of these sets must not depend on the version."""
    make, *_, known = MAKERS[name]
    points = make()
    digest = hashlib.sha256(b"".join(array.tobytes() for array in points)).hexdigest()
    assert digest[:16] == known
    assert not np.array_equal(make(random_state=1).X, points.X)
    again = make(random_state=np.random.Generator(np.random.PCG64(0)))
    np.testing.assert_array_equal(again.X, points.X)


@pytest.mark.parametrize("name", MAKERS)
def test_rows_are_normal_about_their_centres(name):
    """Residuals of all rows: a Kolmogorov-Smirnov test of the standard normal, and independent features."""
    X, labels, centers = MAKERS[name][0]()
    residuals = X - centers[labels]
    for column in residuals.T:
        assert stats.kstest(column, "norm").pvalue > 1e-3
    assert abs(np.corrcoef(residuals.T)[0, 1]) < 4 / len(X) ** 0.5


def test_the_grid_is_that_of_the_birch_paper():
    centers = make_gaussian_grid().centers
    nearest = np.sort(pdist(centers))[: 2 * 10 * 9]  # so many pairs of neighbours has the grid
    np.testing.assert_allclose(nearest, 4 * 2**0.5)
    np.testing.assert_allclose(np.ptp(centers, axis=0), 9 * 4 * 2**0.5)
    np.testing.assert_allclose(centers[23], np.array([3, 2]) * 4 * 2**0.5)  # row 2, column 3


@pytest.mark.parametrize("ring_size", [1, 2, 7, 12])
def test_rings(ring_size):
    centers = make_gaussian_rings(ring_size, cluster_size=1, spacing=3.0).centers
    assert len(centers) == 1 + 2 * ring_size
    radii = np.linalg.norm(centers, axis=1)
    np.testing.assert_allclose(radii[1 + ring_size :], 2.5 * radii[1])
    if ring_size > 2:
        assert pdist(centers[1 : 1 + ring_size]).min() == pytest.approx(3.0)


@pytest.mark.parametrize("n_features", [1, 2, 3, 16])
@pytest.mark.parametrize("n_clusters", [1, 2, 31, 200])
def test_centres_keep_their_separation(n_clusters, n_features):
    centers = make_gaussian_clusters(n_clusters, 1, separation=4.5, n_features=n_features, random_state=3).centers
    assert n_clusters == 1 or pdist(centers).min() >= 4.5


def test_a_saved_set_opens_with_its_truth(tmp_path):
    points = make_gaussian_clusters(4, 30)
    dataset = open_dataset(points.save(tmp_path / "points.npz"))
    np.testing.assert_array_equal(dataset.read(0, 120), points.X)
    np.testing.assert_array_equal(dataset.labels, points.labels)
    with pytest.raises(InputError, match=r"should end in \.npz"):
        points.save(tmp_path / "points.csv")


@pytest.mark.parametrize(
    ("make", "wrong"),
    [
        (make_gaussian_grid, {"side": 0}),
        (make_gaussian_grid, {"cluster_size": 2.5}),
        (make_gaussian_grid, {"spacing": 0.0}),
        (make_gaussian_rings, {"ring_size": True}),
        (make_gaussian_rings, {"spacing": float("nan")}),
        (make_gaussian_clusters, {"n_features": -1}),
        (make_gaussian_clusters, {"separation": float("inf")}),
        (make_gaussian_clusters, {"separation": "far"}),
    ],
)
def test_refusals(make, wrong):
    ((name, value),) = wrong.items()
    with pytest.raises(InputError, match=f"{name}={value!r}"):
        make(**wrong)
