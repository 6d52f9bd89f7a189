"""What axe finds on all pages and reports: in both schemes, at the widths of a phone and of a desktop."""

from __future__ import annotations

import httpx
import numpy as np
import pytest

from mgclust.datasets import make_bold, make_gaussian_rings
from mgclust.service.web.requests import describe_methods
from support.browser import CHROMIUM, sign_in, violations
from support.waiting import wait_for

pytestmark = [
    pytest.mark.xdist_group("service"),
    pytest.mark.timeout(240),
    pytest.mark.skipif(CHROMIUM is None, reason="Chromium is not installed (Debian: apt install chromium)"),
]
# A request of each method, with the file that it reads.
REQUESTS = {
    "density-peaks": ("rows.csv", {}),
    "affinity-propagation": ("rows.csv", {}),
    "adaptive-affinity-propagation": ("bold.nii.gz", {"profile": "fast"}),
    "canopy": ("rows.csv", {}),
    "fuzzy-c-means": ("rows.csv", {"n_clusters": 3}),
    "communities": ("graph.csv", {}),
    "fast-newman": ("graph.csv", {}),
    "parcellation": ("bold.nii.gz", {"n_parcels": "2,3"}),
    "silhouette": ("rows.csv", {"labels": "labels.npy"}),
    "nearest-neighbors": ("rows.csv", {"n_neighbors": 4}),
}
SPLIT_NUMBERS = """Array.from(document.querySelectorAll('td')).filter((cell) => {
    const range = document.createRange();
    const text = cell.firstChild;
    if (cell.children.length || !text || !/^[\\d.,e+-]+$/.test(text.data.trim())) return false;
    range.selectNodeContents(cell);
    return new Set(Array.from(range.getClientRects(), (each) => each.top)).size > 1;
  }).map((cell) => cell.textContent)"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Files of all kinds that methods read."""
    made = tmp_path_factory.mktemp("files")
    rings = make_gaussian_rings()
    np.savetxt(made / "rows.csv", rings.X, delimiter=",", header="width,height", comments="")
    np.save(made / "labels.npy", rings.labels)
    np.save(made / "bad.npy", np.full((50, 2), np.nan))
    np.save(made / "many.npy", np.random.default_rng(1).normal(size=(200_000, 32)))
    corners = [(0, 1), (1, 2), (0, 2), (3, 4), (4, 5), (3, 5), (2, 3)]
    (made / "graph.csv").write_text("source,target\n" + "".join(f"{a},{b}\n" for a, b in corners))
    make_bold(shape=(6, 6, 5), n_parcels=3, n_timepoints=40, noise=0.3).save(made)
    return made


@pytest.fixture(scope="module")
def job(running, folder):
    return running.client("hal").submit("density-peaks", folder / "rows.csv").wait()


def check(browser, what):
    """Both schemes and two widths: nothing is found, and nothing is wider than the window."""
    for scheme in ("light", "dark"):
        for width in (390, 1440):
            browser.scheme(scheme)
            browser.resize(width, 900)
            assert violations(browser) == [], (what, scheme, width)
            assert browser.run("document.documentElement.scrollWidth <= innerWidth"), (what, width)


def open_all(browser):
    """Open what is folded."""
    browser.run("document.querySelectorAll('main details').forEach((each) => { each.open = true; })")


def test_sign_in_list_and_form(browser, running):
    """Without jobs: the sign-in, the refused token, and the list with the form."""
    browser.open(running.url)
    browser.wait("document.querySelector('#token')")
    check(browser, "sign in")
    sign_in(browser, running, "iris")
    browser.wait("document.querySelector('#none').innerText.includes('No jobs yet')")
    browser.wait("document.querySelector('#parameters [data-name=n_clusters]')")
    check(browser, "list without jobs")
    browser.click("#submission button[type=submit]")
    browser.wait("!document.querySelector('#problem').hidden")
    check(browser, "form with a problem")


@pytest.mark.slow
def test_forms_of_all_methods(browser, running):
    sign_in(browser, running, "iris")
    browser.wait("document.querySelector('#parameters [data-name=n_clusters]')")
    open_all(browser)
    for method in describe_methods():
        browser.run(
            f"(() => {{ const list = document.querySelector('#method'); list.value = '{method}';"
            "list.dispatchEvent(new Event('change')); })()"
        )
        check(browser, method)


@pytest.mark.slow
def test_pages_of_no_job_and_of_links(browser, running, job):
    link = job.share()["url"]
    for path, ready in (
        ("/sign-in#code=wrong", "!document.querySelector('#problem').hidden"),
        ("/shared#wrong", "!document.querySelector('#problem').hidden"),
        ("/shared", "!document.querySelector('#problem').hidden"),
        ("/nowhere", "document.querySelector('h1').innerText === 'Not found'"),
    ):
        # The policy of the last page stops all scripts, also axe.
        browser.call("Page.setBypassCSP", enabled=path == "/nowhere")
        browser.open("about:blank")
        browser.open(running.url + path)
        browser.wait(ready)
        if path == "/nowhere":  # it has the background of the browser, which axe takes for white
            browser.run("document.documentElement.style.background = 'Canvas'")
        check(browser, path)
    browser.call("Page.setBypassCSP", enabled=False)
    browser.open(link)
    browser.wait("document.querySelector('#report-frame').src.startsWith('blob:')")
    check(browser, "shared result")
    sign_in(browser, running, "hal", "/api")
    browser.wait("document.querySelectorAll('#operations details').length > 30")
    open_all(browser)
    check(browser, "API")
    browser.open(f"{running.url}/jobs/{'0' * 32}")
    browser.wait("!document.querySelector('#problem').hidden")
    check(browser, "no such job")
    browser.open(f"{running.url}/admin")
    browser.wait("!document.querySelector('#problem').hidden")
    check(browser, "administration of another")
    browser.open(f"{running.url}/compare?ids={job.id}")
    browser.wait("!document.querySelector('#problem').hidden")
    check(browser, "comparison of one job")


@pytest.mark.slow
def test_question_of_a_sign_in_address(browser, running):
    address = running.client("iris").sign_in_url()
    browser.open(address)
    browser.wait("document.querySelector('#question').innerText === 'Sign in as iris?'")
    check(browser, "question")
    code = {"Authorization": f"Bearer {address.partition('=')[2]}"}
    assert httpx.post(f"{running.url}/api/v1/session", headers=code).is_success
    browser.click("#go")
    browser.wait("!document.querySelector('#problem').hidden")
    check(browser, "question whose address was used meanwhile")


@pytest.mark.slow
def test_administration_with_data(browser, running, folder):
    """Disabled users, limits, tokens in each state, a waiting job, and many lines of the audit log."""
    admin, kim = running.client("admin"), running.client("kim")
    admin.create_user("lea.with-a-very-long-name.of-64-characters@institute.example.org")
    admin.call("PATCH", "/users/kim", json={"disk_limit": 10**12, "jobs_limit": 3})
    admin.revoke_token(admin.create_token("kim")["id"])
    admin.create_token("kim", scopes=["read"], days=None)
    kim.add_webhook("https://example.org/hook")
    kim.submit("canopy", folder / "rows.csv").wait()
    long = [kim.submit("density-peaks", folder / "many.npy", report=False) for _ in range(3)]
    admin.call("PATCH", "/users/kim", json={"disabled": True})
    admin.create_user("max", "admin")
    sign_in(browser, running, "max", "/admin")
    browser.wait("document.querySelectorAll('#users tr').length > 2 && document.querySelector('#health dt')")
    browser.wait("document.querySelector('#queue a') && document.querySelectorAll('#audit tr').length > 9")
    browser.run("const o = document.querySelector('#owner'); o.value = 'kim'; o.dispatchEvent(new Event('change')); 0")
    browser.wait("document.querySelector('#tokens').innerText.includes('revoked')")
    check(browser, "administration")
    browser.click("#new-token")
    browser.wait("!document.querySelector('#secret').hidden")
    check(browser, "administration with a new token")
    browser.click("#name")
    browser.type("kim")
    browser.press("Enter", 13)
    browser.wait("!document.querySelector('#problem').hidden")
    check(browser, "administration with a problem")
    for job in long:
        admin.job(job.id).cancel()


@pytest.mark.slow
def test_jobs_in_each_state_lists_sweeps_and_comparisons(browser, running, job, folder):
    """Two long jobs take both slots, so a third one waits."""
    hal = running.client("hal")
    failed = hal.submit("density-peaks", folder / "bad.npy")
    wait_for(lambda: failed.refresh().state == "FAILED")
    sweep = hal.sweep("density-peaks", folder / "rows.csv", {"n_clusters": [3, 4], "dc_fraction": [0.01, 0.02]})
    for each in sweep.jobs:
        each.wait()
    long = [hal.submit("density-peaks", folder / "many.npy", report=False) for _ in range(2)]
    wait_for(lambda: all(each.refresh().state == "RUNNING" for each in long))
    waiting = hal.submit("canopy", folder / "rows.csv")
    sign_in(browser, running, "hal", f"/jobs/{waiting.id}")
    browser.wait("document.querySelector('#title').innerText.includes('PENDING')")
    check(browser, "PENDING")
    browser.open(f"{running.url}/jobs/{long[0].id}")
    browser.wait("document.querySelector('#title').innerText.includes('RUNNING')")
    check(browser, "RUNNING")
    browser.open(running.url)
    browser.wait("document.querySelectorAll('#jobs progress').length")
    check(browser, "list")
    for each in (waiting, *long):
        each.cancel()
    for state, shown in (("CANCELLED", waiting), ("FAILED", failed), ("SUCCEEDED", sweep.jobs[0])):
        browser.open(f"{running.url}/jobs/{shown.id}")
        browser.wait(f"document.querySelector('#title').innerText.includes('{state}')")
        if state == "SUCCEEDED":
            browser.wait("!document.querySelector('#map-figure').hidden")
        open_all(browser)
        check(browser, state)
    for button in ("share", "delete"):
        browser.click(f"#{button}")
        check(browser, button)
        browser.run("document.querySelector('dialog[open]').close()")
    browser.open(f"{running.url}/?sweep={sweep.id}")
    browser.wait("document.querySelectorAll('#sweep-plot circle').length === 4")
    check(browser, "sweep")
    browser.open(f"{running.url}/compare?ids={','.join(each.id for each in sweep.jobs)}")
    browser.wait("document.querySelectorAll('#pictures img').length === 4")
    check(browser, "comparison")
    browser.open(f"{running.url}/?from={sweep.jobs[0].id}")
    browser.wait("document.querySelector('#kept')?.innerText.includes('rows.csv')")
    check(browser, "form that begins with a job")


@pytest.mark.slow
@pytest.mark.parametrize("method", list(describe_methods()))
def test_results_and_reports_of_all_methods(browser, running, folder, method, tmp_path):
    hal = running.client("hal")
    file, parameters = REQUESTS[method]
    more = {"mask": folder / "mask.nii.gz"} if file == "bold.nii.gz" else {}
    parameters = {name: folder / value if name == "labels" else value for name, value in parameters.items()}
    done = hal.submit(method, folder / file, **more, **parameters).wait()
    sign_in(browser, running, "hal", f"/jobs/{done.id}")
    browser.wait("document.querySelectorAll('#files li').length")
    open_all(browser)
    check(browser, method)
    browser.open(f"file://{done.download(tmp_path / 'out')}/report.html")
    check(browser, f"report of {method}")
    for width in (390, 1440):
        browser.resize(width, 900)
        assert browser.run(SPLIT_NUMBERS) == [], (method, width)
