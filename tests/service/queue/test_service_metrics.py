"""Figures for Prometheus: their values, and that a scrape costs little."""

from __future__ import annotations

import time

import pytest
from prometheus_client.parser import text_string_to_metric_families
from sqlalchemy import event

from mgclust.service.audit import Audit
from mgclust.service.queue import access, metrics
from mgclust.service.queue.access import Caller
from mgclust.service.queue.jobs.submission import NewJob, job_id
from mgclust.service.queue.metrics import Metrics
from mgclust.service.queue.models import Upload, migrate, open_database, writing
from mgclust.service.settings import Settings
from support.time_of_day import set_time
from support.whole_queue import WholeQueue

ANN = Caller("ann", "user")


@pytest.fixture
def service(tmp_path):
    settings = Settings(data=tmp_path, cpu=True)
    engine = open_database(settings.database)
    migrate(engine)
    access.add_user(engine, "ann", "user")
    audit = Audit(settings.audit_path)
    yield engine, settings, WholeQueue(engine, settings), audit
    audit.close()
    engine.dispose()


def scraped(text):
    return {
        (sample.name, *sorted(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(text.decode())
        for sample in family.samples
    }


def submit(jobs):
    return jobs.submit([NewJob(job_id(ANN, None), ANN, "density-peaks", {"sources": []}, 0)])[0]


def test_figures(service, monkeypatch):
    engine, settings, jobs, audit = service
    now = time.time()
    set_time(monkeypatch, lambda: now)
    for _ in range(3):
        submit(jobs)
    for state in ("again", "done"):
        now += 20.0
        job = jobs.claim()
        now += 100.0
        if state == "again":
            jobs.fail(job.id, job.attempt, "a worker died.", "cluster")
        else:
            jobs.succeed(job.id, job.attempt, {})
    with writing(engine) as session:
        session.add(Upload(id="b", owner="ann", name="x.npy", size=500, sha256="", created=0.0))
    found = scraped(Metrics(engine, settings, audit).text())
    assert found["mgclust_jobs", ("state", "PENDING")] == 2
    assert found["mgclust_jobs", ("state", "RUNNING")] == 0
    assert found["mgclust_jobs", ("state", "SUCCEEDED")] == 1
    ours = ("method", "density-peaks")
    assert found["mgclust_attempt_seconds_sum", ours, ("state", "SUCCEEDED")] == pytest.approx(100.0)
    assert found["mgclust_attempt_seconds_count", ours, ("state", "PENDING")] == 1
    assert found["mgclust_attempt_seconds_bucket", ("le", "60.0"), ours, ("state", "SUCCEEDED")] == 0
    assert found["mgclust_attempt_seconds_bucket", ("le", "300.0"), ours, ("state", "SUCCEEDED")] == 1
    assert found["mgclust_attempt_seconds_bucket", ("le", "+Inf"), ours, ("state", "SUCCEEDED")] == 1
    assert found["mgclust_wait_seconds_count", ours, ("state", "RUNNING")] == 2
    assert found["mgclust_wait_seconds_sum", ours, ("state", "RUNNING")] == pytest.approx(20.0 + 20.0, abs=121)
    assert found["mgclust_retries_total",] == 1
    assert found["mgclust_oldest_wait_seconds",] == pytest.approx(240.0, abs=5)
    assert (found["mgclust_uploads",], found["mgclust_uploads_bytes",]) == (1, 500)
    assert found["mgclust_disk_free_bytes",] > 0 and found["mgclust_disk_used_bytes",] > 0


def test_many_scrapes_count_once(service, monkeypatch):
    engine, settings, jobs, audit = service
    monkeypatch.setattr(metrics, "CACHE_SECONDS", 3600.0)
    figures, asked = Metrics(engine, settings, audit), []
    event.listen(engine, "before_cursor_execute", lambda *given: asked.append(given[2]))
    first = figures.text()
    counted = len(asked)
    assert 0 < counted < 12
    submit(jobs)
    asked.clear()
    assert {figures.text() for _ in range(50)} == {first}
    assert not asked
    monkeypatch.setattr(metrics, "CACHE_SECONDS", 0.0)
    assert scraped(figures.text())["mgclust_jobs", ("state", "PENDING")] == 1


def test_what_was_counted_outlasts_its_jobs(service):
    engine, settings, jobs, audit = service
    submit(jobs)
    job = jobs.claim()
    jobs.succeed(job.id, job.attempt, {})
    jobs.delete(ANN, job.id)
    found = scraped(Metrics(engine, settings, audit).text())
    labels = ("method", "density-peaks"), ("state", "SUCCEEDED")
    assert found["mgclust_attempt_seconds_count", *labels] == 1
