"""A service for the files whose tests need one of default settings: they have the mark ``xdist_group("service")``."""

from __future__ import annotations

import pytest

from support.service_process import Running


@pytest.fixture(scope="session")
def running(tmp_path_factory):
    service = Running(tmp_path_factory.mktemp("service"))
    yield service
    service.stop()
