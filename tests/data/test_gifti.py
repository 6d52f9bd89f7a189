"""GIFTI: meshes and labels back from every form of file, hostile files refused; CIFTI rows as neighbours on meshes."""

import base64
import hashlib
import itertools
import pickle
import re
import zlib
from pathlib import Path

import numpy as np
import pytest

nibabel = pytest.importorskip("nibabel")

from mgclust import Parcellation, open_dataset, plots, silhouette_samples  # noqa: E402
from mgclust.base.errors import InputError, InsufficientMemoryError, MgclustError  # noqa: E402
from mgclust.data.labels import read_label_pair, read_labels  # noqa: E402
from mgclust.data.location import Location  # noqa: E402
from mgclust.data.neighbors import coordinates_of, neighbors_of  # noqa: E402
from mgclust.data.readers.cifti import brain_structures  # noqa: E402
from mgclust.data.readers.gifti import read_mesh, read_vertex_labels, structure_name  # noqa: E402
from mgclust.output.label_output import _of_hemisphere, write_labels  # noqa: E402
from support.surfaces import AFFINE, models_of, save_series, save_surface, sphere  # noqa: E402


def mesh_of(path):
    return read_mesh(Location.of(path))


def refusal(call, *args, **kwargs):
    with pytest.raises(InputError) as caught:
        call(*args, **kwargs)
    message = str(caught.value)
    assert message.endswith(".") and "\n" not in message and len(message) < 600
    return message


@pytest.fixture
def surface(tmp_path):
    return save_surface(tmp_path / "left.surf.gii", *sphere(1), "CortexLeft")


@pytest.mark.parametrize("subdivisions", [0, 1, 2])
def test_made_spheres_are_closed(subdivisions):
    coordinates, triangles = sphere(subdivisions)
    edges = {tuple(sorted(pair)) for t in triangles for pair in itertools.combinations(t.tolist(), 2)}
    assert len(coordinates) - len(edges) + len(triangles) == 2
    assert len(coordinates) == 10 * 4**subdivisions + 2


@pytest.mark.parametrize("encoding", ["ASCII", "B64BIN", "B64GZ"])
@pytest.mark.parametrize("of_file", [False, True])
def test_meshes_there_and_back(tmp_path, encoding, of_file):
    coordinates, triangles = sphere(2)
    path = save_surface(
        tmp_path / "a.surf.gii", coordinates, triangles, "CortexRight", f"GIFTI_ENCODING_{encoding}", of_file
    )
    mesh = mesh_of(path)
    assert mesh.structure == "cortex_right" and mesh.name == str(path)
    assert mesh.coordinates.dtype == np.float64 and mesh.triangles.dtype == np.int64
    np.testing.assert_allclose(mesh.coordinates, coordinates, atol=1e-5 if encoding == "ASCII" else 0)
    np.testing.assert_array_equal(mesh.triangles, triangles)


@pytest.mark.parametrize("order", ["ColumnMajorOrder", "RowMajorOrder"])
@pytest.mark.parametrize("endian", ["BigEndian", "LittleEndian"])
@pytest.mark.parametrize("packed", [zlib.compress, lambda data: zlib.compress(data, wbits=31)])
def test_orders_of_bytes_and_of_numbers(tmp_path, surface, order, endian, packed):
    coordinates, triangles = sphere(1)
    text = surface.read_text()
    for array, kind in ((coordinates, "f4"), (triangles, "i4")):
        stored = array.astype(("<" if endian == "LittleEndian" else ">") + kind)
        data = base64.b64encode(packed(stored.tobytes("F" if order == "ColumnMajorOrder" else "C"))).decode()
        text = re.sub("<Data>[^<]*</Data>", f"<Data >\n{data[:40]}\n {data[40:]}</Data >", text, count=1)
    text = text.replace("RowMajorOrder", order).replace("LittleEndian", endian)
    surface.write_text(text)
    mesh = mesh_of(surface)
    np.testing.assert_array_equal(mesh.coordinates, coordinates)
    np.testing.assert_array_equal(mesh.triangles, triangles)


def test_structures_have_one_name():
    assert structure_name("CortexLeft") == structure_name(" CIFTI_STRUCTURE_CORTEX_LEFT\n") == "cortex_left"
    assert structure_name("Cortex_Left") == "cortex_left" and structure_name("") == ""


BOMB = base64.b64encode(zlib.compress(bytes(10**7), 9)).decode()


def spoiled(text, how):
    """A file made to do harm, or damaged, and a part of its message."""
    first = re.compile("<Data>[^<]*</Data>")
    entities = '<!DOCTYPE GIFTI [<!ENTITY a "aaaaaaaaaa"><!ENTITY b "&a;&a;&a;&a;">]>'
    outside = '<!DOCTYPE GIFTI [<!ENTITY a SYSTEM "file:///etc/passwd">]>'
    return {
        "entities": (re.sub("<!DOCTYPE[^>]*>", entities, text), "declares entities"),
        "an external entity": (re.sub("<!DOCTYPE[^>]*>", outside, text), "declares entities"),
        "a bomb": (first.sub(f"<Data>{BOMB}</Data>", text, count=1), "does not hold 126 numbers"),
        "a large claim": (text.replace('Dim0="42"', 'Dim0="4200000000"'), "is truncated"),
        "too few": (text.replace('Dim0="42"', 'Dim0="41"'), "does not hold 123 numbers"),
        "too many": (text.replace('Dim0="42"', 'Dim0="43"'), "does not hold 129 numbers"),
        "a negative size": (text.replace('Dim0="42"', 'Dim0="-42"'), "dimensions (-42, 3)"),
        "many dimensions": (text.replace('Dimensionality="2"', 'Dimensionality="999999999"'), "missing or unknown"),
        "no size": (text.replace('Dim0="42"', ""), "missing or unknown"),
        "another type": (text.replace("NIFTI_TYPE_FLOAT32", "NIFTI_TYPE_COMPLEX64"), "missing or unknown"),
        "another file": (text.replace("GZipBase64Binary", "ExternalFileBinary"), "numbers in another file"),
        "another encoding": (text.replace("GZipBase64Binary", "Base85"), "encoding 'Base85'"),
        "not base64": (first.sub("<Data>!</Data>", text, count=1), "is truncated"),
        "cut": (text[: len(text) // 2], "not a whole GIFTI file"),
        "other XML": ("<graphml></graphml>", "is XML, but not a GIFTI file"),
        "empty": ("", "not a whole GIFTI file"),
        "FreeSurfer": ("\x01\x02created by me", "mris_convert"),
        "two meshes": (text.replace("NIFTI_INTENT_TRIANGLE", "NIFTI_INTENT_POINTSET"), "has 2 arrays of coordinates"),
        "labels": (re.sub("NIFTI_INTENT_[A-Z]*", "NIFTI_INTENT_LABEL", text), "(its arrays: LABEL); give a .surf.gii"),
        "one dimension": (text.replace('Dim0="42" Dim1="3"', 'Dim0="3" Dim1="42"'), "coordinates have shape (3, 42)"),
    }[how]  # fmt: skip


NAMES = (
    "entities", "an external entity", "a bomb", "a large claim", "too few", "too many", "a negative size",
    "many dimensions", "no size", "another type", "another file", "another encoding", "not base64", "cut", "other XML",
    "empty", "FreeSurfer", "two meshes", "labels", "one dimension",
)  # fmt: skip


@pytest.mark.parametrize("how", NAMES)
def test_hostile_and_damaged_files(surface, how):
    text, part = spoiled(surface.read_text(), how)
    surface.write_text(text)
    assert part in refusal(mesh_of, surface)


def test_a_bomb_takes_no_memory(surface, monkeypatch):
    """The array states what the bomb holds: then the memory is checked."""
    text = surface.read_text().replace('Dim0="42"', 'Dim0="400000000"')
    surface.write_text(re.sub("<Data>[^<]*</Data>", f"<Data>{BOMB * 1000}</Data>", text, count=1))
    monkeypatch.setattr("mgclust.outside.inflation._free", lambda: 2**28)
    with pytest.raises(InsufficientMemoryError, match="an array of"):
        mesh_of(surface)
    monkeypatch.setattr("mgclust.outside.inflation._free", lambda: 1000)
    with pytest.raises(InsufficientMemoryError, match="fewer vertices"):
        mesh_of(surface)


def test_mutations_raise_errors_of_ours(surface, rng):
    data = surface.read_bytes()
    for _ in range(300):
        changed = bytearray(data)
        for place in rng.integers(0, len(data), rng.integers(1, 6)):
            changed[place] = rng.integers(0, 256)
        surface.write_bytes(changed)
        try:
            mesh_of(surface)
        except MgclustError as error:
            assert "\n" not in str(error)


def test_wrong_meshes(tmp_path):
    coordinates, triangles = sphere(0)
    path = tmp_path / "a.surf.gii"
    for wrong in (-1, 12):
        changed = triangles.copy()
        changed[3, 1] = wrong
        assert f"names vertex {wrong}, but there are 12" in refusal(mesh_of, save_surface(path, coordinates, changed))
    coordinates[2, 2] = np.inf
    assert "NaN or infinity" in refusal(mesh_of, save_surface(path, coordinates, triangles))
    words = save_surface(path, *sphere(0), encoding="GIFTI_ENCODING_ASCII")
    text = words.read_text()
    words.write_text(re.sub("<Data>", "<Data>1 ", text, count=1))
    assert "37 numbers instead of 36" in refusal(mesh_of, words)
    assert "does not exist" in refusal(mesh_of, tmp_path / "missing.surf.gii")


@pytest.fixture
def cortex(tmp_path, rng):
    """A series of both cortices and two structures of voxels, with 3 constant series, and the surfaces."""
    coordinates, triangles = sphere(1)
    models = models_of(rng)
    path = save_series(tmp_path / "sub-01_bold.dtseries.nii", models, rng, constant=(2, 40, len(models) - 1))
    surfaces = [
        save_surface(tmp_path / f"{side}.surf.gii", coordinates + shift, triangles, f"Cortex{side}")
        for side, shift in (("Left", [-70, 0, 0]), ("Right", [70, 1, 0]))
    ]
    return open_dataset(path, surfaces=surfaces), models, surfaces


def expected_lists(dataset, models, triangles, connectivity):
    """Neighbours by a loop over all pairs of rows."""
    edges = {frozenset(pair) for t in triangles.tolist() for pair in itertools.combinations(t, 2)}
    most = {6: 1, 18: 2, 26: 3}[connectivity]
    rows = [models[int(index)] for index in dataset.voxels[:, 0]]

    def touch(a, b):
        if a[0] != b[0] or a[2] != b[2]:
            return False
        if a[0] == "CIFTI_MODEL_TYPE_SURFACE":
            return frozenset((int(a[1]), int(b[1]))) in edges
        steps = abs(np.array(a[1]) - np.array(b[1]))
        return steps.max() == 1 and steps.sum() <= most

    return [[j for j, b in enumerate(rows) if touch(a, b)] for a in rows]


@pytest.mark.parametrize("connectivity", [6, 18, 26])
def test_grayordinates_that_touch(cortex, connectivity):
    dataset, models, _ = cortex
    assert dataset.shape[0] == len(models) - 3
    graph = neighbors_of(dataset, connectivity)
    lists = [graph.columns[a:b].tolist() for a, b in itertools.pairwise(graph.starts)]
    expected = expected_lists(dataset, models, sphere(1)[1], connectivity)
    assert lists == expected and any(expected[-1]) and sum(map(len, expected)) > 300
    assert graph.starts.dtype == np.int64 and graph.columns.dtype == np.int32


def test_structures_touch_and_are_apart(cortex):
    """Some voxels of the two structures touch, so that the rule is tested."""
    models = cortex[1]
    thalamus, pallidum = brain_structures(models, "x")[2:]
    apart = abs(thalamus.places[:, None] - pallidum.places[None]).max(axis=2)
    assert apart.min() == 1


def test_coordinates(cortex):
    dataset, models, _ = cortex
    where = coordinates_of(dataset)
    assert where.shape == (dataset.shape[0], 3) and where.dtype == np.float64
    coordinates = sphere(1)[0]
    shifts = {"CIFTI_STRUCTURE_CORTEX_LEFT": [-70, 0, 0], "CIFTI_STRUCTURE_CORTEX_RIGHT": [70, 1, 0]}
    for own, index in zip(where, dataset.voxels[:, 0], strict=True):
        kind, place, structure = models[int(index)]
        if kind == "CIFTI_MODEL_TYPE_SURFACE":
            expected = coordinates[int(place)] + np.float32(shifts[structure])
        else:
            expected = (AFFINE @ [*place, 1])[:3]
        np.testing.assert_allclose(own, expected, rtol=1e-6)


def with_surfaces(dataset, surfaces):
    return open_dataset(dataset.runs[0].location.path, surfaces=surfaces)


def test_surfaces_belong_to_structures_by_metadata_or_name_or_in_order(cortex, tmp_path):
    dataset, _, surfaces = cortex
    coordinates, triangles = sphere(1)
    where, graph = coordinates_of(dataset), neighbors_of(dataset)

    def unnamed(*names):
        return [
            save_surface(tmp_path / name, coordinates + shift, triangles)
            for name, shift in zip(names, ([-70, 0, 0], [70, 1, 0]), strict=True)
        ]

    plain = unnamed("a.gii", "b.gii")
    extra = save_surface(tmp_path / "cerebellum.surf.gii", *sphere(0), "Cerebellum")
    named = [
        unnamed(*names)[::-1]
        for names in (
            ("sub-01_hemi-L_white.surf.gii", "sub-01_hemi-R_white.surf.gii"),
            ("1.L.mid.surf.gii", "1.R.mid.surf.gii"),
            ("lh.white.gii", "rh.white.gii"),
        )
    ]
    for given in (
        surfaces[::-1],
        plain,
        [plain[1], surfaces[0]],
        (*surfaces, extra),
        ",".join(map(str, surfaces)),
        *named,
    ):
        opened = with_surfaces(dataset, given)
        np.testing.assert_array_equal(coordinates_of(opened), where)
        assert np.array_equal(neighbors_of(opened).columns, graph.columns)
    assert not np.array_equal(coordinates_of(with_surfaces(dataset, plain[::-1])), where)


def test_surfaces_are_recorded_and_read_again_in_another_process(cortex, tmp_path):
    dataset, _, surfaces = cortex
    described = dataset.describe()
    assert described["surfaces"] == list(map(str, surfaces)) and "atlas" not in described
    alone = open_dataset(dataset.runs[0].location.path)
    assert "surfaces" not in alone.describe()
    sums = [hashlib.sha256(Path(path).read_bytes()).hexdigest() for path in (dataset.runs[0].location.path, *surfaces)]
    assert alone.fingerprint() == sums[0]
    assert dataset.fingerprint() == hashlib.sha256("\n".join(sums).encode()).hexdigest()
    copy = pickle.loads(pickle.dumps(dataset))
    assert len(pickle.dumps(dataset)) < 10_000
    np.testing.assert_array_equal(coordinates_of(copy), coordinates_of(dataset))
    save_surface(surfaces[1], sphere(1)[0] + 1, sphere(1)[1], "CortexRight")
    assert "surfaces of" in (said := refusal(coordinates_of, pickle.loads(pickle.dumps(dataset)))) and "changed" in said


def test_wrong_surfaces(cortex, tmp_path):
    dataset, _, (left, right) = cortex
    path = dataset.runs[0].location.path
    for call in (neighbors_of, coordinates_of, Parcellation(9, client=None).fit):
        message = refusal(call, open_dataset(path))
        assert "surfaces=None, but" in message and "cortex_left (42 vertices) and cortex_right (42 vertices)" in message
        assert "give surfaces: the .surf.gii file of each" in message
        if call in (neighbors_of, coordinates_of):
            assert "is not a BOLD series" in refusal(call, open_dataset(np.ones((4, 2))))
    small = save_surface(tmp_path / "small.surf.gii", *sphere(0))
    labels = save_labels(tmp_path / "l.label.gii", np.arange(42), "CortexRight")
    volume = tmp_path / "b.nii"
    nibabel.save(nibabel.Nifti1Image(np.random.default_rng(0).random((3, 3, 3, 5)), AFFINE), volume)
    for given, says in (
        (left, "surfaces has none for cortex_right"),
        ([], "surfaces is empty"),
        ([left, left], "are both of cortex_left"),
        ([left, small], "has 12 vertices, but cortex_right of"),
        ([left, right, small], "there is no structure for"),
        (7, "surfaces is a int"),
        ({"left": left}, "surfaces is a dict"),
        ([left, labels], "0 arrays of coordinates (its arrays: LABEL); give a .surf.gii file"),
        ([left, volume], "is not a whole GIFTI file"),
        ([left, path], "is not a whole GIFTI file"),
        (f"{left}, {tmp_path / 'none.surf.gii'}", "none.surf.gii does not exist"),
        ([left, tmp_path], "is a directory"),
        ("", "give the paths of .surf.gii files"),
    ):
        assert says in refusal(open_dataset, path, surfaces=given)
    assert "surfaces applies to CIFTI files" in refusal(open_dataset, volume, surfaces=[left, right])
    for option in ("surfaces", "atlas"):
        assert f"{option}=... applies to BOLD series" in refusal(open_dataset, np.ones((4, 2)), **{option: left})


def test_one_hemisphere_or_voxels_only(tmp_path, rng):
    left = save_surface(tmp_path / "l.surf.gii", *sphere(1), "CortexLeft")
    right = save_surface(tmp_path / "r.surf.gii", *sphere(1), "CortexRight")
    one = save_series(tmp_path / "a.dtseries.nii", models_of(rng, right=False, subcortical=False), rng)
    for given in (left, [left], [left, right]):
        assert coordinates_of(open_dataset(one, surfaces=given)).shape == (34, 3)
    voxels = models_of(rng, left=False, right=False)
    deep = open_dataset(save_series(tmp_path / "b.dtseries.nii", voxels, rng))
    expected = expected_lists(deep, voxels, np.empty((0, 3), int), 26)
    assert np.diff(neighbors_of(deep).starts).tolist() == [len(each) for each in expected]
    assert "should be 6, 18 or 26" in refusal(neighbors_of, deep, 8)
    single = open_dataset(save_series(tmp_path / "c.dtseries.nii", voxels[:1], rng))
    assert neighbors_of(single).starts.tolist() == [0, 0] and coordinates_of(single).shape == (1, 3)


def test_nifti_rows_are_voxels(tmp_path, rng):
    series = rng.normal(size=(5, 4, 3, 6)).astype(np.float32)
    series[2, 2, 1] = 7  # constant, so it is not a row
    nibabel.save(nibabel.Nifti1Image(series, AFFINE), tmp_path / "b.nii.gz")
    dataset = open_dataset(tmp_path / "b.nii.gz")
    graph = neighbors_of(dataset, 6)
    voxels = dataset.voxels
    assert len(voxels) == 59
    expected = [np.flatnonzero(abs(voxels - voxel).sum(axis=1) == 1).tolist() for voxel in voxels]
    assert [graph.columns[a:b].tolist() for a, b in itertools.pairwise(graph.starts)] == expected
    np.testing.assert_allclose(coordinates_of(dataset), nibabel.affines.apply_affine(AFFINE, voxels))


def test_grayordinates_that_occur_twice_are_refused(tmp_path, rng):
    voxels = models_of(rng, left=False, right=False)
    twice = voxels[[0, 1, 1]]
    path = save_series(tmp_path / "a.dtseries.nii", twice, rng)
    assert "voxels of thalamus_left occur twice or lie outside" in refusal(neighbors_of, open_dataset(path))


def test_series_of_another_shape_than_their_grayordinates(tmp_path, rng):
    models = models_of(rng)
    path = save_series(tmp_path / "a.dtseries.nii", models, rng)
    data = bytearray(path.read_bytes())
    sizes = np.frombuffer(data, "<i8", 8, offset=16)
    assert sizes.tolist() == [6, 1, 1, 1, 1, 12, len(models), 1]
    for place, value in ((5, 11), (6, len(models) - 1)):
        changed = data.copy()
        changed[16 + 8 * place : 24 + 8 * place] = np.int64(value).tobytes()
        path.write_bytes(changed)
        assert f"describes 12 points in time of {len(models)} grayordinates, but its" in refusal(open_dataset, path)


def save_labels(path, keys, structure=None, names=None, maps=1):
    gifti = nibabel.gifti
    table = gifti.GiftiLabelTable()
    for key, name in (names or {}).items():
        label = gifti.GiftiLabel(key, 1, 0, 0, 1)
        label.label = name
        table.labels.append(label)
    array = gifti.GiftiDataArray(np.asarray(keys, np.int32), intent="NIFTI_INTENT_LABEL", datatype="NIFTI_TYPE_INT32")
    meta = gifti.GiftiMetaData({"AnatomicalStructurePrimary": structure} if structure else {})
    path.write_bytes(gifti.GiftiImage(meta=meta, labeltable=table, darrays=[array] * maps).to_bytes())
    return path


def test_labels_of_vertices(tmp_path):
    keys = [0, 3, 3, -1, 7, 5]
    path = save_labels(tmp_path / "a.label.gii", keys, "CortexLeft", {0: "???", 3: "V1"})
    labels = read_vertex_labels(Location.of(path))
    assert labels.structure == "cortex_left" and labels.labels.tolist() == [-1, 3, 3, -1, 7, 5]
    assert read_labels(path).tolist() == labels.labels.tolist()
    other = save_labels(tmp_path / "b.label.gii", keys, None, {5: "???", 3: "V1"})
    assert read_labels(other, open_dataset(np.eye(6))).tolist() == [-1, 3, 3, -1, 7, -1]
    assert "has 2 arrays of labels" in refusal(read_labels, save_labels(tmp_path / "c.label.gii", keys, maps=2))
    table = save_labels(tmp_path / "d.label.gii", np.ones((3, 4)))
    assert "labels have shape (3, 4); give one label per vertex" in refusal(read_labels, table)
    halves = table.read_text().replace("NIFTI_TYPE_INT32", "NIFTI_TYPE_FLOAT32")
    data = base64.b64encode(zlib.compress(np.full(12, 0.5, "<f4").tobytes())).decode()
    halves = re.sub("<Data>[^<]*</Data>", f"<Data>{data}</Data>", halves).replace(
        'Dim0="3" Dim1="4"', 'Dim0="1" Dim1="12"'
    )
    table.write_text(halves)
    assert "labels hold values that are not whole numbers" in refusal(read_labels, table)
    mesh = save_surface(tmp_path / "m.surf.gii", *sphere(0))
    assert "0 arrays of labels (its arrays: POINTSET, TRIANGLE); give a .label.gii" in refusal(read_labels, mesh)


@pytest.fixture
def parcels(cortex, tmp_path):
    """Labels of the rows, from -1 to 5, and the files that are written of them."""
    dataset, _, _ = cortex
    labels = np.arange(dataset.shape[0]) % 7 - 1
    (tmp_path / "out").mkdir()
    return labels, write_labels(dataset, labels, tmp_path / "out", method="canopy")


def test_files_of_both_hemispheres(cortex, parcels):
    dataset, models, _ = cortex
    labels, paths = parcels
    assert [path.name for path in paths[3:]] == [
        f"sub-01_hemi-{hemisphere}_desc-canopy_dseg.label.gii" for hemisphere in "LR"
    ]
    grayordinates = nibabel.load(paths[0])
    table = grayordinates.header.get_axis(0).label[0]
    rows = dataset.to_grid(labels + 1)
    for path, name in zip(paths[3:], ("CortexLeft", "CortexRight"), strict=True):
        image = nibabel.load(path)
        assert image.meta["AnatomicalStructurePrimary"] == name
        (array,) = image.darrays
        assert array.data.dtype == np.int32 and array.intent == nibabel.nifti1.intent_codes["NIFTI_INTENT_LABEL"]
        expected = np.zeros(42)
        for index, (_, place, structure) in enumerate(models[i] for i in range(len(models))):
            if structure == f"CIFTI_STRUCTURE_{structure_name(name).upper()}":
                expected[int(place)] = rows[index]
        np.testing.assert_array_equal(array.data, expected)
        assert image.labeltable.get_labels_as_dict() == {key: text for key, (text, _) in table.items()}
        colors = {label.key: label.rgba for label in image.labeltable.labels}
        for key, (_, color) in table.items():
            np.testing.assert_allclose(colors[key], color, atol=1e-6)
        np.testing.assert_allclose(colors[2][:3], plots.cluster_colors(6)[1], atol=1e-6)
    again = write_labels(dataset, labels, paths[0].parent, method="canopy")
    assert [path.read_bytes() for path in again[3:]] == [path.read_bytes() for path in paths[3:]]


def test_names_put_the_hemisphere_before_the_space():
    assert _of_hemisphere("sub-1_task-a_space-fsLR_den-91k_desc-x_dseg", "L") == (
        "sub-1_task-a_hemi-L_space-fsLR_den-91k_desc-x_dseg"
    )
    assert _of_hemisphere("series_desc-x_dseg", "R") == "series_hemi-R_desc-x_dseg"


def test_labels_go_to_the_rows_of_their_hemisphere(cortex, parcels, tmp_path):
    dataset, models, _ = cortex
    labels, paths = parcels
    structures = np.asarray(models.name)[dataset.voxels[:, 0]]
    for path, name in zip(paths[3:], ("LEFT", "RIGHT"), strict=True):
        expected = np.where((structures == f"CIFTI_STRUCTURE_CORTEX_{name}") & (labels >= 0), labels + 1, -1)
        np.testing.assert_array_equal(read_labels(path, dataset), expected)
    keys = np.arange(42)
    unnamed = save_labels(tmp_path / "u.label.gii", keys)
    assert "of a structure that the file does not name" in refusal(read_labels, unnamed, dataset)
    other = save_labels(tmp_path / "v.label.gii", keys[:40], "CortexLeft")
    assert "has 40 vertices of cortex_left, but" in refusal(read_labels, other, dataset)
    nibabel.save(nibabel.Nifti1Image(np.random.default_rng(0).random((3, 3, 3, 5)), AFFINE), tmp_path / "b.nii")
    assert "of vertices, but the rows are voxels" in refusal(read_labels, unnamed, open_dataset(tmp_path / "b.nii"))


def test_an_unnamed_file_of_the_only_surface(tmp_path, rng):
    models = models_of(rng, right=False)
    dataset = open_dataset(save_series(tmp_path / "a.dtseries.nii", models, rng))
    labels = read_labels(save_labels(tmp_path / "u.label.gii", np.arange(42)), dataset)
    vertices = np.asarray(models.vertex)[:34]
    assert labels[:34].tolist() == np.where(vertices > 0, vertices, -1).tolist() and (labels[34:] == -1).all()


def test_silhouettes_of_one_hemisphere(tmp_path, rng):
    models = models_of(rng, right=False, subcortical=False)
    dataset = open_dataset(save_series(tmp_path / "a.dtseries.nii", models, rng, constant=[3]))
    keys = 1 + np.arange(42) % 3
    path = save_labels(tmp_path / "u.label.gii", keys, "CortexLeft")
    own = silhouette_samples(dataset, np.delete(keys[np.asarray(models.vertex)], 3), client=None)
    np.testing.assert_array_equal(silhouette_samples(dataset, path, client=None), own)


def test_labels_of_grayordinates(cortex, parcels, tmp_path, rng):
    dataset, models, _ = cortex
    labels, paths = parcels
    expected = np.where(labels >= 0, labels + 1, -1)
    np.testing.assert_array_equal(read_labels(paths[0], dataset), expected)
    everywhere = read_labels(paths[0])
    assert len(everywhere) == len(models)
    np.testing.assert_array_equal(everywhere[dataset.chosen], expected)
    assert (everywhere[~dataset.chosen] == -1).all()
    out = str(tmp_path / "out")
    write_labels(dataset, np.full(dataset.shape[0], 4), tmp_path, method="other")
    other = str(tmp_path / "sub-01_desc-other_dseg.dlabel.nii")
    for first, second in ((out, other), (str(paths[0]), other)):
        one, two, _ = read_label_pair(first, second)
        np.testing.assert_array_equal(one, expected)
        assert (two == 5).all() and len(two) == len(expected)
    assert np.array_equal(read_label_pair(other, out)[1], expected)

    axes = nibabel.load(other).header.get_axis
    changed = tmp_path / "changed.dlabel.nii"
    keys = np.arange(len(models), dtype=np.float32)[None]

    def save(values, names, own=models):
        image = nibabel.cifti2.Cifti2Image(values, (nibabel.cifti2.LabelAxis(*names), own))
        nibabel.save(image, changed)

    table = {9: ("???", (0, 0, 0, 0)), 1: ("a", (1, 0, 0, 1))}
    save(keys, (["x"], [table]))
    found = read_labels(changed)
    assert found[[0, 1, 9, 10]].tolist() == [-1, 1, -1, 10]
    save(keys + 0.5, (["x"], [table]))
    assert "not whole numbers" in refusal(read_labels, changed)
    save(np.repeat(keys, 2, axis=0), (["x", "y"], [table, table]))
    assert "of 2 maps of Label by BrainModel" in refusal(read_labels, changed)
    save(keys[:, 1:], (["x"], [table]), models[1:])  # without the first grayordinate
    np.testing.assert_array_equal(read_labels(changed, dataset)[1:], found[dataset.chosen][1:])
    assert read_labels(changed, dataset)[0] == -1
    one, two = read_label_pair(other, str(changed))[:2]
    rows = np.where(dataset.chosen, 5, -1)
    keys_there = np.where((np.arange(len(models)) > 0) & (np.arange(len(models)) != 9), np.arange(len(models)), -1)
    either = (rows >= 0) | (keys_there >= 0)
    assert np.array_equal(one, rows[either]) and np.array_equal(two, keys_there[either])
    save(keys[:, ::-1], (["x"], [table]), models[::-1])  # in another order
    np.testing.assert_array_equal(read_labels(changed, dataset), found[dataset.chosen])
    deep = models[np.asarray(models.volume_mask)]
    save(keys[:, : len(deep)], (["x"], [table]), deep)
    only = tmp_path / "only.dlabel.nii"
    changed.rename(only)
    cortex_alone = models[~np.asarray(models.volume_mask)]
    save(keys[:, : len(cortex_alone)], (["x"], [table]), cortex_alone)
    assert "has no grayordinate in common with" in refusal(read_label_pair, str(only), str(changed))
    save(np.ones((1, 40), np.float32), (["x"], [table]), models_of(rng, size=50, right=False, subcortical=False))
    assert "has 50 vertices of cortex_left, but" in refusal(read_labels, changed, dataset)
    assert "has 42 vertices of cortex_left, but" in refusal(read_label_pair, str(changed), other)
    assert "are of grayordinates, but the rows are not" in refusal(read_labels, changed, open_dataset(np.eye(5)))
    changed.write_bytes((tmp_path / "sub-01_bold.dtseries.nii").read_bytes())
    assert "maps of Series by BrainModel" in refusal(read_labels, changed)
    changed.write_bytes(paths[0].read_bytes()[:-8])
    assert "is truncated" in refusal(read_labels, changed)
    nibabel.save(nibabel.Nifti1Image(np.ones((3, 3, 3), np.int16), AFFINE), tmp_path / "b.nii")
    changed.write_bytes((tmp_path / "b.nii").read_bytes())
    assert "is not a CIFTI file" in refusal(read_labels, changed)
    assert "give a .dlabel.nii file" in refusal(read_label_pair, other, str(tmp_path / "b.nii"))
    assert axes(0).label[0][5][0] == "parcel 5"


def test_comparison_of_labels_of_vertices(parcels, tmp_path):
    _, paths = parcels
    left, right = map(str, paths[3:])
    written = np.asarray(nibabel.load(left).darrays[0].data)
    one, other, _ = read_label_pair(left, left)
    assert one.tolist() == other.tolist() == written[written > 0].tolist()
    atlas = np.where(np.arange(42) % 3 > 0, np.arange(42) % 3, 0)
    path = str(save_labels(tmp_path / "atlas.label.gii", atlas, "CortexLeft"))
    either = (written > 0) | (atlas > 0)
    for first, second, turned in (
        (path, left, False),
        (path, str(tmp_path / "out"), False),
        (str(tmp_path / "out"), path, True),
    ):
        pair = read_label_pair(first, second)[:2]
        one, other = pair[::-1] if turned else pair
        np.testing.assert_array_equal(one, np.where(atlas > 0, atlas, -1)[either])
        np.testing.assert_array_equal(other, np.where(written > 0, written, -1)[either])
    assert "is of cortex_left, and" in refusal(read_label_pair, path, right)
    small = str(save_labels(tmp_path / "small.label.gii", atlas[:40], "CortexLeft"))
    assert "has 42 vertices, and" in refusal(read_label_pair, path, small)
    unnamed = str(save_labels(tmp_path / "unnamed.label.gii", atlas))
    assert read_label_pair(unnamed, right)[0].size
    (tmp_path / "rows.txt").write_text("1\n2\n")
    for wrong in (tmp_path / "rows.txt", tmp_path):
        assert "holds no labels of vertices of cortex_left" in refusal(read_label_pair, path, str(wrong))
    assert "holds no labels of vertices, but" in refusal(read_label_pair, unnamed, str(tmp_path / "out"))
