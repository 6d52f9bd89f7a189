"""Wrong settings are refused before they are used."""

from __future__ import annotations

import errno
import json
import os
import sys
import threading
from types import SimpleNamespace

import psutil
import pytest

from mgclust import Service
from mgclust.base.errors import InputError
from mgclust.cli import serve
from mgclust.service.runner import supervisor
from mgclust.service.runner.running_attempt import RunningAttempt
from mgclust.service.settings import MAX_FILE_BYTES, Settings


@pytest.mark.parametrize(
    ("name", "text", "says"),
    [
        ("CPU", "nope", "CPU='nope' should be of type bool"),
        ("SLOTS", "two", "SLOTS='two' should be of type int"),
        ("SLOTS", "0", "slots=0 should be >= 1"),
        ("LOST_AFTER", "-1", "lost_after=-1.0 should be > 0"),
        ("CHECKPOINT_SECONDS", "nan", "checkpoint_seconds=nan should be > 0"),
        ("DISK_PER_USER", "-1", "disk_per_user=-1 should be >= 0; 0 means no limit"),
        ("ROOTS", "relative", "root='relative' should be the absolute path of a folder"),
        ("ROOTS", "/", "root='/' should not overlap data="),
        ("CHECKPOINTS", "relative", "checkpoints='relative' should be the absolute path of a folder"),
        ("MAXROWS", "5", "MGCLUST_SERVICE_MAXROWS is not a setting"),
        ("SCHEDULER", "tcp://elsewhere:8786", "should begin with tls://"),
        ("SCHEDULER", "tcp://127.0.0.1:8786", "tls://: every account of this machine could run code on it"),
        ("SCHEDULER", "localhost:8786", "or set MGCLUST_SERVICE_ALLOW_PLAIN_SCHEDULER=true"),
    ],
)
def test_refused(name, text, says, monkeypatch, tmp_path):
    monkeypatch.setenv(f"MGCLUST_SERVICE_{name}", text)
    with pytest.raises(InputError, match=says):
        Settings.read(data=tmp_path)


@pytest.mark.parametrize(("text", "value"), [("yes", True), ("0", False), ("False", False), ("", False)])
def test_truth_values(text, value, monkeypatch, tmp_path):
    monkeypatch.setenv("MGCLUST_SERVICE_CPU", text)
    assert Settings.read(data=tmp_path).cpu is value


def test_checkpoints_have_a_folder_of_their_own(tmp_path):
    assert Settings(data=tmp_path).checkpoint_folder("a") == tmp_path / "jobs" / "a" / "checkpoint"
    settings = Settings(data=tmp_path, checkpoints="/checkpoints")
    assert str(settings.checkpoint_folder("a")) == "/checkpoints/a"
    with pytest.raises(InputError, match="root='/checkpoints/a' should not overlap checkpoints='/checkpoints'"):
        Settings(data=tmp_path, checkpoints="/checkpoints", roots="/checkpoints/a")


def test_as_many_workers_as_one_job_may_have(tmp_path):
    Settings(data=tmp_path, max_workers=2).check_resources({"workers": 2})
    Settings(data=tmp_path, max_workers=2).check_resources({"gpus": 8, "workers": None})
    Settings(data=tmp_path, max_workers=2, scheduler="tls://elsewhere:8786").check_resources({"workers": 1000})
    with pytest.raises(InputError, match="gpus=2 are not available: the service uses no GPU; request workers"):
        Settings(data=tmp_path, cpu=True).check_resources({"gpus": 2})
    with pytest.raises(InputError, match="workers=1000 should be <= max_workers=2"):
        Settings(data=tmp_path, max_workers=2).check_resources({"workers": 1000})


@pytest.mark.parametrize("end", ["", "\n", "\r\n"])
def test_values_of_files(end, monkeypatch, tmp_path):
    url = "postgresql+psycopg://mgclust:pass word@db/mgclust"
    for name, text in (("DATABASE", url), ("SLOTS", "3"), ("CPU", "yes")):
        (tmp_path / name).write_bytes((text + end).encode())
        monkeypatch.setenv(f"MGCLUST_SERVICE_{name}_FILE", str(tmp_path / name))
    monkeypatch.setenv("MGCLUST_SERVICE_SLOTS", "")  # Compose sets what is not given to the empty text
    settings = Settings.read(data=tmp_path)
    assert (settings.database, settings.slots, settings.cpu) == (url, 3, True)
    assert Settings.from_json(settings.to_json()) == settings
    assert Settings.read(data=tmp_path, slots=4).slots == 4


def test_both_a_value_and_a_file_are_refused(monkeypatch, tmp_path):
    monkeypatch.setenv("MGCLUST_SERVICE_DATABASE", "sqlite://")
    monkeypatch.setenv("MGCLUST_SERVICE_DATABASE_FILE", str(tmp_path / "url"))
    with pytest.raises(InputError, match=r"DATABASE and MGCLUST_SERVICE_DATABASE_FILE are both set; unset one"):
        Settings.read(data=tmp_path)


@pytest.mark.parametrize(
    ("name", "content", "says"),
    [
        ("SLOTS", b"s3cret", "file' should be of type int"),
        ("SLOTS", b"-31337", "file' does not hold a valid value of slots"),
        ("ROOTS", b"s3cret", "file' does not hold a valid value of roots"),
        ("SCHEDULER", b"tcp://s3cret:1", "file' does not hold a valid value of scheduler"),
        ("DATABASE", b"s3cret\xff", "file' is not UTF-8 text"),
        ("DATABASE", b"s3cret" * MAX_FILE_BYTES, f"file' should have at most {MAX_FILE_BYTES} bytes"),
        ("DATABASE", None, "file' cannot be read: No such file or directory"),
    ],
)
def test_the_content_of_a_file_is_never_quoted(name, content, says, monkeypatch, tmp_path):
    if content is not None:
        (tmp_path / "file").write_bytes(content)
    monkeypatch.setenv(f"MGCLUST_SERVICE_{name}_FILE", str(tmp_path / "file"))
    with pytest.raises(InputError, match=says) as refused:
        Settings.read(data=tmp_path)
    assert "s3cret" not in str(refused.value) and "31337" not in str(refused.value)


def test_a_fifo_is_no_file_of_a_setting(monkeypatch, tmp_path):
    os.mkfifo(tmp_path / "fifo")
    monkeypatch.setenv("MGCLUST_SERVICE_DATABASE_FILE", str(tmp_path / "fifo"))
    with pytest.raises(InputError, match="fifo' is not a regular file"):
        Settings.read(data=tmp_path)


def test_a_token_of_a_file(monkeypatch, tmp_path):
    (tmp_path / "token").write_text("mgc_of-a-file\n")
    monkeypatch.setenv("MGCLUST_TOKEN_FILE", str(tmp_path / "token"))
    monkeypatch.delenv("MGCLUST_TOKEN", raising=False)
    service = Service("https://mgclust.example")
    assert service._http.headers["Authorization"] == "Bearer mgc_of-a-file"
    monkeypatch.setenv("MGCLUST_TOKEN", "mgc_another")
    with pytest.raises(InputError, match="MGCLUST_TOKEN and MGCLUST_TOKEN_FILE are both set"):
        Service("https://mgclust.example")


def test_a_runner_that_cannot_be_started_is_started_later(monkeypatch, tmp_path):
    """The system has no process, or no memory, for it now."""
    stopping, said, tries = threading.Event(), [], []

    def popen(*arguments, **options):
        tries.append(arguments)
        if len(tries) == 4:
            stopping.set()
        if len(tries) < 4:
            raise BlockingIOError(errno.EAGAIN, "Resource temporarily unavailable")
        raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr(supervisor.subprocess, "Popen", popen)
    monkeypatch.setattr(supervisor, "RESTART_SECONDS", 0.01)
    supervisor.supervise_runner(Settings(data=tmp_path), stopping, said.append)
    assert len(tries) == 4
    reasons = ("Resource temporarily unavailable", "Permission denied")  # each is told once
    assert said == [f"no runner can be started: {reason}; trying again" for reason in reasons]


def test_a_runner_has_its_settings_from_its_standard_input(monkeypatch, tmp_path):
    """Its environment, which the attempts' libraries and /proc show, holds none."""
    program = tmp_path / "program"
    program.write_text(
        f"#!{sys.executable}\nimport json, os, sys\n"
        "print(json.dumps([sys.argv, sys.stdin.readline(), dict(os.environ)]), file=open(sys.argv[0] + '.said', 'w'))\n"
    )
    program.chmod(0o700)
    monkeypatch.setenv("MGCLUST_SERVICE_DATABASE", "postgresql+psycopg://mgclust:s3cret@db/mgclust")
    settings = Settings.read(data=tmp_path)
    monkeypatch.setattr(supervisor.sys, "executable", str(program))
    stopping, said = threading.Event(), []
    supervisor.supervise_runner(settings, stopping, lambda sentence: (said.append(sentence), stopping.set()))
    assert said == ["the runner ended with code 0; starting another"]
    command, line, environment = json.loads((tmp_path / "program.said").read_text())
    assert command[1:] == ["-P", "-m", "mgclust.service.runner.runner"]
    assert Settings.from_json(json.loads(line)["settings"]) == settings
    assert "s3cret" in line and "s3cret" not in json.dumps(environment)
    assert not [name for name in environment if name.startswith("MGCLUST_SERVICE_")]


def test_there_are_limits_by_default(tmp_path):
    settings = Settings(data=tmp_path)
    assert settings.max_seconds == 86_400.0
    assert 0 < settings.max_memory < psutil.virtual_memory().total
    job = SimpleNamespace(request={}, id="x")
    attempt = RunningAttempt(job, SimpleNamespace(pid=os.getpid()), settings, ())
    assert (attempt._seconds, attempt._memory) == (86_400.0, settings.max_memory)


def test_a_file_with_a_setting_that_every_account_can_change(tmp_path, monkeypatch):
    file = tmp_path / "port"
    file.write_text("8701")
    monkeypatch.setenv("MGCLUST_SERVICE_PORT_FILE", str(file))
    assert Settings.read().port == 8701
    file.chmod(0o666)
    with pytest.raises(InputError, match="can be changed by every account; set its mode to 0600"):
        Settings.read()


@pytest.mark.parametrize("name", ["checkpoints", "audit", "log", "database"])
def test_paths_that_other_accounts_could_change(tmp_path, name):
    """Own ones are closed; a path in another account's hands is rejected."""
    place = tmp_path / "place"
    place.mkdir()
    path = place if name == "checkpoints" else place / "file"
    given = {name: f"sqlite:///{path}" if name == "database" else str(path)}
    settings = Settings(data=tmp_path / "data", **given)
    if name not in ("checkpoints", "database"):
        path.write_text("")
    if name != "database":
        path.chmod(0o777)
        serve._check_place(settings)
        assert path.stat().st_mode & 0o077 == 0
    if name != "checkpoints":
        path.unlink(missing_ok=True)
        place.chmod(0o777)
        with pytest.raises(InputError, match=rf"{name}=.* is in a folder that another account can change"):
            serve._check_place(settings)
        place.chmod(0o1777)  # sticky, as /tmp
        serve._check_place(settings)
        path.write_text("") if name != "database" else path.touch()
    if os.geteuid() == 0:
        os.chown(path, 12345, -1)
        with pytest.raises(InputError, match=rf"{name}=.* belongs to another account \(uid 12345"):
            serve._check_place(settings)
