"""The same bits on 1, 2, 3 and 4 CPU ranks: affinity propagation, and complete adaptive scans."""

from __future__ import annotations

import hashlib

import numpy as np
import pytest

from mgclust import AdaptiveAffinityPropagation, AffinityPropagation
from mgclust.algorithms import base
from mgclust.base.dask_arrays import computed
from mgclust.base.errors import InputError
from mgclust.data.arrays import DaskDataset
from oracles.affinity_propagation import similarity
from support.points import load_points

pytestmark = pytest.mark.xdist_group("workers")


def groups(sizes, d, spread, seed) -> np.ndarray:
    """Groups of these sizes around random centres, rows in random order."""
    rng = np.random.default_rng(seed)
    y = rng.permutation(np.repeat(np.arange(len(sizes)), sizes))
    return (spread * rng.normal(size=(len(sizes), d))[y] + rng.normal(size=(len(y), d))).astype("float32")


# Blocks hold 1,024 rows: 3,100 make four of them, 2,100 three, and 178 leave ranks without any. Few small groups beside
# large ones make a scan short: the preference at which a group is given up grows with its size.
SCANS = {
    # name: (rows, parameters, iterations at least, numbers of ranks): all end at K = 2
    "four blocks": (lambda: groups((1600, 1485, 15), 3, 30, 3), {}, 900, (4,)),
    "oscillating": (lambda: groups((1060, 1025, 10, 5), 3, 30, 2), {}, 850, (3,)),
    "double": (lambda: groups((1060, 1030, 10), 3, 30, 3), {"dtype": "float64"}, 550, (3,)),
    "correlation": (lambda: groups((1060, 1030, 10), 40, 30, 4), {"affinity": "correlation"}, 800, (2,)),
    "paper": (lambda: groups((1060, 1030, 10), 3, 60, 5), {"profile": "paper"}, 900, (4,)),
    "fast": (lambda: groups((1600, 1485, 15), 3, 30, 3), {"profile": "fast"}, 100, (3,)),
    "fewer blocks than ranks": (lambda: load_points("wine")[0], {"dtype": "float64"}, 2538, (2, 3, 4)),
    "long": (lambda: groups((1030, 1015, 15, 12, 11, 9, 8), 4, 50, 3), {}, 1800, (2,)),
}
CASES = {
    "2-D": ("clusters", {"damping": 0.8}),
    "double": ("clusters", {"damping": 0.8, "dtype": "float64"}),
    "no convergence": ("clusters", {"damping": 0.5, "max_iter": 60}),
    "pendigits": ("pendigits", {}),
    "cosine": ("pendigits", {"affinity": "cosine", "damping": 0.8}),
    "quantile": ("clusters", {"damping": 0.9, "preference_quantile": 0.3}),
    "forty clusters": ("clusters", {"damping": 0.8, "n_clusters": 40}),
    "duplicates": ("duplicates", {"damping": 0.9}),
    "own preferences": ("clusters", {"damping": 0.9, "preference": -np.linspace(1, 40, 3100)}),
    "fewer blocks than ranks": ("rings", {"damping": 0.8}),
}


@pytest.fixture
def fit_on(ranks, monkeypatch):
    """Fit on a number of ranks: what `connect` would open with so many workers."""

    def fit(estimator, size, X, **parameters):
        monkeypatch.setattr(base, "connect", lambda **_: ranks(size))
        return estimator(device="cpu", **parameters).fit(X)

    return fit


def bits(model) -> dict[str, str]:
    """Hashes of all results of a fit, but for times."""
    values = {
        name: getattr(model, name)
        for name in ("labels_", "cluster_centers_indices_", "n_iter_", "converged_", "net_similarity_", "preference_")
    }
    if hasattr(model, "scan_"):
        values |= model.scan_ | {f"labels for {k}": model.labels_for(k) for k in model.scan_["n_clusters"]}
        values["log"] = np.frombuffer("\n".join(model.log_).encode(), "uint8")
    return {
        name: hashlib.sha256(np.ascontiguousarray(value).tobytes()).hexdigest()[:12] for name, value in values.items()
    }


@pytest.fixture(scope="module")
def alone() -> dict:
    """What one rank found, by the name of the case."""
    return {}


@pytest.mark.slow
@pytest.mark.parametrize(("case", "size"), [(case, size) for case in SCANS for size in SCANS[case][3]])
def test_same_bits_over_a_whole_scan(case, size, fit_on, alone):
    make, parameters, at_least, _ = SCANS[case]
    X = make()
    if case not in alone:
        model = fit_on(AdaptiveAffinityPropagation, 1, X, **parameters)
        assert model.converged_ and model.n_iter_ >= at_least and model.log_[-1].endswith("is confirmed")
        alone[case] = bits(model)
    assert bits(fit_on(AdaptiveAffinityPropagation, size, X, **parameters)) == alone[case]


@pytest.mark.quick("fewer blocks than ranks", "duplicates")
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("case", CASES)
def test_same_bits_of_affinity_propagation(case, fit_on):
    name, parameters = CASES[case]
    if name == "duplicates":
        X = np.repeat(np.random.default_rng(0).normal(size=(300, 64)), 4, axis=0)
    else:
        X = load_points(name)[0][:3100]
    expected = bits(fit_on(AffinityPropagation, 1, X, **parameters))
    for size in (2, 3, 4):
        assert bits(fit_on(AffinityPropagation, size, X, **parameters)) == expected, f"on {size} ranks"


@pytest.mark.slow
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_ranks_read_their_own_similarities(dtype, fit_on, tmp_path):
    """A matrix on disk, of which each rank reads its rows."""
    S = similarity(load_points("clusters")[0][:2500]).astype(dtype)
    np.save(tmp_path / "similarities.npy", S)
    parameters = {"affinity": "precomputed", "damping": 0.8, "dtype": dtype}
    expected = bits(fit_on(AffinityPropagation, 1, S, **parameters))
    for size in (2, 3):
        assert bits(fit_on(AffinityPropagation, size, tmp_path / "similarities.npy", **parameters)) == expected


@pytest.mark.slow
def test_client_parameter_reaches_the_workers(client):
    X = load_points("wine")[0]
    there = AdaptiveAffinityPropagation(device="cpu", client=client, n_workers=4).fit(X)
    here = AdaptiveAffinityPropagation(device="cpu", client=None).fit(X)
    assert bits(there) == bits(here)


@pytest.mark.slow
def test_small_data_are_computed_in_float64_on_any_number_of_ranks(fit_on):
    X = load_points("overlap1")[0][:1025]
    for n, dtype in ((1024, "float64"), (1025, "float32")):
        for size in (1, 2, 4):
            model = fit_on(AffinityPropagation, size, X[:n], damping=0.8)
            assert model.computed_in_ == model.result_.diagnostics["computed_in"] == dtype, f"{n} rows on {size} ranks"
        asked = fit_on(AffinityPropagation, 1, X[:n], damping=0.8, dtype="float64")
        assert asked.computed_in_ == "float64"
        assert dtype == "float32" or asked.net_similarity_ == model.net_similarity_


@pytest.mark.slow
@pytest.mark.parametrize("estimator", [AffinityPropagation, AdaptiveAffinityPropagation])
def test_predict_of_a_dask_array_reads_no_row_here(estimator, client, monkeypatch):
    """Its chunks stay with the workers; the labels are those of the same rows in memory."""
    dask_array = pytest.importorskip("dask.array")
    X = load_points("wine")[0]
    model = estimator(device="cpu", client=None).fit(X)
    expected = model.predict(X)
    rows = client.persist(dask_array.from_array(X, chunks=((50, 3, 100, 25), X.shape[1])))
    monkeypatch.setattr(DaskDataset, "_read", lambda *_: pytest.fail("a row was read here"))
    labels = model.set_params(client=client).predict(rows)
    assert labels.chunks == (rows.chunks[0],) and labels.dtype == np.int32
    np.testing.assert_array_equal(computed(labels), expected)
    with pytest.raises(InputError, match="Input X contains NaN or infinity"):
        model.predict(dask_array.where(rows == X[77, 2], np.nan, rows))
