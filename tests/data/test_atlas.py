"""Clusters compared with an atlas: volumes, CIFTI and GIFTI labels with names, from Python and the command line."""

import csv
import json
import os
import pickle
import random
from pathlib import Path

import numpy as np
import pytest
from sklearn.metrics import adjusted_rand_score

nibabel = pytest.importorskip("nibabel")

from mgclust import DensityPeaks, cli, load_result, open_dataset  # noqa: E402
from mgclust.algorithms.common.atlas_comparison import atlas_arrays, with_atlas  # noqa: E402
from mgclust.base.errors import InputError  # noqa: E402
from mgclust.data.readers.atlas import with_table  # noqa: E402
from mgclust.datasets import make_bold  # noqa: E402
from mgclust.output.report import write_report  # noqa: E402
from mgclust.results.label_agreement import compare_with_atlas  # noqa: E402
from mgclust.results.result import Result  # noqa: E402
from support.hostile import attempted, inside, mutated  # noqa: E402
from support.surfaces import models_of, save_series, save_surface, sphere  # noqa: E402

SHAPE = (6, 5, 4)
AFFINE = np.array([[-3.0, 0, 0, 9], [0, 3, 0, -6], [0, 0, 3, -6], [0, 0, 0, 1]])


def expected_agreement(labels, atlas):
    """By loops: label (0: none) and Dice of each cluster, ARI and number of the rows that both label."""
    index, dice = [], []
    for k in range(labels.max() + 1):
        own = labels == k
        overlaps = {a: int((own & (atlas == a)).sum()) for a in np.unique(atlas[own & (atlas > 0)]).tolist()}
        best = max(overlaps, key=lambda a: (overlaps[a], -a), default=0)
        index.append(best)
        dice.append(2 * overlaps[best] / (own.sum() + (atlas == best).sum()) if best else 0.0)
    both = (labels >= 0) & (atlas > 0)
    return index, dice, adjusted_rand_score(labels[both], atlas[both]), int(both.sum())


def check(dataset, labels, atlas, names=None):
    """Compare the entries of a result with the oracle; `atlas` has the value of each row."""
    result = with_atlas(Result("density-peaks", labels=labels), dataset)
    index, dice, ari, rows = expected_agreement(labels, atlas)
    assert result.arrays["atlas_index"].tolist() == index
    np.testing.assert_allclose(result.arrays["atlas_dice"], dice, rtol=1e-12)
    assert result.scores == {"atlas_ari": pytest.approx(ari, abs=1e-12), "atlas_rows": rows}
    names = names or {}
    assert result.arrays["atlas_name"].tolist() == [names.get(each, "") for each in index]
    return result


def refusal(*args, **kwargs):
    with pytest.raises(InputError) as caught:
        open_dataset(*args, **kwargs)
    message = str(caught.value)
    assert message.endswith(".") and "\n" not in message and len(message) < 700
    return message


@pytest.fixture
def mask(rng):
    return rng.random(SHAPE) < 0.8


@pytest.fixture
def bold(tmp_path, rng, mask):
    series = rng.normal(100, 5, (*SHAPE, 12)).astype(np.float32)
    series[tuple(np.argwhere(mask)[4])] = 7  # left out as constant
    nibabel.save(nibabel.Nifti1Image(series, AFFINE), tmp_path / "bold.nii.gz")
    nibabel.save(nibabel.Nifti1Image(mask.astype(np.uint8), AFFINE), tmp_path / "mask.nii.gz")
    return {"source": tmp_path / "bold.nii.gz", "mask": tmp_path / "mask.nii.gz"}


def save(path, values, affine=AFFINE):
    values = np.asarray(values)
    nibabel.save(nibabel.Nifti1Image(values, affine, dtype=values.dtype), path)
    return path


@pytest.fixture
def values(rng):
    """Labels that are neither consecutive nor positive everywhere."""
    return rng.choice([-4, 0, 2, 3, 70, 2**31 + 5], SHAPE).astype(np.float64)


def test_agreement_is_that_of_loops(rng):
    for _ in range(40):
        n, k, m = rng.integers(1, 60), rng.integers(1, 8), rng.integers(1, 6)
        labels, codes = rng.integers(-1, k, n), rng.integers(-1, m, n)
        found = compare_with_atlas(labels, codes, int(m))
        both = (labels >= 0) & (codes >= 0)
        assert found.rows == both.sum() and len(found.label) == len(found.dice) == labels.max() + 1
        if not both.any():
            assert found.ari is None and (found.label == -1).all() and not found.dice.any()
            continue
        index, dice, ari, _ = expected_agreement(labels, codes + 1)
        assert (found.label + 1).tolist() == index and found.dice.tolist() == pytest.approx(dice)
        assert found.ari == pytest.approx(ari)


@pytest.mark.parametrize("suffix", [".nii", ".nii.gz"])
@pytest.mark.parametrize("dtype", [np.float64, np.int64])
def test_an_atlas_volume(bold, values, rng, tmp_path, suffix, dtype):
    path = save(tmp_path / f"atlas{suffix}", values.astype(dtype))
    dataset = open_dataset(**bold, atlas=path)
    alone = open_dataset(**bold)
    assert dataset.fingerprint() == alone.fingerprint() and alone.atlas is None
    said = dataset.describe()
    assert said["atlas"] == [str(path)] and len(said["atlas_sha256"][0]) == 64 and "atlas" not in alone.describe()
    labels = rng.integers(-1, 6, dataset.shape[0])
    check(dataset, labels, values.reshape(-1)[dataset.chosen])
    check(pickle.loads(pickle.dumps(dataset)), labels, values.reshape(-1)[dataset.chosen])
    for given in (nibabel.load(path), values.astype(dtype)):
        check(open_dataset(**bold, atlas=given), labels, values.reshape(-1)[dataset.chosen])


def test_names_of_a_table(bold, values, tmp_path, rng):
    path = save(tmp_path / "tpl-X_res-02_atlas-A_dseg.nii.gz", values)
    rows = values.reshape(-1)[open_dataset(**bold).chosen]
    labels = rng.integers(0, 6, len(rows))
    names = {2: "left hippocampus", 3: "<b>Ärea</b>", 70: "x" * 200, 2147483653: ""}
    text = "name\tcolor\tindex\nleft  hippocampus\t#fff\t2\n<b>Ärea</b>\t#fff\t3\n{}\t#fff\t70\n\nother\t\t-9\n".format(
        "x" * 300
    )
    inherited = tmp_path / "tpl-X_atlas-A_dseg.tsv"
    inherited.write_text(text, encoding="utf-8")
    dataset = open_dataset(**bold, atlas=path)
    assert dataset.describe()["atlas"] == [str(path), str(inherited)]
    assert [each.path for each in with_table([path])] == [str(path), str(inherited)]
    result = check(dataset, labels, rows, names)
    (tmp_path / "tpl-X_res-02_atlas-A_dseg.tsv").write_text("index\tname\n3\tnearer\n")
    check(open_dataset(**bold, atlas=path), labels, rows, {3: "nearer"})
    check(open_dataset(**bold, atlas=[path, inherited]), labels, rows, names)
    check(open_dataset(**bold, atlas=f"{path}, {inherited}"), labels, rows, names)
    (tmp_path / "tpl-X_res-02_atlas-A_dseg.tsv").write_text("participant\tage\n1\t2\n")  # not a table of labels
    check(open_dataset(**bold, atlas=path), labels, rows, names)
    page = write_report(result, tmp_path / "r.html", {}).read_text()
    assert "Label of the atlas with the largest overlap" in page and "&lt;b&gt;Ärea&lt;/b&gt;" in page
    assert "<b>Ärea" not in page and "agreement with the atlas" in page


@pytest.mark.parametrize(
    ("table", "says"),
    [
        ("index\tlabel\n1\ta\n", "needs the columns index and name, but its columns are index, label"),
        ("", "but its columns are none"),
        ("index\tname\n1.5\ta\n", "line 2 has no whole number in the column index"),
        ("index\tname\n1\ta\n2\n", "line 3 has no whole number in the column index, or not as many fields"),
        ("index\tname\n1\ta\n1\tb\n", "the index 1 occurs twice, also in line 3"),
        (f"index\tname\n{'9' * 400}\ta\n", "line 2 has no whole number"),
        ("index\tname\n1\t" + "a" * 2**18 + "\n", "cannot be read"),
    ],
)
def test_tables_that_are_no_tables_of_names(bold, values, tmp_path, table, says):
    path = save(tmp_path / "a.nii.gz", values)
    (tmp_path / "b.tsv").write_text(table)
    assert says in refusal(**bold, atlas=[path, tmp_path / "b.tsv"])


def test_wrong_atlases(bold, values, mask, tmp_path):
    def says(text, atlas):
        assert text in refusal(**bold, atlas=atlas)

    shifted = AFFINE + np.eye(4) * [0, 0, 2, 0]
    message = refusal(**bold, atlas=save(tmp_path / "grid.nii", values, shifted))
    assert "grid.nii' is on another grid than" in message and message.count("6 x 5 x 4 voxels with affine") == 2
    assert message.endswith("with nearest neighbour.")
    assert "5 x 5 x 4 voxels" in refusal(**bold, atlas=save(tmp_path / "size.nii", values[1:]))
    says("are not whole numbers, such as", save(tmp_path / "half.nii", values + 0.5))
    says("are not whole numbers, such as nan", save(tmp_path / "nan.nii", np.where(values == 2, np.nan, values)))
    for few in (np.zeros(SHAPE, np.int16), np.full(SHAPE, -3, np.int16)):
        says("holds no label: all its values are 0 or negative", save(tmp_path / "zero.nii", few))
    says("has no label at any of the", save(tmp_path / "away.nii", np.where(mask, 0, 1).astype(np.int16)))
    says("an atlas is 3-D", save(tmp_path / "four.nii", np.ones((*SHAPE, 2), np.int16)))
    says("none.nii does not exist", tmp_path / "none.nii")
    good = save(tmp_path / "good.nii", values)
    says("atlas names 2 files of labels", [good, good])
    (tmp_path / "t.tsv").write_text("index\tname\n2\tx\n")
    says("names 0 files of labels and 1 tables", tmp_path / "t.tsv")
    says("names 1 files of labels and 2 tables", [good, tmp_path / "t.tsv", tmp_path / "t.tsv"])
    for name in ("a.label.gii", "a.dlabel.nii", "a.csv"):
        says("whose rows are voxels; give a volume of labels", tmp_path / name)
    says("atlas is a int; give the path", 7)
    says("atlas is a list; give the path", [values, 3])
    says("atlas is a ndarray of shape (2, 2)", np.ones((2, 2)))
    (tmp_path / "text.nii").write_text("no volume at all")
    says("is not a NIfTI file", tmp_path / "text.nii")
    (tmp_path / "cut.nii").write_bytes(good.read_bytes()[:-8])
    says("truncated", tmp_path / "cut.nii")


def save_dlabel(path, keys, models, names):
    table = {key: (name, (1, 0, 0, 1)) for key, name in names.items()}
    axes = (nibabel.cifti2.LabelAxis(["x"], [table]), models)
    nibabel.save(nibabel.cifti2.Cifti2Image(np.asarray(keys, np.float32)[None], axes), path)
    return path


def save_vertices(path, keys, structure, names):
    gifti = nibabel.gifti
    table = gifti.GiftiLabelTable()
    for key, name in names.items():
        label = gifti.GiftiLabel(key, 1, 0, 0, 1)
        label.label = name
        table.labels.append(label)
    array = gifti.GiftiDataArray(np.asarray(keys, np.int32), intent="NIFTI_INTENT_LABEL", datatype="NIFTI_TYPE_INT32")
    meta = gifti.GiftiMetaData({"AnatomicalStructurePrimary": structure})
    path.write_bytes(gifti.GiftiImage(meta=meta, labeltable=table, darrays=[array]).to_bytes())
    return path


@pytest.fixture
def grayordinates(tmp_path, rng):
    models = models_of(rng)
    return save_series(tmp_path / "sub-01_bold.dtseries.nii", models, rng, constant=(3, 50)), models


def test_an_atlas_of_grayordinates(grayordinates, tmp_path, rng):
    """Labels go to their vertex or voxel, also if the atlas has other grayordinates in another order."""
    path, models = grayordinates
    names = {0: "???", 1: "V1", 2: "M1", 5: "none", 9: "???"}
    keys = rng.choice([0, 1, 2, 5, 9, -2], len(models))
    rows = np.where(np.isin(keys, [1, 2, 5]), keys, 0)
    dataset = open_dataset(path, atlas=save_dlabel(tmp_path / "a.dlabel.nii", keys, models, names))
    labels = rng.integers(-1, 4, dataset.shape[0])
    check(dataset, labels, rows[dataset.chosen], names)
    order = rng.permutation(len(models))[: len(models) // 2]
    some = open_dataset(path, atlas=save_dlabel(tmp_path / "b.dlabel.nii", keys[order], models[order], names))
    kept = np.isin(np.arange(len(models)), order)
    check(some, labels, np.where(kept, rows, 0)[dataset.chosen], names)
    (tmp_path / "names.tsv").write_text("index\tname\n1\tfirst\n")
    named = open_dataset(path, atlas=[tmp_path / "a.dlabel.nii", tmp_path / "names.tsv"])
    check(named, labels, rows[dataset.chosen], {1: "first"})
    small = models_of(rng, size=30, right=False, subcortical=False)
    save_dlabel(tmp_path / "c.dlabel.nii", np.ones(len(small)), small, names)
    assert "has 30 vertices of cortex_left, but" in refusal(path, atlas=tmp_path / "c.dlabel.nii")
    deep = models[np.asarray(models.volume_mask)]
    moved = type(deep)(deep.name, deep.voxel, None, deep.affine + 1, deep.volume_shape)
    save_dlabel(tmp_path / "d.dlabel.nii", np.ones(len(moved)), moved, names)
    assert "are on another grid than the voxels of" in refusal(path, atlas=tmp_path / "d.dlabel.nii")
    nibabel.save(nibabel.Nifti1Image(np.ones(SHAPE, np.int16), AFFINE), tmp_path / "v.nii.gz")
    assert "give a .dlabel.nii file, or a .label.gii file" in refusal(path, atlas=tmp_path / "v.nii.gz")
    assert "atlas=" in (said := refusal(path, atlas=path)) and "does not suit" in said
    assert "atlas is a ndarray" in refusal(path, atlas=np.ones(len(models)))


def test_an_atlas_of_two_hemispheres(grayordinates, tmp_path, rng):
    """The same key with the same name in both files is one label, with other names it is two labels."""
    path, models = grayordinates
    sides = [rng.integers(0, 4, 42), rng.integers(0, 4, 42)]
    names = [{0: "???", 1: "network", 2: "L_V1", 3: "x"}, {0: "???", 1: "network", 2: "R_V1", 3: "???"}]
    files = [
        save_vertices(tmp_path / f"{side[0]}.label.gii", keys, f"Cortex{side}", own)
        for side, keys, own in zip(("Left", "Right"), sides, names, strict=True)
    ]
    dataset = open_dataset(path, atlas=files)
    expected = []
    for index in dataset.voxels[:, 0]:
        _, place, structure = models[int(index)]
        side = {"CIFTI_STRUCTURE_CORTEX_LEFT": 0, "CIFTI_STRUCTURE_CORTEX_RIGHT": 1}.get(structure)
        key = 0 if side is None else int(sides[side][int(place)])
        expected.append(None if names[side or 0][key] == "???" or side is None else (key, names[side][key]))
    atlas = dataset.atlas
    found = [None if code < 0 else (int(atlas.keys[code]), atlas.names[code]) for code in atlas.codes]
    assert found == expected
    assert list(zip(atlas.keys.tolist(), atlas.names, strict=True)) == [
        (1, "network"), (2, "L_V1"), (2, "R_V1"), (3, "x"),
    ]  # fmt: skip
    right = np.array([models[int(index)][2].endswith("RIGHT") for index in dataset.voxels[:, 0]])
    one = open_dataset(path, atlas=files[1]).atlas
    assert [one.names[code] if code >= 0 else None for code in one.codes] == [
        each[1] if each is not None and own else None for each, own in zip(expected, right, strict=True)
    ]
    assert "are both of cortex_left" in refusal(path, atlas=[files[0], files[0]])
    wrong = save_vertices(tmp_path / "w.label.gii", np.ones(41), "CortexLeft", {})
    assert "has 41 vertices of cortex_left, but" in refusal(path, atlas=[wrong, files[1]])
    surface = save_surface(tmp_path / "s.surf.gii", *sphere(1), "CortexLeft")
    assert "0 arrays of labels" in refusal(path, atlas=surface)


def test_no_row_in_both(bold, values, tmp_path):
    dataset = open_dataset(**bold, atlas=save(tmp_path / "a.nii", values))
    labels = np.where(values.reshape(-1)[dataset.chosen] > 0, -1, 0)
    result = with_atlas(Result("density-peaks", labels=labels), dataset)
    assert result.scores == {"atlas_rows": 0} and result.arrays["atlas_index"].tolist() == [0]
    assert "none" in write_report(result, tmp_path / "r.html", {}).read_text()
    assert atlas_arrays(dataset, np.full(len(labels), -1))["atlas_dice"].shape == (0,)


def test_methods_that_read_a_series(bold, values, tmp_path):
    dataset = open_dataset(**bold, atlas=save(tmp_path / "a.nii", values))
    model = DensityPeaks(3, metric="correlation", client=None, device="cpu").fit(dataset)
    index, dice, ari, rows = expected_agreement(model.labels_, values.reshape(-1)[dataset.chosen])
    assert model.result_.arrays["atlas_index"].tolist() == index
    assert (model.result_.scores["atlas_ari"], model.result_.scores["atlas_rows"]) == (pytest.approx(ari), rows)
    np.testing.assert_allclose(model.result_.arrays["atlas_dice"], dice)
    assert not {"atlas_ari", "atlas_rows"} & set(model.select_centers(2).result_.scores)  # not of the new clusters


@pytest.fixture(scope="module")
def made():
    return make_bold((9, 9, 7), n_parcels=5)


@pytest.fixture
def mgclust_(capsys, tmp_path, monkeypatch, made):
    monkeypatch.chdir(tmp_path)
    made.save(".")

    def call(*args):
        code = cli.run_command([str(arg) for arg in args])
        out, err = capsys.readouterr()
        assert "Traceback" not in err
        return code, out, err

    return call


def test_parcellate_with_an_atlas(mgclust_, made):
    Path("truth.tsv").write_text("index\tname\n" + "".join(f"{k}\tregion {k}\n" for k in range(1, 5)))
    call = ("parcellate", "bold.nii.gz", "--mask", "mask.nii.gz", "--n-parcels", "5,9", "--cpu", "-o", "out")
    code, out, err = mgclust_(*call, "--atlas", "truth.nii.gz")
    assert code == 0, err
    assert "atlas     ARI 1.000" in out and f"{made.mask.sum():,} rows in both" in out
    truth = made.truth[made.mask]
    for folder in ("out", "out/candidates/5", "out/candidates/9"):
        result = load_result(folder)
        index, dice, ari, rows = expected_agreement(np.asarray(result.labels), truth)
        assert result.arrays["atlas_index"].tolist() == index and result.scores["atlas_ari"] == pytest.approx(ari)
        assert result.scores["atlas_rows"] == rows == len(truth)
        with open(f"{folder}/bold_desc-parcellation_dseg.tsv", newline="") as file:
            table = list(csv.DictReader(file, delimiter="\t"))
        assert [int(row["atlas_index"]) for row in table] == index
        assert [row["atlas_name"] for row in table] == ["n/a" if k == 5 else f"region {k}" for k in index]
        np.testing.assert_allclose([float(row["atlas_dice"]) for row in table], dice, atol=1e-4)
        sidecar = json.loads(Path(f"{folder}/bold_desc-parcellation_dseg.json").read_text())
        assert sidecar["Atlas"] == ["truth.nii.gz", "truth.tsv"]
    page = Path("out/report.html").read_text()
    assert "region 4" in page and "Label of the atlas with the largest overlap" in page
    nibabel.save(nibabel.Nifti1Image(made.truth, np.eye(4)), "other.nii.gz")
    code, out, err = mgclust_(*call, "--overwrite", "--atlas", "other.nii.gz")
    assert code == 2 and "is on another grid than bold.nii.gz" in err and len(err.strip().splitlines()) == 1
    code, out, err = mgclust_("run", "communities", "x.edges", "-o", "g", "--atlas", "truth.nii.gz")
    assert code == 2 and "--atlas" in err


def test_parcellate_grayordinates(mgclust_, rng):
    models = models_of(rng)
    save_series(Path("sub-01_bold.dtseries.nii"), models, rng)
    for side, shift in (("Left", -70), ("Right", 70)):
        save_surface(Path(f"{side[0]}.surf.gii"), sphere(1)[0] + [shift, 0, 0], sphere(1)[1], f"Cortex{side}")
    save_dlabel(Path("a.dlabel.nii"), 1 + np.arange(len(models)) % 3, models, {0: "???", 1: "a", 2: "b", 3: "c"})
    call = ("parcellate", "sub-01_bold.dtseries.nii", "--n-parcels", "12", "--cpu", "-o", "out", "--no-report")
    code, _, err = mgclust_(*call)
    assert code == 2 and "surfaces=None, but" in err and not os.path.exists("out")
    code, _, err = mgclust_(*call, "--surfaces", "L.surf.gii,R.surf.gii", "--atlas", "a.dlabel.nii")
    assert code == 0, err
    result = load_result("out")
    assert result.source["surfaces"] == ["L.surf.gii", "R.surf.gii"] and result.source["atlas"] == ["a.dlabel.nii"]
    index, *_ = expected_agreement(np.asarray(result.labels), 1 + np.arange(len(models)) % 3)
    assert result.arrays["atlas_index"].tolist() == index
    assert result.arrays["atlas_name"].tolist() == ["?abc"[each] for each in index]
    written = nibabel.load("out/sub-01_desc-parcellation_dseg.dlabel.nii")
    np.testing.assert_array_equal(written.get_fdata()[0], result.labels + 1)
    code, out, err = mgclust_("compare", "out", "a.dlabel.nii", "--json")
    assert code == 0, err
    assert json.loads(out)["ari"] == pytest.approx(result.scores["atlas_ari"])
    code, _, err = mgclust_(*call, "--overwrite", "--surfaces", "L.surf.gii")
    assert code == 2 and "surfaces has none for cortex_right" in err and len(err.strip().splitlines()) == 1


def test_comparison_of_results_of_different_masks(mgclust_, made):
    """By voxels, not by row numbers; rows that only one result has are in no cluster of the other."""
    half = made.mask.copy()
    half[:4] = False
    other_half = made.mask.copy()
    other_half[5:] = False
    grids = {}
    for name, mask in (("one", half), ("two", other_half)):
        nibabel.save(nibabel.Nifti1Image(mask.astype(np.uint8), made.affine), f"{name}.nii.gz")
        code, _, err = mgclust_("parcellate", "bold.nii.gz", "--mask", f"{name}.nii.gz", "--n-parcels", "4", "--cpu",
                                "-o", name, "--no-report")  # fmt: skip
        assert code == 0, err
        grids[name] = np.full(made.mask.shape, -1)
        grids[name][mask] = load_result(name).labels
    one, two = grids["one"], grids["two"]
    for options, kept in (([], (one >= 0) | (two >= 0)), (["--noise", "drop"], (one >= 0) & (two >= 0))):
        code, out, err = mgclust_("compare", "one", "two", "--json", *options)
        found = json.loads(out)
        assert code == 0 and not err and not found["warnings"]
        assert found["rows"] == kept.sum() and found["ari"] == pytest.approx(adjusted_rand_score(one[kept], two[kept]))
    how = ("--metric", "correlation", "--cpu", "--no-report", "-o", "sil")
    code, _, err = mgclust_("run", "silhouette", "bold.nii.gz", "--mask", "one.nii.gz", "--labels", "one", *how)
    assert code == 0, err
    assert np.array_equal(load_result("sil").labels, load_result("one").labels)
    call = ("run", "silhouette", "bold.nii.gz", "--mask", "two.nii.gz", "--labels", "one", *how, "--overwrite")
    code, _, err = mgclust_(*call)
    assert code == 2 and "negative labels" in err and "by a mask" in err


@pytest.mark.parametrize("name", ["a.nii.gz", "a.dlabel.nii", "a.label.gii", "names.tsv", "a.surf.gii"])
def test_damaged_files(grayordinates, bold, values, tmp_path, rng, name):
    """They are read, or there is one sentence."""
    path, models = grayordinates
    draw, names = random.Random(name), {0: "???", 1: "a", 2: "b", 3: "c"}
    whole, series, option = tmp_path / name, {"source": path}, "atlas"
    if name == "a.nii.gz":
        save(whole, values)
        series = bold
    elif name == "a.dlabel.nii":
        save_dlabel(whole, rng.integers(0, 4, len(models)), models, names)
    elif name == "a.label.gii":
        save_vertices(whole, rng.integers(0, 4, 42), "CortexLeft", names)
    elif name == "names.tsv":
        whole.write_text("index\tname\tcolor\n" + "".join(f"{k}\tlabel {k}\t#ffffff\n" for k in range(1, 30)))
        series = bold
    else:
        save_surface(whole, *sphere(1), "CortexLeft")
        option = "surfaces"
    other = {
        "names.tsv": [save(tmp_path / "v.nii.gz", values)],
        "a.surf.gii": [save_surface(tmp_path / "r.surf.gii", *sphere(1), "CortexRight")],
    }.get(name, [])
    content, read = whole.read_bytes(), 0
    for _ in range(60):
        whole.write_bytes(draw.choice([mutated(content, draw), inside(name, content, draw)]))
        opened = attempted(lambda given: open_dataset(**series, **{option: given}), [*other, whole])
        if opened is not None and option == "atlas":
            json.dumps(opened.describe(), allow_nan=False)
            found = atlas_arrays(opened, np.arange(opened.shape[0]) % 3)
            assert len(found["atlas_name"]) == 3 and ((found["atlas_dice"] >= 0) & (found["atlas_dice"] <= 1)).all()
        read += opened is not None
    assert 0 < read < 60
