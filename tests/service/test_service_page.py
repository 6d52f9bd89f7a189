"""The service's pages: choosing other centres over HTTP, headers, and the pages as a browser shows them."""

from __future__ import annotations

import io
import re
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import numpy as np
import pytest

import mgclust.service
from mgclust import DensityPeaks, load_result
from mgclust.base.errors import InputError
from mgclust.cli.jobs import _show
from mgclust.datasets import make_bold, make_gaussian_rings
from mgclust.service.web.pages import PAGES, PALETTE, sign_in_problem
from mgclust.service.web.requests import Submission
from support.browser import sign_in
from support.waiting import wait_for

pytestmark = [pytest.mark.xdist_group("service"), pytest.mark.timeout(180)]
STATIC = Path(mgclust.service.__file__).parent / "web" / "pages"
BOX = {"rho_min": 5.0, "delta_min": 2.0}


@pytest.fixture(scope="module")
def points(tmp_path_factory):
    """Fifteen clusters in the plane."""
    path = tmp_path_factory.mktemp("points") / "rings.npy"
    np.save(path, make_gaussian_rings().X)
    return path


@pytest.fixture(scope="module")
def model(points):
    return DensityPeaks(client=None, device="cpu").fit(points)


@pytest.fixture(scope="module")
def job(running, points):
    return running.client("ann").submit("density-peaks", points).wait()


def centers(service, job, **wanted):
    return service.call("POST", f"/jobs/{job.id}/centers", json=wanted)


@pytest.fixture
def ann(running):
    return running.client("ann")


@pytest.mark.slow
@pytest.mark.parametrize(
    "wanted",
    [
        {},
        {"n_clusters": 7},
        BOX,
        {"rho_min": 5.0},
        BOX | {"rho_max": 1e6, "delta_max": 1e6},
        BOX | {"n_clusters": 2},
        {"indices": "densest and three more"},
    ],
)
def test_the_same_as_select_centers(ann, job, points, model, wanted):
    if "indices" in wanted:
        wanted = {"indices": [0, 100, 599, int(np.argmax(model.rho_))]}
    expected = DensityPeaks(client=None, device="cpu").fit(points).select_centers(**wanted)
    told = centers(ann, job, **wanted, answer="points")
    assert told["n_clusters"] == expected.n_clusters_
    assert told["centers"] == expected.cluster_centers_indices_.tolist()
    assert told["sizes"] == np.bincount(expected.labels_).tolist()
    shown = ann.call("GET", f"/jobs/{job.id}/points")
    assert told["labels"] == expected.labels_[shown["index"]].tolist()
    headers = {"Authorization": ann._http.headers["Authorization"]}
    url = f"{ann.url}/api/v1/jobs/{job.id}/centers"
    file = httpx.post(url, json=wanted | {"answer": "labels"}, headers=headers)
    labels = np.load(io.BytesIO(file.content), allow_pickle=False)
    np.testing.assert_array_equal(labels, expected.labels_)
    assert labels.dtype == expected.labels_.dtype


def test_upper_limits_of_a_box(model):
    """What `select_centers` does with them: rows beyond are no centres, and the densest row has to be one."""
    rho, delta = model.rho_, model.delta_
    densest = int(np.argmax(rho))
    found = DensityPeaks.from_result(model.result_).select_centers(delta_min=0.5, rho_max=rho[densest])
    np.testing.assert_array_equal(np.sort(found.cluster_centers_indices_), np.flatnonzero(delta > 0.5))
    for limit in ({"rho_max": float(rho[densest]) * 0.99}, {"delta_max": float(delta[densest]) * 0.99}):
        with pytest.raises(InputError, match=rf"the densest row, {densest}, should lie within"):
            DensityPeaks.from_result(model.result_).select_centers(delta_min=0.1, **limit)
    assert found.result_.parameters["rho_max"] == rho[densest]


def test_an_estimator_from_a_saved_result(model, tmp_path):
    again = DensityPeaks.from_result(load_result(model.result_.save(tmp_path / "out")))
    np.testing.assert_array_equal(again.labels_, model.labels_)
    assert again.get_params()["dc_fraction"] == "auto"
    assert again.dc_ == model.dc_
    again.select_centers(5)
    expected = DensityPeaks.from_result(model.result_).select_centers(5)
    np.testing.assert_array_equal(again.labels_, expected.labels_)
    assert again.result_.scores == expected.result_.scores
    assert again.result_.warnings == expected.result_.warnings


@pytest.mark.slow
def test_points_are_rows_of_the_data(ann, job, points):
    shown, x = ann.call("GET", f"/jobs/{job.id}/points"), np.load(points)
    np.testing.assert_allclose(np.column_stack([shown["x"], shown["y"]]), x[shown["index"], :2])
    assert len(shown["index"]) == len(x)


@pytest.mark.parametrize(
    ("wanted", "says"),
    [
        ({"rho_min": 1e9}, "no row lies above both"),
        ({"rho_min": 0.0, "rho_max": 1.0}, "the densest row, .* should lie within"),
        ({"indices": []}, "non-empty"),
        ({"indices": [0]}, "should contain the densest row"),
        ({"indices": [10**30]}, "indices"),
        ({"indices": [-1]}, "distinct row numbers"),
        ({"indices": [1], "rho_min": 1.0}, "indices cannot be combined with n_clusters or limits"),
        ({"n_clusters": 0}, "n_clusters=0 should be"),
        ({"n_clusters": 10**6}, "request fewer clusters"),
        ({"rho_min": "much"}, "rho_min"),
        ({"unknown": 1}, "unknown"),
    ],
)
def test_refused(ann, job, wanted, says):
    before = len(ann.jobs(limit=1000))
    for path in ("centers", "centers/save"):
        with pytest.raises(InputError, match=says):
            ann.call("POST", f"/jobs/{job.id}/{path}", json=wanted)
    assert len(ann.jobs(limit=1000)) == before


@pytest.mark.slow
def test_saved_as_a_job(running, ann, job, points, tmp_path):
    expected = DensityPeaks(client=None, device="cpu").fit(points).select_centers(**BOX)
    saved = ann.call("POST", f"/jobs/{job.id}/centers/save", json=BOX)
    assert (saved["state"], saved["owner"], saved["attempt"]) == ("SUCCEEDED", "ann", 1)
    assert (saved["request"]["parent"], saved["request"]["centers"]) == (job.id, BOX)
    assert saved["request"]["sources"] == job.info["request"]["sources"]
    assert saved["scores"]["n_clusters"] == expected.n_clusters_
    child = ann.job(saved["id"])
    result = child.result(tmp_path / "out")
    np.testing.assert_array_equal(result.labels, expected.labels_)
    np.testing.assert_array_equal(result.arrays["centers"], expected.cluster_centers_indices_)
    np.testing.assert_array_equal(result.arrays["rho"], expected.rho_)
    assert result.parameters["rho_min"] == BOX["rho_min"]
    assert result.source == job.result(tmp_path / "parent").source
    names = {path.name for path in (tmp_path / "out").iterdir()}
    assert names == {path.name for path in (tmp_path / "parent").iterdir()}
    assert job.id in child.log()
    # A choice of a choice, by an administrator, is still its owner's.
    again = running.client().call("POST", f"/jobs/{child.id}/centers/save", json={"n_clusters": 4})
    assert (again["owner"], again["request"]["parent"]) == ("ann", child.id)
    with pytest.raises(InputError, match="only a failed or cancelled job can be retried"):
        ann.job(again["id"]).retry()


@pytest.mark.slow
def test_a_choice_saved_twice_is_one_job(running, ann, job):
    """By the same key: clicked twice at once, or sent again since the answer was lost."""
    before = len(ann.jobs(limit=1000))

    def save(key):
        return ann.call("POST", f"/jobs/{job.id}/centers/save", json=BOX | {"key": key})["id"]

    with ThreadPoolExecutor(3) as pool:
        ids = list(pool.map(save, ["k"] * 3))
    assert {*ids, save("k")} == {ids[0]} != {save("l")}
    with pytest.raises(InputError, match="has other centres; give each request its own key"):
        ann.call("POST", f"/jobs/{job.id}/centers/save", json={"n_clusters": 3, "key": "k"})
    assert len(ann.jobs(limit=1000)) == before + 2
    assert {path.name for path in (running.data / "jobs").iterdir() if path.name.startswith(ids[0])} == {ids[0]}


def test_nothing_is_kept_of_a_result_that_could_not_be_saved(running, ann, points):
    inside = running.root / "gone.npy"
    inside.write_bytes(points.read_bytes())
    job = ann.submit("density-peaks", inside, remote=True, report=False).wait()
    np.save(inside, np.load(points)[:100])
    # What attempts have left is removed by the runner, in a thread.
    wait_for(lambda: not list((running.data / "jobs").glob("*.deleted")))
    jobs, folders = len(ann.jobs(limit=1000)), len(list((running.data / "jobs").iterdir()))
    with pytest.raises(InputError, match="has changed since the job read it"):
        ann.call("POST", f"/jobs/{job.id}/centers/save", json=BOX)
    inside.unlink()
    with pytest.raises(InputError, match="is not a file or folder below"):
        ann.call("POST", f"/jobs/{job.id}/centers/save", json=BOX)
    assert len(ann.jobs(limit=1000)) == jobs
    assert len(list((running.data / "jobs").iterdir())) == folders
    assert centers(ann, job, **BOX)["n_clusters"] > 1  # for which the source is not needed
    shown = ann.call("GET", f"/jobs/{job.id}/points")
    assert shown["index"] == []
    assert "is not a file or folder below" in shown["why"]


@pytest.mark.slow
def test_others_and_other_methods(running, ann, job, points):
    bob = running.client("bob")
    for ask in (
        lambda who, id_: who.call("GET", f"/jobs/{id_}/points"),
        lambda who, id_: who.call("POST", f"/jobs/{id_}/centers", json=BOX),
        lambda who, id_: who.call("POST", f"/jobs/{id_}/centers/save", json=BOX),
    ):
        for who, id_ in ((bob, job.id), (ann, "nothing")):
            with pytest.raises(InputError, match="there is no such job"):
                ask(who, id_)
        other = ann.submit("fuzzy-c-means", points, n_clusters=3, report=False).wait()
        with pytest.raises(InputError, match="other centres can only be chosen for a result of density-peaks"):
            ask(ann, other.id)
    url = f"{running.url}/api/v1/jobs/{job.id}/centers"
    headers = {"Authorization": bob._http.headers["Authorization"]}
    assert httpx.post(url, json=BOX, headers=headers).status_code == 404
    assert httpx.post(url, json=BOX).status_code == 401


def test_a_choice_of_a_job_without_a_result(ann, tmp_path):
    np.save(tmp_path / "bad.npy", np.full((50, 2), np.nan))
    failed = ann.submit("density-peaks", tmp_path / "bad.npy")
    with pytest.raises(InputError):
        failed.wait()
    with pytest.raises(InputError, match="is FAILED and has no result"):
        centers(ann, failed, **BOX)


def test_headers(running, ann):
    for path in ("/", "/jobs/x", "/pages/style.css", "/pages/none", "/api/v1/jobs", "/healthz", "/nothing"):
        headers = httpx.get(running.url + path).headers
        policy = headers["Content-Security-Policy"]
        assert "default-src 'none'" in policy
        assert "frame-ancestors 'none'" in policy
        scripts = re.search(r"script-src ([^;]*)", policy)
        assert ("sandbox" in policy) if scripts is None else (scripts[1] == "'self'")
        assert "unsafe" not in policy or path == "/jobs/x"  # for a report's styles
        assert headers["X-Content-Type-Options"] == "nosniff"
        assert headers["Referrer-Policy"] == "no-referrer"
        assert headers["X-Frame-Options"] == "DENY"
        assert headers["Cross-Origin-Opener-Policy"] == headers["Cross-Origin-Resource-Policy"] == "same-origin"
        assert headers["Cache-Control"] == ("no-store" if path.startswith("/api/") else "no-cache")
    mine = {"Authorization": ann._http.headers["Authorization"]}
    for shown, code in ((mine, 413), ({}, 401)):
        large = httpx.post(f"{running.url}/api/v1/jobs", content=b"x" * (1 << 21), headers=shown)
        assert (large.status_code, large.headers["X-Content-Type-Options"]) == (code, "nosniff")
    for name in ("../app.py", "..%2fapp.py", "%2e%2e/app.py", "", ".", "nothing.js"):
        assert httpx.get(f"{running.url}/pages/{name}").status_code == 404


def test_pages_name_only_themselves(running):
    files = list(STATIC.iterdir())
    assert {path.suffix for path in files} == {".css", ".js", ".svg"}
    pages = {address: httpx.get(running.url + address.format(id="x")).text for address in PAGES}
    for name, text in pages.items() | {(path.name, path.read_text()) for path in files}:
        text = text.replace('xmlns="http://www.w3.org/2000/svg"', "")
        assert "://" not in text, name
        assert not re.search(r"""["'(]//""", text), name
        assert not re.search(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(", text), name
        if name in PAGES:
            assert "<script>" not in text
            assert "style=" not in text
            assert not re.search(r"\son\w+=", text)
        for named in re.findall(r"""["'](?:/pages|\.)/([\w.-]+)["']""", text):
            file = PALETTE if named == PALETTE.name else STATIC / named
            assert file.is_file(), f"{name} names {named}"
            answer = httpx.get(f"{running.url}/pages/{named}")
            assert answer.content == file.read_bytes()
            assert answer.headers["Content-Type"].split(";")[0] in ("text/css", "text/javascript", "image/svg+xml")


def test_pages_have_one_frame_and_are_sent_once(running):
    for address, template in PAGES.items():
        answer = httpx.get(running.url + address.format(id="x"))
        assert answer.headers["Content-Type"] == "text/html; charset=utf-8"
        assert answer.text.startswith('<!doctype html>\n<html lang="en">\n<head>\n'), address
        assert re.search(r"<title>[A-Z][\w ]+ - mgclust</title>", answer.text), address
        assert answer.text.count("<main") == answer.text.count("</main>") == answer.text.count("<noscript>") == 1
        assert ('id="leave"' in answer.text) == ('id="signed-in"' in answer.text), address
        assert "{" not in answer.text.replace(address, ""), template  # all is filled in
        assert len(answer.content) < 7000
    for path in ("/", "/compare", "/pages/style.css"):
        tag = httpx.get(running.url + path).headers["ETag"]
        for known, code in ((tag, 304), (f"W/{tag}", 304), ('"other"', 200)):
            answer = httpx.get(running.url + path, headers={"If-None-Match": known})
            assert (answer.status_code, answer.headers["ETag"]) == (code, tag)
            assert bool(answer.content) == (code == 200)


def test_why_a_sign_in_failed_is_text():
    page = sign_in_problem("<b>no</b> & no")
    assert page.status_code == 403
    assert b'role="alert">&lt;b&gt;no&lt;/b&gt; &amp; no</p>' in page.body


def corner(browser, x, y):
    """A point of the decision graph, in shares of its canvas from the lower left."""
    left, top, width, height = browser.place("#box")
    return left + x * width, top + (1 - y) * height


def drawn(browser, selector):
    """The pixels of a canvas."""
    return browser.run(f"document.querySelector({selector!r}).toDataURL()")


DRAWN = "!document.querySelector('#map-figure').hidden && !document.querySelector('#graph-figure').hidden"
COUNT = "Number((document.querySelector('#count').textContent.match(/^([\\d,]+) clusters?$/) || [])[1])"


@pytest.mark.slow
def test_warnings_of_a_result_are_on_its_page(browser, running, points):
    job = running.client("ann").submit("canopy", points, t1=1e4, t2=9e3, report=False).wait()
    sign_in(browser, running, path=f"/jobs/{job.id}")
    browser.wait("document.querySelector('#warnings li')?.innerText.startsWith('a single canopy')")
    browser.open(running.url)
    browser.wait("document.querySelector('#jobs')?.innerText.includes('1 warning')")


def test_from_a_token_to_a_saved_choice(browser, running, points, tmp_path):
    ann = running.client("ann")
    browser.open(running.url)
    browser.wait("document.querySelector('#token')")
    browser.click("#token")
    browser.type("mgc_wrong")
    browser.press("Enter", 13)
    browser.wait("document.body.innerText.includes('unknown or revoked')")
    browser.errors.clear()  # the console tells of the 401
    sign_in(browser, running)
    assert browser.run("Object.keys(localStorage).length === 1 && sessionStorage.length + document.cookie.length === 0")

    browser.click("#new-job summary")
    browser.wait("document.querySelector('#parameters [data-name=n_clusters]')")
    browser.choose_file("#files", points)
    browser.click("[data-name=n_clusters]")
    browser.type("9")
    browser.click("#submission button[type=submit]")
    browser.wait("location.pathname.startsWith('/jobs/')")
    browser.wait("document.querySelector('#title')?.innerText.includes('SUCCEEDED')")
    browser.wait(f"{COUNT} === 9")
    id_ = browser.run("location.pathname.split('/').pop()")
    assert ann.job(id_).info["request"]["parameters"] == {"n_clusters": 9}
    assert browser.run("document.querySelector('#save').disabled")

    browser.wait(DRAWN)
    browser.run("document.querySelector('#decision').scrollIntoView()")
    before = drawn(browser, "#map")
    assert len(before) > 5000
    path = [corner(browser, 0.25, 0.13), corner(browser, 0.6, 0.5), corner(browser, 0.999, 0.999)]
    browser.drag(path)
    browser.wait(f"{COUNT} > 0 && {COUNT} !== 9")
    browser.wait("!document.querySelector('#save').disabled")
    count = browser.run(COUNT)
    limits = {name: float(browser.run(f"document.querySelector('#{name}').value")) for name in BOX}
    assert browser.run("document.querySelector('#rho_max').value") == ""
    expected = DensityPeaks(client=None, device="cpu").fit(points).select_centers(**limits)
    assert count == expected.n_clusters_
    assert drawn(browser, "#map") != before

    browser.run("document.querySelector('#box').focus()")
    for _ in range(3):
        browser.press("ArrowUp", 38)
    browser.wait(f"Number(document.querySelector('#delta_min').value) > {limits['delta_min']}")
    browser.press("ArrowDown", 40, shift=True)  # the densest row is then outside
    browser.wait("document.querySelector('#choice-problem').innerText.includes('the densest row')")
    browser.wait("document.querySelector('#save').disabled")
    browser.errors.clear()  # the console tells of the 400
    browser.press("ArrowUp", 38, shift=True)
    browser.wait("!document.querySelector('#save').disabled")
    limits = {name: float(browser.run(f"document.querySelector('#{name}').value")) for name in BOX}
    expected.select_centers(**limits)
    assert browser.run(COUNT) == expected.n_clusters_

    browser.click("#save")
    browser.wait(f"location.pathname.startsWith('/jobs/') && !location.pathname.endsWith('{id_}')")
    browser.wait("document.querySelector('#title')?.innerText.includes('SUCCEEDED')")
    browser.wait("document.querySelector('#about').innerText.includes('other centres of')")
    saved = browser.run("location.pathname.split('/').pop()")
    assert ann.job(saved).info["request"]["parent"] == id_
    browser.download_to(tmp_path)
    browser.wait("document.querySelector('[aria-label=\"Download labels.npy\"]')")
    browser.click('[aria-label="Download labels.npy"]')
    browser.wait("document.querySelector('#download-state').innerText.startsWith('labels.npy:')")
    target = tmp_path / "labels.npy"
    wait_for(target.exists)
    np.testing.assert_array_equal(np.load(target), expected.labels_)

    browser.click("#report summary")
    shown = "document.querySelector('#report-frame').contentDocument.querySelector('main')"
    browser.wait(f"{shown} && getComputedStyle({shown}).maxWidth === '1080px'")  # the report is there, with its styles
    browser.wait("document.querySelector('#report-frame').style.height")  # and has moved what is below it
    browser.click("#log-part summary")
    browser.wait(f"document.querySelector('#log').innerText.includes('{id_}')")
    browser.open(running.url)
    browser.wait(f"document.querySelector('#jobs a[href=\"/jobs/{saved}\"]')")
    assert browser.errors == []
    browser.click("#leave")
    browser.wait("document.querySelector('#token')")
    assert browser.run("localStorage.length") == 0


def tab_to(browser, selector, most=60):
    """Press the tab key until an element has the focus."""
    for _ in range(most):
        browser.press("Tab", 9)
        if browser.run(f"document.activeElement === document.querySelector({selector!r})"):
            return
    raise AssertionError(f"{selector} is not reached by the tab key")


@pytest.mark.slow
def test_by_keyboard_at_the_width_of_a_phone(browser, running, points, tmp_path):
    """Nothing but keys, and the system's own dialogue for the file, whose name tries to be a part of the page."""
    hostile = tmp_path / "<img src=x onerror=alert(1)>.npy"
    hostile.write_bytes(points.read_bytes())
    browser.resize(360, 740, mobile=True)
    browser.open(running.url)
    browser.wait("document.activeElement.id === 'token'")
    browser.type(running.token_of("dora")[1])
    browser.press("Enter", 13)
    browser.wait("document.querySelector('#none').innerText.includes('No jobs yet')")
    tab_to(browser, "#new-job summary", 2)  # the form is open: there is nothing else to do
    browser.wait("document.querySelector('#parameters [data-name=n_clusters]')")
    browser.choose_file("#files", hostile)
    tab_to(browser, "#parameters [data-name=n_clusters]")
    browser.type("9")
    tab_to(browser, "#submission button[type=submit]")
    browser.press("Enter", 13)
    browser.wait(f"{COUNT} === 9")
    first = browser.run("location.pathname")
    assert hostile.name in browser.run("document.querySelector('#request').innerText")
    browser.wait(DRAWN)
    tab_to(browser, "#box")
    browser.press("ArrowUp", 38)
    browser.wait("!document.querySelector('#save').disabled")
    tab_to(browser, "#save")
    browser.press("Enter", 13)
    browser.wait(
        f"location.pathname !== '{first}' && document.querySelector('#about')?.innerText.includes('other centres')"
    )
    browser.open(running.url)
    browser.wait("document.querySelectorAll('#jobs a').length === 2")
    assert browser.run("document.querySelector('#jobs').innerText").count(hostile.name) == 2
    assert browser.run("document.querySelectorAll('#jobs img').length === 0")
    assert browser.run("document.documentElement.scrollWidth <= 360")
    assert browser.errors == []


@pytest.mark.slow
def test_a_parcellation_with_several_numbers(browser, running, tmp_path):
    """Its form takes the numbers as text; the page of the job shows the report and lists the candidates."""
    make_bold(shape=(6, 6, 5), n_parcels=3, n_timepoints=40, noise=0.3).save(tmp_path)
    sign_in(browser, running)
    browser.wait("document.querySelector('#method option')")
    browser.run("(() => { const m = document.querySelector('#method'); m.value = 'parcellation';"
                "m.dispatchEvent(new Event('change')); })()")  # fmt: skip
    browser.run("document.querySelector('#new-job').open = true")
    browser.run("for (const part of document.querySelectorAll('#new-job details')) part.open = true")
    browser.choose_file("#files", tmp_path / "bold.nii.gz")
    browser.choose_file("#mask", tmp_path / "mask.nii.gz")

    def give(numbers):
        browser.run(f"document.querySelector('#parameters [data-name=n_parcels]').value = '{numbers}'")
        browser.click("#submission button[type=submit]")

    give("2,,3")
    browser.wait("document.querySelector('#problem')?.innerText.includes('should be an integer >= 1, or several')")
    give("3,2,5")
    browser.wait("document.querySelector('#title')?.innerText.includes('SUCCEEDED')")
    browser.wait("!document.querySelector('#report').hidden")
    assert "3,2,5" in browser.run("document.querySelector('#request').innerText")
    files = browser.run("document.querySelector('#files').innerText")
    for name in ("candidates/2/labels.npy", "candidates/5/labels.npy", "parcel_evaluation.png", "report.html"):
        assert name in files
    assert all("400 (Bad Request)" in each for each in browser.errors)  # the first numbers


@pytest.mark.slow
def test_the_form_has_all_that_a_submission_may_have(browser, running, points, tmp_path):
    """Made of what the service says of its methods; checked by what arrives there."""
    make_bold(shape=(5, 5, 4), n_parcels=2, n_timepoints=20).save(tmp_path)
    sign_in(browser, running)
    browser.click("#new-job summary")
    browser.wait("document.querySelector('#resources [data-name=workers]')")
    browser.run("for (const part of document.querySelectorAll('#new-job details')) part.open = true")
    browser.choose_file("#files", tmp_path / "bold.nii.gz")
    browser.choose_file("#mask", tmp_path / "mask.nii.gz")
    (tmp_path / "confounds.tsv").write_text("csf\n" + "".join(f"{k % 3}\n" for k in range(20)))
    browser.choose_file("#confounds", tmp_path / "confounds.tsv")
    browser.choose_file("#atlas", tmp_path / "truth.nii.gz")
    given = {
        "#parameters": {"n_clusters": "2", "metric": "correlation", "random_state": "7"},
        "#options": {
            "standardize": "zscore",
            "detrend": "true",
            "constant": "refuse",
            "smoothing_fwhm": "4",
            "confound_names": "csf",
        },
        "#resources": {"workers": "1"},
    }  # fmt: skip
    for group, values in given.items():
        for name, value in values.items():
            browser.run(f"document.querySelector('{group} [data-name={name}]').value = '{value}'")
    browser.run("document.querySelector('#priority').value = '-7'; document.querySelector('#report').value = 'false'")
    browser.click("#submission button[type=submit]")
    browser.wait("document.querySelector('#title')?.innerText.includes('SUCCEEDED')")
    info = running.client("ann").job(browser.run("location.pathname.split('/').pop()")).info
    request = info["request"]
    assert request["parameters"] == {"n_clusters": 2, "metric": "correlation", "random_state": 7}
    assert request["options"] == {"standardize": "zscore", "detrend": True, "constant": "refuse",
                                  "smoothing_fwhm": 4, "confound_names": "csf"}  # fmt: skip
    assert [each["name"] for each in request["confounds"]] == ["confounds.tsv"]
    assert [each["name"] for each in request["atlas"]] == ["truth.nii.gz"] and info["scores"]["atlas_ari"] <= 1
    assert (request["resources"], request["report"], info["priority"]) == ({"workers": 1}, False, -7)
    assert (request["sources"][0]["name"], request["mask"]["name"]) == ("bold.nii.gz", "mask.nii.gz")
    others = {
        "method",
        "sources",
        "mask",
        "confounds",
        "surfaces",
        "atlas",
        "key",
        "priority",
        "report",
        "name",
        "tags",
        "results_to",
    }
    submission = set(Submission.model_fields) - others
    assert submission == {group[1:] for group in given}  # nothing that the form does not know
    (running.root / "cut.nii.gz").write_bytes((tmp_path / "bold.nii.gz").read_bytes()[:-100])
    browser.open(running.url)
    browser.wait("document.querySelector('#resources [data-name=workers]')")
    browser.choose_file("#files", tmp_path / "bold.nii.gz")
    cut = f"{running.root}/cut.nii.gz"
    browser.run(f"document.querySelector('#surfaces-path').value = '{cut}, {cut}'")
    browser.run("document.querySelector('#new-job').open = true")
    browser.click("#submission button[type=submit]")
    browser.wait("document.querySelector('#title')?.innerText.includes('FAILED')")
    told = running.client("ann").job(browser.run("location.pathname.split('/').pop()")).info
    assert [each["path"] for each in told["request"]["surfaces"]] == [cut] * 2
    assert "surfaces applies to CIFTI files" in told["error"]

    def choose(method):
        browser.open(running.url)
        browser.wait("document.querySelector('#method option')")
        browser.run(f"(() => {{ const m = document.querySelector('#method'); m.value = '{method}';"
                    "m.dispatchEvent(new Event('change')); })()")  # fmt: skip

    choose("silhouette")  # one of its parameters is a file
    np.save(tmp_path / "labels.npy", np.arange(600) % 2)
    browser.run("document.querySelector('#new-job').open = true")
    browser.choose_file("#files", points)
    browser.choose_file("#parameters [data-name=labels]", tmp_path / "labels.npy")
    browser.click("#submission button[type=submit]")
    browser.wait("document.querySelector('#title')?.innerText.includes('SUCCEEDED')")
    assert "labels.npy" in browser.run("document.querySelector('#request').innerText")

    choose("communities")
    names = "Array.from(document.querySelectorAll('#options [data-name]'), (input) => input.dataset.name)"
    assert browser.run(names) == ["columns", "source", "target", "weight", "header", "index", "n_nodes"]
    assert browser.run("document.querySelector('#mask').closest('label').hidden")
    assert browser.errors == []


@pytest.mark.slow
def test_a_phone(browser, running, job):
    browser.resize(390, 800, mobile=True)
    sign_in(browser, running)
    browser.wait("document.querySelector('#jobs a')")
    narrow = "document.documentElement.scrollWidth <= 390 && document.body.scrollWidth <= 390"
    browser.run("document.querySelector('#new-job').open = true")
    browser.wait("document.querySelector('#parameters [data-name]')")
    assert browser.run(narrow)
    browser.open(f"{running.url}/jobs/{job.id}")
    browser.wait(f"{COUNT} === 15")
    browser.click("#report summary")
    browser.wait("document.querySelector('#report-frame').contentDocument.querySelector('footer')")
    browser.run("document.querySelector('#log-part').open = true")
    assert browser.run(narrow)
    browser.wait(DRAWN)
    browser.run("document.querySelector('#box').scrollIntoView({block: 'center'})")
    browser.touch([corner(browser, 0.999, 0.999), corner(browser, 0.8, 0.9), corner(browser, 0.2, 0.6)])
    browser.wait(f"{COUNT} > 0 && {COUNT} < 15")
    browser.scheme("dark")
    assert browser.run("getComputedStyle(document.body).backgroundColor") == "rgb(22, 25, 29)"
    browser.scheme("light")
    assert browser.run("getComputedStyle(document.body).backgroundColor") == "rgb(244, 245, 247)"
    assert browser.errors == []


@pytest.mark.slow
def test_states_pages_and_failures(browser, running, tmp_path, points):
    cleo = running.client("cleo")
    np.save(tmp_path / "bad.npy", np.full((50, 2), np.nan))
    failed = cleo.submit("density-peaks", tmp_path / "bad.npy")
    with pytest.raises(InputError):
        failed.wait()
    parent = cleo.submit("density-peaks", points, report=False).wait()
    for n in range(2, 24):
        cleo.call("POST", f"/jobs/{parent.id}/centers/save", json={"n_clusters": n})
    sign_in(browser, running, "cleo")
    shown = "document.querySelectorAll('#jobs a').length"
    browser.wait(f"{shown} === 20")
    browser.click("#older")
    browser.wait(f"{shown} === 4")
    browser.click("#newer")
    browser.wait(f"{shown} === 20")
    browser.run("(() => { const s = document.querySelector('#state'); s.value = 'FAILED';"
                "s.dispatchEvent(new Event('change')); })()")  # fmt: skip
    browser.wait(f"{shown} === 1")
    browser.click("#jobs a")
    browser.wait("document.querySelector('#error')?.innerText.includes('NaN')")
    assert "The data or the parameters are the cause" in browser.text()
    browser.click("#retry")
    browser.wait("document.querySelector('#about').innerText.includes('attempt 2')")
    browser.wait("document.querySelector('#title').innerText.includes('FAILED')")
    tab_to(browser, "#delete")
    browser.press("Enter", 13)
    browser.wait("document.querySelector('#confirm').open")
    assert browser.run("document.activeElement.id") == "keep"
    browser.press("Escape", 27)
    browser.wait("!document.querySelector('#confirm').open")
    assert cleo.job(failed.id).state == "FAILED"
    browser.click("#delete")
    browser.press("Tab", 9)
    browser.press("Enter", 13)
    browser.wait("location.pathname === '/'")
    browser.wait(f"{shown} === 20")
    with pytest.raises(InputError, match="there is no such job"):
        cleo.job(failed.id)
    assert browser.errors == []
    # Choices that were saved outlast the job that they were made in.
    parent.delete()
    saved = cleo.jobs(limit=1)[0]
    browser.open(f"{running.url}/jobs/{saved.id}")
    browser.wait(f"{COUNT} === {saved.info['scores']['n_clusters']}")
    browser.wait("!document.querySelector('#map-figure').hidden")
    assert browser.errors == []


@pytest.mark.slow
def test_a_running_job_is_followed_and_cancelled(browser, running, tmp_path, capsys):
    many = tmp_path / "many.npy"
    np.save(many, np.random.default_rng(1).normal(size=(200_000, 32)))  # minutes of work
    job = running.client("ann").submit("density-peaks", many, report=False)
    sign_in(browser, running, path=f"/jobs/{job.id}")
    browser.wait("document.querySelector('#rate').innerText.includes('left in this stage')")
    for info in job.watch():
        if info["progress"] and info["progress"]["stage_rate"] is not None:
            break
    assert info["progress"]["stage"] in ("dc", "rho", "delta")
    assert info["progress"]["stage_eta"] >= 0 < info["progress"]["stage_rate"]
    _show(job, False)  # as `mgclust watch` and `status` do
    assert re.search(r"RUNNING  \w+  \d+% \(.*%/(s|min), .* left in this stage\)", capsys.readouterr().out)
    assert browser.run("document.querySelector('#stage').innerText") in ("dc", "rho", "delta")
    assert browser.run("document.querySelector('#delete').hidden")
    browser.wait("0 < document.querySelector('#fraction').value && document.querySelector('#fraction').value < 1")
    browser.click("#cancel")
    browser.wait("document.querySelector('#title').innerText.includes('CANCELLED')")
    assert job.refresh().state == "CANCELLED"
    assert not browser.run("document.querySelector('#retry').hidden")
    assert browser.errors == []
