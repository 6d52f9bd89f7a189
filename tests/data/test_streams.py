"""Text that is compressed, comes from a pipe, or ends its lines otherwise: the same as from a plain file."""

import bz2
import gzip
import io
import os
import pickle
import sys
import threading

import numpy as np
import pyarrow as pa
import pytest

from mgclust import open_dataset, open_graph
from mgclust.base.errors import InputError
from mgclust.data.graphs import text_chunks
from mgclust.data.labels import read_labels
from mgclust.outside import inflation

X = np.round(np.random.default_rng(0).normal(size=(50, 3)), 3)
TABLE = "a,b,c\n" + "\n".join(",".join(map(str, row)) for row in X.tolist()) + "\n"
EDGES = "".join(f"{u} {v}\n" for u, v in np.random.default_rng(1).integers(0, 30, (200, 2)).tolist())
LABELS = "".join(f"{k}\n" for k in range(50))
PACKED = {
    "": bytes,
    ".gz": gzip.compress,
    ".bz2": bz2.compress,
    ".zst": lambda data: pa.compress(data, "zstd", asbytes=True),
    ".GZ": gzip.compress,
}
KINDS = {
    "rows": ("x.csv", TABLE, lambda path: open_dataset(path).read(3, 40)),
    "tsv": ("x.tsv", TABLE.replace(",", "\t"), lambda path: open_dataset(path).read(3, 40)),
    "edges": ("g.txt", EDGES, lambda path: open_graph(path).read(7, 190)),
    "csv edges": ("g.csv", EDGES.replace(" ", ","), lambda path: open_graph(path).read(7, 190)),
    "labels": ("l.txt", LABELS, read_labels),
}


def expected(kind, tmp_path):
    name, text, read = KINDS[kind]
    (tmp_path / name).write_text(text)
    return read(tmp_path / name)


@pytest.mark.parametrize("suffix", PACKED)
@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
@pytest.mark.parametrize("kind", KINDS)
def test_compression_and_line_ends_change_nothing(kind, end, suffix, tmp_path, monkeypatch):
    monkeypatch.setattr(text_chunks, "CHUNK_BYTES", 300)
    name, text, read = KINDS[kind]
    path = tmp_path / f"packed-{name}{suffix}"
    path.write_bytes(PACKED[suffix](text.replace("\n", end).encode()))
    np.testing.assert_array_equal(read(path), expected(kind, tmp_path))


@pytest.mark.parametrize("suffix", ["", ".gz"])
@pytest.mark.parametrize("kind", KINDS)
def test_a_named_pipe_is_opened_once(kind, suffix, tmp_path):
    """And what was opened goes to other processes, though the pipe is gone."""
    name, text, read = KINDS[kind]
    path = tmp_path / f"pipe-{name}{suffix}"
    os.mkfifo(path)
    writer = threading.Thread(target=lambda: path.write_bytes(PACKED[suffix](text.encode())))
    writer.start()
    found = read(path)
    writer.join(10)
    np.testing.assert_array_equal(found, expected(kind, tmp_path))


class Input:
    def __init__(self, text):
        self.buffer = io.BytesIO(text.encode())


@pytest.mark.parametrize("kind", KINDS)
def test_standard_input(kind, tmp_path, monkeypatch):
    _, text, read = KINDS[kind]
    monkeypatch.setattr(sys, "stdin", Input(text))
    np.testing.assert_array_equal(read("-"), expected(kind, tmp_path))


def test_what_came_from_standard_input_is_kept(monkeypatch):
    monkeypatch.setattr(sys, "stdin", Input(TABLE))
    dataset = open_dataset("-", columns=["c", "a"])
    again = pickle.loads(pickle.dumps(dataset))
    np.testing.assert_array_equal(again.read(0, 50), X[:, [2, 0]])
    assert again.fingerprint() == open_dataset(X[:, [2, 0]].copy()).fingerprint() and dataset.name == "standard input"
    monkeypatch.setattr(sys, "stdin", Input(EDGES))
    graph = pickle.loads(pickle.dumps(open_graph("-")))
    assert graph.read(0, 200).astype(str).tolist() == [line.split() for line in EDGES.splitlines()]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "standard input is empty"),
        ("1,2\n3,x\n", "standard input, line 2, column 2"),
        ("a,b\n1,2\n3\n", "standard input, line 3 has 1 fields"),
        ("a\n1\n", "'c' is not a column of standard input"),
    ],
)
def test_messages_name_standard_input(text, said, monkeypatch):
    monkeypatch.setattr(sys, "stdin", Input(text))
    with pytest.raises(InputError, match=said):
        open_dataset("-", columns="c" if text.startswith("a\n") else None)


@pytest.mark.parametrize(
    ("text", "said"), [("", "standard input is an empty graph"), ("a,b\nc,d,e\n", "standard input, line 2 ")]
)
def test_messages_on_graphs_name_standard_input(text, said, monkeypatch):
    monkeypatch.setattr(sys, "stdin", Input(text))
    with pytest.raises(InputError, match=said):
        open_graph("-")


@pytest.mark.parametrize("name", ["x.npy", "x.parquet", "x.nii.gz"])
def test_pipes_of_other_formats_are_refused_without_waiting(name, tmp_path):
    os.mkfifo(tmp_path / name)
    writer = threading.Thread(target=lambda: (tmp_path / name).write_bytes(b"x"), daemon=True)
    writer.start()
    with pytest.raises(InputError, match=r"is a pipe, .*only .*text"):
        open_dataset(tmp_path / name)


@pytest.mark.parametrize("suffix", [".gz", ".bz2", ".zst"])
@pytest.mark.parametrize("kind", ["rows", "edges", "labels"])
def test_bombs_and_damage_end_with_a_sentence(kind, suffix, tmp_path, monkeypatch):
    monkeypatch.setattr(inflation, "_MIN_INFLATED", 2**16)
    monkeypatch.setattr(inflation, "_MAX_DEFLATED", 50)
    name, text, read = KINDS[kind]
    path = tmp_path / f"{name}{suffix}"
    path.write_bytes(PACKED[suffix](b"1,1\n" * 2**18 if kind == "rows" else b"1\n" * 2**18))
    with pytest.raises(InputError, match="times its size; decompress it first"):
        read(path)
    whole = PACKED[suffix](text.encode() * 20)
    for damaged in (whole[: len(whole) // 2], b"no such thing", whole[:20] + bytes(20) + whole[40:]):
        path.write_bytes(damaged)
        with pytest.raises(InputError):
            read(path)
