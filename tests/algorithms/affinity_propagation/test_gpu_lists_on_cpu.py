"""Kernels of a GPU that pass messages on neighbour lists, run on the CPU: the bits of messages of all pairs."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from mgclust import AdaptiveAffinityPropagation, AffinityPropagation
from mgclust.algorithms.affinity_propagation import estimator
from mgclust.algorithms.affinity_propagation.message_passing import MessagePassing
from mgclust.algorithms.affinity_propagation.rows.list_pace import PACES
from mgclust.kernels.affinity_propagation import cpu
from mgclust.kernels.affinity_propagation.sparse_forms import cpu_listed
from support import cuda_on_cpu
from support.list_constants import set_constant

pytestmark = pytest.mark.skipif(cuda_on_cpu.compiler() is None, reason="there is no C++ compiler")


@pytest.fixture(scope="module")
def modules(tmp_path_factory):
    names = ("affinity_propagation.gpu", "affinity_propagation.sparse_forms.gpu_listed")
    with cuda_on_cpu.gpu_modules(tmp_path_factory.mktemp("kernels"), *names) as found:
        yield found


@pytest.fixture
def trace(monkeypatch, modules):
    """A fit by the GPU's kernels, and what its iterations left behind."""
    seen: list[bytes] = []
    original = MessagePassing.iterate

    def iterate(self, dampings):
        found, m = original(self, dampings), self.messages
        parts = (m.u, m.c[: m.n], m.a_diagonal, m.r_diagonal, m.last_exemplars, np.array(found))
        seen.append(b"".join(np.ascontiguousarray(part).tobytes() for part in parts))
        if self.rows.name == "sparse":  # the places that are filled come first
            assert (np.diff((m.recent_argmax >= 0).astype(int), axis=1) <= 0).all()
            assert m.recent_most[0] >= (m.recent_argmax >= 0).sum(axis=1).max()
        return found

    def fit(model, X):
        seen.clear()
        return model.fit(X), list(seen)

    monkeypatch.setattr(estimator, "FEW_SIMILARITIES", 0)
    set_constant(monkeypatch, "SHORTEST_LIST", 4)  # so that lists have to be made longer
    set_constant(monkeypatch, "INTERVAL", 3)
    monkeypatch.setattr(MessagePassing, "iterate", iterate)
    for name in ("pass_listed_iterations", "pass_listed_rows"):
        monkeypatch.setattr(cpu_listed, name, getattr(modules[1], name))
    for name in ("pass_columns", "pass_rows"):
        monkeypatch.setattr(cpu, name, getattr(modules[0], name))
    return fit


def rows(kind: str, n: int) -> np.ndarray:
    rng = np.random.default_rng(3)
    if kind == "blobs":
        return rng.normal(size=(4, 5))[rng.integers(4, size=n)] * 4 + rng.normal(size=(n, 5))
    if kind == "noise":
        return rng.random((n, 64))
    if kind == "clump":
        return np.concatenate([rng.normal(size=(n - 12, 3)), 1e3 * rng.normal(size=(12, 3))])
    return rng.integers(4, size=(n, 3)).astype(float)


@pytest.fixture(params=[True, False], ids=["active", "lists"])
def active(request, monkeypatch):
    """With active columns, as few as may be, and without: kernels of their own."""
    if not request.param:
        never = replace(PACES["cpu"], most_active=0, read_far=1 << 30)
        monkeypatch.setitem(PACES, "cpu", never)
    return request.param


@pytest.mark.parametrize(("lanes", "dtype"), [(8, "float32"), (4, "float32"), (8, "float64"), (16, "float32")])
@pytest.mark.parametrize("kind", ["blobs", "noise", "clump", "duplicates"])
@pytest.mark.quick("lists-blobs-8-float32")
def test_affinity_propagation(trace, modules, monkeypatch, active, kind, lanes, dtype):
    monkeypatch.setattr(modules[1], "LANES", {False: lanes, True: lanes})
    given = {"dtype": dtype, "damping": 0.8, "max_iter": 40, "device": "cpu", "client": None}
    dense = trace(AffinityPropagation(algorithm="dense", **given), rows(kind, 90))
    lists = trace(AffinityPropagation(algorithm="sparse", **given), rows(kind, 90))
    assert lists[1] == dense[1] and (lists[0].labels_ == dense[0].labels_).all()
    assert lists[0].exactness_["algorithm"] == "sparse" and lists[0].exactness_["rows_searched"] > 0


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("profile", ["code", "fast"])
@pytest.mark.quick("lists-fast-float32")
def test_a_scan(trace, active, profile, dtype):
    given = {"dtype": dtype, "device": "cpu", "client": None, "max_iter": 240, "profile": profile}
    dense = trace(AdaptiveAffinityPropagation(algorithm="dense", **given), rows("clump", 60))
    lists = trace(AdaptiveAffinityPropagation(algorithm="sparse", **given), rows("clump", 60))
    assert lists[1] == dense[1] and (lists[0].labels_ == dense[0].labels_).all()
