"""Several resolutions in one fit (`resolutions`)."""

from __future__ import annotations

import dask.array as da
import numpy as np
import pytest

from mgclust import Communities, InputError, load_result, modularity
from mgclust.algorithms import base
from mgclust.base.dask_arrays import computed
from mgclust.base.errors import DegenerateClustersWarning, ParameterWarning
from support import graphs

RESOLUTIONS = (1.0, 0.3, 4.0)


def fit(graph, **parameters):
    return Communities(device="cpu", client=None, **parameters).fit(graph)


@pytest.mark.parametrize("weights", ["none", "integers", "floats"])
@pytest.mark.parametrize("started", [False, True])
def test_each_resolution_is_as_in_a_fit_of_its_own(weights, started):
    edges, n = graphs.random_graph(0, 300, 900, weights), 300
    start = {"init": np.arange(n) % 7, "fixed": [0, 9]} if started else {}
    model = fit((edges, n), resolutions=RESOLUTIONS, **start)
    table = model.result_.arrays
    assert table["scan_resolution"].tolist() == list(RESOLUTIONS)
    for at, resolution in enumerate(RESOLUTIONS):
        alone = fit((edges, n), resolution=resolution, **start)
        assert np.array_equal(model.labels_for(resolution), alone.labels_)
        assert np.array_equal(table["candidates"][:, at], alone.labels_)
        assert table["scan_modularity"][at] == alone.modularity_
        assert table["scan_n_clusters"][at] == alone.n_clusters_
    assert np.array_equal(model.labels_, model.labels_for(1.0))
    assert model.modularity_ == modularity((edges, n), model.labels_, client=None, device="cpu")
    assert np.array_equal(model.cut(n // 2), fit((edges, n), **start).cut(n // 2))


def test_a_single_resolution_has_labels_too():
    edges, n = graphs.load_graph("karate")
    assert np.array_equal(fit((edges, n)).labels_for(1), fit((edges, n)).labels_)
    one = fit((edges, n), resolutions=[0.5])
    assert np.array_equal(one.labels_, fit((edges, n), resolution=0.5).labels_)
    assert "candidates" not in one.result_.arrays
    assert one.result_.parameters["resolution"] == 0.5


def test_the_candidates_are_saved(tmp_path):
    edges, n = graphs.load_graph("karate")
    model = fit((edges, n), resolutions="1, 0.3, 4")
    model.result_.save(tmp_path / "out")
    kept = load_result(tmp_path / "out")
    assert kept.parameters["resolutions"] == [1.0, 0.3, 4.0]
    assert np.array_equal(kept.arrays["candidates"][:, 2], model.labels_for(4.0))
    (table,) = [each for each in model.presentation.tables(kept) if each.heading == "Resolutions"]
    sizes = np.unique(model.labels_for(0.3), return_counts=True)[1]
    assert table.chosen == 0
    assert list(table.rows[1][:2]) == ["0.3", len(sizes)]
    assert list(table.rows[1][-2:]) == [sizes.min(), sizes.max()]


def test_what_resolutions_do_not_go_with():
    edges, n = graphs.load_graph("karate")
    for parameters, words in (
        ({"n_clusters": 3}, "n_clusters=3 cannot be combined with resolutions"),
        ({"strategy": "greedy"}, "strategy='greedy' cannot be combined with resolutions"),
    ):
        with pytest.raises(InputError, match=words):
            fit((edges, n), resolutions=[1, 2], **parameters)
    for wrong in ([], [1, 1], [0], ["a"], [1, -2], "1,,2", 1e9, [[1, 2]]):
        with pytest.raises(InputError, match=r"resolutions=.* should be (a .*number|different numbers)"):
            fit((edges, n), resolutions=wrong)
    with pytest.raises(InputError, match="should be one of the fitted resolutions"):
        fit((edges, n), resolutions=[1, 2]).labels_for(3)
    with pytest.warns(ParameterWarning, match="resolution=2.0 has no effect"):
        fit((edges, n), resolution=2.0, resolutions=[1, 3])
    with pytest.warns(DegenerateClustersWarning, match="at resolution=1000, so every node"):
        fit((edges, n), resolutions=[1, 1000])


@pytest.mark.xdist_group("workers")
def test_the_same_bits_on_any_number_of_ranks(ranks, monkeypatch):
    edges, n = graphs.random_graph(4, 3_000, 9_000, "integers"), 3_200
    found = []
    for size in (1, 2, 3, 4):
        monkeypatch.setattr(base, "connect", lambda size=size, **_: ranks(size))
        model = Communities(device="cpu", resolutions=RESOLUTIONS).fit((edges, n))
        arrays = model.result_.arrays
        found.append(arrays["candidates"].tobytes() + arrays["scan_modularity"].tobytes())
    assert len(set(found)) == 1


@pytest.mark.xdist_group("workers")
def test_labels_stay_on_workers(client):
    edges, _ = graphs.load_graph("cora")
    chunked = da.from_array(edges, chunks=(2000, 2))
    model = Communities(device="cpu", client=client, n_workers=2, resolutions=[1, 2]).fit(chunked)
    assert isinstance(model.labels_for(2), da.Array)
    alone = fit(edges, resolutions=[1, 2])
    assert np.array_equal(computed(model.labels_for(2)), alone.labels_for(2))
    again = Communities(device="cpu", client=client, n_workers=2, init=model.labels_).fit(chunked)
    assert np.array_equal(computed(again.labels_), fit(edges, init=alone.labels_).labels_)
