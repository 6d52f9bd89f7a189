"""The page of a job: what it shows first, its decision graph, its weight, its state, and what axe says of it."""

from __future__ import annotations

import io
import time
import zipfile

import httpx
import numpy as np
import pytest

from mgclust.datasets import make_bold, make_gaussian_rings
from support.browser import CHROMIUM, Browser, sign_in, violations
from support.service_process import Running
from support.waiting import wait_for

pytestmark = [
    pytest.mark.xdist_group("service"),
    pytest.mark.timeout(240),
    pytest.mark.skipif(CHROMIUM is None, reason="Chromium is not installed (Debian: apt install chromium)"),
]
COUNT = "Number((document.querySelector('#count').textContent.match(/^([\\d,]+) clusters?$/) || [])[1])"
LOADED = f"{COUNT} > 0 && !document.querySelector('#map-figure').hidden"


@pytest.fixture
def browser(tmp_path):
    shown = Browser(tmp_path)
    yield shown
    shown.close()


@pytest.fixture(scope="module")
def table(tmp_path_factory):
    """Fifteen clusters, whose second column has long numbers, with names of columns."""
    path = tmp_path_factory.mktemp("points") / "points.csv"
    rows = make_gaussian_rings().X
    np.savetxt(path, rows, delimiter=",", header="width,height", comments="")
    return path


@pytest.fixture(scope="module")
def job(running, table):
    return running.client("ann").submit("density-peaks", table).wait()


def show(browser, running, job, user="ann"):
    """Open the page of a job, signed in."""
    path = f"/jobs/{job.id}"
    browser.open(running.url + path)
    if browser.run("localStorage.length === 0"):
        sign_in(browser, running, user, path)


def type_in(browser, name, value):
    browser.run(
        f"(() => {{ const input = document.querySelector('#{name}'); input.value = '{value}';"
        "input.dispatchEvent(new Event('input', { bubbles: true })); })()"
    )


def test_labels_of_axes_are_within_the_canvas(browser, running):
    """Labels are measured before the plot is placed: none is cut, however long."""
    browser.open(f"{running.url}/")
    cut = browser.run(
        """(async () => {
          const { Graph, Ranks, drawMap, drawSizes } = await import('/pages/drawing.js');
          const canvases = Array.from({ length: 5 }, () => document.createElement('canvas'));
          for (const canvas of canvases) {
            canvas.style = 'width: 300px; height: 200px; display: block';
            document.body.append(canvas);
          }
          const cut = [], texts = [];
          CanvasRenderingContext2D.prototype.fillText = function (text, x, y, most = Infinity) {
            const wide = Math.min(most, this.measureText(text).width);
            const left = this.textAlign === 'right' ? x - wide : x;
            texts.push(text);
            if (left < 0 || left + wide > 300 || y < 8 || y > 200) cut.push(text);
          };
          const rows = Array.from({ length: 50 }, (_, i) => i);
          const [right, up] = [rows.map((i) => 1e6 / (i + 1)), rows.map((i) => 800000 - 9 * i)];
          const data = { rows, right, up, ranked: 50, total: 50 };
          const told = { centers: [0, 1], places: [[1e6, 8e5], [5e5, 8e5]], colors: ['#000000', '#111111'] };
          const axes = [{ name: 'rho', words: 'density '.repeat(20) }, { name: 'delta', words: 'delta' }];
          for (const log of [false, true]) {
            const graph = new Graph(canvases[0], canvases[1], axes, data, () => {}, () => {});
            graph.log = log;
            graph.draw(told);
          }
          new Ranks(canvases[2], data, () => {}, () => {}).draw(told);
          drawMap(canvases[3], { x: [-1e6, 123456], y: [0.000123, 0.000124] }, [0, 1], told.colors, ['a', 'b']);
          drawSizes(canvases[4], [123456789, 5], told.colors);
          return { cut, seen: texts.includes('800,000') };
        })()"""
    )
    assert cut == {"cut": [], "seen": True}


@pytest.mark.slow
def test_the_result_comes_first(browser, running, job, table):
    show(browser, running, job)
    browser.wait(LOADED)
    assert browser.run("document.querySelector('#map-caption').innerText").endswith(
        "width to the right, height upwards."
    )
    browser.wait("document.querySelector('#graph').getBoundingClientRect().top > 0")
    words = browser.run("document.querySelector('#scores').innerText")
    assert "cut-off distance dc" in words and "dc error" not in words and "gamma" not in words
    tops = [
        browser.run(f"document.querySelector('{part}').getBoundingClientRect().top")
        for part in ("#scores", "#map", "#graph", "#files", "#request")
    ]
    assert tops == sorted(tops)
    assert tops[1] < 800  # the picture is on the first screen
    other = running.client("ann").submit("fuzzy-c-means", table, n_clusters=3).wait()
    show(browser, running, other)
    browser.wait("document.querySelectorAll('#pictures img').length === 2")
    assert browser.run("document.querySelector('#pictures img').alt") == "scatter"
    browser.wait("Array.from(document.querySelectorAll('#pictures img')).every((each) => each.naturalWidth > 0)")
    assert "Rows coloured by cluster" in browser.run("document.querySelector('#pictures').innerText")
    assert browser.errors == []


@pytest.mark.slow
def test_the_report_has_no_scroll_bar_of_its_own(browser, running, job):
    show(browser, running, job)
    browser.wait("!document.querySelector('#report').hidden")
    assert browser.run("document.querySelector('#report-frame').src") == ""  # it is fetched when it is opened
    browser.click("#report summary")
    content = "document.querySelector('#report-frame').contentDocument?.documentElement"
    high = "document.querySelector('#report-frame').getBoundingClientRect().height"
    browser.wait(f"{content}?.querySelector('footer') && {high} >= {content}.scrollHeight")
    browser.resize(390, 800)
    browser.wait(f"{high} >= {content}.scrollHeight && document.documentElement.scrollWidth <= 390")
    assert browser.run("document.querySelector('#report-frame').getAttribute('sandbox')") == "allow-same-origin"


@pytest.mark.slow
def test_a_number_typed_while_the_graph_loads(browser, running, job):
    browser.call(
        "Page.addScriptToEvaluateOnNewDocument",
        source="""const real = window.fetch;
        window.fetch = async (url, how) => {
          if (/graph$|points$/.test(url)) await new Promise((resolve) => setTimeout(resolve, 2000));
          return real(url, how);
        };""",
    )
    show(browser, running, job)
    browser.wait("document.querySelector('#n_clusters')")
    type_in(browser, "n_clusters", 12)
    browser.wait(LOADED)
    browser.wait(f"{COUNT} === 12")
    assert browser.run("document.querySelector('#n_clusters').value") == "12"
    # The first row that is no centre has nearly the same product.
    browser.wait("document.querySelector('#choice-warning').innerText.includes('n_clusters=12 do not stand out')")
    browser.click("#reset")
    browser.wait(f"{COUNT} === 15 && document.querySelector('#choice-warning').hidden")


@pytest.mark.slow
def test_back_after_saving(browser, running, job):
    show(browser, running, job)
    browser.wait(LOADED)
    type_in(browser, "n_clusters", 14)
    browser.wait(f"{COUNT} === 14 && !document.querySelector('#save').disabled")
    browser.click("#save")
    browser.wait(f"!location.pathname.endsWith('{job.id}') && document.querySelector('#title')")
    browser.run("history.back()")
    browser.wait(f"location.pathname.endsWith('{job.id}') && {COUNT} > 0")
    browser.wait("document.querySelector('#saving').hidden")
    type_in(browser, "n_clusters", 13)
    browser.wait(f"{COUNT} === 13 && !document.querySelector('#save').disabled")


def points_in(browser, selector, x, y):
    left, top, width, height = browser.place(selector)
    return left + x * width, top + (1 - y) * height


@pytest.mark.slow
def test_the_decision_graph_of_many_clusters(browser, running, tmp_path):
    """A hundred clusters: logarithmic axes, zoom, ranks of the products, and values of the row at the pointer."""
    rng = np.random.default_rng(0)
    grid = np.stack(np.meshgrid(np.arange(10.0), np.arange(10.0)), -1).reshape(-1, 2)
    np.save(tmp_path / "grid.npy", np.repeat(10 * grid, 60, axis=0) + rng.normal(size=(6000, 2)))
    ann = running.client("ann")
    many = ann.submit("density-peaks", tmp_path / "grid.npy", n_clusters=100, dc_fraction=0.002).wait()
    assert many.info["warnings"] == []
    show(browser, running, many)
    browser.wait(LOADED)
    browser.wait("document.querySelector('#graph-caption').innerText.includes('5,000 of the 6,000 rows')")
    browser.run("document.querySelector('#graph-figure').scrollIntoView()")
    values = "document.querySelector('#pointed').innerText"
    state = "document.querySelector('#graph').toDataURL()"
    for step in ("document.querySelector('#logarithmic').click()", "document.querySelector('#nearer').click()"):
        before = browser.run(state)
        browser.run(step)
        assert browser.run(state) != before
    browser.run("document.querySelector('#whole').click()")
    before = browser.run(state)
    browser.run("document.querySelector('[name=drags][value=zoom]').click()")
    browser.drag(
        [
            points_in(browser, "#box", 0.3, 0.3),
            points_in(browser, "#box", 0.6, 0.6),
            points_in(browser, "#box", 0.9, 0.9),
        ]
    )
    assert browser.run(state) != before
    assert browser.run("document.querySelector('#rho_min').value") == ""  # a zoom chooses nothing
    browser.run("document.querySelector('#box').focus()")
    browser.press("0", 48)
    assert browser.run(state) == before

    browser.run("document.querySelector('#ranks').scrollIntoView({ block: 'center' })")
    left, top, width, height = browser.place("#ranks")
    said = []
    for x in np.linspace(left + 60, left + width - 20, 12):
        browser._mouse("mouseMoved", (x, top + height / 2), "none")
        said.append(browser.run(values))
    assert all("density rho" in each and "distance delta" in each and "rank" in each for each in said)
    assert any("centre of cluster" in each for each in said)
    browser.click("#ranks")
    browser.wait("document.querySelector('#n_clusters').value !== ''")
    chosen = int(browser.run("document.querySelector('#n_clusters').value"))
    browser.wait(f"{COUNT} === {chosen}")
    type_in(browser, "n_clusters", 90)
    browser.wait("document.querySelector('#choice-warning').innerText.includes('do not stand out')")
    assert browser.errors == []


@pytest.mark.slow
def test_all_files_as_one(browser, running, job, tmp_path):
    ann = running.client("ann")
    headers = {"Authorization": ann._http.headers["Authorization"]}
    answer = httpx.get(f"{ann.url}/api/v1/jobs/{job.id}/files.zip", headers=headers)
    assert answer.status_code == 200
    directory = job.download(tmp_path / "out")
    with zipfile.ZipFile(io.BytesIO(answer.content)) as archive:
        assert archive.testzip() is None
        found = {name.partition("/")[2]: archive.read(name) for name in archive.namelist()}
    assert found == {
        str(path.relative_to(directory)): path.read_bytes() for path in directory.rglob("*") if path.is_file()
    }
    bob = {"Authorization": running.client("bob")._http.headers["Authorization"]}
    assert httpx.get(f"{ann.url}/api/v1/jobs/{job.id}/files.zip", headers=bob).status_code == 404
    show(browser, running, job)
    browser.wait("document.querySelectorAll('#files li').length")
    browser.download_to(tmp_path)
    browser.click("#all-files")
    wait_for((tmp_path / f"density-peaks-{job.id[:8]}.zip").exists)


WEIGHT = """[...performance.getEntriesByType('resource'), ...performance.getEntriesByType('navigation')]
  .reduce((sum, each) => sum + each.transferSize, 0)"""


@pytest.mark.slow
@pytest.mark.parametrize(("rows", "most"), [(600, 150e3), (100_000, 500e3)])
def test_the_weight_of_the_page(browser, running, tmp_path, rows, most):
    rng = np.random.default_rng(0)
    np.save(tmp_path / "rows.npy", rng.normal(size=(rows, 2)) + 10 * rng.integers(0, 5, (rows, 1)))
    done = running.client("ann").submit("density-peaks", tmp_path / "rows.npy").wait()
    browser.call("Network.setCacheDisabled", cacheDisabled=True)
    show(browser, running, done)
    browser.wait(LOADED)
    weight = browser.run(WEIGHT)
    assert 10e3 < weight < most


@pytest.mark.slow
def test_a_service_that_goes_away_and_comes_back(browser, tmp_path):
    (tmp_path / "own").mkdir()
    service = Running(tmp_path / "own")
    try:
        np.save(tmp_path / "many.npy", np.random.default_rng(1).normal(size=(60_000, 32)))
        long = service.client("ann").submit("density-peaks", tmp_path / "many.npy", report=False)
        show(browser, service, long)
        browser.wait("document.querySelector('#title').innerText.includes('RUNNING')")
        assert not browser.run("document.querySelector('#offline')")
        service.web.kill()
        service.web.wait()
        browser.wait("document.querySelector('#offline')?.innerText.includes('does not answer')")
        browser.click("#cancel")  # without an answer: said once
        time.sleep(0.5)
        assert browser.run("document.querySelector('#problem').hidden")
        service.start()
        browser.wait("!document.querySelector('#offline')")
        assert browser.run("document.querySelector('#problem').hidden")
        browser.click("#cancel")
        browser.wait("document.querySelector('#title').innerText.includes('CANCELLED')")
    finally:
        service.stop()


def ways(browser):
    """Both schemes and two widths."""
    for scheme in ("light", "dark"):
        for width in (390, 1440):
            browser.scheme(scheme)
            browser.resize(width, 900)
            yield scheme, width


@pytest.mark.slow
def test_axe_finds_nothing_on_pages_of_jobs(browser, running, job, table, tmp_path):
    ann = running.client("ann")
    np.save(tmp_path / "bad.npy", np.full((50, 2), np.nan))
    failed = ann.submit("density-peaks", tmp_path / "bad.npy")
    wait_for(lambda: failed.refresh().state == "FAILED")
    doubted = ann.submit("density-peaks", table, n_clusters=12).wait()
    canopies = ann.submit("canopy", table).wait()
    for shown in (job, failed, doubted, canopies):
        show(browser, running, shown)
        browser.wait("document.querySelector('#title').innerText.length > 5")
        if shown in (job, doubted):
            browser.wait(LOADED)
        for part in ("#report", "#log-part"):
            browser.run(f"document.querySelector('{part}').open = true")
        for way in ways(browser):
            assert violations(browser) == [], (way, shown.info["method"], shown.state)


@pytest.mark.slow
def test_axe_finds_nothing_in_reports_and_numbers_are_whole(browser, running, job, table, tmp_path):
    ann = running.client("ann")
    make_bold(shape=(6, 6, 5), n_parcels=3, n_timepoints=40, noise=0.3).save(tmp_path)
    jobs = [
        job,
        ann.submit("fuzzy-c-means", table, n_clusters=3).wait(),
        ann.submit("nearest-neighbors", table, n_neighbors=4).wait(),
        ann.submit("parcellation", tmp_path / "bold.nii.gz", mask=tmp_path / "mask.nii.gz", n_parcels="2,3").wait(),
    ]
    split = """Array.from(document.querySelectorAll('td')).filter((cell) => {
        const range = document.createRange();
        const text = cell.firstChild;
        if (cell.children.length || !text || !/^[\\d.,e+-]+$/.test(text.data.trim())) return false;
        range.selectNodeContents(cell);
        return new Set(Array.from(range.getClientRects(), (each) => each.top)).size > 1;
      }).map((cell) => cell.textContent)"""
    for n, each in enumerate(jobs):
        report = each.download(tmp_path / str(n)) / "report.html"
        browser.open(f"file://{report}")
        for way in ways(browser):
            assert violations(browser) == [], (way, each.info["method"])
            assert browser.run(split) == [], (way, each.info["method"])
            assert browser.run("document.documentElement.scrollWidth <= innerWidth"), way


def test_a_waiting_job_has_its_place(browser, running, table, tmp_path):
    """Two long jobs take both slots, so two more jobs wait."""
    many = tmp_path / "many.npy"
    np.save(many, np.random.default_rng(1).normal(size=(200_000, 32)))
    ann = running.client("ann")
    long = [ann.submit("density-peaks", many, report=False) for _ in range(2)]
    waiting = [ann.submit("canopy", table) for _ in range(2)]
    try:
        wait_for(lambda: all(each.refresh().state == "RUNNING" for each in long))
        assert [ann.call("GET", f"/jobs/{each.id}/position") for each in waiting] == [{"before": 0}, {"before": 1}]
        assert ann.call("GET", f"/jobs/{long[0].id}/position") == {"before": None}
        for job, words in zip(waiting, ("this job is the next", "1 job starts before this job"), strict=True):
            show(browser, running, job)
            browser.wait(f"document.querySelector('#stage').innerText === 'Waiting for its turn: {words}'")
    finally:
        for each in (*waiting, *long):
            each.cancel()
