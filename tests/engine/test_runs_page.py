"""The page of runs: who computes what and how far, who waits for whom, on the scheduler's own HTTP server."""

from __future__ import annotations

import asyncio
import sys
import urllib.error
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

import dask
import distributed
import numpy as np
import psutil
import pytest

from mgclust.data import open_dataset
from mgclust.engine.dask import runs_page
from mgclust.engine.dask.cluster import connect
from mgclust.engine.spmd import RunSpec, run
from support import rank_jobs
from support.lease_cases import ask, leases_of, worker
from support.waiting import wait_for

HOSTILE = "<script>alert('\"&')</script>"


@pytest.fixture
def plugin():
    """Leases of a scheduler with two workers, of which one has told of its GPU."""
    told = {"memory": 3 << 30, "gpu_memory_used": 5 << 30, "gpu-memory-total": 80 << 30, "gpu_utilization": 97}
    return leases_of([worker("tcp://a:1", HOSTILE, **told), worker("tcp://a:2", HOSTILE)], ("a", HOSTILE))


def test_who_computes_and_who_waits_for_whom(plugin):
    assert ask(plugin, "first", "a", 1)
    for name, client, least in (("second", "a", 2), ("third", HOSTILE, 1), ("fourth", "a", 3)):
        assert not ask(plugin, name, client, least)
    event = {"run": "first", "stage": "rho", "fraction": 0.25, "elapsed": 1.0, "n_clusters": 7, "note": None}
    plugin.log_event("mgclust-progress", event)
    found = plugin.runs()
    (computes,) = found["running"]
    shown = {"number": 1, "method": "density-peaks", "client": "a", "host": "10.0.0.7", "workers": ["tcp://a:1"]}
    assert computes | shown | {"stage": "rho", "fraction": 0.25, "figures": {"n_clusters": 7}} == computes
    assert [(each["number"], each["waits_for"]) for each in found["waiting"]] == [
        (2, "the workers of #1"),
        (3, "the workers of #1; its turn after #2"),
        (4, "workers to start: 2 of 3 are there"),
    ]
    assert [each["run"] for each in found["workers"]] == [1, 0]
    asyncio.run(plugin.give_back("first"))
    (ended,) = plugin.runs()["ended"]
    assert ended["number"] == 1


def test_memory_of_gpus_is_shown_where_it_is_known(plugin):
    text = runs_page.page(plugin.runs())
    assert "<td>3.0 of 8.0 GiB</td><td>5.0 of 80.0 GiB</td><td>97%</td>" in text
    assert "<td></td><td></td><td></td>" in text


def test_what_others_have_named_is_escaped(plugin):
    """Clients, workers, methods, stages and figures may have any name, and events any value."""
    ask(plugin, "first", HOSTILE, 1, HOSTILE)
    ask(plugin, "second", HOSTILE, 2, HOSTILE)
    asyncio.run(plugin.give_back("first"))
    ask(plugin, "second", HOSTILE, 2, HOSTILE)
    ask(plugin, "third", HOSTILE, 1, HOSTILE)
    for value in (HOSTILE, float("nan"), "1", None, True, 10**400, 10**5000, [HOSTILE], {HOSTILE: HOSTILE}):
        event = {"run": "second", "stage": value, "fraction": value, HOSTILE: value, "name": HOSTILE * 1000}
        plugin.log_event("mgclust-progress", event)
        text = runs_page.page(plugin.runs())
        assert "<script" not in text and "alert(&#x27;&quot;&amp;&#x27;)" in text
        assert len(text) < 20_000
    for event in (None, "text", {"run": ["second"]}, {"run": "unknown"}):
        plugin.log_event("mgclust-progress", event)


def test_a_bar_of_pages_names_it(monkeypatch):
    """Of Dask's dashboard, where that has one."""
    pages = {"pages": ["status"]}
    monkeypatch.setitem(
        sys.modules, "distributed.dashboard.scheduler", SimpleNamespace(template_variables=lambda scheduler: pages)
    )
    rules = [SimpleNamespace(matcher=SimpleNamespace(regex=SimpleNamespace(pattern="/x/info/main/workers.html$")))]
    added = []
    application = SimpleNamespace(
        wildcard_router=SimpleNamespace(rules=rules), add_handlers=lambda host, routes: added.extend(routes)
    )
    assert runs_page.add_page(SimpleNamespace(http_application=application), dict)
    assert pages["pages"] == ["status", "mgclust"] and added[0][0] == "/x/mgclust"


def read(port, path="mgclust"):
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/{path}") as answer:
        return answer.read().decode(), answer.headers


def listening():
    return {each.laddr for each in psutil.Process().net_connections("inet") if each.status == psutil.CONN_LISTEN}


@pytest.mark.slow
@pytest.mark.parametrize("prefix", ["/", "/some/where"])
def test_a_scheduler_shows_its_runs_without_another_port(tmp_path, prefix):
    given = {"n_workers": 1, "processes": False, "dashboard_address": "127.0.0.1:0"}
    with (
        distributed.LocalCluster(**given, scheduler_kwargs={"http_prefix": prefix}) as cluster,
        distributed.Client(cluster, set_as_default=False, name=HOSTILE) as own,
        ThreadPoolExecutor(2) as pool,
        connect(own, "cpu", n_workers=1) as ranks,
    ):
        port, ports = cluster.scheduler.http_server.port, listening()
        path = f"{prefix.strip('/')}/mgclust".lstrip("/")
        spec = RunSpec(rank_jobs.until_told, {"folder": str(tmp_path)})
        runs = [pool.submit(run, spec, open_dataset(np.ones((9, 2))), ranks) for _ in range(2)]
        try:
            wait_for(lambda: list(tmp_path.glob("pid-*")))
            wait_for(lambda: "waits for" in read(port, path)[0])
            text, headers = read(port, path)
            assert listening() == ports
        finally:
            (tmp_path / "end").touch()
        for each in runs:
            each.result()
        assert "<td>until-told</td>" in text and "the workers of #" in text
        assert "script>" not in text and "&lt;script&gt;" in text
        assert headers["Content-Security-Policy"].startswith("default-src 'none'")
        assert "Ended" in read(port, path)[0]


@pytest.mark.slow
def test_where_pages_have_been_taken_away_there_is_none():
    routes = {"distributed.scheduler.http.routes": ["distributed.http.health"]}
    given = {"n_workers": 1, "processes": False, "dashboard_address": "127.0.0.1:0"}
    with (
        dask.config.set(routes),
        distributed.LocalCluster(**given) as cluster,
        distributed.Client(cluster, set_as_default=False) as own,
        connect(own, "cpu") as ranks,
    ):
        assert run(RunSpec(rank_jobs.where), open_dataset(np.ones((9, 2))), ranks).ranks == 1
        assert read(cluster.scheduler.http_server.port, "health")[0] == "ok"
        with pytest.raises(urllib.error.HTTPError, match="404"):
            read(cluster.scheduler.http_server.port)
