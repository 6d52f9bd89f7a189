"""Silhouettes against scikit-learn on the sets that travel with the repository, on 1 to 4 ranks, by command line."""

import hashlib
import json
import os
import tracemalloc
from pathlib import Path

import numpy as np
import pytest
from sklearn.metrics import silhouette_samples as reference

import mgclust
from mgclust import cli, load_result, silhouette_samples, silhouette_score
from mgclust.algorithms import base
from mgclust.algorithms.common.preparation import prepare_rows
from mgclust.algorithms.silhouette import ranks
from mgclust.algorithms.silhouette.ranks import score_labelings, score_with_matrix
from mgclust.data import open_dataset
from mgclust.engine.memory import Residency
from mgclust.engine.spmd import RunSpec, run
from mgclust.kernels.pairs.metrics import METRICS
from support.points import load_points

pytestmark = pytest.mark.xdist_group("workers")

SETS = {
    "rings": 600,
    "moons": 240,
    "blobs": 788,
    "wide032": 1024,
    "wide1024": 1024,
    "pendigits": 3500,
    "overlap3": 2500,
}
TOLERANCE = {"float32": 1e-6, "float64": 1e-12}
HERE = {"client": None, "device": "cpu"}


def labeled(name):
    X, y = load_points(name)
    return X[: SETS[name]].astype("float32"), np.unique(y[: SETS[name]], return_inverse=True)[1]


def expected(X, labels, metric):
    """scikit-learn in float64, whose Euclidean distances are direct differences here: its own have rounding errors."""
    from scipy.spatial.distance import cdist

    d = cdist(X.astype("float64"), X.astype("float64"), "cityblock" if metric == "manhattan" else metric)
    np.fill_diagonal(d, 0)
    return reference(d, labels, metric="precomputed")


@pytest.mark.quick("cpu-rings-*", "cpu-wide032-*")
@pytest.mark.parametrize("metric", METRICS)
@pytest.mark.parametrize("name", SETS)
def test_equals_scikit_learn(name, metric, device):
    X, labels = labeled(name)
    if metric == "correlation" and X.shape[1] < 3:
        pytest.skip("the correlation of two numbers is 1, -1 or undefined")
    want = expected(X, labels, metric)
    for dtype, tolerance in TOLERANCE.items():
        options = {"metric": metric, "dtype": dtype, "client": None, "device": device}
        found = silhouette_samples(X, labels, **options)
        np.testing.assert_allclose(found, want, rtol=0, atol=tolerance, err_msg=dtype)
        assert abs(silhouette_score(X, labels, **options) - want.mean()) <= tolerance


@pytest.mark.filterwarnings("ignore::mgclust.PrecisionWarning")
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("d", [3, 17, 64])
@pytest.mark.parametrize("metric", ["sqeuclidean", "cosine", "correlation"])
def test_clusters_of_equal_rows_have_silhouettes_of_0(metric, d, dtype, device, rng):
    """What rounding leaves of a distance 0 is none, also where sums of distances follow from means."""
    X = np.repeat(rng.normal(size=(1, d)) * 7.3 + 100.1, 50, axis=0)
    found = silhouette_samples(X, np.arange(50) % 3, metric=metric, dtype=dtype, client=None, device=device)
    assert (found == 0).all()


def scored(context, metric, labelings):
    """What score_labelings gives on one rank, and whether all ranks have the same."""
    measure = METRICS[metric]
    prepare_rows(context, measure)
    scores = score_labelings(context, measure, labelings, keep_samples=True)
    mine = hashlib.sha256(b"".join(s.samples.tobytes() + s.cluster_means.tobytes() for s in scores)).digest()
    assert context.comm.agree(mine) == mine
    assert score_labelings(context, measure, []) == []
    without = score_labelings(context, measure, labelings)
    assert [s.samples for s in without] == [None] * len(labelings)
    assert [s.score for s in without] == [s.score for s in scores]
    return scores


def several_labelings(n):
    rng = np.random.default_rng(1)
    alone = np.zeros(n, np.int32)
    alone[n // 2] = 1
    labelings = [rng.integers(0, k, n) for k in (2, 7, 40)] + [np.sort(rng.integers(0, 5, n)), alone]
    return [np.unique(codes, return_inverse=True)[1].astype(np.int32) for codes in labelings]


@pytest.mark.slow
@pytest.mark.parametrize("metric", METRICS)
def test_many_labelings_at_once_are_those_one_by_one(metric, device):
    from mgclust.engine.dask.cluster import connect

    X = labeled("pendigits")[0]
    labelings = several_labelings(len(X))
    with connect(None, device) as cluster:
        outcome = run(RunSpec(scored, {"metric": metric, "labelings": labelings}), open_dataset(X), cluster)
    for scores, codes in zip(outcome.value, labelings, strict=True):
        want = expected(X, codes, metric)
        np.testing.assert_allclose(scores.samples, want, rtol=0, atol=2e-6)
        np.testing.assert_allclose(scores.cluster_means, [want[codes == k].mean() for k in np.unique(codes)], atol=1e-6)
        assert scores.sizes.tolist() == np.bincount(codes).tolist()
        assert scores.score == scores.samples.mean()


@pytest.mark.slow
@pytest.mark.parametrize("metric", ["euclidean", "correlation"])
def test_many_labelings_have_the_same_bits_on_any_number_of_ranks(metric, ranks):
    X = labeled("pendigits")[0]
    parameters = {"metric": metric, "labelings": several_labelings(len(X))}
    bits = []
    for size in (1, 2, 4):
        with ranks(size) as cluster:
            found = run(RunSpec(scored, parameters), open_dataset(X), cluster).value
            bits.append([(s.samples.tobytes(), s.score, s.cluster_means.tobytes()) for s in found])
    assert bits[0] == bits[1] == bits[2]


@pytest.mark.quick("1")
@pytest.mark.parametrize("size", [1, 2])
def test_means_are_handed_over_unless_many_pairs_are_near(ranks, size):
    """As a device with fast products asks for; rows with many equals are left to differences."""
    rng = np.random.default_rng(0)
    labels = rng.integers(0, 3, 3000).astype(np.int32)
    X = rng.normal(size=(3000, 20)) + 2 * labels[:, None]
    equals = rng.integers(0, 2, (3000, 1)) * np.ones((1, 20))
    with ranks(size) as cluster:
        for rows, wanted in ((X, True), (equals, False)):
            source, spec = open_dataset(rows), RunSpec(scored_about, {"labelings": [labels], "near": 0.0})
            plain = run(spec, source, cluster).value
            found = run(RunSpec(scored_about, {"labelings": [labels], "near": 1 / 256}), source, cluster).value
            np.testing.assert_array_equal(found.pop(), plain.pop())
            assert plain == [None]
            if not wanted:
                assert found == [None]
                continue
            (means, spread), centred = found[0], rows - rows.mean(axis=0)
            own = [centred[labels == c] for c in range(3)]
            np.testing.assert_allclose(np.diff(means, axis=0), np.diff([part.mean(axis=0) for part in own], axis=0))
            np.testing.assert_allclose(spread, [part.var(axis=0).sum() for part in own])


def scored_about(context, labelings, near):
    """What `cluster_sums` is handed, and the silhouettes."""
    label_sums = context.kernels.label_sums
    with pytest.MonkeyPatch.context() as patch:
        handed, sums = [], label_sums.cluster_sums
        patch.setattr(label_sums, "near_share", lambda x, **shape: near)
        patch.setattr(label_sums, "cluster_sums", lambda *a, **k: handed.append(k["about"]) or sums(*a, **k))
        prepare_rows(context, METRICS["euclidean"])
        samples = score_labelings(context, METRICS["euclidean"], labelings, keep_samples=True)[0].samples
    assert all((about is None) == (handed[0] is None) for about in handed)
    return [handed[0], samples]


def scored_by_matrix(context, shift, labelings):
    from mgclust.kernels.affinity_propagation.messages import padded

    n, rows = context.dataset_shape[0], context.rows
    s = np.full((len(rows), padded(n)), -np.inf, context.dtype)
    for block in context.comm.stream(rows):
        for chunk in rows.chunks():
            at = slice(chunk.start - rows.start, chunk.stop - rows.start)
            s[at, block.start : block.stop] = shift - context.kernels.pairs.reduced_distances(
                chunk.x, block.x, norm="l2"
            )
    own = np.arange(len(rows))
    s[own, own + rows.start] = -np.inf
    highest = float(context.comm.all_reduce(s.max(initial=-np.inf).reshape(1), "max")[0])
    scores = score_with_matrix(context, s, highest, labelings, keep_samples=True)
    assert score_with_matrix(context, s, highest, []) == []
    return highest, [score.samples for score in scores]


@pytest.mark.slow
@pytest.mark.parametrize("shift", [0.0, 50.0])
def test_similarities_in_place_of_distances(shift, ranks):
    """Minus the similarity; where some are positive, shifted to be at least 1, except from a row to itself."""
    X = load_points("pendigits")[0][:2500].astype("float32") / 50
    labelings = several_labelings(len(X))
    found = []
    for size in (1, 2):
        with ranks(size) as cluster:
            parameters = {"shift": shift, "labelings": labelings}
            highest, samples = run(RunSpec(scored_by_matrix, parameters), open_dataset(X), cluster).value
            found.append(np.array(samples))
    np.testing.assert_array_equal(found[0], found[1])
    d = ((X.astype("float64")[:, None] - X) ** 2).sum(axis=2) + (highest + 1 - shift if highest > 0 else 0)
    np.fill_diagonal(d, 0)
    for samples, codes in zip(found[0], labelings, strict=True):
        np.testing.assert_allclose(samples, reference(d, codes, metric="precomputed"), rtol=0, atol=2e-6)


CASES = {
    # blocks hold 1,024 rows: 5,000 make five of them, and 700 leave ranks without any
    "2-D": (5000, 2, "euclidean", "float32"),
    "narrow": (5000, 7, "manhattan", "float32"),
    "wide": (3000, 60, "euclidean", "float32"),
    "double": (3000, 3, "euclidean", "float64"),
    "closed": (5000, 5, "sqeuclidean", "float32"),
    "cosine": (3000, 20, "cosine", "float64"),
    "correlation": (3000, 33, "correlation", "float32"),
    "fewer blocks than ranks": (700, 4, "euclidean", "float32"),
    "closed, fewer blocks than ranks": (700, 4, "sqeuclidean", "float32"),
}


def clouds(case):
    n, d, metric, dtype = CASES[case]
    rng = np.random.default_rng(n + d)
    labels = rng.integers(0, 12, n)
    X = (rng.normal(size=(n, d)) + 4 * rng.normal(size=(12, d))[labels]).astype("float32")
    return X, labels, {"metric": metric, "dtype": dtype, "device": "cpu"}


@pytest.fixture
def bits_on(ranks, monkeypatch):
    """Hash of the silhouettes on a number of ranks: what `connect` would open with so many workers."""

    def bits(size, X, labels, **options):
        monkeypatch.setattr(base, "connect", lambda **_: ranks(size))
        return hashlib.sha256(silhouette_samples(X, labels, **options).tobytes()).hexdigest()

    return bits


@pytest.mark.quick("2-D", "fewer blocks than ranks")
@pytest.mark.parametrize("case", CASES)
def test_same_bits_on_any_number_of_ranks(case, bits_on):
    X, labels, options = clouds(case)
    alone = bits_on(1, X, labels, **options)
    for size in (2, 3, 4):
        assert bits_on(size, X, labels, **options) == alone, f"on {size} ranks"


@pytest.mark.parametrize("case", ["2-D", "closed", "cosine"])
def test_same_bits_when_rows_are_streamed(case, bits_on, monkeypatch):
    """One block of own rows at a time, as if they did not fit."""
    X, labels, options = clouds(case)
    resident = bits_on(1, X, labels, **options)
    monkeypatch.setattr(Residency, "resident", lambda self, rows: False)
    monkeypatch.setattr(Residency, "chunk_rows", property(lambda self: self.block_rows))
    assert bits_on(1, X, labels, **options) == resident


def test_many_clusters_take_little_memory(rng, monkeypatch):
    """Distances to the means are there for some rows at a time, whatever memory there is: with the same bits."""
    X, labels = rng.normal(size=(3000, 4)), np.arange(3000) % 1500

    def samples():
        return silhouette_samples(X, labels, metric="sqeuclidean", device="cpu", client=None)

    samples()  # compiles
    tracemalloc.start()
    found = samples()
    assert tracemalloc.get_traced_memory()[1] < 25 << 20  # 32 bytes for each row and cluster would be 137 MiB
    tracemalloc.stop()
    monkeypatch.setitem(ranks.MEANS_BYTES, "cpu", 1 << 20)
    np.testing.assert_array_equal(samples(), found)


@pytest.fixture
def command(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("MGCLUST_DEBUG", raising=False)
    X, y = labeled("blobs")
    np.savez("points.npz", X=X, y=y)
    np.save("points.npy", X)
    np.save("labels.npy", y)

    def call(*args):
        code = cli.run_command([str(arg) for arg in args])
        return code, *capsys.readouterr()

    return call


def test_command_scores_a_result(command):
    assert command("run", "density-peaks", "points.npy", "-o", "clusters", "--n-clusters", 7, "--cpu")[0] == 0
    code, out, err = command("run", "silhouette", "points.npy", "-o", "out", "--labels", "clusters", "--cpu")
    assert code == 0, err
    assert "clusters  7, of" in out and "score     silhouette 0." in out and "lowest mean of a cluster" in out
    assert {"samples.npy", "cluster_silhouettes.npy", "silhouettes.png", "report.html"} <= set(os.listdir("out"))
    result = load_result("out")
    X, labels = np.load("points.npy"), load_result("clusters").labels
    np.testing.assert_array_equal(result.labels, labels)
    np.testing.assert_allclose(result.arrays["samples"], expected(X, labels, "euclidean"), atol=1e-6)
    assert len(result.source["labels_sha256"]) == 64 and result.parameters["labels"] == "clusters"
    page = Path("out/report.html").read_text("utf-8")
    assert "silhouette, mean of all rows" in page and "every pair, never stored" in page


def test_command_with_other_metrics_and_files(command):
    common = ("--cpu", "--no-report", "--overwrite")
    for metric in ("cosine", "manhattan"):
        code, out, err = command("run", "silhouette", "points.npz", "-o", "out", "--labels", "labels.npy",
                                 "--metric", metric, "--json", *common)  # fmt: skip
        assert code == 0, err
        scores, want = json.loads(out)["scores"], expected(*labeled("blobs"), metric)
        assert scores["silhouette"] == pytest.approx(want.mean(), abs=1e-6) and scores["ari"] == 1
    assert command("run", "density-peaks", "points.npy", "-o", "a", "--n-clusters", 7, "--halo", "--no-report")[0] == 0
    for labels in ("a", "a/labels.csv", "a/labels.npy"):
        code, out, err = command("run", "silhouette", "points.npy", "-o", "out", "--labels", labels, "--json", *common)
        assert code == 0, err
        assert json.loads(out)["scores"]["n_clusters"] == 7


@pytest.mark.parametrize(
    ("labels", "text"),
    [
        (None, "labels=None should be a label for each row"),
        ("missing.npy", "missing.npy does not exist"),
        (np.arange(5) % 2, "labels has 5 entries for n_samples=788 rows"),
        (np.arange(788) % 3 - 1, "labels=-1 in row 0 (one of 263 negative labels) should be >= 0"),
        (np.zeros(788, int), "n_clusters=1 should be >= 2"),
        (np.arange(788), "n_clusters=788 should be >= 2 and <= n_samples - 1 = 787"),
        (np.eye(788), "labels of shape (788, 788) should be one-dimensional"),
        (np.linspace(0, 1, 788), "should be an integer or a string"),
        (np.array(["a", "b"] * 394, dtype=object), "is not a whole .npy array of numbers or strings"),
        (b"noise", "is not a whole .npy array of numbers or strings"),
    ],
)
def test_bad_labels_are_a_sentence(command, labels, text):
    given = ()
    if isinstance(labels, np.ndarray):
        np.save("bad.npy", labels, allow_pickle=True)
    if isinstance(labels, bytes):
        Path("bad.npy").write_bytes(labels)
    if labels is not None:
        given = ("--labels", labels if isinstance(labels, str) else "bad.npy")
    before = sorted(os.listdir())
    code, out, err = command("run", "silhouette", "points.npy", "-o", "out", "--cpu", *given)
    assert code == 2 and out == "" and "Traceback" not in err
    assert err.startswith("error: ") and text in err and len(err.splitlines()) == 1
    assert err.count("write it with") <= 1
    assert sorted(os.listdir()) == before


def test_methods_lists_it(command):
    code, out, _ = command("methods", "--json")
    found = json.loads(out)["silhouette"]
    assert code == 0 and {p["name"] for p in found["parameters"]} == {"labels", "metric", "dtype", "memory_limit"}
    assert "silhouette_samples" in dir(mgclust)
