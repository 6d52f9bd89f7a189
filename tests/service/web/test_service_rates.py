"""How often one may ask the service."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from starlette.testclient import TestClient

from mgclust.base.errors import InputError
from mgclust.service.queue.access import first_token
from mgclust.service.queue.models import open_database
from mgclust.service.settings import Settings
from mgclust.service.web.app import create_app
from mgclust.service.web.perimeter import rates
from mgclust.service.web.perimeter.rates import RateLimited, Rates


@pytest.fixture
def clock(monkeypatch):
    """The clock of the limits alone, which is set by hand."""
    now = [1000.0]
    monkeypatch.setattr(rates, "time", SimpleNamespace(monotonic=lambda: now[0]))
    return now


def taken(limits, token, address="10.0.0.1"):
    count = 0
    try:
        while count < 10_000:
            limits.count(token, address)
            count += 1
    except RateLimited as error:
        return count, error
    return count, None


def test_a_burst_then_the_rate(clock):
    limits = Rates(5.0, 0.5)
    limits.count("ann", "10.0.0.1")
    limits.add_token("ann")
    count, error = taken(limits, "ann")
    assert (count, error.after) == (100, 1)
    assert "rate_per_token=5" in str(error)
    clock[0] += 2.0
    assert taken(limits, "ann")[0] == 10
    clock[0] += 1e6
    assert taken(limits, "ann")[0] == 100  # no more than a burst is saved up


def test_guesses_count_for_their_address(clock):
    limits = Rates(100.0, 0.5)
    for guess in range(10):
        limits.count(f"guess {guess}", "10.0.0.1")
    with pytest.raises(RateLimited, match=r"rate_per_address=0.5 .* try again in 2 s") as caught:
        limits.count(None, "10.0.0.1")
    assert caught.value.after == 2
    limits.add_token("ann")
    limits.count("ann", "10.0.0.1")  # a token that is known does not suffer from its neighbours
    limits.count("another guess", "10.0.0.2")
    limits.remove_token("ann")
    with pytest.raises(RateLimited):
        limits.count("ann", "10.0.0.1")


def test_an_ipv6_network_is_one_address(clock):
    limits = Rates(100.0, 0.5)
    for host in range(10):
        limits.count(None, f"2001:db8::{host:x}")
    with pytest.raises(RateLimited):
        limits.count(None, "2001:db8::ffff:1")
    limits.count(None, "2001:db8:0:1::1")


def test_memory_is_bounded(clock, monkeypatch):
    monkeypatch.setattr(rates, "MAX_BUCKETS", 50)
    limits = Rates(100.0, 10.0)
    for number in range(500):
        limits.add_token(str(number))
        limits.count(None, f"10.0.{number // 250}.{number % 250}")
    assert len(limits._tokens._left) == len(limits._addresses._left) == 50
    assert taken(limits, "499")[0] == 2000


def test_over_http(tmp_path, clock):
    settings = Settings(data=tmp_path, cpu=True, rate_per_token=0.2, rate_per_address=0.1)
    app = create_app(settings)
    token = first_token(open_database(settings.database), tmp_path).read_text().strip()
    with TestClient(app) as http:
        mine = {"headers": {"Authorization": f"Bearer {token}"}}
        assert http.get("/api/v1/jobs", **mine).status_code == 200  # a fresh token counts for itself
        assert [http.get("/api/v1/jobs").status_code for _ in range(2)] == [401, 401]
        for guess in ({"headers": {"Authorization": "Bearer mgc_guess"}}, {}):
            refused = http.get("/api/v1/jobs", **guess)
            assert refused.status_code == 429
            assert 1 <= int(refused.headers["Retry-After"]) <= 10
            assert "rate_per_address=0.1" in refused.json()["error"]
        codes = [http.get("/api/v1/jobs", **mine).status_code for _ in range(4)]
        assert codes == [200] * 3 + [429]
        assert http.get("/healthz").status_code == 200


def test_settings_that_are_no_rates(tmp_path):
    for wrong in (0.0, -1.0, float("nan"), float("inf")):
        with pytest.raises(InputError, match="rate_per_token="):
            Settings(data=tmp_path, rate_per_token=wrong)
