"""Scores of parcels against slow float64 NumPy, null parcels, and the choice of a number of known parcels."""

from __future__ import annotations

import math

import numpy as np
import pytest
from sklearn.metrics import silhouette_score

from mgclust.algorithms.parcellation.evaluation import scores
from mgclust.algorithms.parcellation.evaluation.boundaries import dcbc, distance_profile
from mgclust.algorithms.parcellation.evaluation.null_parcels import coordinate_parcels, random_parcels
from mgclust.algorithms.parcellation.evaluation.number_choice import chosen, evaluate
from mgclust.algorithms.parcellation.evaluation.scores import agreement, homogeneity, n_pieces, silhouettes
from mgclust.algorithms.parcellation.merge_cuts import labels_after
from mgclust.base.errors import InputError, RunCancelled
from mgclust.datasets import make_bold
from mgclust.kernels.parcels.pair_correlations import spatial_blocks
from mgclust.kernels.parcels.ward import ward_merges
from mgclust.kernels.toolkit import threads
from oracles import parcel_evaluation as reference

REALS = (np.float32, np.float64)
TOLERANCE = {np.float32: 3e-6, np.float64: 1e-8}


def rows_of(n: int, dtype: type = np.float64, seed: int = 0) -> np.ndarray:
    """Correlated series with a large mean; some rows are constant, and some are equal."""
    rng = np.random.default_rng([seed, n])
    series = rng.standard_normal((n, 70)) + rng.standard_normal(70) + 50
    series[::11] = 7.1
    series[1::13] = series[1 % n]
    return series.astype(dtype)


def neighbours_of(mask: np.ndarray) -> list[set[int]]:
    """The 26 neighbours of each voxel of a mask, in the order of the voxels."""
    voxels = np.argwhere(mask)
    return [{int(j) for j in np.flatnonzero(np.abs(voxels - voxel).max(axis=1) == 1)} for voxel in voxels]


def graph_of(neighbours: list[set[int]]) -> tuple[np.ndarray, np.ndarray]:
    starts = np.cumsum([0, *map(len, neighbours)]).astype(np.int64)
    return starts, np.array([j for each in neighbours for j in sorted(each)], np.int32)


def islands() -> np.ndarray:
    """A mask of three islands, one of which is a single voxel."""
    mask = np.zeros((9, 5, 4), bool)
    mask[:4, :4, :3] = mask[6:, :3, :2] = mask[8, 4, 3] = True
    mask[1, 2, 1] = False
    return mask


@pytest.mark.parametrize("dtype", REALS)
@pytest.mark.parametrize("n", [2, 5, 60])
def test_homogeneity(n, dtype):
    series, labels = rows_of(n, dtype), np.random.default_rng(n).integers(-1, 6, n)
    np.testing.assert_allclose(homogeneity(series, labels), reference.homogeneity(series, labels), atol=1e-10)


def test_homogeneity_of_constant_rows_and_of_parcels_of_one_row():
    series = np.array([[0.1, 0.1, 0.1], [0.3, 0.3, 0.3], [1.0, 2.0, 4.0], [2.0, 4.0, 8.0]])
    assert homogeneity(series, [0, 0, 1, 1]) == pytest.approx(0.5)
    assert homogeneity(series, [0, 1, 2, 2]) == pytest.approx(1.0)
    assert math.isnan(homogeneity(series, [0, 1, 2, 3]))
    assert math.isnan(homogeneity(series, [-1, -1, -1, -1]))


def test_homogeneity_of_candidates_in_batches(monkeypatch):
    series, labels = rows_of(30), np.random.default_rng(0).integers(-1, 4, (5, 30)).astype(np.int32)
    labels[2] = -1
    whole = scores.homogeneities(series, labels)
    monkeypatch.setattr(scores, "BATCH_LABELS", 40)
    np.testing.assert_array_equal(scores.homogeneities(series, labels), whole)
    np.testing.assert_array_equal(whole, [homogeneity(series, each) for each in labels])


@pytest.mark.parametrize("dtype", REALS)
@pytest.mark.parametrize("batch", [1, 100, 1 << 20])
def test_silhouettes(dtype, batch, monkeypatch):
    monkeypatch.setattr(scores, "DISTANCES", batch)
    rng = np.random.default_rng(batch)
    series = np.delete(rows_of(60, dtype), np.s_[::11], axis=0)  # no constant rows, whose correlation has no value
    n = len(series)
    labels = np.stack([rng.integers(0, 4, n), rng.integers(-1, 40, n), np.arange(n) // 2, rng.integers(-1, 2, n)])
    labels[2, labels[2] == 3] = 4_000  # gaps
    found = silhouettes(series, labels.T)
    for own, value in zip(labels, found, strict=True):
        distances = 1 - np.corrcoef(series[own >= 0].astype(np.float64))
        np.fill_diagonal(distances, 0)
        expected = silhouette_score(np.maximum(distances, 0), own[own >= 0], metric="precomputed")
        assert value == pytest.approx(expected, abs=TOLERANCE[dtype])
    assert (np.unique(labels[1], return_counts=True)[1] == 1).any()  # parcels of one row


@pytest.mark.parametrize("dtype", REALS)
def test_silhouettes_of_constant_rows_duplicates_and_one_parcel(dtype):
    rng = np.random.default_rng(0)
    series = rows_of(30, dtype)
    distances = 1 - np.array([[reference.correlation(a, b) for a in series] for b in series])
    np.fill_diagonal(distances, 0)
    labels = rng.integers(0, 5, 30)
    expected = silhouette_score(np.maximum(distances, 0), labels, metric="precomputed")
    assert silhouettes(series, labels)[0] == pytest.approx(expected, abs=TOLERANCE[dtype])
    same = np.repeat(series[2:3], 8, axis=0)
    assert silhouettes(same, np.arange(8) // 4).tolist() == [0]
    assert np.isnan(silhouettes(series, np.stack([np.zeros(30, int), np.full(30, -1)], axis=1))).all()


def check_profile(series, candidates, coordinates, max_distance, width, tolerance):
    found = distance_profile(series, candidates, coordinates, max_distance, width)
    n_bins = len(found.upper)
    for c in range(candidates.shape[1]):
        within, between = reference.profile(series, candidates[:, c], coordinates, n_bins, width)
        assert found.n_within[c].tolist() == list(map(len, within))
        assert found.n_between[c].tolist() == list(map(len, between))
        for values, pairs in ((found.within[c], within), (found.between[c], between)):
            means = [np.mean(each) if each else np.nan for each in pairs]
            np.testing.assert_allclose(values, means, atol=tolerance)
        np.testing.assert_allclose(found.dcbc[c], reference.dcbc(within, between), atol=tolerance)
    np.testing.assert_array_equal(
        found.dcbc, dcbc(series, candidates, coordinates, max_distance=max_distance, bin_width=width)
    )


@pytest.mark.parametrize("dtype", REALS)
@pytest.mark.parametrize("n", [1, 2, 32, 33, 110])
def test_dcbc(n, dtype):
    rng = np.random.default_rng(n)
    coordinates = rng.uniform(0, 30, (n, 3))
    coordinates[n // 2 : n // 2 + 4] = coordinates[n // 2]  # rows at the same place
    candidates = np.stack([rng.integers(-1, 4, n), rng.integers(0, 3, n), np.zeros(n, int), np.full(n, -1)], axis=1)
    check_profile(rows_of(n, dtype), candidates, coordinates, 17.3, 2.5, TOLERANCE[dtype])


def test_dcbc_of_a_grid():
    coordinates = 3.0 * np.argwhere(np.ones((5, 4, 4), bool))
    labels = np.stack([coordinates[:, 0] > 5, coordinates[:, 1] > 5], axis=1).astype(int)
    check_profile(rows_of(80), labels, coordinates, 12.0, 3.0, 1e-8)


def test_an_oblique_grid_has_the_pairs_of_a_straight_one():
    """Rounding of rotated coordinates must not move pairs at a bin's upper end to the next bin."""
    grid = 3.0 * np.argwhere(np.ones((6, 5, 4), bool))
    turned, _ = np.linalg.qr(np.random.default_rng(0).standard_normal((3, 3)))
    series, labels = rows_of(len(grid)), (grid[:, 0] > 7).astype(int)
    straight, oblique = (distance_profile(series, labels, each, 12.0, 3.0) for each in (grid, grid @ turned + 11.7))
    np.testing.assert_array_equal(straight.n_within, oblique.n_within)
    np.testing.assert_array_equal(straight.n_between, oblique.n_between)
    np.testing.assert_array_equal(straight.dcbc, oblique.dcbc)


@pytest.mark.parametrize("dtype", REALS)
def test_bits_depend_on_neither_threads_nor_order_nor_other_candidates(dtype):
    rng = np.random.default_rng(3)
    n = 1_100
    series, coordinates = rows_of(n, dtype), rng.uniform(0, 60, (n, 3))
    candidates = rng.integers(-1, 9, (n, 5))
    whole = distance_profile(series, candidates, coordinates)
    with threads.share(1):
        single = distance_profile(series, candidates, coordinates)
    order = rng.permutation(n)
    moved = distance_profile(series[order], candidates[order], coordinates[order])
    for one, other, third in zip(whole, single, moved, strict=True):
        np.testing.assert_array_equal(one, other)
        np.testing.assert_array_equal(one, third)
    each = [float(dcbc(series, candidates[:, c], coordinates)[0]) for c in range(5)]
    assert each == whole.dcbc.tolist()


def test_blocks_are_near_rows():
    grid = np.argwhere(np.ones((8, 16, 8), bool)).astype(float)
    order = spatial_blocks(grid)
    assert sorted(order.tolist()) == list(range(len(grid)))
    blocks = grid[order].reshape(-1, 32, 3)
    assert (np.ptp(blocks, axis=1).max(axis=1) <= 3).all()
    assert spatial_blocks(np.zeros((100, 3))).tolist() == list(range(100))


def test_dcbc_of_parcels_without_pairs_of_both_kinds():
    coordinates = np.arange(4.0)[:, None] * [1, 0, 0]
    assert np.isnan(dcbc(rows_of(4), np.zeros(4, int), coordinates)).all()
    assert np.isnan(dcbc(rows_of(4), np.arange(4), coordinates)).all()
    assert np.isnan(dcbc(rows_of(1), np.zeros(1, int), coordinates[:1])).all()


@pytest.mark.parametrize(
    "change, message",
    [
        ({"series": np.full((4, 3), np.nan)}, "series: some values are not finite"),
        ({"series": np.zeros(4)}, "series: shape"),
        ({"candidates": np.zeros(3, int)}, "candidates: shape"),
        ({"candidates": np.zeros(4)}, "integer type"),
        ({"candidates": np.array([0, 1, 2, 1 << 20])}, "label 1048576 should be below 1048576"),
        (
            {"coordinates": np.zeros((4, 2))},
            r"coordinates has shape \(4, 2\) and dtype float64; give an array .* \(4, 3\)",
        ),
        ({"coordinates": np.full((4, 3), np.inf)}, "coordinates holds NaN or infinite values in 4 of 4 rows"),
        ({"bin_width": 0.0}, "bin_width=0.0 should be positive"),
        ({"bin_width": 36.0}, "max_distance=35.0"),
        ({"max_distance": math.inf}, "max_distance=inf"),
        ({"bin_width": 1e-3}, "35000 bins"),
    ],
)
def test_dcbc_rejects(change, message):
    given = {"series": rows_of(4), "candidates": np.zeros(4, int), "coordinates": np.zeros((4, 3))} | change
    with pytest.raises(InputError, match=message):
        dcbc(**given)


def test_pieces():
    neighbours = neighbours_of(islands())
    n = len(neighbours)
    rng = np.random.default_rng(0)
    for labels in (rng.integers(-1, 4, n), np.zeros(n, int), np.full(n, -1), np.where(np.arange(n) < 9, 5, 0)):
        assert n_pieces(labels, *graph_of(neighbours)).tolist() == reference.pieces(labels.tolist(), neighbours)


def test_random_parcels():
    neighbours = neighbours_of(islands())
    graph, n = graph_of(neighbours), len(neighbours)
    assert reference.pieces([0] * n, neighbours) == [3]
    for k in (3, 4, 7, 20, n - 1, n):
        for seed in (0, 1):
            labels = random_parcels(*graph, k, seed)
            assert labels.dtype == np.int32
            assert reference.pieces(labels.tolist(), neighbours) == [1] * k
            np.testing.assert_array_equal(labels, random_parcels(*graph, k, seed))
    assert agreement(random_parcels(*graph, 7, 0), random_parcels(*graph, 7, 1)) < 0.9
    several = random_parcels(*graph, [3, 20], 1)
    np.testing.assert_array_equal(several.T, [random_parcels(*graph, k, 1) for k in (3, 20)])
    assert random_parcels([0, 0], [], 1).tolist() == [0]  # one voxel


@pytest.mark.parametrize("make", [random_parcels, lambda *rest: coordinate_parcels(np.argwhere(islands()), *rest)])
def test_numbers_of_null_parcels_are_checked(make):
    graph = graph_of(neighbours_of(islands()))
    with pytest.raises(InputError, match="k=2 is below the number of islands of the graph, 3; give at least 3"):
        make(*graph, 2)
    with pytest.raises(InputError, match="k=10000 is above the number of rows"):
        make(*graph, 10_000)


def test_coordinate_parcels():
    neighbours = neighbours_of(islands())
    graph, n = graph_of(neighbours), len(neighbours)
    coordinates = np.argwhere(islands()) + np.random.default_rng(0).uniform(-0.3, 0.3, (n, 3))  # no ties
    several = coordinate_parcels(coordinates, *graph, [3, 5, 12, n])
    for labels, k in zip(several.T, (3, 5, 12, n), strict=True):
        np.testing.assert_array_equal(labels, reference.ward(coordinates, neighbours, k))
        np.testing.assert_array_equal(labels, coordinate_parcels(coordinates, *graph, k))


def test_coordinate_parcels_of_a_grid():
    mask = np.ones((8, 8, 8), bool)
    neighbours = neighbours_of(mask)
    graph = graph_of(neighbours)
    places = 3.0 * np.argwhere(mask)
    one, other, same = (coordinate_parcels(places, *graph, 8, seed) for seed in (0, 1, 0))
    for labels in (one, other, coordinate_parcels(places, *graph, 8)):
        assert reference.pieces(labels.tolist(), neighbours) == [1] * 8
        assert np.bincount(labels).max() <= 2.5 * 64
    np.testing.assert_array_equal(one, same)
    assert 0 < agreement(one, other) < 1
    assert coordinate_parcels([[1.0, 2.0, 3.0]], [0, 0], [], 1, seed=0).tolist() == [0]  # one voxel


def test_agreement():
    rng = np.random.default_rng(0)
    a, b = rng.integers(-1, 3, 40), rng.integers(-1, 4, 40)
    kept = (a >= 0) & (b >= 0)
    assert agreement(a, b) == pytest.approx(reference.adjusted_rand(a[kept], b[kept]))
    assert agreement(a, np.where(a < 0, -1, 2_000 - a)) == 1.0
    with pytest.raises(InputError, match="no row is in a parcel of both"):
        agreement([0, -1], [-1, 0])
    with pytest.raises(InputError, match="shapes"):
        agreement([0, 1], [0])


def ward_of(series: np.ndarray, graph: tuple[np.ndarray, np.ndarray], numbers: list[int]) -> np.ndarray:
    """Parcels of standardised series by Ward's merges, one column per number."""
    series = series - series.mean(axis=1, keepdims=True)
    merges = ward_merges(series / series.std(axis=1, keepdims=True), *graph, lambda _: None)[0]
    return np.stack([labels_after(merges, len(series), k) for k in numbers], axis=1)


def test_table():
    mask = islands()
    neighbours = neighbours_of(mask)
    graph, places = graph_of(neighbours), 3.0 * np.argwhere(mask)
    n = len(places)
    halves = [rows_of(n, seed=seed)[:, :30] for seed in (1, 2)]
    series = np.concatenate(halves, axis=1)
    whole, first, second = (np.random.default_rng(seed).integers(-1, 6, (n, 2)) for seed in range(3))
    whole[:, 0] = np.minimum(whole[:, 0], 1)  # fewer parcels than islands
    table = evaluate(whole, first, second, series, *halves, *graph, places, seed=4, max_distance=14.0, bin_width=2.0)
    for c in range(2):
        labels = whole[:, c].tolist()
        sizes = [labels.count(parcel) for parcel in set(labels) - {-1}]
        assert table["scan_n_clusters"][c] == len(sizes)
        assert table["scan_pieces"][c] == sum(reference.pieces(labels, neighbours))
        assert (table["scan_smallest"][c], table["scan_largest"][c]) == (min(sizes), max(sizes))
        other = [reference.homogeneity(x, y[:, c]) for x, y in zip(halves, (second, first), strict=True)]
        edges = [
            reference.dcbc(*reference.profile(x, y[:, c], places, 7, 2.0))
            for x, y in zip(halves, (second, first), strict=True)
        ]
        assert table["scan_homogeneity"][c] == pytest.approx(reference.homogeneity(series, whole[:, c]))
        assert table["scan_held_out"][c] == pytest.approx(np.mean(other))
        assert table["scan_dcbc"][c] == pytest.approx(np.mean(edges), abs=1e-8)
        assert table["scan_split_half_ari"][c] == pytest.approx(agreement(first[:, c], second[:, c]))
    np.testing.assert_array_equal(table["scan_silhouette"], silhouettes(series, whole))
    scores = ("homogeneity", "held_out", "dcbc", "split_half_ari", "silhouette")
    columns = ("n_clusters", "pieces", "smallest", "largest", *scores)
    nulls = [f"{null}_{each}" for null in ("random", "coordinates") for each in columns if each != "pieces"]
    assert sorted(table) == sorted(f"scan_{each}" for each in (*columns, *nulls))
    assert all(values.shape == (2,) for values in table.values())
    assert table["scan_random_n_clusters"].tolist() == table["scan_coordinates_n_clusters"].tolist() == [3, 6]
    again = evaluate(whole, first, second, series, *halves, *graph, places, seed=4, max_distance=14.0, bin_width=2.0)
    for name, values in table.items():
        np.testing.assert_array_equal(values, again[name])


def test_the_table_reports_its_progress():
    mask = islands()
    graph, places = graph_of(neighbours_of(mask)), 3.0 * np.argwhere(mask)
    halves = [rows_of(len(places), seed=seed) for seed in (1, 2)]
    labels, series = np.random.default_rng(0).integers(0, 6, (len(places), 4)), np.concatenate(halves, axis=1)
    seen = []
    evaluate(labels, labels, labels, series, *halves, *graph, places, on_progress=seen.append)
    assert seen == sorted(seen) and seen[0] == 0 and 0.5 < seen[-1] <= 1 and len(set(seen)) > 10
    for after in range(len(seen)):
        left = iter(range(after))

        def stop(fraction, left=left):
            if next(left, None) is None:
                raise RunCancelled("stopped")

        with pytest.raises(RunCancelled):
            evaluate(labels, labels, labels, series, *halves, *graph, places, on_progress=stop)


def test_table_rejects():
    graph = graph_of([{1}, {0}])
    labels, series, places = np.zeros((2, 1), int), rows_of(2), np.zeros((2, 3))
    with pytest.raises(InputError, match="the halves have 2 and 3 rows, the whole series has 2, and the graph has 2"):
        evaluate(labels, labels, labels, series, series, rows_of(3), *graph, places)
    with pytest.raises(InputError, match=r"coordinates has shape \(1, 3\)"):
        evaluate(labels, labels, labels, series, series, series, *graph, places[:1])
    with pytest.raises(InputError, match="different numbers of columns"):
        evaluate(labels, labels, np.zeros((2, 2), int), series, series, series, *graph, places)


@pytest.mark.parametrize("n_parcels, noise", [(6, 0.5), (12, 1.0)])
def test_known_parcels_are_chosen(n_parcels, noise):
    bold, mask, truth = made = make_bold((12, 14, 10), n_parcels, 120, noise)
    series = bold[mask].astype(np.float64)
    line = np.linspace(-1, 1, series.shape[1])
    series -= series.mean(axis=1, keepdims=True)
    series -= np.outer(series @ line / (line @ line), line)  # the drift
    graph = graph_of(neighbours_of(mask))
    numbers, halves = [2, 4, 6, 9, 12, 16, 24], (series[:, :60], series[:, 60:])
    scan = [ward_of(each, graph, numbers) for each in (series, *halves)]
    places = np.argwhere(mask) @ made.affine[:3, :3].T
    table = evaluate(*scan, series, *halves, *graph, places)
    assert chosen(table) == n_parcels
    at = numbers.index(n_parcels)
    assert agreement(scan[0][:, at], truth[mask]) > 0.95
    assert (table["scan_pieces"] == numbers).all()
    assert table["scan_split_half_ari"].argmax() == at
    for null in ("random", "coordinates"):  # boundaries that ignore the series
        assert table["scan_dcbc"][at] > 5 * np.abs(table[f"scan_{null}_dcbc"][at])


@pytest.mark.parametrize(
    "scores, null, expected",
    [
        ([0.18, 0.239, 0.25, 0.24], 0.0, 20),  # a plateau
        ([0.25, 0.1, 0.25, 0.25], 0.0, 10),  # ties
        ([0.1, 0.2, 0.3, 0.4], 0.0, 40),  # the best is the largest number
        ([math.nan, 0.2, 0.3, math.nan], 0.0, 30),
        ([0.01, 0.02, 0.03, 0.01], 0.05, 10),  # nothing exceeds the nulls
        ([math.nan] * 4, 0.0, 10),
        ([-0.03, -0.02, -0.01, -0.02], -0.05, 10),
        ([0.1, 0.4, 0.2, 0.2], math.nan, 20),
    ],
)
def test_chosen(scores, null, expected):
    nulls = {"scan_random_dcbc": np.full(4, min(null, 0.0)), "scan_coordinates_dcbc": np.full(4, null)}
    table = {"scan_n_clusters": np.array([10, 20, 30, 40]), "scan_dcbc": np.array(scores)}
    assert chosen(table | nulls) == expected
    backwards = {name: values[::-1] for name, values in (table | nulls).items()}
    assert chosen(backwards) == expected
