"""Arrays of fewer blocks than there are CPU ranks: what one rank finds, by every method."""

from __future__ import annotations

import pytest

from mgclust.algorithms import base
from mgclust.algorithms.communities import clusterer as communities
from support import tiny_cases

pytestmark = pytest.mark.xdist_group("workers")


@pytest.mark.quick("2-canopy")
@pytest.mark.parametrize("method", tiny_cases.METHODS)
@pytest.mark.parametrize("size", [2, 4])
def test_ranks_without_rows(method, size, ranks, monkeypatch):
    alone = {n: tiny_cases.outcome(method, n, device="cpu", client=None) for n in tiny_cases.SIZES}
    assert any("refused" not in found for found in alone.values())
    opened = []
    for module in (base, communities):
        monkeypatch.setattr(module, "connect", lambda **_: opened.append(size) or ranks(size))
    for n, expected in alone.items():
        assert tiny_cases.outcome(method, n, device="cpu") == expected, f"{n} rows on {size} ranks"
    assert opened
