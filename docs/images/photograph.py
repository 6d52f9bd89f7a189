"""Photograph the service's pages: ``PYTHONPATH=tests python docs/images/photograph.py`` writes service-*.png here.

Needs Chromium; the service is one of the tests', with jobs of its own.
"""

import tempfile
from io import BytesIO
from pathlib import Path

import numpy as np
from PIL import Image

from mgclust.datasets import make_gaussian_clusters, make_gaussian_rings
from support.browser import Browser, sign_in
from support.service_process import Running

HERE = Path(__file__).parent
COLOURS = 128
MAX_BYTES = 100_000


def main() -> None:
    """Submit jobs of several kinds, open the pages, keep what is seen."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        running = Running(folder)
        browser = Browser(folder, 1100, 760)
        try:
            photograph(running, browser, folder)
        finally:
            browser.close()
            running.stop()


def photograph(running: Running, browser: Browser, folder: Path) -> None:
    """Write the pictures."""
    ann = running.client("ann")
    np.save(folder / "rings.npy", make_gaussian_rings().X)
    np.save(folder / "clusters.npy", make_gaussian_clusters().X)
    bad = folder / "bad.npy"
    np.save(bad, np.full((50, 2), np.nan))
    many = folder / "many.npy"
    np.save(many, np.random.default_rng(0).normal(size=(60_000, 32)))
    ann.submit("fuzzy-c-means", folder / "rings.npy", n_clusters=15, report=False).wait()
    for _ in ann.submit("density-peaks", bad).watch():
        pass
    job = ann.submit("density-peaks", folder / "clusters.npy").wait()
    ann.call("POST", f"/jobs/{job.id}/centers/save", json={"n_clusters": 20})
    ann.submit("affinity-propagation", folder / "rings.npy", report=False).wait()
    long = ann.submit("density-peaks", many, report=False)

    sign_in(browser, running)
    browser.open(running.url)  # without the focus that follows a sign-in
    browser.wait("document.querySelectorAll('#jobs a').length >= 6")
    browser.wait("document.querySelector('#jobs progress')?.value > 0.1")
    keep(browser, "service-jobs.png")
    long.cancel()

    browser.resize(1100, 940)
    browser.open(f"{running.url}/jobs/{job.id}")
    browser.wait("document.querySelector('#count')?.textContent === '31 clusters'")
    for figure in ("graph", "ranks", "map"):  # what loads moves the graph
        browser.wait(f"!document.querySelector('#{figure}-figure').hidden")
    left, top, width, height = browser.place("#box")
    corners = [(left + x * width, top + (1 - y) * height) for x, y in ((0.998, 0.998), (0.6, 0.5), (0.33, 0.16))]
    browser.drag(corners)
    browser.wait("!document.querySelector('#save').disabled")
    keep(browser, "service-decision.png")

    values = {"n_clusters": list(range(11, 19))}
    sweep = ann.sweep("fuzzy-c-means", folder / "rings.npy", values, report=False, name="rings")
    for each in sweep.jobs:
        each.wait()
    browser.resize(1100, 760)
    browser.open(f"{running.url}/?sweep={sweep.id}")
    browser.wait("!document.querySelector('#sweep-best').hidden")
    keep(browser, "service-sweep.png")


def keep(browser: Browser, name: str) -> None:
    """Write what the window shows, in few colours."""
    picture = Image.open(BytesIO(browser.picture())).convert("RGB").quantize(COLOURS)
    picture.save(HERE / name, optimize=True)
    size = (HERE / name).stat().st_size
    assert size < MAX_BYTES, f"{name} has {size} bytes"


if __name__ == "__main__":
    main()
