"""Groups of subjects: parcels of their mean similarity, and individual parcels whose labels match the group's."""

import csv
import json
from pathlib import Path

import nibabel
import numpy as np
import pytest
from scipy.sparse import csr_array
from scipy.spatial import cKDTree
from sklearn.cluster import AgglomerativeClustering
from sklearn.metrics import adjusted_rand_score

from mgclust import Parcellation, load_result, open_dataset
from mgclust.algorithms import base
from mgclust.algorithms.parcellation import estimator
from mgclust.algorithms.parcellation.evaluation.scores import n_pieces
from mgclust.base.errors import DataWarning, InputError, InsufficientMemoryError
from mgclust.cli import run_command
from mgclust.data.neighbors import neighbors_of, volume_neighbors
from mgclust.kernels.parcels import borders
from mgclust.output.label_output import output_stem
from support.surfaces import models_of, save_series, save_surface, sphere

SHAPE, K = (9, 10, 8), 5
HALVES = (lambda run, middle: run[:, :middle], lambda run, middle: run[:, middle:])


def save(path, rows, mask):
    volume = np.zeros((*mask.shape, rows.shape[1]), np.float32)
    volume[mask] = rows
    path.parent.mkdir(parents=True, exist_ok=True)
    nibabel.save(nibabel.Nifti1Image(volume, np.diag([3.0, 3, 3, 1])), path)
    return path


class Group:
    """Made subjects: parcels are the nearest of K seeds, and each subject's borders are shifted by about a voxel."""

    def __init__(self, folder, lengths=((40,), (25, 30), (60,), (50,)), noise=0.7):
        rng = np.random.default_rng(0)
        self.lengths = lengths
        self.mask = np.ones(SHAPE, bool)
        places = np.argwhere(self.mask).astype(float)
        seeds = np.array([[1.5, 2, 2], [2, 7.5, 2], [2, 5, 6], [6.5, 2.5, 4], [6.5, 7.5, 4]])
        self.truth = cKDTree(seeds).query(places)[1]
        self.truths, self.files, self.series = [], [], []
        for at, volumes in enumerate(lengths):
            shifted = places + rng.uniform(-1, 1, 3)
            self.truths.append(cKDTree(seeds).query(shifted)[1])
            runs = []
            for run, t in enumerate(volumes):
                signals = rng.standard_normal((K, t))[self.truths[-1]]
                runs.append((signals + noise * rng.standard_normal(signals.shape)).astype(np.float32))
                name = f"sub-{at + 1:02}_task-rest_run-{run + 1}_bold.nii.gz"
                self.files.append(save(folder / f"sub-{at + 1:02}" / "func" / name, runs[-1], self.mask))
            self.series.append(np.concatenate(runs, axis=1))

    def opened(self, files=None, **how):
        return open_dataset([str(file) for file in files or self.files], mask=self.mask, **how)

    @property
    def graph(self):
        return volume_neighbors(self.mask, SHAPE)


def mean_correlations(series):
    return np.mean([np.corrcoef(np.asarray(rows, np.float64)) for rows in series], axis=0)


def within(similarity, labels):
    """Mean similarity of two rows of the same parcel, weighted by the sizes of the parcels."""
    parts = [np.flatnonzero(labels == k) for k in np.unique(labels)]
    parts = [part for part in parts if len(part) > 1]
    means = [
        (similarity[np.ix_(p, p)].sum() - np.trace(similarity[np.ix_(p, p)])) / len(p) / (len(p) - 1) for p in parts
    ]
    return np.average(means, weights=[len(part) for part in parts])


@pytest.fixture(scope="module")
def group(tmp_path_factory):
    return Group(tmp_path_factory.mktemp("group"))


@pytest.fixture(scope="module")
def fitted(group):
    return Parcellation([3, 5, 8], group=True, client=None, device="cpu").fit(group.opened())


def test_parcels_are_those_of_the_mean_of_the_correlation_matrices(group):
    similarity = mean_correlations(group.series)
    values, vectors = np.linalg.eigh(similarity)
    points = vectors * np.sqrt(np.maximum(values, 0))  # whose products are the similarities
    starts, columns = group.graph
    graph = csr_array((np.ones(len(columns)), columns, starts))
    for k in (5, 12, 40):
        model = Parcellation(k, group=True, refine=False, client=None).fit(group.opened())
        expected = AgglomerativeClustering(k, connectivity=graph, linkage="ward").fit_predict(points)
        assert adjusted_rand_score(expected, model.labels_) == 1
        assert model.homogeneity_ == pytest.approx(within(similarity, model.labels_), abs=1e-5)
        assert model.individual_labels_ is None and model.individual_scores_ is None
        assert model.subjects_ == ["sub-01", "sub-02", "sub-03", "sub-04"]


def test_individual_parcels_find_shifted_borders_and_keep_the_labels_of_the_group(group, fitted):
    model = fitted
    assert model.n_clusters_ == K and model.individual_labels_.shape == (len(group.truth), 4)
    assert model.individual_labels_.dtype == np.int32
    name = np.array([np.bincount(group.truth[model.labels_ == p]).argmax() for p in range(K)])
    assert sorted(name) == list(range(K))
    for at, truth in enumerate(group.truths):
        own = model.individual_labels_[:, at]
        assert (name[own] == truth).mean() > max(0.97, (name[model.labels_] == truth).mean())
        assert len(np.unique(own)) == K and (n_pieces(own, *group.graph) == 1).all()


def test_scores_of_the_subjects(group, fitted):
    scores = fitted.individual_scores_
    for at, rows in enumerate(group.series):
        own, similarity = fitted.individual_labels_[:, at], mean_correlations([rows])
        assert scores["homogeneity"][at] == pytest.approx(within(similarity, own), abs=1e-5)
        assert scores["group_homogeneity"][at] == pytest.approx(within(similarity, fitted.labels_), abs=1e-5)
        assert scores["group_ari"][at] == pytest.approx(adjusted_rand_score(own, fitted.labels_))
        runs = np.split(rows, np.cumsum(group.lengths[at])[:-1], axis=1)
        first, second = (np.hstack([half(run, run.shape[1] // 2) for run in runs]) for half in HALVES)
        halves = [mean_correlations([part]) for part in (first, second)]
        expected = np.mean([within(part, fitted.labels_) for part in halves])
        assert scores["group_held_out"][at] == pytest.approx(expected, abs=1e-5)
        assert scores["held_out"][at] > scores["group_held_out"][at]  # the borders of the subjects are shifted


def test_halves_are_halves_of_the_subjects(group, fitted):
    numbers = [3, 5, 8]
    files = group.files[:3], group.files[3:]  # the second subject has two runs
    halves = [Parcellation(numbers, group=True, client=None).fit(group.opened(part)) for part in files]
    similarities = [mean_correlations(group.series[:2]), mean_correlations(group.series[2:])]
    for at, k in enumerate(numbers):
        labels = [half.labels_for(k) for half in halves]
        held_out = np.mean([within(similarities[1 - h], labels[h]) for h in (0, 1)])
        assert fitted.evaluation_["held_out"][at] == pytest.approx(held_out, abs=1e-4)
        assert fitted.evaluation_["split_half_ari"][at] == pytest.approx(adjusted_rand_score(*labels), abs=1e-6)


def found(model):
    scores = (*model.evaluation_.values(), *model.individual_scores_.values())
    return [np.asarray(each).tobytes() for each in (model._candidates, model.individual_labels_, *scores)]


def test_the_order_of_subjects_changes_nothing(group, fitted):
    order = [4, 0, 3, 1, 2]
    model = Parcellation([3, 5, 8], group=True, client=None, device="cpu")
    assert found(model.fit(group.opened([group.files[at] for at in order]))) == found(fitted)
    assert model.subjects_ == fitted.subjects_


@pytest.mark.slow
@pytest.mark.xdist_group("workers")
def test_the_order_of_runs_of_a_subject_changes_no_score(group, fitted):
    order = [0, 2, 1, 3, 4]  # the second subject has two runs
    model = Parcellation([3, 5, 8], group=True, client=None, device="cpu").fit(
        group.opened([group.files[at] for at in order])
    )
    np.testing.assert_array_equal(model.individual_labels_, fitted.individual_labels_)
    for name, scores in fitted.individual_scores_.items():
        np.testing.assert_allclose(model.individual_scores_[name], scores, atol=1e-5, err_msg=name)


def test_the_same_bits_on_any_number_of_ranks(group, fitted, ranks, monkeypatch):
    for size in (1, 2, 3, 4):
        monkeypatch.setattr(base, "connect", lambda size=size, **_: ranks(size))
        model = Parcellation([3, 5, 8], group=True, client=None, device="cpu").fit(group.opened())
        assert found(model) == found(fitted), f"{size} ranks"


def test_a_subject_has_the_same_weight_whatever_its_volumes_and_scale(tmp_path, group):
    """A subject whose run is given three times, or whose values are larger, counts no more."""
    rows = group.series[0]
    again = [save(tmp_path / f"sub-01_run-{run}_bold.nii.gz", 1000 + 50 * rows, group.mask) for run in range(3)]
    model = Parcellation(6, group=True, client=None).fit(group.opened([*again, *group.files[1:]]))
    plain = Parcellation(6, group=True, client=None).fit(group.opened())
    np.testing.assert_array_equal(model.labels_, plain.labels_)
    np.testing.assert_array_equal(model.individual_labels_, plain.individual_labels_)


def test_noise_of_one_subject_stays_in_its_own_parcels(tmp_path, group, fitted):
    noise = np.random.default_rng(1).standard_normal((len(group.truth), 200))
    loud = save(tmp_path / "sub-05_bold.nii.gz", 1e4 * noise, group.mask)
    model = Parcellation(K, group=True, evaluate=True, client=None).fit(group.opened([*group.files, loud]))
    assert adjusted_rand_score(model.labels_, fitted.labels_) > 0.9
    for at, truth in enumerate(group.truths):
        assert adjusted_rand_score(model.individual_labels_[:, at], truth) > 0.95
    assert (n_pieces(model.individual_labels_[:, 4], *group.graph) == 1).all()
    assert abs(model.individual_scores_["held_out"][4]) < 0.02  # the series of the subject support no parcels


def test_files_without_subjects_are_subjects(tmp_path, group):
    files = [
        save(tmp_path / f"{name}.nii.gz", rows, group.mask) for name, rows in zip("ab", group.series, strict=False)
    ]
    model = Parcellation(K, group=True, client=None).fit(group.opened(files))
    assert model.subjects_ == ["file-1", "file-2"] == model.result_.diagnostics["subjects"]
    images = [nibabel.load(file) for file in files]
    again = Parcellation(K, group=True, client=None).fit(open_dataset(images, mask=group.mask))
    np.testing.assert_array_equal(again.individual_labels_, model.individual_labels_)


def test_a_voxel_that_is_constant_in_one_run_of_one_subject_is_left_out(tmp_path, group):
    rows = group.series[1].copy()
    rows[7, :20] = 3.0
    runs = [
        save(tmp_path / f"sub-02_run-{at}_bold.nii", part, group.mask)
        for at, part in enumerate(np.split(rows, [20], 1))
    ]
    with pytest.warns(
        DataWarning,
        match=r"1 of 720 voxels does not .* run \(1 in .*/sub-02_run-0_bold\.nii\) and was left",
    ):
        model = Parcellation(K, group=True, client=None).fit(group.opened([group.files[0], *runs]))
    assert model.individual_labels_.shape == (719, 2)


@pytest.mark.parametrize("k", [2, 3, 7, 719, 720])
def test_islands_and_extreme_numbers(tmp_path, group, k):
    mask = group.mask.copy()
    mask[4] = False  # two islands of 4 layers each
    dataset = open_dataset(group.files, mask=mask)
    k = min(k, dataset.shape[0])
    model = Parcellation(k, group=True, client=None).fit(dataset)
    for labels in (model.labels_, *model.individual_labels_.T):
        assert len(np.unique(labels)) == k and (n_pieces(labels, *neighbors_of(dataset)) == 1).all()


def test_two_and_three_subjects_are_compared(group):
    for files in ([group.files[0], group.files[3]], [group.files[0], *group.files[3:]]):
        model = Parcellation([3, 5, 8], group=True, client=None).fit(group.opened(files))
        assert model.n_clusters_ == K and len(model.subjects_) == len(files)


@pytest.mark.parametrize(
    ("files", "parameters", "message"),
    [
        (
            ["sub-01_bold", "sub-02_bold"], {},
            r"group=False should be True for files of 2 subjects \(sub-01, sub-02\); give group=True \(--group\), or",
        ),
        (["sub-01/bold", "sub-02/bold"], {}, "group=False should be True for files of 2 subjects"),
        (
            ["sub-01_run-1_bold", "sub-01_run-2_bold"], {"group": True},
            "group=True needs at least 2 subjects, but all files are of sub-01",
        ),
        (["bold"], {"group": True}, "group=True needs at least 2 subjects, but all files are of file-1"),
        (["sub-01_bold", "rest"], {"group": True}, r"rest\.nii states no subject, but other files do \(sub-01\)"),
        (["sub-01_bold", "rest"], {}, r"rest\.nii states no subject, but other files do \(sub-01\); put the"),
        (["SUB-1_bold", "sub-\u00e9_bold"], {}, r"True for files of 2 subjects \(sub-1, sub-\u00e9\)"),
        (["sub-1_run-1_bold", "SUB-1_run-2_bold"], {"group": True}, "but all files are of sub-1; leave group out"),
        (
            ["sub-projects/a/p1", "sub-projects/a/p2"], {"group": True},
            "all files are of sub-projects, by the name of a folder; leave group out, or put the subject into each",
        ),
        (["sub-01_bold", "sub-02_tiny"], {"group": True}, "sub-02 should have >= 4 points in time, not 3, because"),
        (
            ["sub-01_bold", "sub-02_short"], {"group": True, "n_parcels": [2, 3]},
            "half of the series of sub-02 should have >= 10 points in time to be compared with the other half, not 6",
        ),
    ],
)  # fmt: skip
def test_bad_groups_give_one_sentence(files, parameters, message, tmp_path):
    mask = np.ones((3, 3, 3), bool)
    rng = np.random.default_rng(0)
    lengths = {"short": 12, "_tiny": 3}
    paths = [
        save(tmp_path / f"{name}.nii", rng.standard_normal((27, lengths.get(name[-5:], 30))), mask) for name in files
    ]
    with pytest.raises(InputError, match=message):
        Parcellation(**{"n_parcels": 3, **parameters}, client=None).fit(open_dataset(paths, mask=mask))


def test_equal_subjects_are_doubted(tmp_path, group):
    first, third = group.series[0], group.series[2]
    rows = {"sub-01": first, "sub-02": third, "sub-03": first + 0, "sub-04": first.copy()}
    rows["sub-04"][700] = rows["sub-04"][700, ::-1]  # equal in the first rows only
    files = [save(tmp_path / f"{name}_bold.nii.gz", each, group.mask) for name, each in rows.items()]
    with pytest.warns(DataWarning) as told:
        Parcellation(K, group=True, client=None).fit(group.opened(files))
    assert [str(each.message) for each in told] == [
        "2 subjects have equal series (sub-01, sub-03), so one subject counts 2 times; give each subject its own files."
    ]


def test_a_link_without_a_subject_leads_to_the_subject(tmp_path, group):
    links = []
    for name, file in zip("ab", (group.files[0], group.files[3]), strict=True):
        links.append(tmp_path / f"{name}.nii.gz")
        links[-1].symlink_to(file)
    with pytest.raises(InputError, match=r"files of 2 subjects \(sub-01, sub-03\)"):
        Parcellation(K, client=None).fit(group.opened(links))
    model = Parcellation(K, group=True, client=None).fit(group.opened(links))
    assert model.subjects_ == ["sub-01", "sub-03"]


def test_a_subject_in_capitals_names_the_files_once():
    assert output_stem(["SUB-4_task-rest_bold.nii.gz"], "parcellation", "sub-4") == (
        "sub-4_task-rest_desc-parcellation_dseg"
    )


def test_subjects_on_other_grids_and_rows_without_subjects(tmp_path, group):
    other = save(tmp_path / "sub-09_bold.nii.gz", group.series[0][:24], np.ones((2, 3, 4), bool))
    with pytest.raises(InputError, match="is on another grid than"):
        open_dataset([group.files[0], other], mask=group.mask)
    with pytest.raises(InputError, match="group=True needs BOLD series of several subjects, not array"):
        Parcellation(3, group=True, client=None).fit(group.series[0], neighbors=[(0, 1)])


def test_few_volumes_need_no_evaluation(tmp_path):
    mask, rng = np.ones((3, 3, 3), bool), np.random.default_rng(0)
    files = [save(tmp_path / f"sub-{s}_bold.nii", rng.standard_normal((27, 4)), mask) for s in (1, 2)]
    model = Parcellation(3, group=True, client=None).fit(open_dataset(files, mask=mask))
    assert model.individual_labels_.max() == 2 and model.evaluation_ is None


def test_memory_of_a_group_is_refused_with_its_parts(group):
    with pytest.raises(InsufficientMemoryError, match="all series on rank 0"):
        Parcellation(K, group=True, memory_limit="1 MiB", client=None).fit(group.opened())


def test_moves_that_do_not_end_are_doubted(group, monkeypatch):
    for module in (borders, estimator):
        monkeypatch.setattr(module, "PASSES", 1)
    with pytest.warns(
        base.UnconvergedWarning, match=r"the borders of 4 subject\(s\) \(sub-01, sub-02, .* after 1 passes"
    ):
        Parcellation(K, group=True, client=None).fit(group.opened())


def test_the_command_writes_label_files_of_each_subject(group, tmp_path, capsys):
    command = ["parcellate", *map(str, group.files), "--group", "--n-parcels", "3,5,8", "--cpu", "-o"]
    assert run_command([*command, str(tmp_path / "out")]) == 0
    assert "subjects, whose series are joined" not in capsys.readouterr().err
    result = load_result(tmp_path / "out")
    assert result.diagnostics["subjects"] == ["sub-01", "sub-02", "sub-03", "sub-04"]
    assert (tmp_path / "out" / "task-rest_desc-parcellation_dseg.nii.gz").exists()
    for at, subject in enumerate(result.diagnostics["subjects"]):
        folder = tmp_path / "out" / "individual" / subject
        run = "" if subject == "sub-02" else "_run-1"
        stem = f"{subject}_task-rest{run}_desc-parcellation_dseg"
        assert sorted(path.name for path in folder.iterdir()) == [
            f"{stem}{end}" for end in (".json", ".nii.gz", ".tsv")
        ]
        volume = np.asarray(nibabel.load(folder / f"{stem}.nii.gz").dataobj)
        np.testing.assert_array_equal(volume[group.mask], result.arrays["individual_labels"][:, at] + 1)
        facts = json.loads((folder / f"{stem}.json").read_text())
        assert facts["Subject"] == subject and len(facts["Sources"]) == 1 + (subject == "sub-02")
        assert [Path(name).name.split("_")[0] for name in facts["Sources"]] == [subject] * len(facts["Sources"])
        assert sum(facts["TimePoints"]) == group.series[at].shape[1]
        with open(folder / f"{stem}.tsv", encoding="utf-8") as file:
            assert [int(line["index"]) for line in csv.DictReader(file, delimiter="\t")] == [1, 2, 3, 4, 5]
    report = (tmp_path / "out" / "report.html").read_text(encoding="utf-8")
    assert "Parcels of each subject" in report and "sub-03" in report
    assert "the correlation of their series, averaged over 4 subjects" in report
    assert run_command([*command, str(tmp_path / "out"), "--overwrite"]) == 0
    assert run_command([*[word for word in command if word != "--group"], str(tmp_path / "two")]) != 0
    assert "give group=True (--group), or files of one subject" in capsys.readouterr().err


def test_grayordinates_of_several_subjects(tmp_path):
    from mgclust.output.file_run import save as save_result

    rng = np.random.default_rng(0)
    coordinates, triangles = sphere(2)
    models = models_of(rng, size=len(coordinates))
    runs = [save_series(tmp_path / f"sub-{s}_bold.dtseries.nii", models, rng) for s in ("A", "B")]
    surfaces = [
        save_surface(tmp_path / f"{side}.surf.gii", coordinates + shift, triangles, f"Cortex{side}")
        for side, shift in (("Left", [-70, 0, 0]), ("Right", [70, 0, 0]))
    ]
    dataset = open_dataset(runs, surfaces=surfaces)
    model = Parcellation(20, group=True, client=None).fit(dataset)
    for labels in model.individual_labels_.T:
        assert (n_pieces(labels, *neighbors_of(dataset, 26)) == 1).all()
    save_result(model.result_, dataset, tmp_path / "out", False, False, [], lambda event: None)
    file = nibabel.load(tmp_path / "out" / "individual" / "sub-B" / "sub-B_desc-parcellation_dseg.dlabel.nii")
    np.testing.assert_array_equal(file.get_fdata()[0], model.individual_labels_[:, 1] + 1)


def test_a_folder_that_states_the_subject_names_the_files(tmp_path, group):
    files = [save(tmp_path / f"sub-{s}" / "bold.nii.gz", rows, group.mask) for s, rows in enumerate(group.series[:2])]
    command = ["parcellate", *map(str, files), "--group", "--n-parcels", "5", "--cpu", "-o", str(tmp_path / "out")]
    assert run_command(command) == 0
    assert (tmp_path / "out" / "individual" / "sub-1" / "sub-1_desc-parcellation_dseg.nii.gz").exists()
    assert (tmp_path / "out" / "bold_desc-parcellation_dseg.nii.gz").exists()
