"""The page of administrators in a browser: users, tokens, the queue, the audit log, health."""

from __future__ import annotations

import pytest

from support.browser import sign_in, violations

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("service"), pytest.mark.timeout(180)]


def test_the_page_of_administrators(running, browser):
    running.token_of("carl")
    administrator = running.client("admin")
    administrator.create_user("root2", "admin")
    secret = administrator.create_token("root2")["token"]
    browser.open(running.url + "/admin")
    browser.wait("document.querySelector('#token')")
    browser.click("#token")
    browser.type(secret)
    browser.press("Enter", 13)
    browser.wait("document.querySelector('#users')?.textContent.includes('carl')")
    browser.wait("document.querySelector('#health').textContent.includes('Runner')")
    browser.wait("document.querySelector('#audit tr')")
    for scheme in ("light", "dark"):
        browser.scheme(scheme)
        for width in (390, 1440):
            browser.resize(width, 900)
            assert violations(browser) == []
            assert browser.run("document.documentElement.scrollWidth <= window.innerWidth")
    browser.click("button[aria-label='Disable carl']")
    browser.wait("document.querySelector('#users').textContent.includes('carl (disabled)')")
    browser.click("button[aria-label='Enable carl']")
    browser.wait("document.querySelector(\"button[aria-label='Disable carl']\")")
    browser.run("const f = document.querySelector(\"[aria-label='Limit of jobs of carl']\"); f.value = 7; "
                "f.dispatchEvent(new Event('change')); 0")  # fmt: skip
    browser.wait("document.querySelector('#done').textContent === 'carl is changed.'")
    assert next(user for user in administrator.users() if user["name"] == "carl")["jobs_limit"] == 7
    browser.click("#name")
    browser.type("dora")
    browser.press("Enter", 13)
    browser.wait("document.querySelector('#users').textContent.includes('dora')")
    browser.run("const o = document.querySelector('#owner'); o.value = 'dora'; o.dispatchEvent(new Event('change')); 0")
    browser.wait("document.querySelector('#tokens').textContent.includes('no tokens')")
    browser.click("#new-token")
    browser.wait("document.querySelector('#token-text').value.startsWith('mgc_')")
    browser.wait("document.querySelector('#tokens button')")
    browser.click("#tokens button")
    browser.wait("document.querySelector('#tokens').textContent.includes('revoked')")
    browser.click("#of-user")
    browser.type("root2")
    browser.click("#of-action")
    browser.type("revoke")
    browser.press("Enter", 13)
    browser.wait("document.querySelectorAll('#audit tr').length === 1")
    assert browser.errors == []


def test_others_get_a_message(running, browser):
    sign_in(browser, running, "carl", "/admin")
    browser.wait("!document.querySelector('#problem').hidden")
    assert "only an administrator" in browser.run("document.querySelector('#problem').textContent")
