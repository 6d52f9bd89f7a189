"""Jobs that take more time or memory than they may."""

from __future__ import annotations

import numpy as np
import pytest

from mgclust.base.errors import InputError, InsufficientMemoryError
from mgclust.service.settings import Settings

# A start may take two minutes where much else runs.
pytestmark = [pytest.mark.slow, pytest.mark.timeout(300), pytest.mark.xdist_group("service")]
ENDLESS = {"max_iter": 10**7, "convergence_iter": 10**7}


@pytest.mark.parametrize(
    ("resources", "error", "fault", "says"),
    [
        ({"max_seconds": 2.5}, InputError, "input", "ran for max_seconds=2.5; submit less work or"),
        ({"memory": 50 << 20}, InsufficientMemoryError, "memory", r"used \d+ bytes, more than memory=52428800; submit"),
        ({"memory": 300 << 20, "workers": 2}, InsufficientMemoryError, "memory", "more than memory=314572800"),
    ],
)
def test_a_job_that_takes_more_than_it_may(running, tmp_path, resources, error, fault, says):
    """It fails at once, with a sentence that says what, and its processes end."""
    np.save(tmp_path / "points.npy", np.random.default_rng(0).normal(size=(500, 3)))
    job = running.client().submit(
        "affinity-propagation", tmp_path / "points.npy", resources=resources, report=False, **ENDLESS
    )
    with pytest.raises(error, match=says):
        job.wait()
    assert (job.info["state"], job.info["fault"], job.info["attempt"]) == ("FAILED", fault, 1)
    assert job.info["request"]["resources"] == resources
    assert not running.computing(job.id)


def test_bounds_of_the_service(tmp_path):
    settings = Settings(data=tmp_path, max_seconds=60.0, max_memory=1 << 30)
    settings.check_resources({"max_seconds": 60, "memory": None})
    with pytest.raises(InputError, match="max_seconds=61 should be <= max_seconds=60 of the service; request less, or"):
        settings.check_resources({"max_seconds": 61})
    with pytest.raises(InputError, match=r"memory=2147483648 should be <= max_memory=1073741824.*MAX_MEMORY"):
        settings.check_resources({"memory": 2 << 30})
    Settings(data=tmp_path, max_seconds=0, max_memory=0).check_resources({"max_seconds": 1e9, "memory": 1 << 60})
