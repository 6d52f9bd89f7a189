"""Sums of similarities within clusters: each rank computes the pairs of some clusters."""

from __future__ import annotations

import numpy as np
import pytest
from distributed import Client, LocalCluster

from mgclust import AffinityPropagation
from mgclust.algorithms.affinity_propagation.rows import computed_similarities
from mgclust.algorithms.affinity_propagation.rows.computed_similarities import ComputedSimilarities
from mgclust.engine import partition


@pytest.mark.parametrize("size", [1, 2, 3])
def test_ranks_share_the_clusters(size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(partition, "SMALLEST_BLOCK", 64)
    rng = np.random.default_rng(3)
    X = 5 * rng.normal(size=(30, 4))[rng.integers(30, size=500)] + rng.normal(size=(500, 4))
    given = {"algorithm": "sparse", "damping": 0.8, "max_iter": 400}
    every = AffinityPropagation(device="cpu", client=None, **given).fit(X)  # with few rows, from whole rows

    sums: list[np.ndarray] = []
    scales: list[tuple[np.ndarray, float]] = []
    plain = ComputedSimilarities._add_by_label

    def recorded(self, labels, scale, out):
        plain(self, labels, scale, out)
        sums.append(out.copy())
        scales.append((labels, scale))

    monkeypatch.setattr(ComputedSimilarities, "_add_by_label", recorded)
    monkeypatch.setattr(computed_similarities, "PAIR_COST", 1e-9)
    monkeypatch.setattr(computed_similarities, "LABEL_COST", {"cpu": 1e-9})
    with (
        LocalCluster(n_workers=size, processes=False, threads_per_worker=1, dashboard_address=None) as cluster,
        Client(cluster, set_as_default=False) as client,
    ):
        model = AffinityPropagation(device="cpu", client=client, n_workers=size, **given).fit(X)
    np.testing.assert_array_equal(model.labels_, every.labels_)
    assert model.net_similarity_ == every.net_similarity_
    assert len(sums) == size
    assert all(part.any() for part in sums)
    labels, scale = scales[0]
    squares = ((X[:, None] - X) ** 2).sum(axis=2)
    expected = np.where(labels[:, None] == labels, -squares, 0.0).sum(axis=0)
    np.testing.assert_allclose(np.sum(sums, axis=0) / scale, expected, rtol=1e-6)
