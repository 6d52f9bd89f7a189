"""The runner, which takes jobs from the queue and runs an attempt of each job in a separate process.

The runner owns no job. Every few seconds, it writes a heartbeat of each running attempt to the database. If the runner
dies, its attempts end with it, their heartbeats stop, and another runner queues the jobs again. One runner at a time
holds the lock of a data folder. `mgclust.service.runner.supervisor` starts the runner, reads its heartbeats, and
replaces it if it hangs.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import psutil
from sqlalchemy import delete, update

from mgclust.base.errors import InputError, MgclustError
from mgclust.engine.devices import gpus, why_no_gpu
from mgclust.outside.json_text import parse_json
from mgclust.service.confined.child_process import kill_tree
from mgclust.service.confined.confine import describe
from mgclust.service.confined.folders import remove, set_aside
from mgclust.service.confined.fork_server import ForkServer
from mgclust.service.confined.results import read_findings
from mgclust.service.queue.attempts import Attempts
from mgclust.service.queue.labels_of_jobs import doubts_about_labels
from mgclust.service.queue.models import OUTAGES, Job, RunnerSign, check_data_folder, migrate, open_database, writing
from mgclust.service.queue.sources import files_of_job
from mgclust.service.runner.attempt import TEMPORARY_FOLDER, fault_of, message_of
from mgclust.service.runner.devices import Devices
from mgclust.service.runner.runner_lock import runner_lock
from mgclust.service.runner.running_attempt import RunningAttempt
from mgclust.service.runner.semaphores import remove_semaphores
from mgclust.service.settings import Settings

__all__ = ["Runner", "main"]

POLL_SECONDS = 0.1
HEARTBEAT_SECONDS = 2.0
SIGN_SECONDS = 1.0  # time between two heartbeats to the supervisor


class Runner:
    """Runner of attempts of jobs, up to `Settings.slots` at once.

    Parameters
    ----------
    settings : Settings
    name : str, optional
        Name of the runner in the database.
    sign : callable, optional
        Called at every step, to send a heartbeat.
    """

    def __init__(self, settings: Settings, name: str = "", sign: Callable[[], None] = lambda: None) -> None:
        self._settings = settings
        local = not (settings.cpu or settings.scheduler or why_no_gpu())
        self._devices = Devices([gpu.visible_name for gpu in gpus()] if local else (), settings.slots)
        self._name, self._sign = name or secrets.token_hex(8), sign
        self._engine = open_database(settings.database)
        self._jobs = Attempts(self._engine, settings, self._name)
        self._claimed: list[Job] = []  # jobs that are claimed, but not started yet
        self._running: list[RunningAttempt] = []
        self._server = ForkServer("mgclust.service.runner.attempt", adopt=True)
        self._next_check = self._next_sign = self._next_claim = 0.0
        self._signs = 0
        self._started = psutil.Process().create_time()
        self.stopping = False

    def take_over(self, hung: Sequence[str]) -> None:
        """Queue the jobs of runners again after these runners hung and were killed."""
        with writing(self._engine) as session:
            session.execute(delete(RunnerSign))  # a runner that is alive writes its heartbeat again
        if hung:
            self._jobs.requeue_all(hung)

    def run(self) -> None:
        """Run until `stopping` is set; then end the attempts and queue their jobs again."""
        last_message = ""
        self._server.begin()
        try:
            while not self.stopping:
                self._sign()
                try:
                    happened = self.step()
                    last_message = ""
                except OUTAGES as error:
                    if last_message != (last_message := f"the database does not answer; trying again: {error}"):
                        print(last_message, file=sys.stderr)
                    happened = False
                    time.sleep(HEARTBEAT_SECONDS)
                    # No runner could write heartbeats meanwhile: start the time limit of all attempts again.
                    self._next_check = time.monotonic() + self._settings.lost_after
                if not happened:
                    time.sleep(POLL_SECONDS)
        finally:
            for attempt in self._running:
                attempt.process.close_input()  # close all inputs first, because each attempt may need some time to end
            for attempt in self._running:
                attempt.process.close()
                with contextlib.suppress(*OUTAGES):  # if this fails, the heartbeat stops, which has the same effect
                    self._jobs.requeue(attempt.job.id, attempt.job.attempt)
            self._server.close()
            with contextlib.suppress(*OUTAGES), writing(self._engine) as session:
                session.execute(delete(RunnerSign).where(RunnerSign.runner == self._name))

    def step(self) -> bool:
        """Check all attempts, heartbeats and lost jobs once, and claim jobs; return whether anything happened."""
        happened = False
        for attempt in self._running:  # even if the database does not answer: a full pipe would stop an attempt
            attempt.receive()
        self._jobs.clock()
        for attempt in list(self._running):
            if self._check(attempt):
                self._running.remove(attempt)
                self._next_claim = 0.0
                happened = True
        # Write our own heartbeats first: a runner that was stopped has not seen heartbeats of others either.
        if time.monotonic() > self._next_sign:
            self._signs += 1
            with writing(self._engine) as session:
                counted = update(RunnerSign).where(RunnerSign.runner == self._name).values(count=self._signs)
                if not session.connection().execute(counted).rowcount:
                    session.add(RunnerSign(runner=self._name, count=self._signs))
            self._next_sign = time.monotonic() + HEARTBEAT_SECONDS
        if time.monotonic() > self._next_check:
            self._jobs.requeue_lost(self._settings.lost_after)
            self._kill_descendants()
            self._next_check = time.monotonic() + HEARTBEAT_SECONDS
        while self._claimed or (not self._server.is_loading() and self._claim()):
            job = self._claimed[0]  # the job stays in the list if the database fails meanwhile
            try:
                self._start(job)
            except Exception as error:
                if isinstance(error, OUTAGES) and not isinstance(error, OSError):
                    raise
                # Whatever goes wrong at the start of a job, only this job fails.
                self._jobs.fail(job.id, job.attempt, message_of(error), fault_of(error))
            del self._claimed[0]
            happened = True
        return happened

    def _claim(self) -> bool:
        if len(self._running) >= self._settings.slots or time.monotonic() < self._next_claim:
            return False
        if (job := self._jobs.claim(self._can_start)) is not None:
            self._claimed.append(job)
        elif self._jobs.blocked:
            self._next_claim = time.monotonic() + HEARTBEAT_SECONDS  # the job may be cancelled, or overtaken
        return bool(self._claimed)

    def _can_start(self, job: Job) -> bool:
        try:
            devices = self._allocate(job)
            asked = (job.request.get("resources") or {}).get("gpus") or 0  # of a cluster, which has no devices here
            job.gpus = len(devices or ()) or asked
            return devices is not None
        except InputError:  # `_start` will fail the job
            return True

    def _allocate(self, job: Job) -> list[str] | None:
        """Return the GPUs for a job; None if not enough are free."""
        if self._settings.scheduler:  # the workers of the cluster have the GPUs
            return []
        number = self._devices.number_for(job.request.get("resources") or {})
        return self._devices.free(number, [attempt.devices for attempt in self._running])

    def _start(self, job: Job) -> None:
        if job.attempt == 1:  # a deleted job with the same key may have left a folder
            self._discard(self._settings.checkpoint_folder(job.id))
            self._discard(self._settings.job_folder(job.id))
        # A database that was restored from a backup does not know the last attempts of before.
        self._discard(self._settings.attempt_folder(job.id, job.attempt))
        for earlier in range(job.attempt - 1, 0, -1):
            # An earlier attempt may have left a complete result and died before its answer.
            left = self._settings.attempt_folder(job.id, earlier)
            self._discard(left / TEMPORARY_FOLDER)
            findings = read_findings(self._settings, job.id, earlier)
            if findings is not None:
                left.rename(self._settings.attempt_folder(job.id, job.attempt))
                self._discard(self._settings.checkpoint_folder(job.id))
                self._jobs.succeed(job.id, job.attempt, findings.scores, warnings=findings.warnings)
                return
        devices = self._allocate(job)
        assert devices is not None  # enough are free, as when the job was claimed: no attempt has started since
        order: dict[str, Any] = {
            "hidden": self._settings.concealed,
            "cache": str(self._settings.cache_folder(job.owner)),
            "folder": str(self._settings.attempt_folder(job.id, job.attempt)),
            "request": job.request | {"method": job.method},
            "before": job.before,
            "place": self._placement(job.request.get("resources") or {}, len(devices)),
            # If the attempt gets all GPUs, it finds them without their names.
            "devices": devices if len(devices) < len(self._devices.names) else None,
            "checkpoint": str(self._settings.checkpoint_folder(job.id) / str(job.attempt)),
            "checkpoint_seconds": self._settings.checkpoint_seconds,
            "max_rows": self._settings.max_rows,
        }
        try:
            self._settings.check_resources(job.request.get("resources") or {})
            files = files_of_job(self._engine, self._settings, job)
            order["files"] = {name: file.order() for name, file in files.items()}
            order["doubts"] = doubts_about_labels(self._engine, job.request)
        except ValueError as error:
            self._jobs.fail(job.id, job.attempt, str(error), "input")
            return
        process = self._server.start()
        with contextlib.suppress(OSError):  # without the folder, the attempt writes no checkpoints and logs this
            self._inherit_checkpoint(job)
        process.send(order)
        self._running.append(RunningAttempt(job, process, self._settings, devices))

    def _kill_descendants(self) -> None:
        """Kill and reap processes that attempts have left and this process has adopted.

        A child that leads its own session, but is not an attempt of this runner, was started by an attempt that has
        ended, or that has hidden its orphans.
        """
        if self._server.pid is None:
            return
        known = {attempt.process.pid for attempt in self._running} | {self._server.pid}
        for child in psutil.Process().children():
            with contextlib.suppress(psutil.Error, OSError):
                own = child.pid in known or os.getsid(child.pid) == os.getsid(0)
                if own or child.create_time() < self._started:
                    continue
                if child.status() != psutil.STATUS_ZOMBIE:
                    kill_tree(child.pid, 0.0)
                os.waitpid(child.pid, os.WNOHANG)

    @contextlib.contextmanager
    def _checkpoints(self, job: Job) -> Iterator[int]:
        """Open the folder of a job's checkpoints without following links."""
        number = os.open(self._settings.checkpoint_folder(job.id), os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
        try:
            yield number
        finally:
            os.close(number)

    def _inherit_checkpoint(self, job: Job) -> None:
        """Move the checkpoints of the previous attempt, which may still run elsewhere, to the new attempt."""
        self._settings.checkpoint_folder(job.id).mkdir(mode=0o700, parents=True, exist_ok=True)
        with self._checkpoints(job) as folder:
            for earlier in range(job.attempt - 1, 0, -1):
                with contextlib.suppress(OSError):
                    os.rename(str(earlier), str(job.attempt), src_dir_fd=folder, dst_dir_fd=folder)
                    return
            with contextlib.suppress(FileExistsError):
                os.mkdir(str(job.attempt), 0o700, dir_fd=folder)

    def _discard(self, folder: Path) -> None:
        """Remove a folder in a thread, because it may hold many files; a sweep removes the rest."""
        elsewhere = Path(self._settings.checkpoints) if self._settings.checkpoints else None
        beside = elsewhere if folder.parent == elsewhere else self._settings.data / "jobs"
        gone = set_aside(folder, beside)
        if gone is not None:
            threading.Thread(target=remove, args=(gone,), daemon=True).start()

    def _placement(self, resources: dict[str, Any], devices: int) -> dict[str, Any]:
        asked = {name: resources[name] for name in ("gpus", "workers") if resources.get(name)}
        place: dict[str, Any] = {"cpu": self._settings.cpu or "workers" in asked}  # also on a cluster with GPUs
        place |= asked or ({"workers": devices} if devices else {})
        if self._settings.scheduler:
            place["scheduler"] = self._settings.scheduler
        return place

    def _check(self, attempt: RunningAttempt) -> bool:
        """Pass on the heartbeat and the end of an attempt to the queue; return whether the attempt has ended."""
        job, process = attempt.job, attempt.process
        # The files of the job may be deleted, and its GPUs are free, only after the process has ended.
        if not process.ended():
            if attempt.answer is not None and not attempt.violation:
                process.enforce_exit()
            elif attempt.end_reason is None and (end_reason := attempt.reason_to_kill()):
                attempt.end_reason = end_reason
                process.kill()
            if time.monotonic() > attempt.next_heartbeat:
                cancelled = self._jobs.heartbeat(job.id, job.attempt, attempt.progress)
                attempt.next_heartbeat = time.monotonic() + min(HEARTBEAT_SECONDS, self._settings.lost_after / 4)
                if cancelled is None:
                    process.close(at_once=True)  # the job has a newer attempt elsewhere
                elif cancelled:
                    attempt.cancelled = True
                    process.interrupt()
            return False
        process.close()
        self._kill_descendants()  # processes that it has started hold the pipe and write files
        attempt.receive()  # read the rest of the output
        if attempt.answer is None and job.claimed is not None:
            remove_semaphores(job.claimed)
        violation = attempt.violation
        answer = None if violation else attempt.answer
        kept = self._settings.checkpoint_folder(job.id)
        if attempt.cancelled or (answer is not None and "scores" in answer):
            self._discard(kept)
        with contextlib.suppress(OSError):  # the folder does not exist, or holds checkpoints for the next attempt
            with self._checkpoints(job) as folder:
                os.rmdir(str(job.attempt), dir_fd=folder)
            kept.rmdir()
        self._discard(self._settings.attempt_folder(job.id, job.attempt) / TEMPORARY_FOLDER)
        if violation:
            self._jobs.fail(job.id, job.attempt, violation, "mgclust")
        elif answer is None:
            self._jobs.fail(job.id, job.attempt, *(attempt.end_reason or (process.exit_message(), "cluster")))
        elif "scores" in answer:
            self._jobs.succeed(job.id, job.attempt, answer["scores"], answer.get("facts"), answer.get("warnings", ()))
        else:
            self._jobs.fail(job.id, job.attempt, answer["error"], answer["fault"], answer.get("facts"))
        return True


def main(settings: Settings, name: str, hung: Sequence[str], sign: Callable[[], None]) -> None:
    """Run until SIGTERM.

    Parameters
    ----------
    settings : Settings
        Settings of the service.
    name : str
        Name of this runner.
    hung : sequence of str
        Names of earlier runners that were killed because they hung.
    sign : callable
        Called regularly, to send a heartbeat.
    """
    settings.data.mkdir(parents=True, exist_ok=True)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches all processes; the supervisor then sends SIGTERM
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})  # blocked by the supervisor; children inherit the mask
    with runner_lock(settings, sign):
        engine = open_database(settings.database)
        migrate(engine)
        check_data_folder(engine, settings.data)
        print(describe(), file=sys.stderr)
        runner = Runner(settings, name, sign)

        def stop(number: int, frame: Any) -> None:
            runner.stopping = True

        signal.signal(signal.SIGTERM, stop)
        signal.signal(signal.SIGINT, stop)
        runner.take_over(hung)
        runner.run()


def _stop_with_supervisor() -> None:
    """Stop when the supervisor, which holds the other end of the standard input, has ended."""
    sys.stdin.read()
    os.kill(os.getpid(), signal.SIGTERM)


def _sign_writer() -> Callable[[], None]:
    """Return a function that sends the supervisor a heartbeat, at most one per second."""
    pipe = os.dup(1)
    os.dup2(2, 1)  # output of libraries must not be taken for a heartbeat
    os.set_blocking(pipe, False)
    next_sign = 0.0

    def sign() -> None:
        nonlocal next_sign
        if time.monotonic() >= next_sign:
            next_sign = time.monotonic() + SIGN_SECONDS
            with contextlib.suppress(OSError):  # the supervisor has ended, or was stopped for hours
                os.write(pipe, b".")

    return sign


if __name__ == "__main__":
    if not (line := sys.stdin.readline()):
        sys.exit("the process that started the runner ended before it sent the settings.")
    config = parse_json(line)
    threading.Thread(target=_stop_with_supervisor, daemon=True).start()
    try:
        main(Settings.from_json(config["settings"]), config["name"], config["hung"], _sign_writer())
    except MgclustError as error:
        sys.exit(f"the runner cannot serve: {error}")
