"""What axe says of the pages to sign in, of the empty list and of the form, in both schemes and two widths."""

from __future__ import annotations

import pytest

from support.browser import CHROMIUM, sign_in, violations

pytestmark = [
    pytest.mark.xdist_group("service"),
    pytest.mark.timeout(240),
    pytest.mark.skipif(CHROMIUM is None, reason="Chromium is not installed (Debian: apt install chromium)"),
]


def check(browser, what):
    """Both schemes and two widths: nothing is found, and nothing is wider than the window."""
    for scheme in ("light", "dark"):
        for width in (390, 1440):
            browser.scheme(scheme)
            browser.resize(width, 900)
            assert violations(browser) == [], (what, scheme, width)
            assert browser.run("document.documentElement.scrollWidth <= innerWidth"), (what, width)


def test_sign_in_list_and_form(browser, running):
    """Without jobs: the sign-in, the refused token, and the list with the form."""
    browser.open(running.url)
    browser.wait("document.querySelector('#token')")
    check(browser, "sign in")
    sign_in(browser, running, "ida")
    browser.wait("document.querySelector('#none').innerText.includes('No jobs yet')")
    browser.wait("document.querySelector('#parameters [data-name=n_clusters]')")
    check(browser, "list without jobs")
    browser.click("#submission button[type=submit]")
    browser.wait("!document.querySelector('#problem').hidden")
    check(browser, "form with a problem")
