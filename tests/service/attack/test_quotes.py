"""Sentences about files that are named by a path quote nothing of them; about an upload they may."""

from __future__ import annotations

import io

import numpy as np
import pytest

from mgclust import open_graph
from mgclust.algorithms import METHODS
from mgclust.algorithms.silhouette.labels import encode_labels
from mgclust.base.errors import MgclustError
from mgclust.data import open_dataset
from mgclust.data.labels import read_labels
from mgclust.outside.quoting import quote_nothing
from mgclust.outside.rooted_files import RootedFile
from support.attempt_answers import answer_to

SECRET = "mgc_4x7Kq9"


def parquet(**columns):
    import pyarrow as pa
    from pyarrow import parquet as pq

    file = io.BytesIO()
    pq.write_table(pa.table(columns), file)
    return file.getvalue()


def npy(array):
    file = io.BytesIO()
    np.save(file, array, allow_pickle=False)
    return file.getvalue()


def npz(**arrays):
    file = io.BytesIO()
    np.savez(file, **arrays)
    return file.getvalue()


def labels(source):
    return encode_labels(read_labels(source), 3)


def parameter(method, name):
    return lambda source: METHODS[method].constraints[name].parse(source, name)


def columns(source):
    return open_dataset(source, columns=["wanted"])


FILES = [
    ("x.csv", open_dataset, f"a,b\n1,2\n3,{SECRET}\n"),
    ("x.csv", open_dataset, f"{SECRET},b\n1,2\n3,x\n"),
    ("x.csv", columns, f"{SECRET},b\n1,2\n"),
    ("x.tsv", open_dataset, f"1\t2\n{SECRET}\t4\n"),
    ("x.npy", open_dataset, b"\x93NUMPY\x01\x00\x46\x00" + f"{{'{SECRET}': ".encode().ljust(70)),
    ("x.npy", open_dataset, npy(np.zeros(3, [(SECRET, "f8")]))),
    ("x.npz", open_dataset, npz(**{SECRET: np.zeros(3), "other": np.zeros(3)})),
    ("x.parquet", open_dataset, parquet(**{SECRET: ["text"]})),
    ("x.parquet", columns, parquet(**{SECRET: [1.0]})),
    ("x.txt", open_graph, f"{SECRET}\n"),
    ("x.txt", open_graph, f"1 2\n2 3\n3 {SECRET}\n4 5\n5 6\n"),
    ("x.txt", open_graph, f"1 2 {SECRET}\n1 2 0.5\n"),
    ("x.csv", open_graph, f"{SECRET},b,c,d\n1,2,3,4\n"),
    ("x.mtx", open_graph, f"%%MatrixMarket matrix {SECRET} real general\n1 1 1\n"),
    ("x.mtx", open_graph, f"%%MatrixMarket matrix coordinate pattern general\n2 2 1\n1 {SECRET}\n"),
    ("x.graph", open_graph, f"{SECRET}\n"),
    ("x.graph", open_graph, f"2 1 {SECRET}\n2\n1\n"),
    ("x.graph", open_graph, f"2 1\n2\n{SECRET}\n"),
    ("x.npz", open_graph, npz(**{SECRET: np.zeros(3)})),
    ("x.npy", open_graph, npy(np.zeros((3, 2), [(SECRET, "f8")]))),
    ("x.parquet", open_graph, parquet(**{SECRET: [1.5], "v": [1.5]})),
    ("x.parquet", open_graph, parquet(**{SECRET: [None, 1], "v": [1, 2]})),
    ("x.csv", labels, f"label\n1.5\n{SECRET}\n"),
    ("x.npy", labels, npy(np.array([0.0, 1.0, 4711.25]))),
    ("x.npz", labels, npz(**{SECRET: np.zeros(3), "other": np.zeros(3)})),
    ("x.npy", parameter("fuzzy-c-means", "init"), b"\x93NUMPY\x01\x00\x46\x00" + f"{{'{SECRET}': ".encode().ljust(70)),
    ("x.npy", parameter("affinity-propagation", "preference"), npy(np.zeros(3, [(SECRET, "f8")]))),
]


def said(read, file):
    """The sentence, or nothing where the file is read."""
    try:
        read(file)
    except MgclustError as error:
        return str(error)
    return ""


@pytest.mark.slow
@pytest.mark.parametrize(("name", "read", "content"), FILES)
def test_no_sentence_quotes_a_file_that_is_not_the_senders(tmp_path, name, read, content):
    (tmp_path / name).write_bytes(content if isinstance(content, bytes) else content.encode())
    token = "4711.25" if b"NUMPY" in (tmp_path / name).read_bytes()[:10] and read is labels else SECRET
    told = said(read, RootedFile(str(tmp_path), name, quotable=True))
    quote_nothing()  # as the process does that reads a job's files
    try:
        withheld = said(read, RootedFile(str(tmp_path), name, quotable=False))
    finally:
        quote_nothing(False)
    assert bool(told) == bool(withheld) and token not in withheld
    if read in (open_dataset, columns, open_graph):  # also where nothing but the file says so: on a Dask worker
        assert token not in said(read, RootedFile(str(tmp_path), name, quotable=False))


def test_sentences_do_quote_an_own_file(tmp_path):
    """Else the test above could not fail."""
    quoted = 0
    for number, (name, read, content) in enumerate(FILES):
        (tmp_path / str(number)).mkdir()
        path = tmp_path / str(number) / name
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        told = said(read, RootedFile(str(path.parent), name))
        quoted += SECRET in told or "4711.25" in told
    assert quoted > len(FILES) // 2


@pytest.mark.slow
@pytest.mark.parametrize("quotable", [True, False])
@pytest.mark.parametrize(
    ("method", "name", "content"),
    [
        ("density-peaks", "x.csv", f"a,b\n1,2\n3,{SECRET}\n".encode()),
        ("density-peaks", "x.npz", npz(**{SECRET: np.zeros(3), "other": np.zeros(3)})),
        ("communities", "x.txt", f"{SECRET}\n".encode()),
        ("communities", "x.graph", f"2 1\n2\n{SECRET}\n".encode()),
    ],
)
def test_neither_the_answer_nor_the_log_of_an_attempt(tmp_path, method, name, content, quotable):
    (tmp_path / name).write_bytes(content)
    order = {
        "folder": str(tmp_path / "job" / "attempt-1"), "hidden": [], "max_rows": 0,
        "files": {"0": {"root": str(tmp_path), "name": name, "quotable": quotable}},
        "request": {"method": method, "parameters": {}, "report": False, "sources": [{"path": name}]},
        "place": {"cpu": True},
        "checkpoint": str(tmp_path / "job" / "checkpoint"), "checkpoint_seconds": 60.0,
    }  # fmt: skip
    answer = answer_to(order)
    log = (tmp_path / "job" / "attempt-1" / "log.txt").read_text()
    assert answer["fault"] == "input" and "InputError" in log
    assert (SECRET in answer["error"]) == (SECRET in log) == quotable
    assert name in answer["error"]
