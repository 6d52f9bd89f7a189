"""What the README and the pages of the site show is run, or where that takes a GPU or an installation, checked.

Each page has a directory of its own, which holds `data.csv` (600 rows, 15 clusters), and its blocks run in order. A
word behind the language of a fenced block says what it needs::

    bash, python           run in order
    bash exit=2            ends with that code
    bash | python cluster  run against a local cluster in place of tcp://scheduler:8786
    bash | python service  run against a service; ID is the last job's number
    bash tls               run against a cluster with TLS, whose PEM files lie in the directory
    bash | python gpu, bash serve, bash install    names of options, parameters and extras are checked
    bash develop           files and folders that the commands name exist
    python sketch          compiles
    text                   what the block before it prints
"""

from __future__ import annotations

import ast
import builtins
import contextlib
import io
import itertools
import json
import os
import re
import shlex
import subprocess
import sys
import textwrap
import tomllib
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path
from typing import NamedTuple

import click
import numpy as np
import pytest

import mgclust
from mgclust.accel.command import command as accel
from mgclust.algorithms import METHODS, DensityPeaks
from mgclust.cli import commands, run_command
from mgclust.datasets import make_gaussian_rings
from mgclust.service.states import STATES
from support.service_process import Running

ROOT = Path(__file__).parents[2]
# Pages of docs/deploy and docs/benchmarks only include those of the folders: test_deploy.py has the former.
PAGES = {
    str(path.relative_to(ROOT)): path.read_text(encoding="utf-8")
    for path in [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
    if "_build" not in path.parts and "results" not in path.parts
}
README = PAGES["README.md"]
SCHEDULER = "tcp://scheduler:8786"
CHECKED = ("gpu", "cluster", "service", "serve", "tls", "install", "develop", "sketch")
DIRECTIVES = ("toctree", "include", "rest-reference", "cli-reference")
PROGRAMS = {
    "git",
    "make",
    "mypy",
    "pip",
    "python",
    "python3",
    "ruff",
    "lint-imports",
    "pytest",
    "pre-commit",
    "cd",
    "source",
}


class Block(NamedTuple):
    page: str
    line: int
    language: str
    needs: str
    code: str

    @property
    def place(self) -> str:
        return f"{self.page}:{self.line}"


def _blocks(page: str) -> list[Block]:
    text = PAGES[page]
    found = re.finditer(r"^( *)```(\w+) ?(\S*)\n(.*?)^\1```$", text, re.MULTILINE | re.DOTALL)
    return [Block(page, text[: m.start()].count("\n") + 2, m[2], m[3], textwrap.dedent(m[4])) for m in found]


BLOCKS = [block for page in PAGES for block in _blocks(page)]
FIRST_LINES = [block.code.strip() for block in _blocks("README.md")[:2]]


def _mgclust(arguments: list[str]) -> tuple[int, str, str]:
    """Run a command in this process, which has loaded everything; return its exit code and what it printed."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = run_command(arguments)
    return code, out.getvalue(), err.getvalue()


def _commands(code: str) -> list[list[str]]:
    return [shlex.split(line, comments=True) for line in code.replace("\\\n", " ").splitlines() if line.strip()]


def _run_shell(block: Block, address: str = "") -> str:
    """Run the lines of a block and return what they print."""
    expected = int(block.needs.removeprefix("exit=")) if block.needs.startswith("exit=") else 0
    printed = ""
    for words in _commands(block.code.replace(SCHEDULER, address or SCHEDULER)):
        given = [word.split("=", 1) for word in itertools.takewhile(lambda word: re.match("[A-Z_]+=", word), words)]
        program, *arguments = words[len(given) :]
        assert program == "mgclust", f"{block.place}: {program} is not run by this test"
        with pytest.MonkeyPatch.context() as environment:
            for name, value in given:
                environment.setenv(name, value)
            code, out, err = _mgclust(arguments)
        assert code == expected, f"{block.place}: {arguments}\n{err}"
        printed += out if expected == 0 else err
    return printed


def _run_python(block: Block, names: dict, address: str = "") -> str:
    source = "\n" * (block.line - 1) + block.code.replace(SCHEDULER, address or SCHEDULER)
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(compile(source, block.page, "exec"), names)
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


def _write_data(directory: Path) -> None:
    rows = make_gaussian_rings().X.tolist()
    (directory / "data.csv").write_text("x,y\n" + "".join(f"{a},{b}\n" for a, b in rows), encoding="utf-8")


@pytest.fixture
def directory(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("MGCLUST_DEBUG", raising=False)
    _write_data(tmp_path)
    return tmp_path


@pytest.mark.slow
def test_the_first_two_blocks_install_and_run_and_test(directory):
    venv, install, run = FIRST_LINES[0].split(" && ")
    assert (venv, install) == ("python3 -m venv .venv", ".venv/bin/pip install --quiet '.[fmri]'")
    assert shlex.split(run) == [".venv/bin/mgclust", "demo"]
    venv, install, run = FIRST_LINES[1].split(" && ")
    assert venv == "python3 -m venv .venv-test"
    assert shlex.split(install) == [".venv-test/bin/pip", "install", "--quiet", ".[test]"]
    assert run == ".venv-test/bin/pytest"
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    assert project["project"]["scripts"]["mgclust"] == "mgclust.__main__:main"
    assert project["tool"]["pytest"]["ini_options"]["testpaths"] == ["tests"]
    first = _blocks("README.md")[:2]
    assert all(block.language == "bash" and block.code.count("\n") == 1 for block in first)

    # As the script that pip installs does it.
    done = subprocess.run(
        [sys.executable, "-c", "from mgclust.__main__ import main; main()", "demo", "-o", "demo"],
        env={**os.environ, "PYTHONPATH": str(Path(mgclust.__file__).parents[1])},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    for name in ("points", "voxels", "graph"):
        assert (directory / "demo" / name / "report.html").exists()
    scores = json.loads((directory / "demo" / "points" / "result.json").read_text())["scores"]
    row = next(line for line in PAGES["docs/performance.md"].splitlines() if line.startswith("| points |"))
    cells = [cell.strip() for cell in row.strip("|").split("|")]
    assert cells[3] == str(scores["n_clusters"]), row
    assert cells[4] == f"{scores['ari']:.3f}", row


def _runs(block: Block) -> bool:
    plain = block.language == "python" and not block.needs
    return plain or (block.language == "bash" and (not block.needs or block.needs.startswith("exit=")))


@pytest.mark.quick(
    "README.md",
    "docs/files.md",
    "docs/results.md",
    "docs/troubleshooting.md",
    "docs/methods/canopies.md",
    "docs/methods/affinity-propagation.md",
)
@pytest.mark.parametrize("page", [page for page in PAGES if any(map(_runs, _blocks(page)))])
def test_blocks_run_in_order(directory, page):
    names = {"__name__": "page"}
    printed = ""
    blocks = _blocks(page)[2 if page == "README.md" else 0 :]
    for block in blocks:
        if block.language == "text":
            assert printed.strip() == block.code.strip(), block.place
        elif _runs(block):
            printed = _run_shell(block) if block.language == "bash" else _run_python(block, names)
        else:
            assert block.needs in CHECKED, f"{block.place}: {block.language} {block.needs}"
            printed = ""
    if page == "docs/results.md":  # The table of the result directory is complete, --halo included.
        assert (directory / "out" / "halo.npy").exists()
        assert not [path.name for path in (directory / "out").iterdir() if f"`{path.name}`" not in PAGES[page]]


def test_every_block_is_run_or_checked():
    kinds = {(block.language, block.needs) for block in BLOCKS if not _runs(block)}
    assert {needs for language, needs in kinds if language in ("bash", "python")} <= set(CHECKED)
    # tests/deploy/test_proxy.py runs the block of nginx.
    assert {language for language, _ in kinds} <= {"bash", "python", "text", "toml", "nginx"}
    for block in BLOCKS:
        if block.language == "toml":
            assert tomllib.loads(block.code), block.place
    assert sum(map(_runs, BLOCKS)) > 30
    sketches = [block for block in BLOCKS if block.needs == "sketch"]
    assert sketches
    for block in sketches:
        compile(block.code, block.place, "exec")


def test_no_fence_is_overlooked():
    """A line that opens or closes a block belongs to one that `_blocks` finds, or to a directive without code."""
    for page, text in PAGES.items():
        fences = re.findall(r"^[ >*-]*(?:`{3,}|~{3,}|:{3,}).*$", text, re.MULTILINE)
        directives = re.findall(rf"^```{{(?:{'|'.join(DIRECTIVES)})}}", text, re.MULTILINE)
        assert len(fences) == 2 * (len(_blocks(page)) + len(directives)), (page, fences)


def _paths(command: click.Command, context: click.Context | None = None) -> Iterator[tuple[str, ...]]:
    """The words of each command: a method behind `run` or `submit` is not one of its own."""
    context = click.Context(command, parent=context, info_name=command.name)
    if not isinstance(command, click.Group) or set(METHODS) <= set(command.list_commands(context)):
        yield tuple(context.command_path.split())[1:]
        return
    for name in command.list_commands(context):
        yield from _paths(command.get_command(context, name), context)


def _called(source: str) -> Iterator[tuple[str, ...]]:
    """How the lists, tuples and calls of a file begin that stand in tests which are not slow."""
    tree = ast.parse(source)
    if any(isinstance(node, ast.Assign) and "mark.slow" in ast.unparse(node) for node in tree.body):
        return
    for test in tree.body:
        if any("mark.slow" in ast.unparse(each) for each in getattr(test, "decorator_list", ())):
            continue
        for node in ast.walk(test):
            words = node.args if isinstance(node, ast.Call) else getattr(node, "elts", ())
            yield tuple(each.value for each in words if isinstance(each, ast.Constant))[:2]


def test_every_command_is_called_by_a_quick_test():
    sources = [file.read_text(encoding="utf-8") for file in (ROOT / "tests").rglob("test_*.py")]
    called = {words for source in sources if "run_command" in source for words in _called(source)}
    called |= {(word,) for words in called for word in words}
    paths = set(_paths(commands))
    assert {"run", "submit", "user list", "info"} <= set(map(" ".join, paths))
    assert not [path for path in sorted(paths) if path not in called]


def test_the_table_of_exactness_is_complete():
    random = np.random.default_rng(0)
    keys = set(DensityPeaks(2, client=None).fit(random.normal(size=(200, 6))).exactness_)
    keys |= set(DensityPeaks(2, client=None, algorithm="grid").fit(random.normal(size=(500, 2))).exactness_)
    assert not [key for key in keys if f"`{key}`" not in PAGES["docs/exactness.md"]]


@pytest.mark.slow
def test_blocks_for_a_cluster(directory, client):
    # The path of a command means the same file for workers, whose directory is another one.
    ran = 0
    for block in BLOCKS:
        if block.needs != "cluster":
            continue
        block = block._replace(code=block.code.replace("data.csv", str(directory / "data.csv")))
        if block.language == "bash":
            _run_shell(block, client.scheduler.address)
        else:
            _run_python(block, {"__name__": "page"}, client.scheduler.address)
        ran += 1
    assert ran >= 2 and (directory / "out-cluster" / "result.json").exists()


@pytest.mark.slow
@pytest.mark.timeout(120)
def test_blocks_for_a_service(directory, monkeypatch):
    running = Running(directory)
    monkeypatch.setenv("MGCLUST_SERVICE_PORT", str(running.port))
    monkeypatch.setenv("MGCLUST_SERVICE_DATA", str(running.data))
    try:
        for block in (block for block in BLOCKS if block.needs == "service"):
            if block.language == "python":
                _run_python(block, {"__name__": "page"})
                continue
            first, *others = block.code.splitlines(keepends=True)
            id_ = _run_shell(block._replace(code=first)).strip()
            _run_shell(block._replace(code=re.sub(r"\bID\b", id_, "".join(others))))
    finally:
        running.stop()
    for name in ("out-job", "out-service"):
        assert json.loads((directory / name / "result.json").read_text())["scores"]["n_clusters"] == 15


@pytest.mark.slow
@pytest.mark.timeout(120)
def test_blocks_for_a_cluster_with_tls(directory, monkeypatch):
    import distributed

    security = distributed.security.Security.temporary()
    for name, text in (
        ("ca", security.tls_ca_file), ("cert", security.tls_client_cert), ("key", security.tls_client_key),
    ):  # fmt: skip
        (directory / f"{name}.pem").write_text(text)
    (block,) = (block for block in BLOCKS if block.needs == "tls")
    export, run = block.code.splitlines()
    for word in shlex.split(export)[1:]:
        monkeypatch.setenv(*word.split("="))
    with distributed.LocalCluster(
        n_workers=2, threads_per_worker=1, dashboard_address="127.0.0.1:0", security=security, protocol="tls"
    ) as running:
        _run_shell(block._replace(code=run.replace("tls://scheduler:8786", running.scheduler_address)))
    hardware = json.loads((directory / "out-tls" / "result.json").read_text())["hardware"]
    assert hardware["ranks"] == 1 and "fewer_because" in hardware  # of the cluster's two workers


def test_blocks_that_need_more_than_this_machine_name_what_exists():
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["optional-dependencies"]
    for block in BLOCKS:
        if block.needs not in ("gpu", "install", "serve", "develop", "sketch"):
            continue
        if block.language == "python":
            calls = [n for n in ast.walk(ast.parse(block.code)) if isinstance(n, ast.Call)]
            made = [n for n in calls if isinstance(n.func, ast.Name) and n.func.id == "DensityPeaks"]
            assert made or block.needs == "sketch", block.place
            DensityPeaks(**{k.arg: ast.literal_eval(k.value) for n in made for k in n.keywords})._checked()
            continue
        for program, *arguments in _commands(block.code):
            if block.needs == "develop":
                assert program in PROGRAMS or (ROOT / program).exists(), f"{block.place}: {program}"
                named = [each for each in arguments if re.match(r"(mgclust|tests|docs|benchmarks|deploy)(/|$)", each)]
                assert all((ROOT / each).exists() for each in named), f"{block.place}: {named}"
            elif program == "mgclust":
                _parse(arguments)
            elif program.endswith("pip"):
                assert {each for some in re.findall(r"\[(.*)\]", arguments[-1]) for each in some.split(",")} <= set(
                    extras
                )
            else:
                venv = (program, arguments[:2]) == ("python3", ["-m", "venv"])
                assert venv, f"{block.place}: {program} is not checked by this test"


def _prose(page: str) -> str:
    """A page without the commands of other programs."""
    text = re.sub(r"^```(bash (?:develop|install)|)\n.*?^```$", "", PAGES[page], flags=re.MULTILINE | re.DOTALL)
    others = (".venv", "python3 ", "dask ", "pip ")
    return "\n".join(line for line in text.splitlines() if not line.startswith(others))


@pytest.mark.parametrize("page", PAGES)
def test_options_parameters_and_names_exist(page):
    import mgclust.algorithms.declaration
    import mgclust.base.errors
    import mgclust.data.location
    import mgclust.engine.checkpoint
    import mgclust.engine.context
    import mgclust.engine.run_spec
    from mgclust.service import settings as of_service
    from mgclust.service.confined.caches import VARIABLES
    from mgclust.service.settings import Settings

    prose = _prose(page)
    options = {
        flag
        for each in re.findall(r"`(?:mgclust[^`]*)?(--[a-z][^`]*)`", prose)
        for flag in re.findall(r"--[a-z-]+", each)
    }
    # A record may name what it removes.
    assert page.startswith("docs/design/decisions") or options <= _options(commands) | _options(accel), page
    parameters = {name for method in METHODS.values() for name in method().get_params()}
    parameters |= {"checkpoint", "name"}  # of `fit_dataset`; in "`name=value`"
    assert page.startswith("docs/design/decisions") or set(re.findall(r"`([a-z]\w+)=[^`]*`", prose)) <= parameters
    settings = {field.name for field in fields(Settings)}
    for name in re.findall(r"MGCLUST_SERVICE_([A-Z_]+)", prose):
        assert name.lower().removesuffix("_file") in settings or name.endswith("_"), name
    homes = (
        mgclust,
        mgclust.algorithms,
        mgclust.algorithms.declaration,
        mgclust.data,
        mgclust.data.location,
        mgclust.base.errors,
        builtins,
        of_service,
    )
    homes = (*homes, mgclust.engine.checkpoint, mgclust.engine.context, mgclust.engine.run_spec)
    for name in re.findall(r"`([A-Z][A-Za-z]+)`", prose) if not page.startswith("docs/design") else ():
        assert name in STATES or name in VARIABLES or any(hasattr(module, name) for module in homes), name


def test_files_that_contributing_names_exist():
    named = re.findall(r"`([\w.]+(?:/[\w.]+)+)`", PAGES["CONTRIBUTING.md"])
    places = [ROOT / each for each in (".", "mgclust", "mgclust/algorithms", "tests/service")]
    made = "docs/_build"
    assert not [
        each for each in named if not each.startswith(made) and not any((place / each).exists() for place in places)
    ]
    page = PAGES["CONTRIBUTING.md"]
    modules = {path.name for path in (ROOT / "mgclust").iterdir() if not path.name.startswith("__")} - {"py.typed"}
    assert not [each for each in sorted(modules) if f"`{each}`" not in page and f"`mgclust/{each}`" not in page]


def test_files_that_the_architecture_names_exist():
    named = set(re.findall(r"[\w./]+/[\w.]+\.(?:py|cu)\b", PAGES["docs/design/architecture.md"]))
    assert len(named) > 30
    places = [ROOT / each for each in ("mgclust", "mgclust/algorithms")]
    assert not [each for each in sorted(named) if not any((place / each).exists() for place in places)]


def test_links_and_pictures():
    for link in re.findall(r"\]\(([^)]+)\)", README):
        if link.startswith("#"):
            assert f"## {link[1:].replace('-', ' ')}\n" in README.lower(), link
        else:
            assert link.startswith("https://") or (ROOT / link).exists(), link
    for picture in (ROOT / "docs/images").iterdir():
        assert picture.stat().st_size < 250_000, picture
