"""Files that were made to do harm: each is read rightly or ends with a sentence, soon and in little memory."""

from __future__ import annotations

import gzip
import io
import json
import os
import pickle
import random
import struct
import tracemalloc
import warnings
import zipfile

import nibabel
import numpy as np
import psutil
import pytest
import scipy.sparse
import zarr

from mgclust.base.errors import InputError, InsufficientMemoryError
from mgclust.data import open_dataset, open_graph
from mgclust.data.graphs import text_chunks
from mgclust.data.labels import read_labels
from mgclust.results.result import load_result
from support import hostile
from support.hostile import KINDS, attempted, read_graph, read_rows

ROUNDS = int(os.environ.get("MGCLUST_TEST_MUTATIONS", "40"))  # of each file


ZARR = [(version, group) for version in (2, 3) for group in (False, True)]


@pytest.fixture(autouse=True)
def quiet():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def refusal(read, path, kind=InputError):
    with pytest.raises(kind) as caught:
        read(path)
    assert str(path) in str(caught.value)
    return str(caught.value)


@pytest.mark.parametrize(("read", "name", "data"), KINDS, ids=[f"{k[0].__name__}-{k[1]}" for k in KINDS])
def test_mutations_end_with_the_right_rows_or_a_sentence(tmp_path, read, name, data):
    path = tmp_path / name
    path.write_bytes(data)
    read(path)
    for seed in range(ROUNDS):
        rng = random.Random(f"{name} {seed}")
        changed = hostile.inside(name, data, rng) if seed % 2 else hostile.mutated(data, rng)
        path.write_bytes(changed)
        rows = attempted(read, path)
        if rows is not None and read is read_rows and path.suffix == ".npy":
            expected = np.load(path, allow_pickle=False)[:500]  # what NumPy makes of the same bytes
            np.testing.assert_array_equal(rows, expected.astype(rows.dtype))
    assert os.listdir(tmp_path) == [name]


@pytest.mark.slow
@pytest.mark.parametrize(("version", "group"), ZARR)
def test_mutations_of_a_zarr_store(tmp_path, version, group):
    for seed in range(ROUNDS // 2):
        rng, path = random.Random(seed), tmp_path / f"x{seed}.zarr"
        hostile.write_zarr(path, version, group)
        hostile.mutate_zarr(path, rng)
        attempted(read_rows, path)
    assert all(name.endswith(".zarr") for name in os.listdir(tmp_path))


# --- what mutation alone would hardly find


def header(shape, dtype="'<f8'") -> bytes:
    text = f"{{'descr': {dtype}, 'fortran_order': False, 'shape': {shape}, }}".encode()
    text += b" " * (-(len(text) + 11) % 64) + b"\n"
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(text)) + text


def zipped(members, method=zipfile.ZIP_DEFLATED) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", method) as archive:
        for name, content in members.items():
            archive.writestr(f"{name}.npy", content)
    return file.getvalue()


def lying(data, offset, number) -> bytes:
    """An archive whose directory says another number of bytes."""
    data = bytearray(data)
    at = data.rfind(b"PK\x01\x02") + offset
    data[at : at + 4] = struct.pack("<I", number)
    return bytes(data)


def sparse(**changed) -> bytes:
    arrays = {
        "format": np.array(b"csr"), "shape": np.array([6, 6]), "data": np.ones(4), "indices": np.arange(4),
        "indptr": np.array([0, 1, 2, 3, 4, 4, 4]),
    }  # fmt: skip
    file = io.BytesIO()
    np.savez(file, **(arrays | changed))
    return file.getvalue()


def nifti(content=None, **changed) -> bytes:
    whole = hostile.ROWS["x.nii"]
    fields = nibabel.Nifti1Header(whole[:348])
    for name, value in changed.items():
        fields[name] = value
    return fields.binaryblock + (whole[348:] if content is None else content)


def extension(size) -> bytes:
    return b"\1\0\0\0" + struct.pack("<ii", size, 6) + bytes(10**8)


EDGES = hostile._npy(hostile.EDGES)
STORED = zipfile.ZIP_STORED
SPARSE_BOMB = {"format": hostile._npy(np.array(b"csr")), "shape": hostile._npy([6, 6])} | {
    name: header((10**11,)) for name in ("indptr", "indices", "data")
}
MTX = b"%%MatrixMarket matrix coordinate pattern symmetric\n"
# What takes long to write is a function.
BOMBS = {
    "shape.npy": (read_rows, header((10**15, 3)), "truncated"),
    "negative.npy": (read_rows, header((-5, -3)) + bytes(1000), "not valid for an array"),
    "long.npy": (read_rows, b"\x93NUMPY\x02\x00" + struct.pack("<I", 2**31) + bytes(10**6), "not a whole .npy"),
    "deep.npy": (read_rows, header("(" * 500 + ")" * 500), "not a whole .npy"),
    "expression.npy": (read_rows, header("__import__('os').system('true')"), "not a whole .npy"),
    "nothing.npy": (read_rows, header((10**12, 2), "'|V0'"), "not valid for an array"),
    "pickle.npy": (read_rows, header((2, 2), "'|O'") + pickle.dumps([1]), "holds a pickle"),
    "shape.npz": (read_rows, zipped({"X": header((10**12, 3))}), "truncated"),
    "header.npz": (
        read_rows, lambda: zipped({"X": b"\x93NUMPY\x02\x00" + struct.pack("<I", 2**31) + bytes(8 * 10**7)}),
        "not a whole .npy",
    ),
    "directory.npz": (read_rows, lying(zipped({"X": header((10**7, 3))}), 24, 2**32 - 2), "truncated"),
    "both.npz": (
        read_rows, lying(lying(zipped({"X": header((10**8, 3))}), 24, 2**32 - 2), 20, 2**31), "truncated"
    ),
    "encrypted.npz": (read_rows, lying(zipped({"X": hostile._npy(hostile.X)}, STORED), 8, 1), "encrypted"),
    "lzma.npz": (read_rows, zipped({"X": hostile._npy(hostile.X)}, zipfile.ZIP_LZMA), "NumPy does not write"),
    "n.npz": (read_graph, zipped({"edges": EDGES, "n": header((10**10,))}), "truncated"),
    "names.npz": (
        read_graph,
        zipped({"edges": EDGES, "n": hostile._npy(6), "names": header((6,), "'<U500000000'")}), "truncated",
    ),
    "sparse.npz": (read_graph, zipped(SPARSE_BOMB), "truncated"),
    "outside.npz": (read_graph, sparse(indptr=np.array([0, 10**8, 2, 3, 4, 4, 4])), "non-decreasing"),
    "below.npz": (read_graph, sparse(indices=np.array([0, 1, -5, 2])), "indices must be"),
    "labels.npz": (read_labels, zipped({"labels": header((10**12,))}), "truncated"),
    "labels.npy": (read_labels, header((10**12,)), "truncated"),
    "line.csv": (read_rows, b"1," * (2**23 + 1), "first line has more than"),
    "columns.csv": (read_rows, b"1," * (2**17 + 1), "columns"),
    "field.csv": (read_rows, b'"' + b"1" * 200_000 + b'",2\n1,2\n', "field limit"),
    "zero.csv": (read_rows, b"a,b\n1,\0\n", "line 2"),
    "mixed.csv": (read_rows, b"1,2\n3,x\n", "line 2"),
    "utf16.csv": (read_rows, "1,2\n3,4\n".encode("utf-16"), "UTF-8"),
    "latin.csv": (read_rows, b"a,\xe9\n1,2\n", "UTF-8"),
    "one.edges.gz": (read_graph, gzip.compress(b"1 " * 2**21), "first lines should have at most"),
    "returns.tsv": (read_graph, b'a\t"b\rc"d\r"\n', "new-line"),
    "line.edges.gz": (read_graph, lambda: gzip.compress(b"1 2\n" + b"1 " * 2**25, 1), "more than 33,554,432 bytes"),
    "comments.edges.gz": (read_graph, gzip.compress(b"#\n" * 10**6, 1), "lines of comments"),
    "digits.edges": (read_graph, b"1 " + b"9" * 6000 + b"\n", "below 2**63"),
    "digits.mtx": (read_graph, MTX + b"9" * 5000 + b" 6 6\n", "three numbers"),
    # Each of these lines would take minutes if the time grew with the square of its length.
    "blanks.edges": (read_graph, b"0 1 {}\n0 1" + b" " * 2**19 + b"x\n", "3 fields"),
    "braces.edges": (read_graph, b"0 1 {}\n0 1 " + b"{" * 2**19 + b"\n", "3 fields"),
    "deep.gml": (read_graph, b"graph [ node [ id 0 ] a " + b"[ a " * 10**4 + b"] " * 10**4 + b"]", "too deeply"),
    "squared.mtx": (read_graph, MTX + "² 6 6\n".encode(), "three numbers"),
    "dims.nii": (read_rows, nifti(dim=[4, *[32767] * 4, 1, 1, 1]), "truncated: its header says"),
    "negative.nii": (read_rows, nifti(dim=[4, -3, -3, 3, 5, 1, 1, 1]), "shape="),
    "offset.nii": (read_rows, nifti(vox_offset=1e30), "vox_offset"),
    "nan.nii": (read_rows, nifti(vox_offset=np.nan), "vox_offset"),
    "affine.nii": (read_rows, nifti(srow_x=[np.nan] * 4), "affine"),
    "intercept.nii": (read_rows, nifti(scl_slope=1, scl_inter=np.nan), "intercept"),
    "extension.nii.gz": (
        read_rows, lambda: gzip.compress(nifti(extension(2**31 - 16), vox_offset=384), 1), "extension content"
    ),
    "minus.nii.gz": (read_rows, lambda: gzip.compress(nifti(extension(-16), vox_offset=384), 1), "extension content"),
    "early.nii.gz": (read_rows, lambda: gzip.compress(nifti(extension(0), vox_offset=100), 1), "vox offset 100"),
}  # fmt: skip


@pytest.mark.parametrize("name", BOMBS)
def test_bombs_take_no_memory(tmp_path, name, monkeypatch):
    monkeypatch.setattr(text_chunks, "LONGEST_LINE", 2**25)
    read, data, says = BOMBS[name]
    path = tmp_path / name
    path.write_bytes(data() if callable(data) else data)
    tracemalloc.start()
    try:
        assert says in refusal(read, path)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    # A line may be long; everything else is known from the first few kilobytes.
    assert peak < (128 if name == "line.edges.gz" else 64) << 20
    assert os.listdir(tmp_path) == [name]


def test_long_names_among_many_are_more_than_memory(tmp_path, monkeypatch):
    monkeypatch.setattr(psutil, "virtual_memory", type("Little", (), {"available": 2**30}))
    path = tmp_path / "g.txt"
    path.write_bytes(b"a b\n" + b"x" * 900_000 + b" c\n" + b"".join(b"n%d m%d\n" % (i, i) for i in range(10_000)))
    with pytest.raises(InsufficientMemoryError, match="the longest of 900,000 characters"):
        open_graph(path)


def test_names_in_an_archive_are_not_paths(tmp_path):
    for name in ("../../X", "/X"):
        (tmp_path / "x.npz").write_bytes(zipped({name: hostile._npy(hostile.X)}))
        np.testing.assert_array_equal(open_dataset(tmp_path / "x.npz").read(0, 40), hostile.X)
    assert os.listdir(tmp_path) == ["x.npz"]


# --- zarr


def described(path, version, **changed):
    file = path / (".zarray" if version == 2 else "zarr.json")
    file.write_text(json.dumps(json.loads(file.read_text()) | changed))
    return path


class Harm:
    """Leaves a file where it is unpickled."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return os.mkdir, (str(self.path),)


@pytest.mark.parametrize("where", ["filters", "compressor"])
@pytest.mark.parametrize("dtype", ["<f4", "|O", "|u1"])
def test_no_pickle_in_a_zarr_store_is_loaded(tmp_path, where, dtype):
    path = tmp_path / "x.zarr"
    hostile.write_zarr(path, 2, False)
    codec = {"id": "pickle", "protocol": 5}
    described(path, 2, dtype=dtype, **{where: [codec] if where == "filters" else codec})
    for chunk in path.glob("[0-9]*"):
        chunk.write_bytes(pickle.dumps(Harm(tmp_path / "harm")))
    refusal(read_rows, path)
    assert not (tmp_path / "harm").exists()


def test_a_codec_that_is_not_known_is_refused_before_a_chunk_is_read(tmp_path, monkeypatch):
    from mgclust.results import array_files

    path = tmp_path / "x.zarr"
    for version in (2, 3):
        zarr.create_array(str(path), data=hostile.X, shards=None if version == 2 else (40, 3), chunks=(20, 3),
                          zarr_format=version, overwrite=True)  # fmt: skip
        open_dataset(path)
        monkeypatch.setattr(array_files, "ZARR_CODECS", array_files.ZARR_CODECS - {"zstd"})
        assert "is encoded by zstd, which is rejected" in refusal(open_dataset, path)
        monkeypatch.undo()


@pytest.mark.parametrize("version", [2, 3])
def test_a_zarr_store_that_says_too_much(tmp_path, version):
    path = tmp_path / "x.zarr"
    hostile.write_zarr(path, version, False)
    assert "more numbers than" in refusal(open_dataset, described(path, version, shape=[10**30, 3]))
    assert "chunks across" in refusal(open_dataset, described(path, version, shape=[40, 10**6]))
    if version == 2:
        refusal(open_dataset, described(path, version, chunks=[0, 0]))
    grid = {"name": "regular", "configuration": {"chunk_shape": [10**9, 10**6]}}
    described(path, version, **({"chunks": [10**9, 10**6]} if version == 2 else {"chunk_grid": grid}))
    assert "GiB of memory" in refusal(open_dataset, path, InsufficientMemoryError)


def test_an_element_of_a_zarr_store_is_a_number(tmp_path):
    path = tmp_path / "x.zarr"
    hostile.write_zarr(path, 2, False)
    assert "should be numbers" in refusal(open_dataset, described(path, 2, dtype="|V2147483647", fill_value=".."))
    hostile.write_zarr(tmp_path / "g.zarr", 3, True)
    wide = {"name": "raw_bytes", "configuration": {"length_bytes": 2**31 - 8}}
    described(tmp_path / "g.zarr" / "X", 3, data_type=wide)
    assert "should be numbers" in refusal(open_dataset, tmp_path / "g.zarr")


@pytest.mark.parametrize("version", [2, 3])
def test_a_zarr_group_names_no_array_outside(tmp_path, version):
    outside, path = tmp_path / "outside.zarr", tmp_path / "x.zarr"
    hostile.write_zarr(outside, version, False)
    hostile.write_zarr(path, version, True)
    known = json.loads((outside / (".zarray" if version == 2 else "zarr.json")).read_text())
    if version == 2:
        metadata = {".zgroup": {"zarr_format": 2}, "../outside.zarr/.zarray": known}
        (path / ".zmetadata").write_text(json.dumps({"zarr_consolidated_format": 1, "metadata": metadata}))
    else:
        inline = {"kind": "inline", "must_understand": False, "metadata": {"../outside.zarr": known}}
        described(path, 3, consolidated_metadata=inline)
    (path / "X").rename(tmp_path / "X.zarr")
    assert "group of 0 arrays" in refusal(open_dataset, path)


# --- results from elsewhere


@pytest.mark.parametrize("file", ["../secret.npy", "/etc/passwd", "a/labels.npy", "..", ""])
def test_a_result_names_no_file_outside(tmp_path, file):
    np.save(tmp_path / "secret.npy", np.arange(3))
    (tmp_path / "out").mkdir()
    entry = {"file": file, "shape": [3], "dtype": "int64"}
    content = {"format": "mgclust-result", "format_version": 1, "method": "x", "arrays": {"labels": entry}}
    (tmp_path / "out" / "result.json").write_text(json.dumps(content))
    with pytest.raises(InputError, match="missing or damaged"):
        load_result(tmp_path / "out")


def test_a_sparse_array_of_a_result_that_leads_out_of_itself(tmp_path):
    (tmp_path / "memberships.npz").write_bytes(sparse(indptr=np.array([0, 10**8, 2, 3, 4, 4, 4])))
    entry = {"file": "memberships.npz", "shape": [6, 6], "dtype": "float64"}
    content = {"format": "mgclust-result", "format_version": 1, "method": "x", "arrays": {"memberships": entry}}
    (tmp_path / "result.json").write_text(json.dumps(content))
    with pytest.raises(InputError, match=r"missing or damaged .*non-decreasing"):
        load_result(tmp_path)
    assert scipy.sparse.load_npz(tmp_path / "memberships.npz").shape == (6, 6)
