"""`DensityPeaks` against the float64 oracle, on generated sets, sets of the literature and awkward ones."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from scipy.spatial.distance import cdist
from sklearn.metrics import adjusted_rand_score

from mgclust import DensityPeaks
from mgclust.algorithms.density_peaks.cutoff_distance import pair_quantile
from mgclust.base.errors import AmbiguousCountWarning, ClusteringWarning, InputError
from mgclust.datasets import make_gaussian_clusters
from mgclust.kernels import load
from oracles import density_peaks as reference
from support.points import GENERATED, TRUE_CLUSTERS, load_points

NAMES = [name for name in TRUE_CLUSTERS if name != "grid"]

# What the oracle's labels score against the truth (dc = 2% of the pairs, the true number of centres).
SCORES = {
    "rings": 0.985,
    "clusters": 0.971,
    "overlap1": 0.993,
    "overlap2": 0.936,
    "overlap3": 0.703,
    "blobs": 0.867,
    "spirals": 1.0,
    **{name: 1.0 for name in TRUE_CLUSTERS if name.startswith("wide")},
}


@pytest.fixture(scope="session")
def oracle():
    """The oracle's answers, computed once a session."""
    known = {}

    def answer(name):
        if name not in known:
            known[name] = reference.density_peaks(load_points(name)[0], TRUE_CLUSTERS[name])
        return known[name]

    return answer


def fit(X, device, **parameters):
    return DensityPeaks(device=device, client=None, **parameters).fit(X)


def blobs(rng, n=400, d=5, k=4, spread=6.0):
    return rng.normal(size=(n, d)) + spread * rng.normal(size=(k, d))[rng.integers(0, k, n)]


@pytest.mark.quick("cpu-blobs", "cpu-spirals", "cpu-moons", "cpu-wide032", "cpu-wide128")
@pytest.mark.parametrize("name", NAMES)
def test_equals_the_oracle(name, device, oracle):
    X, y = load_points(name)
    model = fit(X, device, n_clusters=TRUE_CLUSTERS[name])
    atol = reference.rounding(X, "float32")
    ties = reference.check_against_reference(X, model, oracle(name), atol=atol)
    reference.check_nearest_higher(X, model.rho_, model.delta_, model.nearest_higher_, atol=atol)
    assert ties <= 0.002 * len(X) + 2
    np.testing.assert_array_equal(reference.owners(model), oracle(name).owner)
    assert adjusted_rand_score(y, model.labels_) >= SCORES.get(name, 0.0)


@pytest.mark.quick("cpu-rings", "cpu-wide064")
@pytest.mark.parametrize("name", ["rings", "clusters", "overlap1", "wide064"])
def test_equals_the_oracle_in_double_precision(name, device, oracle):
    X, _ = load_points(name)
    model = fit(X, device, n_clusters=TRUE_CLUSTERS[name], dtype="float64")
    ref = oracle(name)
    atol = reference.rounding(X, "float64")
    reference.check_against_reference(X, model, ref, rtol_rho=1e-10, atol=atol)
    np.testing.assert_allclose(model.dc_, ref.dc, rtol=1e-12)
    np.testing.assert_allclose(model.delta_, ref.delta, rtol=1e-9, atol=atol)


@pytest.mark.quick("cpu-rings-*", "cpu-clusters-grid")
@pytest.mark.parametrize("algorithm", ["brute", "grid"])
@pytest.mark.parametrize("name", ["rings", "clusters", "overlap2"])
def test_both_algorithms(name, algorithm, device, oracle):
    X, _ = load_points(name)
    model = fit(X, device, n_clusters=TRUE_CLUSTERS[name], algorithm=algorithm)
    reference.check_against_reference(X, model, oracle(name), atol=reference.rounding(X, "float32"))
    np.testing.assert_array_equal(reference.owners(model), oracle(name).owner)


@pytest.mark.parametrize("kernel", ["gaussian", "cutoff"])
@pytest.mark.parametrize(
    ("d", "metric"), [(1, "euclidean"), (2, "sqeuclidean"), (3, "euclidean"), (3, "cosine"), (2, "cosine")]
)
def test_grid_equals_brute(d, metric, kernel, device, rng):
    X = blobs(rng, n=3000, d=d, k=7)
    options = {"n_clusters": 7, "metric": metric, "density": kernel, "halo": True}
    grid, brute = (fit(X, device, algorithm=algorithm, **options) for algorithm in ("grid", "brute"))
    assert grid.exactness_["algorithm"] == "grid"
    assert brute.exactness_["algorithm"] == "brute"
    assert grid.dc_ == brute.dc_
    np.testing.assert_allclose(grid.rho_, brute.rho_, rtol=5e-6 if kernel == "gaussian" else 0)
    differ = np.flatnonzero(grid.nearest_higher_ != brute.nearest_higher_)
    if kernel == "cutoff":
        assert len(differ) == 0
        np.testing.assert_array_equal(grid.delta_, brute.delta_)
        np.testing.assert_array_equal(grid.labels_, brute.labels_)
        np.testing.assert_array_equal(grid.halo_, brute.halo_)
    for i in differ:  # only densities that agree to rounding may change places
        pair = [j for j in (grid.nearest_higher_[i], brute.nearest_higher_[i]) if j >= 0]
        assert min(abs(brute.rho_[j] - brute.rho_[i]) for j in pair) <= 1e-5 * brute.rho_[i]


def test_grid_refuses_what_it_cannot_do(device, rng):
    for options, d in (({}, 4), ({"metric": "manhattan"}, 2)):
        with pytest.raises(InputError, match="algorithm='grid'"):
            fit(blobs(rng, d=d), device, n_clusters=2, algorithm="grid", **options)


@pytest.mark.parametrize("fraction", [0.01, 0.02])
@pytest.mark.parametrize("name", ["rings", "clusters", "blobs", "pendigits"])
def test_dc_of_a_set_is_the_sorted_distance(name, fraction, device):
    X, _ = load_points(name)
    X = X[:4000]
    model = fit(X, device, n_clusters=3, dc_fraction=fraction)
    assert model.dc_ == pytest.approx(reference.cutoff_distance(X, fraction), rel=2e-6)


@pytest.mark.parametrize("fraction", [0.01, 0.02, 0.2])
def test_dc_of_one_gaussian_cluster_is_that_of_the_rayleigh_distribution(fraction, device):
    """The distance of two points is Rayleigh of scale sqrt(2): P(distance <= r) = 1 - exp(-r^2 / 4)."""
    X = make_gaussian_clusters(1, 4000).X
    expected = 2 * np.sqrt(-np.log1p(-fraction))
    assert fit(X, device, n_clusters=2, dc_fraction=fraction).dc_ == pytest.approx(expected, rel=0.03)


@pytest.mark.parametrize("name", ["rings", "clusters"])
def test_labels_are_nearly_as_good_as_the_rule_that_knows_the_centres(name, device):
    """Of equal spherical Gaussians no rule is better in the mean than the nearest true centre."""
    X, y, centers = GENERATED[name]()
    best = adjusted_rand_score(y, reference.distances(X, centers).argmin(axis=1))
    assert adjusted_rand_score(y, fit(X, device).labels_) >= best - 0.02


@pytest.mark.parametrize("fraction", [1e-9, 0.001, 0.01, 0.02, 0.3, 0.5, 0.999, 1.0])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_dc_is_the_exact_order_statistic(fraction, dtype, device, rng):
    X = rng.normal(size=(257, 3)).astype("float32")
    model = fit(X, device, n_clusters=2, dc_fraction=fraction, dtype=dtype)
    rtol = 2e-6 if dtype == "float32" else 1e-12
    assert model.dc_ == pytest.approx(reference.cutoff_distance(X, fraction), rel=rtol)


def test_dc_among_equal_distances_is_exact(device, rng):
    """On a lattice few distinct distances occur, each many times; float32 holds their squares exactly."""
    X = rng.integers(0, 12, (300, 2)).astype("float32")
    for fraction in (0.02, 0.1, 0.5, 0.9):
        expected = reference.cutoff_distance(X, fraction)
        assert fit(X, device, n_clusters=2, dc_fraction=fraction).dc_ == pytest.approx(expected, rel=1e-7)


@pytest.fixture
def small_samples(monkeypatch):
    """Samples of the rows far smaller than the test sets, so that few rows take the way of many."""
    monkeypatch.setattr(pair_quantile, "BRACKETING_ROWS", 200)
    monkeypatch.setattr(pair_quantile, "FIRST_ROWS", 200)
    monkeypatch.setattr(pair_quantile, "SECOND_ROWS", 700)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["overlap1", "pendigits", "wide064"])
def test_sampled_dc_reports_its_error(name, device, small_samples):
    X, _ = load_points(name)
    exact = reference.cutoff_distance(X)
    options = {"n_clusters": 15, "dc_method": "sample"}
    models = [fit(X, device, random_state=seed, **options) for seed in (0, 0, 1, 2, 3)]
    assert models[0].dc_ == models[1].dc_
    assert len({model.dc_ for model in models}) > 1
    for model in models:
        assert 0 < model.dc_error_ < 0.5 * exact
        assert abs(model.dc_ - exact) <= 2 * model.dc_error_
    assert fit(X, device, n_clusters=15).dc_error_ == 0.0


@pytest.mark.slow
@pytest.mark.parametrize("algorithm", ["brute", "grid"])
@pytest.mark.parametrize("fraction", [0.0001, 0.02, 0.6, 1.0])
def test_dc_of_more_rows_than_the_sample_is_exact(fraction, algorithm, device, small_samples):
    """The bracket comes from a sample, the answer from all pairs."""
    for name in ("overlap2", "wide064") if algorithm == "brute" else ("overlap2",):
        X = load_points(name)[0]
        expected = reference.cutoff_distance(X, fraction)
        model = fit(X, device, n_clusters=10, dc_fraction=fraction, algorithm=algorithm, dtype="float64")
        assert model.dc_ == pytest.approx(expected, rel=1e-11)
        assert model.exactness_["dc_passes"] >= 1


def test_a_misleading_sample_costs_passes_not_exactness(device, small_samples):
    """Rows in an order, and a sample that happens to hold none of the one far group that decides."""
    rng = np.random.default_rng(5)
    X = np.concatenate([np.zeros((3000, 2)), rng.normal(size=(40, 2)) * 1e-3 + 50.0]).astype("float32")
    X[:3000] += rng.normal(size=(3000, 2)).astype("float32") * 1e-6
    for fraction in (0.02, 0.9999):
        expected = reference.cutoff_distance(X, fraction)
        model = fit(X, device, n_clusters=2, dc_fraction=fraction, algorithm="brute", dtype="float64")
        assert model.dc_ == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("kernel", ["gaussian", "cutoff"])
@pytest.mark.parametrize("metric", reference.METRICS)
@pytest.mark.parametrize("d", [2, 5, 40])
def test_metrics_and_kernels(metric, kernel, d, dtype, device, rng):
    X = blobs(rng, d=d)
    if metric == "correlation" and d == 2:
        pytest.skip("two features: every correlation is -1 or 1")
    # Half way between two pair distances, so that rounding moves none across it.
    pairs = np.sort(reference.pdist(X, reference.CDIST_NAMES[metric]))
    k = round(0.03 * len(pairs))
    k += int(np.argmax(np.diff(pairs[k : k + 200])))
    dc = float(pairs[k : k + 2].mean())
    ref = reference.density_peaks(X, 4, dc=dc, kernel=kernel, metric=metric)
    model = fit(X, device, n_clusters=4, dc=dc, density=kernel, metric=metric, dtype=dtype)
    eps = np.finfo(dtype).eps
    if metric in ("cosine", "correlation"):
        atol = 4 * eps * d**0.5 * ref.delta.max()
    elif metric == "sqeuclidean":
        atol = 2 * reference.rounding(X, dtype) * ref.delta.max() ** 0.5
    else:
        atol = d**0.5 * reference.rounding(X, dtype)
    rtol = 3e-5 if dtype == "float32" else 1e-9
    reference.check_against_reference(X, model, ref, metric=metric, rtol_rho=rtol, atol=atol)
    if kernel == "cutoff":
        np.testing.assert_array_equal(model.rho_, ref.rho)
    np.testing.assert_array_equal(reference.owners(model), ref.owner)


@pytest.mark.parametrize("algorithm", ["brute", "grid"])
def test_ties_of_density_and_of_distance(device, rng, algorithm):
    """Counts on a lattice: most points share their density, most distances occur several times."""
    X = np.unique(rng.integers(0, 25, (400, 2)), axis=0).astype("float32")
    rng.shuffle(X)
    ref = reference.density_peaks(X, 5, dc=3.5, kernel="cutoff")
    assert len(np.unique(ref.rho)) < len(X) / 5
    model = fit(X, device, n_clusters=5, dc=3.5, density="cutoff", algorithm=algorithm)
    np.testing.assert_array_equal(model.rho_, ref.rho)
    np.testing.assert_array_equal(model.nearest_higher_, ref.higher)
    np.testing.assert_allclose(model.delta_, ref.delta, rtol=1e-6)
    np.testing.assert_array_equal(np.sort(model.cluster_centers_indices_), ref.centers)
    np.testing.assert_array_equal(reference.owners(model), ref.owner)


def test_duplicated_points(device, rng):
    X = np.repeat(rng.integers(0, 30, (60, 2)), 5, axis=0).astype("float32")
    rng.shuffle(X)
    ref = reference.density_peaks(X, 3, dc=4.5, kernel="cutoff")
    model = fit(X, device, n_clusters=3, dc=4.5, density="cutoff")
    np.testing.assert_array_equal(model.nearest_higher_, ref.higher)
    np.testing.assert_array_equal(reference.owners(model), ref.owner)
    assert (model.delta_ == 0).sum() >= 200


@pytest.mark.parametrize("name", ["rings", "clusters", "blobs", "overlap2"])
def test_halo(name, device, oracle):
    X, _ = load_points(name)
    ref = oracle(name)
    model = fit(X, device, n_clusters=TRUE_CLUSTERS[name], halo=True, dtype="float64")
    expected = reference.halo(X, ref.rho, ref.owner, ref.dc)
    assert model.halo_.dtype == bool
    np.testing.assert_array_equal(model.halo_, expected)
    single = fit(X, device, n_clusters=TRUE_CLUSTERS[name], halo=True)
    assert (single.halo_ != expected).mean() <= 0.002  # a point *on* dc decides a whole border density


def test_no_halo_unless_asked_for(device):
    model = fit(load_points("rings")[0], device, n_clusters=15)
    assert not np.any(model.halo_)


def test_one_cluster_has_no_halo(device):
    model = fit(load_points("rings")[0], device, n_clusters=1, halo=True)
    assert not model.halo_.any()
    assert (model.labels_ == model.labels_[0]).all()


def test_select_centers_relabels_without_another_pass(device, oracle):
    X, _ = load_points("clusters")
    ref = oracle("clusters")
    model = fit(X, device, n_clusters=5)
    rho = model.rho_
    model.select_centers(n_clusters=31)
    assert model.rho_ is rho
    np.testing.assert_array_equal(reference.owners(model), ref.owner)
    assert model.n_clusters_ == 31

    threshold = {"rho_min": float(np.quantile(ref.rho, 0.3)), "delta_min": 2.0}
    model.select_centers(**threshold)
    expected = np.flatnonzero((ref.rho > threshold["rho_min"]) & (ref.delta > 2.0))
    np.testing.assert_array_equal(np.sort(model.cluster_centers_indices_), expected)
    fresh = fit(X, device, **threshold)
    np.testing.assert_array_equal(fresh.labels_, model.labels_)

    with pytest.raises(InputError, match=f"densest row, {ref.rho.argmax()}"):
        model.select_centers(indices=[10, 500])  # some chains end at the densest row
    chosen = [10, 500, int(ref.rho.argmax()), 2999]
    model.select_centers(indices=chosen)
    np.testing.assert_array_equal(np.sort(model.cluster_centers_indices_), np.sort(chosen))
    assert (reference.owners(model)[chosen] == chosen).all()
    assert set(np.unique(model.labels_)) == set(range(4))


def test_automatic_centers_are_sensible(device):
    for name in ("rings", "overlap1", "wide128"):
        X, y = load_points(name)
        model = fit(X, device)
        assert 2 <= model.n_clusters_ <= 40, name
        assert adjusted_rand_score(y, model.labels_) > 0.7, name


def test_far_from_the_origin(device, rng):
    """Centring keeps float32 useful 1000 spreads away from the origin."""
    X = blobs(rng, n=600, d=64).astype("float64")
    near = fit(X, device, n_clusters=4)
    far = fit(X + 1000.0, device, n_clusters=4)
    np.testing.assert_array_equal(far.labels_, near.labels_)
    np.testing.assert_allclose(far.rho_, near.rho_, rtol=2e-3)


def test_input_is_left_alone_and_float32_is_the_default(device):
    X, _ = load_points("rings")  # read-only
    before = X.copy()
    model = fit(X, device, n_clusters=15)
    np.testing.assert_array_equal(X, before)
    assert model.labels_.shape == model.rho_.shape == model.delta_.shape == (600,)
    assert model.n_features_in_ == 2


def test_column_order_and_strides_do_not_matter(device):
    X, _ = load_points("overlap1")
    model = fit(X, device, n_clusters=15)
    wide = np.zeros((2 * len(X), 5), X.dtype)
    wide[::2, 1:4:2] = X
    for other in (np.asfortranarray(X), wide[::2, 1:4:2]):
        np.testing.assert_array_equal(fit(other, device, n_clusters=15).rho_, model.rho_)


def test_exactness_is_reported(device):
    model = fit(load_points("overlap1")[0], device, n_clusters=15, algorithm="brute")
    assert model.exactness_["algorithm"] == "brute" and model.exactness_["norm"] == "l2"
    assert 0 < model.exactness_["rho_relative_error"] < 1e-4
    assert {"load", "prepare", "dc", "rho", "delta", "labels"} <= set(model.timings_)
    assert all(seconds > 0 for seconds in model.timings_.values())


@pytest.mark.parametrize("name", ["overlap1", "wide128"])
def test_runs_repeat_to_the_bit(name, device):
    X, _ = load_points(name)
    first, second = (fit(X, device, n_clusters=15) for _ in range(2))
    for attribute in ("rho_", "delta_", "nearest_higher_", "labels_"):
        np.testing.assert_array_equal(getattr(first, attribute), getattr(second, attribute))


@pytest.mark.parametrize("offset", [1e3, 1e6, 1e9])
def test_float64_rows_far_from_the_origin(device, offset):
    """They are moved there before float32 could cost them the digits by which they differ."""
    X, _ = load_points("rings")
    near, far = (fit(rows, device, n_clusters=15) for rows in (X, X + offset))
    np.testing.assert_allclose(far.rho_, near.rho_, rtol=1e-5)
    np.testing.assert_array_equal(far.labels_, near.labels_)


@pytest.mark.parametrize("dc", [1e300, 1e-300])
def test_dc_whose_square_does_not_exist(device, dc):
    X, _ = load_points("rings")
    with pytest.raises(InputError, match="should be between"):
        fit(X, device, dc=dc)


def test_the_report_says_how_a_cpu_computes_distances(rng):
    X = rng.normal(size=(300, 20))
    model = fit(X, "cpu", dc=5.0)
    assert model.exactness_["norm"] == "l2-dot"
    rows, sums = X.astype(np.float32), {"l2": np.zeros(len(X)), "l2-dot": np.zeros(len(X))}
    for norm, out in sums.items():
        load("cpu").pairs.gaussian_sum(rows, rows, norm=norm, scale=0.04, power=1, out=out)
    assert (sums["l2-dot"] != sums["l2"]).any()
    np.testing.assert_allclose(sums["l2-dot"], sums["l2"], rtol=1e-6)
    told = model.presentation.facts["norm"].values["l2-dot"]
    assert told.startswith("products; direct differences")


@pytest.mark.parametrize(
    ("shape", "metric", "parameters"),
    [
        ((3000, 1), "euclidean", {}),
        ((3000, 2), "euclidean", {"dtype": "float64"}),
        ((10_500, 2), "euclidean", {"dc_fraction": 1e-4}),  # grid
        ((3000, 3), "sqeuclidean", {}),
        ((3000, 8), "manhattan", {}),
        ((2000, 20), "cosine", {}),
        ((2000, 20), "cosine", {"dtype": "float64"}),
        ((2000, 40), "euclidean", {}),
    ],
)
def test_stated_error_of_rho_holds(shape, metric, parameters):
    """Also where dc is small beside the coordinates, so that rounding of rows decides it."""
    X = np.random.default_rng(0).normal(size=shape) + (30 if metric == "cosine" else 1 / 3)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = DensityPeaks(5, **{"dc_fraction": 1e-3, "metric": metric, "client": None, "device": "cpu"} | parameters)
        model.fit(X)
    rho = np.empty(len(X))
    if metric == "cosine":
        X = X / np.linalg.norm(X, axis=1, keepdims=True)
    for start in range(0, len(X), 500):
        rows = X[start : start + 500]
        if metric == "manhattan":
            d = cdist(rows, X, "cityblock")
        else:
            d = cdist(rows, X, "sqeuclidean" if metric in ("cosine", "sqeuclidean") else "euclidean")
        if metric == "cosine":
            d /= 2
        terms = np.exp(-((d / model.dc_) ** 2))
        terms[np.arange(len(rows)), np.arange(start, start + len(rows))] = 0
        rho[start : start + 500] = terms.sum(axis=1)
    dense = rho >= 1
    measured = (abs(model.rho_ - rho)[dense] / rho[dense]).max()
    assert measured <= model.exactness_["rho_relative_error"] <= 1000 * max(measured, 1e-6)


@pytest.mark.parametrize("algorithm", ["brute", "grid"])
def test_warns_where_rounding_of_rows_shows_in_rho(algorithm):
    X = np.random.default_rng(0).normal(size=(4000, 1))
    here = {"n_clusters": 5, "algorithm": algorithm, "client": None, "device": "cpu"}
    with pytest.warns(ClusteringWarning, match=r"rho may be off by .* use dtype='float64'"):
        doubtful = DensityPeaks(**here | {"dc": 1e-4}).fit(X)
    assert doubtful.exactness_["rho_relative_error"] > 1e-3
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.simplefilter("ignore", AmbiguousCountWarning)  # five centres of noise do not stand out
        DensityPeaks(**here | {"dtype": "float64", "dc": 1e-4}).fit(X)
        whole = DensityPeaks(**here | {"dc": 900}).fit(np.round(X * 1e6) % 2**20)  # nothing is rounded
    assert whole.exactness_["rho_relative_error"] == 1e-6


@pytest.mark.parametrize("density", ["knn", "cutoff"])
@pytest.mark.parametrize("factor", [2.0**-37, 2.0**40])
def test_densities_without_squares_take_more_scales(density, factor):
    X = np.random.default_rng(3).normal(size=(300, 5))
    here = {"density": density, "metric": "manhattan", "client": None, "device": "cpu"}
    model, far = DensityPeaks(3, **here).fit(X), DensityPeaks(3, **here).fit(X * factor)
    np.testing.assert_array_equal(far.labels_, model.labels_)
    np.testing.assert_array_equal(far.predict(X[:9] * factor), model.labels_[:9])
    with pytest.raises(InputError, match="centred values reach"):
        DensityPeaks(3, **here | {"density": "gaussian"}).fit(X * factor)
