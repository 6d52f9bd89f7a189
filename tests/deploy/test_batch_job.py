"""Slurm's script: with Dask's real programs, and what it does where they or Slurm fail."""

from __future__ import annotations

import contextlib
import json
import os
import shlex
import signal

import numpy as np
import psutil
import pytest

from mgclust import Canopy
from support.batch_script import MGCLUST, SCRIPT, SRUN, leftovers, start_batch_job
from support.waiting import wait_for

LIMIT = 120  # seconds of a job, which takes 10 on two idle cores


def ended(job):
    """Exit code, output and errors of a job."""
    try:
        out, err = job.communicate(timeout=LIMIT)
    finally:
        with contextlib.suppress(ProcessLookupError):  # all of them ended
            os.killpg(job.pid, signal.SIGKILL)
    return job.returncode, out, err


def processes_of(folder):
    """Command lines of the processes that know of a folder."""
    lines = (each.info["cmdline"] or [] for each in psutil.process_iter(["cmdline"]))
    return [line for line in lines if any(str(folder) in word for word in line)]


@pytest.mark.slow
def test_a_batch_job_with_the_programs_of_dask(tmp_path):
    """A scheduler, two workers and a fit, all by the options that the script gives to the real programs."""
    rows = np.random.default_rng(4).normal(size=(2000, 3)).astype(np.float32)
    np.save(tmp_path / "rows.npy", rows)
    job = start_batch_job(
        tmp_path,
        shlex.split("--cpu run canopy rows.npy --t1 2 --t2 1 --workers 2 --no-report -o out"),
        {"srun": SRUN, "mgclust": MGCLUST},
        INTERFACE="lo",
    )
    code, out, err = ended(job)
    dask = (tmp_path / "mgclust-1-dask.log").read_text(encoding="utf-8")
    assert code == 0, (out, err, dask)
    assert "\n2 workers at tls://127.0.0.1:" in out
    assert json.loads((tmp_path / "out" / "result.json").read_text())["hardware"]["ranks"] == 2
    expected = Canopy(2, 1, client=None, device="cpu").fit(rows).labels_
    np.testing.assert_array_equal(np.load(tmp_path / "out" / "labels.npy"), expected)
    assert not leftovers(tmp_path) and not processes_of(tmp_path)


@pytest.mark.slow
def test_a_batch_job_that_is_cancelled_leaves_nothing(tmp_path):
    """Slurm sends SIGTERM to the script alone (`--signal=B:TERM`, and scancel with `--batch`)."""
    lasts = f'if [[ "$1" != certs ]]; then touch begun; exec sleep 600; fi; {MGCLUST}'
    job = start_batch_job(tmp_path, ["--cpu", "info"], {"srun": SRUN, "mgclust": lasts})
    try:
        wait_for(lambda: (tmp_path / "begun").exists() or job.poll() is not None, LIMIT)
    finally:
        job.send_signal(signal.SIGTERM)
        code, out, err = ended(job)
    assert code == 143, (out, err)
    assert not leftovers(tmp_path) and not processes_of(tmp_path)


def test_a_batch_job_removes_its_certificates_whatever_comes():
    """The trap that removes them stands before the command that makes them; GPUs are counted as Slurm does (MIG)."""
    text = SCRIPT.read_text(encoding="utf-8")
    assert text.index("\ntrap finish EXIT") < text.index("\nmgclust certs")
    assert "nvidia-smi" not in text and "$SLURM_GPUS_ON_NODE" in text


def test_a_batch_job_without_a_gpu_says_so(tmp_path):
    code, _, err = ended(start_batch_job(tmp_path, ["info"], {}))
    assert (code, err) == (
        2, "Slurm gave this node no GPU: ask for some with --gpus-per-node=N, or pass --cpu.\n"
    )  # fmt: skip


@pytest.mark.parametrize("does", ["exit 2", ":"])
def test_a_batch_job_whose_scheduler_does_not_start_says_so(tmp_path, does):
    """As where an option is wrong: `mgclust run` would not find it."""
    code, _, err = ended(start_batch_job(tmp_path, ["--cpu", "info"], {"mgclust": "exit 0", "dask": does}))
    log = tmp_path / "mgclust-1-dask.log"
    assert (code, err) == (1, f"The scheduler has not started, and the job ends: {log} says why.\n")
    assert not leftovers(tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("during", ["the wait for workers", "the command"])
def test_a_batch_job_ends_with_the_workers_of_a_node(tmp_path, during):
    """Dask's workers that have lost the scheduler end with code 0, which srun takes for a good end."""
    programs = {
        "srun": "sleep 1",
        "dask": 'while [[ "$1" != --scheduler-file ]]; do shift; done; echo "{}" >"$2"; exec sleep 600',
        "python": '[[ "$1" == -c ]] && echo tls://host:1 || { [[ "$during" == "the command" ]] || exec sleep 600; }',
        "mgclust": '[[ "$1" == certs ]] || exec sleep 600',
    }
    code, _, err = ended(start_batch_job(tmp_path, ["--cpu", "info"], programs, SLURM_JOB_NUM_NODES="2", during=during))
    log = tmp_path / "mgclust-1-dask.log"
    assert (code, err) == (1, f"The workers of a node have ended, and so has the job: {log} says why.\n")
    assert not leftovers(tmp_path)
