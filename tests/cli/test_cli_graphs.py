"""``mgclust run communities`` from outside: files of every kind, what it writes and says, what it refuses."""

from __future__ import annotations

import csv
import gzip
import json
import os
import re
from pathlib import Path

import numpy as np
import pytest

from mgclust import cli, load_result
from mgclust.algorithms import METHODS
from mgclust.output.file_run import open_sources
from support import graphs


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("MGCLUST_DEBUG", raising=False)
    edges, n = graphs.load_graph("karate")
    np.savez("karate.npz", edges=edges, n=n)
    return edges


@pytest.fixture
def run(capsys):
    def call(*args):
        code = cli.run_command(["run", "communities", *map(str, args), "-o", "out", "--cpu"])
        out, err = capsys.readouterr()
        return code, out, err

    return call


def test_writes_a_whole_result_and_says_so(run):
    code, out, err = run("karate.npz", "--strategy", "greedy")
    assert code == 0, err
    assert "34 nodes, 78 edges" in out and "3, of 8 to 17 nodes" in out and "modularity 0.3807" in out
    assert sorted(os.listdir("out")) == [
        "adjacency.png", "dendrogram.png", "labels.csv", "labels.npy", "merges.npy", "modularity.png",
        "modularity_history.npy", "report.html", "result.json",
    ]  # fmt: skip
    result = load_result("out")
    assert result.scores["n_clusters"] == 3 and result.scores["modularity"] == pytest.approx(0.3807, abs=5e-5)
    page = Path("out/report.html").read_text("utf-8")
    assert page.count("data:image/png;base64,") == 3 and "34 nodes and 78 unweighted edges" in page


@pytest.mark.parametrize("header", [True, False])
@pytest.mark.parametrize("index", [True, False])
def test_header_and_index_are_two_options(header, index):
    Path("edges.csv").write_text("1,5,7\n2,7,9\n3,9,5\n")
    graph = open_sources(METHODS["communities"], ["edges.csv"], header=header, index=index)
    assert graph.shape == (3 - header, 3 - index)
    assert set(graph.names.tolist()) == ({5, 7, 9} if index else {7, 9, 2, 3} if header else {1, 2, 3, 5, 7, 9})


def test_options_are_the_estimators(run):
    code, out, err = run("karate.npz", "--strategy", "parallel", "--n-clusters", 6, "--resolution", 1.5, "--json")
    assert code == 0, err
    found = json.loads(out)
    assert found["scores"]["n_clusters"] == 6 and found["parameters"]["resolution"] == 1.5
    assert found["diagnostics"]["rounds"]
    assert "rounds" in Path("out/report.html").read_text("utf-8")


def write_text(edges, path, header="", line="{} {}\n"):
    text = header + "".join(line.format(u, v) for u, v in edges.tolist())
    (gzip.open if path.endswith(".gz") else open)(path, "wt").write(text)


@pytest.mark.parametrize("path", ["g.txt", "g.tsv.gz", "g.csv", "g.mtx", "g.graph", "g.parquet"])
def test_files_of_every_kind(run, here, path):
    kind = path.split(".")[1]
    if kind == "mtx":
        header = "%%MatrixMarket matrix coordinate pattern symmetric\n34 34 78\n"
        write_text(here[:, ::-1] + 1, path, header)
    elif kind == "graph":
        rows = [np.sort(np.concatenate([here[here[:, a] == i, 1 - a] for a in (0, 1)])) + 1 for i in range(34)]
        Path(path).write_text("34 78\n" + "".join(" ".join(map(str, row)) + "\n" for row in rows))
    elif kind == "parquet":
        pandas = pytest.importorskip("pandas")
        pandas.DataFrame(here, columns=["source", "target"]).to_parquet(path)
    else:
        separator = {"txt": " ", "tsv": "\t", "csv": ","}[kind]
        write_text(here, path, "# nodes and edges\n" if kind == "txt" else "", f"{{}}{separator}{{}}\n")
    code, out, err = run(path, "--no-report", "--strategy", "greedy")
    assert code == 0, err
    assert "34 nodes, 78 edges" in out and "modularity 0.3807" in out


def test_names_are_written_back(run, here):
    write_text(here, "g.txt", line="member-{} member-{}\n")
    code, _, err = run("g.txt")
    assert code == 0, err
    with open("out/labels.csv", newline="") as file:
        rows = list(csv.reader(file))
    assert rows[0] == ["node", "label"] and len(rows) == 35 and rows[1][0] == "member-0"
    page = Path("out/report.html").read_text("utf-8")
    assert "some of its nodes" in page and "member-33" in np.load("out/names.npy").tolist()


def test_a_directed_file_is_said_to_be_and_what_was_done(run, here):
    write_text(here, "g.txt", "# Directed graph (each unordered pair of nodes is saved once)\n")
    code, _, err = run("g.txt")
    assert code == 0, err
    assert "warning: " in err and "directed, and the direction is dropped" in err
    assert "direction is dropped" in Path("out/report.html").read_text("utf-8")


def make_bad_inputs(edges):
    write_text(edges, "ok.txt")
    write_text(edges[:, [0, 1, 0]][:, :2], "weight.txt", line="{} {} 1\n")
    Path("negative.txt").write_text("0 1 2\n1 2 -3\n")
    Path("nan.txt").write_text("0 1 2\n1 2 nan\n")
    Path("line.txt").write_text("# a comment\n0 1\n1 2\n2\n")
    Path("word.txt").write_text("0 1 2\n1 2 heavy\n")
    Path("nothing.txt").write_text("# a comment\n")
    Path("range.mtx").write_text("%%MatrixMarket matrix coordinate pattern symmetric\n3 3 2\n2 1\n9 1\n")
    Path("short.mtx").write_text("%%MatrixMarket matrix coordinate pattern symmetric\n3 3 2\n2 1\n")
    Path("header.graph").write_text("3 5\n2\n1 3\n2\n")
    Path("short.npz").write_bytes(Path("karate.npz").read_bytes()[:200])
    write_text(edges, "whole.txt.gz")
    Path("short.txt.gz").write_bytes(Path("whole.txt.gz").read_bytes()[:60])
    np.save("pickle.npy", np.array([{}, {}], dtype=object), allow_pickle=True)
    np.save("flat.npy", np.arange(5))
    np.save("huge.npy", np.array([[0, 3_000_000_000]]))
    np.save("minus.npy", np.array([[0, -1]]))
    np.savez("range.npz", edges=np.array([[0, 7]]), n=5)


@pytest.mark.parametrize(
    ("args", "expected"),
    [
        ("negative.txt", "line 2"),
        ("nan.txt", "line 2"),
        ("line.txt", "line 4"),
        ("word.txt", "line 2"),
        ("nothing.txt", "empty"),
        ("range.mtx", "line 4"),
        ("short.mtx", "2"),
        ("header.graph", "5"),
        ("short.npz", "truncated"),
        ("short.txt.gz", "truncated"),
        ("pickle.npy", "pickle"),
        ("flat.npy", "shape"),
        ("huge.npy", "3000000000"),
        ("minus.npy", "-1"),
        ("range.npz", "n_nodes=5"),
        ("missing.txt", "missing.txt does not exist"),
        ("ok.xyz", "'.xyz'"),
        ("ok.txt --n-clusters 35", "n_clusters=35"),
        ("ok.txt --n-clusters 0", "n_clusters=0"),
        ("ok.txt --resolution -1", "resolution=-1"),
        ("ok.txt --strategy quick", "strategy='quick' should be one of"),
        ("ok.txt --mask ok.txt", "mask"),
        ("ok.txt --standardize zscore", "standardize"),
        ("ok.txt karate.npz", "one graph"),
    ],
)
def test_bad_input_is_one_sentence_and_leaves_nothing(run, here, args, expected):
    make_bad_inputs(here)
    Path("ok.xyz").write_text("1 2")
    before = sorted(os.listdir())
    code, out, err = run(*args.split())
    lines = [line for line in err.splitlines() if not re.match(r"\d\d:\d\d:\d\d ", line)]
    assert code == 2, err
    assert out == "" and len(lines) == 1 and lines[0].startswith("error: "), (out, err)
    assert expected in lines[0] and "Traceback" not in err
    assert sorted(os.listdir()) == before


def test_columns_and_the_number_of_nodes(run, here):
    write_text(here, "g.csv", "year,a,b\n", "1977,{},{}\n")
    code, out, err = run("g.csv", "--columns", "a,b", "--n-nodes", 40, "--no-report")
    assert code == 0, err
    assert "40 nodes, 78 edges" in out and len(np.load("out/labels.npy")) == 40
    code, _, err = run("g.csv", "--columns", "a,c", "--overwrite")
    assert code == 2 and "columns='c' is not a column of" in err and "'year', 'a', 'b'" in err


def test_a_graph_that_has_grown_begins_with_an_earlier_result(run):
    Path("before.csv").write_text("a,b\nb,c\na,c\nc,d\nd,e\ne,f\nd,f\n")
    Path("after.csv").write_text("a,b\nb,c\na,c\nc,d\nd,e\ne,f\nd,f\nf,new\ne,new\n")
    assert run("before.csv")[0] == 0
    os.rename("out", "before")
    Path("fixed.txt").write_text("a\nd\n")
    code, out, err = run("after.csv", "--init", "before", "--fixed", "fixed.txt")
    assert code == 0, err
    result = load_result("out")
    assert result.labels.tolist() == [0, 0, 0, 1, 1, 1, 1]
    assert result.parameters["init"] == "before" and result.parameters["fixed"] == "fixed.txt"
    np.save("labels.npy", [5, 5, 5, 2, 2, 2, -1])
    code, out, err = run("after.csv", "--init", "labels.npy", "--overwrite")
    assert code == 0, err
    assert load_result("out").labels.tolist() == [5, 5, 5, 2, 2, 2, 2] and "2, of 3 to 4 nodes" in out
    assert "5" in Path("out/report.html").read_text("utf-8")
    code, _, err = run("after.csv", "--fixed", "fixed.txt", "--overwrite")
    assert code != 0 and "init is missing" in err


def test_several_resolutions_share_a_run(run):
    code, _, err = run("karate.npz", "--resolutions", "1,0.3,3")
    assert code == 0, err
    result = load_result("out")
    assert result.arrays["candidates"].shape == (34, 3)
    assert "Resolutions" in Path("out/report.html").read_text("utf-8")
    assert sorted(os.listdir("out/candidates")) == ["0.3", "1.0", "3.0"]
    assert load_result("out/candidates/3.0").labels.tolist() == result.arrays["candidates"][:, 2].tolist()
