"""A range of numbers of clusters: one fit each, validity indices, and the number that one of them chooses."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.metrics import adjusted_rand_score
from sklearn.metrics import silhouette_samples as reference_silhouettes

from mgclust import FuzzyCMeans, load_result, plots
from mgclust.algorithms import base
from mgclust.base.errors import ClusteringWarning, InputError
from mgclust.output.report import draw_pictures, sample_rows, write_report
from support.points import load_points

pytestmark = [pytest.mark.xdist_group("workers"), pytest.mark.filterwarnings("ignore::UserWarning")]


def fit(X, device="cpu", sample_weight=None, **parameters):
    options = {"n_clusters_range": (12, 17), "random_state": 0, "n_init": 3} | parameters
    return FuzzyCMeans(device=device, client=None, **options).fit(X, sample_weight=sample_weight)


def fuzzy_silhouette(X, u, weights=1.0, metric="euclidean"):
    second, first = np.sort(u, axis=1)[:, -2:].T
    clear = weights * (first - second)
    return float((clear * reference_silhouettes(X, u.argmax(axis=1), metric=metric)).sum() / clear.sum())


@pytest.mark.parametrize("criterion", ["xie_beni", "modified_partition_coefficient", "fuzzy_silhouette"])
def test_each_criterion_finds_separated_clusters(criterion, device):
    X, y = load_points("rings")
    model = fit(X, device, criterion=criterion)
    assert model.n_clusters_ == 15 and adjusted_rand_score(y, model.labels_) > 0.98
    assert len(model.cluster_centers_) == model.memberships_.shape[1] == 15
    assert model.scan_["n_clusters"].tolist() == list(range(12, 18))


def test_each_candidate_is_the_fit_of_its_number(device):
    X = load_points("rings")[0]
    model = fit(X, device, criterion="fuzzy_silhouette")
    for at, c in enumerate(model.scan_["n_clusters"].tolist()):
        alone = fit(X, device, n_clusters=c, n_clusters_range=None, criterion="fuzzy_silhouette")
        assert not hasattr(alone, "scan_") and alone.n_clusters_ == c
        assert model.scan_["objective"][at] == alone.objective_ and model.scan_["n_iter"][at] == alone.n_iter_
        assert model.scan_["xie_beni"][at] == alone.xie_beni_
        assert model.scan_["fuzzy_silhouette"][at] == pytest.approx(alone.fuzzy_silhouette_, rel=1e-12)
        assert alone.fuzzy_silhouette_ == pytest.approx(fuzzy_silhouette(X, alone.memberships_), abs=1e-6)
        modified = 1 - c / (c - 1) * (1 - alone.partition_coefficient_)
        assert model.scan_["modified_partition_coefficient"][at] == pytest.approx(modified, rel=1e-12)


@pytest.mark.parametrize("metric", ["cosine", "correlation"])
def test_fuzzy_silhouettes_of_angles_and_weights(metric, device, rng):
    X = rng.normal(size=(400, 6)) + 4 * rng.normal(size=(3, 6))[rng.integers(0, 3, 400)]
    weights = rng.random(400)
    model = fit(X, device, weights, n_clusters=3, n_clusters_range=None, metric=metric, criterion="fuzzy_silhouette")
    assert model.fuzzy_silhouette_ == pytest.approx(fuzzy_silhouette(X, model.memberships_, weights, metric), abs=1e-6)


@pytest.mark.quick("2")
@pytest.mark.parametrize("size", [2, 3, 4])
def test_same_bits_on_any_number_of_ranks(size, ranks, monkeypatch):
    X = np.random.default_rng(3).normal(size=(6000, 5)) * 3 + load_points("pendigits")[0][:6000, :5]

    def on(size):
        monkeypatch.setattr(base, "connect", lambda **_: ranks(size))
        return fit(X, n_clusters_range=(2, 4), criterion="fuzzy_silhouette", max_iter=8, n_init=1)

    one, several = on(1), on(size)
    assert several.n_clusters_ == one.n_clusters_
    for name, column in one.scan_.items():
        np.testing.assert_array_equal(several.scan_[name], column, err_msg=name)
    np.testing.assert_array_equal(several.cluster_centers_, one.cluster_centers_)
    np.testing.assert_array_equal(several.memberships_, one.memberships_)


def test_the_end_of_the_range_is_said(device):
    X = load_points("rings")[0]
    with pytest.warns(ClusteringWarning, match=r"chooses n_clusters=15, at the end of .*\(12, 15\).*widen the range"):
        FuzzyCMeans(n_clusters_range=(12, 15), n_init=3, random_state=0, device=device, client=None).fit(X)
    with pytest.warns(ClusteringWarning, match=r"n_clusters=15, at the end .* end the range near sqrt\(n_samples\)=4"):
        FuzzyCMeans(n_clusters_range=(14, 15), random_state=0, device=device, client=None).fit(X[::36])


@pytest.mark.parametrize(
    ("parameters", "says"),
    [
        ({"n_clusters_range": (1, 4)}, "should begin at 2"),
        ({"n_clusters_range": (5, 2)}, "n_clusters_range"),
        ({"n_clusters_range": (2, 999)}, "n_samples=600 should be >= n_clusters=999"),
        ({"n_clusters_range": (2, 600)}, r"\(2, 600\) should end below n_samples=600: .* every index is perfect"),
        ({"n_clusters_range": (2, 3), "init": np.zeros((3, 2))}, "init is an array"),
        ({"criterion": "best"}, "criterion='best'"),
    ],
)
def test_refused(parameters, says):
    with pytest.raises(InputError, match=says):
        fit(load_points("rings")[0], **parameters)


@pytest.mark.slow
def test_report_and_picture(tmp_path):
    X = load_points("rings")[0]
    model = fit(X, criterion="fuzzy_silhouette")
    result = load_result(model.result_.save(tmp_path / "out"))
    pictures = draw_pictures(result, sample_rows(model._dataset, result))
    assert "validity" in pictures
    write_report(result, tmp_path / "report.html", pictures, [])
    page = (tmp_path / "report.html").read_text()
    assert "6 numbers of clusters, chosen by fuzzy_silhouette" in page and "fuzzy silhouette" in page
    with pytest.raises(InputError, match="n_clusters_range"):
        plots.validity(fit(X, n_clusters=3, n_clusters_range=None).result_)


def test_fits_of_a_range_that_have_not_settled_are_named(rng):
    X = rng.normal(size=(300, 2))
    model = fit(X, n_clusters_range=(2, 4), n_init=1, max_iter=2)
    assert model.stop_reason_ == "max_iter"
    first, second = (text for text in model.result_.warnings if "max_iter" in text)
    assert f"in iteration max_iter=2 of the fit with n_clusters={model.n_clusters_}, more" in first
    others = ", ".join(str(c) for c in (2, 3, 4) if c != model.n_clusters_)
    assert f"fits with n_clusters={others} had not converged" in second
