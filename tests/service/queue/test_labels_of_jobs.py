"""Tests of labels of a job on other data: the request is accepted, and the result has a warning."""

from __future__ import annotations

import pytest

from mgclust.base.errors import MAX_SENTENCE
from mgclust.service.queue import access
from mgclust.service.queue.labels_of_jobs import doubts_about_labels
from mgclust.service.queue.models import Job, Upload, migrate, open_database, writing
from mgclust.service.settings import Settings

LABELS = "ab12" * 8


@pytest.fixture
def engine(tmp_path):
    engine = open_database(Settings(data=tmp_path).database)
    migrate(engine)
    access.add_user(engine, "ann", "user")
    with writing(engine) as session:
        for id_, content in (("1" * 32, "x"), ("2" * 32, "x"), ("3" * 32, "y")):
            session.add(Upload(id=id_, owner="ann", name="points.npy", size=1, sha256=content * 64, created=1.0))
    return engine


def doubts(engine, clustered, read):
    with writing(engine) as session:
        session.merge(Job(id=LABELS, owner="ann", method="canopy", request={"sources": clustered}, created=1.0))
    request = {"sources": read, "parameters": {"labels": {"job": LABELS}, "metric": "euclidean"}}
    return doubts_about_labels(engine, request)


def upload(digit, name="points.npy"):
    return {"upload": digit * 32, "name": name}


@pytest.mark.parametrize(
    ("clustered", "read"),
    [
        ([upload("1")], [upload("1")]),
        ([upload("1")], [upload("2", "other.npy")]),  # the contents are the same
        ([{"path": "/data/x.npy"}], [{"path": "/data/x.npy"}]),
        ([{"path": "/data/x.npy"}], [upload("1")]),  # the contents may be the same
        ([upload("4")], [upload("1")]),  # the upload was deleted
    ],
)
def test_no_doubt_unless_the_data_differ(engine, clustered, read):
    assert doubts(engine, clustered, read) == []


@pytest.mark.parametrize(
    ("clustered", "read"),
    [
        ([upload("1")], [upload("3")]),
        ([upload("1"), upload("2")], [upload("1")]),
        ([upload("1", "می\u200cخواهم" * 20)], [upload("3", "x\u200c\u200d" * 12)]),
        ([{"path": "/data/" + "x" * 300 + ".npy"}], [{"path": "/data/" + "y" * 300 + ".npy"}]),
    ],
)
def test_other_data_are_one_sentence(engine, clustered, read):
    (told,) = doubts(engine, clustered, read)
    assert told.startswith("labels=job:ab12ab12: that job read other data (")
    assert told.endswith("check that the rows are the same.") and len(told) <= MAX_SENTENCE


def test_no_doubt_without_labels_of_a_job(engine):
    assert doubts_about_labels(engine, {"sources": [upload("1")], "parameters": {"labels": upload("2")}}) == []
    assert doubts_about_labels(engine, {"sources": [], "parameters": {"labels": {"job": "0" * 32}}}) == []
