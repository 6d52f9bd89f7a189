"""The directive ``cli-reference``: the commands of ``mgclust`` and their options, from the commands themselves."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

import click
from docutils import nodes
from docutils.parsers.rst import Directive
from docutils.statemachine import StringList

from mgclust.algorithms import METHODS
from mgclust.cli import commands
from mgclust.cli.options import place_options
from mgclust.data.options import GRAPH_OPTIONS, ROW_OPTIONS

GROUPS = {
    "On this machine": ("run", "parcellate", "compare", "demo", "methods", "info", "warmup", "certs"),
    "Jobs of a service": (
        "submit", "jobs", "status", "watch", "logs", "result", "cancel", "retry", "delete", "uploads", "rename",
        "sweep", "compare-jobs", "share", "webhook", "pin", "unpin",
    ),
    "Users and tokens of a service": ("sign-in", "user", "token"),
    "Processes of a service": ("serve", "runner"),
    "Administration of a service": ("usage", "queue", "health", "audit", "backup"),
}  # fmt: skip


def _code(text: str) -> str:
    return "`" + text.replace("|", "\\|") + "`"


def _prose(text: str) -> str:
    """Text of a help: what could be markup is escaped, options and quoted commands are code."""
    parts = re.split(r"'(mgclust [^']*)'|(?<!\w)(--[a-z][a-z-]*)", text)
    plain = [re.sub(r"([\\`*_|<>\[\]])", r"\\\1", part) for part in parts[::3]]
    return plain[0] + "".join(
        _code(command or option) + after
        for command, option, after in zip(parts[1::3], parts[2::3], plain[1:], strict=True)
    )


def _table(parameters: Iterable[click.Parameter], context: click.Context) -> list[str]:
    rows = []
    for each in parameters:
        record = each.get_help_record(context)
        if record is None or isinstance(each, click.Argument) or "--help" in each.opts:
            continue
        written, said = record
        bounds = default = ""
        # Click ends it so: "[default: 20; 1<=x<=1000]", "[required]".
        if last := re.search(r"\s*\[([^\[\]]*)\]$", said):
            said = said[: last.start()]
            for fact in last[1].split("; "):
                if "<" in fact or ">" in fact:
                    bounds = f" ({_code(fact)})"
                else:
                    default = fact
        if said.count("[default: ") == 1 and not default:
            before, _, after = said.partition("[default: ")
            default, _, after = after.partition("]")
            said = f"{before.rstrip()}{after}"
        rows.append(f"| {_code(written)} | {_prose(said)}{bounds} | {_prose(default.removeprefix('default: '))} |")
    return ["| option | meaning | default |", "|---|---|---|", *rows, ""] if rows else []


def _shown(command: click.Command, context: click.Context) -> list[click.Parameter]:
    return [each for each in command.get_params(context) if "--debug" not in each.opts]


def _head(command: click.Command, context: click.Context, level: int) -> list[str]:
    usage = " ".join([context.command_path, *command.collect_usage_pieces(context)])
    text = _prose(re.sub(r"(?m)^ +", "", command.help or ""))
    return [f"{'#' * level} {context.command_path}", "", "```text", usage, "```", "", text, ""]


def _of_methods(command: click.Group, context: click.Context) -> list[str]:
    """A command with a method: what all methods take once, and for each method its own parameters."""
    lines: list[str] = []
    reading = {"rows": {each.name for each in ROW_OPTIONS}, "graph": {each.name for each in GRAPH_OPTIONS}}
    place = {each.name for each in place_options()}
    first: dict[str, tuple[list[click.Parameter], click.Context]] = {}
    methods: list[str] = []
    for name in command.list_commands(context):
        method, found = METHODS[name], command.get_command(context, name)
        assert found is not None
        inner = click.Context(found, parent=context, info_name=name)
        own = {option.name for option in method.options()}
        params = _shown(found, inner)
        first.setdefault(method.opens, ([each for each in params if each.name not in own], inner))
        if command.name == "run":
            heading = f"#### {inner.command_path}"
            methods += [heading, "", _prose(found.help or ""), "", *_table([p for p in params if p.name in own], inner)]
    (shared, inner), (of_graph, graph) = first["rows"], first["graph"]
    read = reading["rows"] | reading["graph"]
    lines += ["Where to run and what to write:" if command.name == "run" else "The job:", ""]
    rest = [each for each in shared if each.name not in read]
    lines += _table([p for p in rest if p.name not in place] + [p for p in rest if p.name in place], inner)
    lines += ["How rows are read:", "", *_table([p for p in shared if p.name in reading["rows"]], inner)]
    lines += ["How a graph is read:", "", *_table([p for p in of_graph if p.name in reading["graph"]], graph)]
    return [*lines, *methods]


def _describe(command: click.Command, parent: click.Context, level: int) -> list[str]:
    context = click.Context(command, parent=parent, info_name=command.name)
    lines = _head(command, context, level)
    if not isinstance(command, click.Group):
        return [*lines, *_table(_shown(command, context), context)]
    if set(METHODS) <= set(command.list_commands(context)):
        return [*lines, *_of_methods(command, context)]
    for name in command.list_commands(context):
        found = command.get_command(context, name)
        assert found is not None
        lines += _describe(found, context, level + 1)
    return lines


def reference() -> list[str]:
    """Markdown of all commands, in groups."""
    root = click.Context(commands, info_name="mgclust")
    if missing := set(commands.list_commands(root)) ^ {name for names in GROUPS.values() for name in names}:
        raise ValueError(f"GROUPS and the commands differ in {sorted(missing)}; mend docs/_extensions/cli_reference.py")
    lines = []
    for title, names in GROUPS.items():
        lines += [f"## {title}", ""]
        for name in names:
            found = commands.get_command(root, name)
            assert found is not None
            lines += _describe(found, root, 3)
    return lines


class CliReference(Directive):
    """All commands, a section each."""

    def run(self) -> list[nodes.Node]:
        """Parse the Markdown in place."""
        parent = nodes.section()
        parent.document = self.state.document
        self.state.nested_parse(StringList(reference(), source="commands"), self.content_offset, parent, 1)
        return parent.children


def setup(app: Any) -> dict[str, bool]:
    """Register the directive."""
    app.add_directive("cli-reference", CliReference)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
