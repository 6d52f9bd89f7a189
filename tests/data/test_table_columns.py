"""Headers, indices and roles of columns are found by names and values, whatever the order of columns and rows."""

from __future__ import annotations

import warnings

import networkx
import numpy as np
import pandas as pd
import pytest

from mgclust import DensityPeaks, open_dataset, open_graph
from mgclust.algorithms import METHODS
from mgclust.base.errors import InputError
from mgclust.output.file_run import open_sources


def rows(source, **options):
    dataset = open_dataset(source, **options)
    return dataset.read(0, dataset.shape[0])


def edges(table, **options):
    graph = open_graph(table, **options)
    names = np.arange(graph.n_nodes) if graph.names is None else graph.names
    read = graph.read(0, graph.shape[0])
    weights = read[:, 2].tolist() if read.shape[1] == 3 else [1.0] * len(read)
    return sorted((str(names[int(u)]), str(names[int(v)]), w) for (u, v), w in zip(read[:, :2], weights, strict=True))


def written(tmp_path, frame, **options):
    path = tmp_path / "table.csv"
    frame.to_csv(path, **options)
    return path


X = np.random.default_rng(3).normal(size=(40, 3))
HEADERS = {
    "words": ["width", "length", "height"],
    "numbers from 0": [0, 1, 2],
    "numbers from 1": [1, 2, 3],
    "years": [2019, 2020, 2021],
    "wavelengths": [400.5, 401.0, 401.5],
    "a word and years": ["age", 2020, 2021],
}


@pytest.mark.parametrize("index", ["none", "running", "shuffled", "text"])
@pytest.mark.parametrize("header", HEADERS)
def test_points_that_pandas_writes(tmp_path, header, index):
    frame = pd.DataFrame(X, columns=HEADERS[header])
    if index == "shuffled":
        frame = frame.sample(frac=1, random_state=1)
    if index == "text":
        frame.index = [f"row {i}" for i in frame.index]
    path = written(tmp_path, frame, index=index != "none")
    np.testing.assert_allclose(rows(path), frame.to_numpy())
    dataset = open_dataset(path)
    assert dataset.feature_names == [str(name) for name in frame.columns]
    assert any("index=False" in text for text in dataset.warnings) == (index != "none")
    assert all(len(text) <= 200 for text in dataset.warnings)


@pytest.mark.parametrize("kind", ["random", "integers", "one column", "two columns", "constant", "missing first"])
def test_lines_of_data_are_no_headers(tmp_path, kind):
    rng = np.random.default_rng(5)
    table = {
        "random": rng.normal(size=(30, 4)),
        "integers": rng.integers(0, 9, (30, 5)),
        "one column": rng.normal(size=(30, 1)),
        "two columns": rng.integers(0, 3, (30, 2)),
        "constant": np.ones((30, 3)),
        "missing first": np.vstack([[np.nan, 1.5, 2.5], rng.normal(size=(20, 3))]),
    }[kind]
    path = written(tmp_path, pd.DataFrame(table), index=False, header=False)
    np.testing.assert_allclose(rows(path), table)
    assert open_dataset(path).warnings == []


def test_options_decide(tmp_path):
    path = tmp_path / "table.csv"
    path.write_text("0,1,2\n1,5,7\n2,6,8\n")
    assert rows(path, header=False, index=False).tolist() == [[0, 1, 2], [1, 5, 7], [2, 6, 8]]
    assert rows(path, header=True, index=True).tolist() == [[5, 7], [6, 8]]
    assert rows(path, columns=[0], header=True).tolist() == [[1], [2]]
    with pytest.raises(InputError, match="give one"):
        open_dataset(path, columns=[0], index=True)
    with pytest.raises(InputError, match="index='a' should be True, False or None"):
        open_dataset(path, index="a")


@pytest.mark.parametrize("form", ["pandas", "polars", "pyarrow", "dask", "parquet"])
def test_an_index_that_became_a_column(tmp_path, form):
    frame = pd.DataFrame(X, columns=list("abc")).reset_index()
    if form == "polars":
        frame = pytest.importorskip("polars").from_pandas(frame)
    elif form == "pyarrow":
        frame = pytest.importorskip("pyarrow").Table.from_pandas(frame)
    elif form == "dask":
        frame = pytest.importorskip("dask.dataframe").from_pandas(frame, npartitions=2)
    elif form == "parquet":
        frame.to_parquet(tmp_path / "x.parquet")
        frame = tmp_path / "x.parquet"
    dataset = open_dataset(frame)
    np.testing.assert_allclose(dataset.read(0, 40), X)
    assert dataset.feature_names == ["a", "b", "c"] and "'index'" in dataset.warnings[0]
    assert open_dataset(frame, index=False).shape == (40, 4)


FORMS = ["csv", "parquet", "feather", "pandas", "polars", "pyarrow", "dask"]


def in_form(tmp_path, frame, form):
    """A data frame of pandas as another table, in memory or in a file."""
    if form == "csv":
        return written(tmp_path, frame, index=False)
    if form in ("parquet", "feather"):
        getattr(frame, f"to_{form}")(tmp_path / f"table.{form}")
        return tmp_path / f"table.{form}"
    if form == "dask":
        return pytest.importorskip("dask.dataframe").from_pandas(frame, npartitions=2)
    if form == "polars":
        return pytest.importorskip("polars").from_pandas(frame)
    return pytest.importorskip("pyarrow").Table.from_pandas(frame) if form == "pyarrow" else frame


DAYS = pd.date_range("2020-02-27", periods=40)
INDICES = {
    "dates": ("index", DAYS, "holds dates or times"),
    "dates without a name": ("", DAYS, "holds dates or times"),
    "names": ("index", [f"s{i}" for i in range(40)], "names the rows"),
    "numbers": ("index", range(7, 47), "numbers the rows"),
    "text": ("id", [f"s{i // 2}" for i in range(40)], "names the rows"),
    "digits": ("id", [f"{i:03d}" for i in range(7, 47)], "numbers the rows"),
    "days": ("record_id", DAYS, "holds dates or times"),
}


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("kind", INDICES)
def test_an_index_is_left_out_as_the_one_it_is(tmp_path, kind, form):
    """The same rule for all forms of a table; a warning says if the index holds numbers, names or dates."""
    name, values, what = INDICES[kind]
    dataset = open_dataset(in_form(tmp_path, pd.DataFrame({name: values, "x": X[:, 0], "y": X[:, 1]}), form))
    np.testing.assert_allclose(dataset.read(0, 40), X[:, :2])
    assert dataset.feature_names == ["x", "y"]
    what = "names the rows" if (kind, form) == ("digits", "dask") else what  # their values are with the workers
    called = repr(name) if name else "without a name"
    assert len(dataset.warnings) == 1 and f"({called}) {what} and is left out" in dataset.warnings[0]


@pytest.mark.parametrize("form", FORMS)
def test_an_index_of_dates_among_edges(tmp_path, form):
    frame = pd.DataFrame({"index": DAYS[:3], "source": list("abc"), "target": list("bca")})
    table = in_form(tmp_path, frame, form)
    assert edges(table) == [("a", "b", 1), ("b", "c", 1), ("c", "a", 1)]
    assert open_graph(table).warnings[0].count("holds dates or times") == 1


NUMBERED = {"words": ["x", "y", "z"], "from 1": ["1", "2", "3"], "years": ["2019", "2020", "2021"]}
CHOICES = [("words", [0, 2], [0, 2]), ("words", 1, [1]), ("words", np.int64(2), [2]), ("words", 2019, None),
           ("from 1", [1, 3], [0, 2]), ("from 1", [0, 2], [0, 2]), ("from 1", 1, [0]), ("years", [2021, 2019], [2, 0]),
           ("years", [0, 2021], None), ("years", [1, 0], [1, 0]), ("words", -1, None)]  # fmt: skip


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(("header", "columns", "chosen"), CHOICES)
def test_integers_choose_columns_by_name_or_else_by_position(tmp_path, header, columns, chosen, form):
    table = in_form(tmp_path, pd.DataFrame(X, columns=NUMBERED[header]), form)
    if chosen is not None:
        np.testing.assert_allclose(rows(table, columns=columns), X[:, chosen])
        return
    with pytest.raises(InputError, match=r"is not a column of .*; give one of '.*', or a position from 0 to 2\."):
        open_dataset(table, columns=columns)


@pytest.mark.parametrize("form", ["csv", "parquet", "pandas"])
def test_integers_name_columns_of_edges(tmp_path, form):
    frame = pd.DataFrame({"10": ["a", "b"], "20": ["b", "c"], "30": [2.0, 3.0]})
    table, header = in_form(tmp_path, frame, form), True if form == "csv" else None
    for roles in ({"source": 10, "target": 20, "weight": 30}, {"source": 0, "target": 1}, {"columns": [10, 20, 30]}):
        assert edges(table, header=header, **roles) == [("a", "b", 2), ("b", "c", 3)]


@pytest.mark.parametrize("weight", [None, "none"])
def test_no_weights_in_python_and_as_text(tmp_path, weight):
    """The command line, the service and its page have only text."""
    graph = networkx.Graph()
    graph.add_weighted_edges_from(FRIENDS.itertuples(index=False))
    tables = [FRIENDS, graph, *(in_form(tmp_path, FRIENDS, form) for form in ("csv", "parquet"))]
    for table in tables:
        assert open_graph(table, weight=weight).shape[1] == 2 and open_graph(table).shape[1] == 3
    for path in tables[2:]:
        assert open_sources(METHODS["communities"], [str(path)], weight="none").shape[1] == 2


def test_an_index_costs_no_cluster(tmp_path):
    centers = np.random.default_rng(0).normal(size=(3, 2)) * 20
    truth = np.random.default_rng(1).integers(0, 3, 300)
    frame = pd.DataFrame(centers[truth] + np.random.default_rng(2).normal(size=(300, 2)), columns=["x", "y"])
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        model = DensityPeaks(3, device="cpu", client=None).fit(str(written(tmp_path, frame)))
    assert any("left out as an index" in str(each.message) for each in said)
    assert len({tuple(pair) for pair in np.c_[model.labels_, truth].tolist()}) == 3


FRIENDS = pd.DataFrame({"source": ["Ann", "Bob", "Eve", "Ann"], "target": ["Bob", "Eve", "Ann", "Zoe"],
                        "weight": [2.0, 1.0, 3.0, 0.5]})  # fmt: skip
LINKS = pd.DataFrame({"source": [7, 9, 4, 7, 5], "target": [9, 4, 7, 5, 4], "weight": [2.0, 1.0, 3.0, 0.5, 1.0]})
NAMES = [("source", "target", "weight"), ("from", "to", "w"), ("u", "v", "weight"), ("node1", "node2", "value"),
         ("Source ID", "Target ID", "Weight"), ("src", "dst", "count")]  # fmt: skip


@pytest.mark.parametrize("names", NAMES)
@pytest.mark.parametrize("table", [FRIENDS, LINKS], ids=["text", "numbers"])
def test_names_of_columns_before_positions(tmp_path, table, names):
    wanted = sorted((str(u), str(v), w) for u, v, w in table.itertuples(index=False))
    rng = np.random.default_rng(len(names[0]))
    renamed = table.set_axis(names, axis=1)
    for _ in range(6):
        frame = renamed.assign(when=pd.Timestamp("2020-01-01"), note="x") if rng.random() < 0.5 else renamed
        frame = frame[rng.permutation(frame.columns)]
        assert edges(frame) == wanted
        assert edges(written(tmp_path, frame, index=bool(rng.random() < 0.5))) == wanted
        frame.reset_index().to_parquet(tmp_path / "edges.parquet")
        assert edges(tmp_path / "edges.parquet") == wanted == edges(frame.reset_index())


def test_a_third_column_of_any_name_is_the_weight(tmp_path):
    frame = LINKS.rename(columns={"weight": "trips"})
    wanted = sorted((str(u), str(v), w) for u, v, w in LINKS.itertuples(index=False))
    for table in (frame, frame.reset_index()):
        assert edges(table) == wanted == edges(written(tmp_path, table, index=False))


def test_a_header_of_other_words(tmp_path):
    path = tmp_path / "friends.csv"
    path.write_text("Person,Friend\nAnn,Bob\nBob,Eve\n")
    graph = open_graph(path)
    assert edges(path) == [("Ann", "Bob", 1), ("Bob", "Eve", 1)]
    assert "header=False" in graph.warnings[0] and len(graph.warnings[0]) <= 200
    assert len(edges(path, header=False)) == 3
    path.write_text("Ann,Bob\nBob,Eve\n")
    assert len(edges(path)) == 2


@pytest.mark.parametrize("form", ["csv", "frame"])
@pytest.mark.parametrize(
    ("name", "values", "is_weight"),
    [
        ("seen", [1500000000, 1500000900, 1500003600, 1500007200, 1500009999], False),
        ("weight", [1500000000, 1500000900, 1500003600, 1500007200, 1500009999], True),
        ("amount", [1500000000] * 5, True),
    ],
)
def test_numbers_like_times_are_weights_by_name_or_if_all_are_equal(tmp_path, form, name, values, is_weight):
    frame = LINKS.assign(weight=values).rename(columns={"weight": name})
    graph = open_graph(written(tmp_path, frame, index=False) if form == "csv" else frame)
    assert graph.shape[1] == 2 + is_weight and bool(graph.warnings) != is_weight


@pytest.mark.parametrize("form", ["csv", "frame", "parquet"])
def test_times_are_no_weights(tmp_path, form):
    for times in (pd.date_range("2020-01-01", periods=5), pd.to_timedelta(np.arange(5), "D")):
        frame = LINKS.assign(weight=times).rename(columns={"weight": "seen"})
        source = frame
        if form == "csv":
            source = written(tmp_path, frame, index=False)
        elif form == "parquet":
            frame.to_parquet(tmp_path / "t.parquet")
            source = tmp_path / "t.parquet"
        assert {weight for *_, weight in edges(source)} == {1.0}
        assert "holds times" in open_graph(source).warnings[0]
    numbers = LINKS.rename(columns={"weight": "timestamp"})
    assert {weight for *_, weight in edges(numbers)} == {1.0}
    assert max(weight for *_, weight in edges(numbers, weight="timestamp")) == 3


def test_infinite_numbers_may_name_columns(tmp_path):
    path = tmp_path / "infinite.csv"
    path.write_text(",inf,1e400\n0,inf,2\n1,-inf,3\n2,4,5\n")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert rows(path).tolist() == [[np.inf, 2], [-np.inf, 3], [4, 5]]


@pytest.mark.parametrize("place", [0, 1500])
def test_ids_keep_their_text(tmp_path, place):
    lines = [f"{i},{i + 1}" for i in range(10, 2010)]
    lines[place] = "007,+12"
    path = tmp_path / "ids.csv"
    path.write_text("\n".join(lines) + "\n")
    names = set(open_graph(path).names.tolist())
    assert {"007", "+12", "2009"} <= names and "7" not in names


def test_lines_like_comments_in_a_csv(tmp_path):
    path = tmp_path / "tags.csv"
    path.write_text("# made in May\ncat,#pet\n#pet,dog\ndog,cat\n")
    assert edges(path) == [("#pet", "dog", 1), ("cat", "#pet", 1), ("dog", "cat", 1)]
    path.write_text("cat,pet\n# a note\npet,dog\n")
    assert len(edges(path)) == 2


def test_roles_by_name_and_number(tmp_path):
    frame = LINKS.rename(columns={"source": "a", "target": "b"})[["weight", "b", "a"]].assign(other=1)
    wanted = sorted((str(u), str(v), w) for u, v, w in LINKS.itertuples(index=False))
    path = written(tmp_path, frame, index=False)
    for table in (frame, path):
        assert edges(table, source="a", target="b") == wanted
        assert edges(table, source=2, target=1, weight="weight") == wanted
        assert {weight for *_, weight in edges(table, source="a", target="b", weight=None)} == {1.0}
        with pytest.raises(InputError, match=r"source=\.\.\. and target="):
            open_graph(table)
        with pytest.raises(InputError, match="target='z' is not a column"):
            open_graph(table, source="a", target="z")
        with pytest.raises(InputError, match="leave out source, target and index"):
            open_graph(table, columns=["a", "b"], source="a")
        for same in (["a", "a"], [1, "b"], ["a", "b", "a"]):
            with pytest.raises(InputError, match="names a column twice"):
                open_graph(table, columns=same)
    with pytest.raises(InputError, match="source='a' applies to tables"):
        open_graph(np.array([[0, 1]]), source="a")


LINES = [f"{a},{b},{c}\n" for a, b, c in X.round(3)]
AWKWARD = {
    "wavelengths descending": ("900,800,700\n", "", 0),
    "wavelengths uneven": ("1700.0,1100.0,400.0\n", "", 0),
    "names in another order": ("17,3,90\n", "", 0),
    "floats from 0": ("0.0,1.0,2.0\n", "", 0),
    "an index of an index": (",Unnamed: 0,a,b,c\n", "{0},{0},", 1),
    "two levels of an index": (",,a,b,c\n", "{0},x,", 1),
    "ids": ("id,a,b,c\n", "9{0},", 1),
    "R's names of rows": ('"a","b","c"\n', '"{0}",', 1),
}


@pytest.mark.parametrize("kind", AWKWARD)
def test_headers_and_indices_that_programs_write(tmp_path, kind):
    header, before, left = AWKWARD[kind]
    path = tmp_path / "table.csv"
    path.write_text(header + "".join(before.format(i) + line for i, line in enumerate(LINES)))
    dataset = open_dataset(path)
    np.testing.assert_allclose(dataset.read(0, len(X)), X.round(3))
    assert len(dataset.feature_names) == 3
    assert sum("index=False" in text for text in dataset.warnings) == left


@pytest.mark.parametrize("header", ["0\n", "0,1,2\n", "3.5e9,-1.2e9,9e9\n"])
def test_numbers_that_may_be_names_are_said(tmp_path, header):
    path, count = tmp_path / "table.csv", header.count(",") + 1
    table = np.random.default_rng(0).integers(0, 9, (40, 3)) if header == "0,1,2\n" else X.round(3)
    path.write_text(header + pd.DataFrame(table[:, :count]).to_csv(index=False, header=False))
    assert "header=True" in open_dataset(path).warnings[0]


@pytest.mark.parametrize("header", [True, False])
def test_decimal_commas(tmp_path, header):
    frame = pd.DataFrame(X.round(3), columns=list("abc"))
    path = written(tmp_path, frame, sep=";", decimal=",", index=False, header=header)
    np.testing.assert_allclose(rows(path), frame)


def test_numbers_with_points_beside_commas_have_points(tmp_path):
    path = tmp_path / "table.csv"
    path.write_text("a;b\n1,234;2.5\n1,500;3.5\n")
    assert rows(path, columns=["b"]).tolist() == [[2.5], [3.5]]
    with pytest.raises(InputError, match="'1,234' is not a number"):
        open_dataset(path)


@pytest.mark.parametrize("form", ["csv", "frame", "parquet"])
@pytest.mark.parametrize(
    ("name", "values"), [("id", [5, 5, 7, 7, 9, 9]), ("record_id", list("557799")), ("rank", [2, 0, 1, 1, 2, 0])]
)
def test_numbers_that_repeat_are_no_index(tmp_path, form, name, values):
    frame = pd.DataFrame({name: np.array(values, np.int64), "x": X[:6, 0]})
    source = written(tmp_path, frame, index=False) if form == "csv" else frame
    if form == "parquet":
        source = tmp_path / "table.parquet"
        frame.to_parquet(source, row_group_size=3)  # of which each may hold running numbers
    dataset = open_dataset(source)
    assert dataset.feature_names == [name, "x"] and not dataset.warnings


@pytest.mark.parametrize("form", ["csv", "frame", "parquet"])
def test_columns_that_are_chosen_are_all_read(tmp_path, form):
    frame = pd.DataFrame(X, columns=list("abc")).rename_axis("index").reset_index()
    source = written(tmp_path, frame, index=False) if form == "csv" else frame
    if form == "parquet":
        source = tmp_path / "table.parquet"
        frame.to_parquet(source)
    np.testing.assert_allclose(rows(source, columns=["c", "b"]), X[:, [2, 1]])
    np.testing.assert_allclose(rows(source, columns=["index", "a"]), np.c_[np.arange(len(X)), X[:, 0]])
    assert rows(source, columns=["a"]).shape == (len(X), 1)


def test_single_rows(tmp_path):
    for header in (["a", "b"], [0, 1]):
        assert rows(written(tmp_path, pd.DataFrame([[1.5, 2.5]], columns=header))).tolist() == [[1.5, 2.5]]


@pytest.mark.parametrize("form", ["csv", "frame"])
def test_ids_of_edges_are_no_weights(tmp_path, form):
    wanted = sorted((str(u), str(v), 1.0) for u, v in LINKS[["source", "target"]].itertuples(index=False))
    for names in (["id", "source", "target"], ["edge_id", "a", "b"]):
        frame = LINKS.assign(weight=[105, 101, 107, 103, 108])[["weight", "source", "target"]].set_axis(names, axis=1)
        table = written(tmp_path, frame, index=False) if form == "csv" else frame
        assert edges(table) == wanted


def test_words_of_the_first_line_that_occur_late(tmp_path):
    path = tmp_path / "late.csv"
    path.write_text("zed,amy\n" + "".join(f"n{i},n{i + 1}\n" for i in range(1500)) + "amy,n5\n")
    assert ("zed", "amy", 1) in edges(path)
    path.write_text("Ann,Bob\nEve,Zoe\nKim,Lee\n")  # nobody occurs twice
    assert len(edges(path)) == 3 and "header=True" in open_graph(path).warnings[0]


@pytest.mark.parametrize(
    "text",
    [
        "0,1\na,b\nb,c\n",
        ",0,1\n0,a,b\n1,b,c\n",
        '"from" "to"\n"1" "a" "b"\n"2" "b" "c"\n',
        '"x","y"\n"1","a","b"\n"2","b","c"\n',
        "x,y,when\na,b,1577836800\nb,c,1577923200\n",
        "x,y,when\na,b,2020-01-01\nb,c,\n",
        "#when,source,target\n3,a,b\n1,b,c\n",
    ],
)
def test_headers_of_edges_that_programs_write(tmp_path, text):
    path = tmp_path / ("edges.csv" if "," in text else "edges.txt")
    path.write_text(text)
    read = edges(path, weight=None) if text[0] == "#" else edges(path)
    assert read == [("a", "b", 1), ("b", "c", 1)]


def test_tags_in_the_first_line(tmp_path):
    path = tmp_path / "tags.csv"
    for text in ("#cat,#dog\n#dog,#pet\n", "#cat,dog\npet,#cat\n"):
        path.write_text(text)
        assert len(edges(path)) == 2


def test_an_adjacency_matrix_with_names_is_no_list(tmp_path):
    matrix = pd.DataFrame([[0, 1, 0], [1, 0, 1], [0, 1, 0]], index=list("abc"), columns=list("abc"))
    with pytest.raises(InputError, match="adjacency matrix with names"):
        open_graph(written(tmp_path, matrix))
