"""Nearest rows against a full sort in float64, on 1 to 4 ranks, streamed, from files, and by command line."""

from __future__ import annotations

import inspect
import json
import tracemalloc
import warnings

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

import mgclust
from mgclust import cli, kneighbors_graph, load_result, nearest_neighbors
from mgclust.algorithms import NearestNeighbors, base
from mgclust.algorithms.common import nearest_rows
from mgclust.algorithms.common.weights import on_host
from mgclust.algorithms.nearest_neighbors import estimator
from mgclust.algorithms.nearest_neighbors.ranks import estimate
from mgclust.base.errors import ClusteringWarning, InputError, InsufficientMemoryError
from mgclust.data import open_dataset
from mgclust.engine import rank
from mgclust.engine.memory import Residency
from mgclust.kernels import load
from oracles.density_peaks import METRICS
from oracles.density_peaks import distances as all_distances
from oracles.nearest_neighbors import nearest_neighbors as expected
from support.points import load_points

pytestmark = pytest.mark.xdist_group("workers")

HERE = {"client": None, "device": "cpu"}
quick = settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck), derandomize=True)
shapes = st.tuples(st.integers(2, 50), st.integers(1, 5))
lattices = shapes.flatmap(lambda shape: arrays("float64", shape, elements=st.integers(-4, 4).map(float)))


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("metric", METRICS)
@pytest.mark.parametrize("name", ["wide032", "pendigits", "rings"])
def test_equals_a_full_sort(name, metric, dtype, device):
    X = load_points(name)[0][:1200].astype("float64")
    if metric == "correlation" and X.shape[1] < 3:
        X = np.column_stack([X, X[:, 0] * X[:, 1]])
    distances, indices = nearest_neighbors(X, 17, metric=metric, dtype=dtype, client=None, device=device)
    assert distances.dtype == dtype and indices.dtype == np.int64 and distances.shape == indices.shape == (len(X), 17)
    want, order = expected(X, 17, metric)
    tolerance = 2e-6 if dtype == "float32" else 1e-13
    np.testing.assert_allclose(distances, want, rtol=tolerance, atol=tolerance * want.max())
    true = np.take_along_axis(all_distances(X, X, metric), indices, axis=1)  # rows as near as rounding can tell
    np.testing.assert_allclose(true, want, rtol=tolerance, atol=tolerance * want.max())
    assert (indices != order).mean() <= 0.02
    assert (indices != np.arange(len(X))[:, None]).all()
    assert all(len(set(row)) == 17 for row in indices.tolist())


@quick
@given(lattices, st.integers(1, 49), st.sampled_from(["euclidean", "sqeuclidean", "manhattan"]))
def test_ties_and_equal_rows(X, k, metric):
    """Whole numbers: distances are exact, so every tie falls to the lower row, and rows are told apart by number."""
    k = min(k, len(X) - 1)
    distances, indices = nearest_neighbors(X, k, metric=metric, dtype="float64", **HERE)
    want, order = expected(X, k, metric)
    np.testing.assert_array_equal(indices, order)
    np.testing.assert_array_equal(distances, want)


def rows_in_boxes():
    X = np.random.default_rng(1).normal(size=(12_000, 3)).astype("float32")
    X[5000:5100] = X[0]
    return X


def test_boxes_of_ranks(client):
    alone = nearest_neighbors(rows_in_boxes(), 9, **HERE)
    ranks = nearest_neighbors(rows_in_boxes(), 9, client=client, device="cpu", n_workers=3)
    for ours, theirs in zip(alone, ranks, strict=True):
        np.testing.assert_array_equal(ours, theirs)


@pytest.mark.parametrize("gathered", [2, 1 << 40], ids=["all", "a block"])
def test_rows_in_boxes(gathered, monkeypatch, device):
    """Few features: columns in boxes, all at once or block by block, rows in steps; no distance is counted twice."""
    X = rows_in_boxes()
    taken, searched = [], []
    pairs = load(device).pairs
    boxes, search = pairs.boxes_of_columns, pairs.nearest_in_boxes

    def boxes_of_columns(x, y, **given):
        found = boxes(x, y, **given)
        taken.append((len(y), found is not None))
        return found

    def nearest_in_boxes(x, *given, **named):
        searched.append(len(x))
        search(x, *given, **named)

    monkeypatch.setattr(pairs, "boxes_of_columns", boxes_of_columns)
    monkeypatch.setattr(pairs, "nearest_in_boxes", nearest_in_boxes)
    monkeypatch.setattr(nearest_rows, "SHARE_OF_FREE", gathered)
    monkeypatch.setattr(nearest_rows, "CPU_STEP_ROWS", 5000)
    monkeypatch.setattr(nearest_rows, "STEP_ROWS", 5000)
    if device == "cuda":  # which has boxes for more rows only
        monkeypatch.setattr("mgclust.kernels.pairs.boxes.gpu_column_boxes.MIN_PAIRS", 1 << 20)
    monkeypatch.setattr(rank, "_range_rows", lambda *_: 4096)
    distances, indices = nearest_neighbors(X, 9, device=device, client=None)
    assert taken[0] == ((len(X) if gathered == 2 else 4096), True)
    assert searched[:3] == [5000, 5000, 2000]
    some = [0, 1, 4999, 5000, 5099, 5100, 11_999]
    s = all_distances(X[some], X, "euclidean")
    s[np.arange(len(some)), some] = np.inf
    order = np.argsort(s, axis=1, kind="stable")[:, :9]
    np.testing.assert_array_equal(indices[some], order)
    np.testing.assert_allclose(distances[some], np.take_along_axis(s, order, axis=1), rtol=2e-6, atol=1e-12)


@pytest.mark.parametrize("d", [2, 20])
def test_all_rows_equal(d):
    distances, indices = nearest_neighbors(np.ones((300, d)), 3, **HERE)
    assert (distances == 0).all()
    assert indices[:5].tolist() == [[1, 2, 3], [0, 2, 3], [0, 1, 3], [0, 1, 2], [0, 1, 2]]
    assert (indices[5:] == [0, 1, 2]).all()


@pytest.mark.parametrize("k", [1, 16, 128])
def test_many_neighbors(k):
    X = np.random.default_rng(k).integers(0, 5, (900, 6)).astype("float32")
    _, indices = nearest_neighbors(X, k, **HERE)
    np.testing.assert_array_equal(indices, expected(X, k)[1])


CASES = {
    "lattice in the plane": ((7000, 2), {"n_neighbors": 9}),  # in boxes
    "wide": ((4500, 40), {"n_neighbors": 16}),
    "cosine": ((3000, 20), {"metric": "cosine", "dtype": "float64"}),
    "fewer blocks than ranks": ((700, 3), {"n_neighbors": 130}),
}


def rows_of(case):
    shape = CASES[case][0]
    X = np.random.default_rng(shape).normal(size=shape)
    return (np.round(4 * X) if case.startswith("lattice") else X).astype("float32")


@pytest.fixture
def found(ranks, monkeypatch):
    """The bits that a number of ranks finds."""

    def find(size, X, **parameters):
        monkeypatch.setattr(base, "connect", lambda **_: ranks(size))
        pair = nearest_neighbors(X, parameters.pop("n_neighbors", 5), device="cpu", **parameters)
        return [(array.shape, on_host(array).tobytes()) for array in pair]

    return find


@pytest.mark.quick("wide")
@pytest.mark.parametrize("case", CASES)
def test_same_bits_on_any_number_of_ranks(case, found):
    X, parameters = rows_of(case), CASES[case][1]
    alone = found(1, X, **parameters)
    for size in (2, 3, 4):
        assert found(size, X, **parameters) == alone, f"on {size} ranks"


@pytest.mark.parametrize("case", ["lattice in the plane", "wide"])
def test_same_bits_when_rows_are_streamed(case, found, monkeypatch):
    X, parameters = rows_of(case), CASES[case][1]
    resident = found(1, X, **parameters)
    monkeypatch.setattr(Residency, "resident", lambda self, rows: False)
    monkeypatch.setattr(Residency, "chunk_rows", property(lambda self: self.block_rows))
    assert found(1, X, **parameters) == found(2, X, **parameters) == resident


def test_same_bits_from_arrays_files_and_chunks(found, tmp_path):
    dask_array = pytest.importorskip("dask.array")
    X = rows_of("wide")[:2500]
    whole = found(1, X)
    np.save(tmp_path / "rows.npy", X)
    np.savetxt(tmp_path / "rows.csv", X, delimiter=",", fmt="%.9g")
    for source in (tmp_path / "rows.npy", str(tmp_path / "rows.csv"), open_dataset(X)):
        assert found(2, source) == whole, source
    assert found(3, dask_array.from_array(X, chunks=(777, 40))) == whole


@pytest.mark.parametrize(
    ("k", "options", "message"),
    [
        (6, {}, r"n_neighbors=6 should be < n_samples=6, because .*; give a smaller n_neighbors"),
        (0, {}, "n_neighbors=0 should be an integer >= 1"),
        (2.0, {}, "n_neighbors=2.0 should be an integer"),
        (2, {"metric": "euclid"}, "did you mean 'euclidean'"),
        (2, {"metric": "cosine"}, "all-zero rows: 1 of them, the first is row 0"),
    ],
)
def test_what_is_refused(k, options, message):
    with pytest.raises(InputError, match=message):
        nearest_neighbors(np.arange(12.0).reshape(6, 2) * [[0], [1], [1], [1], [1], [1]], k, **HERE, **options)


def test_too_little_memory_is_refused():
    with pytest.raises(InsufficientMemoryError, match=r"neighbours of local rows .* What would fit"):
        nearest_neighbors(np.random.default_rng(0).normal(size=(3000, 2)), 100, memory_limit="2 MB", **HERE)


@pytest.mark.parametrize("metric", METRICS)
def test_queries(metric, device):
    X = load_points("pendigits")[0][:900].astype("float64") + 1e4
    others = np.concatenate([X[5:9], X[:50] + np.random.default_rng(0).normal(size=(50, 16))])
    options = {"metric": metric, "dtype": "float64", "client": None, "device": device}
    distances, indices = nearest_neighbors(X, 6, queries=others, **options)
    d = all_distances(others, X, metric)
    order = np.argsort(d, axis=1, kind="stable")[:, :6]
    np.testing.assert_array_equal(indices, order)
    np.testing.assert_allclose(distances, np.take_along_axis(d, order, 1), rtol=1e-6, atol=1e-9)
    if metric in ("euclidean", "manhattan"):
        assert indices[:4, 0].tolist() == [5, 6, 7, 8] and (distances[:4, 0] == 0).all()
    graph = kneighbors_graph(X, 6, queries=others, **options)
    assert graph.shape == (54, 900) and (graph.sum(axis=1) == 6).all()


def test_same_bits_of_queries_on_any_number_of_ranks(found, tmp_path):
    X, others = rows_of("wide"), np.random.default_rng(5).normal(size=(1201, 40))
    np.save(tmp_path / "others.npy", others)
    alone = found(1, X, queries=others)
    assert alone[0][0] == (1201, 5)
    assert found(2, X, queries=tmp_path / "others.npy") == found(4, X, queries=others) == alone
    assert found(3, X, queries=others[:1])[1][1] == alone[1][1][:40]


def test_queries_that_are_refused():
    X = np.arange(12.0).reshape(6, 2)
    assert nearest_neighbors(X, 6, queries=X[:1], **HERE).indices.tolist() == [[0, 1, 2, 3, 4, 5]]
    for queries, k, message in (
        (np.zeros((2, 3)), 1, "queries: n_features=3 should be 2 as in X"),
        (X[:1], 7, "n_neighbors=7 should be <= n_samples=6; give a smaller n_neighbors"),
        ([[0.0, np.inf]], 1, r"NaN or infinity .* 1 of 2 values, the first in row 0"),
        ([[0.0, 1e30]], 1, r"rows lie up to 1e\+30 from the fitted rows"),
    ):
        with pytest.raises(InputError, match=message):
            nearest_neighbors(X, k, queries=queries, **HERE)


def test_graph():
    from sklearn.neighbors import kneighbors_graph as reference

    X = load_points("rings")[0].astype("float64")
    for mode in ("connectivity", "distance"):
        graph = kneighbors_graph(X, 6, mode=mode, dtype="float64", **HERE)
        assert graph.format == "csr" and graph.has_canonical_format is False
        np.testing.assert_allclose(graph.toarray(), reference(X, 6, mode=mode).toarray(), atol=1e-12)
    equal = kneighbors_graph(np.zeros((5, 2)), 2, mode="distance", **HERE)
    assert equal.nnz == 10 and (equal.data == 0).all()
    with pytest.raises(InputError, match="mode='near' should be one of 'connectivity', 'distance'"):
        kneighbors_graph(X, 6, mode="near")


def test_as_a_method(tmp_path, monkeypatch, capsys):
    X = load_points("rings")[0].astype("float32")
    np.save(tmp_path / "rows.npy", X)
    monkeypatch.chdir(tmp_path)
    told = ["run", "nearest-neighbors", "rows.npy", "-o", "out", "--cpu", "--n-neighbors", "4", "--metric", "manhattan"]
    assert cli.run_command(told) == 0
    assert "nearest   4 of each row, the last at" in capsys.readouterr().out
    result = load_result("out")
    distances, indices = nearest_neighbors(X, 4, metric="manhattan", **HERE)
    np.testing.assert_array_equal(result.arrays["indices"], indices)
    np.testing.assert_array_equal(result.arrays["distances"], distances)
    assert result.labels is None and (tmp_path / "out" / "report.html").exists()
    assert json.loads((tmp_path / "out" / "result.json").read_text())["scores"] == {
        "median_distance": float(np.median(distances[:, -1])),
        "max_distance": float(distances[:, -1].max()),
    }
    assert "random_state" not in {option.name for option in NearestNeighbors.options()}
    assert cli.run_command(["run", "nearest-neighbors", "rows.npy", "-o", "more", "--n-neighbors", "600"]) == 2
    assert mgclust.nearest_neighbors is nearest_neighbors
    assert inspect.ismodule(mgclust.algorithms.nearest_neighbors), "a function has the name of the folder"


def test_equal_distances_are_in_the_order_of_their_numbers():
    """Squares that differ in the last bit may have one root."""
    X = np.random.default_rng(0).normal(size=(4000, 20)).astype("float32")
    distances, indices = nearest_neighbors(X, 100, **HERE)
    equal = distances[:, 1:] == distances[:, :-1]
    assert equal.any() and (indices[:, 1:] > indices[:, :-1])[equal].all()


@pytest.mark.parametrize(
    ("metric", "factor"), [("manhattan", 1e12), ("manhattan", 1e-25), ("sqeuclidean", 1e13), ("sqeuclidean", 1e-12)]
)
def test_scales_whose_distances_the_type_holds(metric, factor):
    X = np.round(np.random.default_rng(1).normal(size=(200, 5)) * 1000)
    _, indices = nearest_neighbors(X, 3, metric=metric, **HERE)
    far, same = nearest_neighbors(X * 2.0 ** round(np.log2(factor)), 3, metric=metric, **HERE)
    np.testing.assert_array_equal(same, indices)
    assert np.isfinite(far).all() and (far[:, 0] > 0).all()


def test_sums_of_many_large_numbers_are_refused():
    X = np.random.default_rng(2).choice([-2e37, 2e37], (20, 50))
    with pytest.raises(InputError, match="centred values reach"):
        nearest_neighbors(X, 3, metric="manhattan", **HERE)


def test_few_rows_of_many_features_need_no_memory_for_rows_that_are_not_there():
    X = np.random.default_rng(3).normal(size=(20, 200_000)).astype("float32")  # 15 MiB
    _, indices = nearest_neighbors(X, 3, memory_limit="128MiB", **HERE)
    np.testing.assert_array_equal(indices, expected(X.astype("float64"), 3)[1])


def test_one_row_beside_queries():
    distances, indices = nearest_neighbors([[0.0]], 1, queries=[[1.0], [2.0]], **HERE)
    assert distances.tolist() == [[1], [2]] and indices.tolist() == [[0], [0]]


@pytest.mark.parametrize(
    ("queries", "message"),
    [
        ([[np.nan, 0.0]], "Input queries contains NaN"),
        (np.empty((0, 2)), r"^queries has 0 sample\(s\)"),
        ([1.0, 2.0], "^queries is 1-dimensional"),
        ({}, "^queries is a dict"),
    ],
)
def test_refusals_name_the_queries(queries, message):
    with pytest.raises(InputError, match=message):
        nearest_neighbors(np.eye(3, 2), 1, queries=queries, **HERE)


def test_names_of_queries_are_not_said_to_be_of_a_fit():
    pandas = pytest.importorskip("pandas")
    X = pandas.DataFrame(np.eye(3, 2), columns=["a", "b"])
    for queries in (X[["b", "a"]], X.rename(columns={"b": "c"})):
        with pytest.raises(InputError, match="queries: The feature names should match those of X") as refusal:
            nearest_neighbors(X, 1, queries=queries, **HERE)
        assert " fit" not in str(refusal.value)


@pytest.mark.parametrize("value", [1e150, 1e300])
def test_one_value_too_large_is_the_only_one_that_is_counted(value):
    X = np.random.default_rng(4).normal(size=(500, 5))
    X[7, 2] = value
    with pytest.raises(InputError, match="1 of 2500 values, the first in row 7 "):
        nearest_neighbors(X, 3, **HERE)


def test_graphs_name_an_option_that_is_none():
    with pytest.raises(TypeError, match=r"kneighbors_graph\(\)"):
        kneighbors_graph(np.eye(3), 1, foo=1)


@pytest.mark.parametrize("mode", ["connectivity", "distance"])
def test_a_graph_takes_the_memory_that_is_counted(mode, monkeypatch):
    m, k = 20_000, 64

    def found(*_):
        return estimator.Neighborhoods(np.ones((m, k), np.float32), np.zeros((m, k), np.int64))

    monkeypatch.setattr(estimator, "_search", found)
    what = estimate((m, 2), 4, 1, 1 << 30, n_neighbors=k, queries=None, links=True).what
    tracemalloc.start()
    graph = kneighbors_graph(np.zeros((m, 2), np.float32), k, mode=mode, **HERE)
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert graph.nnz == m * k
    assert most < what["neighbours of local rows"] + what["edges of the graph"] + (1 << 20)


@pytest.mark.parametrize("metric", ["cosine", "correlation"])
def test_warns_of_rows_of_nearly_one_direction(metric, found):
    X = np.random.default_rng(6).normal(size=(3000, 20))
    # Each row's own mean is subtracted in float64 by correlation: a direction that is left is no constant.
    shared = np.where(np.arange(20) % 2, 1.0, -1.0 if metric == "correlation" else 1.0)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        nearest_neighbors(X + 10 * shared, 5, metric=metric, **HERE)
        nearest_neighbors(X + 1e4 * shared, 5, metric=metric, dtype="float64", **HERE)
    said = []
    for size in (1, 3):
        with pytest.warns(ClusteringWarning, match=f"metric='{metric}' in float32: the rows have nearly one") as caught:
            found(size, X + 1e4 * shared, metric=metric)
        said.append(str(caught[0].message))
    assert said[0] == said[1]


@pytest.mark.parametrize("baseline", [1e6, 1e8, "rows"])
def test_correlation_of_rows_far_from_zero(baseline, found):
    """Each row's own mean is subtracted before float64 becomes float32, of rows and of queries."""
    rng = np.random.default_rng(8)
    X = rng.normal(size=(300, 20))
    far = X + (10 ** rng.uniform(0, 9, size=(300, 1)) if baseline == "rows" else baseline)
    unit = far - far.mean(axis=1, keepdims=True)
    unit /= np.linalg.norm(unit, axis=1, keepdims=True)
    distances = 1 - unit @ unit.T
    np.fill_diagonal(distances, np.inf)
    want = np.sort(distances, axis=1)[:, :5]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        one = nearest_neighbors(far, 5, metric="correlation", **HERE)
        beside = nearest_neighbors(far, 6, queries=far[:9], metric="correlation", **HERE)
        assert found(1, far, metric="correlation") == found(3, far, metric="correlation")
    np.testing.assert_allclose(one.distances, want, rtol=1e-5)
    np.testing.assert_allclose(beside.distances[:, 1:], want[:9], rtol=1e-5)


@pytest.mark.parametrize("metric", ["euclidean", "sqeuclidean", "manhattan"])
def test_a_dense_group_far_from_the_others_is_said(metric):
    """Rounding about the mean of all rows moves its rows by more than they lie apart."""
    rng = np.random.default_rng(0)
    group, others = 1e-3 * rng.normal(size=(600, 20)), rng.normal(size=(600, 20))
    for offset, said in ((0, False), (1e4, True)):
        X = np.concatenate([group, offset + others])
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            nearest_neighbors(X, 5, metric=metric, client=None, device="cpu")
        assert any("rounding may change their distances" in str(each.message) for each in caught) == said
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            nearest_neighbors(X, 5, metric=metric, dtype="float64", client=None, device="cpu")


def test_equal_rows_are_not_said_to_be_near():
    X = np.repeat(np.random.default_rng(0).normal(size=(300, 4)), 4, axis=0)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        nearest_neighbors(X, 3, client=None, device="cpu")


@pytest.mark.parametrize("metric", ["cosine", "correlation"])
@pytest.mark.parametrize(("scale", "said"), [(1e-42, "holds few digits of them"), (1e-140, "use dtype='float64'")])
def test_rows_that_lose_their_direction_in_float32(metric, scale, said):
    X = np.random.default_rng(0).normal(size=(200, 5))
    with pytest.raises(InputError, match=said):
        nearest_neighbors(scale * X, 3, metric=metric, client=None, device="cpu")
    if scale > 1e-100:
        found = nearest_neighbors(scale * X, 3, metric=metric, dtype="float64", client=None, device="cpu")
        expected = nearest_neighbors(X, 3, metric=metric, dtype="float64", client=None, device="cpu")
        np.testing.assert_array_equal(found.indices, expected.indices)
