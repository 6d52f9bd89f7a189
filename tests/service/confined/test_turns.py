"""Turns at the readers: no user keeps others from theirs."""

from __future__ import annotations

import threading
import time

import pytest

from mgclust.service.confined.turns import Busy, Turns
from support.waiting import wait_for


def hold(turns, user, outcomes, end):
    """Wait for a turn in a thread, and keep it until `end` is set."""

    def body():
        try:
            with turns.turn(user):
                outcomes.append(user)
                end.wait()
        except Busy:
            outcomes.append(f"{user} busy")

    thread = threading.Thread(target=body, daemon=True)
    thread.start()
    return thread


def test_a_flood_of_one_user_denies_no_other_user():
    turns, outcomes, end = Turns(3, 16, 60.0), [], threading.Event()
    threads = [hold(turns, "eve", outcomes, end) for _ in range(30)]
    wait_for(lambda: outcomes.count("eve busy") == 12)  # 2 of 3 readers, 16 places to wait
    assert outcomes.count("eve") == 2
    for user in ("ann", "bob"):
        before = time.monotonic()
        with turns.turn(user):
            assert time.monotonic() - before < 5
    end.set()
    for thread in threads:
        thread.join(10)
    assert outcomes.count("eve") == 18


def test_users_take_turns():
    turns, order, lock = Turns(1, 100, 60.0), [], threading.Lock()

    def body(user):
        with turns.turn(user), lock:
            order.append(user)

    with turns.turn("first"):
        threads = []
        for user in ["eve"] * 5 + ["ann", "bob"]:
            threads.append(threading.Thread(target=body, args=(user,)))
            threads[-1].start()
            wait_for(lambda: sum(map(len, turns._queues.values())) == len(threads))
    for thread in threads:
        thread.join(10)
    assert order == ["eve", "ann", "bob", *["eve"] * 4]


def test_a_full_queue_drops_the_newest_of_the_greediest():
    turns, outcomes, end = Turns(1, 2, 60.0), [], threading.Event()
    with turns.turn("first"):
        eve = [hold(turns, "eve", outcomes, end) for _ in range(2)]
        wait_for(lambda: len(turns._queues.get("eve", ())) == 2)
        ann = hold(turns, "ann", outcomes, end)
        wait_for(lambda: outcomes == ["eve busy"])
    end.set()
    for thread in (*eve, ann):
        thread.join(10)
    assert sorted(outcomes) == ["ann", "eve", "eve busy"]


def test_the_wait_has_a_limit():
    turns = Turns(1, 16, 0.05)
    with turns.turn("ann"):
        with pytest.raises(Busy), turns.turn("bob"):
            pass
        assert not turns._queues
    with turns.turn("bob"):
        pass
