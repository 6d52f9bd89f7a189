"""`DensityPeaks(density="knn", k="adaptive", significance=)` against the papers' equations in float64."""

from __future__ import annotations

import json
import warnings

import numpy as np
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from sklearn.datasets import make_blobs
from sklearn.metrics import adjusted_rand_score, pairwise_distances

from mgclust import ClusteringWarning, DensityPeaks, load_result
from mgclust.base.errors import InputError, InsufficientMemoryError
from oracles import density_topography as reference
from oracles.density_peaks import check_nearest_higher
from support.points import load_points

pytestmark = pytest.mark.filterwarnings("ignore::mgclust.base.errors.ClusteringWarning")

quick = settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck), derandomize=True)
shapes = st.tuples(st.integers(12, 60), st.integers(1, 3))
lattices = shapes.flatmap(lambda shape: arrays("float64", shape, elements=st.integers(-4, 4).map(float)))


def fit(X, device="cpu", **parameters):
    defaults = {"density": "knn", "k": "adaptive", "significance": 1.65, "dtype": "float64"}
    return DensityPeaks(**{**defaults, "device": device, "client": None, **parameters}).fit(X)


def check(model, X, metric="euclidean"):
    """Compare a fit with the definitions."""
    expected = reference.densities(X, model.k, metric)
    assert model.intrinsic_dim_ == pytest.approx(expected.dim, rel=1e-9)
    np.testing.assert_array_equal(model.k_, expected.k)
    np.testing.assert_allclose(model.log_density_, expected.value, atol=1e-6)
    np.testing.assert_allclose(model.log_density_error_, expected.error, rtol=1e-12)
    check_nearest_higher(X, model.rho_, model.delta_, model.nearest_higher_, metric)
    # Of the densities found: rows of nearly equal density may have another order.
    found = reference.Densities(expected.dim, model.k_, model.log_density_, model.log_density_error_)
    width = min(100, len(X) - 1) if model.k == "adaptive" else model.k
    truth = reference.topography(X, found, model.significance, width, metric)
    centers = model.cluster_centers_indices_
    np.testing.assert_array_equal(centers[model.labels_], truth.owner)
    heights = dict(zip(centers.tolist(), model.significance_.tolist(), strict=True))
    assert heights == pytest.approx(truth.heights)
    saddles = {tuple(sorted(centers[[a, b]].tolist())): int(row) for a, b, row in model.saddles_}
    assert saddles == truth.saddles
    assert model.result_.diagnostics["peaks"]["found"] == len(truth.peaks)
    highest = {
        p: max((model.log_density_[r] for pair, r in saddles.items() if p in pair), default=-np.inf) for p in centers
    }
    if model.halo:
        np.testing.assert_array_equal(model.halo_, model.log_density_ < [highest[p] for p in centers[model.labels_]])
    return truth


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("rings", {"halo": True}),
        ("overlap", {}),
        ("overlap", {"k": 12, "halo": True}),
        ("overlap", {"metric": "manhattan", "significance": 0.0}),
        ("noise", {"significance": 3.0}),
    ],
)
@pytest.mark.quick("cpu-rings*", "cpu-overlap-options2")
def test_equals_the_papers(name, options, device):
    if name == "rings":
        X = load_points("rings")[0][::2]
    elif name == "overlap":
        X = make_blobs(400, 4, centers=6, cluster_std=1.8, random_state=2)[0]
    else:
        X = np.random.default_rng(3).random((300, 2))
    model = fit(np.asarray(X, "float64"), device, **options)
    check(model, np.asarray(X, "float64"), options.get("metric", "euclidean"))


@quick
@given(lattices, st.sampled_from(["adaptive", 5]))
def test_ties_and_equal_rows(X, k):
    """Lattices: equal distances, equal rows, a dimension that is hard to tell."""
    assume(len(np.unique(X, axis=0)) > 2)
    r, _ = reference.neighbor_lists(X, min(100, len(X) - 1) if k == "adaptive" else k)
    assume((r[:, -1] > 0).all())
    model = fit(X, k=k)
    for name in ("rho_", "log_density_", "log_density_error_", "delta_"):
        assert np.isfinite(getattr(model, name)).all(), name
    assert model.intrinsic_dim_ <= X.shape[1] and model.labels_.min() == 0
    _, group = np.unique(X, axis=0, return_inverse=True)
    for name in ("rho_", "k_", "log_density_"):
        values = getattr(model, name)
        first = np.zeros(group.max() + 1, values.dtype)
        first[group] = values
        np.testing.assert_array_equal(values, first[group], err_msg=name)


def test_many_equal_rows():
    """Rows that have 100 equal ones are denser than all others, and the errors of their densities are doubted."""
    rng = np.random.default_rng(0)
    X = np.concatenate([rng.normal(size=(300, 2)), np.full((150, 2), 9.0)])
    model = fit(X)
    assert np.isfinite(model.log_density_).all() and model.k_[-1] == 100
    assert set(np.flatnonzero(model.rho_ == model.rho_.max())) == set(range(300, 450))
    assert model.exactness_["intrinsic_dim_rows"] == 300
    assert len(set(model.labels_[300:])) == 1 and not set(model.labels_[:300]) & set(model.labels_[300:])
    with pytest.warns(ClusteringWarning, match="intrinsic_dim=2 is the number of features, because all 90 rows"):
        fit(np.tile(rng.normal(size=(30, 2)), (3, 1)))
    with pytest.raises(InputError, match="each row is equal to 100 other rows"):
        fit(np.ones((200, 2)))


def test_given_distances_and_their_rows(device):
    X = make_blobs(350, 8, centers=5, random_state=4)[0]
    rows, given_ = fit(X, device), fit(pairwise_distances(X), device, metric="precomputed")
    np.testing.assert_array_equal(rows.k_, given_.k_)
    np.testing.assert_allclose(rows.log_density_, given_.log_density_, rtol=1e-9)
    np.testing.assert_array_equal(rows.labels_, given_.labels_)
    lattice = pairwise_distances(np.arange(40.0)[:, None])
    with pytest.raises(InputError, match=r"the intrinsic dimension is unknown, .* use an integer k without"):
        fit(np.kron(lattice, np.ones((2, 2))), metric="precomputed")


def test_blobs_noise_and_sparse_rows():
    scipy_sparse = pytest.importorskip("scipy.sparse")
    X, truth = make_blobs(900, 3, centers=7, cluster_std=0.7, random_state=1)
    model = fit(X, dtype="float32")
    assert model.n_clusters_ == 7 and adjusted_rand_score(truth, model.labels_) > 0.95
    np.testing.assert_array_equal(fit(scipy_sparse.csr_matrix(X), dtype="float32").labels_, model.labels_)
    one = fit(np.random.default_rng(1).random((400, 2)))
    assert one.n_clusters_ == 1 and np.isinf(one.significance_).all() and one.saddles_.shape == (0, 3)


def test_peaks_that_noise_has_are_warned_of():
    X = np.random.default_rng(0).random((600, 2))
    with pytest.warns(
        ClusteringWarning, match=r"\d+ of \d+ peaks exceed .* less than 3 standard errors, as peaks of noise do"
    ):
        weak = fit(X, significance=0.5)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert fit(X, significance=3).n_clusters_ < weak.n_clusters_


def test_small_clusters_that_are_merged_are_warned_of():
    """Fifteen clusters of 40 rows, which stand apart: neighbourhoods of 100 rows reach beyond them."""
    X = load_points("rings")[0]
    with pytest.warns(
        ClusteringWarning, match=r"3 of 7 clusters hold several of the 15 centres that stand out with k=24; compare"
    ):
        model = fit(X, dtype="float32")
    assert model.result_.diagnostics["peaks"] | {"merged": None} == {
        "found": 11, "merged": None, "standing": 15, "joined": 3, "tiny": 0
    }  # fmt: skip
    others = [text for text in model.select_centers(7).result_.warnings if "hold several" in text]
    apart = make_blobs(900, 3, centers=5, cluster_std=0.7, random_state=1)[0]
    assert not others and fit(apart).result_.diagnostics["peaks"]["joined"] == 0


def test_the_density_alone_leaves_the_choice_of_centres():
    X = make_blobs(500, 2, centers=4, cluster_std=0.5, random_state=5)[0]
    model = fit(X, significance=None, n_clusters=3)
    assert model.n_clusters_ == 3 and model.significance_ is None and model.saddles_ is None
    np.testing.assert_array_equal(model.k_, fit(X).k_)
    fixed, tested = fit(X, significance=None, k=9), fit(X, k=9)
    np.testing.assert_array_equal(fixed.rho_, tested.rho_)
    np.testing.assert_array_equal(fixed.delta_, tested.delta_)
    assert fixed.k_ is None and (tested.k_ == 9).all() and tested.dc_ is None


def test_saved_and_opened_again_and_other_centres(tmp_path):
    X = load_points("rings")[0]
    model = fit(X, halo=True)
    model.result_.save(tmp_path / "out")
    again = DensityPeaks.from_result(load_result(tmp_path / "out"))
    for name in ("k_", "log_density_", "log_density_error_", "significance_", "saddles_", "halo_", "labels_"):
        np.testing.assert_array_equal(getattr(again, name), getattr(model, name), err_msg=name)
    assert again.intrinsic_dim_ == model.intrinsic_dim_ and again.k == "adaptive" and again.significance == 1.65
    other = again.select_centers(4)
    assert other.n_clusters_ == 4 and other.significance_ is None and not other.halo_.any()
    assert other.result_.parameters["significance"] is None and "saddles" not in other.result_.arrays
    assert "peaks" not in other.result_.diagnostics
    np.testing.assert_array_equal(other.labels_, model.select_centers(4).labels_)
    json.dumps(model.result_.diagnostics)


def test_predict():
    X, truth = make_blobs(800, 2, centers=5, cluster_std=0.6, random_state=7)
    model = fit(X[:600])
    np.testing.assert_array_equal(model.predict(X[:600]), model.labels_)
    new = model.predict(X[600:])
    assert adjusted_rand_score(truth[600:], new) > 0.95
    np.testing.assert_array_equal(new, np.concatenate([model.predict(X[600:650]), model.predict(X[650:])]))


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"density": "gaussian"}, "k='adaptive' needs density='knn', .* density='gaussian' is given"),
        ({"density": "cutoff", "k": 16}, "significance=1.65 needs density='knn'"),
        ({"n_clusters": 3}, "significance=1.65 finds the number of clusters: leave out n_clusters"),
        ({"rho_min": 0.5}, "significance=1.65 finds the number of clusters"),
        ({"k": 2}, "k=2 should be >= 3 with significance"),
        ({"k": "Adaptive"}, "should be an integer >= 1, or 'adaptive'"),
        ({"significance": -1}, "significance=-1 should be a finite number >= 0"),
    ],
)
def test_what_is_refused(parameters, message):
    with pytest.raises(InputError, match=message):
        fit(np.random.default_rng(0).random((30, 2)), **parameters)


def test_few_rows_and_weights_are_refused():
    with pytest.raises(InputError, match="k='adaptive' needs n_samples >= 5, not 4"):
        fit(np.eye(4))
    assert fit(np.random.default_rng(0).random((5, 2))).n_clusters_ == 1
    with pytest.raises(InputError, match="density='knn' takes no sample_weight"):
        DensityPeaks(density="knn", k="adaptive", client=None).fit(np.eye(9), sample_weight=np.arange(9.0))


def test_lists_count_as_memory():
    with pytest.raises(InsufficientMemoryError, match="nearest rows"):
        fit(np.random.default_rng(0).normal(size=(20000, 2)), memory_limit="20 MB")


def test_the_report_tells_of_peaks_and_saddles():
    model = fit(load_points("rings")[0])
    presentation = model.presentation
    words = dict(presentation.summary(model.result_))
    assert words["peaks"].startswith(f"{model.n_clusters_} of {model.result_.diagnostics['peaks']['found']} are")
    clusters, saddles = presentation.tables(model.result_)
    assert "height over its highest saddle, in standard errors" in clusters.columns
    assert saddles.heading.startswith("Saddles between clusters") and len(saddles.rows) == len(model.saddles_)


def test_rows_of_27_kinds_have_a_fit(device):
    """The 24 nearest rows of each are equal to it, so that no centre can be seen by them alone."""
    X = np.random.default_rng(0).integers(0, 3, (800, 2))
    model = DensityPeaks(density="knn", k="adaptive", significance=1.65, device=device, client=None).fit(X)
    peaks = model.result_.diagnostics["peaks"]
    assert model.n_clusters_ >= 1 and peaks["standing"] == peaks["joined"] == 0


def test_clusters_of_a_row_or_two_are_said():
    """Their significance may be large."""
    X = np.random.default_rng(0).random((300, 16)) < 0.5
    with pytest.warns(ClusteringWarning, match=r"1 of 2 clusters have fewer than 3 rows, .*: treat them as outliers"):
        model = fit(X)
    assert np.bincount(model.labels_).min() == 1 and model.significance_.min() > 6


def test_equal_rows_are_not_told_to_raise_a_word():
    with pytest.raises(InputError, match=r"k='adaptive': each row is equal to 100 other rows.*give a k above 100"):
        fit(np.repeat(np.eye(3), 150, axis=0))
