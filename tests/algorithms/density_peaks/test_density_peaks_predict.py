"""Labels of new rows: of the nearest fitted row that is denser or a centre."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
from sklearn.datasets import make_circles
from sklearn.metrics import adjusted_rand_score
from sklearn.neighbors import KNeighborsClassifier

from mgclust import DensityPeaks, load_result
from mgclust.algorithms import base
from mgclust.algorithms.density_peaks import estimator
from mgclust.base.errors import InputError
from oracles.density_peaks import distances
from support.points import load_points

pytestmark = pytest.mark.xdist_group("workers")

DENSITIES = ("gaussian", "cutoff", "knn")
HERE = {"client": None, "device": "cpu"}


def expected(model, X, new, metric="euclidean"):
    """By the definition, in float64, one row after the other."""
    labels = []
    for d in distances(new, X, metric):
        if d.min() == 0:
            labels.append(model.labels_[d.argmin()])
            continue
        if model.density == "gaussian":
            rho = np.exp(-((d / model.dc_) ** 2)).sum()
        elif model.density == "cutoff":
            rho = (d < model.dc_).sum()
        else:
            rho = 1 / np.sort(d)[model.k - 1]
        denser = np.union1d(np.flatnonzero(model.rho_ >= rho), model.cluster_centers_indices_)
        labels.append(model.labels_[denser[d[denser].argmin()]])
    return np.array(labels)


@pytest.mark.parametrize("metric", ["euclidean", "manhattan", "cosine"])
@pytest.mark.parametrize("density", DENSITIES)
@pytest.mark.parametrize("name", ["wide032", "overlap1"])
def test_equals_the_definition(name, density, metric, device):
    X, _ = load_points(name)
    rng = np.random.default_rng(0)
    X = X[rng.choice(len(X), 1000, replace=False)].astype("float64")
    new = np.concatenate([X[:7], X[:100] + 0.3 * X.std() * rng.normal(size=(100, X.shape[1])), X[:9] + 0.01 * X.std()])
    options = {"density": density, "metric": metric, "n_clusters": 8, "k": 6, "dtype": "float64"}
    model = DensityPeaks(**options, client=None, device=device).fit(X)
    found = model.predict(new)
    assert found.dtype == np.int32 and found.shape == (len(new),)
    np.testing.assert_array_equal(found, expected(model, X, new, metric))
    np.testing.assert_array_equal(found[:7], model.labels_[:7])


@pytest.mark.parametrize("density", DENSITIES)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_fitted_rows_keep_their_labels(density, dtype):
    X = load_points("clusters")[0].astype("float64") + 1e5
    model = DensityPeaks(31, density=density, dtype=dtype, **HERE).fit(X)
    np.testing.assert_array_equal(model.predict(X), model.labels_)
    model.select_centers(5)
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(model)).predict(X), model.labels_)


@pytest.mark.quick("gaussian")
@pytest.mark.parametrize("density", DENSITIES)
def test_same_labels_on_any_number_of_ranks(density, ranks, monkeypatch, tmp_path):
    X = np.random.default_rng(3).normal(size=(4500, 20)).astype("float32")
    X[:, 0] += 6 * (np.arange(4500) % 3)
    new = np.random.default_rng(4).normal(size=(901, 20)) + 3
    np.save(tmp_path / "rows.npy", X)
    np.save(tmp_path / "new.npy", new)
    found = []
    for size in (1, 2, 3, 4):
        for module in (base, estimator):
            monkeypatch.setattr(module, "connect", lambda size=size, **_: ranks(size))
        model = DensityPeaks(3, density=density, device="cpu").fit(tmp_path / "rows.npy")
        found.append(model.predict(tmp_path / "new.npy").tolist())
        assert model.predict(new[:1]).tolist() == found[0][:1]
    assert found[0] == found[1] == found[2] == found[3]


def test_a_row_denser_than_the_centre_of_its_cluster():
    X = np.array([[0.0], [1.0], [2.0], [50.0], [51.0]])
    model = DensityPeaks(2, dc=2.0, **HERE).fit(X)
    assert model.labels_.tolist() == [0, 0, 0, 1, 1]
    assert model.predict([[0.9], [50.5], [1e3], [-7.0]]).tolist() == [0, 1, 1, 0]


def test_what_is_refused(tmp_path):
    X = load_points("rings")[0]
    model = DensityPeaks(15, **HERE).fit(X)
    with pytest.raises(InputError, match="X has 3 features, but DensityPeaks is expecting 2 features"):
        model.predict(np.ones((4, 3)))
    new = X[:5].astype("float64")
    new[3, 1] = np.nan
    with pytest.raises(InputError, match=r"NaN or infinity .* 1 of 10 values, the first in row 3"):
        model.predict(new)
    with pytest.raises(InputError, match=r"rows lie up to 1e\+30 from the fitted rows"):
        model.predict(np.full((1, 2), 1e30))
    with pytest.raises(InputError, match="all-zero rows: 1 of them, the first is row 1"):
        DensityPeaks(3, metric="cosine", **HERE).fit(X + 100).predict([[1.0, 2.0], [0.0, 0.0]])
    model.result_.save(tmp_path / "out")
    with pytest.raises(InputError, match="predict needs the fitted rows"):
        DensityPeaks.from_result(load_result(tmp_path / "out")).predict(X)


@pytest.mark.filterwarnings("ignore::mgclust.ClusteringWarning")
@pytest.mark.parametrize("size", [1, 3])
def test_of_separated_clusters_new_rows_follow_the_nearest(size, ranks, monkeypatch):
    """Links to denser rows jump over the sparser rows that separate two rings."""
    X, _ = make_circles(900, noise=0.05, factor=0.5, random_state=0)
    new, truth = make_circles(900, noise=0.05, factor=0.5, random_state=100)
    for module in (base, estimator):
        monkeypatch.setattr(module, "connect", lambda **_: ranks(size))
    model = DensityPeaks(device="cpu").fit(X)
    assert model.dc_choice_["separated"] and model.n_clusters_ == 2
    nearest = KNeighborsClassifier(1).fit(X.astype("float32"), model.labels_).predict(new.astype("float32"))
    found = model.predict(new)
    np.testing.assert_array_equal(found, nearest)
    assert adjusted_rand_score(truth, found) == 1.0
    np.testing.assert_array_equal(model.select_centers(2).predict(new), found)
    by_links = DensityPeaks(2, device="cpu", dc=model.dc_).fit(X)
    assert by_links.assignment_ == "denser" and (by_links.predict(new) != found).any()
