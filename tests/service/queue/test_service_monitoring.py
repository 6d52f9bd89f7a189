"""The dashboard and the alert rules name metrics that exist."""

import json
import re
from pathlib import Path

import yaml
from prometheus_client.parser import text_string_to_metric_families

from mgclust.service.audit import Audit
from mgclust.service.queue.metrics import Metrics, observe
from mgclust.service.queue.models import migrate, open_database, writing
from mgclust.service.settings import Settings
from mgclust.service.states import STATES

FOLDER = Path(__file__).parents[3] / "deploy" / "monitoring"


def test_all_metrics_exist(tmp_path):
    settings = Settings(data=tmp_path)
    engine = open_database(settings.database)
    migrate(engine)
    with writing(engine) as session:
        observe(session, "wait", "canopy", "RUNNING", 1.0)
        observe(session, "attempt", "canopy", "SUCCEEDED", 1.0)
        observe(session, "attempt", "canopy", "PENDING", 1.0)
    text = Metrics(engine, settings, Audit(None)).text().decode()
    known = {sample.name for family in text_string_to_metric_families(text) for sample in family.samples}
    panels = json.loads((FOLDER / "grafana.json").read_text())["panels"]
    shown = [target["expr"] for panel in panels for target in panel["targets"]]
    rules = yaml.safe_load((FOLDER / "alerts.yaml").read_text())["groups"][0]["rules"]
    alerts = [rule["expr"] for rule in rules]
    assert len(panels) == 8 and len(alerts) == 6
    for expression in shown + alerts:
        names = set(re.findall(r"mgclust_\w+", expression))
        assert names <= known and (names or expression.startswith("up{")), expression
        for states in re.findall(r'state=~?"([^"]+)"', expression):
            assert set(states.split("|")) <= set(STATES)
        assert expression.count("(") == expression.count(")")
    parts = "_(bucket|count|sum|created)$"
    used = {re.sub(parts, "", name) for expression in shown for name in re.findall(r"mgclust_\w+", expression)}
    measured = {re.sub(parts, "", name) for name in known}
    assert measured - used <= {"mgclust_uploads", "mgclust_retries"}
