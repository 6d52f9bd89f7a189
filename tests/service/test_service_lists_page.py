"""The pages of lists, comparisons and sweeps, and the form that begins with a job, in a browser."""

from __future__ import annotations

import httpx
import numpy as np
import pytest

from mgclust.datasets import make_gaussian_rings
from mgclust.results.label_agreement import adjusted_rand
from mgclust.results.result import load_result
from support.browser import sign_in

pytestmark = [pytest.mark.xdist_group("service"), pytest.mark.timeout(180)]
LINKS = "document.querySelectorAll('#jobs .name a').length"


@pytest.fixture(scope="module")
def points(tmp_path_factory):
    path = tmp_path_factory.mktemp("points") / "rings.npy"
    np.save(path, make_gaussian_rings().X)
    return path


@pytest.fixture(scope="module")
def jobs(running, points):
    """Two jobs of a user who has no others."""
    eve = running.client("eve")
    return [eve.submit("density-peaks", points, n_clusters=n).wait() for n in (15, 9)]


def choose(browser, selector, value):
    browser.run(
        f"(() => {{ const s = document.querySelector({selector!r}); s.value = {value!r};"
        "s.dispatchEvent(new Event('change')); })()"
    )


def test_filters_stay_in_the_address(browser, running, jobs):
    sign_in(browser, running, "eve")
    browser.wait(f"{LINKS} === 2")
    text = browser.run("document.querySelector('#jobs').innerText")
    for shown in ("rings.npy", "n_clusters=15", "n_clusters=9", "SUCCEEDED"):
        assert shown in text
    browser.press("/", 191)
    browser.run("document.querySelector('#search').focus()")
    browser.type("n_clusters=15")
    browser.wait(f"{LINKS} === 1")
    browser.wait("location.search === '?search=n_clusters%3D15'")
    browser.call("Page.reload")
    browser.wait(f"{LINKS} === 1 && document.querySelector('#search').value === 'n_clusters=15'")
    choose(browser, "#state", "FAILED")
    browser.wait("document.querySelector('#none').innerText.includes('No job matches')")
    browser.run("history.back()")
    browser.wait(f"{LINKS} === 1")
    browser.open(f"{running.url}/?sort=score%3An_clusters&score=n_clusters")
    browser.wait("document.querySelector('#jobs .number')?.innerText === '9'")
    assert browser.run("document.querySelector('th.number').getAttribute('aria-sort')") == "ascending"
    browser.click("th.number button")
    browser.wait("document.querySelector('#jobs .number')?.innerText === '15'")
    browser.run("document.querySelector('#jobs .name a').focus()")
    browser.press("ArrowDown", 40)
    assert browser.run("document.activeElement.getAttribute('href')") == f"/jobs/{jobs[1].id}"
    assert browser.errors == []


def test_compared_with_three_clicks(browser, running, jobs, tmp_path):
    labels = [load_result(job.download(tmp_path / job.id)).labels for job in jobs]
    sign_in(browser, running, "eve")
    browser.wait(f"{LINKS} === 2")
    browser.click("#jobs tr:nth-child(1) .pick input")
    browser.click("#jobs tr:nth-child(2) .pick input")
    browser.click("#compare")
    browser.wait("document.querySelectorAll('#agreement td').length === 4")
    shown = browser.run("Array.from(document.querySelectorAll('#agreement td'), (cell) => cell.innerText)")
    assert shown == ["1.0000", *[f"{adjusted_rand(*labels):.4f}"] * 2, "1.0000"]
    different = browser.run("Array.from(document.querySelectorAll('#facts .different th'), (cell) => cell.innerText)")
    assert "n_clusters differs" in different
    assert not any(name.startswith(("method", "files")) for name in different)
    browser.wait("document.querySelectorAll('#pictures img').length === 2")
    browser.wait("Array.from(document.querySelectorAll('#pictures img')).every((image) => image.naturalWidth > 100)")
    browser.open(f"{running.url}/compare?ids={jobs[0].id}")
    browser.wait("document.querySelector('#problem').innerText.startsWith('Choose 2 to 10 jobs')")
    assert browser.errors == []


def test_edited_and_run_again_with_two_clicks(browser, running, jobs):
    """Edit and run again, then Submit; the file is not sent again."""
    eve = running.client("eve")
    before = len(eve.uploads(1000))
    sign_in(browser, running, "eve", f"/jobs/{jobs[1].id}")
    browser.wait("document.querySelector('#actions a')")
    browser.click("#actions a")
    browser.wait("document.querySelector('#kept')?.innerText.includes('rings.npy')")
    browser.wait("document.querySelector('[data-name=n_clusters]').value === '9'")
    browser.run("document.querySelector('[data-name=n_clusters]').value = '7'")
    browser.click("#submission button[type=submit]")
    browser.wait("location.pathname.startsWith('/jobs/')")
    id_ = browser.run("location.pathname.split('/').pop()")
    request = eve.job(id_).info["request"]
    assert request["parameters"] == {"n_clusters": 7}
    assert request["sources"] == jobs[1].refresh().info["request"]["sources"]
    assert len(eve.uploads(1000)) == before
    browser.open("about:blank")
    eve.job(id_).wait().delete()
    assert browser.errors == []


def test_a_refused_submission_leaves_no_upload(browser, running, points, tmp_path):
    fay = running.client("fay")
    sign_in(browser, running, "fay")
    browser.wait("document.querySelector('#parameters [data-name=n_clusters]')")
    browser.wait("document.querySelector('#new-job').open")  # the list, which has no jobs, may come after the form
    browser.choose_file("#files", points)
    browser.run("document.querySelector('[data-name=n_clusters]').value = '-4'")
    browser.click("#submission button[type=submit]")
    browser.wait("document.querySelector('#problem').innerText.includes('n_clusters=-4')")
    assert fay.uploads() == []
    browser.run("new Promise((resolve) => setTimeout(resolve, 2500))")  # the list was looked up again meanwhile
    assert "n_clusters=-4" in browser.run("document.querySelector('#problem').innerText")
    # Found only after the upload: the path of the mask is refused.
    browser.run("document.querySelector('[data-name=n_clusters]').value = '4'")
    browser.run("document.querySelector('#mask-path').value = '/nowhere/mask.nii'")
    browser.click("#submission button[type=submit]")
    browser.wait("document.querySelector('#problem').innerText.includes('/nowhere/mask.nii')")
    for _ in range(50):
        if not fay.uploads():
            break
        browser.run("new Promise((resolve) => setTimeout(resolve, 100))")
    assert fay.uploads() == []
    # Another method keeps what was entered.
    browser.run("document.querySelector('#job-name').value = 'mine'")
    choose(browser, "#method", "fuzzy-c-means")
    browser.wait("document.querySelector('[data-name=fuzziness], [data-name=m]')")
    assert browser.run("document.querySelector('[data-name=n_clusters]').value") == "4"
    assert browser.run("document.querySelector('#files').files.length") == 1
    assert browser.run("document.querySelector('#job-name').value") == "mine"
    assert all("400 (Bad Request)" in each for each in browser.errors)


def test_the_best_of_a_sweep_is_the_lowest_where_lower_is_better(browser, running, points):
    ida = running.client("ida")
    sweep = ida.sweep("fuzzy-c-means", points, {"n_clusters": [2, 3, 5, 7]}, report=False)
    values = {job.id: job.wait().info["scores"]["xie_beni"] for job in sweep.jobs}
    ranked = sorted(values, key=values.__getitem__)
    sign_in(browser, running, "ida")
    browser.open(f"{running.url}/?sweep={sweep.id}")
    browser.wait("document.querySelector('#sweep-best a')?.checkVisibility()")
    assert "(lowest)" in browser.run("document.querySelector('#sweep-best').innerText")
    assert browser.run("document.querySelector('#sweep-best a').pathname") == f"/jobs/{ranked[0]}"
    browser.click("th.number button")
    browser.wait("document.querySelector('th.number').getAttribute('aria-sort') === 'ascending'")
    links = "[...document.querySelectorAll('#jobs .name a')].map((link) => link.pathname.split('/').pop())"
    browser.wait(f"{links}[0] === '{ranked[0]}'")
    assert browser.run(links) == ranked
    browser.click("#sweep-compare")
    browser.wait("location.pathname === '/compare'")
    assert browser.run("new URLSearchParams(location.search).get('ids')") == ",".join(ranked)
    assert browser.errors == []


def test_a_sweep_of_one_job(browser, running, points):
    ida = running.client("ida")
    sweep = ida.sweep("canopy", points, {"t1": [2.0]}, t2=1.0, report=False)
    sweep.jobs[0].wait()
    sign_in(browser, running, "ida")
    browser.open(f"{running.url}/?sweep={sweep.id}")
    browser.wait("document.querySelectorAll('#sweep-plot circle').length === 1")
    assert browser.run("document.querySelector('#sweep-title').innerText").endswith(": 1 job")
    assert "default" not in browser.run("document.querySelector('#sweep-plot').textContent")
    assert browser.errors == []
    sweep.delete()


def test_a_sweep_by_form(browser, running, points):
    gus = running.client("gus")
    sign_in(browser, running, "gus")
    browser.wait("document.querySelector('#parameters [data-name=n_clusters]')")
    browser.choose_file("#files", points)
    browser.run("document.querySelector('#report').value = 'false'")
    browser.run(
        "const [one, other] = document.querySelectorAll('.vary'); one.value = 'dc_fraction'; other.value = 'n_clusters'"
    )
    browser.run("document.querySelector('.values').value = '0.01, 0.02, 0.04'")
    browser.run("document.querySelectorAll('.values')[1].value = '3,5'")
    browser.click("#submission button[type=submit]")
    browser.wait("location.search.startsWith('?sweep=')")
    browser.wait(f"{LINKS} === 6")
    browser.wait("document.querySelector('#sweep-title').innerText.includes('6 jobs')")
    members = gus.jobs()
    assert len(members) == 6 and len({job.info["sweep"] for job in members}) == 1
    for job in members:
        job.wait()
    browser.wait("document.querySelectorAll('#sweep-plot circle').length === 6")
    assert browser.run("document.querySelectorAll('#sweep-plot .series').length") == 2
    assert browser.run("document.documentElement.scrollWidth <= innerWidth")
    browser.wait("!document.querySelector('#sweep-delete').disabled")
    browser.click("#sweep-delete")
    browser.click("#delete-now")
    browser.wait("location.search === ''")
    browser.wait("document.querySelector('#none').innerText.includes('No jobs yet')")
    assert gus.jobs() == []
    assert browser.errors == []


def test_silhouettes_with_one_click(browser, running, jobs):
    sign_in(browser, running, "eve", f"/jobs/{jobs[1].id}")
    browser.wait("document.querySelector('#actions button')")
    browser.click("#actions button")
    browser.wait(f"location.pathname.startsWith('/jobs/') && !location.pathname.endsWith('{jobs[1].id}')")
    browser.wait("document.querySelector('#title')?.innerText.includes('SUCCEEDED')")
    eve = running.client("eve")
    job = eve.job(browser.run("location.pathname.split('/').pop()"))
    assert job.info["request"]["parameters"]["labels"]["job"] == jobs[1].id
    assert -1 <= job.info["scores"]["silhouette"] <= 1
    browser.open(running.url)  # the list shows a score that most jobs have
    browser.wait(f"{LINKS} === 3")
    assert browser.run("document.querySelector('#score').value") == "n_clusters"
    job.delete()
    browser.open(f"{running.url}/jobs/{jobs[1].id}")
    browser.wait("document.querySelector('#actions a')")  # the facts of the job have arrived
    browser.run("document.querySelector('#naming input').value = 'nine'")
    browser.run("document.querySelectorAll('#naming input')[1].value = 'paper, draft'")
    browser.run("document.querySelector('#naming input').focus()")
    browser.press("Enter", 13)
    browser.wait("document.querySelector('#naming [role=status]').innerText === 'Saved.'")
    assert (eve.job(jobs[1].id).info["name"], eve.job(jobs[1].id).info["tags"]) == ("nine", ["paper", "draft"])
    assert browser.errors == []


def test_silhouettes_use_the_distance_of_the_clustering(browser, running):
    ivy = running.client("ivy")
    rows = np.random.default_rng(0).random((30, 3)) + 0.1
    similarities = -((rows[:, None] - rows) ** 2).sum(-1)
    angles = ivy.submit("density-peaks", rows, n_clusters=2, metric="cosine", name="angles", report=False).wait()
    given = ivy.submit("affinity-propagation", similarities, affinity="precomputed", report=False).wait()
    sign_in(browser, running, "ivy", f"/jobs/{given.id}")
    browser.wait("document.querySelector('#actions a')")
    assert browser.run("document.querySelector('#actions').innerText") == "Edit and run again"
    browser.open(f"{running.url}/jobs/{angles.id}")
    browser.wait("document.querySelector('#actions button')")
    assert browser.run("document.querySelector('#title').innerText").startswith("angles")
    assert browser.run("document.title").startswith("angles")
    browser.click("#actions button")
    browser.wait(f"location.pathname.startsWith('/jobs/') && !location.pathname.endsWith('{angles.id}')")
    job = ivy.job(browser.run("location.pathname.split('/').pop()"))
    assert job.info["request"]["parameters"]["metric"] == "cosine"
    assert browser.errors == []


def test_close_values_of_a_parameter_are_shown_as_different(browser, running, points):
    close = [
        running.client("ivy").submit("density-peaks", points, dc=dc, report=False) for dc in (0.1234561, 0.1234562)
    ]
    sign_in(browser, running, "ivy", f"/compare?ids={close[0].id},{close[1].id}")
    browser.wait("document.querySelector('#facts .different')")
    rows = browser.run("Array.from(document.querySelectorAll('#facts .different'), (row) => row.innerText)")
    assert any("0.1234561" in row and "0.1234562" in row for row in rows)
    browser.open(f"{running.url}/jobs/{close[0].id}")
    browser.wait("document.querySelector('#request').innerText.includes('0.1234561')")
    assert browser.errors == []


@pytest.mark.slow
def test_twenty_rows_in_900_pixels_and_little_weight(browser, running, jobs):
    eve = running.client("eve")
    saved = [eve.call("POST", f"/jobs/{jobs[0].id}/centers/save", json={"n_clusters": n})["id"] for n in range(2, 21)]
    sign_in(browser, running, "eve")
    browser.resize(1440, 900)
    browser.wait(f"{LINKS} === 20")
    assert browser.run("document.querySelector('#jobs tr:nth-child(20)').getBoundingClientRect().bottom") <= 900
    total = 0
    headers = {"Authorization": eve._http.headers["Authorization"], "Accept-Encoding": "gzip"}
    names = ["", *(f"pages/{name}" for name in ("style.css", "lists.css", "jobs.js", "session.js", "submission.js",
                                                "sweep.js", "words.js", "icon.svg"))]  # fmt: skip
    for path in [*names, "api/v1/methods", "api/v1/jobs?limit=21"]:
        with httpx.stream("GET", f"{running.url}/{path}", headers=headers) as answer:
            assert answer.status_code == 200, path
            total += sum(len(part) for part in answer.iter_raw())
    assert total <= 40_000
    tag = httpx.get(f"{running.url}/pages/jobs.js").headers["ETag"]
    assert httpx.get(f"{running.url}/pages/jobs.js", headers={"If-None-Match": tag}).status_code == 304
    for width in (390, 1440):
        browser.resize(width, 900, mobile=width < 500)
        browser.wait(f"document.documentElement.scrollWidth <= {width}")
    for id_ in saved:
        eve.job(id_).delete()
