"""Rows that come after a fit: names of features, `predict`, `transform` and `score`, and what is no table."""

import dask.dataframe as dd
import networkx as nx
import nibabel as nib
import numpy as np
import pandas as pd
import polars as pl
import pyarrow.parquet as pq
import pytest

import mgclust
from mgclust.base.errors import InputError

METHODS = (
    mgclust.AdaptiveAffinityPropagation,
    mgclust.AffinityPropagation,
    mgclust.Canopy,
    mgclust.DensityPeaks,
    mgclust.FuzzyCMeans,
)


@pytest.fixture
def frame():
    rng = np.random.default_rng(0)
    return pd.DataFrame(rng.normal(size=(40, 2)) * [1, 50] + [0, 7], columns=["a", "b"])


def _csv(frame, folder):
    path = folder / f"{'-'.join(frame)}.csv"
    frame.to_csv(path, index=False)
    return path


def _parquet(frame, folder):
    path = folder / f"{'-'.join(frame)}.parquet"
    pq.write_table(pl.from_pandas(frame).to_arrow(), path)
    return path


FORMS = {
    "pandas": lambda frame, _: frame,
    "polars": lambda frame, _: pl.from_pandas(frame),
    "lazy": lambda frame, _: pl.from_pandas(frame).lazy(),
    "pyarrow": lambda frame, _: pl.from_pandas(frame).to_arrow(),
    "dask": lambda frame, _: dd.from_pandas(frame, npartitions=2),
    "csv": _csv,
    "parquet": _parquet,
    "dataset": lambda frame, folder: mgclust.open_dataset(_csv(frame, folder)),
}


@pytest.mark.parametrize("form", FORMS)
def test_rows_with_their_columns_exchanged_are_refused(frame, form, tmp_path):
    model = mgclust.Canopy(client=None).fit(FORMS[form](frame, tmp_path))
    assert model.feature_names_in_.tolist() == ["a", "b"]
    assert model.predict(FORMS[form](frame, tmp_path)).tolist() == model.labels_.tolist()
    with pytest.raises(ValueError, match="must be in the same order as they were in fit"):
        model.predict(FORMS[form](frame[["b", "a"]], tmp_path))


@pytest.mark.parametrize("method", METHODS)
def test_every_method_compares_the_names_of_features(frame, method):
    lazy = pl.from_pandas(frame).lazy()
    model = method(client=None).fit(lazy)
    with pytest.raises(ValueError, match="must be in the same order as they were in fit"):
        model.predict(lazy.select("b", "a"))
    with pytest.warns(UserWarning, match="does not have valid feature names"):
        labels = model.predict(frame.to_numpy())
    assert labels.tolist() == model.predict(lazy).tolist()
    model.fit_dataset(mgclust.open_dataset(frame.to_numpy()))
    assert not hasattr(model, "feature_names_in_")


def test_other_rows_of_nearest_neighbors_have_the_same_features(frame):
    with pytest.raises(ValueError, match=r"queries: .*\n.*must be in the same order"):
        mgclust.nearest_neighbors(frame, 2, queries=frame[["b", "a"]], client=None)


def test_columns_without_a_header_have_no_names(frame, tmp_path):
    np.savetxt(tmp_path / "x.csv", frame, delimiter=",")
    assert mgclust.open_dataset(tmp_path / "x.csv").feature_names is None
    assert mgclust.open_dataset(frame.set_axis([0, 1], axis=1)).feature_names is None
    assert mgclust.open_dataset(frame, columns=["b"]).feature_names == ["b"]


@pytest.mark.parametrize("metric", ["euclidean", "manhattan", "cosine", "correlation"])
def test_canopies_predict_the_nearest_centre(metric):
    x = np.random.default_rng(1).integers(0, 6, (300, 5)).astype(float) + np.arange(5)  # with equally near centres
    model = mgclust.Canopy(metric=metric, client=None).fit(x)
    assert model.predict(x).tolist() == model.labels_.tolist()
    assert model.predict(x[:7]).tolist() == model.labels_[:7].tolist()
    assert model.predict(model.cluster_centers_).tolist() == list(range(model.n_clusters_))


def test_fuzzy_c_means_is_a_step_of_a_pipeline(frame):
    model = mgclust.FuzzyCMeans(3, random_state=0, client=None).set_output(transform="pandas")
    table = model.fit_transform(frame)
    assert list(table) == ["fuzzycmeans0", "fuzzycmeans1", "fuzzycmeans2"]
    assert np.array_equal(table, model.predict_memberships(frame))


@pytest.mark.parametrize("weighted", [False, True])
def test_score_of_fuzzy_c_means_is_minus_the_objective(frame, weighted):
    weights = np.linspace(0, 2, len(frame)) if weighted else None
    model = mgclust.FuzzyCMeans(3, random_state=0, client=None).fit(frame, sample_weight=weights)
    assert model.score(frame, sample_weight=weights) == pytest.approx(-model.objective_, rel=1e-12)
    assert model.score(frame + 1000) < model.score(frame)


class AnnData:
    shape = (3, 2)


AnnData.__module__ = "anndata._core.anndata"


@pytest.mark.parametrize("opened", [mgclust.open_dataset, mgclust.open_graph])
def test_what_holds_more_than_rows_is_refused_by_name(opened):
    gifti = nib.gifti.GiftiImage()
    for source in (gifti, [gifti, gifti]):
        with pytest.raises(InputError, match=r"X is GiftiImage of nibabel in memory.* numpy.stack"):
            opened(source)
    with pytest.raises(InputError, match=r"X is AnnData of anndata in memory.* X.obsp"):
        opened(AnnData())


def test_an_image_is_no_graph():
    image = nib.Nifti1Image(np.ones((2, 2, 2, 5), np.float32), np.eye(4))
    with pytest.raises(InputError, match=r"X is Nifti1Image of nibabel in memory.* a method that takes rows"):
        mgclust.open_graph(image)


def test_a_graph_is_no_table_of_rows():
    with pytest.raises(InputError, match="Graph of networkx, which has edges instead of rows; use Communities"):
        mgclust.open_dataset(nx.path_graph(5))


def test_a_lazy_frame_is_a_graph():
    edges = pl.DataFrame({"source": [0, 1, 1], "target": [1, 2, 0]})
    assert mgclust.open_graph(edges.lazy()).shape == mgclust.open_graph(edges).shape
