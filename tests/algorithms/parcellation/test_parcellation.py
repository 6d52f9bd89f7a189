"""Parcels: connected, as many as requested, the known ones where there are any, the same on any number of ranks."""

import hashlib
import warnings
from pathlib import Path

import nibabel
import numpy as np
import pytest
from scipy.ndimage import gaussian_filter
from sklearn.metrics import adjusted_rand_score

from mgclust import Parcellation, load_result, open_dataset
from mgclust.algorithms import base
from mgclust.algorithms.parcellation.evaluation.scores import n_pieces
from mgclust.algorithms.parcellation.ranks import estimate
from mgclust.base.errors import (
    AmbiguousCountWarning,
    DataWarning,
    InputError,
    InsufficientMemoryError,
    ParameterWarning,
    WeakStructureWarning,
)
from mgclust.cli import run_command
from mgclust.data.neighbors import checked_neighbors, coordinates_of, neighbors_of, volume_neighbors
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


def in_a_line(n):
    return np.arange(n)[:, None] * [1.0, 0, 0]


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
    dataset = open_dataset(runs, surfaces=surfaces[::-1])
    model = Parcellation([20, 30], client=None).fit(dataset)
    source = model.result_.source
    assert source["surfaces"] == list(map(str, surfaces))  # in the order of the structures
    assert source["surfaces_sha256"] == [hashlib.sha256(Path(each).read_bytes()).hexdigest() for each in surfaces]
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
    with pytest.warns(WeakStructureWarning, match="chance may explain the parcels"):
        Parcellation([5, 10], client=None).fit(rows, neighbors=line, coordinates=in_a_line(200))


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
        with pytest.warns(WeakStructureWarning, match="chance may explain the parcels"):
            Parcellation([4, 8, 16, 32], client=None).fit(dataset)


def test_halves_that_agree_less_than_places_are_doubted():
    """On weak series, the DCBC of halves rises to the largest number, whatever the true one."""
    bold, mask, _ = make_bold((10, 12, 9), 8, n_timepoints=120, noise=2.0, random_state=0)
    dataset = open_dataset(nibabel.Nifti1Image(bold, np.diag([3.0, 3, 3, 1])), mask=mask, detrend=True)
    with pytest.warns(AmbiguousCountWarning, match="the halves agree on 48 parcels .* less than compact parcels"):
        Parcellation([8, 16, 48], client=None).fit(dataset)


def test_islands_that_leave_no_choice_are_doubted():
    rows, places = noisy(60, 60), np.arange(60)[:, None] * [3.0, 0, 0]
    line = [(i, i + 1) for i in range(59) if i not in (19, 39)]
    with pytest.warns(AmbiguousCountWarning, match="n_parcels=3 leaves no choice"):
        Parcellation(3, evaluate=True, client=None).fit(rows, neighbors=line, coordinates=places)


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
        (
            {"n_parcels": [3, 3]},
            noisy(),
            [(0, 1)],
            r"n_parcels=\[3, 3\] should be different numbers, but 3 is repeated; give each",
        ),
        ({"n_parcels": []}, noisy(), [(0, 1)], r"n_parcels=\[\] should be"),
        ({"connectivity": 8}, noisy(), None, "connectivity=8 should be 6, 18 or 26"),
        (
            {"n_parcels": 119, "evaluate": True},
            noisy(t=19),
            [(0, 1)],
            "half of the series should have >= 10 points in time .*, not 9",
        ),
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
    shape, given = (50_000, 100), {"entries": 26 * 50_000, "algorithm": "ward", "evaluated": True, "n_subjects": 0}
    few, many = (estimate(shape, 4, 1, 0, count=count, **given).needed for count in (2, 102))
    assert many - few == 100 * 50_000 * 250


def test_a_given_graph_and_its_coordinates_are_recorded():
    rows, line = noisy(), np.arange(1, 120)[:, None] - [1, 0]

    def recorded(graph, coordinates=None):
        model = Parcellation(9, client=None).fit(rows, neighbors=graph, coordinates=coordinates)
        return model.result_.diagnostics.get("neighbors"), model.result_.diagnostics.get("coordinates")

    graph = checked_neighbors(line, 120)
    digest = hashlib.sha256(graph.starts.astype("<i8").tobytes() + graph.columns.astype("<i4").tobytes()).hexdigest()
    assert recorded(line) == recorded(line[::-1, ::-1]) == ({"pairs": 119, "sha256": digest}, None)
    assert recorded(line[1:])[0]["pairs"] == 118 and recorded(line[1:])[0]["sha256"] != digest
    places = in_a_line(120)
    assert recorded(line, places)[1] == {"sha256": hashlib.sha256(places.tobytes()).hexdigest()}


def test_coordinates_of_rows_are_those_of_the_same_voxels(bold):
    dataset = opened(bold)
    rows, graph, places = dataset.read(0, dataset.shape[0]), neighbors_of(dataset), coordinates_of(dataset)
    expected = Parcellation([3, 6], client=None).fit(dataset)
    model = Parcellation([3, 6], client=None).fit(rows, neighbors=graph, coordinates=places)
    for name, column in expected.evaluation_.items():
        np.testing.assert_array_equal(model.evaluation_[name], column, err_msg=name)
    farther = Parcellation([3, 6], client=None).fit(rows, neighbors=graph, coordinates=2 * places)
    assert (farther.evaluation_["dcbc"] != expected.evaluation_["dcbc"]).all()


@pytest.mark.parametrize(
    ("parameters", "coordinates", "message"),
    [
        (
            {"n_parcels": [3, 5]},
            None,
            r"array holds rows without coordinates, .* or one number of parcels without eval",
        ),
        (
            {"evaluate": True},
            None,
            r"rows without coordinates, .* give fit\(\.\.\., coordinates=\.\.\.\) of shape \(120, 3\)",
        ),
        ({}, np.zeros((119, 3)), r"coordinates has shape \(119, 3\) and dtype float64; give an array .* \(120, 3\)"),
        ({}, np.zeros((120, 2)), r"coordinates has shape \(120, 2\)"),
        ({}, np.zeros((120, 3), complex), "coordinates has .* dtype complex128"),
        ({}, [[0, 0, 0], [1]], r"coordinates has shape \(0,\) and dtype object"),
        (
            {},
            np.r_[np.zeros((119, 3)), [[0, np.nan, 0]]],
            "NaN or infinite values in 1 of 120 rows, the first is row 119",
        ),
    ],
)
def test_coordinates_that_do_not_fit(parameters, coordinates, message):
    line = np.arange(1, 120)[:, None] - [1, 0]
    model = Parcellation(**{"n_parcels": 3, **parameters}, client=None)
    with pytest.raises(InputError, match=message):
        model.fit(noisy(), neighbors=line, coordinates=coordinates)


def test_a_comparison_that_cannot_be_left_out_is_reported():
    given = {"neighbors": np.arange(1, 60)[:, None] - [1, 0], "coordinates": in_a_line(60)}
    with pytest.warns(
        ParameterWarning, match=r"evaluate=False has no effect with n_parcels=\(3, 5\): leave one of them"
    ):
        model = Parcellation([3, 5], evaluate=False, client=None).fit(noisy(60), **given)
    assert model.evaluation_["n_clusters"].tolist() == [3, 5]
    model = Parcellation(3, evaluate=False, client=None).fit(noisy(60), **given)
    assert model.evaluation_ is None and not [text for text in model.result_.warnings if "no effect" in text]


def test_numbers_too_large_for_float32_name_a_remedy_that_exists():
    with pytest.raises(InputError, match=r"values reach [\d.]+e\+39: drop such rows, or rescale the data\.$"):
        Parcellation(3, client=None).fit(1e38 * (9 + noisy()), neighbors=[(i, i + 1) for i in range(119)])


def test_the_order_of_runs_changes_no_score(tmp_path):
    rng = np.random.default_rng(0)
    mask, truth, lengths = np.ones((6, 6, 5), bool), np.arange(180) // 45, (31, 24, 40)
    rows = [rng.normal(size=(4, t))[truth] + 0.7 * rng.normal(size=(180, t)) for t in lengths]
    paths = [str(tmp_path / f"run-{run}_bold.nii") for run in range(3)]
    for path, values in zip(paths, rows, strict=True):
        nibabel.save(nibabel.Nifti1Image(values.reshape(*mask.shape, -1), np.diag([3.0, 3, 3, 1])), path)

    def fitted(order):
        dataset = open_dataset([paths[at] for at in order], mask=mask, standardize="zscore")
        return Parcellation([2, 4, 9], client=None).fit(dataset)

    expected = fitted((0, 1, 2))
    for order in ((2, 0, 1), (1, 2, 0), (2, 1, 0)):
        model = fitted(order)
        np.testing.assert_array_equal(model.labels_, expected.labels_)
        for name, column in expected.evaluation_.items():
            np.testing.assert_allclose(model.evaluation_[name], column, atol=1e-5, err_msg=f"{name}, runs {order}")
    scaled = [(each - each.mean(axis=1, keepdims=True)) / each.std(axis=1, keepdims=True) for each in rows]
    halves = [
        np.hstack([each[:, : each.shape[1] // 2] for each in scaled]),
        np.hstack([each[:, each.shape[1] // 2 :] for each in scaled]),
    ]
    graph = volume_neighbors(mask, mask.shape)
    labels = [
        Parcellation([2, 4, 9], client=None).fit(half, neighbors=graph, coordinates=np.argwhere(mask))
        for half in halves
    ]
    for at, k in enumerate((2, 4, 9)):
        agreed = adjusted_rand_score(labels[0].labels_for(k), labels[1].labels_for(k))
        assert expected.evaluation_["split_half_ari"][at] == pytest.approx(agreed, abs=1e-9)


def test_one_parcel_is_singular(bold):
    model = Parcellation(1, client=None).fit(opened(bold))
    sentence = model.presentation.method_sentences(model.result_)[0]
    assert sentence.startswith("1 connected parcel was found by")
