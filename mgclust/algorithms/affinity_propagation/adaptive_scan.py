r"""Control logic of the adaptive scan: chooses the damping and preference of the next iteration, and nothing else.

The rules follow K. Wang, J. Zhang, D. Li, X. Zhang and T. Guo, "Adaptive Affinity Propagation Clustering", Acta
Automatica Sinica 33(12):1242-1246, 2007 (arXiv 0805.1096), and the MATLAB package of the same authors, version 3.0.

A scan starts at half the median similarity pm. It lowers the preference p whenever the exemplars have come to rest, so
that one run visits many numbers of clusters. If the messages oscillate instead, the scan raises the damping. If this
does not help, the scan lowers p although the exemplars are not at rest. This module does not read the messages. After
every iteration i, `step` gets only the number of exemplars K(i), and whether all flags E(k) = [A(k,k) + R(k,k) > 0] are
the same as one iteration before.

Profile "code" follows the package. T = 10, w = 40, f = 0.01, q(K) = 0.1 sqrt(K + 50). At first damping = 0.5,
p = pm / 2, unit = f pm, escapes = 2, phase = 1. `waited` counts iterations since a confirmation or an oscillation::

    at rest         from iteration 100 on: no flag has changed over 50 iterations
    half at rest    the same over 15 iterations, in phase 2 only
    confirmed       at rest T times in a row; the count starts at 0 after each confirmation, and the first confirmation
                    can come at iteration 109. Or: no flag has changed over 5000 iterations (max_iter / 10, at least
                    2000), which ends the scan
    half confirmed  half at rest, but not at rest, T times in a row
    calm            the mean of the last six K is lower than one iteration before, and in phase 2 K did not rise either;
                    or the last six K are equal. Each of the last w iterations has a mark; at first, all marks are calm

    at a confirmation
        unit <- f pm / q(K);  r = number of confirmations in a row that repeat the K of the confirmation before
        p <- p + unit * (r if r > 1 else 1);  phase 2 begins with the first confirmation;  waited <- 0
        if K in {1, 2}: the scan ends
    else, from iteration 101 on, if waited > w and less than 0.66 w marks are calm, or waited > 150: an oscillation
        the first ever    damping <- at least 0.7
        escapes < 3       damping <- damping + 0.05, at most 0.9
        escapes >= 3 and damping >= 0.9
                          damping <- damping + 0.025, at most 0.98; from 0.95 on, if i mod 9 = 2: new noise on S
        damping >= 0.85   (except the first) escape: escapes <- escapes + 1, p <- p + unit * a
                          a = min(escapes, 2), or in phase 2 with K(i-1) > 0, from the last 50 K,
                          a = min(1.6 sqrt(standard deviation) + 0.2 escapes, max(1, 3 / (0.1 sqrt(top) + 0.4)))
        waited <- 0
    else
        escapes <- escapes - 0.002, at least 0.98;  if damping > 0.9 and escapes < 1: damping <- damping - 0.0001

    recorded        if K > 0 and one of these holds:
                    confirmed: strength T * (confirmations in a row) + 50
                    half confirmed: strength T * (half confirmations in a row) + 15
                    in phase 2, the mean of six K did not change: strength 6, or 10 if it did not change for five
                    iterations
                    in phase 2, otherwise, 1 < K(i) < K(i-1): strength 1
                    Stored as the candidate of K if stronger than the stored candidate; for K above `top`, only if the
                    strength is at least 10; then top <- max(top, K)

Profile "paper" has these differences: at rest means 40 iterations. There is no half confirmation. At the b-th
confirmation in a row, p <- p + b unit. Every oscillation (fewer than 2/3 w calm marks) adds 0.05 to the damping, up to
0.85. Once the damping is 0.85, every oscillation also adds f pm to p. Only confirmed solutions are recorded.

Profile "fast" is the rule of mgclust: p falls steadily, and the messages pass through all numbers of clusters without
coming to rest at any of them. The damping is 0.7. From iteration 40 on, this happens every 4 iterations, with the pace
0.006 at first::

    pace <- min(1.5 pace, 0.4) if K is what it was 4 iterations before, else max(0.5 pace, 0.006);  p <- p (1 + pace)

The rule differs if, in these 4 iterations, K skipped numbers up to 100 that have no candidate yet. Then the last step
is taken back: p <- p / (1 + pace), and pace <- max(0.1 pace, 0.006), so that smaller steps pass the skipped numbers.
This happens at most three times in a row; numbers that are still skipped are given up.

"fast" records each K with the exemplars that had been unchanged for the longest time. Above 100 clusters, the exemplars
must have been unchanged for 8 iterations, unless the requested range of K has at most 100 numbers. An oscillation
(fewer than 0.2 w calm marks) adds 0.05 to the damping, up to 0.9. K in {1, 2} over 8 iterations ends the scan. All
candidates are refined, not only the last.

With a range of K, these rules hold in all profiles. Until K has been above the range, p <- p / 4 every 20 iterations,
at most 12 times. Above the range, p falls as in "fast", and nothing is recorded. The pace is multiplied by 1.5 if the
range would be more than 8 strides away at the rate of the last stride, and halved otherwise.

From the first K within the range on, the rules of the profile hold, and only K within the range is recorded. K below
the range over `rest` iterations (50, 40 or 8, by profile) ends the scan.
"""

from __future__ import annotations

import math
from collections import deque

from mgclust.algorithms.affinity_propagation.adaptive_state import (
    ALWAYS,
    MAX_PACE,
    MAX_RETURNS,
    MAX_RISES,
    MAX_UNSTABLE,
    MEAN_OF,
    MIN_PACE,
    PACE_DROP,
    PACE_GROWTH,
    PROFILES,
    RETURN_DROP,
    RISE,
    RISE_STRIDES,
    STRIDES_AHEAD,
    Decision,
    Profile,
    ScanCandidate,
    ScanState,
    Stats,
    start,
)

__all__ = ["PROFILES", "Decision", "Profile", "ScanCandidate", "ScanState", "Stats", "start", "step", "upcoming"]


def step(state: ScanState, stats: Stats) -> Decision:
    """Process one iteration: update `state`, and return the decision about the next iteration."""
    damping, preference = state.damping, state.preference
    observe(state, stats)
    if state.profile.stride or state.hastens:
        return fall(state, damping, preference)
    confirmed, half_confirmed = confirm(state)
    events, renoise = [], False
    if confirmed:
        events.append(lower_preference(state))
    elif oscillates(state, state.profile):
        reaction, renoise = answer_plainly(state) if state.profile.plain else answer(state)
        events.append(reaction)
    else:
        state.escapes, state.damping = relaxed(state.escapes, state.damping)
    k, strength = stats.n_exemplars, strength_of(state, confirmed, half_confirmed)
    new = k not in state.candidates
    state.latest = ScanCandidate(k, state.iteration, strength, preference, damping, confirmed)
    record = keep(state, state.latest)
    if record and new and not confirmed:
        events.append(f"K = {k} seen at preference {preference:.6g}{' (half confirmed)' if half_confirmed else ''}")
    if state.stopped:
        events.append(f"the end: {state.stopped}")
    event = f"iteration {state.iteration}: {'; '.join(events)}" if events else None
    return Decision(record, strength, bool(state.stopped), renoise, event, damping, preference)


def fall(state: ScanState, damping: float, preference: float) -> Decision:
    """Decide as profile "fast" does; every profile uses this rule above the range of K."""
    profile, k, events = falling(state), state.counts[-1], []
    ends = state.iteration % profile.stride == 0
    if state.iteration >= state.max_iter:
        state.stopped = f"max_iter={state.max_iter} iterations"
    elif ends and state.iteration >= profile.first_decision:
        before = state.counts[-1 - profile.stride]
        if state.hastens and k > state.high:
            state.rises = MAX_RISES
        if state.hastens and k <= state.high and state.rises < MAX_RISES:
            return rise(state, damping, preference)
        if state.hastens and 0 < k <= state.high:
            state.hastens, state.waited, state.pace = False, 0, MIN_PACE
            events.append(f"K = {k} is within the range")
        elif k in (1, 2) and state.run >= profile.rest:
            state.stopped = f"K = {k} is confirmed"
        elif not until_below(state):
            state.stopped = f"K = {k} is below {state.low}"
        elif oscillates(state, profile):
            state.waited, state.oscillated = 0, True
            state.damping = min(profile.damping_limit, damping + 0.05)
            events.append(reaction(state, damping, preference, False))
        far = k - state.high > STRIDES_AHEAD * (before - k) if state.hastens else k == before
        if state.profile.stride and not state.hastens and goes_back(state, before):
            state.preference /= 1 + state.pace
            state.pace = max(RETURN_DROP * state.pace, MIN_PACE)
        else:
            state.pace = min(PACE_GROWTH * state.pace, MAX_PACE) if far else max(PACE_DROP * state.pace, MIN_PACE)
            if state.hastens or state.profile.stride:
                state.preference *= 1 + state.pace
    state.latest = ScanCandidate(k, state.iteration, min(state.run, state.iteration), preference, damping, False)
    stored = state.candidates.get(k)
    few = k <= MAX_UNSTABLE or 0 < state.high < state.low + MAX_UNSTABLE
    stays = state.latest.strength >= (1 if few else profile.rest)
    better = stored is None or state.latest.strength >= stored.strength
    record = state.profile.stride > 0 and k > 0 and stays and state.wanted(k) and better
    if record:
        state.candidates[k] = state.latest
    if record and stored is None:
        events.append(f"K = {k} seen at preference {preference:.6g}")
    if state.stopped:
        events.append(f"the end: {state.stopped}")
    event = f"iteration {state.iteration}: {'; '.join(events)}" if events else None
    return Decision(record, state.latest.strength, bool(state.stopped), False, event, damping, preference)


def goes_back(state: ScanState, before: int) -> bool:
    """Return whether to take back the last step, because K skipped numbers; also count how often this happened."""
    k = state.counts[-1]
    between = range(k + 1, min(before, state.given_up)) if k else ()
    if not any(each not in state.candidates and state.wanted(each) for each in between):
        if k <= state.returned_at:
            state.returns = 0
        return False
    if state.returns == MAX_RETURNS:
        state.returns, state.given_up = 0, k + 1
        return False
    state.returns, state.returned_at = state.returns + 1, k
    return True


def rise(state: ScanState, damping: float, preference: float) -> Decision:
    """Raise the preference from time to time until K is above the requested range."""
    event = None
    if state.iteration % (RISE_STRIDES * falling(state).stride) == 0:
        state.rises += 1
        state.preference *= RISE
        event = f"iteration {state.iteration}: K = {state.counts[-1]} is not above the range: preference "
        event += f"{preference:.6g} -> {state.preference:.6g}"
    return Decision(False, 0, False, False, event, damping, preference)


def falling(state: ScanState) -> Profile:
    """Return the profile that defines how the preference falls steadily."""
    return state.profile if state.profile.stride else PROFILES["fast"]


def observe(state: ScanState, stats: Stats) -> None:
    """Update runs, means and marks with one more iteration."""
    state.iteration += 1
    state.waited += 1
    state.run = state.run + 1 if stats.unchanged else 1
    previous = state.counts[-1]
    state.counts.append(stats.n_exemplars)
    if state.iteration >= MEAN_OF:
        last = list(state.counts)[-MEAN_OF:]
        state.sums.append(sum(last))
        falls = state.sums[-1] < state.sums[-2] and (state.phase == 1 or stats.n_exemplars <= previous)
        state.marks.append(falls or min(last) == max(last))
    k, (above, below) = stats.n_exemplars, state.nearest
    if k > state.high > 0 and state.iteration >= falling(state).first_decision:
        state.nearest = (min(above or k, k), below)
    elif 0 < k < state.low:
        state.nearest = (above, max(below, k))


def confirm(state: ScanState) -> tuple[bool, bool]:
    """Count how often the exemplars were at rest; return whether they are now confirmed, or half confirmed."""
    profile, k = state.profile, state.counts[-1]
    decided = state.iteration >= profile.first_decision
    at_rest = decided and state.run >= profile.rest
    half = decided and state.phase == 2 and 0 < profile.half_rest <= state.run
    confirmed = half_confirmed = False
    if at_rest:
        state.held += 1
        if state.held >= profile.delay:
            confirmed, state.held = True, 0
            state.confirmations += 1
            state.repeats = state.repeats + 1 if k == state.confirmed_at else 0
            state.confirmed_at = k
            state.unit = profile.unit(state.median, k)
    elif half:
        state.half_held += 1
        if state.half_held >= profile.delay:
            half_confirmed, state.half_held = True, 0
            state.half_confirmations += 1
    if not at_rest:
        state.held = state.confirmations = 0
    if not half:
        state.half_held = state.half_confirmations = 0
    if decided and state.run >= state.wait_limit:
        confirmed = True
        state.stopped = f"the exemplars have not changed for {state.wait_limit} iterations"
    elif state.iteration >= state.max_iter:
        state.stopped = f"max_iter={state.max_iter} iterations"
    if confirmed and k in (1, 2):
        state.stopped = f"K = {k} is confirmed"
    elif decided and not until_below(state):
        state.stopped = f"K = {k} is below {state.low}"
    if confirmed and state.phase == 1:
        state.phase, state.top = 2, k
    return confirmed, half_confirmed


def lower_preference(state: ScanState) -> str:
    """Lower the preference after a confirmed solution; the step grows with the number of equal confirmations."""
    k, preference = state.counts[-1], state.preference
    state.waited = 0
    if not state.fixed and not state.stopped:
        in_a_row = state.confirmations if state.profile.plain else state.repeats
        state.preference += max(in_a_row, 1) * state.unit
    return f"K = {k} confirmed at preference {preference:.6g}, damping {state.damping:.4g}"


def oscillates(state: ScanState, profile: Profile) -> bool:
    """Return whether the number of exemplars neither rests nor falls, or has not led to a confirmation for too long."""
    if state.iteration <= profile.first_decision or state.stopped:
        return False
    restless = state.waited > profile.window and sum(state.marks) < profile.calm_share * profile.window
    return restless or 0 < profile.stall < state.waited


def answer(state: ScanState) -> tuple[str, bool]:
    """Answer an oscillation as profile "code" does: first with damping, then a lower preference, then new noise."""
    damping, preference, renoise = state.damping, state.preference, False
    state.waited = 0
    if not state.oscillated:
        state.oscillated, state.damping = True, max(0.7, damping)
        return reaction(state, damping, preference, renoise), renoise
    if state.escapes < 3:
        state.damping = min(state.profile.damping_limit, damping + 0.05)
    elif damping >= state.profile.damping_limit:
        state.damping = min(0.98, damping + 0.025)
        renoise = state.damping >= 0.95 and state.iteration % 9 == 2
    if state.damping >= 0.85 and not state.fixed:
        state.escapes += 1
        state.preference += escape_width(state) * state.unit
    return reaction(state, damping, preference, renoise), renoise


def escape_width(state: ScanState) -> float:
    """Return the number of steps by which an escape lowers the preference; more if K varies much."""
    if state.phase == 1 or state.counts[-2] == 0:
        return min(state.escapes, 2.0)
    widest = max(3 / (0.1 * math.sqrt(state.top) + 0.4), 1.0) if state.top >= 1 else 2.0
    return min(0.8 * 2 * math.sqrt(spread(state.counts)) + 0.2 * state.escapes, widest)


def spread(counts: deque[int]) -> float:
    """Return the standard deviation (n - 1 form), rounded once from an exact fraction."""
    n, total = len(counts), sum(counts)
    return math.sqrt((n * sum(k * k for k in counts) - total * total) / (n * (n - 1)))


def answer_plainly(state: ScanState) -> tuple[str, bool]:
    """Answer an oscillation as profile "paper" does: with more damping, and from 0.85 on also a lower preference."""
    damping, preference = state.damping, state.preference
    state.waited = 0
    state.oscillated = True
    state.damping = min(state.profile.damping_limit, damping + 0.05)
    if state.damping >= state.profile.damping_limit and not state.fixed:
        state.preference += state.profile.step * state.median
    return reaction(state, damping, preference, False), False


def reaction(state: ScanState, damping: float, preference: float, renoise: bool) -> str:
    """Describe the answer to an oscillation, for the log."""
    few, many = min(state.counts), max(state.counts)
    done = [f"damping {damping:.4g} -> {state.damping:.4g}"] if state.damping != damping else []
    if state.preference != preference:
        done.append(f"preference {preference:.6g} -> {state.preference:.6g}")
    done += ["new noise"] if renoise else []
    seen = f"K between {few} and {many}" if few < many else f"K = {few}"
    return f"oscillation ({seen} over {len(state.counts)} iterations): {', '.join(done) or 'no more can be done'}"


def relaxed(escapes: float, damping: float) -> tuple[float, float]:
    """Return a slightly smaller number of escapes; if it is below 1, also lower a damping above 0.9."""
    escapes = max(escapes - 0.002, 0.98)
    return escapes, max(damping - 0.0001, 0.5) if damping > 0.9 and escapes < 1 else damping


def strength_of(state: ScanState, confirmed: bool, half_confirmed: bool) -> int:
    """Return how well established the present solution is; 0 means that it is not recorded."""
    profile, k, previous = state.profile, state.counts[-1], state.counts[-2]
    if confirmed:
        return profile.delay * state.confirmations + profile.rest
    if profile.plain:
        return 0
    if half_confirmed:
        return profile.delay * state.half_confirmations + profile.half_rest
    if state.phase == 2 and state.sums[-1] == state.sums[-2]:
        return 10 if state.sums[-1] == state.sums[-MEAN_OF] else 6
    return 1 if state.phase == 2 and 1 < k < previous else 0


def keep(state: ScanState, found: ScanCandidate) -> bool:
    """Record a solution unless a stronger solution with this number of clusters is stored."""
    k = found.n_clusters
    stored = state.candidates[k].strength if k in state.candidates else 0
    if k == 0 or not state.wanted(k) or found.strength <= stored or (k > state.top and found.strength < 10):
        return False
    state.candidates[k] = found
    state.top = max(state.top, k)
    return True


def upcoming(state: ScanState, most: int) -> list[float]:
    """Return the dampings of the next iterations, as far as they do not depend on what these iterations find.

    The list has at least one and at most `most` dampings. Neither the preference nor the noise changes, and the scan
    does not end, before the last of these iterations is done.
    """
    if state.profile.stride or state.hastens:
        stride, first = falling(state).stride, falling(state).first_decision
        ahead = max(first - state.iteration, stride - state.iteration % stride)
        return [state.damping] * max(1, min(most, ahead, state.max_iter - state.iteration))
    below = max(state.profile.first_decision - state.iteration, until_below(state))
    ends = min(until_confirmed(state), until_oscillation(state), below, state.max_iter - state.iteration)
    count = max(1, min(most, ends))
    dampings, escapes = [state.damping], state.escapes
    while len(dampings) < count:
        escapes, damping = relaxed(escapes, dampings[-1])
        dampings.append(damping)
    return dampings


def until_below(state: ScanState) -> int:
    """Return the number of iterations until the scan can end because K has been below its range for long enough."""
    if state.low <= 1:
        return ALWAYS  # no number of clusters is below the range
    counts = list(state.counts)[-state.profile.rest :]
    within = next((at for at, k in enumerate(counts[::-1]) if not 0 < k < state.low), len(counts))
    return state.profile.rest - within


def until_confirmed(state: ScanState) -> int:
    """Return the number of iterations until a confirmation or the end is possible, if no flag changes from now on."""
    profile = state.profile
    decided = max(profile.first_decision - state.iteration, 1)
    at_rest = max(decided, profile.rest - state.run)
    return min(at_rest + max(profile.delay - state.held, 1) - 1, max(decided, state.wait_limit - state.run))


def until_oscillation(state: ScanState) -> int:
    """Return the number of iterations until an oscillation is possible, if no mark is calm from now on."""
    profile, marks = state.profile, list(state.marks)
    ahead = max(profile.first_decision + 1 - state.iteration, 1)
    while True:
        waited = state.waited + ahead
        unmarked = max(MEAN_OF - 1 - state.iteration, 0)  # the first iterations have no marks
        left = sum(marks[max(ahead - unmarked, 0) :])
        if (waited > profile.window and left < profile.calm_share * profile.window) or 0 < profile.stall < waited:
            return ahead
        ahead += 1
