"""Figures of the service for Prometheus.

Durations are kept in the database as they occur, a row for each bucket of a histogram: a scrape reads some hundred
rows, whichever process answers it and however many jobs there are.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable

from prometheus_client.core import HistogramMetricFamily
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.orm import Session

from mgclust.service.records import Tally

__all__ = ["histograms", "observe"]

BUCKETS = (1.0, 5.0, 15.0, 60.0, 300.0, 900.0, 3600.0, 14_400.0, 86_400.0, math.inf)  # seconds, at most
KINDS = {
    "wait": ("mgclust_wait_seconds", "Time for which jobs waited until an attempt began"),
    "attempt": ("mgclust_attempt_seconds", "Time that attempts took, by what the job was after them"),
}


def observe(session: Session, kind: str, method: str, state: str, seconds: float) -> None:
    """Count a duration, in the transaction in which it ended."""
    postgres = session.get_bind().dialect.name == "postgresql"
    key = {"kind": kind, "method": method, "state": state, "bucket": bisect_left(BUCKETS, seconds)}
    known = {"number": Tally.number + 1, "seconds": Tally.seconds + seconds}
    new = {**key, "number": 1, "seconds": seconds}
    session.execute(
        postgresql.insert(Tally).values(new).on_conflict_do_update(index_elements=list(key), set_=known)
        if postgres
        else sqlite.insert(Tally).values(new).on_conflict_do_update(index_elements=list(key), set_=known)
    )


def histograms(tallies: Iterable[Tally]) -> list[HistogramMetricFamily]:
    """What was counted, as Prometheus takes it."""
    found: defaultdict[tuple[str, str, str], dict[int, Tally]] = defaultdict(dict)
    for tally in tallies:
        found[tally.kind, tally.method, tally.state][tally.bucket] = tally
    families = {
        kind: HistogramMetricFamily(name, text, labels=["method", "state"]) for kind, (name, text) in KINDS.items()
    }
    for (kind, method, state), by_bucket in sorted(found.items()):
        total, buckets = 0, []
        for bucket, most in enumerate(BUCKETS):
            total += by_bucket[bucket].number if bucket in by_bucket else 0
            buckets.append(("+Inf" if math.isinf(most) else str(most), total))
        families[kind].add_metric([method, state], buckets, sum(tally.seconds for tally in by_bucket.values()))
    return list(families.values())
