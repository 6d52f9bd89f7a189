"""Moves, partners and contractions of communities on the CPU, each against a few lines of plain Python."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest

from mgclust.kernels import load
from mgclust.kernels.graph import cpu_adjacency as _cpu_adjacency
from mgclust.kernels.graph import cpu_moves
from mgclust.kernels.graph.adjacency import Adjacency, Gain
from support.graph_ranks import contracted_by_owners, part, read_by_owners

cpu = load("cpu")

MASK = 2**64 - 1
WEIGHTS = [None, np.int32, np.int64]
GAINS = [(True, 1.0, False), (False, 0.7, False), (True, 1.0, True), (False, 0.7, True)]  # exact, resolution, directed


def graph(n: int, edges: int, weights, seed: int = 0) -> tuple[Adjacency, np.ndarray, np.ndarray]:
    """All rows of a random graph, its dense matrix, its strengths; a few nodes of many neighbours among them."""
    rng = np.random.default_rng([n, edges, seed])
    ends = np.minimum(rng.integers(0, n, (edges, 2)), rng.integers(0, n, (edges, 2)))
    dense = np.zeros((n, n), np.int64)
    for u, v in ends[ends[:, 0] != ends[:, 1]]:
        dense[u, v] = dense[v, u] = 1 if weights is None else rng.integers(1, 4) * (2**33 if weights is np.int64 else 1)
    row, column = np.nonzero(dense)
    starts = np.searchsorted(row, np.arange(n + 1)).astype(np.int64)
    weight = None if weights is None else dense[row, column].astype(weights)
    return Adjacency(0, starts, column.astype(np.int32), weight), dense, dense.sum(0)


def mix(x: int) -> int:
    x &= MASK
    x ^= x >> 30
    x = x * 0xBF58476D1CE4E5B9 & MASK
    x ^= x >> 27
    x = x * 0x94D049BB133111EB & MASK
    return x ^ x >> 31


def score(gain: Gain, w: int, d: int, e: int):
    w, d, e = int(w), int(d), int(e)
    if gain.directed:
        product = 2 * ((d >> 32) * (e % 2**32) + (d % 2**32) * (e >> 32))
        return (
            gain.two_m * w - product if gain.exact else float(gain.two_m) * float(w) - gain.resolution * float(product)
        )
    if gain.exact:
        return gain.two_m * w - d * e
    return float(gain.two_m) * float(w) - gain.resolution * (float(d) * float(e))


def gain_of(strength: np.ndarray, how: tuple[bool, float, bool], weights) -> tuple[Gain, np.ndarray]:
    """The gain and the strengths, which are divided at random if edges have directions."""
    exact, resolution, directed = how
    gain = Gain(int(strength.sum()), resolution, exact and weights is not np.int64, directed)
    if directed:
        strength = strength >> (20 if weights is np.int64 else 0)
        leaving = np.random.default_rng(5).integers(0, strength + 1)
        strength = leaving * 2**32 + strength - leaving
    return gain, strength


def state(n: int, strength: np.ndarray, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    labels = np.random.default_rng([n, seed]).integers(0, max(n // 4, 1), n).astype(np.int32)
    totals = np.zeros(n, np.int64)
    np.add.at(totals, labels, strength)
    return labels, totals


def moves(dense, own, strength, labels, totals, active, gain, classes, turn, salt):
    out, tally = np.full(len(labels), -1), [0, 0]
    for v in own:
        if not active[v] or (mix(v * 0x9E3779B97F4A7C15 + salt) >> 33) % classes != turn:
            continue
        a, d = labels[v], strength[v]
        stay = score(gain, dense[v, labels == a].sum(), d, totals[a] - d)
        others = [b for b in np.unique(labels[dense[v] > 0]) if b != a]
        scores = [score(gain, dense[v, labels == b].sum(), d, totals[b]) for b in others]
        best = max(scores, default=-math.inf)
        if best > stay:
            out[v], new = others[scores.index(best)], best
        if max(stay, best) < 0 and totals[v] == 0:
            out[v], new = v, 0
        if out[v] >= 0:
            tally[0] += 1
            tally[1] += round((float(new - stay) * 2.0) / (float(gain.two_m) * float(gain.two_m)) * 1099511627776.0)
    return out, tally


@pytest.mark.parametrize("how", GAINS)
@pytest.mark.parametrize("weights", WEIGHTS)
def test_moves_follow_their_definition(weights, how) -> None:
    rows, dense, strength = graph(90, 500, weights)
    (gain, strength), n = gain_of(strength, how, weights), len(dense)
    seen = set()
    for seed, (first, stop) in enumerate([(0, n), (20, 70), (5, 5), (0, n), (0, n)]):
        labels, totals = state(n, strength, seed)
        active = (np.random.default_rng(seed).random(n) < 0.8).astype(np.uint8)
        classes, turn, salt = [(1, 0, 3), (3, 1, 2**64 - 5), (1, 0, 0), (2, 1, 2**63), (1, 0, 1)][seed]
        out, tally = np.full(n, 7, np.int32), np.array([5, 100])
        cpu.graph.propose_moves(
            part(rows, first, stop), strength, labels, totals, active, gain=gain, classes=classes, turn=turn, salt=salt,
            out=out, tally=tally,
        )  # fmt: skip
        expected = moves(dense, range(first, stop), strength, labels, totals, active, gain, classes, turn, salt)
        np.testing.assert_array_equal(out, expected[0])
        assert (tally - [5, 100]).tolist() == expected[1]
        seen.update(out == np.arange(n))
        old = labels.copy()
        cpu.graph.apply_moves(out, strength, labels, totals)
        np.testing.assert_array_equal(labels, np.where(out >= 0, out, old))
        sums = np.zeros(n, np.int64)
        np.add.at(sums, labels, strength)
        np.testing.assert_array_equal(totals, sums)
        activated = np.zeros(n, np.uint8)
        cpu.graph.activate_neighbors(part(rows, first, stop), out, labels, activated)
        apart = (dense > 0) & (labels[:, None] != labels)
        np.testing.assert_array_equal(activated, apart[out >= 0].any(0))
    assert seen == {False, True}  # some nodes went off alone


def test_a_node_alone_in_its_community_and_equal_gains() -> None:
    rows, _, strength = graph(2, 0, None)
    path = Adjacency(0, np.array([0, 1, 3, 4]), np.array([1, 0, 2, 1], np.int32), None)
    strength, labels = np.array([1, 2, 1]), np.arange(3, dtype=np.int32)
    out, tally = np.empty(3, np.int32), np.zeros(2, np.int64)
    gain, active = Gain(4, 1.0, True), np.ones(3, np.uint8)
    cpu.graph.propose_moves(
        path, strength, labels, strength.copy(), active, gain=gain, classes=1, turn=0, salt=0, out=out, tally=tally
    )
    assert out.tolist() == [1, 0, 1]  # 0 and 2 gain the same: the smaller
    assert tally.tolist() == [3, 3 * (2 * 2 * 2**40 // 16)]
    cpu.graph.propose_moves(
        rows, np.zeros(2, np.int64), labels[:2], np.zeros(2, np.int64), active[:2], gain=gain, classes=1, turn=0,
        salt=0, out=out, tally=tally,
    )  # fmt: skip
    assert out[:2].tolist() == [-1, -1]  # no neighbours


def test_a_node_that_gains_nothing_stays() -> None:
    """Node 1 of the path 0 - 1 - 2 - 3 scores 4 - 2 (own) with its community {0, 1}, and 4 - 2 with {2}."""
    rows = Adjacency(0, np.array([0, 1, 3, 5, 6]), np.array([1, 0, 2, 1, 3, 2], np.int32), None)
    strength, labels = np.array([1, 2, 2, 1]), np.array([0, 0, 2, 3], np.int32)
    strength[2] = 1  # as heavy as node 0, so that both communities are equal for node 1
    totals = np.array([3, 0, 1, 1])
    for exact in (True, False):
        gain, out, tally = Gain(4, 1.0, exact), np.empty(4, np.int32), np.zeros(2, np.int64)
        active = np.array([0, 1, 0, 0], np.uint8)
        arguments = (rows, strength, labels, totals, active)
        cpu.graph.propose_moves(*arguments, gain=gain, classes=1, turn=0, salt=0, out=out, tally=tally)
        assert score(gain, 1, 2, totals[0] - 2) == score(gain, 1, 2, totals[2]) > 0
        assert out.tolist() == [-1] * 4 and tally.tolist() == [0, 0]


@pytest.mark.parametrize("how", GAINS)
@pytest.mark.parametrize("weights", WEIGHTS)
def test_a_sweep_in_one_call_is_its_turns(weights, how, monkeypatch: pytest.MonkeyPatch) -> None:
    rows, dense, strength = graph(90, 500, weights)
    gain, strength = gain_of(strength, how, weights)
    n, of_sweep = len(dense), {"gain": gain, "classes": 4, "salt": 2**63 + 5}
    for seed in range(3):
        found = []
        for run in ("turns", "alone", "threads"):
            labels, totals = state(n, strength, seed)
            active = (np.random.default_rng(seed).random(n) < 0.8).astype(np.uint8)
            activated, tally, out = np.zeros(n, np.uint8), np.zeros(2, np.int64), np.empty(n, np.int32)
            now = (part(rows, 0, n), strength, labels, totals, active)
            if run != "turns":
                with monkeypatch.context() as patch:
                    if run == "threads":
                        patch.setattr(_cpu_adjacency, "ALONE", 100)
                        patch.setattr(_cpu_adjacency, "PART", 10)
                        patch.setattr(_cpu_adjacency, "thread_count", lambda: 3)
                        patch.setattr(cpu_moves, "NODES", 2)
                    assert cpu.graph.sweep_alone(*now, activated=activated, tally=tally, **of_sweep)
            for turn in range(4) if run == "turns" else ():
                cpu.graph.propose_moves(*now, turn=turn, out=out, tally=tally, **of_sweep)
                cpu.graph.apply_moves(out, strength, labels, totals)
                cpu.graph.activate_neighbors(rows, out, labels, activated)
            found.append((labels, totals, activated, tally))
        assert found[0][3][0] > 0
        for turns, alone, threads in zip(*found, strict=True):
            np.testing.assert_array_equal(turns, alone)
            np.testing.assert_array_equal(turns, threads)
    some = (part(rows, 0, n // 2), strength, labels.copy(), totals, active)  # a rank that does not own all nodes
    assert not cpu.graph.sweep_alone(*some, activated=activated, tally=tally, **of_sweep)
    np.testing.assert_array_equal(some[2], labels)


def degree(gain: Gain, strength: int) -> int:
    return int(strength) // 2**32 + int(strength) % 2**32 if gain.directed else int(strength)


def partners(dense, own, strength, within, gain, any_sign, noise, salt):
    out = np.full(len(dense), -1)
    for v in own:
        best = None
        for u in np.flatnonzero(dense[v]):
            g = score(gain, dense[v, u], strength[v], strength[u])
            if (g <= 0 and not any_sign) or (within is not None and within[u] != within[v]):
                continue
            a, b = int(min(u, v)), int(max(u, v))
            h = mix(a * 0x9E3779B97F4A7C15 + b * 0xC2B2AE3D27D4EB4F + salt)
            s = (
                float(g)
                / math.sqrt(float(degree(gain, strength[v])) * float(degree(gain, strength[u])))
                * (1.0 - noise * (float(h >> 40) / 2.0**24))
            )
            if best is None or (s, h, -u) > best:
                best, out[v] = (s, h, -u), u
    return out


@pytest.mark.parametrize("how", GAINS)
@pytest.mark.parametrize("weights", WEIGHTS)
def test_partners_follow_their_definition(weights, how) -> None:
    rows, dense, strength = graph(90, 400, weights, 1)
    n = len(dense)
    (gain, strength), within = gain_of(strength, how, weights), np.arange(n, dtype=np.int32) % 3
    for first, stop, inside, any_sign, noise, salt in [
        (0, n, None, False, 0.0, 1), (10, 60, within, False, 0.3, 2**64 - 1), (0, n, within, True, 0.5, 7),
        (0, n, None, True, 0.0, 2**63),
    ]:  # fmt: skip
        out = np.full(n, 7, np.int32)
        cpu.graph.best_partners(
            part(rows, first, stop), strength, inside, gain=gain, any_sign=any_sign, noise=noise, salt=salt, out=out
        )
        expected = partners(dense, range(first, stop), strength, inside, gain, any_sign, noise, salt)
        np.testing.assert_array_equal(out, expected)


@pytest.mark.parametrize("share", [0.0, 0.3, 1.0])
def test_pairs_and_those_that_join_them(share: float) -> None:
    rng = np.random.default_rng(3)
    partner = rng.integers(-1, 60, 60).astype(np.int32)
    partner[[3, 8]], partner[[20, 4]], partner[5] = [8, 3], [4, 20], 5
    mutual = np.array([p >= 0 and partner[p] == v for v, p in enumerate(partner)])
    assert 0.5 * mutual.sum() < 0.3 * (partner >= 0).sum()
    expected = np.where(mutual, np.minimum(partner, np.arange(60)), np.arange(60))
    if share:
        follows = ~mutual & (partner >= 0) & mutual[partner]
        expected[follows] = expected[partner[follows]]
    representative = cpu.graph.match_mutual(partner, share=share)
    assert representative.dtype == np.int32
    np.testing.assert_array_equal(representative, expected)

    ids, count = cpu.graph.relabel(representative)
    numbers = np.unique(representative, return_inverse=True)
    assert (ids.dtype, count) == (np.int32, len(numbers[0]))
    np.testing.assert_array_equal(ids, numbers[1])
    values = rng.integers(0, 2**60, 60)
    np.testing.assert_array_equal(
        cpu.graph.sum_by_id(values, ids, count), [values[ids == i].sum() for i in range(count)]
    )


def pairs_of(rows: Adjacency) -> tuple[np.ndarray, np.ndarray, np.ndarray | None]:
    """The row, column and weight of all entries, sorted."""
    row = rows.first + np.repeat(np.arange(rows.rows), np.diff(rows.starts))
    order = np.lexsort((rows.columns, row))
    return row, rows.columns[order], None if rows.weights is None else rows.weights[order]


def listed(dense: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    dense = dense * (1 - np.eye(len(dense), dtype=np.int64))
    return *np.nonzero(dense), dense[np.nonzero(dense)]


@pytest.mark.parametrize("weights", WEIGHTS)
@pytest.mark.parametrize(("n", "edges"), [(1, 0), (7, 30), (400, 3000), (300, 20000)])
def test_contraction_sums_by_pairs_of_groups(n: int, edges: int, weights) -> None:
    rows, dense, _ = graph(n, edges, weights)
    for first, stop, count in [(0, n, n), (0, n, -(-n // 3)), (n // 3, n // 2, 1 + n // 50)]:
        ids = np.random.default_rng(count).permutation(np.arange(n) % count).astype(np.int32)
        member = np.eye(count, dtype=np.int64)[ids]
        own = part(rows, first, stop)
        made = cpu.graph.contract(own, ids, count=count)
        row, column, weight = pairs_of(made)
        for found, expected in zip(
            (row, column, weight), listed(member[first:stop].T @ dense[first:stop] @ member), strict=True
        ):
            np.testing.assert_array_equal(found, expected)
        assert (column.dtype, weight.dtype, made.first) == (np.int32, weights or np.int32, 0)

        inside = np.array([dense[v, (ids == ids[v]) & (np.arange(n)[::-1] < n - 1 - v)].sum() for v in range(n)])
        order = np.arange(n)[::-1].astype(np.int64 if weights else np.int32)
        np.testing.assert_array_equal(cpu.graph.weights_before(own, ids, order.copy()), inside[first:stop])
        assert cpu.graph.cross_weight(own, ids) == dense[first:stop][ids[first:stop, None] != ids].sum()


@pytest.mark.parametrize("weights", WEIGHTS)
@pytest.mark.parametrize(("count", "pairs"), [(1, 3), (5, 0), (40, 3000), (70000, 3000), (100, 100)])
def test_rows_of_edges_are_sorted_and_added_up(count: int, pairs: int, weights) -> None:
    rng = np.random.default_rng([count, pairs])
    row, column = (count * rng.random((2, pairs)) ** 2).astype(np.int32)
    weight = None if weights is None else rng.integers(1, 9, pairs).astype(weights)
    expected: dict[tuple[int, int], int] = {}
    for i, (u, v) in enumerate(zip(row.tolist(), column.tolist(), strict=True)):
        for pair in ((u, v), (v, u)) if u != v else ():
            expected[pair] = expected.get(pair, 0) + (1 if weight is None else int(weight[i]))
    edges = [(each[0], each[1], None if weight is None else each[2]) for each in pieces(row, column, weight)]
    rows = cpu.graph.rows_of_edges(edges, count=count)
    check(rows, expected, weights)
    bounds = [0, count // 3, count // 2, count]  # the ranks that own the nodes get the same rows
    owned = read_by_owners(cpu, edges, count, bounds)
    for joined, (first, stop) in zip(owned, itertools.pairwise(bounds), strict=True):
        assert (joined.first, joined.rows) == (first, stop - first)
        check(joined, {pair: value for pair, value in expected.items() if first <= pair[0] < stop}, weights)


@pytest.mark.parametrize("threads", [1, 4])
@pytest.mark.parametrize("weights", WEIGHTS)
@pytest.mark.parametrize(("n", "edges"), [(3, 2), (400, 3000), (300, 20000)])
def test_ranks_sum_the_rows_of_their_groups(n: int, edges: int, weights, threads: int, monkeypatch) -> None:
    monkeypatch.setattr(_cpu_adjacency, "ALONE", 1 << 16 if threads == 1 else 100)
    monkeypatch.setattr(_cpu_adjacency, "PART", 1 << 14 if threads == 1 else 50)
    monkeypatch.setattr(_cpu_adjacency, "thread_count", lambda: threads)
    rows, dense, _ = graph(n, edges, weights)
    for count in {1, -(-n // 50), -(-n // 3), n}:
        ids = np.random.default_rng(count).permutation(np.arange(n) % count).astype(np.int32)
        member = np.eye(count, dtype=np.int64)[ids]
        sums = member.T @ dense @ member
        bounds, group_bounds = [0, n // 3, n // 3, n], [0, count // 2, count, count]
        for made, (first, stop) in zip(
            contracted_by_owners(cpu, rows, ids, count, bounds, group_bounds),
            itertools.pairwise(group_bounds),
            strict=True,
        ):
            assert (made.first, made.rows) == (first, stop - first)
            row, column, weight = listed(sums)
            kept = (row >= first) & (row < stop)
            for found, wanted in zip(pairs_of(made), (row[kept], column[kept], weight[kept]), strict=True):
                np.testing.assert_array_equal(found, wanted)


@pytest.mark.parametrize("weights", WEIGHTS)
def test_entries_within_a_group_are_not_sent(weights) -> None:
    """A rank that owns a group of nearly all nodes must not receive nearly all entries of the graph."""
    rows, dense, _ = graph(400, 3000, weights)
    ids = (np.arange(400) // 399).astype(np.int32)
    lengths, columns, sent = cpu.graph.crossing_rows(part(rows, 100, 400), ids, first=0, stop=1)
    np.testing.assert_array_equal(lengths, dense[100:399, 399] > 0)
    assert (columns == 399).all()
    assert sent is None if weights is None else sent.tolist() == dense[100:399, 399][lengths > 0].tolist()


def pieces(row: np.ndarray, column: np.ndarray, weight: np.ndarray | None) -> list[tuple]:
    cuts = [0, len(row) // 4, len(row) // 2, len(row)]
    weight = np.empty(len(row)) if weight is None else weight
    return [(row[a:b], column[a:b], weight[a:b]) for a, b in itertools.pairwise(cuts)]


def check(rows: Adjacency, expected: dict[tuple[int, int], int], weights) -> None:
    row, column, weight = pairs_of(rows)
    assert list(zip(row.tolist(), column.tolist(), strict=True)) == sorted(expected)
    sums = [expected[pair] for pair in sorted(expected)]
    if weight is None:
        assert set(sums) <= {1}
        assert weights is None or not sums
    else:
        assert weight.dtype == (weights or np.int32)
        assert weight.tolist() == sums


@pytest.mark.parametrize("ranks", [1, 3])
def test_roots_are_the_smallest_of_a_connected_part(ranks: int) -> None:
    rows, dense, _ = graph(300, 350, None)
    n = len(dense)
    labels = np.random.default_rng(0).integers(0, 3, n).astype(np.int32)
    expected = np.arange(n)
    near = (dense > 0) & (labels[:, None] == labels) | np.eye(n, dtype=bool)
    for _ in range(n):
        expected = np.array([expected[near[v]].min() for v in range(n)])
    bounds = np.linspace(0, n, ranks + 1).astype(int)
    roots = np.arange(n, dtype=np.int32)
    for _ in range(1 if ranks == 1 else 20):
        each = [roots.copy() for _ in range(ranks)]
        for rank in range(ranks):
            done = cpu.graph.propagate_roots(part(rows, bounds[rank], bounds[rank + 1]), labels, each[rank])
            assert done == (ranks == 1)
        roots = np.min(each, axis=0)
    np.testing.assert_array_equal(roots, expected)


def everything(rows: Adjacency, strength: np.ndarray) -> list[np.ndarray]:
    n = len(strength)
    gain, (labels, totals) = Gain(int(strength.sum()), 1.0, True), state(n, strength)
    out, partner, tally, active = (
        np.empty(n, np.int32),
        np.empty(n, np.int32),
        np.zeros(2, np.int64),
        np.ones(n, np.uint8),
    )
    activated = np.zeros(n, np.uint8)
    cpu.graph.propose_moves(
        rows, strength, labels, totals, active, gain=gain, classes=2, turn=1, salt=9, out=out, tally=tally
    )
    cpu.graph.activate_neighbors(rows, out, labels, activated)
    cpu.graph.best_partners(rows, strength, None, gain=gain, any_sign=False, noise=0.2, salt=9, out=partner)
    crossing = np.array(cpu.graph.cross_weight(rows, labels))
    return [
        out,
        tally,
        activated,
        partner,
        crossing,
        *pairs_of(cpu.graph.contract(rows, labels, count=n)),
        cpu.graph.weights_before(rows, labels, partner),
    ]


def test_threads_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    rows, _, strength = graph(500, 20000, np.int32)
    alone = everything(part(rows, 0, 500), strength)
    monkeypatch.setattr(_cpu_adjacency, "ALONE", 100)
    monkeypatch.setattr(_cpu_adjacency, "PART", 10)
    monkeypatch.setattr(_cpu_adjacency, "thread_count", lambda: 3)
    shared = part(rows, 0, 500)
    for one, other in zip(alone, everything(shared, strength), strict=True):
        np.testing.assert_array_equal(one, other)
    assert len(shared.plan["parts"]) == 25
