"""Parameters that take one of some words: docstrings, tests and the page on the choice of a method list all of them."""

import inspect
import re
from pathlib import Path

import pytest

from mgclust import nearest_neighbors, silhouette_samples
from mgclust.algorithms import METHODS
from mgclust.kernels.pairs.metrics import METRICS
from mgclust.params import Choice
from oracles.density_peaks import CDIST_NAMES

CHOOSING = Path(__file__).parents[2] / "docs" / "choosing.md"
PAGES = {"canopy": "canopies", "communities": "communities", "fast-newman": "communities", "silhouette": "silhouettes"}
FUNCTIONS = {"silhouette": silhouette_samples, "nearest-neighbors": nearest_neighbors}


def choices(method):
    """Its own parameters of this kind; `dtype` and `device` are common to all."""
    return {name: each.choices for name, each in METHODS[method].constraints.items() if isinstance(each, Choice)}


def test_the_oracle_has_every_metric():
    assert set(CDIST_NAMES) == set(METRICS)


@pytest.mark.parametrize("method", METHODS)
def test_docstrings_list_the_choices(method):
    own = choices(method)
    for described in {METHODS[method], FUNCTIONS.get(method, METHODS[method])}:
        found = re.findall(r'^(\w+) : (\{".*?\})', inspect.getdoc(described), re.MULTILINE)
        listed = {name: tuple(re.findall('"(.*?)"', words)) for name, words in found if name in own}
        assert listed == {name: own[name] for name in own}


@pytest.mark.parametrize("method", METHODS)
def test_the_page_on_methods_lists_distances_and_similarities(method):
    rows = re.findall(
        r"^\| \[[^|]*\]\(methods/([a-z-]+)\.md\) \| `(metric|affinity)` \| (.*) \|$", CHOOSING.read_text(), re.M
    )
    assert len(rows) == len(dict.fromkeys(rows))
    listed = {name: tuple(words.split(", ")) for page, name, words in rows if page == PAGES.get(method, method)}
    assert listed == {name: words for name, words in choices(method).items() if name in ("metric", "affinity")}
