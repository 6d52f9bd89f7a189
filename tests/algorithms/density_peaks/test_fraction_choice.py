"""``dc_fraction="auto"`` against plain NumPy, and what it leaves as it was; dc where many rows are equal."""

from __future__ import annotations

import itertools
import json
import re
import warnings

import numpy as np
import pytest
from sklearn.datasets import make_blobs
from sklearn.metrics import adjusted_rand_score

from mgclust import ClusteringWarning, DensityPeaks, load_result
from mgclust.algorithms.density_peaks.cutoff_distance import row_sample
from mgclust.algorithms.density_peaks.cutoff_distance.fraction_choice import FRACTIONS
from mgclust.algorithms.density_peaks.cutoff_distance.row_sample import choice_rows
from mgclust.algorithms.density_peaks.result_warnings import RowCounts, warnings_of
from mgclust.base.errors import InputError
from mgclust.datasets import make_gaussian_rings
from oracles import density_peaks as reference

pytestmark = pytest.mark.filterwarnings("ignore::mgclust.base.errors.ClusteringWarning")


def fit(X, device="cpu", **parameters):
    return DensityPeaks(device=device, client=None, **parameters).fit(X)


def grid(side=8, each=60, seed=0):
    """Gaussians on a grid, of which 0.02 of the pairs are too many."""
    rng = np.random.default_rng(seed)
    cells = np.repeat(np.arange(side * side), each)
    centers = np.stack([cells % side, cells // side], axis=1)
    return (centers + 0.2 * rng.standard_normal((len(cells), 2))).astype("float32"), cells


def sorted_drops(X, dc, metric):
    """Factors by which rho * delta falls behind k centres, as pairs (k, factor), in float64."""
    rho = reference.density(X, dc, metric=metric)
    rank = reference.rank_by_density(rho)
    d = reference.distances(X, X, metric)
    delta = np.array([d[i][rank < rank[i]].min() if rank[i] else d[i].max() for i in range(len(X))])
    gamma = np.sort(rho * delta)[::-1]
    most = min(256, int(2 * len(X) ** 0.5), (gamma > 0).sum() - 1)
    return {k: gamma[k - 1] / gamma[k] for k in range(2, most + 1)}


def expected_choice(drops):
    """The rule, in words of its own, of the drops by descending fractions."""
    evidence = {}
    for first, second in itertools.pairwise(drops):
        for k in {*first, *second}:
            mean = (first.get(k, 1.0) * second.get(k, 1.0)) ** 0.5
            evidence[k] = max(evidence.get(k, 0.0), mean)
    found = [max(graph, key=graph.get) for graph in drops]
    best = max(sorted(evidence), key=evidence.get)
    if best == found[0] or evidence[best] < max(4 / 3 * evidence[found[0]], 2):
        return 0, evidence
    means = [a.get(best, 1.0) * b.get(best, 1.0) for a, b in itertools.pairwise(drops)]
    at = int(np.argmax(means))
    alike = [i for i in (at, at + 1) if found[i] == best]
    return max(alike, key=lambda i: drops[i][best], default=0), evidence


@pytest.mark.parametrize("metric", ["euclidean", "sqeuclidean", "manhattan"])
@pytest.mark.parametrize("name", ["grid", "blobs", "noise"])
@pytest.mark.quick("cpu-noise-manhattan", "cpu-grid-euclidean")
def test_equals_the_oracle(name, metric, device):
    if name == "grid":
        X = grid(5, 80)[0]
    elif name == "blobs":
        X = make_blobs(900, 6, centers=25, cluster_std=1.0, random_state=3)[0]
    else:
        X = np.random.default_rng(4).random((700, 3))
    model = fit(X, device, metric=metric, dtype="float64")
    choice = model.dc_choice_
    tried = choice["tried"]
    assert choice["rows"] == len(X)
    assert [each["dc_fraction"] for each in tried] == [f for f in FRACTIONS if f == 0.02 or f * (len(X) - 1) >= 5]
    for each in tried:  # of 512 rows, within a bin
        assert each["dc"] == pytest.approx(reference.cutoff_distance(X, each["dc_fraction"], metric), rel=0.15)
    drops = [sorted_drops(X, each["dc"], metric) for each in tried]
    for each, graph in zip(tried, drops, strict=True):
        assert each["n_clusters"] == max(graph, key=graph.get)
        assert each["drop"] == pytest.approx(max(graph.values()), rel=1e-6)
    chosen, evidence = expected_choice(drops)
    best = tried[chosen] if choice["separated"] is None else choice["separated"]  # see test_separation.py
    assert model.dc_fraction_ == choice["dc_fraction"] == best["dc_fraction"]
    # Where both assignments have one number, the drop decides which is kept.
    assert model.n_clusters_ == 25 if name == "blobs" else choice["separated"] is None
    for each in choice["numbers"]:
        assert each["drop"] == pytest.approx(evidence[each["n_clusters"]], rel=1e-6)
    assert choice["numbers"][0]["drop"] == pytest.approx(max(evidence.values()), rel=1e-6)


@pytest.mark.xfail(strict=True, reason="two of these Gaussians share a separated cluster: record 78")
@pytest.mark.parametrize("metric", ["euclidean", "sqeuclidean"])
def test_touching_gaussians_are_told_apart(metric):
    X = make_blobs(900, 6, centers=25, cluster_std=1.2, random_state=3)[0]
    assert fit(X, "cpu", metric=metric, dtype="float64").n_clusters_ == 25


def test_finds_more_clusters_than_the_first_fraction(device):
    X, _y = grid()
    assert fit(X, device, dc_fraction=0.02).n_clusters_ < 64
    model = fit(X, device)
    assert model.n_clusters_ == 64 and model.dc_fraction_ < 0.02
    again = fit(X, device, dc_fraction=model.dc_fraction_)
    assert again.dc_ == model.dc_ and again.dc_choice_ is None
    for name in ("rho_", "delta_", "nearest_higher_", "labels_"):
        np.testing.assert_array_equal(getattr(model, name), getattr(again, name))


@pytest.mark.parametrize(
    "parameters",
    [{"n_clusters": 9}, {"rho_min": 1.0, "delta_min": 0.3}, {"density": "cutoff"}],
)
def test_without_a_say_it_is_the_first_fraction(parameters):
    X, _ = grid(3, 60)
    model, fixed = (fit(X, dc_fraction=fraction, **parameters) for fraction in ("auto", 0.02))
    assert model.dc_choice_ is None and model.dc_fraction_ == 0.02 and model.dc_ == fixed.dc_
    np.testing.assert_array_equal(model.labels_, fixed.labels_)


def test_a_given_dc_has_no_fraction():
    model = fit(grid(3, 60)[0], dc=0.2)
    assert model.dc_fraction_ is None and "dc_fraction" not in model.result_.scores


def test_a_sample_of_many_rows(monkeypatch):
    """A third of them, at most 16,384."""
    assert [choice_rows(n) for n in (7, 3072, 9000, 40_000, 10**8)] == [7, 3072, 3072, 13_333, 16_384]
    monkeypatch.setattr(row_sample, "choice_rows", lambda n, **_: n // 2)
    X, _ = grid(8, 140)
    models = [fit(X, random_state=seed) for seed in (0, 0, 1)]
    assert [model.n_clusters_ for model in models] == [64, 64, 64]
    assert models[0].dc_choice_ == models[1].dc_choice_ != models[2].dc_choice_
    assert models[0].dc_choice_["rows"] == len(X) // 2


def test_it_is_in_the_result(tmp_path):
    model = fit(grid()[0])
    model.result_.save(tmp_path / "out")
    result = load_result(tmp_path / "out")
    again = DensityPeaks.from_result(result)
    assert again.dc_choice_ == model.dc_choice_ and again.dc_fraction_ == result.scores["dc_fraction"]
    assert json.loads(json.dumps(result.diagnostics["dc_choice"]))["numbers"][0]["n_clusters"] == 64
    lines = dict(model.presentation.summary(result))
    assert lines["fraction"] == f"{model.dc_fraction_:g} of the pairs within dc, chosen from the data"
    assert "drop" in lines["others"]
    tried, numbers = model.presentation.tables(result)[-2:]
    assert tried.rows[tried.chosen][0] == model.dc_fraction_ and numbers.rows[0][0] == 64
    assert model.presentation.tables(fit(grid()[0], dc_fraction=0.01).result_)[-1].heading != numbers.heading


def test_noise_is_warned_of():
    """Among them a draw whose number of clusters stands out at 0.02, and nowhere else."""
    for seed in (5, 9, 12, 539, 3):
        model = fit(np.random.default_rng(seed).standard_normal((1000, 2)))
        (text,) = model.result_.warnings
        assert text.startswith("the centres do not stand out: rho * delta falls by ")
        assert re.search(r"try dc_fraction=\S+ \(K=\d+\)", text)
    (text,) = warnings_of(model, 99.0, {}, RowCounts.of(model.rho_, model.delta_), None)
    assert "only this dc_fraction shows their number" in text


@pytest.mark.parametrize("shape", [(10, 1), (20, 2), (49, 2), (60, 1), (100, 2)])
@pytest.mark.parametrize("draw", ["random", "standard_normal"])
def test_few_rows_of_noise_have_one_cluster_or_a_warning(draw, shape):
    for seed in range(20):
        model = fit(getattr(np.random.default_rng(seed), draw)(shape))
        assert model.n_clusters_ == 1 or model.result_.warnings


def test_few_rows_do_not_tell_clusters_from_chance():
    X = make_blobs(100, centers=[[0, 0], [30, 0], [0, 30], [30, 30]], random_state=0)[0]
    (text,) = fit(X[:49]).result_.warnings
    assert text.startswith("n_samples=49 is too few to tell clusters from chance: below 50 rows")
    assert fit(X[:49], n_clusters=4).result_.warnings == fit(X).result_.warnings == []
    assert fit(X).n_clusters_ == fit(X[:49]).n_clusters_ == 4


def test_thresholds_within_clusters_are_warned_of():
    X = np.random.default_rng(0).random((600, 2))
    (dense,) = fit(X, rho_min=8).result_.warnings
    assert dense == (
        "513 of 600 rows are centres with only rho_min=8, because rows next to a centre are as dense: also give "
        "delta_min, or n_clusters."
    )
    (both,) = fit(X, rho_min=8, delta_min=0.01).result_.warnings
    assert both == (
        "459 of 600 rows are centres by rho_min=8, delta_min=0.01, and all after the first 48 lie within clusters: "
        "raise delta_min, or give n_clusters."
    )
    assert fit(X, rho_min=8, n_clusters=30).result_.warnings == fit(X, rho_min=5, delta_min=0.2).result_.warnings == []
    again = fit(X).select_centers(rho_min=8)
    assert again.result_.warnings == [dense]


def test_a_given_number_that_does_not_stand_out_is_warned_of():
    noise = np.random.default_rng(0).random((600, 2))
    (text,) = fit(noise).select_centers(5).result_.warnings
    assert text == (
        "the centres of n_clusters=5 do not stand out: rho * delta falls by a factor of only 1.23 after them; see the "
        "decision graph, or leave n_clusters out."
    )
    groups = make_gaussian_rings().X  # 15 clusters
    assert fit(groups, n_clusters=15).result_.warnings == []
    for wrong in (12, 16, 20):
        (text,) = fit(groups, n_clusters=wrong).result_.warnings
        assert f"the centres of n_clusters={wrong} do not stand out" in text
    squares = np.vstack([noise + np.array(corner) for corner in ([0, 0], [3, 0], [0, 3])])
    assert fit(squares, n_clusters=3, assignment="separated").result_.warnings == []
    (text,) = fit(squares, n_clusters=4, assignment="separated").result_.warnings
    assert "the prominence falls by a factor of only" in text


def test_rows_of_one_kind_are_one_kind():
    assert not any("distinct" in text for text in fit(np.ones((30, 2)), dc=1.0, n_clusters=1).result_.warnings)


@pytest.mark.parametrize("seed", [6, 8])
@pytest.mark.parametrize("ways", [[1.0, 0.0], [1.0, 2.0, 3.0], [1.0, 1e-3]], ids=["constant", "line", "nearly"])
def test_noise_in_a_line_is_warned_of_as_of_one_feature(ways, seed):
    """Drops of noise in one feature are larger; a constant column, or a multiple of it, is no second one."""
    drawn = np.random.default_rng(seed).random((200, 1))
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        one = DensityPeaks().fit(drawn)
        model = DensityPeaks().fit(drawn * ways + 1.0)
    assert one.n_clusters_ == model.n_clusters_ > 1
    assert ["stand out" in str(each.message) for each in told] == [True, True]
    assert model.exactness_["on_a_line"]
    assert "on_a_line" not in one.exactness_


def test_long_noise_in_a_plane_is_in_no_line(rng):
    drawn = rng.normal(size=(300, 2)) * [50.0, 1.0]
    with pytest.warns(ClusteringWarning):
        assert "on_a_line" not in DensityPeaks().fit(drawn).exactness_


def test_few_centres_in_noise_are_warned_of():
    """Two to four centres, whose drop is larger than the 2.5 that more have to have."""
    for draw, seed in (("random", 0), ("random", 17), ("standard_normal", 4), ("standard_normal", 8)):
        model = fit(getattr(np.random.default_rng(seed), draw)((1000, 2)))
        assert model.result_.scores["gamma_drop"] > 3 and model.n_clusters_ <= 4
        assert "the centres do not stand out: rho * delta falls by 3" in model.result_.warnings[0]


@pytest.mark.parametrize("algorithm", ["brute", "grid"])
@pytest.mark.parametrize("density", ["gaussian", "cutoff"])
def test_many_equal_rows(algorithm, density, device):
    X = np.random.default_rng(5).integers(0, 4, (800, 2)).astype("float32")
    model = fit(X, device, algorithm=algorithm, density=density, n_clusters=3, dc_fraction=0.02)
    d = reference.distances(X, X)
    assert model.dc_ == d[d > 0].min() == 1.0 and model.dc_error_ == 0
    assert model.exactness_["equal_pairs"] == ((d == 0).sum() - len(X)) // 2
    np.testing.assert_allclose(model.rho_, reference.density(X, 1.0, density), rtol=1e-5)
    assert "dc=1 is the smallest positive distance" in model.result_.warnings[0]
    assert "because only 16 of 800 rows are distinct" in model.result_.warnings[0]


def zeros_and_blobs(zeros=150, std=0.6):
    """Four blobs of 200 rows, and rows of zeros, a cluster of their own: which is which is the second answer."""
    X, y = make_blobs(800, centers=[[4, 4], [-4, 4], [4, -4], [-4, -4]], cluster_std=std, random_state=3)
    return np.concatenate([np.zeros((zeros, 2)), X]), np.concatenate([np.full(zeros, 4), y])


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"n_clusters": 5},
        {"density": "cutoff"},
        {"algorithm": "grid"},
        {"metric": "precomputed"},
        {"dc_method": "sample", "random_state": 0},
        {"dc_method": "sample", "sample_size": 2000, "random_state": 0},
    ],
    ids=str,
)
def test_an_automatic_dc_is_of_pairs_that_differ(options, device):
    X, y = zeros_and_blobs(200)
    d = reference.distances(X, X)
    model = fit(d if "metric" in options else X, device, dtype="float64", **options)
    pairs = np.sort(d[np.triu_indices(len(X), 1)])
    equal = int((pairs == 0).sum())
    assert equal > 0.02 * len(pairs) and model.dc_fraction_ == 0.02
    assert model.dc_ == pytest.approx(pairs[equal + round(0.02 * (len(pairs) - equal)) - 1], rel=1e-9)
    assert model.dc_error_ == 0 and model.exactness_["equal_pairs"] == equal
    assert model.exactness_["different_pairs"] == len(pairs) - equal
    assert model.n_clusters_ == 5 and adjusted_rand_score(y, model.labels_) > 0.99
    assert model.result_.warnings[0].startswith(
        f"dc={model.dc_:g} is the quantile dc_fraction=0.02 of pairs of distinct rows, because only 801 of 1,000 rows"
    )


def test_fractions_are_chosen_of_pairs_that_differ():
    X, cells = grid(each=40)
    centers = np.stack([cells % 8, cells // 8], axis=1)
    X = centers + 0.6 * (X - centers)  # clusters further apart
    X, y = np.concatenate([np.full((800, 2), -2), X]), np.append(np.full(800, 64), cells)
    model = fit(X)
    assert model.dc_choice_["different"] and len(model.dc_choice_["tried"]) > 2
    assert model.dc_fraction_ < 0.02 and model.n_clusters_ == 65 and adjusted_rand_score(y, model.labels_) > 0.95
    assert not fit(grid()[0]).dc_choice_["different"]


NOISE = {
    "counts": lambda rng: rng.poisson(1, (2000, 2)),
    "zeros for negative values": lambda rng: np.maximum(rng.normal(size=(2000, 2)), 0),
    "a quarter zeros": lambda rng: np.where(np.arange(2000)[:, None] < 500, 0, rng.normal(size=(2000, 2))),
}


@pytest.mark.slow
@pytest.mark.parametrize("draw", NOISE.values(), ids=NOISE)
def test_noise_with_equal_rows_is_warned_of(draw):
    for seed in range(20):
        model = fit(draw(np.random.default_rng(seed)))
        assert model.n_clusters_ == 1 or any("stand out" in text for text in model.result_.warnings)


def test_few_different_rows_do_not_tell_clusters_from_chance():
    X = make_blobs(400, centers=[[0, 0], [30, 0], [0, 30], [30, 30]], cluster_std=0.6, random_state=0)[0].round()
    model = fit(X, dc=1.5)
    assert model.n_clusters_ == 4
    (text,) = model.result_.warnings
    assert text.startswith(f"{len(np.unique(X, axis=0))} distinct rows of 400 are too few to tell clusters from chance")


def test_two_different_rows_are_two_clusters():
    model = fit(np.repeat([[0.0, 0.0], [1.0, 1.0]], 50, axis=0))
    assert adjusted_rand_score(np.repeat([0, 1], 50), model.labels_) == 1
    assert model.result_.warnings[-1].startswith("2 distinct rows of 100 are too few to tell clusters from chance")


@pytest.mark.filterwarnings("error::RuntimeWarning")
def test_densities_of_0_are_warned_of():
    X, _ = zeros_and_blobs(200)
    model = fit(X, density="cutoff", dc_fraction=0.02)  # the smallest positive distance: only zeros have neighbours
    assert "rho is 0 for 800 of 1,000 rows: no other row is near enough" in model.result_.warnings[1]
    (text, *_) = fit(X[200:], dc_fraction=1e-9).result_.warnings
    assert text.startswith("rho is 0 for ") and "give a larger dc or dc_fraction" in text
    assert not any("rho is 0" in text for text in fit(X).result_.warnings)


def test_more_centres_than_different_rows():
    X = np.repeat(np.eye(3), 20, axis=0)
    model = fit(X, n_clusters=5)
    assert model.n_clusters_ == 5
    assert "n_clusters=5 is more than the number of distinct rows, 3:" in model.result_.warnings[-1]
    assert not any("is more than" in text for text in fit(X, n_clusters=3).result_.warnings)


def test_where_nothing_could_be_chosen_nothing_is_called_chosen():
    model = fit(grid(2, 5)[0])
    lines = dict(model.presentation.summary(model.result_))
    assert lines["fraction"] == "0.02 of the pairs within dc, no other tried: few rows, or many equal rows"
    assert "others" not in lines


def test_many_equal_rows_with_few_others():
    """The rows of the sample are all equal; those that differ are elsewhere."""
    X = np.zeros((6000, 5), "float32")
    X[-3:, 0] = 3.0, 7.0, 9.5
    for rows, metric in ((X, "euclidean"), (reference.distances(X[4000:], X[4000:]), "precomputed")):
        assert fit(rows, metric=metric, dc_fraction=0.02).dc_ == 2.5


def test_discrete_rows_at_the_defaults():
    X = np.random.default_rng(0).integers(0, 2, (101, 16)).astype(bool)
    assert fit(X[:, :4]).dc_ == 1.0


@pytest.mark.parametrize("X", [np.ones((50, 3)), np.full((5, 2), -2.0)])
def test_rows_that_are_all_equal_are_refused(X):
    with pytest.raises(InputError, match="dc=0: all rows are equal"):
        fit(X)


def test_a_smallest_distance_without_a_square_is_refused():
    X = np.zeros((100, 1))
    X[:3, 0] = 1.0, 2.0, 1e-22
    with pytest.raises(InputError, match="dc=1e-22 is the smallest positive distance, because many rows are equal"):
        fit(reference.distances(X, X), metric="precomputed")
