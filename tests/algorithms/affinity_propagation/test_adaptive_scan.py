"""The control logic of the adaptive scan against its oracle, on recorded and on invented numbers of exemplars."""

from __future__ import annotations

import copy
import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from mgclust.algorithms.affinity_propagation.adaptive_scan import PROFILES, ScanCandidate, Stats, start, step, upcoming
from mgclust.base.errors import InputError
from oracles.adaptive_affinity_propagation import adaptive_affinity_propagation
from oracles.affinity_propagation import similarity
from support.points import load_points

N = 12
DATA = Path(__file__).resolve().parents[2] / "sets"
MEDIAN = -3.0


def stats_of(flags) -> list[Stats]:
    """What `step` receives of these iterations; before the first there was no exemplar."""
    before = [np.zeros_like(np.asarray(flags[0]), dtype=bool), *flags]
    return [
        Stats(int(np.sum(now)), bool(np.array_equal(now, last))) for now, last in zip(flags, before[:-1], strict=True)
    ]


def play(state, stats) -> list:
    """All decisions until the scan ends or there are no more iterations."""
    decisions = []
    for one in stats:
        decisions.append(step(state, one))
        if decisions[-1].stop:
            break
    return decisions


@pytest.fixture(scope="module")
def recorded():
    """The oracle's whole scan of ionosphere: 8,070 iterations, with oscillations, escapes and half confirmations."""
    with np.load(DATA / "ionosphere_scan.npz") as archive:
        record = dict(archive)
    count = len(record["counts"])
    unchanged = np.unpackbits(record["unchanged"])[:count].astype(bool)
    record["stats"] = [Stats(int(k), bool(u)) for k, u in zip(record["counts"], unchanged, strict=True)]
    spans = np.diff(np.append(record["changes"].astype(int), count))
    for name in ("damping", "preference"):
        record[name] = np.repeat(record[name], spans)
    return record


# The oracle


def test_recorded_scan(recorded):
    state = start("code", int(recorded["n"]), float(recorded["median"]))
    decisions = play(state, recorded["stats"])
    assert len(decisions) == len(recorded["stats"]) and decisions[-1].stop and state.stopped == "K = 2 is confirmed"
    assert [d.used_damping for d in decisions] == recorded["damping"].tolist()
    np.testing.assert_allclose([d.used_preference for d in decisions], recorded["preference"], rtol=1e-12)
    table = [(k, c.strength, c.iteration) for k, c in sorted(state.candidates.items())]
    # The last solution is entered again once its exemplars are refined.
    expected = [tuple(map(int, row)) for row in recorded["candidates"]]
    assert table == expected


@pytest.mark.parametrize("iteration", [1, 5, 49, 400, 5000])
def test_gone_on_with_from_plain_values(recorded, iteration):
    """The same decisions from a state that was written as text in between."""
    begin = ("code", int(recorded["n"]), float(recorded["median"]))
    state, again = start(*begin), start(*begin)
    play(state, recorded["stats"][:iteration])
    again.resume(json.loads(json.dumps(state.to_plain())))
    assert again == state and [deque.maxlen for deque in (again.marks, again.counts, again.sums)] == [40, 50, 6]
    assert play(again, recorded["stats"][iteration:]) == play(state, recorded["stats"][iteration:])
    assert again == state and again.stopped


@pytest.mark.slow
def test_messages_of_wine():
    """2,538 iterations, K = 14 down to 2: the specification's check, here on the oracle's own messages."""
    S = similarity(load_points("wine")[0])
    for profile in PUBLISHED:
        oracle = adaptive_affinity_propagation(S, profile)
        flags = [np.isin(np.arange(len(S)), rows) for rows in oracle.flags]
        state = start(profile, len(S), float(np.median(S[~np.eye(len(S), dtype=bool)])))
        decisions = play(state, stats_of(flags))
        assert [d.used_damping for d in decisions] == oracle.damping
        assert [d.used_preference for d in decisions] == oracle.preference
        assert [i + 1 for i, d in enumerate(decisions) if "confirmed at" in (d.event or "")] == oracle.confirmed
        assert sorted(state.candidates) == list(range(2, 15))
        assert {k: v[:2] for k, v in oracle.candidates.items()} == {
            k: (c.strength, c.iteration) for k, c in state.candidates.items()
        }
        if profile == "code":
            assert state.iteration == 2538 and oracle.confirmed[0] == 109


PUBLISHED = ("code", "paper")
KINDS = ("rest", "rest", "fall", "tremble", "swap", "random", "none")
STRETCHES = st.lists(st.tuples(st.sampled_from(KINDS), st.integers(1, 260), st.integers(0, N)), min_size=1, max_size=14)


def flags_of(stretches) -> list[np.ndarray]:
    """Flags of invented iterations: at rest, falling, trembling, changing places or at random."""
    rng = np.random.default_rng(len(stretches))
    flags: list[np.ndarray] = []
    for kind, length, k in stretches:
        order = rng.permutation(N)
        for i in range(length):
            counts = {"fall": max(k - i // 9, 1), "tremble": max(k - (i % 3 == 0), 0), "none": 0}
            few = int(rng.integers(0, N + 1)) if kind == "random" else counts.get(kind, k)
            chosen = np.zeros(N, dtype=bool)
            chosen[np.roll(order, i if kind == "swap" else 0)[:few]] = True
            flags.append(chosen)
    return flags


@pytest.mark.slow
@settings(max_examples=60, deadline=None)
@example(stretches=[("rest", 120, 5)] + [("random", 260, 0)] * 12, profile="code")
@example(stretches=[("rest", 120, 5), ("random", 30, 0)], profile="code")
@example(stretches=[("random", 260, 0)] * 8 + [("rest", 260, 9)] * 30, profile="code")
@example(stretches=[("rest", 120, 5)] + [("random", 260, 0)] * 12, profile="paper")
@given(stretches=STRETCHES, profile=st.sampled_from(PUBLISHED))
def test_invented_iterations(stretches, profile):
    script = flags_of(stretches)
    S = np.full((N, N), MEDIAN)
    oracle = adaptive_affinity_propagation(S, profile, script=script, noise=False)
    state = start(profile, N, MEDIAN, max_iter=len(script))
    decisions = play(state, stats_of(script))
    assert len(decisions) == oracle.n_iter and decisions[-1].stop
    assert [d.used_damping for d in decisions] == oracle.damping
    np.testing.assert_allclose([d.used_preference for d in decisions], oracle.preference, rtol=1e-12)
    for word in ("noise", "oscillation"):
        mine = [i + 1 for i, d in enumerate(decisions) if word in (d.event or "")]
        theirs = [int(event.split(":")[0]) for event in oracle.events if word in event]
        assert mine == [i for i in theirs if i < oracle.n_iter]  # nothing is done about the last iteration
    # The oracle enters the refined last solution in place of what was there.
    table = {k: (c.strength, c.iteration) for k, c in state.candidates.items()}
    if state.latest.n_clusters:
        table[state.latest.n_clusters] = (table.get(state.latest.n_clusters, (0,))[0], state.iteration)
    assert table == {k: v[:2] for k, v in oracle.candidates.items()}


@settings(max_examples=60, deadline=None)
@given(stretches=STRETCHES)
def test_invented_iterations_of_the_fast_profile(stretches):
    """The preference falls at its pace, and goes back where K has skipped numbers, three times in a row at most.

    Each K has the exemplars that stayed longest, two that stay end the scan.
    """
    script = flags_of(stretches)
    state = start("fast", N, MEDIAN, max_iter=len(script))
    decisions = play(state, stats_of(script))
    counts = [int(flags.sum()) for flags in script]
    preference, pace, run, best = MEDIAN / 2, 0.006, 0, {}
    returns, target, given_up = 0, 0, 101
    for i, (decision, k) in enumerate(zip(decisions, counts, strict=False)):
        same = not script[i].any() if i == 0 else (script[i] == script[i - 1]).all()
        run = run + 1 if same and i else 1 + (i == 0 and same)
        assert decision.used_preference == pytest.approx(preference, rel=1e-12)
        if i >= 39 and (i + 1) % 4 == 0:
            if k in (1, 2) and run >= 8:
                assert decision.stop
            skipped = k > 0 and any(each not in best for each in range(k + 1, min(counts[i - 4], given_up)))
            if skipped and returns < 3:
                returns, target = returns + 1, k
                preference /= 1 + pace
                pace = max(0.1 * pace, 0.006)
            else:
                if skipped:
                    returns, given_up = 0, k + 1
                elif k <= target:
                    returns = 0
                pace = min(1.5 * pace, 0.4) if k == counts[i - 4] else max(0.5 * pace, 0.006)
                preference *= 1 + pace
        if k and run >= best.get(k, (0,))[0]:
            best[k] = (run, i + 1)
        assert decision.stop == (i + 1 == len(decisions))
    assert {k: each.iteration for k, each in state.candidates.items()} == {k: at for k, (_, at) in best.items()}
    assert [d.used_damping for d in decisions] == sorted(d.used_damping for d in decisions)
    assert decisions[0].used_damping == 0.7 and decisions[-1].used_damping <= 0.9


def test_many_clusters_are_recorded_where_they_stay():
    state = start("fast", 1000, MEDIAN)
    for k in [*range(140, 90, -1), *[150] * 8]:
        step(state, Stats(k, k == state.counts[-1]))
    assert sorted(state.candidates) == [*range(91, 101), 150]


@pytest.mark.parametrize("profile", sorted(PROFILES))
def test_a_range_is_hurried_to_and_ends_below(profile):
    """K follows the preference; above 40 and below 20 nothing is recorded, and the end is soon behind."""

    def scan(wanted):
        state = start(profile, 1000, MEDIAN, n_clusters_range=wanted)
        reached = {}
        while not state.stopped:
            k = max(2, round(-300 / (state.preference - 0.01)))
            reached.setdefault(k, state.iteration)
            if state.iteration == 300:
                told = json.loads(json.dumps(state.to_plain()))
                again = start(profile, 1000, MEDIAN, n_clusters_range=wanted)
                again.resume(told)
                assert again == state
            step(state, Stats(k, k == state.counts[-1]))
        return state, reached

    (free, slow), (state, fast) = scan(None), scan((20, 40))
    inside = {k for k in free.candidates if 20 <= k <= 40}
    assert inside and inside <= set(state.candidates) <= set(range(20, 41))
    assert state.stopped.endswith("is below 20") and state.nearest[0] > 40 > 20 > state.nearest[1]
    assert state.iteration < free.iteration and min(k for k in fast if k > 40) < 60
    if profile != "fast":
        assert fast[max(inside)] < slow[max(inside)]


def test_a_range_above_the_first_k_is_raised_to():
    state = start("fast", 1000, MEDIAN, n_clusters_range=(300, 399))
    for _ in range(2000):
        k = max(2, round(-300 / (state.preference - 0.01)))
        if step(state, Stats(k, k == state.counts[-1])).stop:
            break
    assert state.stopped.endswith("is below 300") and len(state.candidates) > 5


# Run lengths in place of rings of flags


def constant_by_ring(flags, length: int) -> bool:
    """Whether every flag was the same over the last iterations; empty places of the ring count as 'no exemplar'."""
    ring = np.zeros((length, np.shape(flags)[1]), dtype=bool)
    for i, now in enumerate(flags):
        ring[i % length] = now
    sums = ring.sum(axis=0)
    return bool(((sums == 0) | (sums == length)).all())


@settings(max_examples=150, deadline=None)
@given(
    st.lists(st.lists(st.booleans(), min_size=3, max_size=3), min_size=1, max_size=40),
    st.integers(0, 20),
    st.integers(1, 25),
)
def test_a_run_length_says_what_a_ring_of_flags_says(changes, silent, length):
    flags, now = [np.zeros(3, dtype=bool)] * silent, np.zeros(3, dtype=bool)
    for change in changes:
        now = now ^ (np.array(change) & (np.arange(3) < 1 + sum(change) // 3))  # often no change at all
        flags = [*flags, now]
    state = start("code", 3, -1.0)
    for i, one in enumerate(stats_of(flags)):
        step(state, one)
        assert (state.run >= length) == constant_by_ring(flags[: i + 1], length)


# What may be queued


@pytest.mark.slow
@settings(max_examples=60, deadline=None)
@given(
    stretches=STRETCHES,
    profile=st.sampled_from(sorted(PROFILES)),
    most=st.integers(1, 70),
    wanted=st.sampled_from([None, (2, 4), (5, 5), (6, 11)]),
)
def test_upcoming_is_what_is_used(stretches, profile, most, wanted):
    script = flags_of(stretches)
    state = start(profile, N, MEDIAN, max_iter=len(script), n_clusters_range=wanted)
    stats = iter(stats_of(script))
    while not state.stopped:
        queued, preference = upcoming(state, most), state.preference
        assert 1 <= len(queued) <= most
        decisions = [step(state, next(stats)) for _ in queued]
        assert [d.used_damping for d in decisions] == queued
        assert {d.used_preference for d in decisions} == {preference}
        assert not any(d.renoise or d.stop for d in decisions[:-1])


def happens(state, count: int, worst: bool) -> bool:
    """Whether something is decided at exactly that iteration: if K grows and grows (worst), or if all rest."""
    state = copy.deepcopy(state)
    for ahead in range(count):
        k = 1000 + ahead if worst else state.counts[-1]
        before = state.preference, state.damping, state.phase, state.oscillated, state.confirmations
        decision = step(state, Stats(k, not worst))
    after = state.preference, state.damping, state.phase, state.oscillated, state.confirmations
    return decision.stop or decision.event is not None or before != after


@settings(max_examples=25, deadline=None)
@example(stretches=[("random", 169, 0), ("random", 260, 0)], profile="paper")
@given(stretches=STRETCHES, profile=st.sampled_from(sorted(PROFILES)))
def test_upcoming_is_as_long_as_it_can_be(stretches, profile):
    script = flags_of(stretches)
    state = start(profile, N, MEDIAN, max_iter=len(script))
    for i, one in enumerate(stats_of(script)):
        if i % 97 == 0:
            count = len(upcoming(state, 10_000))
            assert happens(state, count, True) or happens(state, count, False)
        if step(state, one).stop:
            return


def test_upcoming_follows_the_relaxing_damping():
    state = start("code", N, MEDIAN)
    state.iteration, state.run, state.damping, state.escapes = 500, 1, 0.95, 0.98
    queued = upcoming(state, 8)
    np.testing.assert_allclose(queued, 0.95 - 0.0001 * np.arange(8), rtol=1e-12)


def test_many_iterations_can_be_queued(recorded):
    """On the recorded scan a queue of 32 costs one wait in about ten iterations, and seldom fewer."""
    state = start("code", int(recorded["n"]), float(recorded["median"]))
    stats, waits = iter(recorded["stats"]), 0
    while not state.stopped:
        waits += 1
        for _ in upcoming(state, 32):
            step(state, next(stats))
    assert state.iteration / waits > 5


# Single rules


def run_to(state, iteration: int, k: int = 5, unchanged: bool = True):
    """Let K be the same in all iterations up to this one."""
    while state.iteration < iteration:
        step(state, Stats(k, unchanged and state.iteration > 0))
    return state


def test_first_confirmation_is_at_iteration_109():
    state = run_to(start("code", N, MEDIAN), 108)
    assert not state.candidates and state.phase == 1
    decision = step(state, Stats(5, True))
    assert decision.record and decision.strength == 60 and state.phase == 2
    assert state.preference == 0.5 * MEDIAN + PROFILES["code"].unit(MEDIAN, 5)
    assert state.candidates[5] == ScanCandidate(5, 109, 60, 0.5 * MEDIAN, 0.5, True)
    assert decision.event == "iteration 109: K = 5 confirmed at preference -1.5, damping 0.5"


def test_the_preference_falls_faster_on_a_plateau():
    """Steps of one unit, twice, and then 2, 3, 4 ... units as the same K is confirmed again and again."""
    state = run_to(start("code", N, MEDIAN), 108)
    falls = []
    for _ in range(6):
        before = state.preference
        run_to(state, state.iteration + 10)
        falls.append((state.preference - before) / state.unit)
    np.testing.assert_allclose(falls, [1, 1, 2, 3, 4, 5], rtol=1e-9)


def test_the_paper_counts_confirmations_in_a_row():
    state = run_to(start("paper", N, MEDIAN), 108)
    falls = []
    for _ in range(4):
        before = state.preference
        run_to(state, state.iteration + 10)
        falls.append((state.preference - before) / state.unit)
    np.testing.assert_allclose(falls, [1, 2, 3, 4], rtol=1e-9)


@pytest.mark.parametrize("k", [1, 2])
def test_the_scan_ends_at_two_clusters(k):
    state = run_to(start("code", N, MEDIAN), 108, k)
    decision = step(state, Stats(k, True))
    assert decision.stop and decision.record and state.stopped == f"K = {k} is confirmed"
    assert state.preference == decision.used_preference == 0.5 * MEDIAN


def test_no_exemplar_at_all_ends_the_scan_at_the_first_decision():
    state = start("code", N, MEDIAN)
    decisions = play(state, [Stats(0, True)] * 200)
    assert len(decisions) == 100 and not state.candidates and "not changed" in decisions[-1].event


def test_max_iter_ends_the_scan():
    state = start("code", N, MEDIAN, max_iter=37)
    assert len(upcoming(state, 100)) == 37
    decisions = play(state, [Stats(3, False)] * 100)
    assert len(decisions) == 37 and state.stopped == "max_iter=37 iterations"


def test_a_given_preference_stays():
    """Only the damping adapts; the first time that all is at rest is the end."""
    state = start("code", N, MEDIAN, -7.0, fixed=True)
    trembling = [Stats(4 + i % 2, False) for i in range(3000)]
    decisions = play(state, trembling)
    assert {d.used_preference for d in decisions} == {-7.0}
    assert state.damping == 0.9 and not state.stopped
    decisions = play(state, [Stats(4, False)] + [Stats(4, True)] * 100)
    assert len(decisions) == 50 and decisions[-1].record and state.candidates[4].confirmed


def test_oscillation_raises_the_damping_and_then_lowers_the_preference():
    state = start("code", N, MEDIAN)
    used = [(d.used_damping, d.used_preference) for d in play(state, [Stats(4 + i % 2, False) for i in range(700)])]
    dampings = list(dict.fromkeys(damping for damping, _ in used))
    np.testing.assert_allclose(dampings[:5], [0.5, 0.7, 0.75, 0.8, 0.85])
    assert all(preference == 0.5 * MEDIAN for damping, preference in used if damping < 0.849)
    assert used[-1][1] < 0.5 * MEDIAN


def test_hard_oscillation_draws_new_noise():
    stretches = [("tremble", 260, k) for k in (9, 8, 8, 5) * 7] + [("random", 260, 0)] * 4
    script = flags_of(stretches)
    oracle = adaptive_affinity_propagation(np.full((N, N), MEDIAN), script=script, noise=False)
    state = start("code", N, MEDIAN, max_iter=len(script))
    decisions = play(state, stats_of(script))
    assert [d.used_damping for d in decisions] == oracle.damping
    np.testing.assert_allclose([d.used_preference for d in decisions], oracle.preference, rtol=1e-12)
    assert max(oracle.damping) > 0.95
    noisy = [i + 1 for i, d in enumerate(decisions) if d.renoise]
    assert noisy == [int(event.split(":")[0]) for event in oracle.events if "noise" in event]
    assert noisy and all(i % 9 == 2 for i in noisy)


def test_median_must_be_negative():
    with pytest.raises(InputError, match=r"median=0.5 .* must be below 0"):
        start("code", N, 0.5)


def test_log_lines_are_for_people(recorded):
    state = start("code", int(recorded["n"]), float(recorded["median"]))
    lines = [d.event for d in play(state, recorded["stats"]) if d.event]
    assert all(line.startswith("iteration ") for line in lines) and len(lines) < 0.1 * len(recorded["stats"])
    assert "oscillation" in lines[0] and "damping 0.5 -> 0.7" in lines[0]
    assert lines[-1].endswith("the end: K = 2 is confirmed")
