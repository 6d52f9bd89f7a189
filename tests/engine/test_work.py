"""Runs that ask for no number of workers take as many as gain by it, and say so."""

from __future__ import annotations

import re

import numpy as np
import pytest

from mgclust import AffinityPropagation, Communities, DensityPeaks
from mgclust.data import open_dataset
from mgclust.engine.dask.cluster import connect
from mgclust.engine.memory import Estimate
from mgclust.engine.spmd import RunSpec, Work, run
from support import rank_jobs

pytestmark = pytest.mark.xdist_group("workers")
EDGES = [(0, 1), (1, 2), (0, 2), (2, 3), (3, 4), (4, 5), (3, 5)]
X = np.random.default_rng(2).normal(size=(900, 2))
LEAST = {"cpu": 100.0, "cuda": 1000.0}


@pytest.mark.parametrize(
    ("amount", "device", "ranks"),
    [(0, "cpu", 1), (199, "cpu", 1), (200, "cpu", 2), (1e4, "cpu", 100), (1e4, "cuda", 10)],
)
def test_each_rank_has_the_least_work(amount, device, ranks):
    assert Work(amount, "edges", LEAST).ranks(device) == ranks


@pytest.mark.parametrize(
    ("amount", "device", "workers"),
    [
        (0, "cpu", 1),
        (4900, "cpu", 1),  # less than five seconds for each of two
        (5000, "cpu", 2),
        (5000, "cuda", 1),  # on a GPU it takes half of five seconds
        (5000, "auto", 1),
        (1e5, "cuda", 10),
        (1e9, "cpu", 16),  # a cluster may have no maximum
    ],
)
def test_workers_that_are_worth_starting(amount, device, workers):
    assert Work(amount, "edges", LEAST, {"cpu": 500.0, "cuda": 2000.0}).growth(device) == workers
    assert Work(amount, "edges", LEAST).growth(device) == 1  # nothing is known
    assert Work(amount, "edges", {"cpu": np.inf, "cuda": np.inf}, {"cpu": 1.0, "cuda": 1.0}).growth(device) == 1


def test_the_sentence():
    found = Work(20_000_000, "edges", {"cuda": 32e6}).sentence("cuda")
    assert found.startswith(
        "for 20,000,000 edges, more ranks would take longer: each rank should have at least 32,000,000"
    )
    assert found.endswith("set n_workers= to use more ranks")
    never = Work(20_000_000, "edges", {"cpu": np.inf})
    assert never.ranks("cpu") == 1
    assert never.sentence("cpu").startswith("more ranks take longer for any number of edges;")


def needs_all(shape, itemsize, size, room):
    return Estimate({"kept": 0 if size == 4 else 1 << 60})


@pytest.mark.slow
def test_a_run_takes_as_many_ranks_as_its_work_is_for(client):
    def hardware(work, estimate=None, n_workers=None):
        spec = RunSpec(rank_jobs.where, estimate=estimate, work=work)
        with connect(client, "cpu", n_workers=n_workers) as cluster:
            return run(spec, open_dataset(X), cluster).hardware

    small, large = Work(250, "edges", LEAST), Work(1e9, "edges", LEAST)
    few = hardware(small)
    assert (few["workers"], few["ranks"]) == (4, 2)
    assert few["fewer_because"].startswith(
        "for 250 edges, more ranks would take longer: each rank should have at least 100"
    )
    for asked in ({"work": None}, {"work": large}, {"work": small, "n_workers": 4}):
        found = hardware(**asked)
        assert found["ranks"] == 4 and "fewer_because" not in found
    # Where it does not fit into these, it takes all.
    found = hardware(small, needs_all)
    assert found["ranks"] == 4 and "fewer_because" not in found


@pytest.mark.slow
@pytest.mark.parametrize(
    ("model", "rows", "reason"),
    [
        (DensityPeaks(3), X, "for 1,620,000 features of pairs of rows"),
        (AffinityPropagation(preference_quantile=0.1), X, "for 810,000 pairs of rows"),
        (
            Communities(random_state=0),
            [(0, 1), (1, 2), (0, 2), (2, 3), (3, 4), (4, 5), (3, 5)],
            "more ranks take longer for any number of edges",
        ),
    ],
)
def test_small_data_take_one_rank_unless_more_are_asked_for(client, model, rows, reason):
    model.set_params(client=client, device="cpu").fit(rows)
    found, labels = model.result_.hardware, model.labels_
    assert found["ranks"] == 1 and found["workers"] == 4
    assert re.match(reason, found["fewer_because"])
    model.set_params(n_workers=3).fit(rows)
    assert model.result_.hardware["ranks"] == 3 and "fewer_because" not in model.result_.hardware
    np.testing.assert_array_equal(model.labels_, labels)


def test_work_of_density_peaks_by_their_path():
    from mgclust.algorithms.density_peaks.run_spec import work_of

    few, many = (300_000, 2), (300_000, 128)
    assert work_of(few, "euclidean", "auto").unit == "rows"
    assert work_of(few, "euclidean", "auto").ranks("cuda") == 1
    assert work_of(few, "manhattan", "auto").ranks("cuda") > 1
    # Two GPUs were faster with 300,000 rows of many features, and took as long with 100,000.
    assert work_of(many, "euclidean", "auto").ranks("cuda") > 1
    assert work_of((100_000, 128), "euclidean", "auto").ranks("cuda") == 1


def test_work_of_fuzzy_c_means_by_its_clusters():
    from mgclust.algorithms.fuzzy_c_means.run_spec import work_of

    # As measured on one GPU and on two.
    for few in ((300_000, 128, 256), (300_000, 8, 8)):
        assert work_of(*few).ranks("cuda") == 1
    for many in ((3_000_000, 8, 8), (10_000_000, 32, 16)):
        assert work_of(*many).ranks("cuda") > 1
