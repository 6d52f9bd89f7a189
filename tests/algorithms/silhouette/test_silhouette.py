"""Labels that a user brings, and what silhouettes are by definition; each case small enough to think through."""

import tracemalloc
import warnings

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.base import clone

from mgclust import AdaptiveAffinityPropagation, FuzzyCMeans, silhouette_samples, silhouette_score
from mgclust.algorithms import Silhouette
from mgclust.algorithms.fuzzy_c_means import run_spec as fuzzy_parameters
from mgclust.algorithms.silhouette import labels as label_numbers
from mgclust.algorithms.silhouette.labels import encode_labels
from mgclust.base.errors import InputError, InsufficientMemoryError, PrecisionWarning
from mgclust.data import open_dataset
from mgclust.data.labels import read_labels
from mgclust.engine.context import Context
from mgclust.results.result import Result
from oracles.density_peaks import CDIST_NAMES, METRICS

HERE = {"client": None, "device": "cpu"}


def rows(n=60, d=4, seed=0):
    rng = np.random.default_rng(seed)
    labels = np.arange(n) % 3
    return 3 + rng.normal(size=(n, d)) + 2 * rng.normal(size=(3, d))[labels], labels


@pytest.mark.parametrize("metric", METRICS)
def test_one_row_at_a_time(metric):
    """The definition in a loop."""
    from scipy.spatial.distance import cdist

    X, labels = rows()
    d = cdist(X, X, CDIST_NAMES[metric])
    expected = []
    for i, label in enumerate(labels):
        own = (labels == label) & (np.arange(len(X)) != i)
        a, b = d[i, own].mean(), min(d[i, labels == k].mean() for k in range(3) if k != label)
        expected.append((b - a) / max(a, b))
    found = silhouette_samples(X, labels, metric=metric, dtype="float64", **HERE)
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-12)
    assert silhouette_score(X, labels, metric=metric, dtype="float64", **HERE) == found.mean()


@pytest.mark.parametrize("metric", METRICS[:3])
def test_a_row_alone_has_silhouette_zero(metric):
    X, labels = rows()
    labels = labels.copy()
    labels[7] = 9
    found = silhouette_samples(X, labels, metric=metric, **HERE)
    assert found[7] == 0 and (found[np.arange(60) != 7] != 0).all()


@pytest.mark.parametrize("metric", METRICS[:3])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_rows_that_coincide(metric, dtype):
    """0 where every distance is 0, and 1 where only those within the cluster are."""
    same = np.full((6, 3), 1 / 3)
    assert (silhouette_samples(same, [0, 0, 0, 1, 1, 1], metric=metric, dtype=dtype, **HERE) == 0).all()
    two = np.repeat([[0.1, 0.2], [5.3, 0.7]], 4, axis=0)
    found = silhouette_samples(two, np.repeat([0, 1], 4), metric=metric, dtype=dtype, **HERE)
    np.testing.assert_allclose(found, 1, atol=1e-12)


def test_an_outlier_does_not_blur_the_others():
    """Sums in fixed point: their resolution depends on the largest value."""
    from sklearn.metrics import silhouette_samples as reference

    X, labels = rows(300)
    X[0] *= 1e6
    for metric in ("euclidean", "sqeuclidean"):
        found = silhouette_samples(X, labels, metric=metric, dtype="float64", **HERE)
        expected = reference(
            X, labels, metric=lambda a, b, p=metric: ((a - b) ** 2).sum() ** (0.5 + 0.5 * (p[0] == "s"))
        )
        np.testing.assert_allclose(found, expected, rtol=0, atol=1e-9)


def test_rows_far_from_the_origin():
    X, labels = rows()
    near = silhouette_samples(X, labels, **HERE)
    np.testing.assert_allclose(silhouette_samples(X + 2.0**24, labels, **HERE), near, atol=1e-6)


@pytest.mark.parametrize(
    ("metric", "dtype", "apart", "said"),
    [
        ("euclidean", "float32", 1e3, False),
        ("euclidean", "float32", 1e7, True),
        ("manhattan", "float32", 1e8, True),
        ("euclidean", "float32", 1e12, True),  # each group is one point in float32
        ("euclidean", "float64", 1e8, False),
        ("sqeuclidean", "float32", 1e8, False),  # takes float64
        ("sqeuclidean", "float32", 1e14, True),
    ],
)
def test_a_word_where_rounding_shows(metric, dtype, apart, said):
    """Groups far apart, of two clusters each: right within 1e-3, or with a warning."""
    rng = np.random.default_rng(4)
    inside, labels = 0.4 * rng.normal(size=(120, 2)), np.arange(120) % 4
    X = np.array([[0, 0], [5, 0], [0, apart], [5, apart]])[labels] + inside
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        found = silhouette_score(X, labels, metric=metric, dtype=dtype, **HERE)
    assert [each.category for each in caught] == [PrecisionWarning] * said
    assert all("rounding may change their distances" in str(each.message) for each in caught)
    wide = metric == "sqeuclidean" or dtype == "float64"
    assert all(f"in {'float64' if wide else 'float32'}:" in str(each.message) for each in caught)
    assert all((remedy in str(each.message)) == wide for each in caught for remedy in ["leave out far rows"])
    pairs = labels < 2
    halves = [
        silhouette_samples(each - each[0], part, metric=metric, dtype="float64", **HERE)
        for each, part in ((X[pairs], labels[pairs]), (X[~pairs], labels[~pairs]))
    ]
    if not said:
        np.testing.assert_allclose(found, np.concatenate(halves).mean(), atol=1e-3)


@pytest.mark.parametrize(("dtype", "apart", "said"), [("float32", 1e3, 0), ("float32", 1e7, 1), ("float64", 1e7, 0)])
@pytest.mark.parametrize(
    "model",
    [
        AdaptiveAffinityPropagation(preference=-100),
        AdaptiveAffinityPropagation(preference=-100, silhouette_metric="sqeuclidean", algorithm="sparse"),
        FuzzyCMeans(n_clusters_range=(3, 5), criterion="fuzzy_silhouette", random_state=0),
    ],
)
def test_a_word_where_rounding_shows_within_other_methods(model, dtype, apart, said, monkeypatch):
    """Silhouettes that compare candidates warn as `silhouette_score` does, once."""
    monkeypatch.setattr(fuzzy_parameters, "FEW_NUMBERS", 0)  # fewer numbers are computed in float64
    rng = np.random.default_rng(4)
    X = np.array([[0, 0], [5, 0], [0, apart], [5, apart]])[np.arange(120) % 4] + 0.4 * rng.normal(size=(120, 2))
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        clone(model).set_params(dtype=dtype, **HERE).fit(X)
    assert sum(each.category is PrecisionWarning for each in caught) == said


@pytest.mark.parametrize(("exponent", "said"), [(-45, True), (-38, False)])
def test_a_word_where_the_rounding_of_sums_shows(exponent, said):
    """Powers of two about 0 are not rounded; sums of so many distances are, by more than a row seems to move."""
    inside, labels = np.random.default_rng(0).integers(1, 8, 60), np.repeat([0, 1, 2], [60, 60, 6000])
    X = np.concatenate([2.0**exponent * inside, -(2.0**exponent) * inside, np.resize([1.0, -1, 0.5, -0.5], 6000)])
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        silhouette_samples(X[:, None], labels, dtype="float64", **HERE)
    assert [each.category for each in caught] == [PrecisionWarning] * said


@pytest.mark.parametrize(
    "labels",
    [
        [3, 3, 1, 1, 7],
        ["b", "b", "a", "a", "c"],
        np.array(["b", "b", "a", "a", "c"], dtype=object),
        [3.0, 3.0, 1.0, 1.0, 7.0],
        np.array([[3], [3], [1], [1], [7]]),
        np.array([3, 3, 1, 1, 7], dtype=np.uint8),
        np.array([3, 3, 1, 1, 7], dtype=object),
    ],
)
def test_labels_are_any_integers_or_strings(labels):
    codes, classes = encode_labels(labels, 5)
    assert codes.tolist() == [1, 1, 0, 0, 2] and codes.dtype == np.int32
    assert classes.tolist() in ([1, 3, 7], ["a", "b", "c"])


@pytest.mark.parametrize("dtype", [bool, *"bhilqBHILQ", ">u4", ">i8"])
@given(data=st.data())
@settings(max_examples=40, deadline=None)
def test_integers_are_numbered_as_by_sorting(dtype, data):
    """In pieces or not, at both ends of each type, and between the rows of a larger array."""
    dtype = np.dtype(dtype)
    top = 1 if dtype.kind == "b" else int(np.iinfo(dtype).max)
    apart = min(top, data.draw(st.sampled_from([1, 5, 299, 300, 301, 10**6])))
    lowest = data.draw(st.sampled_from([0, 1, top // 2, top - apart]).filter(lambda low: low + apart <= top))
    inside = data.draw(st.lists(st.integers(lowest, lowest + apart), min_size=2, max_size=60))
    array = np.array([lowest, lowest + apart, lowest, *inside], dtype)
    step = data.draw(st.sampled_from([1, 2, -1]))
    array = np.repeat(array, abs(step))[::step]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(label_numbers, "PIECE", data.draw(st.sampled_from([1, 7, 65_536])))
        patch.setattr(label_numbers, "SMALL_TABLE", 300)
        codes, classes = encode_labels(array, len(array))
    expected, inverse = np.unique(array if dtype.kind == "u" else array.astype(np.int64), return_inverse=True)
    assert codes.dtype == np.int32 and classes.dtype == expected.dtype
    np.testing.assert_array_equal(codes, inverse)
    np.testing.assert_array_equal(classes, expected)


@pytest.mark.parametrize("dtype", "bhilq")
def test_negative_labels_of_every_type_are_rejected(dtype):
    labels = np.array([0, 1, np.iinfo(dtype).min, 1, -1], dtype)
    with pytest.raises(InputError, match=rf"labels={labels[2]} in row 2 \(one of 2 negative labels\) should be >= 0"):
        encode_labels(labels, 5)


def test_no_labels_of_no_rows():
    with pytest.raises(InputError, match="n_clusters=0 should be >= 2"):
        encode_labels(np.zeros(0, np.int64), 0)


@pytest.mark.parametrize("dtype", [bool, np.int32, np.int64, np.uint64])
def test_numbering_integers_takes_little_more_than_the_codes(dtype):
    labels = (np.arange(1_000_000) % 2).astype(dtype)
    tracemalloc.start()
    try:
        codes, _ = encode_labels(labels, len(labels))
        assert tracemalloc.get_traced_memory()[1] < codes.nbytes + 4e6
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize(
    ("labels", "expected"),
    [
        ([0, 1, 0], "labels has 3 entries for n_samples=5 rows; give one label per row"),
        ([0, 1, -1, 1, -1], r"labels=-1 in row 2 \(one of 2 negative labels\) should be >= 0.*drop these rows"),
        ([4] * 5, r"n_clusters=1 should be >= 2 and <= n_samples - 1 = 4.*all rows have the same label"),
        ([0, 1, 2, 3, 4], "n_clusters=5 .* each row has its own label"),
        ([0.5, 1, 1, 0, 0], r"labels=0\.5 in row 0 should be an integer or a string"),
        ([0, 1, np.nan, 1, 0], "labels=nan in row 2"),
        (np.zeros((5, 2)), r"labels of shape \(5, 2\) should be one-dimensional"),
        ([[1], [1, 2], [], [1], [2]], "one label per row"),
        ([None, 1, 1, 2, 2], "labels of type object should be integers or strings"),
        (np.array([1, 2, 1, 2, 1], dtype=complex), "should be integers or strings"),
        (None, "labels=None should be a label for each row, or the path.*--labels FILE"),
    ],
)
def test_labels_that_fit_no_rows(labels, expected):
    with pytest.raises(InputError, match=expected):
        silhouette_samples(np.eye(5), labels, **HERE)


def write(path, text):
    path.write_text(text, encoding="utf-8")
    return path


CSV = {
    "ours": "row,label\n0,4\n1,4\n2,5\n",
    "with a halo": "row,label,halo\n0,4,0\n1,4,1\n2,5,0\n",
    "other order": "label;row\n5;2\n4;0\n4;1\n",
    "bare": "4\n4\n5\n\n",
    "headed": "cluster\n4\n4\n5\n",
    "headed by another name": "\ufeffregion\r\n4\r\n4\r\n5",
    "whole numbers": "4.0\n4.0\n5.0\n",
    "other columns": "x,Label,y\n0.1, 4 ,0.2\n0.1,4,0.2\n0.1,5,0.2\n",
}


@pytest.mark.parametrize("name", CSV)
def test_labels_from_text(name, tmp_path):
    assert read_labels(write(tmp_path / "l.csv", CSV[name])).tolist() == [4, 4, 5]


def test_labels_from_arrays_and_results(tmp_path):
    labels = np.array([4, 4, 5])
    np.save(tmp_path / "l.npy", labels)
    np.savez(tmp_path / "l.npz", X=np.eye(3), y=labels)
    np.savez_compressed(tmp_path / "one.npz", anything=labels)
    Result("x", labels).save(tmp_path / "result")
    sources = [tmp_path / name for name in ("l.npy", "l.npz", "one.npz", "result", "result/labels.csv")]
    for source in [*sources, f"file://{tmp_path}/l.npy"]:
        assert read_labels(source).tolist() == [4, 4, 5], source
    assert read_labels(write(tmp_path / "s.tsv", "row\tlabel\n0\tb\n1\ta\n")).tolist() == ["b", "a"]


@pytest.mark.parametrize("text", ["4\n4\n5", "label\r\n4\r\n4\r\n5\r\n\r\n", "\ufeff 4\n4 \n5\n", "truth\n4\n4\n5\n"])
def test_labels_a_line(text, tmp_path):
    assert read_labels(write(tmp_path / "l.txt", text)).tolist() == [4, 4, 5]


def test_labels_as_numpy_writes_them(tmp_path):
    np.savetxt(tmp_path / "l.txt", [4, 4, 5])
    assert read_labels(tmp_path / "l.txt").tolist() == [4, 4, 5]
    write(tmp_path / "l.txt", "bee\nant\nbee\n")
    assert read_labels(tmp_path / "l.txt").tolist() == ["bee", "ant", "bee"]


@pytest.mark.parametrize(
    ("name", "text", "expected"),
    [
        ("l.csv", "", "is empty; it should hold one label per line"),
        ("l.csv", "a,b\n1,2\n", "has 2 columns, none of them called 'label'"),
        ("l.csv", "row,label\n0,1\n1\n", "line 3 has no label, or not as many fields"),
        ("l.csv", "row,label\n0,1\n1,\n", "line 3 has no label"),
        ("l.csv", "row,label\n0,1\n0,2\n", "column 'row' should hold 0 to 1, each once"),
        ("l.npy", "nonsense", "is not a whole .npy array"),
        ("l.npz", "nonsense", "is damaged or truncated"),
        (
            "l.dat",
            "1\n2\n",
            r"should be \.npy, \.npz, \.csv, \.tsv, \.txt, \.gii, \.nii, \.nii\.gz or a result dir",
        ),
        ("l.txt", "\n\n", "is empty; it should hold one label per line"),
        ("l.txt", "1\n\n2\n", "line 2 holds no label, or several fields"),
        ("l.txt", "1.5 2.5 1\n0.5 1.5 2\n", "line 1 holds no label, or several fields; write one"),
        ("l.txt", "4\n4,5\n", "line 2 holds no label, or several fields"),
        ("l.csv", None, "does not exist"),
    ],
)
def test_files_without_labels(name, text, expected, tmp_path):
    if text is not None:
        write(tmp_path / name, text)
    with pytest.raises(InputError, match=expected):
        read_labels(tmp_path / name)


def test_arrays_that_are_refused(tmp_path):
    np.save(tmp_path / "pickle.npy", np.array([{}, 1], dtype=object), allow_pickle=True)
    with pytest.raises(InputError, match=r"not a whole \.npy array of numbers or strings"):
        read_labels(tmp_path / "pickle.npy")
    np.savez(tmp_path / "two.npz", a=[1], b=[2])
    with pytest.raises(InputError, match="holds a, b; name one array 'labels'"):
        read_labels(tmp_path / "two.npz")
    (tmp_path / "other").mkdir()
    with pytest.raises(InputError, match=r"no result\.json"):
        read_labels(tmp_path / "other")
    Result("x").save(tmp_path / "none")
    with pytest.raises(InputError, match="is a result without labels"):
        read_labels(tmp_path / "none")


def test_a_result_says_what_was_scored():
    X, labels = rows()
    names = np.array(["c", "a", "b"], dtype=object)[labels]
    names[0] = "alone"
    result = Silhouette(names, **HERE).fit_dataset(open_dataset(X))
    assert result.method == "silhouette" and result.arrays["classes"].tolist() == ["a", "alone", "b", "c"]
    samples, means = result.arrays["samples"], result.arrays["cluster_silhouettes"]
    assert result.scores["silhouette"] == samples.mean() and result.scores["n_clusters"] == 4
    assert result.scores["min_cluster_silhouette"] == means.min()
    np.testing.assert_allclose(means, [samples[result.labels == k].mean() for k in range(4)])
    (said,) = result.warnings
    assert said.startswith("1 of 4 clusters have one row, whose silhouette is 0 by definition: request fewer clusters")
    assert "classes" not in Silhouette(labels, **HERE).fit_dataset(open_dataset(X)).arrays
    assert "random_state" not in {option.name for option in Silhouette.options()}


def test_chunks_are_counted_by_memory(monkeypatch):
    """Any number of chunks gives the same bits."""
    X, labels = rows(3000)
    expected = {metric: silhouette_samples(X, labels, metric=metric, **HERE) for metric in METRICS}
    cut, counts = Context.cut_rows, []

    def few(self, row_bytes):
        whole = len(cut(self, row_bytes))
        with monkeypatch.context() as patch:
            patch.setattr(self, "spare", 2 * row_bytes * 700)
            found = cut(self, row_bytes)
        counts.append((whole, len(found), max(stop - start for start, stop in found)))
        return found

    monkeypatch.setattr(Context, "cut_rows", few)
    for metric in METRICS:
        np.testing.assert_array_equal(silhouette_samples(X, labels, metric=metric, **HERE), expected[metric])
    assert set(counts) == {(1, 5, 600)}


def test_too_little_memory_is_refused():
    X, labels = rows(3000)
    with pytest.raises(InsufficientMemoryError, match=r"labels and silhouettes .* What would fit"):
        silhouette_samples(X, labels, memory_limit=100_000, **HERE)


@pytest.mark.parametrize(("name", "own"), [("l2", "euclidean"), ("l1", "manhattan"), ("cityblock", "manhattan")])
def test_other_names_that_scikit_learn_has(name, own):
    X, labels = np.random.default_rng(0).normal(size=(30, 2)), np.arange(30) % 3
    place = {"device": "cpu", "client": None}
    expected = silhouette_samples(X, labels, metric=own, **place)
    np.testing.assert_array_equal(silhouette_samples(X, labels, metric=name, **place), expected)
    assert silhouette_score(X, labels, metric=name, **place) == pytest.approx(expected.mean())
