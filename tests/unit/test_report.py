from html.parser import HTMLParser

import numpy as np
import pytest

from mgclust.data import open_dataset
from mgclust.report import draw_pictures, sample_rows, write_report
from mgclust.result import Result

HOSTILE = '<script>alert("x")</script>&amp;'


def make(n=60, k=3, **changes):
    rng = np.random.default_rng(0)
    arrays = {
        "rho": rng.random(n),
        "delta": rng.random(n),
        "centers": np.arange(k),
        "halo": np.arange(n) % 5 == 0,
    }
    fields = {
        "method": "density-peaks",
        "labels": np.arange(n) % k,
        "arrays": arrays,
        "scores": {"n_clusters": k, "dc": 0.25, "dc_error": 0.0, "ari": 0.99},
        "parameters": {"dc": None, "metric": "euclidean", "halo": True},
        "source": {"name": "x.npy", "shape": [n, 2], "dtype": "float32", "sha256": "ab" * 32},
        "timings": {"dc": 0.5, "rho": 1.25},
        "hardware": {"device": "cpu", "ranks": [{"cores": 2}]},
        "versions": {"mgclust": "0.1.0"},
        "diagnostics": {"exactness": {"algorithm": "grid", "rho_recomputed_rows": 12}},
    }
    return Result(**{**fields, **changes})


class Page(HTMLParser):
    """Collects text and tags; a tag that is not closed, or closed twice, fails."""

    def __init__(self, text):
        super().__init__()
        self.tags, self.open, self.text, self.sources = [], [], "", []
        self.feed(text)
        assert not self.open

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.sources += [value for name, value in attrs if name in ("src", "href")]
        if tag not in ("meta", "img", "br"):
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.text += data + "\n"


def page(result, tmp_path, **more):
    return Page(write_report(result, tmp_path / "report.html", **more).read_text("utf-8"))


def test_tells_the_whole_story(tmp_path):
    X = np.random.default_rng(1).normal(size=(60, 2))
    result = make(warnings=["one warning."])
    pictures = draw_pictures(result, sample_rows(open_dataset(X), result))
    assert list(pictures) == ["decision_graph", "scatter"]
    report = page(result, tmp_path, pictures=pictures, command=["mgclust", "run", "a b.npy"])
    for text in (
        "Density peaks: x.npy", "60 rows x 2 features", "0.990", "1.25 s", "1.75 s", "ab" * 32, "3 clusters",
        "one warning.", "euclidean", "near-linear", "exact: the same as sorting all distances",
        "mgclust run 'a b.npy'",
    ):  # fmt: skip
        assert text in report.text, text
    assert report.tags.count("img") == 2


def test_is_self_contained(tmp_path):
    report = page(make(), tmp_path)
    assert report.sources and all(source.startswith("data:image/png;base64,") for source in report.sources)
    assert not {"script", "link", "iframe"} & set(report.tags)


@pytest.mark.parametrize("where", ["name", "warning", "parameter", "command", "key"])
def test_text_from_outside_is_escaped(tmp_path, where):
    changes = {
        "name": {"source": {"name": HOSTILE, "shape": [60, 2]}},
        "warning": {"warnings": [HOSTILE]},
        "parameter": {"parameters": {"init": [HOSTILE]}},
        "key": {"diagnostics": {HOSTILE: HOSTILE}, "hardware": {HOSTILE: {HOSTILE: HOSTILE}}},
    }.get(where, {})
    report = page(make(**changes), tmp_path, command=[HOSTILE] if where == "command" else None)
    assert "script" not in report.tags
    assert "alert" in report.text


def test_a_result_without_clusters_or_anything(tmp_path):
    report = page(Result("silhouette"), tmp_path)
    assert "Silhouette" in report.text and "img" not in report.tags


def test_many_clusters(tmp_path):
    assert "700 clusters" in page(make(n=1400, k=700), tmp_path).text


def test_sampled_dc_states_its_error(tmp_path):
    report = page(make(scores={"dc": 0.25, "dc_error": 0.003}), tmp_path)
    assert "sampled, within 0.003 of the exact value" in report.text


def test_sample_is_fixed_and_holds_the_centres():
    X = np.random.default_rng(1).normal(size=(200_000, 3)).astype("float32")
    result = make(n=200_000)
    sample, again = (sample_rows(open_dataset(X), result, most=1000) for _ in range(2))
    np.testing.assert_array_equal(sample.index, again.index)
    np.testing.assert_array_equal(sample.rows, X[sample.index])
    np.testing.assert_array_equal(sample.centers, X[:3])
    assert len(sample.index) == 1000 and (np.diff(sample.index) > 0).all()
