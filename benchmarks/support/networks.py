"""The graphs that the benchmarks run on: files, and generated ones of any size that each rank makes a part of."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from mgclust.data.graphs.base import Graph
from mgclust.data.graphs.random_network import network_shape, random_network_edges
from mgclust.kernels import load

GOLDEN = np.uint64(0x9E3779B97F4A7C15)


def load_edges(name: str, data: Path | None) -> tuple[np.ndarray, int] | None:
    """Edges and number of nodes of ``NAME.npz``; None where the file is not there."""
    folders = (Path(__file__).resolve().parents[2] / "tests" / "sets", *([data] if data else []))
    for folder in folders:
        path = folder / f"{name}.npz"
        if path.exists():
            with np.load(path, allow_pickle=False) as archive:
                return archive["edges"], int(archive["n"])
    print(f"{name}: not here, left out (give its folder with --data)", flush=True)
    return None


class MadeNetwork(Graph):
    """RN(C, s, d, p_in), made where and when it is read.

    Parameters
    ----------
    shape : tuple
        C, s, d, p_in.
    device : {"cpu", "cuda"}
        Where `read` makes edges.
    """

    kind = "made"

    def __init__(self, shape: tuple[int, int, int, float], device: str, seed: int = 1) -> None:
        super().__init__(network_shape(*shape).edges, shape[0] * shape[1], f"RN{shape}")
        self._arguments, self._device, self._seed = shape, device, seed

    def _read(self, start: int, stop: int) -> Any:
        return random_network_edges(*self._arguments, self._seed, start, stop, load(self._device).xp)


def rmat(scale: int, factor: int, device: str, seed: int = 0) -> tuple[Any, int]:
    """R-MAT of 2^scale nodes with a, b, c, d = .57, .19, .19, .05, simple: loops and repeated edges are left out.

    Parameters
    ----------
    scale, factor : int
        factor 2^scale edges are drawn.
    device : {"cpu", "cuda"}
    seed : int

    Returns
    -------
    edges : array of shape (m, 2), int32
    n : int
    """
    xp = load(device).xp
    n, drawn, pairs = 1 << scale, factor << scale, []
    for start in range(0, drawn, 1 << 24):
        edge = xp.arange(start, min(drawn, start + (1 << 24)), dtype="uint64")
        ends = xp.zeros((2, len(edge)), "int64")
        for bit in range(scale):
            x = (edge * np.uint64(64) + np.uint64(bit + 1 + seed * 1000003)) * GOLDEN
            x ^= x >> np.uint64(30)
            x *= np.uint64(0xBF58476D1CE4E5B9)
            x ^= x >> np.uint64(27)
            x *= np.uint64(0x94D049BB133111EB)
            x ^= x >> np.uint64(31)
            share = (x >> np.uint64(11)).astype("float64") / 2**53
            ends[0] = 2 * ends[0] + (share >= 0.76)
            ends[1] = 2 * ends[1] + (((share >= 0.57) & (share < 0.76)) | (share >= 0.95))
        low, high = ends.min(axis=0), ends.max(axis=0)
        pairs.append((low * n + high)[low != high])
    unique = xp.unique(xp.concatenate(pairs))
    return xp.stack([unique // n, unique % n], axis=1).astype("int32"), n
