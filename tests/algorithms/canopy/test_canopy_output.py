"""What canopies leave behind: sparse arrays on disk, the picture, the report, and the command line's directory."""

import json
import os

import numpy as np
import pytest
from scipy.sparse import csr_array, issparse

from mgclust import Canopy, cli, load_result, plots
from mgclust.base.errors import InputError
from mgclust.data import open_dataset
from mgclust.output.report import draw_pictures, sample_rows, write_report
from mgclust.results.result import Result


@pytest.fixture
def sparse():
    dense = np.random.default_rng(0).random((40, 7)) < 0.2
    return Result("canopy", labels=np.zeros(40, np.int32), arrays={"memberships": csr_array(dense)})


def rows(n, d):
    return np.random.default_rng([n, d]).normal(size=(n, d))


def test_a_sparse_array_makes_the_round_trip(sparse, tmp_path):
    path = sparse.save(tmp_path / "out")
    assert sorted(os.listdir(path)) == ["labels.csv", "labels.npy", "memberships.npz", "result.json"]
    entry = json.loads((path / "result.json").read_text())["arrays"]["memberships"]
    assert entry == {"file": "memberships.npz", "shape": [40, 7], "dtype": "bool"}
    again = load_result(path).arrays["memberships"]
    assert issparse(again) and again.format == "csr" and again.dtype == bool
    assert (again != sparse.arrays["memberships"]).nnz == 0
    assert (load_result(load_result(path).save(tmp_path / "copy")).arrays["memberships"] != again).nnz == 0


@pytest.mark.parametrize("harm", [lambda data: data[:-30], lambda data: b"", lambda data: data[:100]])
def test_a_damaged_sparse_array_is_refused(harm, sparse, tmp_path):
    file = sparse.save(tmp_path / "out") / "memberships.npz"
    file.write_bytes(harm(file.read_bytes()))
    with pytest.raises(InputError, match=r"memberships\.npz' is missing or damaged"):
        load_result(tmp_path / "out")
    file.unlink()
    with pytest.raises(InputError, match=r"memberships\.npz' is missing or damaged"):
        load_result(tmp_path / "out")


def test_a_pickle_in_a_sparse_array_is_refused(sparse, tmp_path):
    file = sparse.save(tmp_path / "out") / "memberships.npz"
    with np.load(file) as archive:
        parts = dict(archive)
    np.savez(file, **{**parts, "data": np.array([{}, {}], dtype=object)})
    with pytest.raises(InputError, match="missing or damaged"):
        load_result(tmp_path / "out")


@pytest.mark.parametrize(
    ("d", "metric", "outlines"), [(2, "euclidean", 2), (2, "manhattan", 2), (2, "cosine", 0), (1, "euclidean", 0)]
)
def test_canopies_are_drawn_where_they_can_be(d, metric, outlines):
    X = rows(200, d) + 3
    centers = X[:3]
    labels = np.arange(200) % 3
    ax = plots.canopies(X, labels, centers, 1.5, 1.0, metric=metric)
    drawn = [c for c in ax.collections if type(c).__name__ == "PolyCollection"]
    assert len(drawn) == outlines and ax.get_title() == "3 canopies, 200 points"
    for found, t in zip(drawn, (1.5, 1.0), strict=False):
        corners = found.get_paths()[1].vertices - centers[1]
        reach = abs(corners).sum(axis=1) if metric == "manhattan" else np.linalg.norm(corners, axis=1)
        assert np.allclose(reach, t)
    assert plots.png(ax, dpi=40)[:4] == b"\x89PNG"


def test_many_canopies_are_drawn_lightly():
    X = rows(1200, 2)
    outlines = {}
    for count in (41, 1000, 1001):
        ax = plots.canopies(X, np.arange(1200) % count, X[:count], 0.5, 0.3, total=10**6)
        outlines[count] = sum(type(c).__name__ == "PolyCollection" for c in ax.collections)
    assert outlines == {41: 1, 1000: 1, 1001: 0}
    assert ax.get_title() == "1,001 canopies, 1,000,000 points (1,200 drawn)"


@pytest.mark.parametrize("d", [1, 2, 5])
def test_the_report_tells_of_canopies(d, tmp_path):
    X = rows(400, d)
    result = Canopy(client=None, device="cpu").fit(X).result_
    pictures = draw_pictures(result, sample_rows(open_dataset(X), result))
    assert list(pictures) == ["canopies"]
    text = write_report(result, tmp_path / "report.html", pictures).read_text("utf-8")
    k = result.scores["n_clusters"]
    for words in (
        "Canopies",
        f"{k:,} canopies",
        "rows within t1",
        "loose distance t1",
        "from the distances in a sample",
    ):
        assert words in text, words
    assert text.count("swatch") == k + text.count(".swatch")


def test_the_report_lists_the_largest_of_very_many_canopies(tmp_path):
    result = Canopy(2e-9, 1e-9, client=None, device="cpu").fit(rows(1500, 2)).result_
    text = write_report(result, tmp_path / "report.html", {}).read_text("utf-8")
    assert "1,500 canopies, of which the 1,000 with most rows" in text and "raise t1 and t2" in text


def test_the_command_line_writes_all_of_it(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    X = rows(500, 2)
    np.save("x.npy", X)
    arguments = ["--t1", "1.0", "--t2", "0.7", "--order", "random", "--random-state", "3", "--cpu"]
    assert cli.run_command(["run", "canopy", "x.npy", "-o", "out", *arguments]) == 0
    out = capsys.readouterr().out
    assert sorted(os.listdir("out")) == [
        "canopies.png", "centers.npy", "cluster_centers.npy", "labels.csv", "labels.npy",
        "memberships.npz", "report.html", "result.json",
    ]  # fmt: skip
    result = load_result("out")
    model = Canopy(1.0, 0.7, order="random", random_state=3, client=None, device="cpu").fit(X)
    assert (result.arrays["memberships"] != model.memberships_).nnz == 0
    assert (result.arrays["cluster_centers"] == X[model.cluster_centers_indices_]).all()
    assert f"canopies  {model.n_canopies_}, each row in" in out and "t1 1, t2 0.7" in out
    assert cli.run_command(["run", "canopy", "x.npy", "-o", "bad", "--t1", "1", "--t2", "2"]) == 2
    assert "t1=1 should be > t2=2" in capsys.readouterr().err and not os.path.exists("bad")
