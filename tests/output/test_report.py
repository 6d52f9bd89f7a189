from html.parser import HTMLParser

import numpy as np
import pytest

from mgclust.algorithms import FuzzyCMeans
from mgclust.algorithms.communities import presentation as of_communities
from mgclust.data import open_dataset
from mgclust.output.report import Sample, draw_pictures, sample_rows, write_report
from mgclust.results.result import Deferred, Result

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


def test_silhouettes_have_their_picture_and_column(tmp_path):
    rng = np.random.default_rng(0)
    arrays = {"samples": rng.random(60), "cluster_silhouettes": np.array([0.111, 0.222, 0.333]), "classes": list("xyz")}
    result = make(
        method="silhouette",
        arrays={name: np.asarray(array) for name, array in arrays.items()},
        scores={"n_clusters": 3, "silhouette": 0.25, "min_cluster_silhouette": 0.111},
        source={"name": "x.npy", "shape": [60, 2], "labels_sha256": "cd" * 32},
        diagnostics={"exactness": {"algorithm": "closed-form"}, "computed_in": "float64", "negative_rows": 4},
    )
    assert list(draw_pictures(result)) == ["silhouettes"]
    report = page(result, tmp_path)
    for text in (
        "silhouette, mean of all rows", "0.250", "lowest mean of a cluster", "0.111", "0.333", "computed in float64",
        "closed form about the means", "rows with a negative silhouette", "SHA-256 of the labels",
        "near 1, the row is well inside",
    ):  # fmt: skip
        assert text in report.text, text
    assert "\ny\n" in report.text


def scanned(**changes):
    k = np.array([9, 2, 3])
    table = {
        "n_clusters": k, "preference": -1.5 * k, "damping": np.array([0.5, 0.7, 0.85]), "n_iter": 100 * k,
        "silhouette": np.array([np.nan, 0.31, 0.62]), "min_cluster_silhouette": np.array([np.nan, 0.1, 0.52]),
        "net_similarity": -200.0 * k, "min_cluster_size": 20 - k,
    }  # fmt: skip
    fields = {
        "method": "adaptive-affinity-propagation",
        "arrays": {"centers": np.arange(3), **{f"scan_{name}": column for name, column in table.items()}},
        "scores": {"n_clusters": 3, "silhouette": 0.62, "net_similarity": -600.0, "converged": True, "n_iter": 2500},
        "parameters": {"affinity": "euclidean"},
        "diagnostics": {"log": ["iteration 150: 9 clusters", f"iteration 300: {HOSTILE}"], "stopped": "two clusters"},
    }
    return make(**{**fields, **changes})


def test_a_scan_has_its_picture_table_and_log(tmp_path):
    result = scanned()
    X = np.random.default_rng(1).normal(size=(60, 2))
    assert list(draw_pictures(result, sample_rows(open_dataset(X), result))) == ["scan", "scatter"]
    report = page(result, tmp_path)
    for text in (
        "Adaptive affinity propagation", "3 candidates of the scan", "0.6200", "undefined", "0.850", "net similarity",
        "yes", "2,500", "iteration 150: 9 clusters", "two clusters",
    ):  # fmt: skip
        assert text in report.text, text
    assert "script" not in report.tags and report.text.count("iteration 150") == 1
    text = (tmp_path / "report.html").read_text("utf-8")
    chosen = text[text.index('<tr class="chosen">') :].split("</tr>")[0]
    assert text.count('<tr class="chosen">') == 1 and "<td>3</td>" in chosen and "0.6200" in chosen
    rows = [int(part.split("<")[0]) for part in text[text.index("candidates of the scan") :].split("<tr")[2:5]
            for part in [part.split("<td>")[1]]]  # fmt: skip
    assert rows == [2, 3, 9]


def test_one_candidate_and_no_log(tmp_path):
    arrays = {name: array[-1:] for name, array in scanned().arrays.items()}
    report = page(scanned(arrays=arrays, diagnostics={}), tmp_path)
    assert "One candidate of the scan" in report.text and "Log" not in report.text


def test_similarities_are_not_drawn_as_points():
    result = scanned(parameters={"affinity": "precomputed"})
    assert sample_rows(open_dataset(np.eye(60)), result) is None
    assert list(draw_pictures(result, None)) == ["scan"]


@pytest.mark.slow
def test_fewer_rows_are_drawn_of_wide_data():
    result = make(n=3000)
    X = np.zeros((3000, 3)).astype("float32")
    wide = open_dataset(np.broadcast_to(X[:, :1], (3000, 40_000)))
    assert len(sample_rows(open_dataset(X), result).index) == 3000
    assert len(sample_rows(wide, result).index) == 1000


def test_affinity_propagation_that_did_not_converge(tmp_path):
    result = make(
        method="affinity-propagation",
        arrays={"centers": np.arange(3)},
        scores={"n_clusters": 3, "net_similarity": -12.5, "n_iter": 200, "converged": False, "preference": -3.25},
        parameters={"affinity": "cosine", "preference": None},
        diagnostics={},
        warnings=["the exemplars still changed; raise damping."],
    )
    report = page(result, tmp_path)
    for text in ("Affinity propagation: x.npy", "converged", "no", "200", "-12.50", "-3.250", "still changed"):
        assert text in report.text, text


def fuzzy(n=60, k=3, **changes):
    """A fuzzy partition: rows of cluster j belong to it by 0.8, every fifth row equally to 0 and 1."""
    labels = np.arange(n) % k
    memberships = np.full((n, k), 0.1)
    memberships[np.arange(n), labels] = 0.8
    memberships[::5] = [0.45, 0.45, 0.1]
    labels = memberships.argmax(axis=1)
    fields = {
        "method": "fuzzy-c-means",
        "labels": labels,
        "arrays": {
            "cluster_centers": np.array([[0.0, 0.0], [1.0, 0.0], [0.0, 2.0]]),
            "objective_history": np.array([9.0, 5.0, 4.5]),
            "memberships": memberships,
        },
        "scores": {
            "n_clusters": k, "objective": 4.5, "partition_coefficient": 0.61234, "partition_entropy": 0.71,
            "xie_beni": np.inf, "n_iter": 2,
        },
        "parameters": {"m": 2.0, "metric": "euclidean", "init": np.zeros((3, 2))},
        "diagnostics": {
            "stop_reason": "max_iter", "last_shift": 0.0625, "objectives": [4.75, 4.5], "best_init": 1,
            "computed_in": "float32",
        },
    }  # fmt: skip
    return make(**{**fields, **changes})


def test_fuzzy_clusters_have_their_pictures_scores_and_columns(tmp_path):
    X = np.random.default_rng(1).normal(size=(60, 2))
    result = fuzzy()
    sample = sample_rows(open_dataset(X), result)
    np.testing.assert_array_equal(sample.centers, result.arrays["cluster_centers"])
    assert list(draw_pictures(result, sample)) == ["objective", "scatter"]
    report = page(result, tmp_path)
    for text in (
        "Fuzzy c-means: x.npy", "objective J", "4.500", "partition coefficient (1 = crisp)", "0.612", "Xie-Beni", "inf",
        "sum of memberships", "mean membership of its rows", "0.800", "0.0625", "data's spread",
        "reached max_iter before it converged", "4.75, 4.5", "can rise only by rounding", "computed in float32",
    ):  # fmt: skip
        assert text in report.text, text
    sums = result.arrays["memberships"].sum(axis=0)
    assert all(f"\n{total:,.1f}\n" in report.text for total in sums)


def test_rows_between_clusters_are_faint():
    result = fuzzy()
    sample = Sample(np.arange(10), np.random.default_rng(1).normal(size=(10, 2)), None)
    faint = FuzzyCMeans.presentation.faint(result, sample.index)
    np.testing.assert_array_equal(faint, np.arange(10) % 5 == 0)
    assert FuzzyCMeans.presentation.faint(fuzzy(arrays={"memberships": np.ones((60, 1))}), sample.index) is None


def test_deferred_memberships_and_a_cluster_without_rows(tmp_path):
    def never(path):
        raise AssertionError("a report does not compute memberships")

    centers = np.zeros((4, 2))
    arrays = {**fuzzy().arrays, "cluster_centers": centers, "memberships": Deferred((60, 4), np.dtype("f4"), never)}
    result = fuzzy(arrays=arrays)
    X = np.random.default_rng(1).normal(size=(60, 2))
    assert list(draw_pictures(result, sample_rows(open_dataset(X), result))) == ["objective", "scatter"]
    assert "4 clusters" in page(result, tmp_path).text
    arrays["memberships"] = np.pad(fuzzy().arrays["memberships"], ((0, 0), (0, 1)))
    assert "no rows" in page(fuzzy(arrays=arrays), tmp_path).text


def test_centres_among_rows_of_unit_length_are_not_drawn_among_the_rows():
    X = np.random.default_rng(1).normal(size=(60, 2))
    assert sample_rows(open_dataset(X), fuzzy(parameters={"metric": "cosine"})).centers is None


def communities(names=None, **changes):
    """Two triangles that one edge joins, and a node by itself."""
    arrays = {
        "merges": np.array([[0, 1], [3, 4], [0, 2], [3, 5], [0, 3], [0, 6]], np.int32),
        "modularity_history": np.array([-0.17, -0.05, 0.07, 0.2, 0.3571, 0.0, -0.1]),
    }
    fields = {
        "method": "communities",
        "labels": np.array([0, 0, 0, 1, 1, 1, 2]),
        "arrays": arrays if names is None else {**arrays, "names": np.array(names)},
        "scores": {"n_clusters": 3, "modularity": 0.3571, "n_nodes": 7, "n_edges": 7},
        "parameters": {"strategy": "greedy", "resolution": 1.0},
        "source": {"name": "g.mtx", "shape": [7, 2], "n_nodes": 7, "n_edges": 7, "weighted": False, "directed": True},
        "diagnostics": {"strategy": "greedy", "computed_in": "int64", "n_components": 2},
    }
    return make(**{**fields, **changes})


class Edges:
    """A graph as a report sees it."""

    edges = np.array([[0, 1], [1, 2], [0, 2], [3, 4], [4, 5], [3, 5], [2, 3]])
    shape = edges.shape

    def read(self, start, stop):
        return self.edges[start:stop]


def test_communities_have_their_pictures_names_and_words(tmp_path):
    result = communities(names=[HOSTILE, *"bcdefg"])
    drawn = draw_pictures(result, sample_rows(Edges(), result))
    assert list(drawn) == ["modularity", "adjacency", "dendrogram"]
    report = page(result, tmp_path, pictures=drawn)
    for text in (
        "Communities: g.mtx", "7 nodes and 7 unweighted edges, computed in int64", "modularity Q",
        "0.3571", "3 communities", "d, e, f", "42.9 %", "connected components", "the best of all pairs",
    ):  # fmt: skip
        assert text in report.text, text
    assert "script" not in report.tags and "rounds" not in report.text


def test_rounds_of_communities_are_listed(tmp_path):
    rounds = [
        {"start": 0, "cycle": 0, "n_clusters": 7000, "levels": 0, "modularity": 0.25},
        {"start": 0, "cycle": 1, "n_clusters": 700, "levels": 3, "modularity": 0.35714},
    ]
    many = np.arange(3000)
    result = communities(labels=many, arrays={}, diagnostics={"strategy": "parallel", "rounds": rounds})
    assert list(draw_pictures(result)) == ["modularity"]
    report = page(result, tmp_path)
    for text in (
        "2 rounds",
        "levels of contraction",
        "7,000",
        "0.3571",
        "3,000 communities, of which the 1,000 largest",
    ):
        assert text in report.text, text


def test_a_graph_without_edges_is_reported(tmp_path):
    class Nothing(Edges):
        edges = np.zeros((0, 2), np.int32)
        shape = (0, 2)

    for n in (1, 4):
        arrays = {"merges": np.array([[0, k] for k in range(1, n)]).reshape(-1, 2), "modularity_history": np.zeros(n)}
        scores = {"n_clusters": n, "modularity": 0.0}
        result = communities(labels=np.arange(n), arrays=arrays, scores=scores, diagnostics={"n_components": n})
        drawn = draw_pictures(result, sample_rows(Nothing(), result))
        assert list(drawn) == ["modularity"] and "communit" in page(result, tmp_path, pictures=drawn).text


def test_of_very_many_edges_runs_from_all_over_are_drawn(monkeypatch):
    class Long(Edges):
        edges = np.column_stack([np.arange(100_000) % 7, np.arange(100_000)]).astype(np.int32)
        shape = edges.shape

    monkeypatch.setattr(of_communities, "MAX_EDGES", 6400)
    sample = sample_rows(Long(), communities())
    assert sample.total == 100_000 and len(sample.edges) == 6400
    assert len(np.unique(sample.edges[:, 1])) == 6400 and sample.edges[-1, 1] == 99_999
