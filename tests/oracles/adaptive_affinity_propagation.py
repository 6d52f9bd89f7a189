"""Adaptive affinity propagation, statement by statement in the order of its specification: nothing is clever here.

Wang, Zhang, Li, Zhang and Guo 2007 (arXiv 0805.1096) and the authors' package. An oracle that shares no code with
mgclust: explicit R and A, rings of flags where mgclust counts run lengths, all in float64.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from oracles.affinity_propagation import assign_to_exemplars, pass_messages, refine_exemplars, silhouette


@dataclass
class AdaptiveReference:
    counts: list[int]
    flags: list[np.ndarray]  # which rows were exemplars after each iteration
    damping: list[float]  # used in each iteration
    preference: list[float]
    candidates: dict[int, tuple[int, int, np.ndarray]]  # K: (strength, iteration, exemplars)
    confirmed: list[int]  # iterations
    events: list[str]
    last: np.ndarray  # refined exemplars of the last iteration
    S: np.ndarray  # with noise and the last preference

    @property
    def n_iter(self) -> int:
        return len(self.counts)


def adaptive_affinity_propagation(
    S, profile="code", max_iter=50_000, seed=0, noise=True, script=None
) -> AdaptiveReference:
    """A whole scan with explicit R and A; `S` holds similarities, its diagonal is ignored.

    With a `script`, a list of flags (n,), these are taken for the iterations' outcomes and no message is passed.
    """
    max_iter = max_iter if script is None else min(max_iter, len(script))
    paper = profile == "paper"
    convits, nhalf = (40, 0) if paper else (50, 15)
    T, W0, w, f = 10, 100, 40, 0.01
    rho = 2 / 3 if paper else 0.66
    U = max(max_iter // 10, 2000)
    n = len(S)
    S = np.array(S, "float64")
    off = S[~np.eye(n, dtype=bool)]
    pm = float(np.median(off[off > -np.inf]))
    rng = np.random.default_rng(seed)
    tiny = np.finfo("float64").smallest_normal
    if noise:
        S += (np.finfo("float64").eps * S + 100 * tiny) * rng.random((n, n))

    def q(k):
        return 0.1 * np.sqrt(k + 50)

    p, lam, pstep = 0.5 * pm, 0.5, f * pm
    A, R = np.zeros((n, n)), np.zeros((n, n))
    phase, h, h2, n1, n2, v, first, Tv = 1, T, T, 0, 0, 0, True, 2.0
    marks = [True] * w
    Kfix = nfixK = Kmax = 0
    E_all = np.zeros((convits, n), dtype=bool)  # a ring, empty places count as 'not an exemplar'
    since_change = np.full(n, 10**9)  # iterations over which a point's flag has been constant
    K, means = [0], [0.0]  # of iteration 0 too
    out = AdaptiveReference([], [], [], [], {}, [], [], np.zeros(0, dtype=np.int64), S)
    previous_E = np.zeros(n, dtype=bool)
    stop = False
    i = 0
    S[np.arange(n), np.arange(n)] = p
    while not stop:
        i += 1
        if script is None:
            pass_messages(S, R, A, lam)
        E = np.diagonal(A) + np.diagonal(R) > 0 if script is None else np.asarray(script[i - 1], dtype=bool)
        Ki, p_used = int(E.sum()), p
        since_change = np.where(previous_E == E, since_change + 1, 1)
        previous_E = E
        E_all[i % len(E_all)] = E
        K.append(Ki)
        out.counts.append(Ki)
        out.flags.append(np.flatnonzero(E))
        out.damping.append(lam)
        out.preference.append(p)
        conv = half = confirm = half_confirm = False
        if i >= W0:
            seen = E_all.sum(axis=0)
            conv = bool(((seen == 0) | (seen == convits)).all())
            if not paper and phase == 2:
                recent = np.array([E_all[(i - back) % len(E_all)] for back in range(nhalf)])
                half = bool((recent == recent[0]).all())
            if (since_change >= U).all():
                confirm = stop = True
        if i >= max_iter:
            stop = True
        means.append(np.sum(K[-6:]) / 6 if i > 5 else 0.0)
        if i > 5:
            falls = means[i] < means[i - 1] and (phase == 1 or Ki <= K[i - 1])
            marks = [*marks[1:], falls or len(set(K[-6:])) == 1]
        if conv:
            h += 1
            if h >= T:
                confirm, h = True, 0
                n1 += 1
                nfixK = nfixK + 1 if Ki == Kfix else 0
                Kfix = Ki
                pstep = f * pm / q(Ki)
                astep = nfixK * pstep if nfixK > 1 else pstep
                if paper:
                    astep = n1 * pstep
        elif half:
            h2 += 1
            if h2 >= T:
                half_confirm, h2 = True, 0
                n2 += 1
        if not conv:
            h = n1 = 0
        if not half:
            h2 = n2 = 0
        if confirm and Ki in (1, 2):
            stop = True
        if confirm and phase == 1:
            phase, Kmax, pstep = 2, Ki, f * pm / q(Ki)
        if confirm:
            out.confirmed.append(i)
            v = 0
            if not stop:
                p += astep
        else:
            v += 1
            few = v > w and sum(marks) < rho * w
            osc = i > W0 and (few or (not paper and v > 150))
            if osc and paper:
                lam = min(0.85, lam + 0.05)
                if lam >= 0.85:
                    p += f * pm
            elif osc and first:
                lam, first = max(0.7, lam), False
            elif osc:
                if Tv < 3:
                    lam = min(0.9, lam + 0.05)
                elif lam >= 0.9:
                    lam = min(0.98, lam + 0.025)
                    if lam >= 0.95 and i % 9 == 2:
                        out.events.append(f"{i}: new noise")
                        S += (np.finfo("float64").eps * S + 1000 * tiny) * rng.random((n, n))
                if lam >= 0.85:
                    Tv += 1
                    if phase == 2 and K[i - 1] > 0:
                        Kv = 2 * np.sqrt(np.std(K[-50:], ddof=1))
                        most = max(3 / (0.1 * np.sqrt(Kmax) + 0.4), 1) if Kmax >= 1 else 2
                        a = min(0.8 * Kv + 0.2 * Tv, most)
                    else:
                        a = min(Tv, 2)
                    p += a * pstep
            else:
                Tv = max(Tv - 0.002, 0.98)
                if lam > 0.9 and Tv < 1:
                    lam = max(lam - 0.0001, 0.5)
            if osc:
                v = 0
                out.events.append(f"{i}: oscillation, damping {lam:g}")
        S[np.arange(n), np.arange(n)] = p if not stop else p_used
        falling = 1 < Ki < K[i - 1]
        if Ki > 0 and (confirm or half_confirm or (not paper and phase == 2 and (falling or means[i] == means[i - 1]))):
            if confirm:
                strength = T * n1 + convits
            elif half_confirm:
                strength = T * n2 + nhalf
            elif means[i] == means[i - 1]:
                strength = 10 if means[i] == means[i - 5] else 6
            else:
                strength = 1
            stored = out.candidates.get(Ki, (0,))[0]
            if (Ki <= Kmax and strength > stored) or (Ki > Kmax and strength >= 10):
                out.candidates[Ki] = (strength, i, np.flatnonzero(E))
                Kmax = max(Kmax, Ki)
    if E.any():
        out.last = refine_exemplars(S, np.flatnonzero(E))
        out.candidates[len(out.last)] = (out.candidates.get(len(out.last), (0,))[0], i, out.last)
    return out


def choose_by_package(D, labelings, cut=3) -> tuple[int, int]:
    """`solution_findK.m` of the authors' package: NCopt, and of which number of clusters the labels are that it shows.

    `labelings` are labels by number of clusters; counts from 1, as the package does.
    """
    NC = [k for k in sorted(labelings) if 1 < k < len(D)]
    small = {k for k in NC if np.bincount(labelings[k]).min() < cut}
    if len(small) < len(NC):
        NC = [k for k in NC if k not in small]
    scores = [silhouette(D, labelings[k]) for k in NC]
    Sil, Silmin = np.array([mean for _, mean, _ in scores]), np.array([of.min() for _, _, of in scores])
    Sid = int(np.argmax(Sil)) + 1
    NCopt = NC[Sid - 1]
    if Sil.max() < 0.3:
        R = list(range(int(np.ceil(len(NC) / 2)), len(NC) + 1))
        Sid = R[int(np.argmax([Silmin[at - 1] for at in R]))]
    return NCopt, NC[Sid - 1]


def choose_candidate(S, D, candidates, min_cluster_size=3) -> tuple[int, dict[int, float]]:
    """The number of clusters with the largest mean silhouette, the smallest of equals; and all of them."""
    n = len(S)
    scores, small = {}, set()
    for k in sorted(candidates):
        if 1 < k < n:
            labels = assign_to_exemplars(S, candidates[k][2])
            scores[k] = silhouette(D, labels)[1]
            if np.bincount(labels).min() < min_cluster_size:
                small.add(k)
    allowed = [k for k in scores if k not in small] or list(scores)
    return max(allowed, key=lambda k: (scores[k], -k)), scores
