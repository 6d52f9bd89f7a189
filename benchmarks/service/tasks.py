"""Tasks of a user of the service in Chromium: clicks, keys and seconds; and the bytes that the pages transfer.

A service with two slots runs on this machine. A headless Chromium gets clicks and keys; a list or a file
field is set by script, and counts as two clicks. `clicks` counts presses of the mouse, `keys` counts texts that are
typed and keys that are pressed. The seconds of a task end when its result is shown; they are wall time, so nothing else
should run. The first item starts `mgclust serve` several times in a folder without jobs, after a job has compiled the
kernels. Its seconds and steps are those of the median start.

    python -m benchmarks.service.tasks --out benchmarks/results/service/tasks.json

Needs Chromium.
"""

from __future__ import annotations

import contextlib
import os
import pty
import re
import signal
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import psutil

from benchmarks.support import record as bench

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tests"))

from mgclust import Service
from mgclust.datasets import make_gaussian_grid, make_gaussian_rings
from mgclust.service.client.remote_job import RemoteJob
from support.browser import Browser, sign_in
from support.service_process import Running

ALLOWED_SECONDS = 8.0
STARTS = 5
PATIENCE_SECONDS = 240.0  # of a machine that does much else
ALLOWED_BYTES = {"page of a job, 600 rows": 150_000, "page of a job, 100,000 rows": 500_000, "list": 40_000}
SWEPT = {"n_clusters": list(range(2, 32)), "m": [1.5, 2.5]}  # 60 jobs
SCORE = "xie_beni"  # lower is better
COUNT = "Number((document.querySelector('#count').textContent.match(/^([\\d,]+) clusters?$/) || [])[1])"
RESULT = f"{COUNT} > 0 && !document.querySelector('#map-figure').hidden"
TRANSFERRED = """[...performance.getEntriesByType('resource'), ...performance.getEntriesByType('navigation')]
  .reduce((sum, each) => sum + each.transferSize, 0)"""


class User(Browser):
    """A browser that counts what a user does."""

    clicks = keys = 0

    def wait(self, script: str, seconds: float = PATIENCE_SECONDS) -> None:
        """Wait longer than a test."""
        super().wait(script, seconds)

    def drag(self, points: list[tuple[float, float]]) -> None:
        """Count a press of the mouse; each click is one."""
        self.clicks += 1
        super().drag(points)

    def type(self, text: str) -> None:
        """Count a text."""
        self.keys += 1
        super().type(text)

    def press(self, key: str, code: int, shift: bool = False) -> None:
        """Count a key."""
        self.keys += 1
        super().press(key, code, shift)

    def choose(self, selector: str, path: Path) -> None:
        """Press a field of files, and choose a file in the dialogue of the system."""
        self.clicks += 2
        self.choose_file(selector, path)

    def pick(self, selector: str, value: str) -> None:
        """Choose from a list: a press on the field, and a press in the list, which the system draws."""
        self.clicks += 2
        self.run(
            f"(() => {{ const list = document.querySelector({selector!r}); list.focus(); list.value = {value!r};"
            "list.dispatchEvent(new Event('change')); })()"
        )

    def replace(self, selector: str, text: str) -> None:
        """Click a field, and replace its text."""
        self.click(selector)
        self.run(f"document.querySelector({selector!r}).select()")  # as Control and A do
        self.keys += 1
        self.type(text)

    @contextlib.contextmanager
    def task(self, record: bench.Record, name: str, wanted: int) -> Iterator[None]:
        """Record what is done within."""
        self.clicks = self.keys = 0
        begun = time.perf_counter()
        yield
        took = time.perf_counter() - begun
        ok = self.clicks <= wanted
        record.add(name, clicks=self.clicks, keys=self.keys, seconds=took, wanted_clicks=wanted, ok=ok)


def main() -> None:
    options = bench.parser(__doc__).parse_args()
    record = bench.Record(__doc__, options.out, ("fastapi", "starlette"))
    record.note("allowed", {"seconds to the first result": ALLOWED_SECONDS, "bytes": ALLOWED_BYTES})
    record.note("load_average_before", list(os.getloadavg()))
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        rings, grid = folder / "rings.npy", folder / "grid.npy"
        np.save(rings, make_gaussian_rings().X)
        np.save(grid, make_gaussian_grid().X)
        running = Running(folder, settings={"rate_per_token": 1e6})
        user = User(folder, 1280, 900)
        try:
            first_result(record, user, running, rings)
            ann = running.client("ann")
            job = ann.submit("density-peaks", rings, n_clusters=9).wait()
            sign_in(user, running)
            with_jobs(record, user, running.url, ann, job, folder)
            of_sixty(record, user, running.url, ann, rings)
            large = ann.submit("density-peaks", grid, n_clusters=90).wait()
            other_centers(record, user, running.url, job, 15)
            other_centers(record, user, running.url, large, 100)
            weights(record, user, running.url, job, large)
        finally:
            user.close()
            running.stop()


def first_result(record: bench.Record, user: User, running: Running, rings: Path) -> None:
    """From the start of `mgclust serve` in a terminal to the page of a result, several times."""
    admin = running.client()
    admin.submit("density-peaks", rings).wait()  # compiles the kernels
    runs = []
    for _ in range(STARTS):
        for job in admin.jobs():
            job.delete()
        for upload in admin.uploads():
            admin.delete_upload(upload["id"])
        running.stop()
        runs.append(started(user, running, rings))
        running.start()
    runs.sort(key=lambda run: run["steps"]["result"])
    middle = runs[STARTS // 2]
    seconds = middle["steps"]["result"]
    record.add(
        "serve to the first result", starts=STARTS, clicks=user.clicks, keys=user.keys, seconds=seconds,
        fewest_seconds=runs[0]["steps"]["result"], **middle, ok=seconds <= ALLOWED_SECONDS,
    )  # fmt: skip


def started(user: User, running: Running, rings: Path) -> dict[str, Any]:
    """Seconds until each step of one start, and the processor seconds of the service until the last step."""
    ours, theirs = pty.openpty()
    command = [
        sys.executable, "-m", "mgclust", "serve", "--cpu", "--data", str(running.data), "--port", str(running.port),
        "--slots", "2",
    ]  # fmt: skip
    steps: dict[str, float] = {}
    user.clicks = user.keys = 0
    begun = time.perf_counter()

    def step(name: str) -> None:
        steps[name] = time.perf_counter() - begun

    process = psutil.Popen(command, stdout=theirs, stderr=theirs)
    try:
        os.close(theirs)
        printed = b""
        while (link := re.search(rb"open (http://\S+/sign-in#code=\S+)", printed)) is None:
            printed += os.read(ours, 4096)
        step("link is printed")
        user.open(link[1].decode())
        user.clicks += 1  # on the link in the terminal
        user.wait("!document.querySelector('#go').hidden")
        user.click("#go")
        user.wait("document.querySelector('#parameters [data-name=n_clusters]')")
        user.wait("document.querySelector('#new-job').open")
        step("form is shown")
        user.choose("#files", rings)
        user.click("#submission button[type=submit]")
        user.wait("location.pathname.startsWith('/jobs/')")
        step("job is accepted")
        user.wait("document.querySelector('#title')?.innerText.includes('SUCCEEDED')")
        step("job has succeeded")
        user.wait(RESULT)
        step("result")
        family = [process, *process.children(recursive=True)]
        return {"steps": steps, "processor_seconds": sum(sum(each.cpu_times()[:4]) for each in family)}
    finally:
        user.run("localStorage.clear()")
        user.open("about:blank")
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(60)
        except psutil.TimeoutExpired:
            process.kill()
        os.close(ours)


def with_jobs(record: bench.Record, user: User, url: str, ann: Service, job: RemoteJob, folder: Path) -> None:
    """Run again, sweep, compare, share and download."""
    page = f"{url}/jobs/{job.id}"

    def edit() -> None:
        user.click("#actions a")
        user.wait("document.querySelector('#kept')?.innerText.includes('rings.npy')")
        user.wait("document.activeElement.type === 'submit'")

    shown(user, page)
    with user.task(record, "same job with one parameter changed", 2):
        edit()
        user.replace("[data-name=n_clusters]", "15")
        user.press("Enter", 13)
        user.wait("location.pathname.startsWith('/jobs/')")
        user.wait(RESULT)

    shown(user, page)
    with user.task(record, "sweep", 3):
        edit()
        user.pick(".vary", "dc_fraction")
        user.press("Tab", 9)
        user.type("0.01, 0.02, 0.04")
        user.press("Enter", 13)
        user.wait("location.search.startsWith('?sweep=')")
        user.wait("document.querySelectorAll('#jobs .name a').length === 3")
    for each in ann.jobs():
        each.wait()

    user.open(url)
    user.wait("document.querySelectorAll('#jobs .name a').length === 5")
    with user.task(record, "compare two jobs", 3):
        for k in (1, 2):
            user.click(f"#jobs tr:nth-child({k}) .pick input")
        user.click("#compare")
        user.wait("document.querySelectorAll('#agreement td').length === 4")
        user.wait("document.querySelectorAll('#pictures img').length === 2")

    shown(user, page)
    with user.task(record, "share a result", 2):
        user.click("#share")
        user.click("#make-link")
        user.wait("document.querySelector('#link-address').value")

    shown(user, page)
    user.download_to(folder)
    target = folder / f"density-peaks-{job.id[:8]}.zip"
    with user.task(record, "everything as one file", 1):
        user.click("#all-files")
        while not target.exists():
            time.sleep(0.02)


def of_sixty(record: bench.Record, user: User, url: str, ann: Service, rings: Path) -> None:
    """The place in the queue, and the best of 60 jobs."""
    sweep = ann.sweep("fuzzy-c-means", rings, SWEPT, report=False)
    last = sweep.jobs[-1]
    with user.task(record, "place in the queue", 0):
        user.open(f"{url}/jobs/{last.id}")
        user.wait("document.querySelector('#stage').innerText.includes('before this job')")
    for each in sweep.jobs:
        each.wait()
    user.open(f"{url}/?sweep={sweep.id}")
    user.wait("document.querySelectorAll('#jobs .name a').length === 60")
    values = {each.id: each.refresh().info["scores"][SCORE] for each in sweep.jobs}
    best = min(values, key=values.__getitem__)
    user.wait("!document.querySelector('#sweep-best').hidden")
    with user.task(record, "best of 60 jobs", 2):
        user.click("#sweep-best a")
        user.wait("document.querySelector('#title')?.innerText.includes('SUCCEEDED')")
    opened = user.run("location.pathname.split('/').pop()")
    assert values[opened] == values[best], opened


def other_centers(record: bench.Record, user: User, url: str, job: RemoteJob, count: int) -> None:
    """Choose other centres by their number: the last rank before the products fall."""
    shown(user, f"{url}/jobs/{job.id}")
    for figure in ("graph", "ranks"):  # what loads moves the ranks
        user.wait(f"!document.querySelector('#{figure}-figure').hidden")
    user.run("document.querySelector('#ranks').scrollIntoView({ block: 'center' })")
    left, top, width, height = user.place("#ranks")
    y = top + height / 2
    words = f"rank {count:,}"
    for x in np.arange(left, left + width, 0.5):  # the pointer moves until the page names the rank
        user._mouse("mouseMoved", (x, y), "none")
        if re.search(rf"{words}( |$)", user.run("document.querySelector('#pointed').innerText")):
            break
    else:
        raise AssertionError(f"the pointer found no {words}")
    with user.task(record, f"other centres, {count} clusters", 1):
        user.drag([(x, y)])
        user.wait(f"{COUNT} === {count}")


def weights(record: bench.Record, user: User, url: str, small: RemoteJob, large: RemoteJob) -> None:
    """What a browser without a cache receives."""
    user.call("Network.setCacheDisabled", cacheDisabled=True)
    user.call("Performance.enable")
    for (name, most), job in zip(ALLOWED_BYTES.items(), (small, large, None), strict=True):
        if job is not None:
            shown(user, f"{url}/jobs/{job.id}")
        else:
            user.open(url)
            user.wait("document.querySelectorAll('#jobs .name a').length === 20")
        sent = user.run(TRANSFERRED)
        record.add(f"transferred: {name}", bytes=sent, allowed=most, ok=sent <= most)


def shown(user: User, page: str) -> None:
    """Open the page of a result."""
    user.open(page)
    user.wait(RESULT)
    user.wait("document.querySelector('#actions a')")


if __name__ == "__main__":
    main()
