"""The paragraph that a paper needs: size, method, parameters, versions, and the references that it cites."""

from __future__ import annotations

import re

import numpy as np
import pytest

import mgclust
from mgclust import load_result, open_dataset
from mgclust.algorithms import METHODS
from mgclust.data import samples

GIVEN = {
    "density-peaks": {"stability": 2},
    "affinity-propagation": {"damping": 0.9},
    "canopy": {"t1": 3.0, "t2": 1.5},
    "fuzzy-c-means": {"n_clusters": 3, "m": 1.5},
    "silhouette": {"labels": np.arange(90) % 3},
    "nearest-neighbors": {"n_neighbors": 4},
}
CITED = {
    "density-peaks": ("2014", "2002"),
    "affinity-propagation": ("2007",),
    "adaptive-affinity-propagation": ("Wang", "Rousseeuw"),
    "canopy": ("McCallum",),
    "fuzzy-c-means": ("Bezdek",),
    "communities": ("Traag",),
    "fast-newman": ("Clauset",),
    "parcellation": ("Ward", "Dhillon"),
    "silhouette": ("Rousseeuw",),
}


@pytest.mark.parametrize("name", METHODS)
def test_each_method_has_its_paragraph(name, tmp_path):
    rng = np.random.default_rng(0)
    X = np.repeat([[0.0, 0], [9, 0], [0, 9]], 30, axis=0) + rng.normal(size=(90, 2))
    model = METHODS[name](client=None, device="cpu", **GIVEN.get(name, {}))
    dataset = samples.load("lesmis") if model.opens == "graph" else open_dataset(X)
    if model.opens == "series":
        dataset = open_dataset(samples.path("localizer"), mask=samples.mask_path())
    result = model.fit_dataset(dataset, provenance=False)
    text = result.methods_text()
    paragraph, *references = text.split("\n")
    sizes = {"graph": "a graph with 77 nodes and 254 edges", "series": "1,983 rows with 156 features"}
    size = sizes.get(model.opens, "90 rows with 2 features")
    assert paragraph.startswith(f"mgclust {mgclust.__version__} with NumPy {np.__version__} analysed {size} on CPUs. ")
    for parameter, value in GIVEN.get(name, {}).items():
        assert f"{parameter}={value}" in text or isinstance(value, np.ndarray)
    seeded = "random_state" in result.parameters  # which a result reports, so that it can be repeated
    assert ("default values" in text) == (name not in GIVEN and not seeded)
    for cited in CITED.get(name, ()):
        assert cited in paragraph and any(cited in line for line in references)
    assert all(re.search(r"\b(19|20)\d\d\b", line) for line in references[1:])
    assert load_result(result.save(tmp_path / "out")).methods_text().startswith(paragraph[:60])
    assert len(repr(result)) < 1000


def test_densities_of_adaptive_neighborhoods_are_cited():
    X = np.random.default_rng(0).normal(size=(200, 2))
    model = mgclust.DensityPeaks(density="knn", k="adaptive", significance=2.0, client=None).fit(X)
    text = model.result_.methods_text()
    for cited in ("Rodriguez et al. 2018", "d'Errico et al. 2021", "Facco et al. 2017"):
        assert cited in text


def test_a_result_that_no_run_has_made():
    assert (
        mgclust.Result("unknown")
        .methods_text()
        .startswith("mgclust analysed the data on CPUs. The method was Unknown.")
    )
