"""Settings that are wrong are refused, before anybody relies on them."""

from __future__ import annotations

import pytest

from mgclust.errors import InputError
from mgclust.service.settings import Settings


@pytest.mark.parametrize(
    ("name", "text", "says"),
    [
        ("CPU", "nope", "CPU='nope' should be of type bool"),
        ("SLOTS", "two", "SLOTS='two' should be of type int"),
        ("SLOTS", "0", "slots=0 should be >= 1"),
        ("LOST_AFTER", "-1", "lost_after=-1.0 should be > 0"),
        ("CHECKPOINT_SECONDS", "nan", "checkpoint_seconds=nan should be > 0"),
        ("DISK_PER_USER", "-1", "disk_per_user=-1 should be >= 0; 0 is no limit"),
        ("ROOTS", "relative", "root='relative' should be a folder's whole path"),
        ("ROOTS", "/", "root='/' should be apart from data="),
        ("MAXROWS", "5", "MGCLUST_SERVICE_MAXROWS is no setting"),
        ("SCHEDULER", "tcp://elsewhere:8786", "should begin with tls://"),
    ],
)
def test_refused(name, text, says, monkeypatch, tmp_path):
    monkeypatch.setenv(f"MGCLUST_SERVICE_{name}", text)
    with pytest.raises(InputError, match=says):
        Settings.read(data=tmp_path)


@pytest.mark.parametrize(("text", "value"), [("yes", True), ("0", False), ("False", False), ("", False)])
def test_truth_values(text, value, monkeypatch, tmp_path):
    monkeypatch.setenv("MGCLUST_SERVICE_CPU", text)
    assert Settings.read(data=tmp_path).cpu is value


def test_as_many_workers_as_one_job_may_have(tmp_path):
    Settings(data=tmp_path, max_workers=2).check_resources({"workers": 2})
    Settings(data=tmp_path, max_workers=2).check_resources({"gpus": 8, "workers": None})
    Settings(data=tmp_path, max_workers=2, scheduler="tls://elsewhere:8786").check_resources({"workers": 1000})
    with pytest.raises(InputError, match="gpus=2 cannot be had of a service that uses no GPU; ask for workers"):
        Settings(data=tmp_path, cpu=True).check_resources({"gpus": 2})
    with pytest.raises(InputError, match="workers=1000 should be <= max_workers=2"):
        Settings(data=tmp_path, max_workers=2).check_resources({"workers": 1000})
