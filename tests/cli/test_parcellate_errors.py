"""Bad input of `mgclust parcellate`: one sentence, the exit code 2, and no file."""

import os

import numpy as np
import pytest

nibabel = pytest.importorskip("nibabel")

from mgclust import Parcellation, cli, open_dataset  # noqa: E402
from mgclust.base.errors import InputError, InsufficientMemoryError  # noqa: E402
from mgclust.datasets import make_bold  # noqa: E402
from support.surfaces import TIMES, models_of, save_series, save_surface, sphere  # noqa: E402

MASK = ["--mask", "mask.nii.gz"]
FOUR = ["--n-parcels", "4"]
GOOD = ["bold.nii.gz", *MASK]


def save(path, values, affine, seconds=2.0):
    image = nibabel.Nifti1Image(values, affine)
    if values.ndim == 4:
        image.header.set_zooms((*image.header.get_zooms()[:3], seconds))
    nibabel.save(image, path)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A series with its mask, and files that do not fit to it."""
    folder = tmp_path_factory.mktemp("bad")
    bold, mask, _ = made = make_bold((8, 9, 7), n_parcels=4, n_timepoints=40)
    made.save(folder)
    moved = made.affine.copy()
    moved[0, 3] += 5
    save(folder / "cut.nii.gz", bold[:-1], made.affine)
    save(folder / "moved.nii.gz", bold, moved)
    save(folder / "moved-mask.nii.gz", mask.astype(np.uint8), moved)
    save(folder / "empty.nii.gz", np.zeros(mask.shape, np.uint8), made.affine)
    islands = np.zeros(mask.shape, np.uint8)
    islands[::3, ::3, ::3] = 1
    save(folder / "islands.nii.gz", islands * mask, made.affine)
    for volumes in (1, 2, 3):
        save(folder / f"volumes-{volumes}.nii.gz", bold[..., :volumes], made.affine)
    save(folder / "one.nii.gz", bold[..., 0], made.affine)
    save(folder / "still.nii.gz", np.full(bold.shape, 7, np.float32), made.affine)
    for name in ("nan", "inf"):
        values = bold.copy()
        values[4, 4, 3, 5] = float(name)
        save(folder / f"{name}.nii.gz", values, made.affine)
    whole = (folder / "bold.nii.gz").read_bytes()
    (folder / "torn.nii.gz").write_bytes(whole[: len(whole) // 2])
    (folder / "nothing.nii.gz").write_bytes(b"")
    save(folder / "timeless.nii.gz", bold, made.affine, 0)
    rng = np.random.default_rng(0)
    np.savetxt(folder / "rows.csv", rng.normal(size=(50, 30)), delimiter=",")
    for name, rows in (("confounds", 40), ("short", 30)):
        table = np.column_stack([rng.normal(size=rows), rng.gamma(2, 0.1, rows) + 1])
        header = "csf\tframewise_displacement"
        np.savetxt(folder / f"{name}.tsv", table, delimiter="\t", header=header, comments="")
    save_series(folder / "cortex.dtseries.nii", models_of(rng), rng)
    for name, structure, size in (("L", "CortexLeft", 1), ("R", "CortexRight", 1), ("fine", "CortexLeft", 2)):
        save_surface(folder / f"{name}.surf.gii", *sphere(size), structure)
    (folder / "exists").mkdir()
    return folder


@pytest.fixture(autouse=True)
def _inside(folder, monkeypatch):
    monkeypatch.chdir(folder)
    monkeypatch.delenv("MGCLUST_DEBUG", raising=False)


@pytest.mark.parametrize(
    ("given", "says"),
    [
        (["bold.nii.gz", "cut.nii.gz", *MASK], "cut.nii.gz is on another grid than bold.nii.gz: it has 7 x 9 x 7"),
        (["bold.nii.gz", "moved.nii.gz", *MASK], "moved.nii.gz is on another grid than bold.nii.gz"),
        (["cut.nii.gz", *MASK], "mask='mask.nii.gz' is on another grid than cut.nii.gz"),
        (["bold.nii.gz", "--mask", "moved-mask.nii.gz"], "mask='moved-mask.nii.gz' is on another grid"),
        (["bold.nii.gz", "--mask", "empty.nii.gz"], "mask='empty.nii.gz' is empty"),
        (["bold.nii.gz", "--mask", "bold.nii.gz"], "mask='bold.nii.gz' has shape=(8, 9, 7, 40); a mask is 3-D"),
        (["bold.nii.gz", "--mask", "islands.nii.gz", "--n-parcels", "3"], "n_parcels=3 should be >= "),
        ([*GOOD, "--n-parcels", "400"], "n_parcels=400 should be <= 352, the number of rows"),
        *(
            ([*GOOD, "--n-parcels", text], f"n_parcels={text!r} should be an integer >= 1, or several different ones")
            for text in ("0", "-1", "50,abc", "50,,100", "100,50,50", "5,", "1.5", "50;100", "")
        ),
        ([*GOOD, *FOUR, "--connectivity", "7"], "connectivity=7 should be 6, 18 or 26; give the number of neighbours"),
        ([*GOOD, *FOUR, "--connectivity", "5"], "connectivity=5 should be 6, 18 or 26; give the number of neighbours"),
        ([*GOOD, *FOUR, "--connectivity", "x"], "connectivity='x' should be 6, 18 or 26"),
        ([*GOOD, *FOUR, "--compactness", "-1"], "compactness=-1.0 should be a finite number >= 0"),
        ([*GOOD, *FOUR, "--compactness", "nan"], "compactness=nan should be a finite number >= 0"),
        ([*GOOD, *FOUR, "--memory-limit", "1 kB"], "memory_limit=1000 is not enough memory: each of 1 rank(s) needs "),
        ([*GOOD, *FOUR, "--confounds", "short.tsv", "--confound-names", "csf"], "confounds='short.tsv' has 30 rows"),
        ([*GOOD, *FOUR, "--confounds", "confounds.tsv", "--confound-names", "csf,wm"], "has no column 'wm'"),
        ([*GOOD, *FOUR, "--confounds", "confounds.tsv"], "confounds has no effect without confound_names"),
        (
            [*GOOD, *FOUR, "--confounds", "confounds.tsv,short.tsv", "--confound-names", "csf"],
            "confounds names 2 file(s), but there are 1 run(s); give one .tsv file per run",
        ),
        (
            [*GOOD, *FOUR, "--confounds", "confounds.tsv", "--fd-threshold", "0.1"],
            "fd_threshold=0.1 leaves out all 40 volumes",
        ),
        ([*GOOD, *FOUR, "--low-pass", "0.3"], "low_pass=0.3 should be below 0.25 Hz"),
        (["timeless.nii.gz", *MASK, *FOUR, "--low-pass", "0.1"], "does not state its repetition time"),
        (["volumes-1.nii.gz", *MASK, *FOUR], "volumes-1.nii.gz has shape=(8, 9, 7, 1)"),
        (["volumes-2.nii.gz", *MASK, *FOUR], "volumes-2.nii.gz has 2 points in time, but should have >= 4"),
        (["volumes-3.nii.gz", *MASK, *FOUR], "volumes-3.nii.gz has 3 points in time, but should have >= 4"),
        ([*GOOD, "--n-parcels", "4,5", "--dummy-volumes", "21"], "19 points in time should be >= 20"),
        (["still.nii.gz", *MASK, *FOUR], "none of its 352 voxels changes over time"),
        (["nan.nii.gz", *MASK, *FOUR], "1 of 352 voxels hold NaN or infinite values, the first is voxel (4, 4, 3)"),
        (["inf.nii.gz", *MASK, *FOUR], "1 of 352 voxels hold NaN or infinite values, the first is voxel (4, 4, 3)"),
        (["one.nii.gz", *MASK, *FOUR], "one.nii.gz is one volume (shape=(8, 9, 7)); a BOLD series is 4-D"),
        (["torn.nii.gz", *MASK, *FOUR], "torn.nii.gz is damaged or truncated"),
        (["nothing.nii.gz", *MASK, *FOUR], "nothing.nii.gz is empty"),
        (["rows.csv", *FOUR], "rows.csv holds rows without places"),
        (["away.nii.gz", *MASK, *FOUR], "away.nii.gz does not exist"),
        (["cortex.dtseries.nii", *FOUR], "cortex.dtseries.nii has vertices of cortex_left"),
        (["cortex.dtseries.nii", *FOUR, "--smoothing-fwhm", "4"], "smoothing_fwhm=4 applies to volumes"),
        ([*GOOD, *FOUR, "-o", "exists"], "exists; choose another name, or give overwrite=True"),
    ],
)
def test_bad_input_is_one_sentence(folder, capsys, given, says):
    before = sorted(os.listdir(folder))
    output = [] if "-o" in given else ["-o", "out"]
    code = cli.run_command(["parcellate", *given, *output, "--no-report"])
    out, err = capsys.readouterr()
    assert code == 2, err
    assert out == "" and err.startswith("error: ") and err.count("\n") == 1
    assert says in err
    assert sorted(os.listdir(folder)) == before


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"n_parcels": [5, 5]}, "n_parcels=[5, 5] should be an integer >= 1, or several different ones"),
        ({"n_parcels": []}, "n_parcels=[] should be an integer >= 1"),
        ({"n_parcels": None}, "n_parcels=None should be an integer >= 1"),
        ({"n_parcels": 2.0}, "n_parcels=2.0 should be an integer >= 1"),
        ({"n_parcels": b"4"}, "n_parcels=b'4' should be an integer >= 1"),
        ({"n_parcels": {4: 5}}, "n_parcels={4: 5} should be an integer >= 1"),
        ({"connectivity": 7}, "connectivity=7 should be 6, 18 or 26"),
        ({"connectivity": 26.0}, "connectivity=26.0 should be 6, 18 or 26"),
        ({"compactness": float("nan")}, "compactness=nan should be a finite number >= 0"),
    ],
)
def test_bad_parameters_in_python(given, says):
    dataset = open_dataset("bold.nii.gz", mask="mask.nii.gz")
    with pytest.raises(InputError) as caught:
        Parcellation(**{"n_parcels": 4, "client": None, "device": "cpu"} | given).fit(dataset)
    assert says in str(caught.value)


def test_too_low_a_memory_limit_is_named():
    dataset = open_dataset("bold.nii.gz", mask="mask.nii.gz")
    with pytest.raises(InsufficientMemoryError, match=r"^memory_limit=1000 is not enough memory: each"):
        Parcellation(4, client=None, device="cpu", memory_limit=1000).fit(dataset)


@pytest.mark.parametrize(
    ("surfaces", "says"),
    [
        (["fine.surf.gii", "R.surf.gii"], "fine.surf.gii has 162 vertices, but cortex_left of cortex.dtseries.nii has"),
        (["L.surf.gii"], "has none for cortex_right"),
        (["L.surf.gii", "L.surf.gii"], "are both of cortex_left"),
        (["mask.nii.gz", "R.surf.gii"], "mask.nii.gz is not a whole GIFTI file"),
        (["away.surf.gii", "R.surf.gii"], "away.surf.gii does not exist"),
    ],
)
def test_surfaces_that_do_not_fit(surfaces, says):
    with pytest.raises(InputError) as caught:
        Parcellation(6, client=None, device="cpu").fit(open_dataset("cortex.dtseries.nii"), surfaces=surfaces)
    assert says in str(caught.value)


def test_surfaces_do_not_add_to_given_neighbors():
    dataset = open_dataset("cortex.dtseries.nii")
    with pytest.raises(InputError, match=r"surfaces has no effect with neighbors, .*; give one of both"):
        Parcellation(6, client=None, device="cpu").fit(dataset, neighbors=[(0, 1)], surfaces=["L.surf.gii"])


def test_arrays_whose_rows_are_all_constant():
    with pytest.raises(InputError, match="X: none of the 4 series changes over time; give series that vary"):
        Parcellation(2, client=None, device="cpu").fit(np.ones((4, TIMES)), neighbors=[(0, 1), (1, 2), (2, 3)])
