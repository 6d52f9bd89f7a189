"""A result at MLflow: what a run has, and that a server that does not answer costs no result."""

import importlib.util
import json
import subprocess
import sys
import time
import urllib.request
from importlib.metadata import packages_distributions

import numpy as np
import pytest

import mgclust
from mgclust.base.errors import InputError, RunFailed
from mgclust.cli import run_command
from mgclust.results.result import Result
from support.service_process import free_port

tracking = pytest.importorskip("mlflow.tracking")
NOBODY = "http://127.0.0.1:9"


@pytest.fixture
def saved(tmp_path):
    """A result directory with a warning, a score that is infinite, and a report."""
    result = Result(
        "density-peaks", np.array([0, 1]), scores={"n_clusters": 2, "ratio": float("inf"), "note": "text"},
        parameters={"n_clusters": 2, "metric": "cosine", "dc": None}, warnings=["The rows are few."],
    )  # fmt: skip
    return result.save(tmp_path / "out", add=lambda folder: (folder / "report.html").write_text("<p>report</p>"))


@pytest.fixture
def store(tmp_path, monkeypatch):
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    monkeypatch.delenv("MLFLOW_EXPERIMENT_NAME", raising=False)
    return (tmp_path / "runs").as_uri()


def check_run(uri, id_, name):
    client = tracking.MlflowClient(uri)
    run = client.get_run(id_)
    assert run.info.status == "FINISHED" and run.info.run_name == name
    assert client.get_experiment(run.info.experiment_id).name == "mgclust"
    assert run.data.params == {"n_clusters": "2", "metric": "cosine"}  # what differs from the defaults
    assert run.data.metrics == {"n_clusters": 2.0}
    assert run.data.tags["mgclust.warning.1"] == "The rows are few." and run.data.tags["mgclust.job"] == "a1"
    assert {each.path for each in client.list_artifacts(id_)} == {"result.json", "report.html"}


def test_a_run_has_parameters_scores_warnings_and_files(saved, store):
    id_ = mgclust.log_to_mlflow(saved, store, name="mine", tags={"mgclust.job": "a1"})
    check_run(store, id_, "mine")
    again = mgclust.log_to_mlflow(saved, store, tags={"mgclust.job": "a1"})
    check_run(store, again, "density-peaks")  # in the same experiment


@pytest.mark.slow
def test_a_server_of_mlflow_stores_a_run(saved, tmp_path):
    if importlib.util.find_spec("mlflow.server.handlers") is None or "mlflow" not in packages_distributions()["mlflow"]:
        pytest.skip("the package mlflow, which has the server, is not installed")
    port = free_port()
    uri = f"http://127.0.0.1:{port}"
    command = [sys.executable, "-m", "mlflow", "server", "--port", str(port), "--workers", "1"]
    command += [
        "--backend-store-uri",
        f"sqlite:///{tmp_path}/runs.db",
        "--artifacts-destination",
        str(tmp_path / "files"),
    ]
    with open(tmp_path / "log", "wb") as log:
        server = subprocess.Popen(command, cwd=tmp_path, stdout=log, stderr=log)
    try:
        for _ in range(600):
            try:
                urllib.request.urlopen(f"{uri}/health").close()
                break
            except OSError:
                time.sleep(0.1)
        check_run(uri, mgclust.log_to_mlflow(saved, uri, name="mine", tags={"mgclust.job": "a1"}), "mine")
    finally:
        server.terminate()
        server.wait()


def test_a_server_that_does_not_answer_is_reported_once(saved, monkeypatch):
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
    with pytest.raises(RunFailed, match=r"mlflow='http://127.0.0.1:9' did not store the run .*the result is kept"):
        mgclust.log_to_mlflow(saved, NOBODY)
    assert mgclust.load_result(saved).method == "density-peaks"


def test_a_run_whose_files_are_not_stored_is_a_failed_run(saved, store, monkeypatch):
    def full(*given):
        raise OSError("no space")

    monkeypatch.setattr(tracking.MlflowClient, "log_artifact", full)
    with pytest.raises(RunFailed, match="OSError: no space"):
        mgclust.log_to_mlflow(saved, store)
    client = tracking.MlflowClient(store)
    (run,) = client.search_runs([client.get_experiment_by_name("mgclust").experiment_id])
    assert run.info.status == "FAILED"


@pytest.mark.parametrize("uri", ["", " ", "http://", "http://[", "http://host\n"])
def test_an_address_that_is_none_is_rejected(uri, saved):
    with pytest.raises(InputError, match="mlflow"):
        mgclust.log_to_mlflow(saved, uri)


def test_a_password_in_the_address_is_rejected_and_not_shown(saved):
    with pytest.raises(InputError, match="MLFLOW_TRACKING_PASSWORD") as error:
        mgclust.log_to_mlflow(saved, "http://me:hidden@host:5000")
    assert "hidden" not in str(error.value)


@pytest.mark.parametrize("content", [None, "{", "[]", '{"format": "other"}'])
def test_a_folder_without_a_result_is_rejected(content, tmp_path):
    if content is not None:
        (tmp_path / "result.json").write_text(content)
    with pytest.raises(InputError, match="should be a result directory"):
        mgclust.log_to_mlflow(tmp_path, NOBODY)


def test_commands_keep_the_result_and_report_what_failed(tmp_path, store, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    np.save("rows.npy", np.random.default_rng(0).normal(size=(60, 2)))
    command = ["run", "canopy", "rows.npy", "--cpu", "--t1", "2", "--t2", "1", "--no-report", "--json"]
    assert run_command([*command, "-o", "a", "--mlflow", store]) == 0
    client = tracking.MlflowClient(store)
    (run,) = client.search_runs([client.get_experiment_by_name("mgclust").experiment_id])
    assert run.data.params["t1"] == "2.0" and run.data.tags["mgclust.source"] == "rows.npy"
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
    capsys.readouterr()
    assert run_command([*command, "-o", "b", "--mlflow", NOBODY]) != 0
    told = capsys.readouterr()
    assert json.loads(told.out)["output"].endswith("b") and "did not store the run" in told.err
    assert mgclust.load_result("b").method == "canopy"
    monkeypatch.setitem(sys.modules, "mlflow", None)
    assert run_command([*command, "-o", "c", "--mlflow", store]) == 2
    assert "pip install 'mgclust[mlflow]'" in capsys.readouterr().err
    assert not (tmp_path / "c").exists()  # rejected before the run
