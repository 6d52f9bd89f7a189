"""Slices in three views with a slider: which voxels are shown where, and how the report shows them."""

from __future__ import annotations

import csv
import io
import re
import time

import numpy as np
import pytest
from PIL import Image

nibabel = pytest.importorskip("nibabel")

from mgclust import cli  # noqa: E402
from mgclust.datasets import make_bold  # noqa: E402
from mgclust.output.report import views as module  # noqa: E402
from mgclust.output.report import write_report  # noqa: E402
from mgclust.output.report.views import slice_views  # noqa: E402
from mgclust.results.result import Result  # noqa: E402
from mgclust.service.web.pages import policy  # noqa: E402
from support.browser import CHROMIUM, Browser  # noqa: E402

SHAPE = (6, 8, 5)
COLORS = np.array([[1.0, 0, 0], [0, 1, 0], [0, 0, 1], [1, 1, 0], [0, 1, 1], [1, 0, 1]])


def brain():
    """A volume whose axes point right, forward and up; its clusters have no symmetry."""
    volume = np.random.default_rng(0).integers(1, 7, SHAPE)
    volume[0, 3:] = volume[:, 7, 4] = volume[5, :, 0] = 0
    return volume


def pixels(data):
    return np.asarray(Image.open(io.BytesIO(data)).convert("RGBA"))


def slices_of(view):
    """The slices of a view, each as a list of rows of colours (None where it is transparent)."""
    image = pixels(view.clusters)
    height = len(image) // view.slices
    assert len(image) == height * view.slices
    return [
        [[tuple(p[:3]) if p[3] else None for p in row.tolist()] for row in image[k * height : (k + 1) * height]]
        for k in range(view.slices)
    ]


def expected_slice(volume, axis, k):
    """A slice of the brain by loops: rows from the top to the bottom, columns from the left to the right."""
    color = [None, *(tuple(int(255 * part) for part in color) for color in COLORS)]
    x, y, z = volume.shape
    at = {
        0: [[(k, j, h) for j in range(y)] for h in reversed(range(z))],  # back is left
        1: [[(i, k, h) for i in range(x)] for h in reversed(range(z))],  # left is left
        2: [[(i, j, k) for i in range(x)] for j in reversed(range(y))],  # left is left, front is up
    }[axis]
    rows = [[None, *(color[volume[voxel]] for voxel in row), None] for row in at]
    return [[None] * len(rows[0]), *rows, [None] * len(rows[0])]  # a margin of one voxel


AFFINES = {
    "as it is": (np.diag([2.0, 2, 3, 1]), lambda v: v),
    "left is right": (np.diag([-2.0, 2, 3, 1]), lambda v: v[::-1]),
    "upside down, from front to back": (np.diag([2.0, -2, -3, 1]), lambda v: v[:, ::-1, ::-1]),
    "axes in another order": (
        np.array([[0, 2.0, 0, 5], [0, 0, 2, 5], [3, 0, 0, 5], [0, 0, 0, 1]]), lambda v: v.transpose(2, 0, 1),
    ),
    "oblique": (
        np.array([[-1.88, 0.68, 0, 0], [0.68, 1.88, 0, 0], [0, 0, 3, 0], [0, 0, 0, 1]]), lambda v: v[::-1],
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", AFFINES)
def test_left_is_left_in_each_view(name):
    affine, stored = AFFINES[name]
    volume = brain()
    shown = slice_views(stored(volume), affine=affine, colors=COLORS)
    assert [view.name for view in shown.views] == ["sagittal", "coronal", "axial"]
    assert [view.ends for view in shown.views] == ["PASI", "LRSI", "LRAP"]
    assert [view.axes for view in shown.views] == [("x", "y", "z"), ("y", "x", "z"), ("z", "x", "y")]
    for axis, view in enumerate(shown.views):
        found = slices_of(view)
        assert len(found) == volume.shape[axis]
        for k, each in enumerate(found):
            assert each == expected_slice(volume, axis, k)
    sizes = np.linalg.norm(affine[:3, :3], axis=0)
    if name == "axes in another order":
        sizes = sizes[[1, 2, 0]]
    x, y, z = (np.array(SHAPE) + 2) * sizes
    np.testing.assert_allclose([(v.width, v.height) for v in shown.views], [(y, z), (x, z), (x, y)])


def test_positions_name_the_slices_that_they_show():
    volume = brain()
    affine = np.diag([-2.0, 2, 3, 1])
    affine[:3, 3] = 10, -8, 1
    shown = slice_views(volume[::-1], affine=affine, colors=COLORS)
    assert len(shown.positions) == 8  # as the longest axis has slices
    assert shown.positions[0].text == "x = 0, y = -8, z = 1 mm"  # the first voxel of x is stored last: 10 - 5 * 2
    assert shown.positions[-1].text == "x = 10, y = 6, z = 13 mm"
    for position in shown.positions:
        at = [float(text) for text in re.findall(r"= (-?[\d.]+)", position.text)]
        voxel = [(at[0] - 0) / 2, (at[1] + 8) / 2, (at[2] - 1) / 3]
        # The window shows the slice, and the lines of the other views cross its middle.
        np.testing.assert_allclose(position.shifts, [100 * k / n for k, n in zip(voxel, SHAPE, strict=True)])
        np.testing.assert_allclose(
            position.lines, [100 * (k + 1.5) / (n + 2) for k, n in zip(voxel, SHAPE, strict=True)]
        )


def test_unknown_orientation_names_no_side():
    shown = slice_views(brain()[::-1], affine=np.diag([2.0, 2, 3, 1]), oriented=False, colors=COLORS)
    assert [view.ends for view in shown.views] == [""] * 3
    assert shown.positions[0].text == "i = 0, j = 0, k = 0"
    assert slices_of(shown.views[2])[0] == expected_slice(brain()[::-1], 2, 0)


@pytest.mark.parametrize("volume", [np.zeros((3, 4, 2), int), np.ones((1, 1, 1), int), np.eye(4, dtype=int)[None]])
def test_odd_volumes(volume, tmp_path):
    colors = COLORS[: volume.max()]
    shown = slice_views(volume, volume + 0.5, affine=np.eye(4), colors=colors)
    assert all(pixels(view.background).shape == pixels(view.clusters).shape for view in shown.views)
    assert "aspect-ratio" in write_report(Result("silhouette"), tmp_path / "report.html", views=shown).read_text()


def test_the_background_is_grey_and_white_outside():
    values = np.arange(float(np.prod(SHAPE))).reshape(SHAPE)
    values[0] = np.nan
    shown = slice_views(np.ones(SHAPE, int), values, affine=np.eye(4), colors=COLORS[:1])
    grey = pixels(shown.views[2].background)[: SHAPE[1] + 2]
    assert (grey[1:-1, 1] == 255).all() and (grey[0] == 255).all()  # NaN, and the margin
    assert (np.diff(grey[1:-1, 3, 0].astype(int)) <= 0).all()  # brighter to the front, which is up
    assert 0 < shown.opacity < 1


def test_large_grids_get_small_pictures(monkeypatch):
    monkeypatch.setattr(module, "MAX_PIXELS", 20_000)
    rng = np.random.default_rng(0)
    volume = rng.integers(1, 400, (60, 70, 50))
    shown = slice_views(volume, rng.random(volume.shape), affine=np.eye(4), colors=rng.random((399, 3)))
    assert len(shown.positions) == module.MIN_POSITIONS
    assert sum(pixels(view.clusters)[..., 0].size for view in shown.views) < 25_000
    assert [view.width for view in shown.views] == [72, 62, 62]


def test_more_clusters_than_a_palette_holds():
    volume = np.arange(1, 321).reshape(8, 8, 5)
    colors = np.random.default_rng(0).integers(0, 256, (320, 3)) / 255
    image = pixels(slice_views(volume, affine=np.eye(4), colors=colors).views[2].clusters)
    first = image[:10][1:-1, 1:-1, :3][::-1].transpose(1, 0, 2)  # x, y
    np.testing.assert_array_equal(first, np.round(255 * colors[volume[:, :, 0] - 1]))


@pytest.fixture(scope="module")
def result(tmp_path_factory):
    """Result directory of a small series, written by the command line."""
    folder = tmp_path_factory.mktemp("views")
    make_bold(shape=(12, 14, 10), n_parcels=8).save(folder)
    mask, out = folder / "mask.nii.gz", folder / "out"
    arguments = ["parcellate", folder / "bold.nii.gz", "--mask", mask, "--n-parcels", "6,8", "-o", out, "--cpu"]
    assert cli.run_command([str(each) for each in arguments]) == 0
    return out


def test_the_report_has_a_slider_without_scripts(result):
    text = (result / "report.html").read_text("utf-8")
    assert "<script" not in text and "://" not in text and len(text) < 400_000
    assert text.count('<input type="radio"') == text.count("nth-of-type") == text.count('aria-label="x = ') == 14
    assert text.count(" checked>") == 1
    assert "8 clusters in 8 connected pieces." in text
    for name in ("Sagittal", "Coronal", "Axial"):
        assert re.search(f'alt="{name} slices of the clusters', text)
    assert (result / "label_slices.png").stat().st_size > 5_000 and "label slices" in text


@pytest.mark.skipif(CHROMIUM is None, reason="needs Chromium")
def test_the_slider_in_a_browser(result, tmp_path):
    """By mouse and by keyboard, also in the frame in which the service shows reports."""
    browser = Browser(tmp_path, 1100, 1000)
    try:
        browser.open((result / "report.html").as_uri())
        shown = "getComputedStyle(document.querySelector('.place'), '::after').content"
        before = browser.picture()
        left, top, width, height = browser.place(".slices input:nth-of-type(3)")
        assert width > 20 and height > 20
        browser.drag([(left + width / 2, top + height / 2)])
        label = browser.run("document.querySelectorAll('.slices input')[2].ariaLabel")
        assert browser.run(shown) == f'"{label}"' and browser.picture() != before
        browser.press("ArrowRight", 39)
        label = browser.run("document.querySelectorAll('.slices input')[3].ariaLabel")
        assert browser.run(shown) == f'"{label}"'

        # The windows show the slices through the voxel of the text.
        volume = nibabel.load(next(result.glob("*_dseg.nii.gz")))
        at = [float(text) for text in re.findall(r"= (-?[\d.]+)", label)]
        voxel = np.round(np.linalg.inv(volume.affine) @ [*at, 1])[:3].astype(int)
        lines = browser.run(
            "[...document.querySelectorAll('.window')].map((w) => { const r = w.getBoundingClientRect();"
            "const [v, h] = [...w.querySelectorAll('.line')].map((l) => l.getBoundingClientRect());"
            "return [v.left, h.bottom, r.left, r.right]; })"
        )
        value = int(np.asarray(volume.dataobj)[tuple(voxel)])
        with next(result.glob("*_dseg.tsv")).open() as file:
            hexadecimal = list(csv.DictReader(file, delimiter="\t"))[value - 1]["color"]
        color = np.array([int(hexadecimal[k : k + 2], 16) for k in (1, 3, 5)])
        image = np.asarray(Image.open(io.BytesIO(browser.picture())).convert("RGB")).astype(int)
        for x, y, start, stop in lines:
            assert start < x < stop
            seen = image[round(y) - 4, round(x) + 4]  # the same voxel, beside the lines
            greys = (seen - module.OPACITY * color) / (1 - module.OPACITY)
            assert np.ptp(greys) < 8, (seen, color)  # only grey is mixed in
        assert browser.errors == []
    finally:
        browser.close()


@pytest.mark.skipif(CHROMIUM is None, reason="needs Chromium")
def test_the_slider_in_the_frame_of_the_service(result, tmp_path):
    """The frame has no scripts and no origin, and the policy of the page of a job holds in it."""
    rules = "; ".join(rule for rule in policy("/jobs/x").split("; ") if "frame-ancestors" not in rule)
    page = tmp_path / "job.html"
    page.write_text(
        f'<!doctype html><meta http-equiv="Content-Security-Policy" content="{rules}">'
        '<iframe sandbox="" style="position:fixed;inset:0;width:1100px;height:1000px;border:0"></iframe>'
    )
    browser = Browser(tmp_path, 1100, 1000)
    try:
        browser.open((result / "report.html").as_uri())
        place = browser.place(".slices input:nth-of-type(3)")
        browser.open(page.as_uri())
        text = (result / "report.html").read_text("utf-8")
        call = (
            f"document.querySelector('iframe').src = URL.createObjectURL(new Blob([{text!r}], {{type: 'text/html'}}))"
        )
        browser.run(call)
        style = browser.style_in_frame(".slices input:nth-of-type(3)")
        assert style["appearance"] == "none"
        before = browser.style_in_frame(".window img")["transform"]
        end = time.monotonic() + 30
        while browser.style_in_frame(".window img")["transform"] == before:
            assert time.monotonic() < end, "the slider does not move the slices"
            browser.drag([(place[0] + place[2] / 2, place[1] + place[3] / 2)])
            time.sleep(0.1)
        assert browser.errors == []
    finally:
        browser.close()
