"""Parcels: connected, as many as requested, the known ones where there are any, the same on any number of ranks."""

import warnings

import nibabel
import numpy as np
import pytest
from scipy.ndimage import gaussian_filter
from sklearn.metrics import adjusted_rand_score

from mgclust import Parcellation, load_result, open_dataset
from mgclust.algorithms import base
from mgclust.algorithms.parcellation.evaluation import n_pieces
from mgclust.algorithms.parcellation.ranks import estimate
from mgclust.base.errors import (
    AmbiguousCountWarning,
    DataWarning,
    InputError,
    InsufficientMemoryError,
    WeakStructureWarning,
)
from mgclust.cli import run_command
from mgclust.data.neighbors import checked_neighbors, neighbors_of, volume_neighbors
from mgclust.datasets import make_bold
from oracles import parcels as oracle
from support.surfaces import models_of, save_series, save_surface, sphere

ALGORITHMS = ("ward", "communities", "affinity-propagation")


@pytest.fixture(scope="module")
def bold(tmp_path_factory):
    made = make_bold(shape=(10, 10, 8), n_parcels=6)
    folder = tmp_path_factory.mktemp("bold")
    made.save(folder)
    return folder, made


def opened(bold):
    folder, _ = bold
    return open_dataset(folder / "bold.nii.gz", mask=folder / "mask.nii.gz", standardize="zscore", detrend=True)


def noisy(n=120, t=40, seed=0):
    return np.random.default_rng(seed).normal(size=(n, t))


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_known_parcels_are_found_and_chosen(bold, algorithm):
    _, (_, mask, truth) = bold
    model = Parcellation([3, 6, 12], algorithm=algorithm, client=None, device="cpu").fit(opened(bold))
    assert model.n_clusters_ == 6 and adjusted_rand_score(truth[mask], model.labels_) > 0.98
    graph = volume_neighbors(mask, mask.shape)
    for k in (3, 6, 12):
        labels = model.labels_for(k)
        assert labels.dtype == np.int32 and (n_pieces(labels, *graph) == 1).all() and labels.max() + 1 == k
    centers = model.cluster_centers_indices_
    assert model.labels_[centers].tolist() == list(range(6))
    assert model.evaluation_["n_clusters"].tolist() == [3, 6, 12]
    with pytest.raises(InputError, match=r"k=5 should be one of the fitted numbers of parcels: \[3, 6, 12\]"):
        model.labels_for(5)


def test_plain_ward_without_moves():
    rows = noisy(30, 12)
    line = np.arange(1, 30)[:, None] - [1, 0]
    model = Parcellation(7, refine=False, client=None).fit(rows, neighbors=line)
    unit = rows - rows.mean(axis=1, keepdims=True)
    unit /= np.linalg.norm(unit, axis=1, keepdims=True)
    merges, _ = oracle.ward(unit, line)
    groups = {i: {i} for i in range(30)}
    for number, (a, b) in enumerate(merges[: 30 - 7]):
        groups[30 + number] = groups.pop(a) | groups.pop(b)
    assert {frozenset(np.flatnonzero(model.labels_ == k).tolist()) for k in range(7)} == set(
        map(frozenset, groups.values())
    )


@pytest.mark.parametrize("algorithm", ALGORITHMS)
@pytest.mark.parametrize("k", [3, 4, 11, 60, 119, 120])
def test_islands_are_never_joined_and_the_number_is_exact(algorithm, k):
    edges = [(i, i + 1) for i in range(119) if i not in (0, 40)]  # islands of 1, 40 and 79 rows
    graph = checked_neighbors(edges, 120)
    model = Parcellation(k, algorithm=algorithm, client=None, device="cpu").fit(noisy(), neighbors=edges)
    assert (n_pieces(model.labels_, *graph) == 1).all() and len(np.unique(model.labels_)) == k
    assert np.unique(model.labels_, return_index=True)[1].tolist() == sorted(
        np.unique(model.labels_, return_index=True)[1]
    )


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_duplicates_constant_rows_and_offsets(algorithm):
    rows = np.repeat(noisy(12, 30), 10, axis=0)
    rows[::17] = 3.0
    line = np.arange(1, 120)[:, None] - [1, 0]
    model = Parcellation(12, algorithm=algorithm, client=None, device="cpu").fit(rows, neighbors=line)
    with pytest.warns(DataWarning, match="8 of 120 series are constant"):
        again = Parcellation(12, algorithm=algorithm, client=None, device="cpu").fit(rows * 8 + 1024, neighbors=line)
    assert len(np.unique(model.labels_)) == 12 and np.isfinite(model.homogeneity_)
    if algorithm != "affinity-propagation":  # whose messages between duplicates depend on the last digits of the series
        np.testing.assert_array_equal(model.labels_, again.labels_)


def test_parcels_of_grayordinates_lie_in_one_structure(tmp_path):
    rng = np.random.default_rng(0)
    coordinates, triangles = sphere(2)
    models = models_of(rng, size=len(coordinates))
    runs = [save_series(tmp_path / f"sub-01_run-{run}_bold.dtseries.nii", models, rng) for run in (1, 2)]
    surfaces = [
        save_surface(tmp_path / f"{side}.surf.gii", coordinates + shift, triangles, f"Cortex{side}")
        for side, shift in (("Left", [-70, 0, 0]), ("Right", [70, 0, 0]))
    ]
    dataset = open_dataset(runs, surfaces=surfaces)
    model = Parcellation([20, 30], client=None).fit(dataset)
    for k in (20, 30):
        labels = model.labels_for(k)
        assert len(np.unique(labels)) == k
        assert (n_pieces(labels, *neighbors_of(dataset, 26)) == 1).all()
        for name, _, _ in models.iter_structures():
            own = np.unique(labels[models.name == name])
            assert not np.isin(labels[models.name != name], own).any()
    with pytest.raises(InputError, match=r"surf\.gii"):
        Parcellation(30, client=None).fit(open_dataset(runs))


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_the_same_bits_on_any_number_of_ranks(algorithm, bold, ranks, monkeypatch):
    def found(size):
        if size:
            monkeypatch.setattr(base, "connect", lambda **_: ranks(size))
        model = Parcellation([4, 9], algorithm=algorithm, client=None, device="cpu").fit(opened(bold))
        values = [model._candidates, model.homogeneity_, model.cluster_centers_indices_, *model.evaluation_.values()]
        return [np.asarray(value).tobytes() for value in values]

    alone = found(0)
    for size in (1, 2, 3, 4):
        assert found(size) == alone, f"{size} ranks"


def test_series_without_parcels_are_doubted():
    rows, line = noisy(200, 60), np.arange(1, 200)[:, None] - [1, 0]
    with pytest.warns(WeakStructureWarning, match="is not above parcels that ignore the series"):
        Parcellation([5, 10], client=None).fit(rows, neighbors=line)


@pytest.mark.parametrize("smooth", [False, True])
def test_noise_is_doubted_in_each_draw(smooth):
    """One draw of random parcels was below the best of several numbers of parcels in 28 of 40 draws of noise."""
    mask = np.ones((6, 7, 6), bool)
    for seed in range(6):
        noise = np.random.default_rng(seed).normal(size=(14, 15, 14, 60))
        if smooth:
            noise = gaussian_filter(noise, (1, 1, 1, 0))
        noise = noise[4:10, 4:11, 4:10]  # at the border of the filtered volume, near voxels correlate more
        dataset = open_dataset(nibabel.Nifti1Image(noise.astype(np.float32), np.diag([3.0, 3, 3, 1])), mask=mask)
        with pytest.warns(WeakStructureWarning, match="is not above parcels that ignore the series"):
            Parcellation([4, 8, 16, 32], client=None).fit(dataset)


def test_halves_that_agree_less_than_places_are_doubted():
    """On weak series, the DCBC of halves rises to the largest number, whatever the true one."""
    bold, mask, _ = make_bold((10, 12, 9), 8, n_timepoints=120, noise=2.0, random_state=0)
    dataset = open_dataset(nibabel.Nifti1Image(bold, np.diag([3.0, 3, 3, 1])), mask=mask, detrend=True)
    with pytest.warns(AmbiguousCountWarning, match="the halves agree on 48 parcels .* less than compact parcels"):
        Parcellation([8, 16, 48], client=None).fit(dataset)


def test_one_parcel_has_no_evidence(bold):
    with pytest.warns(AmbiguousCountWarning, match="n_parcels=1 has no DCBC"):
        Parcellation(1, evaluate=True, client=None).fit(opened(bold))


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_series_that_vary_little_beside_their_mean(bold, dtype):
    """They were taken as constant."""
    _, (series, mask, truth) = bold
    rows = (series[mask] / series[mask].std() + 1e6).astype(dtype)
    starts, columns = volume_neighbors(mask, mask.shape)
    graph = np.stack([np.repeat(np.arange(len(rows)), np.diff(starts)), columns], axis=1)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model = Parcellation(6, client=None).fit(rows, neighbors=graph)
    assert adjusted_rand_score(truth[mask], model.labels_) > 0.9


def test_the_largest_number_is_doubted(bold):
    with pytest.warns(AmbiguousCountWarning, match="the largest number of n_parcels, 4, was chosen"):
        Parcellation([2, 4], client=None).fit(opened(bold))


@pytest.mark.parametrize(
    ("parameters", "rows", "neighbors", "message"),
    [
        ({}, noisy(), None, "array holds rows without places, so their neighbours are unknown"),
        ({"n_parcels": 121}, noisy(), [(0, 1)], "n_parcels=121 should be <= 120, the number of rows"),
        ({"n_parcels": 2}, noisy(), [(0, 1)], r"n_parcels=2 should be >= 119: the rows are 119 pieces .* of 1 row"),
        ({"n_parcels": 0}, noisy(), [(0, 1)], "n_parcels=0 should be an integer >= 1, or several different ones"),
        ({"n_parcels": [3, 3]}, noisy(), [(0, 1)], r"n_parcels=\[3, 3\] should be an integer >= 1"),
        ({"n_parcels": []}, noisy(), [(0, 1)], r"n_parcels=\[\] should be"),
        ({"connectivity": 8}, noisy(), None, "connectivity=8 should be 6, 18 or 26"),
        ({"n_parcels": 119, "evaluate": True}, noisy(t=19), [(0, 1)], "19 points in time should be >= 20"),
        ({"compactness": -1.0}, noisy(), [(0, 1)], "compactness=-1.0 should be a finite number >= 0"),
        (
            {"algorithm": "kmeans"},
            noisy(),
            [(0, 1)],
            "algorithm='kmeans' should be one of 'ward', 'communities', 'affinity-propagation'",
        ),
    ],
)
def test_bad_input_gives_one_sentence(parameters, rows, neighbors, message):
    with pytest.raises(InputError, match=message):
        Parcellation(**{"n_parcels": 3, **parameters}, client=None).fit(rows, neighbors=neighbors)


def test_memory_is_refused_before_the_rows_are_collected():
    line = np.arange(1, 5000)[:, None] - [1, 0]
    with pytest.raises(InsufficientMemoryError, match="all series on rank 0"):
        Parcellation(5, memory_limit="2 MiB", client=None).fit(noisy(5000, 100), neighbors=line)


def test_the_command_writes_every_candidate(bold, tmp_path, capsys):
    folder, (_, mask, truth) = bold
    command = ["parcellate", str(folder / "bold.nii.gz"), "--mask", str(folder / "mask.nii.gz"), "--detrend", "--cpu"]
    assert run_command([*command, "--standardize", "zscore", "--n-parcels", "3,6,12", "-o", str(tmp_path / "out")]) == 0
    shown = capsys.readouterr().out
    assert "parcels" in shown and "ARI of the halves" in shown
    result = load_result(tmp_path / "out")
    assert result.scores["n_clusters"] == 6 and adjusted_rand_score(truth[mask], result.labels) > 0.98
    assert "Evaluation of the numbers of parcels" in (tmp_path / "out" / "report.html").read_text(encoding="utf-8")
    assert (tmp_path / "out" / "parcel_evaluation.png").stat().st_size > 10_000
    for k in (3, 6, 12):
        candidate = load_result(tmp_path / "out" / "candidates" / str(k))
        assert candidate.labels.max() + 1 == k
        assert (tmp_path / "out" / "candidates" / str(k) / "bold_desc-parcellation_dseg.nii.gz").exists()
    again = Parcellation(**{**result.parameters, "n_parcels": 6}, client=None).fit(opened(bold))
    np.testing.assert_array_equal(again.labels_, result.labels)


def test_a_picture_needs_an_evaluation(bold):
    from mgclust import plots

    model = Parcellation(6, client=None).fit(opened(bold))
    assert model.evaluation_ is None and "scan_dcbc" not in model.result_.arrays
    with pytest.raises(InputError, match="give a result of 'parcellation' with several n_parcels"):
        plots.parcel_evaluation(model)
    evaluated = Parcellation(6, evaluate=True, client=None).fit(opened(bold))
    assert evaluated.evaluation_["n_clusters"].tolist() == [6]
    assert plots.parcel_evaluation(evaluated).get_title() == "1 number of parcels compared, 6 chosen"


def test_the_memory_of_many_numbers_counts():
    shape, given = (50_000, 100), {"entries": 26 * 50_000, "algorithm": "ward", "evaluated": True}
    few, many = (estimate(shape, 4, 1, 0, count=count, **given).needed for count in (2, 102))
    assert many - few == 100 * 50_000 * 250
