"""Each warning is one sentence of at most 200 characters, of one kind: all places that make one are drawn at random."""

from __future__ import annotations

import ast
import functools
import pickle
import re
import traceback
import warnings
from pathlib import Path
from types import SimpleNamespace

import networkx
import numpy as np
import pytest
from scipy.sparse import csr_array

import mgclust
from mgclust import Communities, DensityPeaks
from mgclust.algorithms import base as methods
from mgclust.algorithms.affinity_propagation.adaptive import AdaptiveAffinityPropagation
from mgclust.algorithms.affinity_propagation.adaptive_ranks import LOWEST
from mgclust.algorithms.affinity_propagation.estimator import AffinityPropagation
from mgclust.algorithms.affinity_propagation.preference_search import PreferenceSearch, Tried
from mgclust.algorithms.canopy import estimator as canopy
from mgclust.algorithms.common.preparation import warnings_of_distances
from mgclust.algorithms.communities import clusterer as communities
from mgclust.algorithms.communities.evidence import Evidence
from mgclust.algorithms.communities.evidence import doubts_of as doubts_of_communities
from mgclust.algorithms.communities.initial_labels import mostly_unknown, taken_in_order
from mgclust.algorithms.density_peaks.result_warnings import CHOSEN_BY, RowCounts, warnings_of
from mgclust.algorithms.density_peaks.topography.significance import Peaks
from mgclust.algorithms.fuzzy_c_means.result_warnings import problems_of
from mgclust.algorithms.parcellation.estimator import _doubts as doubts_of_parcels
from mgclust.algorithms.parcellation.estimator import _individual_doubts as individual_doubts
from mgclust.algorithms.silhouette.estimator import Silhouette, distances_left_out
from mgclust.base.errors import MAX_SENTENCE, AmbiguousCountWarning, ClusteringWarning, Doubt, WeakStructureWarning
from mgclust.data.sparse import SparseRows
from mgclust.kernels.parcels.borders import PASSES
from mgclust.results.result import Result

DRAWS = 300
ROOT = Path(mgclust.__file__).parent


def wrong(text: str) -> str:
    """Describe the fault of a sentence; empty if there is none."""
    if len(text) > MAX_SENTENCE:
        return f"{len(text)} characters"
    if not text.endswith(".") or re.search(r"[.!?]\s+\S", text.replace("e.g. ", "")):
        return "not one sentence"
    return ""


def places() -> set[tuple[str, int]]:
    """Files and lines of all calls of Doubt."""
    found = set()
    for path in ROOT.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "Doubt":
                found.add((str(path), node.lineno))
    return found


@pytest.fixture
def made(monkeypatch):
    """Where each sentence was made."""
    found: dict[tuple[str, int], set[str]] = {}
    ours = Doubt.__new__

    def checked(cls, text, kind=ClusteringWarning):
        caller = traceback.extract_stack(limit=2)[0]
        found.setdefault((caller.filename, caller.lineno), set()).add(text)
        assert issubclass(kind, ClusteringWarning) and kind is not ClusteringWarning, text
        return ours(cls, text, kind)

    monkeypatch.setattr(Doubt, "__new__", checked)
    return found


def number(rng, most=7):
    """An integer of any order of magnitude."""
    return int(10 ** rng.uniform(0, most)) + 1


def real(rng):
    return float(rng.choice([rng.normal() * 10.0 ** rng.integers(-6, 7), abs(rng.normal()) + 1e-9]))


def density_peaks(rng):
    n = int(rng.choice([20, 30, 400]))
    model = SimpleNamespace(
        n_clusters_=int(rng.integers(1, n)), n_features_in_=int(rng.integers(1, 1000)), rho_=np.zeros(n),
        dc_=abs(real(rng)), dc_error_=abs(real(rng)), sample_size=rng.choice([None, 5]), dtype="float32",
        metric=str(rng.choice(["euclidean", "sqeuclidean", "correlation"])),
        density=str(rng.choice(["gaussian", "knn"])), dc_fraction_=rng.choice([None, 0.001]), dc_choice_=None,
        intrinsic_dim_=real(rng), assignment_="separated", _separation=None,
        exactness_={
            "equal_pairs": number(rng, 12), "rho_relative_error": 0.0123, "distance_relative_error": 0.0123,
            "intrinsic_dim_rows": int(rng.integers(0, n)),
        },
    )  # fmt: skip
    if rng.random() < 0.5:
        model.exactness_["different_pairs"], model.dc_fraction_ = number(rng, 12), 0.001
    if rng.random() < 0.5:
        numbers = [{"n_clusters": number(rng, 2), "dc_fraction": 0.005, "drop": 1.5} for _ in range(3)]
        apart = {"n_clusters": 3, "dc_fraction": 0.1, "ratio": 1.23456} if rng.random() < 0.5 else None
        model.dc_choice_ = {"rows": int(rng.integers(1, n + 1)), "numbers": numbers, "separated": apart}
        if apart:
            model._separation = SimpleNamespace(prominence=10 * rng.random(n))
    counts = RowCounts(
        int(rng.integers(1, n + 1)),
        n,
        False,
        *(() if rng.random() < 0.1 else (number(rng, 2), (number(rng, 2), number(rng)))),
    )
    given = {name: real(rng) for name in CHOSEN_BY if name not in ("n_clusters", "indices") and rng.random() < 0.3}
    if rng.random() < 0.2:
        given = {"n_clusters": model.n_clusters_}
    fields = {name: number(rng, 3) for name in Peaks._fields} | {"heights": rng.random(40)}
    peaks = Peaks(**fields) if rng.random() < 0.3 else None
    yield from warnings_of(model, abs(real(rng)), given, counts, peaks)


def stability(rng):
    from mgclust.algorithms.base import Inputs
    from mgclust.algorithms.density_peaks.stability import with_stability
    from mgclust.data import open_dataset

    X = rng.random((120, 2))
    for options in ({}, {"density": "knn", "k": "adaptive", "significance": 3.0}):
        model = DensityPeaks(client=None, device="cpu", **options).fit(X)
        model.labels_ = np.arange(120) % 2  # which no half has
        model.stability, model.result_ = 1, model.result_
        yield from with_stability(model, Inputs(open_dataset(X), False), model.result_, None).warnings


def fuzzy_c_means(rng):
    c, n = int(rng.integers(2, 40)), 10 + number(rng)
    sizes = rng.integers(0, max(n // c, 2), c)
    sizes[: c // 3], sizes[-1] = rng.integers(0, 2), rng.choice([1, n])
    fit = SimpleNamespace(
        centers=np.zeros((c, 2)), n_iter=number(rng, 4), change=abs(real(rng)), idle=int(rng.integers(0, 3)),
        within=float(rng.choice([0.0, 1.0, 1e5])), stop_reason=str(rng.choice(["max_iter", "tol"])),
        prototypes=SimpleNamespace(
            separations=lambda: np.full(c, float(rng.choice([0.0, 9e9]))), factors=rng.choice([None, 1])
        ),
    )  # fmt: skip
    value = SimpleNamespace(
        fit=fit, sizes=np.r_[n if rng.random() < 0.3 else 0, sizes], m=1 + abs(real(rng)), noise=None, scale=1.0,
        moving=[number(rng, 3) for _ in range(rng.integers(0, 30))], singular=int(rng.integers(0, 2)),
        distance_error=0.123, dtype=str(rng.choice(["float32", "float64"])),
        candidates=[SimpleNamespace(n_clusters=k) for k in ((c, c + 30) if rng.random() < 0.5 else (c,))],
    )  # fmt: skip
    model = SimpleNamespace(
        criterion="auto", noise_distance=0.123456, covariance_type="spherical",
        stop=str(rng.choice(["centers", "objective", "memberships"])), tol=abs(real(rng)), max_iter=number(rng, 5),
        n_features_in_=number(rng, 2), shrinkage=float(rng.random()), metric=str(rng.choice(["euclidean", "cosine"])),
    )  # fmt: skip
    weights = SimpleNamespace(rows=10 + n) if rng.random() < 0.5 else None
    yield from problems_of(model, value, SimpleNamespace(weights=weights))


def affinity_propagation(rng):
    model = SimpleNamespace(
        cluster_centers_indices_=np.zeros(rng.integers(0, 2)), converged_=rng.random() < 0.5, n_iter_=number(rng, 5),
        convergence_iter=number(rng, 4), max_iter=number(rng, 6), net_similarity_=real(rng), n_clusters_=1,
    )  # fmt: skip
    better = SimpleNamespace(exemplars=np.zeros(number(rng, 4)), net_similarity=real(rng))
    value = SimpleNamespace(alike=rng.random() < 0.2, missing=number(rng) * int(rng.integers(0, 2)), better=better)
    yield from AffinityPropagation._problems(model, value)


def number_of_exemplars(rng):
    tried = [Tried(real(rng), number(rng, 6), 3, rng.random() < 0.5) for _ in range(9)]
    search = PreferenceSearch(number(rng, 5), 10**6, -9.0, 0.0, -1.0, tried)
    reason = f"{number(rng, 6)} groups of rows have no pair with a row outside, and each needs an exemplar"
    for text in (search.problem(), search.problem(number(rng, 6), reason)):
        yield from [] if text is None else [text]


def adaptive(rng):
    model = SimpleNamespace(
        n_clusters_=int(rng.integers(0, 4)), converged_=rng.random() < 0.5, n_iter_=number(rng, 5),
        max_iter=number(rng), n_clusters_range=(number(rng, 4), number(rng, 5)), min_cluster_size=number(rng, 3),
        silhouette_=0.1234, selection_=str(rng.choice(["silhouette", "package"])),
    )  # fmt: skip
    best, package = number(rng, 5), number(rng, 5)
    model.scan_ = {"n_clusters": np.array([best]), "silhouette": np.array([0.1234])}
    model._weak = functools.partial(AdaptiveAffinityPropagation._weak, model)
    nearest = (number(rng, 5), number(rng, 5)) if rng.random() < 0.5 else (0, 0)
    stopped = ("max_iter=9 iterations", f"preference={real(rng):.6g} {LOWEST}")[int(rng.integers(2))]
    value = SimpleNamespace(nearest=nearest, choices={"silhouette": best, "package": package}, stopped=stopped)
    yield from AdaptiveAffinityPropagation._problems(model, {"min_cluster_size": np.zeros(1)}, value)


def canopies(rng):
    n = number(rng)
    for k, alone, total in (
        (1, None, 1),
        (n, None, 1),
        (max(n // 4, 2), None, n * max(n // 4, 2)),
        (max(n // 4, 2), 0.01, 1),
    ):
        yield from canopy._warnings(n, k, abs(real(rng)), abs(real(rng)), alone, total)


def of_communities(rng):
    n = number(rng)
    for components, k, found in ((n, None, n), (1, None, n), (n - 1, 1, 1)):
        model = SimpleNamespace(n_nodes_=n, n_clusters=k, directed=bool(rng.random() < 0.5))
        candidates = [SimpleNamespace(n_clusters=found, quality=0.1)] * int(rng.integers(1, 3))
        value = SimpleNamespace(rounding=0.0012345, n_components=components, candidates=candidates, evidence=Evidence())
        resolutions = tuple(abs(real(rng)) for _ in candidates)
        for objective in ("modularity", "cpm"):
            yield from communities._warnings(model, value, resolutions, objective)
    for objective in ("modularity", "quality"):
        draws = np.abs(real(rng)) * rng.random(int(rng.integers(1, 9)))
        significance = {"rewired": draws.tolist(), "mean": draws.mean(), "std": draws.std()}
        stability = {"mean": rng.normal()}
        for first in (significance, None):
            found = Evidence(first, stability, abs(real(rng)) if first is None else None, number(rng))
            yield from doubts_of_communities(found, draws.mean() * rng.random(), objective)
    yield taken_in_order()
    yield mostly_unknown(number(rng), number(rng))


def parcels(rng):
    numbers = tuple(sorted(number(rng, 5) for _ in range(2)))
    names = [f"sub-{number(rng)}" for _ in range(int(rng.integers(1, 30)))]
    for found, null, agreed in ((np.nan, 0, 0), (abs(rng.normal()), 0, 0), (50, 99, 0), (50, 0, 0.1), (50, 0, 0.9)):
        table = {f"scan_{name}dcbc": np.full(2, null if name else found) for name in ("", "random_", "coordinates_")}
        table |= {"scan_split_half_ari": np.full(2, agreed), "scan_coordinates_split_half_ari": np.full(2, 0.5)}
        value = SimpleNamespace(
            numbers=numbers, passes=[PASSES] * 2, n_constant=number(rng, 5), chosen=1, evaluation=table,
            random_dcbc=rng.normal(size=20), equal_subjects=[range(len(names))],
        )  # fmt: skip
        yield from doubts_of_parcels(value, number(rng, 6), names)
    value.random_dcbc = np.zeros(20)
    yield from doubts_of_parcels(value, number(rng, 6), names)
    yield from individual_doubts([PASSES] * len(names), names)


def silhouettes(rng):
    metric = str(rng.choice(["cosine", "correlation", "euclidean"]))
    yield from warnings_of_distances(0.123, metric, str(rng.choice(["float32", "float64"])))
    yield from warnings_of_distances(0.123, "sqeuclidean", "float32", "silhouette_metric")
    yield from distances_left_out(SparseRows(csr_array((2000, 2000)), "matrix"))
    model = Silhouette(np.arange(5) // 2, client=None, device="cpu")
    yield from model.fit_dataset(mgclust.open_dataset(rng.random((5, 2)))).warnings


def of_any_method(rng):
    n = number(rng)
    result = Result("m", scores={"n_clusters": n}, source={"n_nodes": n} if rng.random() < 0.5 else {})
    yield from methods._all_alone(result, {"n_clusters": n}, SimpleNamespace(shape=(n, 2)))


def fits(rng):
    place = {"client": None, "device": "cpu"}
    duplicates = np.repeat(rng.integers(0, 9, (15, 2)), 4, axis=0)
    for model, X in (
        (AffinityPropagation(n_clusters=4, affinity="precomputed", **place), np.full((5, 5), -1.0)),
        (AdaptiveAffinityPropagation(**place), duplicates),
        (DensityPeaks(dc=1.0, dc_fraction=0.5, **place), duplicates),
        (Communities(**place), networkx.DiGraph([(0, 1), (1, 2), (2, 0)])),
    ):
        yield from model.fit_dataset(model._open(X)).warnings


MAKERS = [
    density_peaks, fuzzy_c_means, affinity_propagation, number_of_exemplars, adaptive, canopies, of_communities,
    of_any_method, parcels,
]  # fmt: skip


def test_each_warning_is_one_short_sentence(made):
    rng, faults = np.random.default_rng(0), {}
    for maker in MAKERS:
        for _ in range(DRAWS):
            faults |= {text[:20]: f"{wrong(text)}: {text}" for text in map(str, maker(rng)) if wrong(text)}
    for maker in (stability, silhouettes, silhouettes, silhouettes, fits):
        faults |= {text[:20]: f"{wrong(text)}: {text}" for text in map(str, maker(rng)) if wrong(text)}
    assert not faults, "\n".join(faults.values())
    assert not places() - made.keys()


def test_a_kind_can_be_filtered():
    kinds = ClusteringWarning.__subclasses__()
    assert len(kinds) >= 9 and {kind.__name__ for kind in kinds} <= set(dir(mgclust))
    text = Doubt("clusters overlap.", WeakStructureWarning)
    assert pickle.loads(pickle.dumps(text)).kind is WeakStructureWarning and text == "clusters overlap."
    X = np.random.default_rng(0).random((300, 2))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.simplefilter("ignore", AmbiguousCountWarning)
        model = DensityPeaks(client=None, device="cpu").fit(X)
    assert model.result_.warnings
    with pytest.raises(AmbiguousCountWarning), warnings.catch_warnings():
        warnings.simplefilter("error", AmbiguousCountWarning)
        model.fit(X)
