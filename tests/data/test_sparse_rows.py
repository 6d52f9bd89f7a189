"""Sparse matrices as rows: the same results as of dense ones, and never the whole of them dense."""

import numpy as np
import pytest
import scipy.sparse

import mgclust
from mgclust import open_dataset
from mgclust.base.errors import InputError

FORMATS = ("bsr", "coo", "csc", "csr", "dia", "dok", "lil")


@pytest.fixture
def dense():
    rng = np.random.default_rng(0)
    return (rng.random((60, 9)) * (rng.random((60, 9)) < 0.3)).astype(np.float32) + (np.arange(60) % 3 == 0)[:, None]


@pytest.mark.parametrize("kind", ["matrix", "array"])
@pytest.mark.parametrize("form", FORMATS)
def test_every_format_is_read(dense, form, kind):
    dataset = open_dataset(getattr(scipy.sparse, f"{form}_{kind}")(dense))
    assert dataset.shape == dense.shape and dataset.dtype == np.float32
    assert np.array_equal(dataset.read(7, 30), dense[7:30])
    assert np.array_equal(dataset.take([5, 0, 5]), dense[[5, 0, 5]])
    assert dataset.fingerprint() == open_dataset(dense).fingerprint()


@pytest.mark.parametrize(
    "method",
    [
        mgclust.AdaptiveAffinityPropagation,
        mgclust.AffinityPropagation,
        mgclust.Canopy,
        mgclust.DensityPeaks,
        mgclust.FuzzyCMeans,
    ],
)
def test_every_method_has_the_same_result(dense, method):
    found, want = (method(client=None).fit(x) for x in (scipy.sparse.csr_array(dense), dense))
    assert np.array_equal(found.labels_, want.labels_)
    assert np.array_equal(found.predict(scipy.sparse.csc_matrix(dense)), want.predict(dense))


def test_functions_have_the_same_result(dense):
    rows, labels = scipy.sparse.csr_array(dense), np.arange(60) % 3
    found, want = (mgclust.silhouette_samples(x, labels, client=None) for x in (rows, dense))
    assert np.array_equal(found, want)
    found, want = (mgclust.nearest_neighbors(x, 3, queries=x[:5], client=None) for x in (rows, dense))
    assert np.array_equal(found.indices, want.indices)


@pytest.mark.slow
@pytest.mark.xdist_group("workers")
def test_two_ranks_have_the_same_bits(dense, client):
    found, want = (
        mgclust.FuzzyCMeans(3, m=1.5, client=where).fit(scipy.sparse.csr_array(dense)) for where in (client, None)
    )
    assert np.array_equal(found.cluster_centers_, want.cluster_centers_)


def test_a_matrix_that_no_memory_holds_is_read_in_parts():
    n = 10**9
    at = np.arange(0, 5000, 5)
    dataset = open_dataset(scipy.sparse.csr_array((np.ones(1000), (at, at)), (5000, n)))
    assert dataset.read(4, 6)[:, :6].tolist() == [[0] * 6, [0, 0, 0, 0, 0, 1]]


def test_what_is_stored_twice_adds_up_and_the_callers_matrix_stays():
    matrix = scipy.sparse.coo_array(([1.0, 2.0, 4.0], ([0, 0, 1], [1, 1, 0])), (2, 2)).tocsr(copy=True)
    given = scipy.sparse.csr_array((np.array([1.0, 2.0, 4.0]), np.array([1, 1, 0]), np.array([0, 2, 3])), (2, 2))
    assert np.array_equal(open_dataset(given).read(0, 2), matrix.toarray())
    assert given.nnz == 3


def test_what_is_refused(dense):
    damaged = scipy.sparse.csr_array(dense)
    damaged.indices[0] = 10**6
    with pytest.raises(InputError, match="is damaged"):
        open_dataset(damaged)
    with pytest.raises(InputError, match="Complex data"):
        open_dataset(scipy.sparse.csr_array(dense.astype(complex)))
    with pytest.raises(InputError, match="columns"):
        open_dataset(scipy.sparse.csr_array(dense), columns=[0])
    with pytest.raises(InputError, match="NaN or infinity"):
        mgclust.Canopy(client=None).fit(scipy.sparse.csr_array(np.where(dense == dense.max(), np.nan, dense)))
    square = scipy.sparse.csr_array(np.eye(9, dtype=np.float32))
    for model in (
        mgclust.DensityPeaks(metric="precomputed"),
        mgclust.AdaptiveAffinityPropagation(affinity="precomputed"),
    ):
        with pytest.raises(TypeError, match=r"='precomputed' needs all .*, but sparse data hold only some"):
            model.fit(square)


def test_a_file_of_a_sparse_matrix_is_named(tmp_path):
    scipy.sparse.save_npz(tmp_path / "sparse.npz", scipy.sparse.csr_array(np.eye(3)))
    with pytest.raises(InputError, match=r"a sparse matrix of SciPy, .* give scipy\.sparse\.load_npz\(path\)"):
        open_dataset(tmp_path / "sparse.npz")
