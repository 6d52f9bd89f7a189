"""Everything that the README shows is run, or where that takes a GPU or an installation, checked.

A word behind the language of a fenced block says what it needs::

    bash, python           run in order, in one directory
    bash exit=2            ends with that code
    bash | python cluster  run against a local cluster in place of tcp://scheduler:8786
    bash | python service   run against a service; ID is the last job's number
    bash | python gpu, bash tls, bash serve, bash install    names of options, parameters and extras are checked
    text                   what the block before it prints
"""

from __future__ import annotations

import ast
import builtins
import contextlib
import io
import json
import os
import re
import shlex
import subprocess
import sys
import tomllib
from dataclasses import fields
from pathlib import Path
from typing import NamedTuple

import click
import pytest
from service_process import Running

import mgclust
from mgclust.algorithms import METHODS, DensityPeaks
from mgclust.cli import commands, run_command
from mgclust.datasets import make_gaussian_rings
from mgclust.service.jobs import STATES

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")
SCHEDULER = "tcp://scheduler:8786"


class Block(NamedTuple):
    line: int
    language: str
    needs: str
    code: str


def _blocks() -> list[Block]:
    found = re.finditer(r"^```(\w*) ?(\S*)\n(.*?)^```$", README, re.MULTILINE | re.DOTALL)
    return [Block(README[: m.start()].count("\n") + 2, m[1], m[2], m[3]) for m in found]


BLOCKS = _blocks()
FIRST_LINES = [block.code.strip() for block in BLOCKS[:2]]


def _mgclust(arguments: list[str]) -> tuple[int, str, str]:
    """Run a command in this process, which has loaded everything; return its exit code and what it printed."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = run_command(arguments)
    return code, out.getvalue(), err.getvalue()


def _commands(code: str) -> list[list[str]]:
    return [shlex.split(line, comments=True) for line in code.splitlines() if line.strip()]


def _run_shell(block: Block, address: str = "") -> str:
    """Run the lines of a block and return what they print."""
    expected = int(block.needs.removeprefix("exit=")) if block.needs.startswith("exit=") else 0
    printed = ""
    for program, *arguments in _commands(block.code.replace(SCHEDULER, address or SCHEDULER)):
        assert program == "mgclust", f"README.md:{block.line}: {program} is not run by this test"
        code, out, err = _mgclust(arguments)
        assert code == expected, f"README.md:{block.line}: {arguments}\n{err}"
        printed += out if expected == 0 else err
    return printed


def _run_python(block: Block, names: dict, address: str = "") -> str:
    source = "\n" * (block.line - 1) + block.code.replace(SCHEDULER, address or SCHEDULER)
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(compile(source, "README.md", "exec"), names)
    return printed.getvalue()


def _parse(arguments: list[str]) -> None:
    """Have click and the parameters' constraints accept a command without running it."""
    context, command = None, commands
    while isinstance(command, click.Group):
        context = click.Context(command, parent=context, info_name=command.name)
        name, *arguments = arguments
        command = command.get_command(context, name)
        assert command is not None, name
    parsed = command.make_context(command.name, list(arguments), parent=context)
    for option in METHODS[command.name].options() if command.name in METHODS else ():
        value = parsed.params.get(option.name)
        if isinstance(value, str):
            option.constraint.parse(value, option.name)


def _options(command: click.Command, context: click.Context | None = None) -> set[str]:
    context = click.Context(command, parent=context)
    found = {flag for p in command.get_params(context) for flag in (*p.opts, *p.secondary_opts)}
    if isinstance(command, click.Group):
        for name in command.list_commands(context):
            found |= _options(command.get_command(context, name), context)
    return found


@pytest.fixture
def directory(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("MGCLUST_DEBUG", raising=False)
    return tmp_path


def test_the_first_two_blocks_install_and_run_and_test(directory):
    venv, install, run = FIRST_LINES[0].split(" && ")
    assert (venv, install) == ("python3 -m venv .venv", ".venv/bin/pip install --quiet '.[fmri]'")
    assert shlex.split(run) == [".venv/bin/mgclust", "demo"]
    venv, install, run = FIRST_LINES[1].split(" && ")
    assert venv == "python3 -m venv .venv-test"
    assert shlex.split(install) == [".venv-test/bin/pip", "install", "--quiet", ".[test]"]
    assert run == ".venv-test/bin/pytest"
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    assert project["project"]["scripts"]["mgclust"] == "mgclust.cli:main"
    assert project["tool"]["pytest"]["ini_options"]["testpaths"] == ["tests"]
    assert all(block.language == "bash" and block.code.count("\n") == 1 for block in BLOCKS[:2])

    # As the script that pip installs does it.
    done = subprocess.run(
        [sys.executable, "-c", "from mgclust.cli import main; main()", "demo", "-o", "demo"],
        env={**os.environ, "PYTHONPATH": str(Path(mgclust.__file__).parents[1])},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    for name in ("points", "voxels", "graph"):
        assert (directory / "demo" / name / "report.html").exists()
        if name != "points":
            continue
        scores = json.loads((directory / "demo" / name / "result.json").read_text())["scores"]
        row = next(line for line in README.splitlines() if line.startswith(f"| {name} |"))
        cells = [cell.strip() for cell in row.strip("|").split("|")]
        assert cells[3] == str(scores["n_clusters"]), row
        assert cells[4] == f"{scores['ari']:.3f}", row


def test_blocks_run_in_order(directory):
    names = {"__name__": "readme"}
    printed, ran = "", 0
    for block in BLOCKS[2:]:
        if block.language == "text":
            assert printed.strip() == block.code.strip(), f"README.md:{block.line}"
        elif block.language == "bash" and (not block.needs or block.needs.startswith("exit=")):
            printed = _run_shell(block)
            ran += 1
        elif block.language == "python" and not block.needs:
            printed = _run_python(block, names)
            ran += 1
        else:
            assert block.needs in ("gpu", "cluster", "service", "serve", "tls", "install"), (
                f"README.md:{block.line}: {block.needs}"
            )
            printed = ""
    assert ran >= 7
    # The table of the result directory is complete, --halo included.
    assert (directory / "out" / "halo.npy").exists()
    missing = [path.name for path in (directory / "out").iterdir() if f"`{path.name}`" not in README]
    assert not missing
    # So is that of exactness_.
    keys = set(names["model"].exactness_)
    keys |= set(DensityPeaks(2, client=None).fit(names["np"].random.default_rng(0).normal(size=(200, 6))).exactness_)
    assert not [key for key in keys if f"`{key}`" not in README]


def test_blocks_for_a_cluster(directory, client):
    x = make_gaussian_rings().X
    (directory / "data.csv").write_text("x,y\n" + "".join(f"{a},{b}\n" for a, b in x))
    # The path of a command means the same file for workers, whose directory is another one.
    ran = 0
    for block in BLOCKS:
        if block.needs != "cluster":
            continue
        block = block._replace(code=block.code.replace("data.csv", str(directory / "data.csv")))
        if block.language == "bash":
            _run_shell(block, client.scheduler.address)
        else:
            _run_python(block, {"__name__": "readme"}, client.scheduler.address)
        ran += 1
    assert ran >= 2 and (directory / "out-cluster" / "result.json").exists()


@pytest.mark.timeout(120)
def test_blocks_for_a_service(directory, monkeypatch):
    x = make_gaussian_rings().X
    (directory / "data.csv").write_text("x,y\n" + "".join(f"{a},{b}\n" for a, b in x))
    running = Running(directory)
    monkeypatch.setenv("MGCLUST_SERVICE_PORT", str(running.port))
    monkeypatch.setenv("MGCLUST_SERVICE_DATA", str(running.data))
    try:
        for block in (block for block in BLOCKS if block.needs == "service"):
            if block.language == "python":
                _run_python(block, {"__name__": "readme"})
                continue
            first, *others = block.code.splitlines(keepends=True)
            id_ = _run_shell(block._replace(code=first)).strip()
            _run_shell(block._replace(code="".join(others).replace(" ID", f" {id_}")))
    finally:
        running.stop()
    for name in ("out-job", "out-service"):
        assert json.loads((directory / name / "result.json").read_text())["scores"]["n_clusters"] == 15


def test_blocks_that_need_more_than_this_machine_name_what_exists():
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["optional-dependencies"]
    source = (Path(mgclust.__file__).parent / "engine" / "cluster.py").read_text(encoding="utf-8")
    for block in BLOCKS:
        if block.needs not in ("gpu", "tls", "install", "serve"):
            continue
        if block.language == "python":
            calls = [n for n in ast.walk(ast.parse(block.code)) if isinstance(n, ast.Call)]
            made = [n for n in calls if isinstance(n.func, ast.Name) and n.func.id == "DensityPeaks"]
            assert made
            DensityPeaks(**{k.arg: ast.literal_eval(k.value) for n in made for k in n.keywords})._checked()
            continue
        for program, *arguments in _commands(block.code):
            if program == "mgclust":
                _parse(arguments)
            elif program == "export":
                for name in (argument.split("=")[0] for argument in arguments):
                    assert name.startswith("MGCLUST_TLS_") and name.removeprefix("MGCLUST_TLS_") in source
            elif program.endswith("pip"):
                assert set(re.findall(r"\[(.*)\]", arguments[-1])) <= set(extras)
            else:
                raise AssertionError(f"README.md:{block.line}: {program} is not checked by this test")


def test_options_parameters_links_and_errors_exist():
    import mgclust.errors
    from mgclust.service.settings import Settings

    prose = "\n".join(line for line in README.splitlines() if not line.startswith((".venv", "python3 ")))
    assert set(re.findall(r"(?<![\w-])--[a-z][a-z-]+", prose)) <= _options(commands)
    parameters = {name for method in METHODS.values() for name in method().get_params()}
    assert set(re.findall(r"`(\w+)=[^`]*`", README)) <= parameters
    for name in re.findall(r"`([A-Z]\w+)`", README):
        if name.startswith("MGCLUST_SERVICE_"):
            assert name.removeprefix("MGCLUST_SERVICE_").lower() in {field.name for field in fields(Settings)}, name
            continue
        assert name in STATES or any(hasattr(module, name) for module in (mgclust.errors, mgclust, builtins)), name
    for link in re.findall(r"\]\(([^)]+)\)", README):
        if link.startswith("#"):
            assert f"## {link[1:].replace('-', ' ')}\n" in README.lower(), link
        else:
            assert link.startswith("https://") or (ROOT / link).exists(), link
    for picture in (ROOT / "docs/images").iterdir():
        assert picture.stat().st_size < 250_000, picture
