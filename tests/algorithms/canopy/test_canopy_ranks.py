"""The same bits on 1, 2, 3 and 4 CPU ranks, resident or streamed: `Canopy`, and all equal to the definition."""

from __future__ import annotations

import hashlib
from types import SimpleNamespace

import numpy as np
import pytest

from mgclust import Canopy
from mgclust.algorithms import base
from mgclust.base.errors import InsufficientMemoryError
from mgclust.engine import spmd
from oracles import canopy as reference
from support.points import load_points

pytestmark = [pytest.mark.xdist_group("workers"), pytest.mark.filterwarnings("ignore::UserWarning")]


def sorted_rows(name) -> np.ndarray:
    X = load_points(name)[0]
    return X[np.lexsort(X.T[::-1])]


# Blocks hold 1,024 rows at least: 600 rows leave ranks without any.
CASES = {
    "paper, 2-D": (lambda: reference.papers_data(20_000, 2), {"t1": 10_000.0, "t2": 7_000.0}),
    "paper, 6-D": (lambda: reference.papers_data(8_000, 6), {"t1": 4_000.0, "t2": 2_800.0}),
    "integers": (lambda: load_points("pendigits")[0], {"t1": 100.0, "t2": 60.0}),
    "integers, single": (lambda: load_points("pendigits")[0], {"t1": 100.0, "t2": 60.0, "dtype": "float32"}),
    "sorted": (lambda: sorted_rows("grid"), {"t1": 3.5, "t2": 2.3}),
    "manhattan": (lambda: load_points("pendigits")[0], {"t1": 300.0, "t2": 200.0, "metric": "manhattan"}),
    "cosine": (lambda: load_points("pendigits")[0], {"t1": 0.2, "t2": 0.1, "metric": "cosine"}),
    "fewer blocks than ranks": (lambda: load_points("rings")[0], {"t1": 3.0, "t2": 0.8}),
    "one canopy": (lambda: load_points("clusters")[0], {"t1": 1e3, "t2": 1e2}),
}


@pytest.fixture
def fit_on(ranks, monkeypatch):
    """Fit on a number of ranks: what `connect` would open with so many workers."""

    def fit(size, X, **parameters):
        monkeypatch.setattr(base, "connect", lambda **_: ranks(size))
        return Canopy(device="cpu", **parameters).fit(X)

    return fit


def bits(model) -> dict[str, str]:
    """Hashes of all results of a fit, but for times."""
    members = model.memberships_
    values = {
        "centers": model.cluster_centers_indices_,
        "labels": model.labels_,
        "steps": model.n_steps_,
        "indptr": members.indptr,
        "indices": members.indices,
        "thresholds": (model.t1_, model.t2_),
    }
    return {
        name: hashlib.sha256(np.ascontiguousarray(value).tobytes()).hexdigest()[:12] for name, value in values.items()
    }


@pytest.mark.quick("fewer blocks than ranks-*")
@pytest.mark.parametrize("order", ["index", "random"])
@pytest.mark.parametrize("case", CASES)
def test_same_bits(case, order, fit_on):
    make, parameters = CASES[case]
    X = make()
    alone = fit_on(1, X, order=order, random_state=3, **parameters)
    expected = bits(alone)
    if order == "index":
        reference.check_equal(
            alone, reference.canopy(X, parameters["t1"], parameters["t2"], parameters.get("metric", "euclidean"))
        )
    for size in (2, 3, 4):
        found = bits(fit_on(size, X, order=order, random_state=3, **parameters))
        assert found == expected, f"on {size} ranks"


@pytest.mark.slow
def test_suggested_thresholds_are_the_same(fit_on):
    X = load_points("pendigits")[0]
    expected = bits(fit_on(1, X, random_state=3))
    for size in (2, 4):
        assert bits(fit_on(size, X, random_state=3)) == expected


@pytest.mark.slow
@pytest.mark.parametrize("order", ["index", "random"])
def test_streamed_rows_have_the_same_bits(order, fit_on, tmp_path):
    """61 MB of rows where 40 MiB may be used for all: they stay in their file and pass by in chunks."""
    X = np.random.default_rng(0).integers(0, 8, (120_000, 64)).astype("float64")
    np.save(tmp_path / "rows.npy", X)
    options = {"t1": 22.3, "t2": 22.0, "order": order, "random_state": 3}
    alone = fit_on(1, tmp_path / "rows.npy", **options)
    assert 10 < alone.n_canopies_ < 10_000
    for size in (1, 3):
        found = bits(fit_on(size, tmp_path / "rows.npy", memory_limit="40 MiB", **options))
        assert found == bits(alone), f"on {size} ranks"


@pytest.mark.parametrize("place", ["on a rank", "on the client"])
def test_memberships_that_do_not_fit_are_refused_by_all_ranks(place, client, monkeypatch):
    """Only the rows of the last rank lie in many canopies; the client joins the memberships of all ranks."""
    rng = np.random.default_rng(0)
    X = np.concatenate([np.zeros((30_000, 2)), rng.random((10_000, 2)) + 50])
    limit = "10 MiB" if place == "on a rank" else None
    if not limit:
        memory = SimpleNamespace(virtual_memory=lambda: SimpleNamespace(available=20 << 20))
        monkeypatch.setattr(spmd, "psutil", memory)
    with pytest.raises(InsufficientMemoryError, match=rf"need .* {place}, .* What would fit: a smaller t1, "):
        Canopy(9.0, 0.05, device="cpu", client=client, n_workers=4, memory_limit=limit).fit(X)


def test_client_parameter_reaches_the_workers(client):
    X = load_points("clusters")[0]
    there = Canopy(2.0, 1.0, device="cpu", client=client, n_workers=4).fit(X)
    assert bits(there) == bits(Canopy(2.0, 1.0, device="cpu", client=None).fit(X))
