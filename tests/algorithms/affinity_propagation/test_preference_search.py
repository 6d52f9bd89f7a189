"""The bisection of the preference, on made numbers of clusters."""

from __future__ import annotations

import numpy as np
import pytest

from mgclust.algorithms.affinity_propagation.preference_search import PreferenceSearch, Tried


def search(wanted, clusters_of, n=1000) -> PreferenceSearch:
    """Search where a distance below the largest similarity, 0, gives so many clusters; similarities reach to -1."""
    found = PreferenceSearch(wanted, n, -1.0, 0.0, -0.3)
    while (preference := found.following()) is not None:
        found.tried.append(Tried(preference, n if preference > 0 else clusters_of(-preference), 100, True))
        assert len(found.tried) < 60
    return found


@pytest.mark.parametrize("power", [0.4, 1.0])
def test_every_number(power):
    def clusters(distance):
        return int(np.clip(1000 * (1 + 1000 * distance) ** -power, 1, 1000))

    for wanted in (1, 2, 3, 10, 99, 500, 998, 1000):
        if clusters(1000) <= wanted:
            found = search(wanted, clusters)
            assert found.met and found.problem() is None, wanted
            assert len(found.tried) <= 20


@pytest.mark.parametrize(("wanted", "nearest"), [(500, 600), (300, 100), (99, 100), (1, 20), (601, 600), (999, 1000)])
def test_jumps(wanted, nearest):
    """From 600 to 100 to 20, and n where the preference is above all similarities."""
    found = search(wanted, lambda distance: 600 if distance < 0.02 else 100 if distance < 7 else 20)
    assert not found.met and found.tried[found.nearest].n_clusters == nearest
    problem = found.problem()
    assert f"n_clusters={wanted} was not met: preferences give " in problem
    assert f"this result has {nearest};" in problem


def test_messages_that_seem_to_settle():
    """Below some preference all rows are exemplars, or none: it is too low."""
    for low in (0, 1000):
        found = search(3, lambda distance, low=low: max(2, int(8 / distance)) if distance < 5 else low)
        assert found.met and 8 / 4 < found.highest - found.tried[-1].preference <= 8 / 3


def test_of_equally_near_ones_the_converged():
    found = PreferenceSearch(5, 10, -1.0, 0.0, -0.3)
    for clusters, converged in ((0, True), (4, False), (6, True), (4, True)):
        found.tried.append(Tried(-1.0, clusters, 100, converged))
    assert found.nearest == 2


@pytest.mark.parametrize("converged", [True, False])
def test_runs_that_have_not_converged_are_the_first_remedy(converged):
    tried = [Tried(preference, k, 100, converged) for preference, k in ((-2.0, 3), (-1.0, 6))]
    problem = PreferenceSearch(4, 1000, -1.0, 0.0, -0.3, tried).problem()
    assert ("raise max_iter first" in problem) != converged
