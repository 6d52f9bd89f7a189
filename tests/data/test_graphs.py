"""Graphs from memory: the same edges from every source, each once, and a sentence for what is no graph."""

import pickle

import dask.array as da
import dask.dataframe as dd
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
import scipy.sparse

from mgclust import open_graph
from mgclust.base.errors import InputError
from mgclust.data import Graph
from mgclust.output.label_output import write_labels

EDGES = np.array([[0, 1], [0, 2], [1, 2], [2, 3], [3, 3]])
WEIGHTS = np.array([1.0, 2.5, 1.0, 0.5, 4.0])
N = 5  # node 4 has no edge


def rows(graph):
    return graph.read(0, graph.shape[0])


def as_set(graph):
    """Edges by names, smaller first, with weights."""
    names = range(graph.n_nodes) if graph.names is None else graph.names.tolist()
    edges = {}
    for u, v, *w in rows(graph).tolist():
        key = tuple(sorted((names[int(u)], names[int(v)]), key=str))
        edges[key] = edges.get(key, 0) + (w[0] if w else 1)
    return edges


def expected(weighted):
    return {tuple(edge): w if weighted else 1 for edge, w in zip(EDGES.tolist(), WEIGHTS.tolist(), strict=True)}


def symmetric(weighted):
    values = WEIGHTS if weighted else np.ones(len(EDGES))
    dense = np.zeros((N, N))
    dense[EDGES[:, 0], EDGES[:, 1]] = values
    dense[EDGES[:, 1], EDGES[:, 0]] = values
    return dense


def frame(weighted):
    table = pd.DataFrame(EDGES, columns=["a", "b"])
    return table.assign(w=WEIGHTS) if weighted else table


def networkx_graph(weighted):
    networkx = pytest.importorskip("networkx")
    graph = networkx.Graph()
    graph.add_nodes_from(range(N))
    graph.add_weighted_edges_from([(*e, w) for e, w in zip(EDGES.tolist(), WEIGHTS, strict=True)])
    if not weighted:
        for *_, attributes in graph.edges(data=True):
            del attributes["weight"]
    return graph


def igraph_graph(weighted):
    igraph = pytest.importorskip("igraph")
    return igraph.Graph(N, EDGES.tolist(), edge_attrs={"weight": WEIGHTS.tolist()} if weighted else {})


SOURCES = {
    "array": lambda w: np.column_stack([EDGES, WEIGHTS]) if w else EDGES.astype(np.uint8),
    "tuple": lambda w: (EDGES, WEIGHTS, N) if w else (EDGES, N),
    "pair": lambda w: (EDGES, WEIGHTS) if w else (EDGES.tolist(), np.int64(N)),
    "list": lambda w: [(*e, x) for e, x in zip(EDGES.tolist(), WEIGHTS, strict=True)] if w else EDGES.tolist(),
    "floats": lambda w: np.column_stack([EDGES, WEIGHTS]).astype(np.float32) if w else EDGES.astype(np.float64),
    "dense": symmetric,
    "csr": lambda w: scipy.sparse.csr_array(symmetric(w)),
    "triangle": lambda w: scipy.sparse.tril(symmetric(w)),
    "pandas": frame,
    "pyarrow": lambda w: pa.Table.from_pandas(frame(w)),
    "dask": lambda w: da.from_array(np.column_stack([EDGES, WEIGHTS]) if w else EDGES, chunks=(2, 1)),
    "networkx": networkx_graph,
    "igraph": igraph_graph,
}


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("source", SOURCES)
def test_the_same_edges_from_every_source(source, weighted):
    given = SOURCES[source](weighted)
    graph = open_graph(given, n_nodes=N)
    assert isinstance(graph, Graph)
    assert graph.shape == (5, 3 if weighted else 2) and graph.weighted == weighted
    assert graph.dtype == (np.float64 if weighted else np.int32) == rows(graph).dtype
    assert rows(graph).flags.c_contiguous
    assert (graph.n_nodes, graph.names, graph.directed, graph.warnings) == (N, None, False, [])
    assert as_set(graph) == expected(weighted)
    again = pickle.loads(pickle.dumps(graph)) if source != "dask" else graph
    np.testing.assert_array_equal(again.read(1, 4), rows(graph)[1:4])
    np.testing.assert_array_equal(graph.take([4, 0]), rows(graph)[[4, 0]])
    described = graph.describe()
    assert (described["n_nodes"], described["n_edges"], described["weighted"]) == (N, 5, weighted)


def test_an_int32_array_is_not_copied():
    edges = EDGES.astype(np.int32)
    assert np.shares_memory(rows(open_graph(edges)), edges)


def test_a_graph_is_what_it_is():
    graph = open_graph(EDGES)
    assert open_graph(graph) is graph
    assert graph.n_nodes == 4
    assert open_graph(EDGES, n_nodes=9).n_nodes == 9
    assert len({open_graph(EDGES).fingerprint(), open_graph(EDGES, 9).fingerprint()}) == 2
    assert open_graph(EDGES).fingerprint() == open_graph(da.from_array(EDGES, chunks=(3, 2))).fingerprint()
    assert "4 nodes, 5 edges" in repr(graph)


def test_repeated_edges_and_loops_are_kept():
    assert rows(open_graph([(1, 0), (0, 1), (1, 1)])).tolist() == [[1, 0], [0, 1], [1, 1]]


def test_a_graph_of_nodes_alone():
    for source in (np.empty((0, 2), int), scipy.sparse.csr_array((3, 3)), np.zeros((4, 4)), np.zeros((1, 1))):
        graph = open_graph(source, n_nodes=3 if source.shape[0] in (0, 3) else None)
        assert graph.shape == (0, 2) and graph.n_nodes >= 1
        assert rows(graph).shape == (0, 2)
        assert graph.fingerprint() != open_graph(EDGES).fingerprint()


@pytest.mark.parametrize("make", ["list", "pandas", "pyarrow", "dask", "networkx", "igraph", "array"])
def test_names(make, tmp_path):
    pairs = [("Éva", "Bob"), ("Bob", "Ann"), ("Ann", "Éva")]
    table = pd.DataFrame(pairs, columns=["source", "target"])
    if make == "networkx":
        source = pytest.importorskip("networkx").Graph(pairs)
    elif make == "igraph":
        source = pytest.importorskip("igraph").Graph.TupleList(pairs)
    else:
        source = {
            "list": lambda: pairs,
            "array": lambda: np.array(pairs),
            "pandas": lambda: table,
            "pyarrow": lambda: pa.Table.from_pandas(table),
            "dask": lambda: pytest.importorskip("dask.dataframe").from_pandas(table, npartitions=2),
        }[make]()
    graph = open_graph(source)
    assert graph.names.dtype.kind == "U" and sorted(graph.names) == ["Ann", "Bob", "Éva"]
    assert as_set(graph) == {("Bob", "Éva"): 1, ("Ann", "Bob"): 1, ("Ann", "Éva"): 1}
    [path] = write_labels(graph, [5, 6, 7], tmp_path)
    lines = path.read_text(encoding="utf-8").split()
    assert lines == ["node,label", *(f"{name},{k}" for name, k in zip(graph.names, (5, 6, 7), strict=True))]
    assert write_labels(open_graph(EDGES), [0] * 4, tmp_path) == []


@pytest.mark.parametrize("make", ["pandas", "dask", "networkx"])
def test_integer_ids_with_gaps_are_names(make):
    pairs = np.array([[70, 10], [10, 5_000_000_000], [70, 70]])
    table = pd.DataFrame(pairs, columns=["u", "v"]).assign(w=[1.0, 2.0, 3.0])
    if make == "networkx":
        source = pytest.importorskip("networkx").Graph()
        source.add_weighted_edges_from(table.itertuples(index=False, name=None))
    else:
        source = table if make == "pandas" else pytest.importorskip("dask.dataframe").from_pandas(table, npartitions=2)
    graph = open_graph(source)
    assert sorted(graph.names) == [10, 70, 5_000_000_000] and graph.names.dtype == np.int64
    assert as_set(graph) == {(10, 70): 1, (10, 5_000_000_000): 2, (70, 70): 3}


def test_columns_of_a_table():
    table = pd.DataFrame({"year": [1, 2], "target": [1, 2], "source": [0, 0], "weight": [3, 4], "note": ["a", "b"]})
    assert rows(open_graph(table)).tolist() == [[0, 1, 3], [0, 2, 4]]
    assert rows(open_graph(table, columns=["source", 1])).tolist() == [[0, 1], [0, 2]]
    with pytest.raises(InputError, match=r"source=... and target=..."):
        open_graph(table.drop(columns="source"))


@pytest.mark.parametrize("make", ["networkx", "igraph", "csr", "dense"])
def test_direction_is_dropped_and_said(make):
    arcs = [(0, 1), (1, 0), (1, 2), (3, 2)]
    if make == "networkx":
        source = pytest.importorskip("networkx").DiGraph(arcs)
    elif make == "igraph":
        source = pytest.importorskip("igraph").Graph(4, arcs, directed=True)
    else:
        dense = np.zeros((4, 4))
        dense[tuple(np.transpose(arcs))] = 1
        source = dense if make == "dense" else scipy.sparse.csr_array(dense)
    graph = open_graph(source)
    assert graph.directed and as_set(graph) == {(0, 1): 2, (1, 2): 1, (2, 3): 1}
    assert "direction is dropped" in graph.warnings[0] and "weight 2" in graph.warnings[0]


def test_multigraphs_and_missing_weights():
    networkx = pytest.importorskip("networkx")
    graph = networkx.MultiGraph([(0, 1), (0, 1)])
    graph.add_edge(1, 2, weight=5)
    assert rows(open_graph(graph)).tolist() == [[0, 1, 1], [0, 1, 1], [1, 2, 5]]


BAD = {
    "negative id": ([[0, 1], [2, -1]], {}, r"row 1 of edge array: node id -1 is negative"),
    "id beyond n": ([[0, 1], [2, 7]], {"n_nodes": 5}, r"row 1 .* node id 7 is out of range: n_nodes=5, .* at most 4"),
    "huge id": ([[0, 1], [0, 3_000_000_000]], {}, r"node id 3000000000 should be at most 2147483646.*without gaps"),
    "fraction": (np.array([[0, 1], [0.5, 1], [2, 3]]), {}, r"row 1 .* 0.5 is not an integer"),
    "NaN id": (np.array([[0, 1], [np.nan, 1], [2, 3]]), {}, r"row 1 .* nan is not an integer"),
    "negative weight": (([[0, 1]], [-2.0]), {}, r"row 0 .* weight -2.0 should be a finite number >= 0"),
    "NaN weight": (np.array([[0, 1, 1], [1, 2, np.nan]]), {}, r"row 1 .* weight nan"),
    "infinite weight": (([[0, 1]], [np.inf]), {}, r"weight inf"),
    "no nodes": (np.empty((0, 2), int), {}, "empty graph"),
    "no nodes, sparse": (scipy.sparse.csr_array((0, 0)), {}, "empty graph"),
    "zero nodes": (EDGES, {"n_nodes": 0}, "empty graph"),
    "too many nodes": (EDGES, {"n_nodes": 2**31}, "n_nodes=2147483648 .* at most 2147483647"),
    "no number": (EDGES, {"n_nodes": "5"}, "n_nodes='5' .* integer"),
    "one column": (np.zeros((3, 1), int), {}, r"shape \(3, 1\); edges should be \(m, 2\)"),
    "flat": (np.arange(4), {}, "edges"),
    "not square": (scipy.sparse.csr_array((2, 3)), {}, "should be square"),
    "weights of another length": ((EDGES, [1.0]), {}, r"weights .* shape \(1,\), they should be \(5,\)"),
    "weights twice": ((np.ones((4, 3)), np.ones(4)), {}, "leave out the other weights"),
    "two n": ((EDGES, 5), {"n_nodes": 6}, "n_nodes=6 contradicts n_nodes=5"),
    "complex": (EDGES * 1j, {}, "edge"),
    "a number": (3, {}, "the graph is a int"),
    "nothing": (None, {}, "the graph is a NoneType"),
    "an object": (object(), {}, "the graph is a object"),
    "a list of words": (["ab", "cd"], {}, "give edges as pairs"),
    "ragged": ([(0, 1), (1, 2, 3)], {}, "all of 2 items"),
    "text for a weight": (
        [("a", "b", "heavy")],
        {},
        "edge 0 of edge list, a - b: weight 'heavy' is not a number; fix it, or .* give only pairs",
    ),
    "ambiguous": (np.array([[0.0, 1.0, 2.0], [1, 2, 1], [0, 2, 1]]), {}, "may be 3 edges or an adjacency matrix"),
    "columns of an array": (EDGES, {"columns": [0, 1]}, "columns"),
    "an empty name": ([("a", "b"), ("a", "")], {}, "row 1 .* no node in column 2"),
    "names and n": ([("a", "b")], {"n_nodes": 3}, "leave n_nodes out"),
    "other n": (np.zeros((4, 4)), {"n_nodes": 3}, "n_nodes=3 should be 4"),
}


@pytest.mark.parametrize("case", BAD)
def test_refusals(case):
    source, options, sentence = BAD[case]
    with pytest.raises(InputError, match=sentence):
        rows(open_graph(source, **options))


@pytest.mark.parametrize("kind", ["str", "Int64", "object"])
def test_gaps_in_tables(kind):
    values = pd.Series([1, 2, None]).astype(kind) if kind != "str" else pd.Series(["a", "b", None])
    table = pd.DataFrame({"u": values, "v": values})
    with pytest.raises(InputError, match="row 2 of pandas DataFrame has nothing in column 'u'"):
        open_graph(table)
    with pytest.raises(InputError, match="row 2 of pyarrow Table has nothing in column 'u'"):
        open_graph(pa.Table.from_pandas(table))
    assert open_graph(table[:2]).names.tolist() == (["a", "b"] if kind == "str" else [1, 2])


def test_refusals_of_objects():
    networkx = pytest.importorskip("networkx")
    with pytest.raises(InputError, match="empty graph"):
        open_graph(networkx.Graph())
    with pytest.raises(InputError, match=r"edge \d of networkx Graph, .*: weight '.*' is not a number; .*weight=None"):
        open_graph(networkx.Graph([(0, 1, {"weight": "x"})]))
    with pytest.raises(InputError, match="node id 9 is out of range"):
        open_graph(da.from_array(np.array([[0, 9]])), n_nodes=3)
    with pytest.raises(InputError, match="weight -1"):
        open_graph(da.from_array(np.array([[0, 9, -1.0]])))


def test_labels_belong_to_nodes():
    with pytest.raises(InputError, match=r"labels of .* shape \(3,\), it should be \(5,\)"):
        from mgclust.data.graphs.arrays import ArrayGraph

        ArrayGraph(EDGES, n_nodes=5, labels=np.zeros(3))


def test_three_weighted_edges_with_a_number_of_nodes_are_no_matrix():
    graph = open_graph((np.array([[0.0, 1, 2], [1, 2, 1], [0, 2, 0.5]]), 4))
    assert (graph.shape, graph.n_nodes) == ((3, 3), 4)
    assert graph.read(0, 3)[:, 2].tolist() == [2.0, 1.0, 0.5]


@pytest.mark.slow
def test_a_table_in_parts_with_gaps_between_its_ids():
    """Threads that read the parts share the table of ids."""
    frame = pd.DataFrame({"source": [0, 1, 3, 3] * 20, "target": [1, 3, 0, 1] * 20})
    parts = dd.from_pandas(frame, npartitions=8)
    for _ in range(20):
        assert open_graph(parts).n_nodes == 3


def test_a_symmetric_array_that_may_be_either_is_refused():
    with pytest.raises(InputError, match="3 x 3 array may be 3 edges or an adjacency matrix"):
        open_graph(np.array([[0, 1, 1], [1, 0, 1], [1, 1, 0]]))
    assert open_graph(np.array([[0, 1, 1], [1, 2, 1], [0, 2, 1]])).shape == (3, 3)


def full_matrix(rng, n=6):
    matrix = rng.random((n, n))
    return matrix + matrix.T


@pytest.mark.parametrize("form", [np.asarray, scipy.sparse.coo_array, scipy.sparse.csr_matrix])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize(("ulps", "sentences"), [(0, 0), (8, 0), (40, 1), (1e9, None)])
def test_an_asymmetry_of_rounding_is_no_direction(rng, form, dtype, ulps, sentences):
    """Also of small entries beside large ones; one of more is, and so is one of integers."""
    matrix = full_matrix(rng).astype(dtype)
    matrix[0, 1] = matrix[1, 0] = 1e-3
    eps = np.finfo(dtype).eps * (1 if dtype == np.float32 else 1e4 if ulps == 40 else 100)
    matrix[0, 1] += ulps * eps
    graph = open_graph(form(matrix))
    assert graph.directed == (sentences is None)
    if sentences is None:
        return
    assert len(graph.warnings) == sentences and all("rounding" in each for each in graph.warnings)
    u, v = np.triu_indices(6)
    np.testing.assert_array_equal(rows(graph)[:, :2], np.stack([u, v], axis=1))
    np.testing.assert_allclose(rows(graph)[:, 2], ((matrix + matrix.T) / 2)[u, v], rtol=1e-6)
    order = rng.permutation(6)
    again = rows(open_graph(form(matrix[order][:, order])))
    assert sorted(again[:, 2]) == sorted(rows(graph)[:, 2])


def test_integers_are_exact():
    matrix = np.full((5, 5), 10**9)
    matrix[0, 1] += 1
    assert open_graph(matrix).directed
    assert not open_graph(np.maximum(matrix, matrix.T)).directed


def repeated(form, path):
    """257 times the edge 0 - 1, and one of 2 - 2, in uint8."""
    parts = (np.ones(258, np.uint8), ([0] * 257 + [2], [1] * 257 + [2]))
    matrix = scipy.sparse.coo_array(parts, shape=(3, 3))
    if form == "csr":
        return scipy.sparse.csr_matrix((parts[0], np.array(parts[1][1]), [0, 257, 257, 258]), shape=(3, 3))
    if form == "npz":
        scipy.sparse.save_npz(path / "m.npz", matrix)
        return path / "m.npz"
    if form == "mtx":
        lines = "".join(f"{u + 1} {v + 1} 1\n" for u, v in zip(*parts[1], strict=True))
        (path / "m.mtx").write_text(f"%%MatrixMarket matrix coordinate integer general\n3 3 258\n{lines}")
        return path / "m.mtx"
    return matrix.asformat(form) if form == "coo" else (matrix + matrix.T).asformat(form)


@pytest.mark.parametrize("form", ["coo", "csr", "npz", "mtx"])
def test_what_a_matrix_says_twice_adds_up(form, tmp_path):
    graph = open_graph(repeated(form, tmp_path))
    total = np.zeros((3, 3))
    np.add.at(total, tuple(rows(graph)[:, :2].astype(int).T), rows(graph)[:, 2])
    assert total.tolist() == [[0, 257, 0], [0, 0, 0], [0, 0, 1]]
    assert form == "mtx" or len(rows(graph)) == 2  # a file is read as it is
    assert not graph.directed and not graph.warnings


def test_what_a_matrix_takes_back_is_no_edge():
    """Stored as 1 and -1 in a matrix that is not sorted, and True twice, which is True."""
    counts = (np.array([1.0, -1.0, 2.0]), np.array([1, 1, 2]), [0, 3, 3, 3])
    assert rows(open_graph(scipy.sparse.csr_array(counts, shape=(3, 3)))).tolist() == [[0, 2, 2]]
    links = (np.array([True, True]), np.array([1, 1]), [0, 2, 2])
    assert rows(open_graph(scipy.sparse.csr_array(links, shape=(2, 2)))).tolist() == [[0, 1]]


@pytest.mark.parametrize(
    "pairs",
    [
        [(0.0, 1.0), (1.0, 2.0)],
        [(0, 1, 1), (1, 0, 1), (1, 1, 0)],
        [(0.0, 1.0, 0.5), (1.0, 2.0, 0.5), (2.0, 0.0, 0.5)],
        ((0.0, 1.0), (1.0, 0.0)),
    ],
)
def test_tuples_are_edges_and_no_matrix(pairs):
    graph = open_graph(pairs)
    assert rows(graph).tolist() == [list(map(float, pair)) for pair in pairs] and not graph.warnings


@pytest.mark.parametrize("n", [2, 3, 5])
@pytest.mark.parametrize("library", ["pandas", "shuffled", "numbers"])
def test_a_table_whose_rows_are_called_as_its_columns_is_a_matrix(n, library, rng):
    matrix = np.triu(rng.integers(1, 9, (n, n)), 1)
    labels = list("abcde"[:n]) if library != "numbers" else list(range(n))
    frame = pd.DataFrame((matrix + matrix.T).astype(float), labels, labels)
    if library == "shuffled":
        frame = frame[rng.permutation(labels)]
    graph = open_graph(frame)
    assert rows(graph)[:, 2].tolist() == [1.0] * 0 + [float(x) for x in matrix[np.triu_indices(n, 1)]]
    assert (graph.names is None) == (library == "numbers")
    assert bool(graph.warnings) == (library == "numbers" and n < 4)


def test_a_table_that_may_be_either_is_refused():
    matrix = pd.DataFrame([[0, 1, 2], [1, 0, 3], [2, 3, 0]])
    for table in (matrix, pl.from_pandas(matrix.rename(columns=str)), pa.Table.from_pandas(matrix.rename(columns=str))):
        with pytest.raises(InputError, match=r"of 3 x 3 may be 3 edges or an adjacency matrix; .*columns="):
            open_graph(table)
        assert open_graph(table, columns=[0, 1, 2]).shape == (3, 3)
    edges = pd.DataFrame([[0, 1, 2], [1, 0, 3], [2, 3, 0]], columns=["source", "target", "weight"])
    assert open_graph(edges).shape == (3, 3)


def test_dask_edges_that_change_between_computations_are_rejected():
    calls = []

    def change(block):
        calls.append(block)
        return block - (len(calls) == 1)

    edges = da.from_array(np.array([[0, 1]])).map_blocks(change, dtype=int, meta=np.empty((0, 0), int))
    with pytest.raises(InputError, match=r"gives other edges each time .* edges.persist\(\)"):
        open_graph(edges)
