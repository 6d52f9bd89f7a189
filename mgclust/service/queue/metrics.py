"""Metrics of the service for Prometheus.

Durations are counted in the database as they occur, in one row per bucket of a histogram. A scrape of any process reads
a few hundred rows, however many jobs there are.
"""

from __future__ import annotations

import math
import shutil
import threading
import time
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable, Iterator

from prometheus_client import CollectorRegistry, Gauge, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector
from sqlalchemy import Engine, func, select
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.orm import Session

from mgclust.service.audit import Audit
from mgclust.service.queue.models import Job, Tally, Upload, reading
from mgclust.service.settings import Settings
from mgclust.service.states import STATES

__all__ = ["Metrics", "histograms", "observe"]

CACHE_SECONDS = 10.0  # age up to which an answer is cached

BUCKET_SECONDS = (1.0, 5.0, 15.0, 60.0, 300.0, 900.0, 3600.0, 14_400.0, 86_400.0, math.inf)  # upper bounds
KINDS = {
    "wait": ("mgclust_wait_seconds", "Time that jobs waited before an attempt"),
    "attempt": ("mgclust_attempt_seconds", "Duration of attempts, by the state of the job after the attempt"),
}


def observe(session: Session, kind: str, method: str, state: str, seconds: float) -> None:
    """Count a duration, in the transaction in which it ends."""
    postgres = session.get_bind().dialect.name == "postgresql"
    key = {"kind": kind, "method": method, "state": state, "bucket": bisect_left(BUCKET_SECONDS, seconds)}
    known = {"number": Tally.number + 1, "seconds": Tally.seconds + seconds}
    new = {**key, "number": 1, "seconds": seconds}
    session.execute(
        postgresql.insert(Tally).values(new).on_conflict_do_update(index_elements=list(key), set_=known)
        if postgres
        else sqlite.insert(Tally).values(new).on_conflict_do_update(index_elements=list(key), set_=known)
    )


def histograms(tallies: Iterable[Tally]) -> list[HistogramMetricFamily]:
    """Return the counted durations as histograms."""
    found: defaultdict[tuple[str, str, str], dict[int, Tally]] = defaultdict(dict)
    for tally in tallies:
        found[tally.kind, tally.method, tally.state][tally.bucket] = tally
    families = {
        kind: HistogramMetricFamily(name, text, labels=["method", "state"]) for kind, (name, text) in KINDS.items()
    }
    for (kind, method, state), by_bucket in sorted(found.items()):
        total, buckets = 0, []
        for bucket, most in enumerate(BUCKET_SECONDS):
            total += by_bucket[bucket].number if bucket in by_bucket else 0
            buckets.append(("+Inf" if math.isinf(most) else str(most), total))
        families[kind].add_metric([method, state], buckets, sum(tally.seconds for tally in by_bucket.values()))
    return list(families.values())


class Metrics(Collector):
    """All metrics of the service.

    Parameters
    ----------
    engine : Engine
        Database, from `open_database`.
    settings : Settings
        Settings of the service.
    audit : Audit
        Audit log of this process, whose unwritten lines are counted.
    """

    def __init__(self, engine: Engine, settings: Settings, audit: Audit) -> None:
        self._engine, self._settings = engine, settings
        self._registry = CollectorRegistry(auto_describe=False)
        self._registry.register(self)
        self._lock, self._made, self._text = threading.Lock(), -math.inf, b""
        self._own = CollectorRegistry()  # metrics of this process, which are not cached
        lost = Gauge("mgclust_audit_lost", "Lines of the audit log that could not be written", registry=self._own)
        lost.set_function(lambda: audit.lost)

    def text(self) -> bytes:
        """Return the metrics as Prometheus text; jobs and uploads are counted at most once in `CACHE_SECONDS`."""
        with self._lock:
            if time.monotonic() - self._made > CACHE_SECONDS:
                self._text = generate_latest(self._registry)
                self._made = time.monotonic()
            return self._text + generate_latest(self._own)

    def describe(self) -> Iterator[Metric]:
        """Describe nothing in advance, because that would need another collection."""
        return iter(())

    def collect(self) -> Iterator[Metric]:
        """Collect the metrics from the database."""
        with reading(self._engine) as session:
            by_state = {state: number for state, number in session.execute(_BY_STATE)}
            oldest = session.scalar(select(func.min(Job.queued)).where(Job.state == "PENDING"))
            retried = session.scalar(select(func.sum(Tally.number)).where(_RETRIED)) or 0
            uploads, size = session.execute(select(func.count(), func.coalesce(func.sum(Upload.size), 0))).one()
            tallies = session.scalars(select(Tally)).all()
        jobs = GaugeMetricFamily("mgclust_jobs", "Jobs by state", labels=["state"])
        for state in STATES:
            jobs.add_metric([state], by_state.get(state, 0))
        yield jobs
        yield from histograms(tallies)
        yield CounterMetricFamily("mgclust_retries", "Attempts after which the job was queued again", retried)
        disk = shutil.disk_usage(self._settings.data)
        waits = max(0.0, time.time() - oldest) if oldest is not None else 0.0
        for name, text, value in (
            ("mgclust_oldest_wait_seconds", "Longest time that a job has been waiting", waits),
            ("mgclust_uploads", "Uploads on the service", uploads),
            ("mgclust_uploads_bytes", "Bytes of uploads", size),
            ("mgclust_disk_free_bytes", "Free space of the disk of the data folder", disk.free),
            ("mgclust_disk_used_bytes", "Used space of the disk of the data folder", disk.used),
        ):
            yield GaugeMetricFamily(name, text, value=float(value))


_BY_STATE = select(Job.state, func.count()).group_by(Job.state)
_RETRIED = (Tally.kind == "attempt") & (Tally.state == "PENDING")
