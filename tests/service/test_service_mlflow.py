"""Jobs of a service that the client logs to MLflow."""

import json

import httpx
import pytest

from mgclust.cli import run_command

tracking = pytest.importorskip("mlflow.tracking")
ID = "0123456789abcdef" * 2
FILES = {
    "result.json": json.dumps({
        "format": "mgclust-result", "method": "canopy", "parameters": {"t1": 2.0}, "scores": {"n_clusters": 3},
        "warnings": [],
    }).encode(),
    "report.html": b"<p>report</p>",
    "labels.npy": b"large",
}  # fmt: skip


@pytest.fixture(autouse=True)
def settings_of_no_account(own_folder):
    """Each test has a data folder of its own."""


def test_a_job_is_logged_by_the_client_with_two_files(answers, tmp_path, monkeypatch, capsys):
    def by(request):
        path = request.url.path.removeprefix("/api/v1/jobs/")
        if path.endswith("/files"):
            return httpx.Response(200, json=[{"name": name, "size": len(data)} for name, data in FILES.items()])
        if "/files/" in path:
            return httpx.Response(200, content=FILES[path.split("/files/")[1]])
        return httpx.Response(200, json={"id": ID, "method": "canopy", "state": "SUCCEEDED", "name": "mine"})

    answers.by = by
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    store = (tmp_path / "runs").as_uri()
    assert run_command(["result", ID, "--mlflow", store, "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {"id": ID, "path": None}
    assert not any(request.url.path.endswith("labels.npy") for request in answers.requests)
    client = tracking.MlflowClient(store)
    (run,) = client.search_runs([client.get_experiment_by_name("mgclust").experiment_id])
    assert run.info.run_name == "mine" and run.data.tags["mgclust.job"] == ID
    assert {each.path for each in client.list_artifacts(run.info.run_id)} == {"result.json", "report.html"}
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
    out = tmp_path / "out"
    assert run_command(["result", ID, "-o", str(out), "--mlflow", "http://127.0.0.1:9"]) != 0
    assert "did not store the run" in capsys.readouterr().err and (out / "labels.npy").read_bytes() == b"large"


def test_commands_reject_what_logs_nothing(answers, capsys):
    assert run_command(["result", ID]) == 2
    assert "--mlflow URI" in capsys.readouterr().err
    assert run_command(["submit", "canopy", "x.npy", "--mlflow", "http://host:5000"]) == 2
    assert "--mlflow needs --wait" in capsys.readouterr().err and not answers.requests
