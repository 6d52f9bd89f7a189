"""Small files that grow when they are read: a sentence, and the web process takes no part in it."""

from __future__ import annotations

import json
import resource
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import numpy as np
import psutil
import pytest

from mgclust.algorithms.density_peaks.estimator import DensityPeaks
from mgclust.base.errors import InputError
from mgclust.data import open_dataset
from mgclust.outside.rooted_files import RootedFile
from mgclust.service.confined.reader_pool import Busy, LimitExceeded, Readers
from mgclust.service.settings import Settings

pytestmark = pytest.mark.xdist_group("service")

MOST = 400 << 20  # bytes of the web process
WIDE = "\n".join(",".join(["1", "2", "3"][row : row + 1] * 100_000) for row in range(3)) + "\n"


@pytest.fixture(scope="module", autouse=True)
def one_reader():
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("mgclust.service.confined.reader_pool.READERS", 1)
        yield


@pytest.fixture(scope="module")
def readers(tmp_path_factory):
    return Readers(Settings(data=tmp_path_factory.mktemp("readers"), reader_memory=400 << 20))


def peak_of(process):
    with open(f"/proc/{process.pid}/status") as file:
        return next(1024 * int(line.split()[1]) for line in file if line.startswith("VmHWM:"))


def order_of(folder, path, shape):
    """The order for a picture of a file, by a result that says it was made from rows of this shape."""
    rows = np.random.default_rng(0).normal(size=(20, 2))
    DensityPeaks(n_clusters=2, client=None, device="cpu").fit(rows).result_.save(folder / "result")
    said = json.loads((folder / "result" / "result.json").read_text())
    said["source"]["shape"] = list(shape)
    (folder / "result" / "result.json").write_text(json.dumps(said))
    files = {"0": {"root": str(path.parent), "name": path.name, "quotable": True}}
    request = {"method": "density-peaks", "sources": [{"upload": "x"}]}
    return {
        "do": "points",
        "result": {"root": str(folder), "name": "result"},
        "files": files,
        "request": request,
        "refused": None,
    }


@pytest.mark.slow
def test_pictures_leave_the_web_process_small(running, tmp_path):
    """965 KiB of text that cost the parser a gigabyte."""
    (tmp_path / "wide.csv").write_text(WIDE)
    service = running.client()
    job = service.submit("density-peaks", tmp_path / "wide.csv", n_clusters=2, report=False).wait()
    Path(f"/proc/{running.web.pid}/clear_refs").write_text("5")  # forgets the peak of other tests
    token = (running.data / "token").read_text().strip()
    with ThreadPoolExecutor(8) as pool:
        asked = [
            pool.submit(
                httpx.get,
                f"{running.url}/api/v1/jobs/{job.id}/points",
                headers={"Authorization": f"Bearer {token}"},
                timeout=120,
            )
            for _ in range(8)
        ]
        for answer in (each.result() for each in asked):
            assert answer.status_code in (200, 503)
    assert peak_of(psutil.Process(running.web.pid)) < MOST


@pytest.mark.slow
def test_a_table_of_very_many_columns(readers, tmp_path):
    (tmp_path / "wide.csv").write_text(WIDE)
    with pytest.raises(LimitExceeded, match=r"wide.csv needs .* GiB of memory|too large to be read here"):
        readers.serve(order_of(tmp_path, tmp_path / "wide.csv", (3, 100_000)), dict)


@pytest.mark.slow
def test_a_row_group_of_equal_values(readers, tmp_path):
    import pyarrow as pa
    from pyarrow import parquet

    table = pa.table({f"c{j}": pa.array(np.zeros(2**20)) for j in range(64)})
    parquet.write_table(table, tmp_path / "x.parquet", row_group_size=2**20)
    assert (tmp_path / "x.parquet").stat().st_size < 1 << 20
    with pytest.raises(LimitExceeded, match=r"x.parquet needs 0.\d GiB of memory"):
        readers.serve(order_of(tmp_path, tmp_path / "x.parquet", (2**20, 64)), dict)


@pytest.mark.slow
def test_a_chunk_that_is_more_than_it_says(readers, tmp_path):
    import gzip

    zarr = pytest.importorskip("zarr")
    store = tmp_path / "x.zarr"
    array = zarr.create_array(
        str(store), shape=(64, 32), chunks=(64, 32), dtype="f8", compressors=zarr.codecs.GzipCodec()
    )
    array[:] = 1
    (chunk,) = (path for path in store.rglob("*") if path.is_file() and path.suffix != ".json")
    bomb = gzip.compress(bytes(600 << 20), 9)
    chunk.write_bytes(bomb)
    told = readers.serve(order_of(tmp_path, store, (64, 32)), dict)
    assert told["index"] == [] and "a chunk of it is decoded to more than" in told["why"]


@pytest.mark.quick("gzip-*")
@pytest.mark.parametrize("version", [2, 3])
@pytest.mark.parametrize("codec", ["gzip", "zstd", "zstd without its size", "blosc", "lz4", "bz2", "lzma", "zlib"])
def test_chunks_are_bounded_before_they_are_decoded(tmp_path, codec, version):
    numcodecs = pytest.importorskip("numcodecs")
    zarr = pytest.importorskip("zarr")
    name, values = codec.partition(" ")[0], np.arange(64 * 32, dtype="f8").reshape(64, 32)
    in_v3 = {"gzip": zarr.codecs.GzipCodec, "zstd": zarr.codecs.ZstdCodec, "blosc": zarr.codecs.BloscCodec}
    if version == 3:
        compressor = (
            in_v3[name]() if name in in_v3 else getattr(zarr.codecs.numcodecs, name.upper().replace("ZLIB", "Zlib"))()
        )
    else:
        compressor = numcodecs.get_codec({"id": name})
    array = zarr.create_array(
        str(tmp_path / "x.zarr"), shape=(64, 32), chunks=(64, 32), dtype="f8", compressors=compressor,
        zarr_format=version,
    )  # fmt: skip
    array[:] = values
    source = RootedFile(str(tmp_path), "x.zarr")
    np.testing.assert_array_equal(open_dataset(source).read(0, 64), values)
    (chunk,) = (p for p in (tmp_path / "x.zarr").rglob("*") if p.is_file() and not p.name.startswith((".z", "zarr")))
    large = bytes(8 << 20)
    if codec == "zstd without its size":
        import pyarrow as pa

        sink = pa.BufferOutputStream()
        with pa.CompressedOutputStream(sink, "zstd") as stream:
            for _ in range(8):
                stream.write(large[: 1 << 20])
        chunk.write_bytes(sink.getvalue().to_pybytes())
    else:
        chunk.write_bytes(numcodecs.get_codec({"id": name}).encode(np.frombuffer(large, np.uint8)))
    with pytest.raises(InputError, match="a chunk of it is decoded to more than"):
        open_dataset(source).read(0, 64)


@pytest.mark.slow
def test_what_takes_too_long_is_ended_and_the_next_one_is_not(tmp_path):
    """No process waits behind it, and none is left of it."""
    readers = Readers(Settings(data=tmp_path, reader_seconds=60.0))
    np.save(tmp_path / "x.npy", np.random.default_rng(0).normal(size=(20, 2)))
    order = order_of(tmp_path, tmp_path / "x.npy", (20, 2))
    assert len(readers.serve(order, dict)["index"]) == 20
    (tmp_path / "slow").mkdir()
    rows = "\n".join(["1,2"] * 4_000_000)
    (tmp_path / "long.csv").write_text(rows)
    slow = order | order_of(tmp_path / "slow", tmp_path / "long.csv", (4_000_000, 2)) | {"seconds": 0.05}
    before = time.monotonic()
    with pytest.raises(LimitExceeded, match=r"took more than the 0.05 s"):
        readers.serve(slow, dict)
    assert time.monotonic() - before < 60
    assert len(readers.serve(order, dict)["index"]) == 20


@pytest.mark.slow
def test_where_all_are_taken_the_answer_is_to_retry(tmp_path, monkeypatch):
    monkeypatch.setattr("mgclust.service.confined.reader_pool.WAIT_SECONDS", 0.1)
    monkeypatch.setattr("mgclust.service.confined.reader_pool.READERS", 1)
    readers = Readers(Settings(data=tmp_path))
    with readers._turns.turn("ann"), pytest.raises(Busy):
        readers.serve({"do": "points"}, dict)
    monkeypatch.setattr("mgclust.service.confined.reader_pool.MAX_WAITING", 0)
    monkeypatch.setattr("mgclust.service.confined.reader_pool.WAIT_SECONDS", 1000.0)
    readers = Readers(Settings(data=tmp_path))
    with readers._turns.turn("ann"), pytest.raises(Busy):
        readers.serve({"do": "points"}, dict)


@pytest.mark.slow
def test_the_library_keeps_to_the_limits_of_its_process(tmp_path):
    (tmp_path / "wide.csv").write_text(WIDE)
    code = (
        "import resource, sys; import numpy, psutil, pyarrow.csv; from mgclust.data import open_dataset\n"
        "used = psutil.Process().memory_info().data\n"
        "resource.setrlimit(resource.RLIMIT_DATA, (used + (400 << 20),) * 2)\n"
        "open_dataset(sys.argv[1])"
    )
    told = subprocess.run([sys.executable, "-c", code, tmp_path / "wide.csv"], capture_output=True, text=True).stderr
    assert "InsufficientMemoryError" in told.splitlines()[-1] and "give fewer columns" in told
    assert resource.getrlimit(resource.RLIMIT_DATA)[0] == resource.RLIM_INFINITY
