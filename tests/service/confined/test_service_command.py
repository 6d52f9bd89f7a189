"""The command that a report of the service prints: it makes the same call as the job."""

from __future__ import annotations

import json

import pytest

from mgclust.algorithms import METHODS
from mgclust.base.errors import InputError
from mgclust.cli import run as cli_run
from mgclust.service.confined.command import command_of
from mgclust.service.web.requests import Submission

UPLOAD = {"upload": "0" * 32, "name": "points.npy"}
EXAMPLES = {
    "density-peaks": {"n_clusters": 9, "dc_fraction": 0.01, "halo": True, "metric": "cosine", "random_state": 7},
    "fuzzy-c-means": {"n_clusters_range": [5, 20], "m": 1.5},
    "affinity-propagation": {"preference": -5.5},
    "silhouette": {"labels": {"upload": "1" * 32, "name": "labels.npy"}},
    "parcellation": {"n_parcels": [50, 100]},
    "communities": {"resolution": 0.5},
    "canopy": {"t1": 3, "t2": 1.5},
    "nearest-neighbors": {"n_neighbors": 3},
}


def parsed_by_the_command_line(words):
    """What the command line would do with the words, but for the run itself."""
    found = []
    group = cli_run.job_command(
        "run", "", "", list(cli_run.run._own), lambda *args, **given: found.append((*args, given))
    )
    group.main(words[2:], standalone_mode=False, obj=words)
    (method, parameters, _, given), *rest = found
    assert not rest
    return method, parameters, given


@pytest.mark.parametrize("method", EXAMPLES)
def test_the_command_has_the_parameters_of_the_job(method):
    record = Submission(method=method, sources=[UPLOAD], parameters=EXAMPLES[method]).to_record()
    words = command_of({"method": method, **json.loads(json.dumps(record))})
    of, parameters, given = parsed_by_the_command_line(words)
    constraints = {option.name: option.constraint for option in METHODS[method].options()}

    def plain(name, value):
        text = (
            value["name"]
            if isinstance(value, dict)
            else ",".join(map(str, value))
            if isinstance(value, list)
            else value
        )
        return text if isinstance(text, bool) else constraints[name].parse(str(text), name)

    if method == "silhouette":
        assert words[4:6] == ["--labels", "labels.npy"]
        return
    assert of is METHODS[method] and given["sources"] == ("points.npy",)
    assert parameters == {name: plain(name, value) for name, value in EXAMPLES[method].items()}


def test_the_command_has_the_files_and_options_of_the_job():
    record = Submission(
        method="fuzzy-c-means",
        sources=[{"path": "/data/a b.nii.gz"}, {"upload": "2" * 32, "name": "-b.nii.gz"}],
        parameters={"n_clusters": 3},
        mask={"upload": "3" * 32, "name": "mask.nii.gz"},
        confounds=[{"upload": "4" * 32, "name": "c.tsv"}, {"path": "/data/d.tsv"}],
        atlas=[{"upload": "5" * 32, "name": "atlas.nii.gz"}],
        options={
            "standardize": "zscore",
            "detrend": True,
            "smoothing_fwhm": 4.5,
            "header": False,
            "constant": "refuse",
        },
        resources={"workers": 2},
    ).to_record()
    _, parameters, given = parsed_by_the_command_line(command_of({"method": "fuzzy-c-means", **record}))
    assert parameters == {"n_clusters": 3}
    assert given["sources"] == ("/data/a b.nii.gz", "./-b.nii.gz")
    assert (given["mask"], given["confounds"], given["atlas"]) == ("mask.nii.gz", "c.tsv,/data/d.tsv", "atlas.nii.gz")
    assert (given["standardize"], given["detrend"], given["smoothing_fwhm"]) == ("zscore", True, "4.5")
    assert (given["header"], given["constant"], given["workers"], given["cpu"]) == (False, "refuse", 2, True)


def test_an_option_of_false_that_is_the_default_is_left_out():
    record = Submission(method="canopy", sources=[UPLOAD], options={"detrend": False}).to_record()
    assert "detrend" not in " ".join(command_of({"method": "canopy", **record}))


def test_chosen_centres():
    record = Submission(method="density-peaks", sources=[UPLOAD]).to_record() | {"method": "density-peaks"}
    words = command_of(record | {"centers": {"rho_min": 5.0, "delta_min": 2.0}})
    assert parsed_by_the_command_line(words)[1] == {"rho_min": 5.0, "delta_min": 2.0}
    assert command_of(record | {"centers": {"rho_max": 5.0}}) == []  # not an option of the command line


def test_every_option_of_reading_is_one_of_the_command_line():
    """Each option, given alone, is understood."""
    values = {"columns": "a,b", "delimiter": ";", "standardize": "zscore", "detrend": True, "constant": "refuse",
              "n_nodes": 3, "source": "a", "target": "b", "weight": "c", "header": True, "index": False,
              "dummy_volumes": 2, "smoothing_fwhm": 4.0, "low_pass": 0.1, "high_pass": 0.01, "t_r": 2.0,
              "confound_names": "csf", "fd_threshold": 0.5}  # fmt: skip
    from mgclust.service.web.requests import Options

    assert values.keys() == Options.model_fields.keys()
    for method in ("canopy", "communities"):
        for name, value in values.items():
            submission = Submission(method=method, sources=[UPLOAD], options={name: value})
            try:
                submission.check()
            except InputError:
                continue  # not an option of this method
            given = parsed_by_the_command_line(command_of({"method": method, **submission.to_record()}))[2]
            assert given[name] == (value if isinstance(value, bool) else str(value)), name
