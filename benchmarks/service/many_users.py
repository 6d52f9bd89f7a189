"""800 event streams of 20 users while jobs run, and a flood of 30,000 mixed requests of these users.

Each user has 40 streams, 20 of each of two jobs; each stream has to end with the final state of its job. The requests
of the flood go to every kind of endpoint: lists with searches, jobs, sweeps, comparisons, links, sign-in, uploads,
pictures, webhooks, administration, and wrong requests. Allowed: no answer of 500 or above except 503, which asks for a
repetition, and no lost connection. Beside that, the record has the resident memory and the open files of the web
process, and the processor time per request.

    python -m benchmarks.service.many_users --out benchmarks/results/service/many_users.json
"""

from __future__ import annotations

import json
import os
import random
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import psutil

from benchmarks.service.load import Served
from benchmarks.support import record as bench

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tests"))

from mgclust import Service
from mgclust.service.settings import Settings
from mgclust.service.states import ENDED
from support.kernel_caches import give_kernels

USERS, STREAMS_PER_JOB, CONNECTIONS = 20, 20, 24
LONGEST = 300.0  # seconds for a stream or an answer


@contextmanager
def measured(served: Served, told: dict[str, float]) -> Iterator[None]:
    """Memory in MiB, open files and processor time of the web process: the largest values within the block."""
    process, ended = psutil.Process(served._process.pid), threading.Event()
    told |= {"begun_mib": process.memory_info().rss / 2**20, "begun_files": process.num_fds()}
    spent = served.spent()

    def watch() -> None:
        while not ended.wait(0.05):
            told["peak_mib"] = max(told.get("peak_mib", 0), process.memory_info().rss / 2**20)
            told["peak_files"] = max(told.get("peak_files", 0), process.num_fds())

    thread = threading.Thread(target=watch)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()
        told |= {"files_after": process.num_fds(), "web_processor_seconds": served.spent() - spent}


def last_state(url: str, token: str, id_: str) -> str:
    """Read a stream to its end, without reconnecting; the state of its last event."""
    state = ""
    headers = {"Authorization": f"Bearer {token}"}
    with httpx.stream("GET", f"{url}/api/v1/jobs/{id_}/events", headers=headers, timeout=LONGEST) as answer:
        answer.raise_for_status()
        for line in answer.iter_lines():
            if line.startswith("data: "):
                state = json.loads(line[6:])["state"]
    return state


def streams(out: bench.Record, served: Served, users: list[Service], tokens: list[str], points: Path) -> list[str]:
    """Watch jobs while they wait and run; the ids of one job of each user."""
    told: dict[str, float] = {}
    ends: Counter[str] = Counter()
    with measured(served, told), ThreadPoolExecutor(USERS * 2 * STREAMS_PER_JOB) as pool:
        jobs = [
            [user.submit(method, points, report=False, **given) for method, given in
             (("density-peaks", {"n_clusters": 4}), ("fuzzy-c-means", {"n_clusters": 3, "random_state": 0}))]
            for user in users
        ]  # fmt: skip
        asked = [
            pool.submit(last_state, served.url, token, job.id)
            for token, own in zip(tokens, jobs, strict=True)
            for job in own
            for _ in range(STREAMS_PER_JOB)
        ]
        for each in asked:
            problem = each.exception()
            ends[each.result() if problem is None else type(problem).__name__] += 1
    right = sum(ends[state] for state in ENDED) == len(asked) == ends["SUCCEEDED"]
    out.add(f"{len(asked)} event streams of {len(users)} users", ends=dict(ends), **told, met=right)
    return [own[0].id for own in jobs]


class Flood:
    """Requests of one connection, one after the other, as a random user each."""

    def __init__(self, served: Served, tokens: list[str], jobs: list[str], uploads: list[str], seed: int) -> None:
        self.served, self.tokens, self.jobs, self.uploads = served, tokens, jobs, uploads
        self.rng = random.Random(seed)
        self.answers: Counter[str] = Counter()
        self.wrong: list[str] = []
        self.links: list[tuple[int, str, str]] = []  # user, id, secret
        self.hooks: list[tuple[int, str]] = []

    def go_on(self, count: int) -> None:
        """Send so many requests."""
        http = HTTPConnection(self.served.url.removeprefix("http://"), timeout=LONGEST)
        for _ in range(count):
            kind = self.rng.choice(KINDS)
            user = self.rng.randrange(len(self.tokens))
            token, verb, path, body = getattr(self, kind)(user)
            headers = {"Authorization": f"Bearer {token}"} if token else {}
            given = body if isinstance(body, bytes | None) else json.dumps(body).encode()
            try:
                http.request(verb, f"/api/v1/{path}", given, headers | {"Content-Type": "application/json"})
                answer = http.getresponse()
                content = answer.read()
            except (HTTPException, OSError) as error:
                self.wrong.append(f"{verb} {path}: {type(error).__name__}")
                http.close()
                continue
            self.answers[f"{kind[1:]} {answer.status}"] += 1
            if answer.status >= 500 and answer.status != 503:
                self.wrong.append(f"{verb} {path}: {answer.status} {content[:200]!r}")
            if answer.status == 201 and kind == "_link":
                made = json.loads(content)
                self.links.append((user, made["id"], made["path"].partition("#")[2]))
            if answer.status == 201 and kind == "_webhook":
                self.hooks.append((user, json.loads(content)["id"]))
        http.close()

    def _listing(self, user: int) -> Any:
        query = self.rng.choice(["", "search=points", "search=nowhere", "sort=-score:silhouette", "state=FAILED",
                                 "tag=t1&search=a%20b", "sort=seconds&method=canopy", "limit=1000", "sort=-x",
                                 "before=1,2", "search=%00%25_", "sweep=" + "0" * 32])  # fmt: skip
        return self.tokens[user], "GET", f"jobs?{query}", None

    def _job(self, user: int) -> Any:
        given = {"method": self.rng.choice(["density-peaks", "canopy", "nothing"]), "report": False,
                 "sources": [{"upload": self.uploads[user]}], "parameters": {"n_clusters": self.rng.randrange(-1, 9)},
                 "name": f"flood {self.rng.random()}", "tags": ["t1"]}  # fmt: skip
        return self.tokens[user], "POST", "jobs", given

    def _sweep(self, user: int) -> Any:
        given = {"method": "density-peaks", "report": False, "sources": [{"upload": self.uploads[user]}],
                 "vary": {"n_clusters": self.rng.choice([[2, 3], [], [0], "x", list(range(1000))])}}  # fmt: skip
        return self.tokens[user], "POST", "sweeps", given

    def _labels(self, user: int) -> Any:
        given = {"method": "silhouette", "report": False, "sources": [{"upload": self.uploads[user]}],
                 "parameters": {"labels": {"job": self.rng.choice(self.jobs)}}}  # fmt: skip
        return self.tokens[user], "POST", "jobs", given

    def _compare(self, user: int) -> Any:
        return self.tokens[user], "POST", "jobs/compare", {"ids": [self.jobs[user], self.rng.choice(self.jobs)]}

    def _shown(self, user: int) -> Any:
        part = self.rng.choice(["", "/files", "/graph", "/points", "/log", "/links", "/files/labels.npy", "/files.zip"])
        return (
            self.tokens[user],
            "GET",
            f"jobs/{self.rng.choice([self.jobs[user], self.rng.choice(self.jobs)])}{part}",
            None,
        )

    def _change(self, user: int) -> Any:
        given = self.rng.choice([{"name": "x"}, {"tags": ["a", "b"]}, {"tags": [" "]}, {"owner": "bob"}])
        return self.tokens[user], "PATCH", f"jobs/{self.jobs[user]}", given

    def _centers(self, user: int) -> Any:
        save = self.rng.choice(["", "/save"])
        return self.tokens[user], "POST", f"jobs/{self.jobs[user]}/centers{save}", {"n_clusters": self.rng.randrange(9)}

    def _link(self, user: int) -> Any:
        return self.tokens[user], "POST", f"jobs/{self.jobs[user]}/links", {"days": self.rng.choice([1, 0, 1e9])}

    def _guest(self, user: int) -> Any:
        secret = self.rng.choice(self.links)[2] if self.links else "mgc_nothing"
        return secret, "GET", self.rng.choice(["shared", "shared/files/labels.npy", "jobs", "users"]), None

    def _unlink(self, user: int) -> Any:
        if not self.links:
            return self.tokens[user], "DELETE", f"jobs/{self.jobs[user]}/links/{'0' * 16}", None
        owner, id_, _ = self.links.pop()
        return self.tokens[owner], "DELETE", f"jobs/{self.jobs[owner]}/links/{id_}", None

    def _sign_in(self, user: int) -> Any:
        return self.tokens[user], "POST", self.rng.choice(["session", "session/codes"]), None

    def _session(self, user: int) -> Any:
        return (
            self.rng.choice(["", "mgc_wrong", self.tokens[user]]),
            self.rng.choice(["GET", "DELETE"]),
            "session",
            None,
        )

    def _administration(self, user: int) -> Any:
        path = self.rng.choice(
            ["users", "admin/queue", "admin/audit?limit=1000", "admin/health", "tokens", "tokens/ann"]
        )
        return self.rng.choice([self.tokens[user], self.served.token()]), "GET", path, None

    def _webhook(self, user: int) -> Any:
        url = self.rng.choice(["https://127.0.0.1/", "https://1.1.1.01/", "http://x", "https://localhost:1/x", ""])
        return self.tokens[user], "POST", "webhooks", {"url": url}

    def _no_webhook(self, user: int) -> Any:
        owner, id_ = self.hooks.pop() if self.hooks else (user, "0" * 16)
        return self.tokens[owner], "DELETE", f"webhooks/{id_}", None

    def _upload(self, user: int) -> Any:
        name = self.rng.choice(["a.csv", "..", "b.npy", "x" * 300])
        return self.tokens[user], "PUT", f"uploads/{name}", self.rng.randbytes(self.rng.randrange(2000))

    def _uploads_listed(self, user: int) -> Any:
        return self.tokens[user], "GET", self.rng.choice(["uploads", "uploads?sha256=x", "uploads?limit=0"]), None

    def _pin(self, user: int) -> Any:
        given = {"pinned": self.rng.choice([True, False, "x", None])}
        return self.tokens[user], "PUT", f"jobs/{self.jobs[user]}/pin", given

    def _cancel(self, user: int) -> Any:
        verb = self.rng.choice(["cancel", "retry"])
        return self.tokens[user], "POST", f"jobs/{self.jobs[user]}/{verb}", None

    def _noise(self, user: int) -> Any:
        path = self.rng.choice(
            ["jobs", "sweeps", "webhooks", "jobs/compare", "session", "tokens", "nowhere", "jobs/check"]
        )
        return self.tokens[user], "POST", path, self.rng.randbytes(self.rng.randrange(5000))


KINDS = [name for name in vars(Flood) if name.startswith("_") and not name.startswith("__")]


def flood(
    out: bench.Record, served: Served, tokens: list[str], jobs: list[str], uploads: list[str], count: int
) -> None:
    """Send all requests, and count the answers."""
    told: dict[str, float] = {}
    floods = [Flood(served, tokens, jobs, uploads, seed) for seed in range(CONNECTIONS)]
    start = time.perf_counter()
    with measured(served, told), ThreadPoolExecutor(CONNECTIONS) as pool:
        list(pool.map(lambda each: each.go_on(count // CONNECTIONS), floods))
    seconds = time.perf_counter() - start
    answers = sum((each.answers for each in floods), Counter())
    codes: Counter[str] = Counter()
    for name, number in answers.items():
        codes[name.rpartition(" ")[2]] += number
    wrong = [each for one in floods for each in one.wrong]
    busy = {name: number for name, number in sorted(answers.items()) if name.endswith("503")}
    health = httpx.get(f"{served.url}/healthz", timeout=60).status_code
    out.add(f"{count} requests", answers=dict(sorted(codes.items())), busy=busy, wrong=len(wrong), examples=wrong[:10],
            health=health, seconds=seconds, **told, met=not wrong and health == 200)  # fmt: skip


def main() -> None:
    parser = bench.parser(__doc__)
    parser.add_argument("--requests", type=int, default=30_000)
    options = parser.parse_args()
    out = bench.Record(__doc__, options.out)
    os.environ.pop("MGCLUST_URL", None)
    with tempfile.TemporaryDirectory() as folder:
        points = Path(folder) / "points.npy"
        np.save(points, np.random.default_rng(0).normal(size=(300, 4)))
        served = Served(Path(folder) / "data", "--slots", "2", webhook_networks="192.0.2.0/24")
        with served as admin:
            names = [f"user{i}" for i in range(USERS)]
            for name in names:
                admin.create_user(name)
                give_kernels(Settings(data=served.data).cache_folder(name) / "numba")  # each would compile them
            tokens = [admin.create_token(name, days=1)["token"] for name in names]
            users = [Service(served.url, token) for token in tokens]
            jobs = streams(out, served, users, tokens, points)
            uploads = [user.upload(points) for user in users]
            flood(out, served, tokens, jobs, uploads, options.requests)


if __name__ == "__main__":
    main()
