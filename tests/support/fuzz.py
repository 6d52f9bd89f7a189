"""Fuzzers with a budget of time: ``python -m tests.support.fuzz --seconds 600 --target files``, from the root.

A case depends on the seed, the target and its number alone. A failure ends the run with code 1 and says how to run its
case again.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import logging
import random
import sys
import tempfile
import time
import traceback
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from pydantic import ValidationError

sys.path.insert(0, str(Path(__file__).parents[1]))
from mgclust.base.errors import InputError
from support import hostile

Case = Callable[[random.Random], None]

WORDS = [
    "",
    "a",
    "x.npy",
    "../x",
    "/etc/passwd",
    "\0",
    "\x1b[2J",
    "\ud800",
    "ä",
    "\u202e",
    "9" * 400,
    "-1",
    "nan",
    "1e999",
    "n" * 300,
    "upload",
    "path",
    "url",
    "http://127.0.0.1/x.npy",
    "https://data.example/x.npy",
    "'; DROP TABLE jobs;--",
    "density-peaks",
    "silhouette",
    "communities",
    "fast-newman",
    "0" * 32,
    "%00",
    "%2e%2e",
    "true",
]
NUMBERS = [0, 1, -1, 3, 2**31, 2**63, 2**64, -(2**63) - 1, 10**400, 0.5, -0.0, 1e308, 1e-320]
NAMES = [
    "method",
    "sources",
    "parameters",
    "options",
    "mask",
    "resources",
    "report",
    "priority",
    "key",
    "upload",
    "path",
    "url",
    "name",
    "n_clusters",
    "dc",
    "metric",
    "columns",
    "delimiter",
    "gpus",
    "workers",
    "n_nodes",
    "indices",
    "rho_min",
    "delta_min",
    "answer",
    "user",
    "role",
]


def value(rng: random.Random, depth: int = 0) -> Any:
    """Anything that JSON can say."""
    kind = rng.randrange(8 if depth < 4 else 5)
    if kind < 2:
        return rng.choice(WORDS)
    if kind < 4:
        return rng.choice(NUMBERS)
    if kind == 4:
        return rng.choice([None, True, False])
    if kind == 5:
        return [value(rng, depth + 1) for _ in range(rng.choice((0, 1, 1, 2, 20)))]
    return {rng.choice(NAMES + WORDS): value(rng, depth + 1) for _ in range(rng.randrange(5))}


def submission(rng: random.Random) -> dict[str, Any]:
    """A job that is nearly right."""
    method = rng.choice(
        ["density-peaks", "affinity-propagation", "communities", "fast-newman", "silhouette", "canopy", "x"]
    )
    source, parameters = {"path": "/data/x.npy"}, {}
    made: dict[str, Any] = {"method": method, "sources": [source], "parameters": parameters}
    for name in rng.sample(NAMES[1:9], rng.choice((0, 0, 1, 2, 5))):
        made[name] = value(rng)
    for _ in range(rng.randrange(3)):
        rng.choice([made, source, parameters])[rng.choice(NAMES)] = value(rng)
    return made


@contextlib.contextmanager
def files() -> Iterator[Case]:
    """Mutated files of every format: rows, or a sentence."""
    with tempfile.TemporaryDirectory() as folder:

        def case(rng: random.Random) -> None:
            read, name, data = rng.choice(hostile.KINDS)
            path = Path(folder, name)
            path.write_bytes(
                (hostile.inside if rng.random() < 0.5 else lambda _, *given: hostile.mutated(*given))(name, data, rng)
            )
            hostile.attempted(read, path)

        yield case


@contextlib.contextmanager
def submissions() -> Iterator[Case]:
    """Jobs as users may send them: a record of bounded length, or a refusal."""
    from mgclust.service.web.requests import MAX_RECORD_BYTES, Submission

    def case(rng: random.Random) -> None:
        made = submission(rng) if rng.random() < 0.8 else value(rng)
        with contextlib.suppress(ValidationError, InputError):
            wanted = Submission.model_validate(made)
            wanted.check()
            assert len(json.dumps(wanted.to_record())) <= MAX_RECORD_BYTES

    yield case


@contextlib.contextmanager
def api() -> Iterator[Case]:
    """Requests with any JSON, headers and queries: no error of the server, and no answer without a sentence."""
    from starlette.testclient import TestClient

    from mgclust.service.queue import access
    from mgclust.service.queue.models import open_database
    from mgclust.service.settings import Settings
    from mgclust.service.web.app import create_app

    # The database's own files may appear while the folder is removed.
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        settings = Settings(
            data=Path(folder, "data"),
            cpu=True,
            log=str(Path(folder, "log")),
            rate_per_token=1e9,
            rate_per_address=1e9,
            upload_limit=1000,
        )
        app = create_app(settings)
        token = access.first_token(open_database(settings.database), settings.data).read_text().strip()
        http = TestClient(app, raise_server_exceptions=False, headers={"Authorization": f"Bearer {token}"})
        upload = http.put("/api/v1/uploads/x.npy", content=b"x").json()["id"]
        known = http.post(
            "/api/v1/jobs",
            json={
                "method": "silhouette",
                "sources": [{"upload": upload}],
                "parameters": {"labels": {"upload": upload}},
            },
        )
        ids = [known.json().get("id", "0" * 32), upload, "0" * 32, "%00", "..", "x"]
        paths = [
            ("POST", "/jobs"),
            ("GET", "/jobs"),
            ("GET", "/jobs/{}"),
            ("POST", "/jobs/{}/cancel"),
            ("POST", "/jobs/{}/retry"),
            ("GET", "/jobs/{}/log"),
            ("GET", "/jobs/{}/files"),
            ("GET", "/jobs/{}/files/{}"),
            ("GET", "/jobs/{}/points"),
            ("POST", "/jobs/{}/centers"),
            ("POST", "/jobs/{}/centers/save"),
            ("GET", "/uploads"),
            ("PUT", "/uploads/{}"),
            ("GET", "/tokens/{}"),
            ("POST", "/users"),
            ("GET", "/methods"),
        ]
        heads = {
            "Range": [
                "bytes=0-",
                "bytes=-1",
                "bytes=5-2",
                "bytes=" + "0-0," * 500,
                "bytes=a-b",
                "bytes=9999999999999-",
                "items=0-1",
            ],
            "Forwarded": [
                "for=127.0.0.1",
                'for="[::1]:80";by=x',
                "for=" + "a" * 5000,
                "for=;;;",
                "for=unknown, for=_x",
            ],
            "X-Forwarded-For": ["127.0.0.1", "a, b, c", "::1", "9" * 5000, ","],
            "Content-Type": [
                "application/json",
                "text/plain",
                "application/json; charset=utf-7",
                "multipart/form-data",
                "",
            ],
            "If-Range": ["x", "Wed, 21 Oct 2015 07:28:00 GMT", '"a"'],
        }

        def case(rng: random.Random) -> None:
            verb, path = rng.choice(paths)
            path = "/api/v1" + "".join(
                part if part != "{}" else rng.choice(ids) for part in path.replace("{}", "\n{}\n").split("\n")
            )
            body = json.dumps(submission(rng) if rng.random() < 0.5 else value(rng)).encode()
            if rng.random() < 0.2:
                body = hostile.mutated(body, rng)
            headers = {name: rng.choice(heads[name]) for name in rng.sample(sorted(heads), rng.randrange(3))}
            query = {rng.choice(["limit", "before", "state", "sha256", "x"]): str(rng.choice(WORDS[:8] + NUMBERS[:6]))}
            given = {"params": query} if rng.random() < 0.5 else {}
            with contextlib.suppress(UnicodeEncodeError):  # it cannot be sent
                answer = http.request(verb, path, content=body if verb != "GET" else None, headers=headers, **given)
                assert answer.status_code < 500 or answer.status_code == 507, (
                    verb,
                    path,
                    answer.status_code,
                    answer.text,
                )
                if answer.status_code >= 400:
                    assert answer.json()["error"].strip(), (verb, path, answer.text)

        yield case


TARGETS: dict[str, Callable[[], contextlib.AbstractContextManager[Case]]] = {
    "files": files,
    "submissions": submissions,
    "api": api,
}


def main() -> int:
    """Run cases of each target in turn until the time is over."""
    parser = argparse.ArgumentParser(prog="python -m tests.support.fuzz", description=main.__doc__)
    parser.add_argument("--seconds", type=float, default=20.0, help="of all targets together")
    parser.add_argument("--target", choices=TARGETS, action="append", help="may be repeated; all by default")
    parser.add_argument("--seed", default=str(random.SystemRandom().randrange(10**9)))
    parser.add_argument("--case", type=int, help="only this one")
    given = parser.parse_args()
    targets = given.target or list(TARGETS)
    warnings.simplefilter("ignore")
    logging.disable()
    for name in targets:
        end, number = time.monotonic() + given.seconds / len(targets), given.case or 0
        with TARGETS[name]() as case:
            while True:
                try:
                    case(random.Random(f"{given.seed} {name} {number}"))
                except Exception:
                    traceback.print_exc()
                    print(f"again by: python -m tests.support.fuzz --target {name} --seed {given.seed} --case {number}")
                    return 1
                number += 1
                if given.case is not None or time.monotonic() > end:
                    break
        print(f"{name}: {number - (given.case or 0)} cases, seed {given.seed}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
