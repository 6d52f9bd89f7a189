"""The service that files of tests share: they have the mark ``xdist_group("service")``."""

from __future__ import annotations

import pytest

from support.service_process import MAX_ROWS, Running


@pytest.fixture(scope="session")
def running(tmp_path_factory):
    """Of default settings, but that it fetches from some URLs and takes fewer rows."""
    settings = {"max_rows": MAX_ROWS, "urls": '["https://allowed.example/data/", "http://127.0.0.1/"]'}
    service = Running(tmp_path_factory.mktemp("service"), settings=settings)
    yield service
    service.stop()
