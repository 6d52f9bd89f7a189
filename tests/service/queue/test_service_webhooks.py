"""Webhooks: messages that are signed and arrive in spite of failures, and addresses that receive none."""

import asyncio
import hashlib
import hmac
import json
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from sqlalchemy import func, select, update

from mgclust.base.errors import InputError
from mgclust.service.queue import access, webhooks
from mgclust.service.queue.models import Delivery, Job, User, Webhook, migrate, open_database, reading, writing
from mgclust.service.settings import Settings
from support.whole_queue import WholeQueue

ANN = access.Caller("ann", "user")
LOOPBACK = "127.0.0.0/8"


@pytest.fixture
def engine(tmp_path):
    made = open_database(Settings(data=tmp_path).database)
    migrate(made)
    for name in ("ann", "bob"):
        access.add_user(made, name, "user")
    return made


@pytest.fixture
def receiver():
    class Handler(BaseHTTPRequestHandler):
        def do_POST(self):
            body = self.rfile.read(int(self.headers["content-length"]))
            self.server.received.append((self.path, dict(self.headers), body))
            time.sleep(self.server.pause)
            self.send_response(self.server.status)
            self.send_header("Location", "/elsewhere")
            self.end_headers()

        def log_message(self, *_):
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.received, server.status, server.pause = [], 200, 0.0
    server.url = f"http://localhost:{server.server_port}/hook"
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield server
    server.shutdown()


def end_job(engine, id_="a" * 32, owner="ann", state="SUCCEEDED", sweep=None):
    with writing(engine) as session:
        session.add(
            Job(
                id=id_, owner=owner, method="canopy", request={}, state=state, created=1.0, sweep=sweep,
                finished=time.time() + 0.01, attempt=1, scores={"n_clusters": 3},
            )
        )  # fmt: skip


def settings_of(tmp_path):
    return Settings(data=tmp_path, webhook_networks=f"{LOOPBACK}, ::1")


def send_due(engine, settings):
    """Send each webhook's first message that is due, and wait for the end; their number."""
    webhooks.add_messages(engine)
    sender = webhooks.Sender(engine, settings)
    begun = sender.begin()
    sender.finish()
    return begun


@pytest.fixture
def held(monkeypatch):
    """Receivers of ann that do not answer before the event; those of bob do. What was sent, by owner."""
    go_on, sent = threading.Event(), []

    async def send(settings, hook, body):
        sent.append(hook.owner)
        if hook.owner == "ann":
            await asyncio.to_thread(go_on.wait, 30)

    monkeypatch.setattr(webhooks, "_send", send)
    yield go_on, sent
    go_on.set()


def test_slow_receivers_of_a_user_hold_up_no_other_user(engine, tmp_path, held):
    go_on, sent = held
    settings = Settings(data=tmp_path)
    for _ in range(10):
        webhooks.add(engine, settings, ANN, "https://host.example/")
    webhooks.add(engine, settings, access.Caller("bob", "user"), "https://host.example/")
    time.sleep(0.02)
    for k in range(5):
        end_job(engine, f"{k:032x}")
    stopping = threading.Event()
    sending = threading.Thread(target=webhooks.send_until, args=(stopping, engine, settings))
    sending.start()
    try:
        end = time.monotonic() + 30
        while len(sent) < webhooks.AT_ONCE_PER_USER and time.monotonic() < end:
            time.sleep(0.02)
        end_job(engine, "b" * 32, "bob")
        while "bob" not in sent and time.monotonic() < end:
            time.sleep(0.02)
        assert sent == ["ann"] * webhooks.AT_ONCE_PER_USER + ["bob"]
    finally:
        stopping.set()
        go_on.set()
        sending.join(30)


def test_users_take_turns(engine, tmp_path, held, monkeypatch):
    """The places are for whoever has the fewest, and then for whoever waited longest."""
    monkeypatch.setattr(webhooks, "AT_ONCE", 2)
    settings = Settings(data=tmp_path)
    for caller, count in ((ANN, 5), (access.Caller("bob", "user"), 1)):
        for _ in range(count):
            webhooks.add(engine, settings, caller, "https://host.example/")
    time.sleep(0.02)
    end_job(engine)
    webhooks.add_messages(engine)
    end_job(engine, "b" * 32, "bob")
    webhooks.add_messages(engine)  # due last
    sender = webhooks.Sender(engine, settings)
    assert sender.begin() == 2
    held[0].set()
    sender.finish()
    assert sorted(held[1]) == ["ann", "bob"]


def test_one_message_of_a_webhook_at_a_time(engine, tmp_path, held):
    webhooks.add(engine, Settings(data=tmp_path), ANN, "https://host.example/")
    time.sleep(0.02)
    for k in range(3):
        end_job(engine, f"{k:032x}")
    webhooks.add_messages(engine)
    sender = webhooks.Sender(engine, Settings(data=tmp_path))
    assert (sender.begin(), sender.begin()) == (1, 0)
    held[0].set()
    sender.finish()
    assert sender.begin() == 1
    sender.finish()


def test_the_messages_of_a_disabled_user_wait(engine, receiver, tmp_path):
    settings = settings_of(tmp_path)
    webhooks.add(engine, settings, ANN, receiver.url)
    end_job(engine)
    for disabled, sent in ((time.time(), 0), (None, 1)):
        with writing(engine) as session:
            session.get(User, "ann").disabled = disabled
        assert send_due(engine, settings) == sent == len(receiver.received)


def test_more_jobs_than_one_look_finds(engine, receiver, tmp_path):
    webhooks.add(engine, settings_of(tmp_path), ANN, receiver.url)
    time.sleep(0.02)
    for number in range(1100):
        end_job(engine, f"{number:032x}")
    for found in (500, 1000, 1100, 1100):
        webhooks.add_messages(engine)
        with reading(engine) as session:
            assert session.scalar(select(func.count()).select_from(Delivery)) == found


def test_a_signed_message_at_the_end_of_each_job(engine, receiver, tmp_path):
    settings = settings_of(tmp_path)
    end_job(engine, "0" * 32)  # before
    time.sleep(0.02)
    hook = webhooks.add(engine, settings, ANN, receiver.url)
    assert send_due(engine, settings) == 0
    end_job(engine)
    end_job(engine, "b" * 32, "bob")
    assert send_due(engine, settings) == 1
    assert send_due(engine, settings) == 0  # not twice
    ((path, headers, body),) = receiver.received
    told = json.loads(body)
    assert path == "/hook" and told["event"] == "job.ended" and told["job"]["id"] == "a" * 32
    assert told["job"]["state"] == "SUCCEEDED" and told["job"]["scores"] == {"n_clusters": 3}
    sent, signature = (part.partition("=")[2] for part in headers["X-Mgclust-Signature"].split(","))
    wanted = hmac.new(hook["secret"].encode(), sent.encode() + b"." + body, hashlib.sha256).hexdigest()
    assert signature == wanted and abs(int(sent) - time.time()) < 5
    assert headers["Host"] == f"localhost:{receiver.server_port}"
    (listed,) = webhooks.webhooks_of(engine, "ann")
    assert listed["last"] == "received" and "secret" not in listed


def test_a_message_is_sent_again_and_given_up(engine, receiver, tmp_path):
    settings, receiver.status = settings_of(tmp_path), 503
    webhooks.add(engine, settings, ANN, receiver.url)
    end_job(engine)
    for n in range(5):
        assert send_due(engine, settings) == 1
        assert send_due(engine, settings) == 0  # there is a pause
        assert (
            f"answered 503; {'given up' if n == 4 else 'trying again'}"
            in webhooks.webhooks_of(engine, "ann")[0]["last"]
        )
        with writing(engine) as session:
            session.execute(update(Delivery).where(Delivery.due.is_not(None)).values(due=0.0))
    assert send_due(engine, settings) == 0 and len(receiver.received) == 5


def test_no_redirect_is_followed(engine, receiver, tmp_path):
    settings, receiver.status = settings_of(tmp_path), 307
    webhooks.add(engine, settings, ANN, receiver.url)
    end_job(engine)
    send_due(engine, settings)
    assert [path for path, *_ in receiver.received] == ["/hook"]


def test_a_slow_receiver_does_not_hold_the_sender(engine, receiver, tmp_path, monkeypatch):
    monkeypatch.setattr(webhooks, "SEND_SECONDS", 0.3)
    settings, receiver.pause = settings_of(tmp_path), 3.0
    webhooks.add(engine, settings, ANN, receiver.url)
    end_job(engine)
    begun = time.monotonic()
    send_due(engine, settings)
    assert time.monotonic() - begun < 2.0
    assert "did not answer" in webhooks.webhooks_of(engine, "ann")[0]["last"]


def test_no_message_inside_the_network(engine, receiver, tmp_path):
    """Not even to a name that leads there."""
    webhooks.add(engine, settings_of(tmp_path), ANN, receiver.url)
    outside = Settings(data=tmp_path, webhook_networks="192.0.2.0/24")
    end_job(engine)
    assert send_due(engine, outside) == 1
    assert not receiver.received and "inside a network" in webhooks.webhooks_of(engine, "ann")[0]["last"]


@pytest.mark.parametrize(
    "address",
    [
        "127.0.0.1", "10.1.2.3", "172.16.0.1", "192.168.1.1", "169.254.169.254", "100.64.0.1", "0.0.0.0", "224.0.0.1",
        "255.255.255.255", "::1", "::", "fe80::1", "fe80::1%eth0", "fd00::1", "::ffff:127.0.0.1", "::ffff:8.8.8.8",
        "64:ff9b::7f00:1", "64:ff9b:1::7f00:1", "fec0::1", "::7f00:1", "::ffff:0:7f00:1", "5f00::1", "3fff::1",
        "2002:7f00:1::1", "2001::1", "ff02::1",
    ],
)  # fmt: skip
def test_addresses_that_receive_nothing(address, tmp_path):
    assert not webhooks._is_allowed(Settings(data=tmp_path), address)


@pytest.mark.parametrize("address", ["8.8.8.8", "2606:4700::1111"])
def test_addresses_that_may_receive(address, tmp_path):
    assert webhooks._is_allowed(Settings(data=tmp_path), address)


@pytest.mark.parametrize(
    "url",
    [
        "http://host.example/", "ftp://host.example/", "https://", "https:///x", "https://u:p@host.example/",
        "https://host.example/#x", "https://host.example:99999/", "https://h\n.example", "https://é.example",
        "https://1.1.1.01/", "https:host.example/", "", "https://ho st.example/", "https://host.example/a b",
        "https://host.example/" + "x" * 2000, "file:///etc/passwd", "https://[::1",
    ],
)  # fmt: skip
def test_an_address_that_is_none(url, engine, tmp_path):
    with pytest.raises(InputError, match="url should be"):
        webhooks.add(engine, Settings(data=tmp_path), ANN, url)


@pytest.mark.parametrize("url", ["https://1.1.1.01/", "https://[::1"])
def test_a_stored_address_that_is_none_stops_no_other_message(url, engine, receiver, tmp_path):
    """Such as one that an earlier version, or a restored backup, has accepted."""
    settings = settings_of(tmp_path)
    wrong, right = (webhooks.add(engine, settings, ANN, receiver.url) for _ in range(2))
    with writing(engine) as session:
        session.execute(update(Webhook).where(Webhook.id == wrong["id"]).values(url=url))
    end_job(engine)
    assert send_due(engine, settings) == 2 and len(receiver.received) == 1
    last = {each["id"]: each["last"] for each in webhooks.webhooks_of(engine, "ann")}
    assert last[right["id"]] == "received" and "trying again" in last[wrong["id"]]


@pytest.mark.parametrize("what", ["delete", "retry", "delete_sweep"])
def test_a_job_that_leaves_its_end_before_the_next_look_has_its_message(what, engine, receiver, tmp_path):
    settings = settings_of(tmp_path)
    webhooks.add(engine, settings, ANN, receiver.url)
    end_job(engine, state="FAILED", sweep="b" * 32)
    getattr(WholeQueue(engine, settings), what)(ANN, "b" * 32 if what == "delete_sweep" else "a" * 32)
    assert send_due(engine, settings) == 1 and send_due(engine, settings) == 0
    ((_, _, body),) = receiver.received
    assert json.loads(body)["job"]["id"] == "a" * 32 and json.loads(body)["job"]["state"] == "FAILED"


def test_a_deleted_job_has_one_message(engine, receiver, tmp_path):
    settings = settings_of(tmp_path)
    webhooks.add(engine, settings, ANN, receiver.url)
    end_job(engine)
    assert send_due(engine, settings) == 1
    WholeQueue(engine, settings).delete(ANN, "a" * 32)
    assert send_due(engine, settings) == 0


def test_bounds_and_deletion(engine, tmp_path):
    made = [webhooks.add(engine, Settings(data=tmp_path), ANN, "https://host.example/") for _ in range(10)]
    with pytest.raises(InputError, match="the maximum"):
        webhooks.add(engine, Settings(data=tmp_path), ANN, "https://host.example/")
    assert not webhooks.remove(engine, tmp_path, "bob", made[0]["id"])
    assert webhooks.remove(engine, tmp_path, "ann", made[0]["id"]) and not webhooks.remove(
        engine, tmp_path, "ann", made[0]["id"]
    )
    with reading(engine) as session:
        assert session.query(Delivery).count() == 0
