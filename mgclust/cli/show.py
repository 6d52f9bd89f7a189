"""``mgclust methods`` and ``mgclust info``: lists of the methods, and of the devices of this machine."""

from __future__ import annotations

import json
import platform
from typing import Any

import click

from mgclust.cli.options import CONTEXT

__all__ = ["info", "methods"]


@click.command("methods", context_settings=CONTEXT)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def methods(as_json: bool) -> None:
    """List the methods and their parameters."""
    from mgclust.algorithms import METHODS

    described: dict[str, dict[str, Any]] = {
        name: {
            "summary": method.summary(),
            "parameters": [{"name": option.name, **option.describe()} for option in method.options()],
        }
        for name, method in METHODS.items()
    }
    if as_json:
        click.echo(json.dumps(described))
        return
    for name, method in described.items():
        click.echo(f"{click.style(name, bold=True)}  {method['summary']}")
        rows = [(f"--{p['name'].replace('_', '-')}", p["values"], p["help"]) for p in method["parameters"]]
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        for (flag, values, text), parameter in zip(rows, method["parameters"], strict=True):
            default = "" if parameter["default"] is None else f" [{str(parameter['default']).lower()}]"
            click.echo(f"  {flag:{widths[0]}}  {values:{min(widths[1], 24)}}  {text}{default}")
    click.echo("\nUsage: mgclust run METHOD INPUT -o DIR. Details: mgclust run METHOD --help.")


@click.command("info", context_settings=CONTEXT)
@click.option(
    "--scheduler", metavar="ADDRESS", help="Also list the workers of this running Dask cluster (tcp:// or tls://)."
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def info(scheduler: str | None, as_json: bool) -> None:
    """Show the devices, memory and versions of this machine, and the workers of a cluster."""
    machine = _machine()
    if scheduler:
        machine["cluster"] = _cluster(scheduler)
    if as_json:
        click.echo(json.dumps(machine))
        return
    from mgclust.engine.memory import human

    cpu, memory = machine["cpu"], machine["memory"]
    click.echo(f"processor  {cpu['name']}, {cpu['cores']} cores")
    click.echo(f"memory     {human(memory['total'])}, {human(memory['available'])} available")
    for gpu in machine["gpus"]:
        click.echo(f"GPU        {gpu['name']}, {human(gpu['memory'])}")
    if machine["no_gpu"]:
        click.echo(f"GPU        not used: {machine['no_gpu']}")
    versions = ", ".join(f"{name} {version}" for name, version in machine["versions"].items())
    click.echo(f"system     {machine['system']}\nversions   {versions}")
    for worker in machine.get("cluster", ()):
        click.echo(f"worker     {worker['address']}: {worker['threads']} threads, {human(worker['memory'])}")


def _machine() -> dict[str, Any]:
    import psutil

    from mgclust.engine import devices
    from mgclust.results.versions import installed_versions

    memory = psutil.virtual_memory()
    return {
        "cpu": {"name": devices.cpu_name(), "cores": devices.cores()},
        "memory": {"total": memory.total, "available": memory.available},
        "gpus": [{"name": gpu.name, "memory": gpu.memory} for gpu in devices.gpus()],
        "no_gpu": devices.why_no_gpu(),
        "system": platform.platform(),
        "versions": installed_versions(),
    }


def _cluster(scheduler: str) -> list[dict[str, Any]]:
    from mgclust.engine.dask.cluster import connect
    from mgclust.engine.dask.scheduler import workers_of

    with connect(scheduler) as cluster:
        workers = workers_of(cluster.client)
        return [
            {"address": address, "threads": worker["nthreads"], "memory": worker["memory_limit"]}
            for address, worker in workers.items()
        ]
