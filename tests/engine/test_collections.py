"""Arrays of a result that stay on the workers: Dask arrays given, Dask arrays taken."""

from __future__ import annotations

import gc
import os
import signal
import tracemalloc

import dask
import dask.array as da
import dask.dataframe as dd
import distributed
import numpy as np
import pandas as pd
import pytest
import scipy.sparse

import mgclust
from mgclust import plots
from mgclust.algorithms import NearestNeighbors, Silhouette
from mgclust.algorithms.common.weights import RowWeights, on_host
from mgclust.algorithms.fuzzy_c_means import run_spec
from mgclust.base.dask_arrays import computed, is_dask
from mgclust.base.errors import ClusterUnavailableError, InputError, RunFailed, WorkerLost
from mgclust.data import open_dataset
from mgclust.engine.dask.cluster import connect
from mgclust.engine.dask.scheduler import workers_of
from mgclust.engine.spmd import RunSpec, run
from mgclust.output.report import write_report
from support import rank_jobs
from support.waiting import wait_for

pytestmark = pytest.mark.xdist_group("workers")

CHUNKS = (700, 3, 1500, 1297)


def points(n: int = 3500, d: int = 2) -> np.ndarray:
    rng = np.random.default_rng(5)
    return (rng.normal(size=(n, d)) + 8.0 * rng.integers(0, 3, (n, 1))).astype(np.float32)


def fitted(model, X):
    model.fit_dataset(open_dataset(X), provenance=False)
    return model


METHODS = {
    "significant density peaks": (
        mgclust.DensityPeaks,
        {"density": "knn", "k": "adaptive", "significance": 1.0, "halo": True, "stability": 2},
        ("labels_", "rho_", "k_", "log_density_", "log_density_error_", "halo_"),
    ),
    "density peaks": (mgclust.DensityPeaks, {"halo": True}, ("labels_", "rho_", "delta_", "nearest_higher_", "halo_")),
    "fuzzy c-means": (
        mgclust.FuzzyCMeans,
        {"n_clusters": 3, "random_state": 0, "noise_distance": 3.0},
        ("labels_", "memberships_"),
    ),
    "canopies": (mgclust.Canopy, {"t1": 4.0, "t2": 2.0}, ("labels_", "memberships_")),
    "affinity propagation": (mgclust.AffinityPropagation, {"preference_quantile": 0.1, "damping": 0.8}, ("labels_",)),
    "adaptive affinity propagation": (mgclust.AdaptiveAffinityPropagation, {"profile": "fast"}, ("labels_",)),
    "nearest neighbours": (NearestNeighbors, {"n_neighbors": 3}, ("distances_", "indices_")),
    "silhouette": (Silhouette, {"labels": np.arange(3500) % 3}, ("samples_",)),
}


@pytest.fixture
def rows(client):
    return client.persist(da.from_array(points(), chunks=(CHUNKS, 2)))


def held(client) -> set[str]:
    """Parts of results that workers hold."""
    names = client.run(lambda dask_worker: [key for key in map(str, dask_worker.data) if key.startswith("mgclust-")])
    return {key for keys in names.values() for key in keys if not key.startswith("mgclust-session")}


def end_of(client, before=frozenset()) -> None:
    """Wait until workers hold no more parts of results than before."""
    try:
        wait_for(lambda: held(client) <= before)
    except AssertionError:
        raise AssertionError(f"held: {sorted(held(client) - before)}") from None


def dense(array) -> np.ndarray:
    found = computed(array) if is_dask(array) else array
    return found.toarray() if hasattr(found, "toarray") else found


@pytest.fixture
def without_garbage_collection():
    gc.disable()
    yield
    gc.enable()


@pytest.mark.quick("density peaks")
@pytest.mark.usefixtures("without_garbage_collection")
@pytest.mark.parametrize("method", METHODS)
def test_arrays_have_the_bits_and_chunks_of_their_rows_and_end_with_their_last_reference(method, client, rows):
    before = held(client)  # of other tests
    kind, parameters, names = METHODS[method]
    alone = fitted(kind(client=None, device="cpu", **parameters), points())
    model = fitted(kind(client=client, device="cpu", n_workers=4, **parameters), rows)
    for name in names:
        there, here = getattr(model, name), getattr(alone, name)
        assert is_dask(there) and not is_dask(here), name
        assert there.chunks[0] == CHUNKS and there.shape == here.shape and there.dtype == here.dtype, name
        np.testing.assert_array_equal(dense(there), dense(here), err_msg=name)
    assert model.result_.scores == alone.result_.scores
    if method == "adaptive affinity propagation":
        first = int(alone.scan_["n_clusters"][0])
        np.testing.assert_array_equal(dense(model.labels_for(first)), alone.labels_for(first))
        np.testing.assert_array_equal(dense(model.result_.arrays["samples"]), alone.result_.arrays["samples"])
    assert {key for key in held(client) if "labels" in key or "distances" in key or "samples" in key}
    del model, there
    end_of(client, before)


@pytest.fixture
def gathered_bytes(client, monkeypatch):
    """Bytes of arrays that the client has gathered, but for results of ranks; a list that grows."""
    found, gather = [], client.gather

    def counted(futures, *arguments, **named):
        values = gather(futures, *arguments, **named)  # for the driver, in the event loop, a coroutine
        found.append(sum(np.asarray(value).nbytes for value in np.ravel(np.array([values], object))))
        return values

    monkeypatch.setattr(client, "gather", counted)
    return found


@pytest.mark.quick("DensityPeaks")
@pytest.mark.parametrize(
    "method", [mgclust.DensityPeaks, mgclust.FuzzyCMeans, mgclust.Canopy, mgclust.AffinityPropagation]
)
def test_predictions_are_made_and_stay_where_the_rows_are(method, client, rows, gathered_bytes, monkeypatch):
    few = points()[:300]
    model = method(client=client, device="cpu", **({"n_clusters": 3} if method is mgclust.FuzzyCMeans else {}))
    model.fit(client.persist(da.from_array(few, chunks=(100, 2))))
    expected = model.predict(points())
    assert isinstance(expected, np.ndarray)
    monkeypatch.setattr(da.Array, "__array__", lambda *_, **__: pytest.fail("rows came here"))
    gathered_bytes.clear()
    found = model.predict(rows)
    monkeypatch.undo()
    assert max(gathered_bytes, default=0) < 4 * rows.shape[0]
    assert is_dask(found) and found.chunks == (CHUNKS,) and found.dtype == np.int32
    np.testing.assert_array_equal(computed(found), expected)
    for other in (None, client.scheduler.address):
        np.testing.assert_array_equal(model.set_params(client=other).predict(points()[:50]), expected[:50])


@pytest.mark.slow
def test_nothing_of_the_length_of_the_data_passes_the_client(client):
    n = 2_000_000
    X = client.persist(da.random.default_rng(0).random((n, 2), dtype=np.float32, chunks=(250_000, 2)))
    model = mgclust.Canopy(0.6, 0.4, dtype="float32", client=client, device="cpu").fit(X)
    tracemalloc.start()
    try:
        model.fit(X)
        found = model.predict(X)
        _, most = tracemalloc.get_traced_memory()
        computed(found)
        _, by_gathering = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert most < n < 4 * n <= by_gathering  # bytes; labels have four a row


WEIGHTED = {
    "fuzzy c-means": (
        mgclust.FuzzyCMeans,
        {"n_clusters": 3, "m": 2.0, "random_state": 0},
        ("labels_", "memberships_", "cluster_centers_", "objective_history_"),
    ),
    "fuzzy c-means in float32, far from the origin": (
        mgclust.FuzzyCMeans,
        {"n_clusters": 3, "m": 2.0, "init": "random", "random_state": 0},
        ("labels_", "cluster_centers_", "objective_history_"),
    ),
    "fuzzy silhouettes": (
        mgclust.FuzzyCMeans,
        {"n_clusters_range": (2, 4), "criterion": "fuzzy_silhouette", "random_state": 0},
        ("labels_", "fuzzy_silhouette_"),
    ),
    "covariances": (
        mgclust.FuzzyCMeans,
        {"n_clusters": 3, "covariance_type": "full", "random_state": 0},
        ("labels_", "covariances_"),
    ),
    "density peaks": (mgclust.DensityPeaks, {"n_clusters": 3, "stability": 2}, ("labels_", "rho_", "delta_")),
    "cutoff": (mgclust.DensityPeaks, {"n_clusters": 3, "density": "cutoff"}, ("labels_", "rho_")),
}


@pytest.mark.slow
@pytest.mark.parametrize("size", [1, 3])
@pytest.mark.parametrize("method", WEIGHTED)
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_weights_of_a_dask_array_go_to_their_ranks_and_give_the_same_bits(
    method, size, client, gathered_bytes, monkeypatch
):
    kind, parameters, names = WEIGHTED[method]
    far = 1e4 * ("far" in method)
    # As with many rows, of which not all are gathered for the point near which they lie.
    monkeypatch.setattr("mgclust.algorithms.density_peaks.run_spec.TYPICAL_NUMBERS", 0)
    if far:
        monkeypatch.setattr(run_spec, "FEW_NUMBERS", 0)  # float32 for small data, too
    data, weights = points().astype(np.float64) + far, np.random.default_rng(8).gamma(0.3, size=3500)
    weights[::7] = 0.0
    alone = kind(client=None, device="cpu", **parameters).fit(data, sample_weight=weights)
    X = client.persist(da.from_array(data, chunks=(CHUNKS, 2)))
    w = client.persist(da.from_array(weights, chunks=1000))
    gathered_bytes.clear()
    model = kind(client=client, device="cpu", n_workers=size, **parameters).fit(X, sample_weight=w)
    assert model.result_.hardware["ranks"] == size
    assert "stability" in parameters or max(gathered_bytes) < weights.nbytes
    for name in names:
        np.testing.assert_array_equal(dense(getattr(model, name)), dense(getattr(alone, name)), err_msg=name)
    assert model.result_.scores == alone.result_.scores
    np.testing.assert_array_equal(computed(model.predict(X)), alone.predict(data))
    if kind is mgclust.FuzzyCMeans:
        assert model.score(X, sample_weight=w) == alone.score(data, sample_weight=weights)


@pytest.mark.parametrize(
    "made",
    [
        lambda w: da.from_array(np.r_[w[:-3], -2.0, np.nan, np.inf], chunks=1000),
        lambda w: da.from_array(w[:-1], chunks=1000),
        lambda w: da.from_array(w[:, None], chunks=1000),
        lambda w: da.from_array(w.astype(complex), chunks=1000),
        lambda w: da.zeros(3500, chunks=1000),
    ],
    ids=["values", "too few", "two dimensions", "complex", "all zero"],
)
def test_weights_of_a_dask_array_are_refused_in_the_words_of_others(made, client, rows):
    weights = made(np.linspace(0.0, 1.0, 3500))
    said = []
    for X, given in ((rows, weights), (points(), weights.compute())):
        with pytest.raises(InputError) as error:
            mgclust.FuzzyCMeans(3, client=client, device="cpu").fit(X, sample_weight=given)
        said.append(str(error.value))
    assert said[0] == said[1] and "sample_weight" in said[0]


@pytest.mark.slow
def test_weights_of_any_collection_and_place(client, rows):
    weights = np.random.default_rng(8).gamma(0.3, size=3500)

    def centers(X, w, where=client):
        options = {"m": 2.0, "random_state": 0, "device": "cpu"}
        return mgclust.FuzzyCMeans(3, client=where, **options).fit(X, sample_weight=w).cluster_centers_

    expected = centers(points(), weights, None)
    lazy = da.from_array(weights, chunks=1000)
    series = dd.from_pandas(pd.Series(weights), npartitions=3)
    unknown = lazy[lazy >= 0]
    for given in (lazy, lazy.astype(np.float64)[::-1][::-1], series, unknown, da.ma.masked_less(lazy, -1), weights):
        np.testing.assert_array_equal(centers(rows, given), expected)
    assert np.isnan(unknown.shape[0])  # the caller's array is as it was
    for where in (None, client.scheduler.address):
        np.testing.assert_array_equal(centers(da.from_array(points(), chunks=900), lazy, where), expected)
    np.testing.assert_array_equal(centers(points(), lazy), expected)
    np.testing.assert_array_equal(centers(rows, da.asarray(2.0)), centers(points(), 2.0, None))
    with pytest.raises(InputError, match=f"sample_weight holds {(weights < 0.01).sum()} values that are negative, NaN"):
        centers(rows, da.ma.masked_less(lazy, 0.01))


@pytest.mark.parametrize("values", ["different", "of three kinds", "equal", "one above"])
@pytest.mark.parametrize("count", [1, 7, 100, 1000])
def test_heaviest_rows_of_a_dask_array(values, count):
    rng = np.random.default_rng(2)
    weights = {
        "different": rng.random(500),
        "of three kinds": rng.integers(0, 3, 500).astype(float),
        "equal": np.ones(500),
        "one above": np.r_[np.ones(499), 2.0],
    }[values]
    expected = np.sort(np.argsort(-weights, kind="stable")[:count])
    for array in (weights, da.from_array(weights, chunks=((3, 247, 250),))):
        np.testing.assert_array_equal(RowWeights.of(array).heaviest(count), expected)


@pytest.mark.slow
def test_weights_do_not_pass_the_client(client):
    n = 2_000_000
    X = client.persist(da.random.default_rng(0).random((n, 2), dtype=np.float32, chunks=(250_000, 2)))
    w = client.persist(da.random.default_rng(1).random(n, chunks=250_000))
    model = mgclust.FuzzyCMeans(2, m=2.0, max_iter=2, tol=1.0, client=client, device="cpu").fit(X, sample_weight=w)
    tracemalloc.start()
    try:
        model.fit(X, sample_weight=w)
        _, most = tracemalloc.get_traced_memory()
        model.fit(X, sample_weight=computed(w))
        _, by_gathering = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert most < n < 8 * n <= by_gathering  # bytes


@pytest.mark.slow
def test_queries_of_a_dask_array_give_dask_arrays(client, rows):
    found = mgclust.nearest_neighbors(points()[:500], 2, queries=rows, client=client, device="cpu")
    expected = mgclust.nearest_neighbors(points()[:500], 2, queries=points(), client=None, device="cpu")
    for there, here in zip(found, expected, strict=True):
        assert there.chunks == (CHUNKS, (2,))
        np.testing.assert_array_equal(computed(there), here)
    bad = points()
    bad[[2000, 3400], 1] = np.nan
    for source, place in ((client.persist(da.from_array(bad, chunks=(CHUNKS, 2))), client), (bad, None)):
        with pytest.raises(InputError, match="2 of 7000 values, the first in row 2000 "):
            mgclust.nearest_neighbors(points()[:500], 2, queries=source, client=place, device="cpu")


@pytest.mark.slow
def test_labels_of_a_fit_are_judged_on_the_workers(client, rows):
    model = mgclust.DensityPeaks(client=client, n_workers=4, device="cpu").fit(rows)
    here = on_host(model.labels_)
    there = mgclust.silhouette_samples(rows, model.labels_, client=client, device="cpu")
    np.testing.assert_array_equal(
        computed(there), mgclust.silhouette_samples(points(), here, client=None, device="cpu")
    )
    assert mgclust.silhouette_score(rows, model.labels_, client=client, device="cpu") == computed(there).mean()
    with pytest.raises(InputError, match=r"labels=-1 in row 1000 \(one of 1 negative labels\)"):
        mgclust.silhouette_samples(rows, da.where(da.arange(3500, chunks=700) == 1000, -1, 1), client=client)
    with pytest.raises(InputError, match="all rows have the same label"):
        mgclust.silhouette_samples(rows, da.zeros(3500, chunks=500, dtype=int), client=client)
    with pytest.raises(InputError, match=r"of shape \(3,\) should be of shape \(3500,\)"):
        mgclust.silhouette_samples(rows, da.zeros(3, dtype=int), client=client)


@pytest.mark.slow
def test_chunks_of_other_lengths_are_refused(client, rows):
    """Rows of a rank would be those of others, without an error."""

    def lose_a_row(block, block_info=None):
        return block[1:] if block_info[0]["chunk-location"][0] == 0 else block

    with pytest.raises(
        InputError, match=r"a chunk of the Dask array has shape \(699, 2\), but X.chunks lists \(700, 2"
    ):
        mgclust.DensityPeaks(client=client, n_workers=4, device="cpu").fit(
            rows.map_blocks(lose_a_row, dtype=np.float32)
        )


@pytest.mark.slow
def test_masked_and_sparse_chunks(client, rows):
    masked = da.ma.masked_greater(rows, 8.0)
    with pytest.raises(InputError, match=rf"contains NaN or infinity .*: {(points() > 8).sum()} of 7000 values"):
        mgclust.DensityPeaks(client=client, n_workers=4, device="cpu").fit(masked)
    sparse = rows.map_blocks(scipy.sparse.csr_array)
    model = mgclust.DensityPeaks(client=client, n_workers=4, device="cpu").fit(sparse)
    expected = mgclust.DensityPeaks(client=None, device="cpu").fit(points()).labels_
    np.testing.assert_array_equal(computed(model.labels_), expected)


@pytest.mark.parametrize("made", [lambda client: dask.delayed([[1.0]]), lambda client: client.scatter([[1.0]])])
def test_what_is_no_collection_of_rows_is_told_how_to_become_one(client, made):
    with pytest.raises(InputError, match=r"X is \w+ of (dask|distributed) in memory.*give dask.array.from_delayed"):
        mgclust.DensityPeaks(client=client, n_workers=4, device="cpu").fit(made(client))


@pytest.mark.slow
def test_a_data_frame_has_its_names_and_gives_arrays(client):
    frame = pd.DataFrame(points(), columns=["a", "b"])
    parts = client.persist(dd.from_pandas(frame, npartitions=4))
    model = mgclust.DensityPeaks(client=client, n_workers=4, device="cpu").fit(parts)
    found = model.predict(parts)
    assert model.feature_names_in_.tolist() == ["a", "b"]
    assert is_dask(model.labels_) and len(model.labels_.chunks[0]) == 4
    alone = mgclust.DensityPeaks(client=None, device="cpu").fit(frame)
    np.testing.assert_array_equal(computed(model.labels_), alone.labels_)
    np.testing.assert_array_equal(computed(found), alone.labels_)


def test_a_client_that_ends_with_the_fit_and_an_array_of_this_process_give_numpy_arrays(client, rows):
    address = client.scheduler.address
    lazy = da.from_array(points(), chunks=(900, 2))
    assert isinstance(mgclust.DensityPeaks(client=address, device="cpu").fit(lazy).labels_, np.ndarray)
    assert isinstance(mgclust.DensityPeaks(client=None, device="cpu").fit(lazy).labels_, np.ndarray)
    assert isinstance(mgclust.DensityPeaks(client=client, n_workers=4, device="cpu").fit(points()).labels_, np.ndarray)


@pytest.mark.slow
def test_a_result_is_saved_in_parts_and_computed_on_request(client, rows, tmp_path):
    there = mgclust.DensityPeaks(client=client, n_workers=4, device="cpu", halo=True).fit(rows)
    here = mgclust.DensityPeaks(client=None, device="cpu", halo=True).fit(points())
    for name, model in (("there", there), ("here", here)):
        model.result_.save(tmp_path / name)
    for file in ("labels.npy", "labels.csv", "rho.npy", "nearest_higher.npy", "halo.npy", "centers.npy"):
        assert (tmp_path / "there" / file).read_bytes() == (tmp_path / "here" / file).read_bytes(), file
    np.testing.assert_array_equal(there.result_.cluster_sizes, here.result_.cluster_sizes)
    gathered = there.result_.compute()
    assert isinstance(gathered.labels, np.ndarray) and isinstance(gathered.arrays["rho"], np.ndarray)
    plots.decision_graph(gathered)
    for wanted in ({"n_clusters": 2}, {"rho_min": 20.0, "delta_min": 1.0}):
        there.select_centers(**wanted)
        here.select_centers(**wanted)
        assert there.labels_.chunks == (CHUNKS,)
        np.testing.assert_array_equal(computed(there.labels_), here.labels_)
        assert there.result_.scores == here.result_.scores and not computed(there.halo_).any()
    with pytest.raises(InputError, match="no row lies above both"):
        there.select_centers(rho_min=1e9)
    for model, path in ((there, tmp_path / "there.html"), (here, tmp_path / "here.html")):
        write_report(model.result_, path)
    assert (tmp_path / "there.html").stat().st_size > 20_000
    graph = mgclust.kneighbors_graph(rows, 3, mode="distance", client=client, device="cpu")
    assert (graph != mgclust.kneighbors_graph(points(), 3, mode="distance", client=None, device="cpu")).nnz == 0
    canopies = mgclust.Canopy(4.0, 2.0, client=client, device="cpu").fit(rows)
    canopies.result_.save(tmp_path / "canopies")
    members = mgclust.load_result(tmp_path / "canopies").arrays["memberships"]
    assert (members != computed(canopies.memberships_)).nnz == 0


@pytest.mark.slow
def test_a_lost_worker_is_an_error_of_what_it_held(client, rows):
    model = mgclust.DensityPeaks(client=client, n_workers=4, device="cpu").fit(rows)
    holders = client.who_has(distributed.futures_of(model.labels_))
    address = next(iter(holders.values()))[0]
    pid = client.run(os.getpid, workers=[address])[address]
    os.kill(pid, signal.SIGKILL)
    wait_for(lambda: address not in workers_of(client), 30)
    with pytest.raises((distributed.CancelledError, distributed.client.FutureCancelledError)):
        client.compute(model.labels_.sum()).result(timeout=60)
    asked = (model.result_.compute, ()), (model.predict, (rows,)), (model.select_centers, (2,))
    for method, given in asked:
        with pytest.raises(RunFailed, match="a Dask array is lost: its client is closed, or a worker"):
            method(*given)
    del asked, method
    again = mgclust.DensityPeaks(client=client, n_workers=4, device="cpu").fit(points())
    assert len(again.labels_) == 3500
    del model, again
    gc.collect()
    end_of(client)


def edges_of_groups() -> np.ndarray:
    """Edges of 40 groups of 10 nodes, with some between them, and a node without any behind them all."""
    rng = np.random.default_rng(0)
    within = rng.integers(0, 10, (4000, 2)) + 10 * rng.integers(0, 40, (4000, 1))
    return np.vstack([within, rng.integers(0, 400, (300, 2))])


@pytest.mark.parametrize(
    "ranks", [pytest.param(1, marks=pytest.mark.slow), 2, *(pytest.param(n, marks=pytest.mark.slow) for n in (3, 4))]
)
@pytest.mark.parametrize("kind", ["array", pytest.param("frame", marks=pytest.mark.slow)])
def test_communities_of_dask_edges_stay_on_the_ranks(kind, ranks, client):
    edges = edges_of_groups()
    given = client.persist(da.from_array(edges, chunks=(1100, 2)))
    if kind == "frame":
        given = client.persist(dd.from_pandas(pd.DataFrame(edges, columns=["u", "v"]), npartitions=3))
    graph, whole = (mgclust.open_graph(each, n_nodes=401) for each in (given, edges))
    alone = mgclust.Communities(client=None, device="cpu").fit(whole)
    model = mgclust.Communities(client=client, n_workers=ranks, device="cpu").fit(graph)
    there = model.labels_
    assert is_dask(there) and not is_dask(alone.labels_)
    assert there.chunks == (tuple(np.diff([401 * rank // ranks for rank in range(ranks + 1)]).tolist()),)
    workers = {address for at in client.who_has(distributed.futures_of(there)).values() for address in at}
    assert len(workers) == ranks
    assert there.dtype == alone.labels_.dtype and np.array_equal(computed(there), alone.labels_)
    assert model.result_.scores == alone.result_.scores
    found = mgclust.modularity(graph, there, client=client, n_workers=ranks, device="cpu")
    assert found == mgclust.modularity(whole, alone.labels_, client=None) == model.modularity_
    assert mgclust.modularity(graph, 3 * there + 2, client=client, device="cpu") == found
    np.testing.assert_array_equal(model.cut(7), alone.cut(7))
    del model, there
    gc.collect()
    end_of(client)


@pytest.mark.parametrize("names", [np.arange(400), 3 * np.arange(400), np.array([f"n{i:03}" for i in range(400)])])
def test_data_frames_of_edges_that_a_client_has_which_is_not_the_active_one(names, client):
    table = pd.DataFrame(names[edges_of_groups()], columns=["u", "v"])
    graph = mgclust.open_graph(client.persist(dd.from_pandas(table, npartitions=3)))
    assert isinstance(graph.dask_array, da.Array) and graph.shape == (4300, 2)
    model = mgclust.Communities(client=client, device="cpu").fit(graph)
    alone = mgclust.Communities(client=None, device="cpu").fit(edges_of_groups())
    np.testing.assert_array_equal(computed(model.labels_), alone.labels_)


@pytest.mark.slow
def test_labels_of_nodes_do_not_pass_the_client(client):
    n = 3_000_000  # in pairs, whose communities are found at once
    u = 2 * da.arange(n // 2, chunks=375_000)
    edges = client.persist(da.stack([u, u + 1], axis=1))
    model = mgclust.Communities(client=client, n_workers=2, device="cpu").fit(edges)
    tracemalloc.start()
    try:
        model.fit(edges)
        mgclust.modularity(edges, model.labels_, client=client, device="cpu")
        _, most = tracemalloc.get_traced_memory()
        labels = computed(model.labels_)
        _, by_gathering = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    np.testing.assert_array_equal(labels, np.arange(n) // 2)
    assert most < n < 4 * n <= by_gathering  # bytes


def test_nodes_of_fewer_than_ranks_and_results_of_communities(client, tmp_path):
    edges = client.persist(da.from_array(np.array([[0, 1], [0, 1], [1, 1]]), chunks=(2, 2)))
    model = mgclust.Communities(client=client, n_workers=4, device="cpu").fit(edges)
    assert model.labels_.chunks == ((1, 1),) and computed(model.labels_).tolist() == [0, 0]
    exact = mgclust.Communities(1, client=client, n_workers=3, device="cpu").fit(edges)
    assert is_dask(exact.labels_) and exact.merges_.tolist() == [[0, 1]]
    model.result_.save(tmp_path / "result")
    assert np.asarray(mgclust.load_result(tmp_path / "result").labels).tolist() == [0, 0]
    assert model.result_.cluster_sizes.tolist() == [2]
    write_report(model.result_, tmp_path / "report.html")
    assert (tmp_path / "report.html").stat().st_size > 20_000
    away = mgclust.Communities(client=client.scheduler.address, device="cpu").fit(np.array([[0, 1]]))
    assert isinstance(away.labels_, np.ndarray)
    with pytest.raises(InputError, match=r"labels \(shape=\(3,\), dtype=int64\) should be one integer"):
        mgclust.modularity(edges, da.zeros(3, dtype=int), client=client, device="cpu")


@pytest.mark.parametrize("of", ["array", "estimator"])
def test_arrays_of_a_closed_client_have_one_sentence(of, client):
    """Whether what is asked names this client or not."""
    with distributed.Client(client.scheduler.address, set_as_default=False) as own:
        rows = own.persist(da.from_array(points(), chunks=(CHUNKS, 2)))
        weights = own.persist(da.ones(3500, chunks=(CHUNKS,)))
        edges = own.persist(da.from_array(np.array([[0, 1], [1, 2], [2, 0]]), chunks=(2, 2)))
        model = mgclust.DensityPeaks(3, client=own, n_workers=2, device="cpu").fit(rows)
        fuzzy = mgclust.FuzzyCMeans(2, client=own, n_workers=2, device="cpu", random_state=0).fit(rows)
        newman = mgclust.Communities(client=own, device="cpu").fit(edges)
        assert mgclust.compare_labels(model.labels_, model.labels_)["ari"] == 1.0
    fuzzy._memberships = None
    if of == "array":
        where = {"client": client, "device": "cpu"}
        asked = [
            lambda: mgclust.DensityPeaks(3, **where).fit(rows),
            lambda: mgclust.DensityPeaks(3, client=own, device="cpu").fit(rows),
            lambda: mgclust.DensityPeaks(3, **where).fit(points(), sample_weight=weights),
            lambda: mgclust.Communities(**where).fit(edges),
            lambda: mgclust.silhouette_samples(points(), model.labels_, **where),
            lambda: mgclust.compare_labels(model.labels_, model.labels_),
            model.result_.compute,
        ]
    else:
        asked = [
            lambda: model.predict(points()),
            lambda: model.select_centers(2),
            lambda: fuzzy.memberships_,
            lambda: newman.cut(1),
        ]
    for ask in asked:
        with pytest.raises(RunFailed, match="a Dask array is lost: its client is closed, or a worker"):
            ask()
    with pytest.raises(ClusterUnavailableError, match="is closed; give an open client"):
        fuzzy.predict(points())  # centres are here


@pytest.mark.slow
def test_a_worker_that_is_lost_before_its_part_is_published_is_named(client, rows, monkeypatch):
    from mgclust.engine.dask import collections

    publish = collections.left_on_workers

    def lose_one(client, run, workers, *others):
        client.run(rank_jobs.forget_parts, workers=workers[1:2])
        return publish(client, run, workers, *others)

    monkeypatch.setattr(collections, "left_on_workers", lose_one)
    with connect(client, "cpu") as cluster:
        with pytest.raises(WorkerLost, match=r"worker tcp://.* of rank 1 was lost during the run"):
            run(RunSpec(rank_jobs.deliver_ranks), open_dataset(rows), cluster)
        monkeypatch.undo()
        outcome = run(RunSpec(rank_jobs.deliver_ranks), open_dataset(rows), cluster)
    assert computed(outcome.arrays["ranks"]).max() == cluster.size - 1


@pytest.mark.slow
def test_a_run_whose_client_ends_before_it_is_published_leaves_nothing(client, rows, monkeypatch):
    from mgclust.engine.dask import collections

    def refuse(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(collections, "left_on_workers", refuse)
    with connect(client, "cpu") as cluster, pytest.raises(KeyboardInterrupt):
        run(RunSpec(rank_jobs.deliver_ranks), open_dataset(rows), cluster)
    monkeypatch.undo()
    assert max(client.run(rank_jobs.parts_left).values()) == 1
    with connect(client, "cpu") as cluster:
        outcome = run(RunSpec(rank_jobs.deliver_ranks), open_dataset(rows), cluster)
    assert max(client.run(rank_jobs.parts_left).values()) == 0
    assert computed(outcome.arrays["ranks"]).max() == cluster.size - 1
    assert outcome.value == "of rank 0"


@pytest.mark.slow
def test_arrays_that_the_scheduler_never_hears_of_are_freed(client, rows, monkeypatch):
    from mgclust.engine.dask import collections, tasks

    def publish_and_end(client, run, workers, *_):
        client.run(tasks.publish, run, workers=workers)
        raise KeyboardInterrupt

    before = held(client)
    client.run(rank_jobs.ownerless_after, 1.0)
    try:
        monkeypatch.setattr(collections, "left_on_workers", publish_and_end)
        with connect(client, "cpu") as cluster, pytest.raises(KeyboardInterrupt):
            run(RunSpec(rank_jobs.deliver_ranks), open_dataset(rows), cluster)
        lost = held(client) - before
        assert lost
        monkeypatch.undo()
        with connect(client, "cpu") as cluster:
            outcome = run(RunSpec(rank_jobs.deliver_ranks), open_dataset(rows), cluster)
        kept = {future.key for future in distributed.futures_of(outcome.arrays["ranks"])}
        wait_for(lambda: not held(client) & lost, 30)
        assert kept <= held(client)
    finally:
        client.run(rank_jobs.ownerless_after, tasks.OWNERLESS_SECONDS)


@pytest.mark.slow
def test_the_dashboard_has_the_method_and_the_seconds_of_its_stages(client, rows):
    mgclust.DensityPeaks(client=client, n_workers=4, device="cpu").fit(rows)

    def told(dask_scheduler=None):
        return list(dask_scheduler.cumulative_worker_metrics)

    def seen() -> bool:
        metrics = {key for key in client.run_on_scheduler(told) if isinstance(key, tuple)}
        stages = {key[-2] for key in metrics if "mgclust-density-peaks" in key}
        return {"load", "dc", "rho", "delta", "labels"} <= stages

    wait_for(seen, 60)


def test_runs_of_a_client_are_one_span_of_which_workers_keep_no_more_with_each(client):
    """Unless the caller has begun one."""

    def kept(dask_worker):
        return len(dask_worker.digests_total), {key[1] for key in dask_worker.digests_total if "mgclust-canopy" in key}

    def names(dask_scheduler, ids):
        return {dask_scheduler.extensions["spans"].spans[each].name for each in ids}

    def after_runs(count, own):
        for _ in range(count):
            mgclust.Canopy(4.0, 2.0, client=own, n_workers=4, device="cpu").fit(points())
        sizes, ids = zip(*client.run(kept).values(), strict=True)
        return sizes, set().union(*ids)

    with distributed.Client(client.scheduler.address, set_as_default=False) as own:
        before = after_runs(2, own)
        assert after_runs(3, own) == before
        assert ("mgclust", "canopy") in client.run_on_scheduler(names, ids=before[1])
        with distributed.span("theirs"):
            _, ids = after_runs(1, own)
        assert client.run_on_scheduler(names, ids=ids - before[1]) == {("theirs",)}


def test_series_of_labels_and_weights_that_are_no_array(rows):
    labels = np.arange(3500) % 3
    series = dd.from_pandas(pd.Series(labels), npartitions=3)
    found = mgclust.silhouette_samples(points(), series, client=None)
    np.testing.assert_array_equal(found, mgclust.silhouette_samples(points(), labels, client=None))
    with pytest.raises(InputError, match=r"sample_weight is a Delayed.* of Dask, .*; give dask"):
        mgclust.DensityPeaks(3, device="cpu").fit(rows, sample_weight=dask.delayed(np.ones)(3500))
