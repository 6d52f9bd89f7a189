"""Affinity propagation on hard data: the CPU's exemplars where rows are equal, and no poor optimum without a word."""

from __future__ import annotations

import numpy as np
import pytest

from mgclust import AdaptiveAffinityPropagation, AffinityPropagation
from mgclust.algorithms.affinity_propagation import estimator
from oracles import affinity_propagation as oracle
from support import hard_rows

pytestmark = [pytest.mark.gpu, pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")]


@pytest.fixture(autouse=True)
def types_as_asked(monkeypatch):
    """Small data, too, are computed in the type that is asked for."""
    monkeypatch.setattr(estimator, "FEW_SIMILARITIES", 0)


@pytest.mark.parametrize("algorithm", ["dense", "sparse"])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("d", hard_rows.FEATURES)
@pytest.mark.parametrize("kind", hard_rows.KINDS)
def test_hard_data(kind, d, dtype, algorithm):
    X, y = hard_rows.rows(kind, d)
    given = {"damping": 0.9, "max_iter": 1000, "dtype": dtype, "algorithm": algorithm, "client": None}
    cpu, gpu = (AffinityPropagation(device=device, **given).fit(X) for device in ("cpu", "cuda"))
    S = oracle.similarity(X)
    for model in (cpu, gpu):
        hard_rows.check(model, S, y)
    if y is not None:
        np.testing.assert_array_equal(gpu.cluster_centers_indices_, cpu.cluster_centers_indices_)
        np.testing.assert_array_equal(gpu.labels_, cpu.labels_)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_a_scan_of_equal_rows(dtype):
    X, y = hard_rows.rows("duplicates", 64)
    scans = [AdaptiveAffinityPropagation(device=device, dtype=dtype, client=None).fit(X) for device in ("cpu", "cuda")]
    for scan in scans:
        assert scan.converged_ and scan.n_clusters_ == len(np.unique(y))
    np.testing.assert_array_equal(scans[0].cluster_centers_indices_, scans[1].cluster_centers_indices_)
