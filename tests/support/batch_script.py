"""Slurm's script of deploy/ as a batch job of one node, on this machine: what Slurm would give is stood for here."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

ROOT = Path(__file__).parents[2]
SCRIPT = ROOT / "deploy" / "slurm" / "mgclust.sbatch"
# srun's own options have values behind "=".
SRUN = 'while [[ "$1" == --* ]]; do shift; done; exec "$@"'
MGCLUST = f'exec "{sys.executable}" -m mgclust "$@"'


def start_batch_job(
    folder: Path, arguments: list[str], programs: Mapping[str, str], **environment: str
) -> subprocess.Popen[str]:
    """Start the script in `folder`, where it submits; `programs` are lines of bash, by the names of what they replace.

    Programs that are not named are those of the environment in which the tests run.
    """
    (folder / "bin").mkdir(exist_ok=True)
    (folder / "local").mkdir()
    for program, lines in programs.items():
        path = folder / "bin" / program
        path.write_text(f"#!/bin/bash\n{lines}\n", encoding="utf-8")
        path.chmod(0o755)
    given = {
        "PATH": os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]]),
        "PYTHONPATH": str(ROOT),
        "MGCLUST_ENV": str(folder),
        "SLURM_JOB_ID": "1",
        "SLURM_JOB_NUM_NODES": "1",
        "SLURM_CPUS_ON_NODE": "2",
        "SLURM_SUBMIT_DIR": str(folder),
        "SLURM_TMPDIR": str(folder / "local"),
    }
    return subprocess.Popen(
        ["bash", str(SCRIPT), *arguments], env=os.environ | given | environment, cwd=folder,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True,
    )  # fmt: skip


def leftovers(folder: Path) -> list[Path]:
    """Return the certificates and folders of Dask's nodes that a job which has ended should have removed."""
    return [*folder.glob(".mgclust-*"), *(folder / "local").iterdir()]
