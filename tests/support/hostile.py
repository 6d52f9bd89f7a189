"""Files made to do harm: well-formed ones of every format, and their mutations."""

from __future__ import annotations

import bz2
import gzip
import io
import json
import random
import struct
import zipfile
from pathlib import Path

import networkx
import nibabel
import numpy as np
import pyarrow as pa
import pyarrow.feather
import pyarrow.parquet
import scipy.sparse
import zarr

from mgclust.base.errors import MgclustError
from mgclust.data import open_dataset, open_graph
from mgclust.data.labels import read_labels

X = np.random.default_rng(0).normal(size=(40, 3)).astype(np.float32)
EDGES = np.array([[0, 1], [0, 2], [1, 2], [2, 3], [3, 4], [4, 0]])


def _npy(array, version=None) -> bytes:
    file = io.BytesIO()
    np.lib.format.write_array(file, np.asarray(array), version=version)
    return file.getvalue()


def _npz(save=np.savez, **arrays) -> bytes:
    file = io.BytesIO()
    save(file, **arrays)
    return file.getvalue()


def _sparse() -> bytes:
    file = io.BytesIO()
    scipy.sparse.save_npz(file, scipy.sparse.coo_array((np.ones(6), EDGES.T), shape=(6, 6)).tocsr())
    return file.getvalue()


def _nifti(shape=(3, 3, 2, 5), kind=nibabel.Nifti1Image, extension=b"") -> bytes:
    image = kind(np.random.default_rng(1).integers(1, 99, shape).astype(np.int16), np.eye(4))
    if extension:
        image.header.extensions.append(nibabel.nifti1.Nifti1Extension("comment", extension))
    return image.to_bytes()


def _cifti() -> bytes:
    models = nibabel.cifti2.BrainModelAxis.from_mask(np.ones((2, 2, 2), bool), affine=np.eye(4))
    axes = (nibabel.cifti2.SeriesAxis(0, 2, 5), models)
    image = nibabel.cifti2.Cifti2Image(np.random.default_rng(2).normal(size=(5, 8)).astype(np.float32), axes)
    image.nifti_header.set_intent("ConnDenseSeries")
    return image.to_bytes()


def _dlabel() -> bytes:
    models = nibabel.cifti2.BrainModelAxis.from_surface(np.arange(8), 9, name="CortexLeft")
    names = nibabel.cifti2.LabelAxis(["map"], [{0: ("???", (0, 0, 0, 0)), 1: ("a", (1, 0, 0, 1))}])
    image = nibabel.cifti2.Cifti2Image(np.arange(8, dtype=np.float32)[None], (names, models))
    image.nifti_header.set_intent("ConnDenseLabel")
    return image.to_bytes()


def _gifti() -> bytes:
    gifti = nibabel.gifti
    keys = np.arange(8, dtype=np.int32)
    array = gifti.GiftiDataArray(keys, intent="NIFTI_INTENT_LABEL", datatype="NIFTI_TYPE_INT32")
    meta = gifti.GiftiMetaData({"AnatomicalStructurePrimary": "CortexLeft"})
    return gifti.GiftiImage(meta=meta, darrays=[array]).to_bytes()


def _parquet(table) -> bytes:
    file = io.BytesIO()
    pa.parquet.write_table(pa.table(table), file)
    return file.getvalue()


def _feather(table, **how) -> bytes:
    file = io.BytesIO()
    pa.feather.write_feather(pa.table(table), file, **how)
    return file.getvalue()


TABLE = "\n".join(["a,b,c", *(",".join(map(repr, row)) for row in X.tolist())]).encode() + b"\n"
PAIRS = b"".join(b"%d %d\n" % tuple(edge) for edge in EDGES)
MATRIX = b"%%MatrixMarket matrix coordinate pattern symmetric\n6 6 6\n" + b"".join(
    b"%d %d\n" % (u + 1, v + 1) for u, v in EDGES
)
METIS = b"5 6\n2 3 5\n1 3\n1 2 4\n3 5\n4 1\n"

NETWORK = networkx.Graph([(f"n{u}", f"n{v}") for u, v in EDGES.tolist()])
networkx.set_edge_attributes(NETWORK, 1.5, "weight")

ROWS = {
    "x.npy": _npy(X),
    "f.npy": _npy(np.asfortranarray(X.astype(">f8"))),
    "v.npy": _npy(X, (3, 0)),
    "x.npz": _npz(X=X, y=np.arange(40)),
    "c.npz": _npz(np.savez_compressed, X=X, y=np.arange(40)),
    "x.csv": TABLE,
    "x.tsv": TABLE.replace(b",", b"\t"),
    "x.parquet": _parquet({"a": X[:, 0], "b": X[:, 1]}),
    "x.feather": _feather({"a": X[:, 0], "b": X[:, 1]}),
    "c.feather": _feather({"a": X[:, 0], "b": X[:, 1]}, compression="zstd", chunksize=15),
    "x.csv.gz": gzip.compress(TABLE, mtime=0),
    "x.csv.bz2": bz2.compress(TABLE),
    "x.csv.zst": pa.compress(TABLE, "zstd", asbytes=True),
    "x.nii": _nifti(extension=b"made by hand"),
    "x.nii.gz": gzip.compress(_nifti(), mtime=0),
    "y.nii.gz": gzip.compress(_nifti(kind=nibabel.Nifti2Image, extension=b"made by hand"), mtime=0),
    "x.dtseries.nii": _cifti(),
}
GRAPHS = {
    "g.npy": _npy(EDGES),
    "g.npz": _npz(edges=EDGES, n=6, weights=np.ones(6), names=np.array(list("abcdef"))),
    "c.npz": _npz(np.savez_compressed, edges=EDGES, labels=np.zeros(5)),
    "s.npz": _sparse(),
    "g.txt": b"# Directed\n" + PAIRS,
    "g.csv": b"source,target,weight\n" + PAIRS.replace(b" ", b",").replace(b"\n", b",1.5\n"),
    "n.tsv": b"source\ttarget\n" + PAIRS.replace(b" ", b"\tnode "),
    "g.edges.gz": gzip.compress(PAIRS, mtime=0),
    "g.mtx": MATRIX,
    "g.mtx.gz": gzip.compress(MATRIX, mtime=0),
    "a.edges.bz2": bz2.compress(PAIRS.replace(b"\n", b" {'weight': 2.0}\n")),
    "general.mtx": MATRIX.replace(b"symmetric", b"general"),
    "g.feather": _feather({"u": EDGES[:, 0], "v": EDGES[:, 1]}),
    "g.graphml": "\n".join(networkx.generate_graphml(NETWORK)).encode(),
    "g.gml": "\n".join(networkx.generate_gml(NETWORK)).encode(),
    "g.graph": METIS,
    "g.parquet": _parquet({"u": EDGES[:, 0], "v": EDGES[:, 1]}),
}
LABELS = {
    "l.npy": _npy(np.arange(40) % 3),
    "l.npz": ROWS["c.npz"],
    "l.csv": b"row,label\n0,1\n1,2\n2,1\n",
    "l.txt": b"label\n0\n1\n2\n1\n",
    "l.dlabel.nii": _dlabel(),
    "l.gii": _gifti(),
}

_NUMBERS = [0, 1, -1, 2, 127, 255, 2**15, 2**16 - 1, 2**31 - 1, -(2**31), 2**32 - 1, 2**63 - 1, -(2**63)]
_FLOATS = [float("nan"), float("inf"), -float("inf"), -1.0, 0.0, 1e30, 352.0, 1e9]
_WORDS = [
    b"\0", b"\xff\xfe", b"\xef\xbb\xbf", b"\r", b"\n", b"\n\n", b'"', b"'", b"-", b"nan", b"inf", b"1e999", b"../",
    b"/etc/passwd",
    b"9" * 30, b"9" * 5000, b"\xc2\xb2", b"\xd9\xa1", b"#", b"%", b",,,", b"\t", b"(" * 300, b"{" * 300, b"|O", b"O",
    b"<f8", b"|V0", b"<U0",
    b"|S2147483647", b"[('a', '<f8')]", b"-5", b"True", b"None", b"1L", b"__import__('os')", b"edges.npy", b"X.npy",
]  # fmt: skip


def mutated(data: bytes, rng: random.Random) -> bytes:
    """Some bytes of a file as others, up to a few times."""
    data = bytearray(data)
    for _ in range(rng.choice((1, 1, 1, 2, 4, 16))):
        at = rng.randrange(len(data) + 1)
        if rng.random() < 0.5:
            at = min(at, rng.randrange(1, 600))  # where headers are
        match rng.randrange(9):
            case 0:
                del data[at:]
            case 1 if at < len(data):
                data[at] ^= 1 << rng.randrange(8)
            case 2 if at < len(data):
                data[at] = rng.randrange(256)
            case 3:
                del data[at : at + rng.choice((1, 2, 4, 8, 100))]
            case 4:
                data[at:at] = rng.choice(_WORDS)
            case 5:
                word = rng.choice(_WORDS)
                data[at : at + len(word)] = word
            case 6:
                kind = rng.choice(["<h", ">h", "<i", ">i", "<q", ">q"])
                number = rng.choice(_NUMBERS)
                bits = 8 * struct.calcsize(kind)
                number = (number + 2 ** (bits - 1)) % 2**bits - 2 ** (bits - 1)
                data[at : at + bits // 8] = struct.pack(kind, number)
            case 7:
                kind = rng.choice(["<f", ">f", "<d"])
                data[at : at + struct.calcsize(kind)] = struct.pack(kind, rng.choice(_FLOATS))
            case 8:
                other = rng.randrange(len(data) + 1)
                data[at:at] = data[other : other + rng.randrange(64)]
    return bytes(data)


def inside(name: str, data: bytes, rng: random.Random) -> bytes:
    """A mutation of what a file holds, not of how it is packed: checksums are right again."""
    if name.endswith(".gz"):
        return gzip.compress(mutated(gzip.decompress(data), rng), mtime=0)
    if not name.endswith(".npz"):
        return mutated(data, rng)
    file = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(data)) as old, zipfile.ZipFile(file, "w") as new:
        chosen = rng.choice(old.namelist())
        for info in old.infolist():
            content = old.read(info)
            new.writestr(info, mutated(content, rng) if info.filename == chosen else content)
    return file.getvalue()


def write_zarr(path: Path, version: int, group: bool) -> None:
    """A small zarr store."""
    where = path / "X" if group else path
    if group:
        zarr.create_group(str(path), zarr_format=version)
    zarr.create_array(str(where), data=X, chunks=(16, 2), zarr_format=version)


_MEMBERS = [
    0, 1, -1, 2**31, 10**15, 10**30, None, True, "", "..", "../../x", "/etc/passwd", [], {}, [10**15, 3], [0, 0], [-1,
    3], [1, 1],
    [10**9, 10**9], "<f8", "|O", "|V2147483647", "object", "float64", "pickle", [{"id": "pickle"}], {"id": "pickle"},
    {"id": "gzip"},
    {"name": "bytes"}, [{"name": "gzip", "configuration": {"level": 1}}], {"name": "regular",
    "configuration": {"chunk_shape": [10**12, 3]}},
    [{"name": "numcodecs.pickle"}], "NaN", 1e308, {"name": "v2", "configuration": {"separator": "/../"}}, "a" * 5000,
]  # fmt: skip


def mutate_zarr(path: Path, rng: random.Random) -> None:
    """Change a store's metadata, or the bytes of one of its files."""
    files = sorted(file for file in path.rglob("*") if file.is_file())
    described = [file for file in files if file.name in ("zarr.json", ".zarray", ".zgroup")]
    if rng.random() < 0.3:
        file = rng.choice(files)
        file.write_bytes(mutated(file.read_bytes(), rng))
        return
    file = rng.choice(described)
    content = json.loads(file.read_text())
    for _ in range(rng.choice((1, 1, 2))):
        place = content
        while True:
            key = rng.choice(list(place) if isinstance(place, dict) else range(len(place)))
            if isinstance(place[key], (dict, list)) and place[key] and rng.random() < 0.6:
                place = place[key]
                continue
            place[key] = rng.choice(_MEMBERS)
            break
    file.write_text(json.dumps(content))


def read_rows(path):
    dataset = open_dataset(path)
    n = min(dataset.shape[0], 500)
    rows = dataset.read(0, n)
    assert rows.shape == (n, dataset.shape[1]) and rows.dtype == dataset.dtype
    dataset.read(dataset.shape[0] - n, dataset.shape[0])
    assert dataset.labels is None or len(dataset.labels) == dataset.shape[0]
    json.dumps(dataset.describe(), allow_nan=False)
    dataset.fingerprint()
    return rows


def read_graph(path):
    graph = open_graph(path)
    edges = graph.read(0, min(graph.shape[0], 500))
    assert not len(edges) or (edges[:, :2].min() >= 0 and edges[:, :2].max() < graph.n_nodes)
    for values in (graph.names, graph.labels):
        assert values is None or len(values) == graph.n_nodes
    json.dumps(graph.describe(), allow_nan=False)
    return edges


KINDS = [
    (read, name, data)
    for read, files in ((read_rows, ROWS), (read_graph, GRAPHS), (read_labels, LABELS))
    for name, data in files.items()
]


def attempted(read, path):
    """What is read, or the sentence."""
    try:
        return read(path)
    except MgclustError as error:
        assert len(str(error)) < 1500 + len(str(path)) and "\n" not in str(error)[:-1]
        return None
