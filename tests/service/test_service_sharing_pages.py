"""Signing in and sharing as a browser does them."""

from __future__ import annotations

import os
import pty
import re
import subprocess
import sys
import time

import numpy as np
import pytest

from support.browser import CHROMIUM, Browser, sign_in, violations
from support.service_process import free_port

pytestmark = [
    pytest.mark.xdist_group("service"), pytest.mark.timeout(180),
    pytest.mark.skipif(CHROMIUM is None, reason="needs Chromium"),
]  # fmt: skip


@pytest.fixture
def browser(tmp_path):
    opened = Browser(tmp_path)
    yield opened
    opened.close()


def follow(browser, url, user="ann"):
    """Open an address to sign in, and answer its question."""
    browser.open(url)
    browser.wait(f"document.querySelector('#question').innerText === 'Sign in as {user}?'")
    browser.click("#go")
    browser.wait(f"document.querySelector('#who')?.innerText === '{user}'")


def test_an_address_to_sign_in_asks_first_and_ends_the_former_session(browser, running):
    """Another site may lead here with a code of its own user."""
    ann, bob = running.client("ann"), running.client("bob")
    sign_in(browser, running, "bob")
    url = ann.sign_in_url()
    browser.open(url)
    browser.wait("!document.querySelector('#go').hidden")
    assert browser.run("document.querySelector('#question').innerText") == "Sign in as ann?"
    assert violations(browser) == [] and browser.errors == []
    browser.open(running.url)
    browser.wait("document.querySelector('#who')?.innerText === 'bob'")  # nothing has changed
    browser.open(f"{running.url}/sign-in#problem=call%20555")
    browser.wait("document.querySelector('#problem').innerText.includes('is not complete')")
    sessions = [each["id"] for each in bob.call("GET", "/tokens") if each["kind"] == "session"]
    browser.open("about:blank")
    follow(browser, url)
    assert not {each["id"] for each in bob.call("GET", "/tokens")} & set(sessions) and len(sessions) == 1


@pytest.mark.parametrize("ways", [None, '{"error": "too many requests"}'])
def test_without_tls_the_page_asks_before_a_session_of_another_host_begins(browser, running, ways):
    """Another host of the domain may have set the cookie, and led the browser here with the proof of its user.

    Somebody at the same address may have used up the requests of this address.
    """
    if ways:
        browser.call("Page.addScriptToEvaluateOnNewDocument", source=f"""
            const real = window.fetch;
            window.fetch = (path, how) => path === "/sign-in/ways" ? Promise.resolve(new Response('{ways}'))
                : real(path, how);""")  # fmt: skip
    secret = running.token_of("ann")[1]
    browser.open(running.url)
    browser.wait("document.querySelector('#token')")
    begin = f"""fetch("/api/v1/session", {{method: "POST", headers: {{Authorization: "Bearer {secret}"}}}})
        .then((answer) => answer.json()).then((told) => {{ location.href = "/sign-in#proof=" + told.proof; }})"""
    browser.run(f"void ({begin})")
    browser.wait("document.querySelector('#question')?.innerText === 'Sign in as ann?'")
    browser.open(running.url)
    browser.wait("document.querySelector('#token')")  # nobody is signed in
    browser.run(f"void ({begin})")
    browser.wait("document.querySelector('#question')?.innerText === 'Sign in as ann?'")
    browser.click("#go")
    browser.wait("document.querySelector('#who')?.innerText === 'ann'")
    assert browser.errors == []


def test_sign_in_by_a_link_share_and_sign_out(browser, running, tmp_path):
    ann = running.client("ann")
    np.save(tmp_path / "points.npy", np.random.default_rng(0).normal(size=(40, 2)))
    job = ann.submit("canopy", tmp_path / "points.npy", t1=2.0, t2=1.0).wait()
    url = ann.sign_in_url()
    follow(browser, url)
    assert browser.run("document.cookie") == ""
    assert browser.run("location.href").rstrip("/") == running.url

    browser.open(f"{running.url}/jobs/{job.id}")
    browser.wait("document.querySelector('#result').checkVisibility()")
    browser.click("#report summary")
    browser.wait("document.querySelector('#report-frame').src.startsWith('blob:')")
    browser.click("#share")
    browser.click("#make-link")
    browser.wait("document.querySelector('#link-address').value")
    address = browser.run("document.querySelector('#link-address').value")
    assert address.startswith(f"{running.url}/shared#mgc_")
    assert len(ann.job(job.id).links()) == 1

    told = browser.run("document.querySelector('#sharing').innerText")
    assert "Whoever opens the link sees" in told and "The name, the tags, the user and the log of the job stay" in told
    browser.click("#sharing .row button:last-child")
    browser.click("#leave")
    browser.wait("document.querySelector('#token')")
    assert browser.run("localStorage.length") == 0
    browser.open(url)  # the link to sign in has been used
    browser.wait("document.querySelector('#problem').innerText.includes('unknown or revoked')")
    browser.errors.clear()

    browser.open(address)
    browser.wait("document.querySelector('#report-frame').src.startsWith('blob:')")
    assert browser.run("document.querySelector('#title').innerText").lower() == "canopy"
    assert "report.html" in browser.run("document.querySelector('#files').innerText")
    assert "canopies" in browser.run("document.querySelector('#scores').innerText").lower()
    assert browser.run("!document.querySelector('#all-files').disabled")
    frame = "document.querySelector('#report-frame')"
    high = f"{frame}.contentDocument.documentElement.getBoundingClientRect().height"
    browser.wait(f"{high} > 100 && {frame}.offsetHeight >= {high}")  # no second scroll bar
    assert browser.errors == []
    job.revoke_link(job.links()[0]["id"])
    browser.open("about:blank")
    browser.open(address)
    browser.wait("document.querySelector('#problem').innerText.includes('expired or was revoked')")


def test_the_page_of_the_api(browser, running):
    follow(browser, running.client("ann").sign_in_url())
    browser.open(f"{running.url}/api")
    browser.wait("document.querySelectorAll('#operations details').length > 30")
    text = browser.run("document.querySelector('#operations').textContent")
    for words in ("POST /api/v1/jobs", "Submit a job to the queue.", "GET /api/v1/jobs/{id}", "limit (query)"):
        assert words in text
    assert browser.errors == []


def test_serve_prints_a_link_to_sign_in_on_a_terminal_only(tmp_path):
    port = free_port()
    command = [sys.executable, "-m", "mgclust", "serve", "--cpu", "--no-runner", "--port", str(port)]
    for terminal in (True, False):
        ours, theirs = pty.openpty() if terminal else os.pipe()
        process = subprocess.Popen([*command, "--data", str(tmp_path / "data")], stderr=theirs)
        os.close(theirs)
        printed = b""
        try:
            wanted = b"within 10 minutes" if terminal else b"mgclust serves"
            end = time.monotonic() + 60
            while wanted not in printed and time.monotonic() < end:
                printed += os.read(ours, 4096)
        finally:
            process.terminate()
            process.wait(30)
            os.close(ours)
        found = re.search(rb"open http://127\.0\.0\.1:\d+/sign-in#code=mgc_[\w-]{43}", printed)
        assert (found is not None) == terminal
