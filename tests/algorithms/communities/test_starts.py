"""Several starts, and the graph of the nodes on which they agree."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from mgclust import Communities
from mgclust.algorithms.communities import parallel
from mgclust.algorithms.communities.levels import Level
from mgclust.algorithms.communities.parallel import Effort
from mgclust.engine.partition import Partition
from mgclust.engine.transport.comm import SoloComm
from mgclust.kernels import load
from mgclust.kernels.graph.adjacency import Adjacency, Gain
from support.graphs import load_graph


def level_of(n: int) -> Level:
    rows = Adjacency(0, np.zeros(n + 1, np.int64), np.empty(0, np.int32), None)
    return Level(load("cpu"), SoloComm(Partition(1, 1, 1), 1), n, 0, rows, np.zeros(n, np.int64), Gain(0, 1.0, True))


@pytest.mark.parametrize("starts", [1, 2, 5])
@pytest.mark.parametrize("n", [1, 2, 300])
def test_nodes_agree_if_every_start_puts_them_together(n: int, starts: int) -> None:
    rng = np.random.default_rng([n, starts])
    partitions = [rng.integers(0, min(n, 4), n).astype(np.int32) for _ in range(starts)]
    ids, count = parallel._agreed(level_of(n), partitions)
    together = np.all([labels[:, None] == labels for labels in partitions], axis=0)
    np.testing.assert_array_equal(ids[:, None] == ids, together)
    assert ids.dtype == np.int32
    assert set(ids) <= set(range(count))


def test_no_start_is_better_than_their_combination() -> None:
    model = Communities(strategy="parallel", device="cpu", client=None).fit(load_graph("cora"))
    assert model.modularity_ >= max(entry["modularity"] for entry in model.rounds_) - 1e-12
    numbers = [entry["start"] for entry in model.rounds_]
    effort = next(effort for entries, effort in parallel.EFFORTS if 2 * model.n_edges_ <= entries)
    assert numbers == sorted(numbers)
    assert numbers[-1] == effort.starts + 2  # from the best start, from single nodes, and on the whole graph


ONE_START = Effort(1, 5, 1e-4)


@pytest.mark.parametrize(
    ("effort", "arguments", "starts"),
    [
        (Effort(4, 5, 1e-5, combined=2), {}, 7),
        (
            Effort(1, 5, 1e-5, combined=2),
            {"objective": "cpm", "resolution": 0.05},
            6,
        ),
        (Effort(4, 5, 1e-5, combined=2), {"init": np.arange(2708) % 7}, 1),
        (Effort(4, 5, 1e-5), {}, 4),
        (ONE_START, {}, 1),
        (ONE_START, {"objective": "cpm", "resolution": 0.05}, 3),
    ],
)
def test_how_many_starts_there_are(
    effort: Effort, arguments: dict[str, Any], starts: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(parallel, "EFFORTS", ((math.inf, effort),))
    model = Communities(strategy="parallel", device="cpu", client=None, **arguments).fit(load_graph("cora"))
    score = "quality" if "objective" in arguments else "modularity"
    assert {entry["start"] for entry in model.rounds_} == set(range(starts))
    assert model.result_.scores[score] >= max(entry[score] for entry in model.rounds_) - 1e-9
