"""The service that files of tests share: they have the mark ``xdist_group("service")``."""

from __future__ import annotations

import pytest

from support.service_process import MAX_ROWS, Running


@pytest.fixture(scope="session")
def running(tmp_path_factory):
    """Of default settings, but that it takes fewer rows."""
    service = Running(tmp_path_factory.mktemp("service"), settings={"max_rows": MAX_ROWS})
    yield service
    service.stop()
