"""What becomes of everything that users do while parts of the service are killed, ended or stopped, in 40 rounds.

In each round, two users send shared uploads, a sweep, a job in another variant from a browser's session, silhouettes of
the labels of another job, and other centres of a result; they rename jobs, pin some, delete some directly after their
end, and make and revoke links. Meanwhile a victim (web process, runner, processes of attempts, readers) is killed
(KILL), ended (TERM) or stopped for some seconds (STOP), once or twice. In some rounds a backup is made meanwhile, and
at the end of the round a second service runs from this backup. Results expire some minutes after their end.

Expected: each job has succeeded with the bits of an undisturbed run and is listed once; names, pins, revocations, links
and sessions are as they were acknowledged; each job of the user with a webhook has one message with a valid signature,
which may arrive again with the same body if the web process did not survive; a service from a backup has each job of
the backup, with the same bits, and no link or session that was revoked; expired jobs are gone, pinned ones are not.

    python -m benchmarks.service.daily_use --out benchmarks/results/service/daily_use.json
"""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import warnings
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, TypeVar

import httpx
import numpy as np
import psutil

from benchmarks.support import record as bench

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tests"))

from mgclust import AffinityPropagation, DensityPeaks, FuzzyCMeans, InputError, RunFailed, Service
from support.service_process import Running, command_line

VICTIMS, SIGNALS = ("web", "runner", "attempt", "reader"), ("KILL", "TERM", "STOP")
MODULES = {
    "runner": "mgclust.service.runner.runner", "attempt": "mgclust.service.runner.attempt",
    "reader": "mgclust.service.confined.reader_process",
}  # fmt: skip
DAMPING, COUNTS = (0.6, 0.8), (3, 4, 5, 6, 7)
MESSAGES = {"max_iter": 800, "convergence_iter": 800}  # some seconds, whatever they do
BACKUP_EVERY, DELETE_EVERY, PIN_EVERY = 8, 3, 4
LONGEST_WAIT = 600.0  # for anything
MESSAGE_SECONDS = 180.0  # a message of a process that was killed is sent again after a minute

Answer = TypeVar("Answer")


class Receiver(ThreadingHTTPServer):
    """The receiver of a webhook."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.secret = ""
        self.bodies: defaultdict[str, list[str]] = defaultdict(list)  # by job
        self.wrong = 0  # messages without a valid signature
        threading.Thread(target=self.serve_forever, daemon=True).start()

    def take(self, signature: str, body: bytes) -> None:
        """Check and keep a message."""
        sent, given = (part.partition("=")[2] for part in signature.split(","))
        wanted = hmac.new(self.secret.encode(), f"{sent}.".encode() + body, hashlib.sha256).hexdigest()
        self.wrong += not hmac.compare_digest(given, wanted) or abs(int(sent) - time.time()) > 60
        self.bodies[json.loads(body)["job"]["id"]].append(body.decode())


class _Handler(BaseHTTPRequestHandler):
    server: Receiver

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.server.take(self.headers["X-Mgclust-Signature"], body)
        self.send_response(204)
        self.end_headers()

    def log_message(self, *given: Any) -> None:
        """Print nothing."""


def persist(act: Callable[[], Answer]) -> Answer:
    """Do something again until the service answers; requests that create something have a key."""
    end = time.monotonic() + LONGEST_WAIT
    while True:
        try:
            return act()
        except (RunFailed, httpx.TransportError):
            if time.monotonic() > end:
                raise
            time.sleep(0.2)


class Browser:
    """A session of a browser: a cookie, which the client keeps, and a proof."""

    def __init__(self, url: str, user: Service) -> None:
        self.http = httpx.Client(base_url=f"{url}/api/v1", timeout=60)
        code = persist(lambda: user.call("POST", "/session/codes"))["path"].partition("=")[2]
        answer = self.http.post("/session", headers={"Authorization": f"Bearer {code}"})
        self.proof = answer.raise_for_status().json()["proof"]

    def ask(self, verb: str, path: str, **given: Any) -> httpx.Response:
        """Send a request, and send it again as long as the service is away or busy."""

        def once() -> httpx.Response:
            answer = self.http.request(verb, path, headers={"X-Mgclust-Proof": self.proof}, **given)
            if answer.status_code in (429, 503):
                raise RunFailed(answer.text)
            return answer

        return persist(once)


class Use:
    """A service, its users, and all that they expect."""

    def __init__(self, folder: Path, keep: float) -> None:
        self.folder, self.keep = folder, keep
        rows = np.random.default_rng(1).normal(size=(6_000, 16))
        np.save(folder / "many.npy", rows)
        np.save(folder / "few.npy", rows[:500])
        self.digests, self.receiver = self.undisturbed(folder), Receiver()
        self.running = self.serve(folder, webhook_networks="127.0.0.0/8")
        self.ann, self.bob = self.running.client("ann"), self.running.client("bob")
        self.ended_sessions: list[Browser] = []
        self.revoked: list[str] = []  # secrets of links
        self.expected: dict[str, str] = {}  # digest of the result by id of the job
        self.ended: dict[str, float] = {}  # by id, when a job was seen to have ended
        self.pinned: set[str] = set()
        self.deleted: set[str] = set()
        self.of_ann: set[str] = set()

    def begin(self) -> None:
        """Add a webhook, a session and the job whose result the rounds use."""
        hook = self.ann.add_webhook(f"http://127.0.0.1:{self.receiver.server_port}/")
        self.receiver.secret = hook["secret"]
        self.browser = Browser(self.running.url, self.ann)
        self.base = self.ann.submit("density-peaks", self.folder / "many.npy", report=False, n_clusters=5).wait()
        silhouettes = self.ann.submit("silhouette", self.folder / "many.npy", labels=self.base, report=False).wait()
        self.digests["silhouette"] = self.digest(silhouettes)
        self.upload = self.base.info["request"]["sources"][0]["upload"]
        for job in (self.base, silhouettes):
            self.ann.call("PUT", f"/jobs/{job.id}/pin", json={"pinned": True})
            self.pinned.add(job.id)
            self.of_ann.add(job.id)
        self.expected |= {self.base.id: self.digests["density 5"], silhouettes.id: self.digests["silhouette"]}

    def serve(self, folder: Path, **settings: object) -> Running:
        """Start a service whose data are in this folder."""
        given = {"keep_days": self.keep / 86_400, "hung_after": 5, **settings}
        return Running(folder, settings=given, constants={"queue.removal.SWEEP_SECONDS": 5.0})

    @staticmethod
    def undisturbed(folder: Path) -> dict[str, str]:
        """The digests of labels that are computed in this process."""
        fits: dict[str, Any] = {f"density {k}": (DensityPeaks(k, client=None, device="cpu"), "many") for k in COUNTS}
        for damping in DAMPING:
            fits[f"affinity {damping}"] = (
                AffinityPropagation(damping=damping, client=None, device="cpu", **MESSAGES), "few",
            )  # fmt: skip
        fits["fuzzy"] = FuzzyCMeans(4, random_state=1, client=None, device="cpu"), "many"
        return {name: _digest(fit.fit(folder / f"{rows}.npy").labels_) for name, (fit, rows) in fits.items()}

    def digest(self, job: Any) -> str:
        """The digest of a job's labels or, for silhouettes, of the values of all rows."""
        with tempfile.TemporaryDirectory() as place:
            result = persist(lambda: job.result(Path(place) / os.urandom(4).hex()))
            return _digest(result.arrays["samples"] if job.info["method"] == "silhouette" else result.labels)

    def submit(self, user: Service | Browser, expected: str, request: dict[str, Any], key: str) -> list[str]:
        """Submit a job; with `vary`, a sweep, whose expectations then end with the value."""
        path = "/sweeps" if "vary" in request else "/jobs"
        request = request | {"report": False, "key": key}
        if isinstance(user, Browser):
            answer = user.ask("POST", path, json=request)
            assert answer.status_code == 201, answer.text
            made = answer.json()
        else:
            made = persist(lambda: user.call("POST", path, json=request))
        jobs = made["jobs"] if path == "/sweeps" else [made]
        for job in jobs:
            more = f" {job['request']['parameters']['damping']}" if path == "/sweeps" else ""
            self.expected[job["id"]] = self.digests[expected + more]
            if user is not self.bob:
                self.of_ann.add(job["id"])
        return [job["id"] for job in jobs]


def _digest(values: Any) -> str:
    return hashlib.sha256(np.ascontiguousarray(values).tobytes()).hexdigest()


def processes(running: Running, victim: str) -> list[psutil.Process]:
    """The processes of a part of the service that run now."""
    web = psutil.Process(running.web.pid)
    if victim == "web":
        return [web]
    if victim == "reader":
        return [each for each in web.children(recursive=True) if MODULES["reader"] in command_line(each)]
    return running.processes(MODULES[victim])


def hurt(running: Running, victim: str, how: str, rng: random.Random) -> int:
    """Send a signal to all processes of a part; start the web process again; continue what was stopped."""
    found = processes(running, victim)
    for process in found:
        with contextlib.suppress(psutil.Error):
            process.send_signal(getattr(signal, f"SIG{how}"))
    if how == "STOP":
        time.sleep(rng.uniform(0.5, 8.0))
        for process in found:
            with contextlib.suppress(psutil.Error):  # the service may have replaced it
                process.send_signal(signal.SIGCONT)
    elif victim == "web":
        running.web.wait()
        running.start()
    return len(found)


@contextlib.contextmanager
def previews(use: Use, answers: Counter[int]) -> Iterator[None]:
    """Readers that are busy meanwhile: previews of other centres, again and again."""
    ended = threading.Event()

    def go_on() -> None:
        while not ended.wait(0.05):
            with contextlib.suppress(RunFailed, httpx.TransportError):
                answer = use.browser.ask("POST", f"/jobs/{use.base.id}/centers", json={"n_clusters": 4})
                answers[answer.status_code] += 1

    thread = threading.Thread(target=go_on)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def save_centers(use: Use, count: int, key: str) -> str:
    """Save other centres of the first job as a job; a reader that was killed is an error, after which to save again."""
    end = time.monotonic() + LONGEST_WAIT
    while time.monotonic() < end:
        path = f"/jobs/{use.base.id}/centers/save"
        answer = use.browser.ask("POST", path, json={"n_clusters": count, "key": key})
        if answer.status_code == 201:
            break
        assert answer.status_code == 400 and "ended without an answer" in answer.text, answer.text
    id_ = str(answer.json()["id"])
    use.expected[id_] = use.digests[f"density {count}"]
    use.of_ann.add(id_)
    return id_


def one_round(use: Use, number: int, rng: random.Random) -> Counter[str]:
    """Use everything, hurt a victim meanwhile, and count what is as it should be."""
    victim, how = VICTIMS[number % 4], SIGNALS[number // 4 % 3]
    told: Counter[str] = Counter({f"{victim} {how}": 1})
    answers: Counter[int] = Counter()
    running, key = use.running, lambda name: f"{name} {number}"
    many = {"sources": [{"upload": use.upload, "name": "many.npy"}]}
    backup = use.folder / f"backup-{number}" / "data" if number % BACKUP_EVERY == BACKUP_EVERY - 1 else None
    with previews(use, answers):
        told["upload_doubled"] += persist(lambda: use.ann.upload(use.folder / "many.npy")) != use.upload
        few = persist(lambda: use.ann.upload(use.folder / "few.npy"))
        sweep = use.submit(
            use.ann, "affinity",
            {"method": "affinity-propagation", "sources": [{"upload": few, "name": "few.npy"}], "parameters": MESSAGES,
             "vary": {"damping": DAMPING}}, key("sweep"),
        )  # fmt: skip
        own = persist(lambda: use.bob.upload(use.folder / "many.npy"))
        ids = [
            *sweep,
            *use.submit(use.bob, "fuzzy", {"method": "fuzzy-c-means", "sources": [{"upload": own}],
                        "parameters": {"n_clusters": 4, "random_state": 1}}, key("fuzzy")),
            *use.submit(use.ann, "silhouette", many | {"method": "silhouette",
                        "parameters": {"labels": {"job": use.base.id}}}, key("silhouette")),
        ]  # fmt: skip
        copying = start_backup(running, backup) if backup else None
        hits = rng.randint(1, 2)
        hitting = threading.Thread(target=lambda: told.update(killed=hit(running, victim, how, hits, rng)))
        hitting.start()
        count = COUNTS[number % len(COUNTS)]
        edited = use.base.info["request"]
        edit = {"method": "density-peaks", "sources": edited["sources"], "name": f"edited in round {number}",
                "parameters": edited["parameters"] | {"n_clusters": count}, "tags": ["edited"]}  # fmt: skip
        ids += use.submit(use.browser, f"density {count}", edit, key("edit"))
        named = {"name": f"round {number}", "tags": [f"round{number}"]}
        persist(lambda: use.ann.call("PATCH", f"/jobs/{sweep[0]}", json=named))
        if number % PIN_EVERY == 0:
            persist(lambda: use.ann.call("PUT", f"/jobs/{ids[-1]}/pin", json={"pinned": True}))
            use.pinned.add(ids[-1])
        link = persist(lambda: use.base.share(1.0))
        ids.append(save_centers(use, count, key("save")))
        told["saved_doubled"] += save_centers(use, count, key("save")) != ids[-1]
        hitting.join()
        ended(use, ids, told)
        if copying is not None:
            told["backups"] += 1
            told["backup_failed"] += copying.wait(LONGEST_WAIT) != 0
    told["previews"] += answers[200]
    told["readers_killed"] += answers[400]
    if set(answers) - {200, 400}:
        print(f"answers to previews: {dict(answers)}", flush=True)
    told["unexpected_answers"] += sum(number for code, number in answers.items() if code not in (200, 400))
    listed = Counter(job.id for user in (use.ann, use.bob) for job in user.jobs(limit=1000))
    told["lost"] += sum(listed[id_] == 0 for id_ in ids)
    told["doubled"] += sum(listed[id_] > 1 for id_ in ids)
    found = use.ann.jobs(search=f"round{number}", tag=f"round{number}")
    told["names_lost"] += [job.id for job in found] != [sweep[0]] or found[0].info["name"] != named["name"]
    check_links_and_sessions(use, link, told, number)
    if number % DELETE_EVERY == 0:
        persist(lambda: use.ann.find_sweep(found[0].info["sweep"]).delete())
        use.deleted.update(sweep)
        told["deleted"] += len(sweep)
        told["files_left"] += sum((running.data / "jobs" / id_).exists() for id_ in sweep)
    if backup is not None:
        restored(use, backup, told)
    return told


def hit(running: Running, victim: str, how: str, times: int, rng: random.Random) -> int:
    """Hurt the victim some times, at random moments; how many processes that were."""
    count = 0
    for _ in range(times):
        time.sleep(rng.uniform(0.1, 4.0))
        count += hurt(running, victim, how, rng)
    return count


def ended(use: Use, ids: list[str], told: Counter[str]) -> None:
    """Wait for the end of jobs, and compare their results."""
    for id_ in ids:
        user = use.ann if id_ in use.of_ann else use.bob
        job = persist(lambda user=user, id_=id_: user.job(id_))  # type: ignore[misc]
        for _ in job.watch():
            pass
        use.ended[id_] = time.time()
        told["jobs"] += 1
        told["attempts"] += job.info["attempt"]
        told["same_bits"] += job.state == "SUCCEEDED" and use.digest(job) == use.expected[id_]
        if job.state != "SUCCEEDED":
            print(f"{id_} {job.info['method']} {job.state}: {job.info['error']}", flush=True)


def check_links_and_sessions(use: Use, link: dict[str, Any], told: Counter[str], number: int) -> None:
    """Read by a link, revoke it, and change sessions in some rounds."""
    secret = link["url"].partition("#")[2]
    told["links_lost"] += shared(use.running, secret) != 200
    persist(lambda: use.base.revoke_link(link["id"]))
    use.revoked.append(secret)
    told["links_alive"] += shared(use.running, secret) != 401
    told["sessions_lost"] += use.browser.ask("GET", "/session").status_code != 200
    if number % 5 == 4:
        old = use.browser
        use.browser = persist(lambda: Browser(use.running.url, use.ann))
        cookies = dict(old.http.cookies)
        assert old.ask("DELETE", "/session").status_code == 200
        old.http.cookies.update(cookies)
        use.ended_sessions.append(old)
    told["sessions_alive"] += sum(each.ask("GET", "/session").status_code != 401 for each in use.ended_sessions)


def shared(running: Running, secret: str) -> int:
    """The status of a read by a link."""
    url, headers = f"{running.url}/api/v1/shared", {"Authorization": f"Bearer {secret}"}
    return int(persist(lambda: httpx.get(url, headers=headers, timeout=60)).status_code)


def start_backup(running: Running, target: Path) -> subprocess.Popen[bytes]:
    target.parent.mkdir()
    command = [sys.executable, "-m", "mgclust", "backup", str(target), "--data", str(running.data)]
    return subprocess.Popen(command, stdout=subprocess.DEVNULL)


def restored(use: Use, backup: Path, told: Counter[str]) -> None:
    """Run a second service from a backup: all of its jobs end with the same bits, and nothing is valid again."""
    shutil.copy2(use.running.data / "revocations", backup / "revocations")
    second = use.serve(backup.parent)
    try:
        told["restored"] += 1
        admin = second.client()
        for job in admin.jobs(limit=1000):
            if job.id not in use.expected:
                continue
            right = False
            with contextlib.suppress(InputError):  # it has expired
                for _ in job.watch():
                    pass
                right = job.state == "SUCCEEDED" and use.digest(job) == use.expected[job.id]
            gone = time.time() - use.ended.get(job.id, time.time()) > use.keep - 60
            told["restored_jobs"] += right
            told["restored_wrong"] += not right and not gone
        told["revoked_alive"] += sum(shared(second, secret) == 200 for secret in use.revoked)
        for session in use.ended_sessions:
            cookies = {"Cookie": "; ".join(f"{name}={value}" for name, value in session.http.cookies.items())}
            headers = {"X-Mgclust-Proof": session.proof} | cookies
            told["revoked_alive"] += httpx.get(f"{second.url}/api/v1/session", headers=headers).status_code == 200
    finally:
        second.stop()
        shutil.rmtree(backup.parent)


def messages(use: Use) -> dict[str, int]:
    """What has arrived at the webhook, once it is complete or the time is over."""
    end = time.monotonic() + MESSAGE_SECONDS
    while time.monotonic() < end and use.of_ann - set(use.receiver.bodies):
        time.sleep(1)
    bodies = use.receiver.bodies
    return {
        "messages": sum(map(len, bodies.values())), "messages_lost": len(use.of_ann - set(bodies)),
        "messages_again": sum(len(each) - 1 for each in bodies.values()),
        "messages_doubled": sum(len(set(each)) > 1 for each in bodies.values()),
        "messages_of_others": len(set(bodies) - use.of_ann), "wrong_signatures": use.receiver.wrong,
    }  # fmt: skip


def retention(use: Use) -> dict[str, int]:
    """Jobs that should have expired, and jobs that should not."""
    old = {id_ for id_, when in use.ended.items() if when < time.time() - use.keep - 60} - use.deleted
    listed = {job.id for user in (use.ann, use.bob) for job in user.jobs(limit=1000)}
    folders = {path.name for path in (use.running.data / "jobs").iterdir()}
    return {
        "expired": len(old - use.pinned), "expired_but_listed": len((old - use.pinned) & listed),
        "expired_but_files": len((old - use.pinned) & folders), "pinned": len(use.pinned),
        "pinned_but_gone": len(use.pinned - (listed & folders)), "deleted_but_listed": len(use.deleted & listed),
    }  # fmt: skip


FAULTS = (
    "lost", "doubled", "upload_doubled", "saved_doubled", "backup_failed", "unexpected_answers", "names_lost",
    "links_lost", "links_alive", "sessions_lost", "sessions_alive", "files_left", "restored_wrong", "revoked_alive",
    "messages_lost", "messages_doubled", "messages_of_others", "wrong_signatures", "expired_but_listed",
    "expired_but_files", "pinned_but_gone", "deleted_but_listed",
)  # fmt: skip


def main() -> None:
    parser = bench.parser(__doc__)
    parser.add_argument("--rounds", type=int, default=40)
    parser.add_argument("--first", type=int, default=0, help="number of the first round; the number chooses the victim")
    parser.add_argument("--seconds", type=float, default=7200.0, help="time after which no further round begins")
    parser.add_argument("--keep", type=float, default=600.0, help="seconds until jobs and uploads expire")
    options = parser.parse_args()
    os.environ.pop("MGCLUST_URL", None)
    out, rng = bench.Record(__doc__, options.out), random.Random(options.first)
    warnings.simplefilter("ignore")  # doubts: the data are noise
    rounds = range(options.first, options.first + options.rounds)
    totals: Counter[str] = Counter(dict.fromkeys(FAULTS, 0))
    with tempfile.TemporaryDirectory() as name:
        use, start = Use(Path(name), options.keep), time.perf_counter()
        try:
            use.begin()
            for number in rounds:
                if time.perf_counter() - start > options.seconds:
                    break
                totals["rounds"] += 1
                told = one_round(use, number, rng)
                totals.update(told)
                wrong = {fault: told[fault] for fault in FAULTS if told[fault]}
                out.note("so_far", dict(totals))  # of a run that is cut short
                print(f"round {number}, {time.perf_counter() - start:.0f} s: {wrong or 'as expected'}", flush=True)
            totals.update(messages(use) | retention(use))
        finally:
            use.running.stop()
    right = totals["same_bits"] == totals["jobs"] and not any(totals[fault] for fault in FAULTS)
    out.add(f"rounds from {rounds[0]}", **totals, seconds=time.perf_counter() - start, met=right)


if __name__ == "__main__":
    main()
