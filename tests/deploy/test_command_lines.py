"""Command lines of deploy/ and of the pages: what the real programs of mgclust and of Dask take.

CI runs this file with the newest Dask and with the oldest one.
"""

from __future__ import annotations

import importlib.util
import os
import re
import shlex
import subprocess
import sys
import tempfile
from importlib.metadata import entry_points
from pathlib import Path
from typing import NamedTuple

import click
import dask
import distributed  # noqa: F401, has defaults for Dask's settings
import pytest

from mgclust.cli import commands as mgclust_commands
from support.batch_script import ROOT, start_batch_job
from support.waiting import wait_for

yaml = pytest.importorskip("yaml")

DEPLOY = ROOT / "deploy"
FILES = sorted(path for path in DEPLOY.rglob("*") if path.is_file() and path.suffix not in (".py", ".pyc"))
# Records name what former versions took.
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
PAGES = [path for path in PAGES if not {"_build", "results", "decisions"} & set(path.parts)]
DASK = ("dask", "dask-scheduler", "dask-worker", "dask-cuda-worker")
COMMANDS = mgclust_commands.list_commands(click.Context(mgclust_commands))
OPERATORS = re.compile(r"[;&|()<>]+")


class Line(NamedTuple):
    path: Path
    program: str  # "mgclust", "dask scheduler", "dask worker" or "dask cuda worker"
    words: list[str]
    mention: bool  # in a sentence: values may be missing

    def __str__(self):
        return f"{self.path.relative_to(ROOT)}: {self.program} {' '.join(self.words)}"


def _strings(node):
    """Lists of strings and strings of a YAML document: commands are written as either."""
    if isinstance(node, dict):
        for each in node.values():
            yield from _strings(each)
    elif isinstance(node, list):
        if node and all(isinstance(each, str) for each in node):
            yield shlex.join(node)
        for each in node:
            yield from _strings(each)
    elif isinstance(node, str):
        yield from node.splitlines()


def _texts(path):
    """Shell-like lines of a file, and whether a sentence has them."""
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".yaml":
        for document in yaml.safe_load_all(text):
            yield from ((line, False) for line in _strings(document))
        return
    text = text.replace("\\\n", " ")
    if path.suffix == ".md":
        fence = re.compile(r"^( *)```(\w+).*?\n(.*?)^\1```$", re.MULTILINE | re.DOTALL)
        for block in fence.finditer(text):
            yield from ((line, False) for line in block[3].splitlines() if block[2] == "bash")
        for span in re.findall(r"`([^`]+)`", fence.sub("", text)):
            yield " ".join(span.split()), True
        return
    for line in text.splitlines():
        if (listed := re.match(r'(?:CMD|ENTRYPOINT) \[(".*")\]', line)) is not None:
            line = listed[1].replace('", "', " ").strip('"')
        # Comments are examples where they are indented.
        yield re.sub(r"^(#   |Exec\w+=[-@:+!|]*)", "", line.strip()), False


def _parts(line):
    """The words of each command of a line, without redirections."""
    line = re.sub(r"mgclust\.sbatch( --cpu)?", "; mgclust", line)  # what the script runs
    lexer = shlex.shlex(re.sub(r"\$\((?=[a-z])", "; ", line), posix=True, punctuation_chars=True)
    lexer.whitespace_split = True
    words = []
    try:
        for word in lexer:
            if OPERATORS.fullmatch(word):
                yield words
                words = []
            else:
                words.append(word)
    except ValueError:  # no command: a quotation mark of a sentence or of another language
        return
    yield words


def _command(words):
    """The program that a command runs, itself or by another one (`docker exec`), and its arguments."""
    for at, word in enumerate(words):
        name, after = word.rpartition("/")[2], words[at + 1 :]
        before = words[at - 1] if at else ""
        # By another program: behind a container's name or its image, and not the value of an option (`-n mgclust`).
        if name == "mgclust" and after and re.match(r"($|--$|sudo$|runner$|web$|mgclust:)", before):
            return name, after
        if name == "mgclust" and after and after[0] in COMMANDS and not before.startswith("-"):
            return name, after
        if name in DASK:
            full = name.replace("-", " ").split() + after
            for kind in ("scheduler", "worker", "cuda worker"):
                if full[1:][: len(kind.split())] == kind.split():
                    return f"dask {kind}", full[1 + len(kind.split()) :]
    return None


def _lines():
    for path in FILES + PAGES:
        for text, mention in _texts(path):
            for words in _parts(text):
                if found := _command(words):
                    yield Line(path, *found, mention)


# Variables and arrays of a script have no values here: `recorded` runs Slurm's.
LINES = [line for line in _lines() if not (line.path.suffix == ".sbatch" and line.program != "mgclust")]
LINES = [line for line in LINES if line.words[:1] != ["$@"]]


def _of_dask(program):
    """The click command of one of Dask's programs."""
    first, *others = program.split()[1:]
    found = [each for each in entry_points(group="dask_cli") if each.name == first]
    if not found and first == "cuda":
        pytest.skip("dask-cuda is not installed")
    command = found[0].load()
    for name in others:
        command = command.commands[name]
    return command


def _of_mgclust(words):
    """The click command of a command line of mgclust, its context, and the words behind the command's name."""
    context, command, words = None, mgclust_commands, list(words)
    while isinstance(command, click.Group) and words and not words[0].startswith("-"):
        context = click.Context(command, parent=context, info_name=command.name)
        first = words.pop(0)
        if first.isupper():  # METHOD and the like, in a sentence
            break
        command = command.get_command(context, first)
        assert command is not None, first
    return command, context, words


def check(line):
    """Fail unless the real program has each option, and these take the values, and there are no more arguments."""
    words = [word for word in line.words if word != "..."]
    if line.program == "mgclust":
        command, parent, words = _of_mgclust(words)
        if isinstance(command, click.Group):
            return  # named in passing
        if not line.mention and (words or line.path.suffix != ".md"):
            command.make_context(command.name, words, parent=parent)
            return
    else:
        command = _of_dask(line.program)
    if line.mention and words and words[-1].startswith("-") and "=" not in words[-1]:
        assert any(words[-1] in (*param.opts, *param.secondary_opts) for param in command.params), words[-1]
        words = words[:-1]
    # Dask's commands leave what they do not know to the modules of --preload, which fail when they are loaded.
    context = click.Context(command, ignore_unknown_options=False)
    given, rest, _ = command.make_parser(context).parse_args(words)
    given = {name: value for name, value in given.items() if isinstance(value, str | list | tuple)}
    assert not rest and not given.pop("preload_argv", ()), words
    for param in command.params:
        if param.name in given and not isinstance(param.type, click.Path) and "$" not in str(given[param.name]):
            param.type_cast_value(context, given[param.name])


@pytest.mark.parametrize("line", LINES, ids=str)
def test_command_lines(line):
    check(line)


def test_the_command_lines_are_found():
    found = {(str(line.path.relative_to(ROOT)), f"{line.program} {line.words[0]}") for line in LINES if line.words}
    assert found >= {
        (f"deploy/{file}", f"mgclust {command}")
        for file, command in (
            ("docker/Dockerfile", "serve"), ("docker/README.md", "warmup"), ("compose/compose.yaml", "serve"),
            ("compose/compose.yaml", "runner"), ("compose/compose.yaml", "certs"), ("compose/README.md", "info"),
            ("compose/README.md", "submit"), ("kubernetes/web.yaml", "serve"), ("kubernetes/runner.yaml", "runner"),
            ("kubernetes/README.md", "certs"), ("slurm/mgclust.sbatch", "certs"), ("slurm/mgclust.sbatch", "run"),
            ("slurm/README.md", "serve"), ("slurm/README.md", "runner"), ("systemd/mgclust.service", "serve"),
            ("README.md", "certs"),
        )
    }  # fmt: skip
    of_dask = {(str(line.path.relative_to(ROOT)), line.program) for line in LINES}
    assert of_dask >= {
        ("deploy/README.md", "dask scheduler"), ("deploy/README.md", "dask worker"),
        ("deploy/README.md", "dask cuda worker"), ("deploy/compose/compose.yaml", "dask scheduler"),
        ("deploy/compose/compose.yaml", "dask worker"), ("deploy/compose/compose.yaml", "dask cuda worker"),
        ("deploy/kubernetes/cluster.yaml", "dask scheduler"), ("deploy/kubernetes/cluster.yaml", "dask cuda worker"),
        ("deploy/kubernetes/README.md", "dask worker"), ("docs/clusters.md", "dask cuda worker"),
    }  # fmt: skip


@pytest.mark.parametrize(
    "words",
    [
        "dask scheduler --local-directory /tmp --preload mgclust.engine.tls",  # a worker's
        "dask scheduler --no-such-option", "dask scheduler --port", "dask worker tcp://a:1 --nthreads=many",
        "mgclust run canopy a.npy -o out --t3 1", "mgclust no-such-command a",
        "docker exec mgclust mgclust warmup --no-such-option", "docker compose exec -T x dask worker a --no-dashbord",
    ],
)  # fmt: skip
def test_wrong_command_lines_are_noticed(words):
    ((program, given),) = (found for each in _parts(words) if (found := _command(each)))
    with pytest.raises((click.UsageError, AssertionError)):
        check(Line(ROOT, program, given, False))


# Slurm's scripts, whose options are in variables


@pytest.fixture(scope="module", params=["cpu", "cuda"])
def recorded(request, tmp_path_factory):
    """What mgclust.sbatch runs, by programs that write down how they are called."""
    folder = tmp_path_factory.mktemp("batch")
    record = 'printf "%s\\n" "${0##*/}" "$@" > "$SLURM_SUBMIT_DIR/$BASHPID.called"\n'
    programs = {
        "srun": 'while [[ "$1" == --* ]]; do shift; done; exec "$@"',
        "sleep": f'exec "{subprocess.check_output(["which", "sleep"], text=True).strip()}" 0.05',
        "dask": record + 'if [[ "$1" == scheduler ]]; then while [[ "$1" != --scheduler-file ]]; do shift; done; '
        'echo "{}" >"$2"; fi; until [[ -e done ]]; do sleep; done',
        "python": '[[ "$1" == -c ]] && echo tls://host:1 || until grep -lqsx worker *.called; do sleep; done',
        "mgclust": record + '[[ "$1" == certs ]] || touch done',
    }
    arguments = ["--cpu"] * (request.param == "cpu") + ["run", "canopy", "a.npy", "-o", "out"]
    job = start_batch_job(folder, arguments, programs, INTERFACE="ib0", SLURM_GPUS_ON_NODE="2")
    out, err = job.communicate(timeout=60)
    assert job.returncode == 0, (out, err)
    return request.param, [path.read_text(encoding="utf-8").splitlines() for path in folder.glob("*.called")]


def test_the_batch_script(recorded):
    device, called = recorded
    kinds = {"dask scheduler", "dask worker" if device == "cpu" else "dask cuda worker", "mgclust"}
    lines = [Line(DEPLOY / "slurm" / "mgclust.sbatch", *_command(words), False) for words in called]
    assert {line.program for line in lines} == kinds
    for line in lines:
        if "cuda" not in line.program or entry_points(group="dask_cli", name="cuda"):
            check(line)
        guarded(line)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("device", "module", "program"),
    [("cpu", "distributed.cli.dask_worker", "dask worker"), ("cuda", "dask_cuda.cli", "dask cuda worker")],
)
def test_the_workers_of_dask_jobqueue(tmp_path, device, module, program):
    """jobqueue.py submits a script for each worker: sbatch notes it here, and on the CPU runs it, too."""
    if importlib.util.find_spec("dask_jobqueue") is None:  # an import of it would change this process's Ctrl-C
        pytest.skip("needs dask-jobqueue")
    programs = {
        "sbatch": f'cp "$1" submitted; echo Submitted batch job 1; {"bash" if device == "cpu" else ":"} "$1" '
        ">worker.log 2>&1 & sleep 0.2",
        "scancel": "exit 0",
    }
    for name, lines in programs.items():
        (tmp_path / name).write_text(f"#!/bin/bash\n{lines}\n", encoding="utf-8")
        (tmp_path / name).chmod(0o755)
    environment = os.environ | {"PATH": f"{tmp_path}:{os.environ['PATH']}"}
    environment["PYTHONPATH"] = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
    (tmp_path / "rows.csv").write_text("".join(f"{i % 7},{i % 11}\n" for i in range(300)), encoding="utf-8")
    command = [sys.executable, str(DEPLOY / "slurm" / "jobqueue.py"), "rows.csv", "certs", "--jobs=1", "--cores=1"]
    command += ["--memory=1GB", "--interface=lo", *(["--cpu"] * (device == "cpu"))]
    submitted = tmp_path / "submitted"
    with tempfile.TemporaryFile("w+") as out:
        process = subprocess.Popen(command, cwd=tmp_path, env=environment, stdout=out, stderr=out)
        try:
            wait_for(lambda: submitted.read_text(encoding="utf-8").endswith("\n") or process.poll() is not None)
            script = submitted.read_text(encoding="utf-8")
            words = shlex.split(next(line for line in script.splitlines() if " -m " in line))
            line = Line(DEPLOY / "slurm" / "jobqueue.py", program, words[3:], False)
            assert words[1:3] == ["-m", module]
            guarded(line, script)
            check(line)
            if device == "cpu":
                code = process.wait(120)
                out.seek(0)
                text = out.read()
                assert code == 0 and "clusters on 1 ranks" in text, text
        finally:
            process.kill()
            process.wait()


# What each process of Dask needs


def guarded(line, text=None):
    """Whether a process loads the guard of connections: `mgclust.engine.tls` says why, deploy/README.md how."""
    if line.program == "mgclust":
        return
    words = [part for word in line.words for part in word.split("=", 1)]
    loads = {(words[i], words[i + 1]) for i in range(len(words) - 1) if words[i].startswith("--preload")}
    options = ["--preload", "--preload-nanny"] if line.program == "dask worker" else ["--preload"]
    assert loads == {(option, "mgclust.engine.tls") for option in options}, line
    if line.program == "dask cuda worker":
        text = text or line.path.read_text(encoding="utf-8")
        assert re.search(r"DASK_DISTRIBUTED__NANNY__PRELOAD(=|: |, value: )mgclust\.engine\.tls", text), line


def test_every_process_of_dask_loads_the_guard_of_connections():
    places = {folder: {"dask scheduler", "dask worker", "dask cuda worker"} for folder in ("deploy", "compose")}
    places["kubernetes"] = places["deploy"]
    lines = [line for line in LINES if line.program != "mgclust" and line.words and line.path in FILES]
    lines = [line for line in lines if not line.mention or "..." in line.words]
    for folder, kinds in places.items():
        assert {line.program for line in lines if line.path.parent.name == folder} == kinds
    for line in lines:
        if not line.mention:
            guarded(line)


@pytest.mark.parametrize("path", FILES + PAGES, ids=lambda path: str(path.relative_to(ROOT)))
def test_variables_of_dask_are_settings(path):
    """Dask ignores others without a word."""
    for name in re.findall(r"\bDASK_[A-Z0-9_]+", path.read_text(encoding="utf-8")):
        if name != "DASK_WORKER_NAME":  # of the operator, in cluster.yaml
            key = name.removeprefix("DASK_").lower().replace("__", ".")
            assert dask.config.get(key, default=...) is not ..., name
