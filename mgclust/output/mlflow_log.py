"""Logging of a result to a tracking server of MLflow, with its client (``pip install 'mgclust[mlflow]'``).

The process that has the result logs it. The service never connects to an address that a user names.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from mgclust.algorithms import declarations
from mgclust.base.errors import InputError, RunFailed
from mgclust.outside.json_text import parse_json

__all__ = ["ARTIFACTS", "check_mlflow", "log_to_mlflow"]

ARTIFACTS = ("result.json", "report.html")
EXPERIMENT = "mgclust"  # unless MLFLOW_EXPERIMENT_NAME names another
MAX_VALUE = 6_000  # characters of a parameter that MLflow stores
# MLflow tries a request for several minutes by default; the result is kept, so the user can log it later.
PATIENCE = {"MLFLOW_HTTP_REQUEST_MAX_RETRIES": "2", "MLFLOW_HTTP_REQUEST_TIMEOUT": "30"}


def check_mlflow(uri: str) -> None:
    """Check before a run that its result can be logged.

    Parameters
    ----------
    uri : str
        Address of the tracking server.

    Raises
    ------
    InputError
        The client of MLflow is not installed, or the address is invalid or holds a password.
    """
    try:
        parts = urlsplit(uri)
        valid = bool(uri.strip()) and uri.isprintable() and (parts.scheme not in ("http", "https") or parts.hostname)
    except ValueError:
        raise InputError("mlflow should be an address such as http://host:5000.") from None
    if "@" in parts.netloc:
        raise InputError(
            "mlflow should hold no user and password; set MLFLOW_TRACKING_USERNAME and MLFLOW_TRACKING_PASSWORD."
        )
    if not valid:
        raise InputError(f"mlflow={uri[:200]!r} should be an address such as http://host:5000.")
    try:
        import mlflow  # noqa: F401
    except ModuleNotFoundError as error:
        raise InputError(
            f"{error.name} is not installed, and mlflow={uri[:200]!r} needs it; run pip install 'mgclust[mlflow]'."
        ) from error


def log_to_mlflow(
    directory: str | os.PathLike[str], uri: str, *, name: str | None = None, tags: Mapping[str, str] | None = None
) -> str:
    """Log a result directory as a run of MLflow.

    The run has the parameters that differ from their defaults (without values of more than 6,000 characters), the
    scores as metrics, the warnings as tags (``mgclust.warning.1`` and so on), and ``result.json`` and ``report.html``
    as artifacts. The experiment is ``mgclust``, unless the environment variable ``MLFLOW_EXPERIMENT_NAME`` names
    another.

    Parameters
    ----------
    directory : path
        Result directory.
    uri : str
        Address of the tracking server, such as ``http://host:5000``.
    name : str, optional
        Name of the run. By default, the name of the method.
    tags : mapping of str to str, optional
        More tags of the run.

    Returns
    -------
    str
        Id of the run.

    Raises
    ------
    InputError
        The client of MLflow is not installed, the address is invalid, or the directory holds no result.
    RunFailed
        The server did not store the run. The result directory stays as it is.
    """
    check_mlflow(uri)
    directory = Path(directory)
    try:
        result = parse_json((directory / "result.json").read_bytes())
    except (OSError, ValueError) as error:
        raise InputError(f"directory={str(directory)!r} should be a result directory ({error}).") from None
    if not isinstance(result, dict) or result.get("format") != "mgclust-result":
        raise InputError(f"directory={str(directory)!r} should be a result directory that mgclust wrote.")
    files = [path for path in (directory / each for each in ARTIFACTS) if path.is_file()]
    try:
        with _patience():
            return _log(uri, name or result["method"], result, files, dict(tags or {}))
    except Exception as error:  # of MLflow, of its HTTP client, or of the client of a store of artifacts
        reason = " ".join(str(error).split())[:300]
        raise RunFailed(
            f"mlflow={uri[:200]!r} did not store the run ({type(error).__name__}: {reason}); the result is kept, log "
            "it again when the server answers."
        ) from error


def _log(uri: str, name: str, result: dict[str, Any], files: list[Path], tags: dict[str, str]) -> str:
    from mlflow.entities import Metric, Param, RunTag
    from mlflow.tracking import MlflowClient

    client = MlflowClient(uri)
    experiment = os.environ.get("MLFLOW_EXPERIMENT_NAME") or EXPERIMENT
    known = client.get_experiment_by_name(experiment)
    run = client.create_run(known.experiment_id if known else client.create_experiment(experiment), run_name=name)
    id_ = str(run.info.run_id)
    try:
        tags |= {"mgclust.method": result["method"], "mgclust.source": str(result.get("source", {}).get("name", ""))}
        tags |= {f"mgclust.warning.{n}": text for n, text in enumerate(result.get("warnings", ()), 1)}
        client.log_batch(
            id_,
            metrics=[Metric(key, value, run.info.start_time, 0) for key, value in _metrics(result).items()],
            params=[Param(key, value) for key, value in _changed(result).items()],
            tags=[RunTag(key, value) for key, value in tags.items()],
        )
        for path in files:
            client.log_artifact(id_, str(path))
    except BaseException:
        with contextlib.suppress(Exception):
            client.set_terminated(id_, "FAILED")
        raise
    client.set_terminated(id_, "FINISHED")
    return id_


def _changed(result: dict[str, Any]) -> dict[str, str]:
    """Return the parameters that differ from their defaults, as text."""
    declared = declarations().get(result["method"])
    defaults = {option.name: option.default for option in declared.options()} if declared else {}
    changed = {name: value for name, value in result.get("parameters", {}).items() if value != defaults.get(name)}
    texts = {name: value if isinstance(value, str) else json.dumps(value) for name, value in changed.items()}
    return {name: text for name, text in texts.items() if len(text) <= MAX_VALUE}


def _metrics(result: dict[str, Any]) -> dict[str, float]:
    numbers = {name: value for name, value in result.get("scores", {}).items() if isinstance(value, (int, float))}
    return {name: float(value) for name, value in numbers.items() if math.isfinite(value)}


@contextlib.contextmanager
def _patience() -> Iterator[None]:
    """Let MLflow give up sooner than by default, unless the user has set its variables."""
    added = [name for name in PATIENCE if name not in os.environ]
    os.environ.update({name: PATIENCE[name] for name in added})
    try:
        yield
    finally:
        for name in added:
            os.environ.pop(name, None)
