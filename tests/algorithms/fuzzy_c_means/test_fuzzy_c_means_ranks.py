"""The same bits on 1, 2, 3 and 4 CPU ranks, resident or streamed: `FuzzyCMeans` from every kind of start."""

from __future__ import annotations

import hashlib
import math

import numpy as np
import pytest

from mgclust import FuzzyCMeans
from mgclust.algorithms import base
from mgclust.algorithms.fuzzy_c_means import memberships, run_spec
from mgclust.algorithms.fuzzy_c_means.weighted_sums import digits_of, number_of
from mgclust.engine.rows import Rows
from oracles import fuzzy_c_means as reference
from support.points import load_points

pytestmark = [
    pytest.mark.xdist_group("workers"),
    pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning"),
]


def groups(n, d, k, seed=0) -> np.ndarray:
    rng = np.random.default_rng(seed)
    return (6 * rng.normal(size=(k, d))[rng.integers(0, k, n)] + rng.normal(size=(n, d))).astype("float32")


def centers(X, c):
    return X[:: len(X) // c][:c].astype("float64")


# Blocks hold 1,024 rows at least: 10,992 rows make eleven of them, 600 leave ranks without any.
CASES = {
    "k-means++": (lambda: load_points("pendigits")[0], {"n_clusters": 10}),
    "random": (lambda: load_points("pendigits")[0], {"n_clusters": 10, "init": "random", "n_init": 4}),
    "canopy": (lambda: load_points("pendigits")[0], {"n_clusters": 10, "init": "canopy"}),
    "centers": (lambda: load_points("clusters")[0], {"n_clusters": 31, "init": lambda X: centers(X, 31)}),
    "centers, until J settles": (
        lambda: load_points("clusters")[0],
        {"n_clusters": 31, "init": lambda X: centers(X, 31), "stop": "objective", "tol": 1e-3},
    ),
    "centers, until memberships settle": (
        lambda: load_points("clusters")[0],
        {"n_clusters": 31, "init": lambda X: centers(X, 31), "stop": "memberships", "tol": 0.05},
    ),
    "memberships": (
        lambda: load_points("clusters")[0],
        {"n_clusters": 31, "init": lambda X: reference.memberships(X, centers(X, 31), 2.0)},
    ),
    "random memberships": (
        lambda: load_points("clusters")[0],
        {"n_clusters": 31, "init": "random-memberships", "n_init": 2},
    ),
    "double": (lambda: load_points("clusters")[0], {"n_clusters": 31, "dtype": "float64"}),
    "restarts": (lambda: load_points("overlap3")[0], {"n_clusters": 15, "n_init": 5}),
    "m near 1": (lambda: load_points("overlap3")[0], {"n_clusters": 15, "m": 1.001}),
    "automatic m": (lambda: load_points("pendigits")[0], {"n_clusters": 10, "m": "auto"}),
    "m between": (lambda: load_points("overlap3")[0], {"n_clusters": 15, "m": 1.7}),
    "large m": (lambda: load_points("overlap3")[0], {"n_clusters": 15, "m": 10.0}),
    "cosine": (lambda: load_points("pendigits")[0], {"n_clusters": 6, "metric": "cosine"}),
    "correlation": (lambda: load_points("pendigits")[0], {"n_clusters": 6, "metric": "correlation"}),
    "many clusters": (lambda: load_points("clusters")[0], {"n_clusters": 300, "max_iter": 10}),
    "many features": (lambda: groups(4500, 300, 5), {"n_clusters": 5}),
    "fewer blocks than ranks": (lambda: load_points("rings")[0], {"n_clusters": 15}),
    # More rows than are gathered: k-means|| and a sample.
    "k-means||": (lambda: load_points("grid")[0], {"n_clusters": 100, "n_init": 2, "max_iter": 3}),
    "canopies of a sample": (lambda: load_points("grid")[0], {"n_clusters": 100, "init": "canopy", "max_iter": 3}),
}
WEIGHTED = ("k-means++", "random", "random memberships", "centers", "k-means||")
SLOW = ("k-means||", "canopies of a sample", "many clusters")


@pytest.fixture(autouse=True)
def small_data_too(monkeypatch):
    """float32 where it is asked for: `fit` computes small data in float64 whatever is asked."""
    monkeypatch.setattr(run_spec, "FEW_NUMBERS", 0)


@pytest.fixture
def fit_on(ranks, monkeypatch):
    """Fit on a number of ranks: what `connect` would open with so many workers."""

    def fit(size, X, sample_weight=None, **parameters):
        monkeypatch.setattr(base, "connect", lambda **_: ranks(size))
        options = {"device": "cpu", "m": 2.0, "max_iter": 30, "random_state": 5, **parameters}
        if callable(options.get("init")):
            options["init"] = options["init"](X)
        return FuzzyCMeans(**options).fit(X, sample_weight=sample_weight)

    return fit


def bits(model) -> dict[str, str]:
    """Hashes of all results of a fit, but for times."""
    values = {
        name: getattr(model, name)
        for name in (
            "cluster_centers_",
            "labels_",
            "memberships_",
            "objective_history_",
            "n_iter_",
            "partition_coefficient_",
            "partition_entropy_",
            "xie_beni_",
        )
    }
    diagnostics = model.result_.diagnostics
    values |= {"objectives": diagnostics["objectives"], "last_change": diagnostics["last_change"]}
    return {
        name: hashlib.sha256(np.ascontiguousarray(value).tobytes()).hexdigest()[:12] for name, value in values.items()
    }


def cases():
    for case in CASES:
        for weighted in (False, True) if case in WEIGHTED else (False,):
            marks = pytest.mark.slow if case in SLOW else ()
            yield pytest.param(case, weighted, marks=marks, id=f"{case}{', weighted' * weighted}")


@pytest.mark.quick("centers*")
@pytest.mark.parametrize(("case", "weighted"), list(cases()))
def test_same_bits(case, weighted, fit_on):
    make, parameters = CASES[case]
    X = make()
    w = np.random.default_rng(1).integers(0, 3, len(X)).astype("float64") if weighted else None
    expected = bits(fit_on(1, X, w, **parameters))
    for size in (2, 3, 4):
        assert bits(fit_on(size, X, w, **parameters)) == expected, f"on {size} ranks"


def streamed_points(tmp_path) -> str:
    np.save(tmp_path / "rows.npy", groups(250_000, 64, 6))
    return str(tmp_path / "rows.npy")


@pytest.mark.slow
@pytest.mark.parametrize("init", ["k-means++", "canopy", "random"])
def test_streamed_rows_have_the_same_bits(init, fit_on, tmp_path):
    """61 MB of rows where 30 MiB may be used on a rank: they stay in their file and pass by in chunks."""
    path = streamed_points(tmp_path)
    parameters = {"n_clusters": 6, "init": init, "max_iter": 5, "tol": 0.0}
    expected = bits(fit_on(1, path, **parameters))
    for size in (1, 3):
        assert bits(fit_on(size, path, memory_limit="30 MiB", **parameters)) == expected, f"on {size} ranks"


def test_a_zarr_store_written_by_several_ranks(fit_on, tmp_path):
    """Memberships of rows far more than a block, written by all ranks: what one rank returns in memory."""
    X = groups(20_000, 8, 5)
    one = fit_on(1, X, n_clusters=5)
    expected = one.predict_memberships(X)
    four = fit_on(4, X, n_clusters=5)
    lazily = four.predict_memberships(X, out=tmp_path / "memberships.zarr")
    np.testing.assert_array_equal(lazily[:], expected)
    np.testing.assert_array_equal(four.predict(X), one.labels_)


def test_client_parameter_reaches_the_workers(client):
    X = load_points("overlap1")[0]
    options = {"n_clusters": 15, "random_state": 0, "max_iter": 10, "device": "cpu"}
    there = FuzzyCMeans(client=client, n_workers=4, **options).fit(X)
    assert bits(there) == bits(FuzzyCMeans(client=None, **options).fit(X))


@pytest.mark.slow
def test_memberships_of_streamed_rows_are_found_by_blocks(rng, tmp_path, monkeypatch):
    """49 MiB of rows where 40 may be used, in two clusters: all their memberships are less than a piece."""
    np.save(tmp_path / "rows.npy", rng.random((100_000, 128), "float32"))
    find, read, most = memberships.own_memberships, Rows.read, [0]

    def spy(self, start, stop):
        assert not self.resident
        most[0] = max(most[0], stop - start)
        return read(self, start, stop)

    def find_watched(*arguments):
        with monkeypatch.context() as patch:
            patch.setattr(Rows, "read", spy)
            return find(*arguments)

    monkeypatch.setattr(memberships, "own_memberships", find_watched)
    options = {"m": 2.0, "init": "random", "max_iter": 1, "device": "cpu", "client": None, "random_state": 0}
    FuzzyCMeans(2, memory_limit="40 MiB", **options).fit(str(tmp_path / "rows.npy"))
    assert most[0] == 1024


@pytest.mark.parametrize("ranks_of_rows", [1, 2, 5])
def test_sums_of_weights_are_rounded_once(ranks_of_rows):
    """Of parts on several ranks, too, as of all: whatever their exponents."""
    rng = np.random.default_rng(3)
    for spread in (0, 60, 1074):
        numbers = np.ldexp(rng.random(3000), -rng.integers(0, spread + 1, 3000))
        numbers[::9] = 1.0
        numbers[1::9] = 5e-324 * (spread == 1074)
        parts = [digits_of(part) for part in np.array_split(numbers, ranks_of_rows)]
        assert number_of(np.sum(parts, axis=0)) == math.fsum(numbers)
    assert number_of(digits_of(np.zeros(0))) == 0.0
