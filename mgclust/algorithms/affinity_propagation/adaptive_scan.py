r"""Choose the next damping and preference of an adaptive affinity propagation: its control logic, and nothing else.

After K. Wang, J. Zhang, D. Li, X. Zhang and T. Guo, "Adaptive Affinity Propagation Clustering", Acta Automatica
Sinica 33(12):1242-1246, 2007 (arXiv 0805.1096), and the MATLAB package of the same authors, version 3.0.

A scan starts at half the median similarity pm and lowers the preference p whenever the exemplars have come to rest,
so that one run visits many numbers of clusters. Where the messages oscillate instead, damping goes up, and when that
does not help p is lowered all the same. No message is seen here: `step` is told after every iteration i how many
exemplars there are, K(i), and whether all flags E(k) = [A(k,k) + R(k,k) > 0] are as they were the iteration before.

Profile "code", what the package does. T = 10, w = 40, f = 0.01, q(K) = 0.1 sqrt(K + 50); initially damping 0.5,
p = pm / 2, unit = f pm, escapes = 2, phase 1; `waited` counts iterations since a confirmation or an oscillation::

    at rest         from iteration 100: no flag has changed over 50 iterations
    half at rest    the same over 15, in phase 2 only
    confirmed       at rest T times in a row, from 0 after each confirmation; the first can come at iteration 109.
                    Or no flag has changed over 5000 iterations (max_iter / 10, at least 2000), which ends the scan
    half confirmed  half at rest, but not at rest, T times in a row
    calm            mean of the last six K is below that of an iteration before, and in phase 2 K did not rise either;
                    or the last six K are equal. Marks of the last w iterations are kept, at first all calm

    at a confirmation
        unit <- f pm / q(K);  r = how many confirmations in a row repeat the K of the one before
        p <- p + unit * (r if r > 1 else 1);  phase 2 begins with the first;  waited <- 0
        K in {1, 2}: the end
    else, from iteration 101, if waited > w and less than 0.66 w marks are calm, or waited > 150: an oscillation
        the first ever    damping <- at least 0.7
        escapes < 3       damping <- damping + 0.05, at most 0.9
        escapes >= 3 and damping >= 0.9
                          damping <- damping + 0.025, at most 0.98; from 0.95, if i mod 9 = 2: new noise on S
        damping >= 0.85   (but for the first) escape: escapes <- escapes + 1, p <- p + unit * a
                          a = min(escapes, 2), or in phase 2 with K(i-1) > 0, of the last 50 K,
                          a = min(1.6 sqrt(standard deviation) + 0.2 escapes, max(1, 3 / (0.1 sqrt(top) + 0.4)))
        waited <- 0
    else
        escapes <- escapes - 0.002, at least 0.98;  if damping > 0.9 and escapes < 1: damping <- damping - 0.0001

    recorded        K > 0 and: confirmed, with strength T * (confirmations in a row) + 50; half confirmed, with strength
                    T * (half confirmations in a row) + 15; or in phase 2 when the mean of six stands still, strength 6,
                    or 10 if it has for five iterations, and else when 1 < K(i) < K(i-1), strength 1.
                    Kept at K if stronger than what is there, above `top` if at least 10; top <- max(top, K)

Profile "paper" differs: at rest over 40 iterations; no half confirmation; p <- p + b unit at the b-th confirmation in a
row; every oscillation (fewer than 2/3 w calm marks) adds 0.05 to damping, at most 0.85, and from 0.85 on f pm to p;
only confirmed solutions are recorded.

Profile "fast", ours: p falls all the time, and the messages follow it through all numbers of clusters, without rest at
any. Damping 0.7, from iteration 40 on every 4 iterations, the pace initially 0.006::

    pace <- min(1.5 pace, 0.4) if K is what it was 4 iterations before, max(0.5 pace, 0.006) if not;  p <- p (1 + pace)

unless numbers up to 100 were skipped in these 4 iterations, which have no candidate yet. Then the last step is taken
back, three times in a row at most, p <- p / (1 + pace) and pace <- max(0.1 pace, 0.006): what lies between is passed
in smaller steps. Numbers that are skipped even so are given up.

Each K is recorded with the exemplars that had been unchanged for longest; above 100, if that was for 8 iterations (or
the range of K that is wanted has at most 100 numbers). An oscillation (fewer than 0.2 w calm marks) adds 0.05 to
damping, at most 0.9. K in {1, 2} over 8 iterations is the end. All candidates are refined, not only the last.

With a range of K, in all profiles: while K has never been above it, every 20 iterations p <- p / 4, at most 12 times.
Above the range p falls as in "fast", at a pace that grows by 1.5 while the range would be more than 8 strides away at
the rate of the last stride, and else halves; nothing is recorded. From the first K within the range on the profile's
rules hold, for what lies within it. K below it over `rest` iterations (50, 40, 8) is the end.
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
    """Take note of one iteration and decide on the next: `state` is changed, what to do is returned."""
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
    """Decide as profile "fast" does, and every profile above the range of K."""
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
    """Tell whether the last step is to be taken back, since K has skipped numbers; note how often that was."""
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
    """Raise the preference now and then until there are more clusters than are wanted."""
    event = None
    if state.iteration % (RISE_STRIDES * falling(state).stride) == 0:
        state.rises += 1
        state.preference *= RISE
        event = f"iteration {state.iteration}: K = {state.counts[-1]} is not above the range: preference "
        event += f"{preference:.6g} -> {state.preference:.6g}"
    return Decision(False, 0, False, False, event, damping, preference)


def falling(state: ScanState) -> Profile:
    """The profile by which the preference falls all the time."""
    return state.profile if state.profile.stride else PROFILES["fast"]


def observe(state: ScanState, stats: Stats) -> None:
    """Bring runs, means and marks up to date with one more iteration."""
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
    """Count how often the exemplars were at rest; whether that makes a confirmation, or half of one."""
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
    """Move on from a confirmed solution, the faster the longer it is the same."""
    k, preference = state.counts[-1], state.preference
    state.waited = 0
    if not state.fixed and not state.stopped:
        in_a_row = state.confirmations if state.profile.plain else state.repeats
        state.preference += max(in_a_row, 1) * state.unit
    return f"K = {k} confirmed at preference {preference:.6g}, damping {state.damping:.4g}"


def oscillates(state: ScanState, profile: Profile) -> bool:
    """Tell whether the number of exemplars neither rests nor falls, or has led to nothing for too long."""
    if state.iteration <= profile.first_decision or state.stopped:
        return False
    restless = state.waited > profile.window and sum(state.marks) < profile.calm_share * profile.window
    return restless or 0 < profile.stall < state.waited


def answer(state: ScanState) -> tuple[str, bool]:
    """Answer an oscillation as profile "code" does: damping first, then a lower preference, then new noise."""
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
    """Steps by which an escape lowers the preference: more where K varies much."""
    if state.phase == 1 or state.counts[-2] == 0:
        return min(state.escapes, 2.0)
    widest = max(3 / (0.1 * math.sqrt(state.top) + 0.4), 1.0) if state.top >= 1 else 2.0
    return min(0.8 * 2 * math.sqrt(spread(state.counts)) + 0.2 * state.escapes, widest)


def spread(counts: deque[int]) -> float:
    """Return the standard deviation (n - 1 form), rounded once from an exact fraction."""
    n, total = len(counts), sum(counts)
    return math.sqrt((n * sum(k * k for k in counts) - total * total) / (n * (n - 1)))


def answer_plainly(state: ScanState) -> tuple[str, bool]:
    """Answer an oscillation as profile "paper" does: by more damping, and from 0.85 on by a lower preference too."""
    damping, preference = state.damping, state.preference
    state.waited = 0
    state.oscillated = True
    state.damping = min(state.profile.damping_limit, damping + 0.05)
    if state.damping >= state.profile.damping_limit and not state.fixed:
        state.preference += state.profile.step * state.median
    return reaction(state, damping, preference, False), False


def reaction(state: ScanState, damping: float, preference: float, renoise: bool) -> str:
    """Describe the answer to an oscillation."""
    few, many = min(state.counts), max(state.counts)
    done = [f"damping {damping:.4g} -> {state.damping:.4g}"] if state.damping != damping else []
    if state.preference != preference:
        done.append(f"preference {preference:.6g} -> {state.preference:.6g}")
    done += ["new noise"] if renoise else []
    seen = f"K between {few} and {many}" if few < many else f"K = {few}"
    return f"oscillation ({seen} over {len(state.counts)} iterations): {', '.join(done) or 'no more can be done'}"


def relaxed(escapes: float, damping: float) -> tuple[float, float]:
    """Forget escapes slowly, and take back what damping exceeds 0.9 once they are forgotten."""
    escapes = max(escapes - 0.002, 0.98)
    return escapes, max(damping - 0.0001, 0.5) if damping > 0.9 and escapes < 1 else damping


def strength_of(state: ScanState, confirmed: bool, half_confirmed: bool) -> int:
    """Rate how well established the present solution is; 0: not to be recorded."""
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
    """Record a solution unless there is a stronger one with so many clusters."""
    k = found.n_clusters
    stored = state.candidates[k].strength if k in state.candidates else 0
    if k == 0 or not state.wanted(k) or found.strength <= stored or (k > state.top and found.strength < 10):
        return False
    state.candidates[k] = found
    state.top = max(state.top, k)
    return True


def upcoming(state: ScanState, most: int) -> list[float]:
    """Dampings of the next iterations that whatever these turn out to be cannot change; at least one, at most `most`.

    Neither the preference nor the noise changes, and the scan does not end, before the last of them is done.
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
    """Iterations to the earliest at which K may have been below its range for long enough to end the scan."""
    if state.low <= 1:
        return ALWAYS  # no number is below
    counts = list(state.counts)[-state.profile.rest :]
    within = next((at for at, k in enumerate(counts[::-1]) if not 0 < k < state.low), len(counts))
    return state.profile.rest - within


def until_confirmed(state: ScanState) -> int:
    """Iterations to the earliest that may be confirmed or end the scan: if no flag changes from now on."""
    profile = state.profile
    decided = max(profile.first_decision - state.iteration, 1)
    at_rest = max(decided, profile.rest - state.run)
    return min(at_rest + max(profile.delay - state.held, 1) - 1, max(decided, state.wait_limit - state.run))


def until_oscillation(state: ScanState) -> int:
    """Iterations to the earliest that may be taken for an oscillation: if none of them is calm."""
    profile, marks = state.profile, list(state.marks)
    ahead = max(profile.first_decision + 1 - state.iteration, 1)
    while True:
        waited = state.waited + ahead
        unmarked = max(MEAN_OF - 1 - state.iteration, 0)  # the first iterations leave no marks
        left = sum(marks[max(ahead - unmarked, 0) :])
        if (waited > profile.window and left < profile.calm_share * profile.window) or 0 < profile.stall < waited:
            return ahead
        ahead += 1
