"""Webhooks: a signed message to an address of the user at the end of each of the user's jobs.

A message waits in the database until it is sent, so no restart loses it. It has the header ``X-Mgclust-Signature``,
``t=SECONDS,v1=HEX``: the HMAC-SHA256 of ``SECONDS.BODY`` with the webhook's secret as the key. Receivers should compare
it, and reject messages that are older than some minutes. A message may arrive twice, with the same body. Messages of a
disabled user wait until the user is enabled again.

Addresses inside the network are rejected: a host is resolved once per message, each of its addresses must be public (or
in `webhook_networks`), and the connection is made to the address that was checked. Redirects are not followed.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import ipaddress
import itertools
import json
import re
import secrets
import socket
import sys
import threading
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx
from sqlalchemy import Engine, Exists, delete, exists, func, select, update
from sqlalchemy.orm import Session

from mgclust.base.errors import InputError
from mgclust.service.addresses import Proxies
from mgclust.service.queue import revocations
from mgclust.service.queue.access import DAY_SECONDS, Caller
from mgclust.service.queue.models import OUTAGES, Delivery, Job, User, Webhook, reading, writing
from mgclust.service.settings import Settings

__all__ = ["Sender", "add", "add_messages", "keep_messages", "remove", "send_until", "webhooks_of"]

MAX_WEBHOOKS = 10  # per user
MAX_ADDED_PER_DAY = 1000  # per user and process, because each deletion adds a line to the file of revocations
MAX_URL_CHARACTERS = 1024
POLL_SECONDS = 2.0
SEND_SECONDS = 15.0  # limit of one sending, whatever the receiver does
RECORD_SECONDS = 5.0  # time to record the outcome of a sending
LEASE_SECONDS = 60.0  # time after which a message of a process that was killed is sent again
RETRY_SECONDS = (10.0, 60.0, 600.0, 3600.0)  # pauses between the sendings of a message
AT_ONCE, AT_ONCE_PER_USER = 32, 4  # messages that are being sent
OVERLAP_SECONDS = 60.0  # jobs that ended so long before the last message are looked up again
KEPT_SECONDS = 3600.0
# Public addresses of IPv6, and what lies among them: special purposes with Teredo, documentation, and 6to4.
PUBLIC_V6 = ipaddress.ip_network("2000::/3")
NOT_PUBLIC_V6 = tuple(map(ipaddress.ip_network, ("2001::/23", "2001:db8::/32", "2002::/16", "3fff::/20")))

_added: Counter[tuple[str, int]] = Counter()  # webhooks that this process has added, by user and day


def add(engine: Engine, settings: Settings, caller: Caller, url: str) -> dict[str, Any]:
    """Add a webhook of the caller; return it with its secret, which cannot be shown again.

    If the token of the caller is revoked, the webhook is deleted.

    Raises
    ------
    InputError
        The address is not valid, or the user has too many webhooks.
    """
    if not re.fullmatch(f"[!-~]{{1,{MAX_URL_CHARACTERS}}}", url):
        raise InputError(f"url should be 1 to {MAX_URL_CHARACTERS} printable ASCII characters without spaces.")
    _place(settings, url)
    row = Webhook(
        id=secrets.token_hex(8), owner=caller.name, url=url, secret=secrets.token_urlsafe(32), created=time.time(),
        since=time.time(), origin=caller.maker,
    )  # fmt: skip
    with writing(engine, alone=True) as session:
        if (session.scalar(select(func.count()).where(Webhook.owner == caller.name)) or 0) >= MAX_WEBHOOKS:
            raise InputError(f"{caller.name} has {MAX_WEBHOOKS} webhooks, the maximum; delete one first.")
        day = (caller.name, int(row.created // DAY_SECONDS))
        if _added[day] >= MAX_ADDED_PER_DAY:
            raise InputError(f"{caller.name} has added {MAX_ADDED_PER_DAY} webhooks today, the maximum; wait a day.")
        _added[day] += 1
        session.add(row)
    return {"id": row.id, "url": url, "secret": row.secret}


def webhooks_of(engine: Engine, user: str) -> list[dict[str, Any]]:
    """List the webhooks of a user, without their secrets, and the outcomes of their last messages."""
    with reading(engine) as session:
        rows = session.scalars(select(Webhook).where(Webhook.owner == user).order_by(Webhook.created)).all()
    return [{"id": each.id, "url": each.url, "created": each.created, "last": each.last} for each in rows]


def remove(engine: Engine, data: Path, user: str, id_: str) -> bool:
    """Remove a webhook of a user with its messages, also for restored backups; return whether it existed."""
    with writing(engine) as session:
        wanted = delete(Webhook).where(Webhook.id == id_, Webhook.owner == user)
        found = session.scalar(wanted.returning(Webhook.id)) is not None
        if found:
            revocations.keep(data, webhook=id_)
        return found


def _place(settings: Settings, url: str) -> tuple[str, str, int]:
    """Return the scheme, the host and the port of an address."""
    try:
        httpx.URL(url)
        parts = urlsplit(url)
        place = parts.scheme, parts.hostname or "", parts.port or {"https": 443, "http": 80}.get(parts.scheme, 0)
    except (ValueError, httpx.InvalidURL):
        place = ("", "", 0)
    allowed = ("https", "http") if settings.webhook_networks else ("https",)
    if place[0] not in allowed or not place[1] or not place[2] or parts.username is not None or parts.fragment:
        raise InputError("url should be like https://host.example/path, without user and fragment.")
    return place


def _is_allowed(settings: Settings, address: str) -> bool:
    found = ipaddress.ip_address(address.partition("%")[0])
    if settings.webhook_networks and Proxies(settings.webhook_networks).trusts(str(found)):
        return True
    if found.version == 6 and (found not in PUBLIC_V6 or any(found in network for network in NOT_PUBLIC_V6)):
        return False
    return found.is_global and not found.is_multicast


async def _send(settings: Settings, webhook: Webhook, body: str) -> str | None:
    """Send a message; return None, or why it was not received."""
    try:
        _, host, port = _place(settings, webhook.url)
        async with asyncio.timeout(SEND_SECONDS):
            loop = asyncio.get_running_loop()
            found = [place[4][0] for place in await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)]
            if not found or not all(_is_allowed(settings, str(address)) for address in found):
                return "the host is inside a network, where no messages are sent"
            now = int(time.time())
            digest = hmac.new(webhook.secret.encode(), f"{now}.{body}".encode(), hashlib.sha256).hexdigest()
            parts = urlsplit(webhook.url)
            shown = parts.netloc.rpartition("@")[2]
            to = httpx.URL(webhook.url).copy_with(host=str(found[0]), port=port)
            headers = {
                "Host": shown, "Content-Type": "application/json", "User-Agent": "mgclust",
                "X-Mgclust-Signature": f"t={now},v1={digest}",
            }  # fmt: skip
            async with (
                httpx.AsyncClient(follow_redirects=False, trust_env=False, timeout=SEND_SECONDS) as client,
                client.stream(
                    "POST", to, content=body.encode(), headers=headers, extensions={"sni_hostname": host}
                ) as answer,
            ):
                return None if answer.is_success else f"the receiver answered {answer.status_code}"
    except TimeoutError:
        return f"the receiver did not answer within {SEND_SECONDS:g} s"
    except (OSError, httpx.HTTPError, InputError, UnicodeError) as error:
        return f"the message could not be sent ({type(error).__name__})"


def add_messages(engine: Engine) -> None:
    """Add a message for each job that has ended since the last look."""
    with reading(engine) as session:
        webhooks = session.scalars(select(Webhook)).all()
        ended = {
            hook.id: session.scalars(
                select(Job)
                .where(Job.owner == hook.owner, Job.finished > max(hook.created, hook.since - OVERLAP_SECONDS))
                .where(~_has_message(hook))
                .order_by(Job.finished)
                .limit(500)
            ).all()
            for hook in webhooks
        }
    for hook in webhooks:
        with writing(engine) as session:
            # Locked, because `keep_messages` may add the same message.
            if not ended[hook.id] or session.get(Webhook, hook.id, with_for_update=True) is None:
                continue
            for job in ended[hook.id]:
                _add_message(session, hook, job)
            since = max(job.finished or 0.0 for job in ended[hook.id])
            session.execute(update(Webhook).where(Webhook.id == hook.id).values(since=since))
            old = (Delivery.webhook == hook.id, Delivery.due.is_(None), Delivery.finished < since - KEPT_SECONDS)
            session.execute(delete(Delivery).where(*old))


def keep_messages(session: Session, job: Job) -> None:
    """Add the messages about the end of a job that is to be deleted or queued again: the next look would miss it."""
    wanted = select(Webhook).where(Webhook.owner == job.owner).order_by(Webhook.id).with_for_update()
    for hook in session.scalars(wanted).all():
        if job.finished is not None and job.finished > max(hook.created, hook.since - OVERLAP_SECONDS):
            _add_message(session, hook, job)


def _add_message(session: Session, hook: Webhook, job: Job) -> None:
    if session.get(Delivery, (hook.id, job.id, job.finished)) is None:
        session.add(Delivery(webhook=hook.id, job=job.id, finished=job.finished, body=_body(job), due=time.time()))


def _has_message(hook: Webhook) -> Exists:
    return exists().where(Delivery.webhook == hook.id, Delivery.job == Job.id, Delivery.finished == Job.finished)


def _body(job: Job) -> str:
    names = ("id", "method", "state", "attempt", "created", "started", "finished", "scores", "error", "fault")
    return json.dumps({"event": "job.ended", "job": {name: getattr(job, name) for name in names}})


class Sender:
    """Sends messages, each in a thread, so that no slow receiver or name server holds up another message.

    Users take turns, and each has a share of the places. A webhook has one message open at a time.

    Parameters
    ----------
    engine : Engine
        Database, from `open_database`.
    settings : Settings
        Settings of the service.
    """

    def __init__(self, engine: Engine, settings: Settings) -> None:
        self._engine, self._settings = engine, settings
        self._open: dict[str, tuple[str, threading.Thread]] = {}  # owner and thread by webhook
        self._lock = threading.Lock()
        self._ended = threading.Event()  # set at the end of each message
        self._turns: dict[str, int] = {}  # number of the last turn of each user
        self._turn = itertools.count(1)

    def begin(self) -> int:
        """Begin to send the messages that are due and for which there is a place; return their number."""
        now = time.time()
        due = (Delivery.webhook == Webhook.id, Delivery.due <= now)
        earliest = select(func.min(Delivery.due)).where(*due).scalar_subquery()
        wanted = select(Webhook).join(User, Webhook.owner == User.name).where(User.disabled.is_(None))
        begun = []
        with writing(self._engine, alone=True) as session:
            rows = session.scalars(wanted.where(earliest.is_not(None)).order_by(earliest)).all()
            for hook in self._in_turn(rows):
                of_hook = select(Delivery).where(Delivery.webhook == hook.id, Delivery.due <= now)
                delivery = session.scalars(of_hook.order_by(Delivery.due).limit(1)).one()
                delivery.due = now + LEASE_SECONDS
                begun.append((hook, delivery))
        for hook, delivery in begun:
            thread = threading.Thread(target=self._deliver, args=(hook, delivery), daemon=True)
            with self._lock:
                self._open[hook.id] = (hook.owner, thread)
            thread.start()
        return len(begun)

    def _in_turn(self, waiting: Sequence[Webhook]) -> list[Webhook]:
        """Choose webhooks for the places that are free."""
        with self._lock:
            taken = Counter(owner for owner, _ in self._open.values())
            left = [hook for hook in waiting if hook.id not in self._open]
        chosen: list[Webhook] = []
        while taken.total() < AT_ONCE:
            able = [hook for hook in left if taken[hook.owner] < AT_ONCE_PER_USER]
            if not able:
                break
            hook = min(able, key=lambda each: (taken[each.owner], self._turns.get(each.owner, 0)))
            self._turns[hook.owner] = next(self._turn)
            taken[hook.owner] += 1
            left.remove(hook)
            chosen.append(hook)
        return chosen

    def _deliver(self, hook: Webhook, delivery: Delivery) -> None:
        try:
            problem = asyncio.run(_send(self._settings, hook, delivery.body))
            last = delivery.failures == len(RETRY_SECONDS)
            due_again = None if problem is None or last else time.time() + RETRY_SECONDS[delivery.failures]
            outcome = "received" if problem is None else f"{problem}; {'given up' if last else 'trying again'}"
            failures = delivery.failures + (problem is not None)
            row = (
                Delivery.webhook == delivery.webhook, Delivery.job == delivery.job,
                Delivery.finished == delivery.finished,
            )  # fmt: skip
            with writing(self._engine) as session:
                session.execute(update(Delivery).where(*row).values(due=due_again, failures=failures))
                session.execute(update(Webhook).where(Webhook.id == hook.id).values(last=outcome))
        except OUTAGES as error:  # the message is sent again
            print(f"webhooks wait: {type(error).__name__}", file=sys.stderr)
        finally:
            with self._lock:
                del self._open[hook.id]
            self._ended.set()

    def wait(self, seconds: float) -> None:
        """Wait until a message ends, or for some seconds."""
        self._ended.wait(seconds)
        self._ended.clear()

    def finish(self) -> None:
        """Wait for the open messages, as long as one sending and its record may take."""
        end = time.monotonic() + SEND_SECONDS + RECORD_SECONDS
        with self._lock:
            threads = [thread for _, thread in self._open.values()]
        for thread in threads:
            thread.join(max(0.0, end - time.monotonic()))


def send_until(stopping: threading.Event, engine: Engine, settings: Settings) -> None:
    """Send messages as jobs end."""
    sender, next_look = Sender(engine, settings), 0.0
    while not stopping.is_set():
        try:
            if time.monotonic() >= next_look:
                next_look = time.monotonic() + POLL_SECONDS
                add_messages(engine)
            sender.begin()
        except OUTAGES as error:
            print(f"webhooks wait: {type(error).__name__}", file=sys.stderr)
        sender.wait(POLL_SECONDS)
    sender.finish()
