"""Requests made up from the service's own description: none may end in an error of the server."""

from __future__ import annotations

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings

from mgclust.service.queue.access import first_token
from mgclust.service.queue.models import open_database
from mgclust.service.settings import Settings
from mgclust.service.web.app import create_app

OPERATIONS = 15  # at least so many are described


@pytest.mark.slow
@pytest.mark.timeout(170)
def test_no_request_breaks_the_service(tmp_path):
    limits = Settings(data=tmp_path, cpu=True, upload_limit=1000, jobs_per_user=20)
    app = create_app(limits)
    token = first_token(open_database(limits.database), tmp_path).read_text().strip()
    answered: dict[str, set[int]] = {}
    mine = {"Authorization": f"Bearer {token}"}
    for found in schemathesis.openapi.from_asgi("/api/v1/openapi.json", app, headers=mine).get_all_operations():
        operation = found.ok()

        @settings(
            max_examples=12, deadline=None, phases=[Phase.generate], derandomize=True, database=None,
            suppress_health_check=list(HealthCheck),
        )  # fmt: skip
        @given(case=operation.as_strategy())
        def check(case):
            answer = case.call(headers=mine)
            answered.setdefault(f"{case.method} {case.operation.path}", set()).add(answer.status_code)
            assert answer.status_code < 500, (case.as_curl_command(), answer.text)

        check()
    assert len(answered) >= OPERATIONS, answered
    assert 200 in answered["GET /api/v1/methods"]
