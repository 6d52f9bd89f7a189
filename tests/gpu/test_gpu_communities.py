"""Communities on GPUs: each kernel, and what comes out, equal to the CPU's bit for bit; and the same on 1, 2, 4."""

from __future__ import annotations

import importlib
import importlib.util

import numpy as np
import pytest

from mgclust import Communities, modularity
from mgclust.datasets import make_random_network
from mgclust.kernels import load
from mgclust.kernels.graph.adjacency import Adjacency, Gain
from support.graph_ranks import contracted_by_owners, read_by_owners
from support.graphs import load_graph

pytestmark = pytest.mark.gpu


def pairs_of(kind: str, rng: np.random.Generator) -> tuple[np.ndarray, int]:
    """Edges whose rows are short, of hubs (a long row each), or of a dense graph (medium rows)."""
    if kind == "short":
        return rng.integers(0, 3000, (9000, 2)), 3010
    if kind == "hubs":
        leaves = rng.integers(5, 6000, (9000, 1))
        return np.concatenate(
            [np.column_stack([rng.integers(0, 5, 9000), leaves[:, 0]]), rng.integers(0, 6000, (4000, 2))]
        ), 6000
    if kind == "wide":  # one row of more columns than a table has slots
        return np.concatenate(
            [np.column_stack([np.zeros(30_000), np.arange(1, 30_001)]), rng.integers(0, 30_001, (9000, 2))]
        ), 30_001
    return rng.integers(0, 400, (60_000, 2)), 400


@pytest.fixture(params=["short", "hubs", "dense", "wide"])
def graph(request):
    rng = np.random.default_rng(3)
    pairs, n = pairs_of(request.param, rng)
    return pairs.astype(np.int32), n, rng


def in_order(rows):
    """Row numbers, columns and weights on the host, sorted: the columns of a row are in any order."""
    there = [None if each is None else load("cuda").memory.to_host(each) for each in (rows.columns, rows.weights)]
    row = np.repeat(np.arange(rows.rows), np.diff(load("cuda").memory.to_host(rows.starts)))
    order = np.lexsort((there[0], row))
    return [row, there[0][order], None if there[1] is None else there[1][order]]


@pytest.mark.parametrize("directed", [False, True])
@pytest.mark.parametrize("way", ["sorted", "tables", "both"])
@pytest.mark.parametrize("weights", [None, "int32", "int64", "huge"])
def test_kernels_equal_the_cpus(graph, weights, way, directed, monkeypatch):
    pairs, n, rng = graph
    contraction = importlib.import_module("mgclust.kernels.graph.gpu_contraction")
    if way != "sorted":
        monkeypatch.setattr(contraction, "SORTED", 0)
    if way == "tables":  # pairs are put into rows in several passes
        monkeypatch.setattr(contraction, "RANGE", 700)
    if way == "both":  # tables for rows of up to 700 entries; longer rows are sorted
        monkeypatch.setattr(contraction, "LONG", 700)
        monkeypatch.setattr(contraction, "TABLES", ((9, 300, 256), (10, 700, 1024)))
        monkeypatch.setattr(contraction, "BATCH", 5000)
    cpu, gpu = load("cpu"), load("cuda")
    weight = None
    if weights is not None:
        largest = 2**45 if weights == "huge" else 50
        weight = rng.integers(1, largest, len(pairs)).astype("int64" if weights == "huge" else weights)
    exact = weights in (None, "int32")

    def equal(ours, theirs):
        for mine, its in zip(ours, theirs, strict=True):
            assert (mine is None) == (its is None)
            if its is not None:
                np.testing.assert_array_equal(gpu.memory.to_host(mine), its)
                assert mine.dtype == its.dtype

    def there(array):
        return None if array is None else gpu.memory.to_device(array)

    ends = np.ascontiguousarray(pairs.astype(np.int32).T)
    whole = cpu.graph.rows_of_edges([(ends[0], ends[1], weight)], count=n)
    ours = gpu.graph.rows_of_edges([(there(ends[0]), there(ends[1]), there(weight))], count=n)
    equal(in_order(ours), in_order(whole))
    strength = np.zeros(n, np.int64)
    row = np.repeat(np.arange(n), np.diff(whole.starts))
    np.add.at(strength, row, 1 if whole.weights is None else whole.weights)
    gain = Gain(int(strength.sum()), 1.0 if exact else 1.3, exact, directed)
    if directed:
        strength >>= 30 if weights == "huge" else 0
        leaving = rng.integers(0, strength + 1)
        strength = leaving * 2**32 + strength - leaving
    for first, stop in ((0, n), (n // 3, n // 2)):
        own = slice(whole.starts[first], whole.starts[stop])
        starts = whole.starts[first : stop + 1] - whole.starts[first]
        part = None if whole.weights is None else whole.weights[own]
        its = Adjacency(first, starts, whole.columns[own], part)
        mine = Adjacency(first, there(starts), there(whole.columns[own]), there(part))
        labels = rng.integers(0, n // 7, n).astype(np.int32)
        active = (rng.random(n) < 0.7).astype(np.uint8)
        totals = cpu.graph.sum_by_id(strength, labels, n)
        equal([gpu.graph.sum_by_id(there(strength), there(labels), n)], [totals])
        results = []
        for kernels, rows in ((cpu, its), (gpu, mine)):
            move = (lambda a: a.copy()) if kernels is cpu else gpu.memory.to_device
            d, lab, tot = move(strength), move(labels), move(totals)
            proposal, tally = kernels.xp.empty(n, "int32"), kernels.xp.zeros(2, "int64")
            activated = kernels.xp.zeros(n, "uint8")
            kernels.graph.propose_moves(
                rows, d, lab, tot, move(active), gain=gain, classes=3, turn=1, salt=77, out=proposal, tally=tally
            )
            proposed = proposal.copy()
            kernels.graph.apply_moves(proposal, d, lab, tot)
            kernels.graph.activate_neighbors(rows, proposal, lab, activated)
            found = [proposed, tally, lab, tot, activated, np.array([kernels.graph.cross_weight(rows, lab)])]
            for within in (None, lab):
                for any_sign in (False, True):
                    out = kernels.xp.empty(n, "int32")
                    kernels.graph.best_partners(
                        rows, d, within, gain=gain, any_sign=any_sign, noise=0.5, salt=2**63 + 5, out=out
                    )
                    found.append(out)
                    for share in (0.0, 0.2, 1.0):
                        representative = kernels.graph.match_mutual(out, share=share)
                        ids, count = kernels.graph.relabel(representative)
                        found += [representative, ids, np.array([count])]
                        found += in_order(kernels.graph.contract(rows, ids, count=count))
            roots = kernels.xp.arange(n, dtype="int32")
            while True:
                before = roots.copy()
                kernels.graph.propagate_roots(rows, lab, roots)
                roots = roots[roots]
                if bool((roots == before).all()):
                    break
            found += [roots, kernels.graph.weights_before(rows, lab, kernels.xp.arange(n, dtype="int64"))]
            results.append([kernels.memory.to_host(each) for each in found])
        for ours_, theirs_ in zip(results[1], results[0], strict=True):
            np.testing.assert_array_equal(ours_, theirs_)
    assert (results[0][0] >= 0).any()

    halves, bounds = np.array_split(np.arange(len(pairs)), 2), [0, n // 3, n]
    groups = -(-n // 5)
    group_bounds, ids = [0, groups // 2, groups], rng.integers(0, groups, n).astype(np.int32)
    results = []
    for kernels, move, rows in ((cpu, lambda array: array, whole), (gpu, there, ours)):
        edges = [
            (*(move(each[half]) for each in ends), None if weight is None else move(weight[half])) for half in halves
        ]
        owned = read_by_owners(kernels, edges, n, bounds)
        owned += contracted_by_owners(kernels, rows, move(ids), groups, bounds, group_bounds)
        results.append([array for each in owned for array in (np.array([each.first, each.rows]), *in_order(each))])
    equal(results[1], results[0])


def assert_same(model, other):
    np.testing.assert_array_equal(model.labels_, other.labels_)
    assert model.modularity_ == other.modularity_
    assert model.rounds_ == other.rounds_
    np.testing.assert_array_equal(model.merges_, other.merges_)
    np.testing.assert_array_equal(model.modularity_history_, other.modularity_history_)


@pytest.mark.parametrize("resolution", [1.0, 0.6])
@pytest.mark.parametrize("strategy", ["greedy", "parallel"])
@pytest.mark.parametrize("name", ["karate", "netscience", "cora", "power", "hep-th"])
def test_equal_to_the_cpu(name, strategy, resolution):
    edges = load_graph(name)
    options = {"strategy": strategy, "resolution": resolution, "client": None}
    cpu, gpu = (Communities(device=device, **options).fit(edges) for device in ("cpu", "cuda"))
    assert_same(cpu, gpu)
    assert modularity(edges, gpu.labels_, resolution, client=None, device="cuda") == gpu.modularity_


def test_weights_of_any_size_equal_the_cpus():
    rng = np.random.default_rng(0)
    network = make_random_network(20, 50, 16, 0.7, random_state=1)
    for weights in (rng.random(len(network.edges)), rng.integers(1, 2**40, len(network.edges)).astype(float)):
        for strategy in ("greedy", "parallel"):
            options = {"strategy": strategy, "client": None}
            assert_same(*(Communities(device=d, **options).fit((network.edges, weights)) for d in ("cpu", "cuda")))


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("weights", [None, "integers", "floats"])
def test_known_communities_and_objectives_are_the_same_on_the_device(weights):
    rng = np.random.default_rng(2)
    edges = rng.integers(0, 4000, (12_000, 2)).astype(np.int32)
    edges = np.concatenate([edges, np.column_stack([np.zeros(3000, np.int32), rng.integers(1, 4000, 3000)])])
    drawn = None if weights is None else rng.integers(1, 9, len(edges)) / (1 if weights == "integers" else 8.3)
    graph = (edges, 4100) if drawn is None else (np.column_stack([edges, drawn]), 4100)
    init = rng.integers(-1, 60, 4100)
    fixed = np.flatnonzero((init >= 0) & (rng.random(4100) < 0.1))
    for start in ({}, {"init": init}, {"init": init, "fixed": fixed}):
        for objective in ("modularity", "cpm", "directed"):
            which = {"directed": True} if objective == "directed" else {"objective": objective}
            given = {**which, "resolutions": [1.0, 0.05, 3.0], "client": None, **start}
            host, device = (Communities(device=d, **given).fit(graph) for d in ("cpu", "cuda"))
            for name, values in host.result_.arrays.items():
                np.testing.assert_array_equal(values, device.result_.arrays[name], err_msg=f"{objective}, {name}")
            assert host.quality_ == device.quality_
            assert host.rounds_ == device.rounds_


def test_evidence_is_the_same_on_the_device():
    edges, _ = load_graph("cora")
    weights = np.random.default_rng(4).integers(1, 5, len(edges)).astype(float)
    for graph in (edges, (edges, weights)):
        for objective in ("modularity", "cpm"):
            resolution = 1.0 if objective == "modularity" else 0.02
            given = {"objective": objective, "resolution": resolution, "null": 3, "stability": 3}
            given |= {"consensus": 3} if objective == "modularity" else {}
            host, device = (
                Communities(**given, client=None, device=d, random_state=2).fit(graph) for d in ("cpu", "cuda")
            )
            np.testing.assert_array_equal(host.labels_, device.labels_)
            assert host.quality_ == device.quality_
            np.testing.assert_equal(host.significance_, device.significance_)
            np.testing.assert_equal(host.stability_, device.stability_)


def test_random_networks_are_the_same_on_the_device():
    for arguments in ((5, 100, 16, 0.8), (7, 33, 5.0, 0.31), (1, 40, 6, 1.0)):
        host, device = (make_random_network(*arguments, random_state=4, device=d) for d in ("cpu", "cuda"))
        np.testing.assert_array_equal(host.edges, device.edges.get())


@pytest.mark.parametrize("size", [2, 4])
def test_same_bits_on_several_gpus(size):
    import cupy

    for package in ("distributed", "dask_cuda"):
        if importlib.util.find_spec(package) is None:
            pytest.skip(f"{package} is not installed")
    if cupy.cuda.runtime.getDeviceCount() < size:
        pytest.skip(f"fewer than {size} GPUs here")
    from dask_cuda import LocalCUDACluster
    from distributed import Client

    rng = np.random.default_rng(0)
    # More than 2^20 entries, so that rows stay apart on several levels.
    network = make_random_network(200, 625, 32, 0.7, random_state=1)
    weights = rng.random(len(network.edges))
    hubs = np.column_stack([rng.integers(0, 40, 900_000), rng.integers(0, 300_000, 900_000)])
    with (
        LocalCUDACluster(n_workers=size, CUDA_VISIBLE_DEVICES=list(range(size)), dashboard_address=None) as cluster,
        Client(cluster) as client,
    ):
        for name, data in (
            ("network", network.edges),
            ("weights", (network.edges, weights)),
            ("hubs", hubs),
            ("small", load_graph("cora")),
        ):
            for strategy in ("parallel", "greedy") if name in ("network", "small") else ("parallel",):
                one, several = (
                    Communities(strategy=strategy, client=where, device="cuda", n_workers=ranks).fit(data)
                    for where, ranks in ((None, None), (client, size))
                )
                assert_same(one, several)
                assert modularity(data, several.labels_, client=client) == several.modularity_, name
