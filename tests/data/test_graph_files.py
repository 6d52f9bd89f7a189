"""Graphs from files: the same edges from every format and in pieces, and sentences that name the line that is wrong."""

import gzip
import pickle
import subprocess
import sys
from pathlib import Path

import networkx
import numpy as np
import pandas as pd
import pytest
import scipy.io
import scipy.sparse
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mgclust import open_graph
from mgclust.base.errors import InputError
from mgclust.data import samples
from mgclust.data.graphs import text_chunks

EDGES = np.array([[0, 1], [0, 2], [1, 2], [2, 3], [3, 4], [4, 0]])
WEIGHTS = np.array([1.0, 2.5, 1.0, 0.5, 4.0, 0.25])
N = 6  # node 5 has no edge


def lines(weighted, separator="\t", first=()):
    rows = [
        separator.join([str(u), str(v)] + ([str(w)] if weighted else []))
        for (u, v), w in zip(EDGES.tolist(), WEIGHTS.tolist(), strict=True)
    ]
    return "\n".join([*first, *rows]) + "\n"


def write_npz(folder, weighted, save=np.savez, order="C", dtype=np.int32):
    extra = {"weights": WEIGHTS} if weighted else {}
    save(folder / "g.npz", edges=np.asarray(EDGES.astype(dtype), order=order), n=N, **extra)
    return folder / "g.npz"


def write_npy(folder, weighted):
    np.save(folder / "g.npy", np.asarray(np.column_stack([EDGES, WEIGHTS]) if weighted else EDGES, order="F"))
    return folder / "g.npy"


def write_parquet(folder, weighted):
    table = pd.DataFrame(EDGES, columns=["u", "v"])
    table = table.assign(w=WEIGHTS) if weighted else table
    table.to_parquet(folder / "g.parquet", row_group_size=4)
    return folder / "g.parquet"


def write_snap(folder, weighted):
    head = ["# Undirected graph (each unordered pair of nodes is saved once): web.txt", "# FromNodeId\tToNodeId", ""]
    (folder / "g.txt").write_text(lines(weighted, "\t", head))
    return folder / "g.txt"


def write_gz(folder, weighted):
    text = lines(weighted, "   ").replace("\n", " \r\n\r\n%note, in the middle\r\n", 2)
    with gzip.open(folder / "g.edges.gz", "wt", newline="") as file:
        file.write(text)
    return folder / "g.edges.gz"


def write_csv(folder, weighted):
    (folder / "g.csv").write_text("\ufeff" + lines(weighted, " , ", ["from,to" + ",w" * weighted]), encoding="utf-8")
    return folder / "g.csv"


def adjacency(weighted):
    upper = scipy.sparse.coo_array((WEIGHTS if weighted else np.ones(6), EDGES.T), shape=(N, N))
    return upper + upper.T


def write_sparse(folder, weighted):
    scipy.sparse.save_npz(folder / "s.npz", adjacency(weighted).tocsr())
    return folder / "s.npz"


def write_mtx(folder, weighted):
    with gzip.open(folder / "g.mtx.gz", "wb") as file:
        scipy.io.mmwrite(file, adjacency(weighted), field="real" if weighted else "pattern", symmetry="symmetric")
    return folder / "g.mtx.gz"


def write_metis(folder, weighted):
    lists = [["7 7"] if weighted else [] for _ in range(N)]
    for (u, v), w in zip(EDGES.tolist(), WEIGHTS.tolist(), strict=True):
        for node, other in ((u, v), (v, u)):
            lists[node].append(f"{other + 1} {w}" if weighted else f"{other + 1}")
    text = [f"{N} {len(EDGES)}" + " 11 2" * weighted, "% a comment", *map(" ".join, lists)]
    (folder / "g.graph").write_text("\n".join(text) + "\n")
    return folder / "g.graph"


WRITERS = {
    "npz": write_npz,
    "compressed": lambda *a: write_npz(*a, save=np.savez_compressed),
    "npz by columns": lambda *a: write_npz(*a, save=np.savez_compressed, order="F", dtype=np.uint16),
    "npy": write_npy,
    "sparse": write_sparse,
    "parquet": write_parquet,
    "snap": write_snap,
    "gz": write_gz,
    "csv": write_csv,
    "mtx": write_mtx,
    "metis": write_metis,
}
KNOWS_N = ("npz", "sparse", "compressed", "npz by columns", "mtx", "metis")


def as_set(graph):
    rows = graph.read(0, graph.shape[0]).tolist()
    names = range(graph.n_nodes) if graph.names is None else graph.names.tolist()
    pairs = {tuple(sorted((names[int(u)], names[int(v)]))): (w[0] if w else 1.0) for u, v, *w in rows}
    assert len(pairs) == len(rows)
    return pairs


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("kind", WRITERS)
def test_the_same_edges_from_every_format(tmp_path, monkeypatch, kind, weighted):
    monkeypatch.setattr(text_chunks, "CHUNK_BYTES", 9)  # less than some lines have
    path = WRITERS[kind](tmp_path, weighted)
    graph = open_graph(path)
    assert graph.n_nodes == (N if kind in KNOWS_N else 5)
    expected = {tuple(sorted(e)): w if weighted else 1.0 for e, w in zip(EDGES.tolist(), WEIGHTS.tolist(), strict=True)}
    assert as_set(graph) == expected
    assert (graph.names, graph.directed, graph.warnings) == (None, False, [])
    whole = graph.read(0, 6)
    assert whole.dtype == graph.dtype == (np.float64 if weighted else np.int32) and whole.flags.c_contiguous
    again = pickle.loads(pickle.dumps(graph))
    for start, stop in ((2, 5), (5, 6), (0, 1), (3, 3)):
        np.testing.assert_array_equal(again.read(start, stop), whole[start:stop])
    assert open_graph(path, n_nodes=N).n_nodes == N
    assert len(graph.fingerprint()) == 64 and graph.describe()["n_edges"] == 6


@pytest.mark.parametrize("suffix", ["txt", "csv", "parquet"])
def test_ids_with_gaps_and_names(tmp_path, suffix):
    for ids, kind in (([900, 20, 10**12, 20], "i"), (["x y", "Åsa", "b", "Åsa"], "U")):
        table = pd.DataFrame({"source": [ids[0], ids[2]], "target": [ids[1], ids[3]], "weight": [2.0, 3.0]})
        path = tmp_path / f"g.{suffix}"
        if suffix == "parquet":
            table.to_parquet(path)
        else:
            table.to_csv(path, index=False, sep="\t" if suffix == "txt" else ",", header=suffix == "csv")
        graph = pickle.loads(pickle.dumps(open_graph(path)))
        assert graph.names.dtype.kind == kind and graph.names.tolist() == sorted(set(ids))
        assert as_set(graph) == {tuple(sorted(ids[:2])): 2.0, tuple(sorted(ids[2:])): 3.0}


def test_columns_and_n_nodes(tmp_path):
    path = tmp_path / "g.csv"
    path.write_text("year,source,target,weight\n1999,0,1,2\n2000,3,1,4\n")
    assert open_graph(path).read(0, 2).tolist() == [[0, 1, 2], [2, 1, 4]]
    graph = open_graph(path, n_nodes=9, columns=["target", "source"])
    assert graph.n_nodes == 9 and graph.read(0, 2).tolist() == [[1, 0], [1, 3]]
    path.write_text("0 1 1217567877\n1 2 1217567878\n")
    assert open_graph(path, columns=[0, 1]).read(0, 2).tolist() == [[0, 1], [1, 2]]
    path.write_text("# nothing\n")
    assert open_graph(path, n_nodes=2).shape == (0, 2)


def test_direction_is_dropped_and_said(tmp_path):
    (tmp_path / "a.txt").write_text("# Directed graph: a.txt\n0\t1\n1\t0\n")
    (tmp_path / "a.mtx").write_text("%%MatrixMarket matrix coordinate integer general\n%\n2 2 2\n1 2 1\n2 1 3\n")
    for name in ("a.txt", "a.mtx"):
        graph = open_graph(tmp_path / name)
        assert graph.directed and "is directed, and the direction is dropped" in graph.warnings[0]
        assert graph.read(0, 2)[:, :2].tolist() == [[0, 1], [1, 0]]


def test_labels_and_names_of_an_npz(tmp_path):
    np.savez(tmp_path / "g.npz", edges=EDGES, labels=np.arange(5), names=np.array(list("abcde")))
    graph = open_graph(tmp_path / "g.npz")
    assert graph.n_nodes == 5 and graph.labels.tolist() == [0, 1, 2, 3, 4] and graph.names.tolist() == list("abcde")


@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_any_list_of_edges_in_any_pieces(tmp_path, data):
    """Whatever the ids, the separators, the comments and the pieces, edges come back in their order."""
    ids = st.integers(0, data.draw(st.sampled_from([3, 100, 2**40])))
    edges = data.draw(st.lists(st.tuples(ids, ids), min_size=1, max_size=40))
    gap = data.draw(st.sampled_from([" ", "\t", "  ", ",", " \t "]))
    between = data.draw(st.sampled_from(["\n", "\r\n", "\n\n", " \n"]))
    text = between.join(f"{u}{gap}{v}" for u, v in edges)
    comment = data.draw(st.integers(0, len(edges)))
    text = "# begin\n" * (comment % 3) + text + data.draw(st.sampled_from(["", "\n", "\n# end", "\n\n"]))
    path = tmp_path / data.draw(st.sampled_from(["g.txt", "g.csv", "g.el.gz"]))
    path.write_bytes(gzip.compress(text.encode()) if path.suffix == ".gz" else text.encode())
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(text_chunks, "CHUNK_BYTES", data.draw(st.integers(1, 200)))
        graph = open_graph(path)
        start = data.draw(st.integers(0, len(edges)))
        rows = [*graph.read(start, len(edges)).tolist(), *graph.read(0, start).tolist()]
    names = np.arange(graph.n_nodes) if graph.names is None else graph.names
    assert sorted(set(names.tolist())) == sorted({i for edge in edges for i in edge})
    back = [tuple(names[edge].tolist()) for edge in rows]
    assert back == edges[start:] + edges[:start]


MALFORMED = {
    "one field": ("0 1\n\n# note\n1\n2 3\n", r"line 4 \('1'\): 1 fields where the first edge has 2"),
    "too many": ("0 1\n1 2 3\n", r"line 2 \('1 2 3'\): 3 fields"),
    "a word": ("0 1\n1 two\n2 3\n4 5\n", r"line 2 \('1 two'\): node 'two' is not an integer"),
    "points": ("0.5 1.5\n2.5 3.5\n", "line 1 .* ids should be integers, unless most are names"),
    "a fraction": ("0 1\n1 2.5\n", r"line 2 .* node '2.5' is not an integer"),
    "negative": ("0 1\n1 -2\n", r"line 2 .* node id -2 is negative"),
    "huge": ("0 1\n1 99999999999999999999\n", r"line 2 .* 99999999999999999999 should be below 2\*\*63"),
    "negative weight": ("0 1 1\n1 2 -3\n", r"line 2 .* weight -3 should be a finite number >= 0"),
    "NaN weight": ("0 1 1\n1 2 nan\n", r"line 2 .* weight nan should be"),
    "infinite weight": ("0 1 1\n1 2 inf\n", r"line 2 .* weight inf should be"),
    "no weight": ("0 1 1\n1 2 x\n", r"line 2 .* weight 'x' is not a number"),
    "empty field": ("0,1\n1,\n2,3\n", r"line 2 .* node '' is not an integer"),
    "no edge": ("# nothing\n", "empty graph"),
    "nothing at all": ("", "empty graph"),
    "binary": ("0 1\0\n", "not text"),
    "four columns": ("1 2 3 4\n", r"4 columns .* source=\.\.\. and target="),
    "bipartite": ("% bip unweighted\n1 1\n", "bipartite"),
}


@pytest.mark.parametrize("case", MALFORMED)
def test_malformed_lines(tmp_path, monkeypatch, case):
    monkeypatch.setattr(text_chunks, "CHUNK_BYTES", 8)
    text, sentence = MALFORMED[case]
    (tmp_path / "g.txt").write_text(text)
    with pytest.raises(InputError, match=sentence):
        open_graph(tmp_path / "g.txt")


def test_ids_out_of_a_given_range(tmp_path):
    (tmp_path / "g.txt").write_text("# head\n0 1\n3 7\n")
    with pytest.raises(InputError, match=r"line 3 \('3 7'\): node id 7 is out of range: n_nodes=5"):
        open_graph(tmp_path / "g.txt", n_nodes=5)


MTX = "%%MatrixMarket matrix coordinate pattern symmetric\n"
WRONG = {
    "a.mtx": [
        ("3 3 2\n2 1\n3 1\n", "does not begin with %%MatrixMarket"),
        (MTX.replace("coordinate", "array") + "2 2\n", "'matrix array pattern symmetric'; a graph should be"),
        (MTX + "3 2 1\n2 1\n", "3 x 2; an adjacency matrix should be square"),
        (MTX + "3 3\n", "line 2 should be three numbers"),
        (MTX + "3 3 2\n2 1\n", "has 1 entries, but its line of sizes states 2"),
        (MTX + "3 3 1\n4 1\n", r"line 3 \('4 1'\): node id 4 is out of range: n_nodes=3, .* at most 3;"),
        (MTX + "3 3 1\n0 1\n", r"line 3 \('0 1'\): node id 0 is too small; ids should be >= 1"),
        (MTX + "0 0 0\n", "empty graph"),
    ],
    "a.graph": [
        ("2\n2\n1\n", r"line 1 \('2'\) should be 2 to 4 numbers"),
        ("3 1\n2\n1\n", "lines for 2 nodes, but its first line states 3"),
        ("2 2\n2\n1\n", "has 1 edges, but its first line states 2"),
        ("2 1\n2\n\n", "lists an edge only at one of its nodes"),
        ("2 1 1\n2 5\n1 6\n", "or with two weights"),
        ("2 1\n3\n1\n", r"line 2 \('3'\): node id 3 is out of range"),
        ("% c\n2 1\n2\n% c\n1\n1\n", r"line 6 \('1'\) comes after the last node: the first line states n_nodes=2"),
        ("2 1\n2\nx\n", r"line 3 \('x'\): 'x' is not a number"),
        ("2 1 1\n2\n1 1\n", r"line 2 \('2'\) does not have neighbours with a weight each"),
        ("2 1 1\n2 -1\n1 -1\n", r"line 2 \('2 -1'\): weight -1.0 should be"),
        ("2 1 7\n2\n1\n", "format 7 should be"),
        ("", "should be 2 to 4 numbers"),
    ],
}


@pytest.mark.parametrize(("name", "text", "sentence"), [(n, *case) for n, cases in WRONG.items() for case in cases])
def test_wrong_matrices_and_lists_of_neighbours(tmp_path, name, text, sentence):
    (tmp_path / name).write_text(text)
    with pytest.raises(InputError, match=sentence):
        open_graph(tmp_path / name)


def test_loops_in_lists_of_neighbours(tmp_path):
    (tmp_path / "g.metis").write_text("2 2\n1 2\n1\n\n\n")
    assert open_graph(tmp_path / "g.metis").read(0, 2).tolist() == [[0, 0], [0, 1]]


def refused(path, sentence, **options):
    with pytest.raises(InputError, match=sentence):
        graph = open_graph(path, **options)
        graph.read(0, graph.shape[0])


def test_damaged_files(tmp_path):
    for save in (np.savez, np.savez_compressed):
        path = write_npz(tmp_path, False, save=save)
        path.write_bytes(path.read_bytes()[:-40])
        refused(path, "damaged or truncated")
    path = tmp_path / "g.txt.gz"
    content = gzip.compress(lines(False).encode() * 1000)
    path.write_bytes(content[: len(content) // 2])
    refused(path, "damaged or truncated")
    path.write_bytes(b"0 1\n")
    refused(path, "cannot be read: Not a gzipped file")
    np.savez(tmp_path / "p.npz", edges=np.array([[0, "x"]], dtype=object))
    refused(tmp_path / "p.npz", "holds a pickle")
    np.savez(tmp_path / "p.npz", edges=EDGES, n=6, names=np.array([None] * 6))
    refused(tmp_path / "p.npz", "holds a pickle")
    (tmp_path / "g.parquet").write_bytes(b"PAR1")
    refused(tmp_path / "g.parquet", "not a whole Parquet file")


def test_wrong_files(tmp_path):
    path = tmp_path / "g.npz"
    np.savez(path, X=EDGES)
    refused(path, "has no array 'edges'")
    np.savez(path, edges=EDGES, n=3)
    refused(path, r"row 3 of .* node id 3 is out of range: n_nodes=3")
    np.savez(path, edges=EDGES, n=6)
    refused(path, "n_nodes=7 should be 6", n_nodes=7)
    refused(path, "leave it out", columns=[0, 1])
    np.savez(path, edges=EDGES, n=0)
    refused(path, "empty graph")
    np.savez(path, edges=EDGES, n=6, weights=[1.0])
    refused(path, r"weights of .* shape \(1,\)")
    np.savez(path, edges=EDGES, n=6, weights=np.array([1, 1, 1, 1, 1, -1.0]))
    refused(path, "row 5 .* weight -1.0")
    np.savez(path, edges=EDGES, n=6, labels=np.zeros(5))
    refused(path, "labels of")
    np.savez(path, edges=EDGES + 2**31)
    refused(path, "node id 2147483648 should be at most")
    np.save(tmp_path / "g.npy", np.zeros((3, 4)))
    refused(tmp_path / "g.npy", r"\(3, 4\); edges should be \(m, 2\)")
    np.save(tmp_path / "g.npy", np.zeros((0, 2)))
    refused(tmp_path / "g.npy", "empty graph")
    refused(tmp_path / "missing.txt", "does not exist")
    refused(tmp_path / "missing", "does not exist, and its suffix is not one of")
    (tmp_path / "g.pdf").write_bytes(b"x")
    refused(tmp_path / "g.pdf", "has suffix '.pdf'; it should be ")
    (tmp_path / "g.txt").write_bytes("0 1\nÅ b\n".encode("latin-1"))
    refused(tmp_path / "g.txt", "line 2 is not text in UTF-8")
    (tmp_path / "g.txt").write_text("a b\nc d\n")
    refused(tmp_path / "g.txt", "n_nodes=9 needs nodes that are numbers", n_nodes=9)
    pd.DataFrame({"u": [0, None], "v": ["a", "b"]}).to_parquet(tmp_path / "g.parquet")
    refused(tmp_path / "g.parquet", "column 'u' holds double")
    pd.DataFrame({"u": ["a", None], "v": ["a", "b"]}).to_parquet(tmp_path / "g.parquet")
    refused(tmp_path / "g.parquet", "row 1 of .* has nothing in column 'u'")


def test_the_sample():
    graph = samples.load("lesmis")
    assert (graph.name, graph.n_nodes, graph.shape) == ("lesmis", 77, (254, 3))
    assert graph.names[11] == "Valjean" and graph.read(0, 254)[:, 2].sum() == 820
    assert graph.fingerprint() in samples.path("lesmis").with_name("README.md").read_text()


def test_stored_graphs_are_what_their_table_says():
    folder = Path(__file__).parents[1] / "sets"
    table = (folder / "README.md").read_text("utf-8").split("## Graphs")[1]
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in table.splitlines() if line.startswith("| ")][
        1:
    ]
    assert len(rows) == 7
    for name, n, m, *_, digest in rows:
        graph = open_graph(folder / f"{name}.npz")
        assert (graph.n_nodes, graph.shape[0], graph.fingerprint()) == (int(n), int(m), digest)


def test_a_file_that_changes(tmp_path):
    (tmp_path / "g.txt").write_text("0 1\n1 2\n")
    graph = open_graph(tmp_path / "g.txt")
    (tmp_path / "g.txt").write_text("0 1\n1 2\n2 3\n")
    with pytest.raises(InputError, match="changed since it was opened"):
        graph.read(0, 2)


def test_a_model_that_lives_to_the_end_leaves_no_file_open():
    """Not at the module's level of a script, whose names go before all others."""
    script = "from mgclust import Communities; from mgclust.data import samples\n"
    script += "def fitted(): return Communities(client=None, device='cpu').fit(samples.load('lesmis'))\n"
    script += "model = fitted()"
    options = ["-W", "always::ResourceWarning", "-c", script]
    done = subprocess.run([sys.executable, *options], capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("change", ["none", "rounding", "weight", "arc", "triangle"])
def test_a_general_matrix_market_file_may_be_symmetric(tmp_path, monkeypatch, rng, weighted, change):
    """What is symmetric has each edge once, with the weights of the same matrix in memory."""
    if change in ("rounding", "weight") and not weighted:
        return
    monkeypatch.setattr(text_chunks, "CHUNK_BYTES", 60)
    matrix = np.triu(rng.random((7, 7)) if weighted else np.ones((7, 7))) * (rng.random((7, 7)) < 0.6)
    matrix[0, 1] = matrix[2, 2] = 1
    if change != "triangle":
        matrix = matrix + np.triu(matrix, 1).T
    matrix[0, 1] *= {"rounding": 1 + 4e-16, "weight": 1.5, "arc": 0}.get(change, 1)
    sparse = scipy.sparse.coo_array(matrix)
    order = rng.permutation(sparse.nnz)
    kind = "real" if weighted else "pattern"
    lines = [
        f"{u + 1} {v + 1}" + (f" {w!r}" if weighted else "")
        for u, v, w in zip(sparse.row[order], sparse.col[order], sparse.data[order].tolist(), strict=True)
    ]
    path = tmp_path / "m.mtx"
    path.write_text(f"%%MatrixMarket matrix coordinate {kind} general\n7 7 {len(lines)}\n" + "\n".join(lines) + "\n")
    graph, memory = open_graph(path), open_graph(sparse)
    assert graph.directed == memory.directed == (change in ("weight", "arc"))
    found, expected = (sorted(each.read(0, each.shape[0]).tolist()) for each in (graph, memory))
    assert found == expected
    assert pickle.loads(pickle.dumps(graph)).read(2, 5).tolist() == graph.read(2, 5).tolist()


@pytest.mark.parametrize("delimiter", [" ", "\t", ","])
@pytest.mark.parametrize("weights", ["none", "all", "some", "numpy", "among others", "others"])
@pytest.mark.parametrize("named", [False, True])
def test_attributes_that_networkx_writes(tmp_path, named, weights, delimiter):
    """The edges that networkx reads back, with its weights."""
    given = networkx.Graph()
    for i, (u, v) in enumerate(EDGES.tolist()):
        data = {
            "none": {}, "all": {"weight": WEIGHTS[i].item()}, "some": {"weight": 2.5} if i % 2 else {},
            "numpy": {"weight": WEIGHTS[i]}, "others": {"km": 2, "colour": "red, {blue}"},
            "among others": {"colour": "a, 'b'", "km": 7, "weight": 1e-3 * (i + 1)},
        }[weights]  # fmt: skip
        given.add_edge(*((f"n{u}", f"n{v}") if named else (u, v)), **data)
    path = tmp_path / "g.edgelist"
    networkx.write_edgelist(given, path, delimiter=delimiter)
    graph, expected = open_graph(path), open_graph(given)
    names = np.arange(5) if graph.names is None else graph.names
    found = {
        frozenset(names[edge[:2].astype(int)].tolist()): edge[2:].tolist() for edge in graph.read(0, graph.shape[0])
    }
    own = np.arange(5) if expected.names is None else expected.names
    assert found == {frozenset(own[e[:2].astype(int)].tolist()): e[2:].tolist() for e in expected.read(0, 6)}
    assert ["'km'" in text for text in graph.warnings] == (
        [True] if weights == "others" else [False] * (weights == "some")
    )


def test_a_late_weight_among_attributes_is_no_silent_loss(tmp_path):
    path = tmp_path / "g.txt"
    path.write_text("0 1 {}\n" * 1500 + "3 0 {'weight': 2}\n")
    with pytest.raises(InputError, match=r"line 1501 .*: 4 fields where the first edge has 2"):
        open_graph(path)


@pytest.mark.parametrize("suffix", [".graphml", ".gml", ".graphml.gz"])
@pytest.mark.parametrize("directed", [False, True])
@pytest.mark.parametrize("named", [False, True])
def test_graphs_that_networkx_writes(tmp_path, suffix, directed, named):
    given = (networkx.DiGraph if directed else networkx.Graph)()
    for (u, v), w in zip(EDGES.tolist(), WEIGHTS.tolist(), strict=True):
        given.add_edge(*((f"n{u}", f"n{v}") if named else (u, v)), weight=w, km=2 * w)
    write = networkx.write_gml if "gml" in suffix else networkx.write_graphml
    write(given, tmp_path / f"g{suffix}")
    graph, expected = open_graph(tmp_path / f"g{suffix}"), open_graph(given)
    assert graph.read(0, 6).tolist() == expected.read(0, 6).tolist()
    assert graph.directed == directed and graph.name.endswith(suffix)
    assert list(map(str, given)) == list(map(str, range(5) if graph.names is None else graph.names))
    others = open_graph(tmp_path / f"g{suffix}", weight="km").read(0, 6)[:, 2]
    assert others.tolist() == open_graph(given, weight="km").read(0, 6)[:, 2].tolist()


def test_gml_without_labels_and_with_repeated_ones(tmp_path):
    for label in ("", 'label "a"'):
        (tmp_path / "g.gml").write_text(
            f"graph [ node [ id 3 {label} ] node [ id 5 {label} ] edge [ source 3 target 5 value 2 ] ]"
        )
        graph = open_graph(tmp_path / "g.gml")
        assert graph.names.tolist() == [3, 5] and "'value'" in graph.warnings[0]


BOMB = """<?xml version="1.0"?><!DOCTYPE graphml [<!ENTITY a "aaaaaaaaaa">]>
<graphml xmlns="http://graphml.graphdrawing.org/xmlns">
<graph edgedefault="undirected"><node id="&a;"/></graph></graphml>"""


@pytest.mark.parametrize("encoding", ["utf-8", "utf-16"])
def test_a_document_type_is_refused(tmp_path, encoding):
    (tmp_path / "g.graphml").write_bytes(BOMB.replace("?>", f' encoding="{encoding}"?>', 1).encode(encoding))
    with pytest.raises(InputError, match=r"declares a document type \(DTD\), which is rejected"):
        open_graph(tmp_path / "g.graphml")


def test_networkx_is_named_where_it_is_missing(tmp_path, monkeypatch):
    (tmp_path / "g.gml").write_text("graph [ ]")
    monkeypatch.setitem(sys.modules, "networkx", None)
    with pytest.raises(InputError, match=r"pip install 'mgclust\[graphs\]'"):
        open_graph(tmp_path / "g.gml")
