"""Calls of other projects on mgclust: the same results, the reasons of what is left, and a script as Python runs it."""

from __future__ import annotations

import json
import os
import runpy
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from mgclust import accel, algorithms
from mgclust.accel import calls
from mgclust.accel.installation import CALLS
from mgclust.base.errors import ClusterUnavailableError, InputError

SCRIPTS = Path(__file__).parent / "scripts"
# What runs on mgclust, and what falls back.
EXPECTED = {
    "affinity": {"sklearn.cluster.AffinityPropagation.fit": (1, 0)},
    "affinity_left": {"sklearn.cluster.AffinityPropagation.fit": (0, 1)},
    "affinity_precomputed": {"sklearn.cluster.AffinityPropagation.fit": (2, 0)},
    "dendrogram": {
        "igraph.Graph.community_fastgreedy": (1, 0), "igraph.Graph.community_leiden": (3, 1)
    },
    "fuzzy": {"skfuzzy.cmeans": (1, 0), "skfuzzy.cmeans_predict": (1, 0)},
    "greedy": {"networkx.community.greedy_modularity_communities": (3, 1)},
    "louvain": {"networkx.community.louvain_communities": (2, 1)},
    "processes": {"sklearn.metrics.silhouette_samples": (1, 0)},  # children stay with the original
    "silhouettes": {"sklearn.metrics.silhouette_samples": (6, 0)},
    "silhouettes_left": {"sklearn.metrics.silhouette_samples": (0, 3)},
}  # fmt: skip


@pytest.fixture
def installed():
    yield accel.install
    accel.uninstall()


def counts_of(totals):
    return {each["call"]: (each["on_mgclust"], sum(each["fell_back"].values())) for each in totals}


def _run(*arguments, switch=()):
    command = [sys.executable, *(["-m", "mgclust.accel", *switch] if switch is not None else []), *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=170)


IN_PROCESSES = ("affinity", "processes")


@pytest.mark.parametrize("name", [name for name in EXPECTED if name not in IN_PROCESSES])
def test_calls_of_a_script_have_the_same_results(name, installed, monkeypatch, capsys):
    script = str(SCRIPTS / f"{name}.py")
    runpy.run_path(script, run_name="__main__")
    theirs = capsys.readouterr().out
    monkeypatch.setattr(calls, "_counts", {})
    installed()
    runpy.run_path(script, run_name="__main__")
    assert capsys.readouterr().out == theirs
    assert counts_of(calls.totals()) == EXPECTED[name]


@pytest.mark.slow
@pytest.mark.parametrize("name", IN_PROCESSES)
def test_a_script_prints_the_same(name, tmp_path):
    script, counts = SCRIPTS / f"{name}.py", tmp_path / "counts.json"
    with_switch, without = _run(script, switch=["--json", counts]), _run(script, switch=None)
    assert with_switch.returncode == without.returncode == 0, with_switch.stderr
    assert with_switch.stdout == without.stdout
    assert counts_of(json.loads(counts.read_text())) == EXPECTED[name]
    assert "mgclust.accel: " in with_switch.stderr


@pytest.mark.slow
def test_tracebacks_and_exit_codes_are_those_of_the_script():
    script = SCRIPTS / "failing.py"
    ours, theirs = _run(script, switch=["-q"]), _run(script, switch=None)
    assert (ours.returncode, ours.stdout, ours.stderr) == (theirs.returncode, theirs.stdout, theirs.stderr)
    assert "fail()" in ours.stderr
    assert _run(script, "7").returncode == 7
    module = _run("-m", "this", switch=["-q"])
    assert (module.returncode, module.stderr) == (0, "") and "Namespaces" in module.stdout


@pytest.mark.slow
@pytest.mark.parametrize(
    "arguments, says",
    [
        (["missing.py"], "error: 'missing.py' cannot be opened: No such file or directory."),
        (["-m", "no.such"], "error: no module named 'no.such'."),
        (["--only", "kmeans", "x.py"], "error: call='kmeans' should be one of "),
        (["--device", "x.py"], "error: No such option"),
    ],
)
def test_wrong_use_is_one_line(arguments, says):
    done = _run(*arguments)
    assert done.returncode == 2 and done.stderr.startswith(says) and done.stderr.count("\n") == 1


def test_calls_are_replaced_wherever_they_were_imported_and_put_back(installed):
    import sklearn.metrics
    from sklearn.cluster import AffinityPropagation

    before = sklearn.metrics.silhouette_samples, AffinityPropagation.fit
    installed(only=["sklearn"])
    assert sklearn.metrics.silhouette_samples is not before[0]
    assert sklearn.metrics.cluster.silhouette_samples is sklearn.metrics.silhouette_samples
    assert AffinityPropagation.fit is not before[1]
    installed(exclude=["silhouette_score"])
    assert accel.installed() and sklearn.metrics.silhouette_samples is before[0]
    accel.uninstall()
    assert (sklearn.metrics.silhouette_samples, AffinityPropagation.fit) == before
    assert "affinity_matrix_" not in vars(AffinityPropagation) and "__getstate__" not in vars(AffinityPropagation)


def test_a_fit_that_did_not_converge_is_scikit_learns(installed, monkeypatch):
    """Whatever mgclust has to say of it: labels, and the number of iterations, are those without the switch."""
    from sklearn.cluster import AffinityPropagation
    from sklearn.exceptions import ConvergenceWarning

    X = np.random.default_rng(0).normal(size=(60, 2))
    fits, ours = [], []
    fit_dataset = algorithms.AffinityPropagation.fit_dataset

    def without_words(self, *given, **options):
        ours.append(self)
        return replace(fit_dataset(self, *given, **options), warnings=[])

    monkeypatch.setattr(algorithms.AffinityPropagation, "fit_dataset", without_words)
    monkeypatch.setattr(calls, "_counts", {})
    for install in (False, True):
        if install:
            installed(only=["sklearn"])
        with pytest.warns(ConvergenceWarning):
            fits.append(AffinityPropagation(max_iter=20, random_state=0).fit(X))
    assert len(ours) == 1 and not ours[0].converged_
    np.testing.assert_array_equal(fits[1].labels_, fits[0].labels_)
    assert fits[0].n_iter_ == fits[1].n_iter_ == 20
    ((reason, times),) = calls.totals()[0]["fell_back"].items()
    assert reason.startswith("no convergence within max_iter=20") and times == 1


def test_a_notebook_begins_and_ends():
    accel.load_ipython_extension(object())
    assert accel.installed()
    accel.unload_ipython_extension(object())
    assert not accel.installed()


NOTEBOOK = """
import sklearn.metrics
from sklearn.metrics import silhouette_samples
%load_ext mgclust.accel
from mgclust import accel, algorithms
print(silhouette_samples([[0.0], [1.0], [10.0], [11.0]], [0, 0, 1, 1]).round(3))
print(accel.summary().splitlines()[0])
%reload_ext mgclust.accel
print(accel.installed(), silhouette_samples is sklearn.metrics.silhouette_samples)
%unload_ext mgclust.accel
print(accel.installed())
%load_ext mgclust.accel
print(accel.installed())
"""


@pytest.mark.slow
def test_in_ipython(tmp_path):
    (tmp_path / "notebook.ipy").write_text(NOTEBOOK)
    command = [sys.executable, "-m", "IPython", "--no-banner", "--colors=NoColor", str(tmp_path / "notebook.ipy")]
    here = {**os.environ, "IPYTHONDIR": str(tmp_path / "profile")}
    done = subprocess.run(command, env=here, capture_output=True, text=True, timeout=170)
    assert done.stdout.splitlines() == [
        "[0.905 0.895 0.895 0.905]",
        "mgclust.accel: 1 call ran on mgclust, 0 on the original",
        "True True",
        "False",
        "True",
    ], done.stderr


def test_names_are_checked(installed):
    with pytest.raises(InputError, match=r"call='kmeans' should be one of .*'silhouette_score'"):
        installed(only=["kmeans"])
    with pytest.raises(InputError, match="device='gpu' should be"):
        installed(device="gpu")
    names = [call.shown for call in CALLS]
    assert len(names) == len(set(names)) == 10 and all(call.shown in call.names for call in CALLS)


@pytest.mark.slow
@pytest.mark.parametrize("m, c", [(1.05, 4), (2.0, 1), (2.5, 8)])
def test_fuzzy_c_means_goes_through_the_iterations_of_scikit_fuzzy(installed, m, c):
    import skfuzzy

    rng = np.random.default_rng(c)
    X = rng.normal(size=(3, 3000)) + 5 * rng.integers(0, 4, 3000)
    theirs = skfuzzy.cmeans(X, c, m, 1e-4, 200, seed=1)
    state = np.random.get_state()[1]
    predicted = skfuzzy.cmeans_predict(X[:, :9], theirs[0], m, 1e-4, 50, seed=2)
    installed(only=["skfuzzy"])
    ours = skfuzzy.cmeans(X, c, m, 1e-4, 200, seed=1)
    assert np.array_equal(np.random.get_state()[1], state)
    assert ours[5] == theirs[5] and len(ours) == 7
    for mine, original in zip((*ours, *skfuzzy.cmeans_predict(X[:, :9], theirs[0], m, 1e-4, 50, seed=2)),
                              (*theirs, *predicted), strict=True):  # fmt: skip
        assert np.shape(mine) == np.shape(original) and np.asarray(mine).dtype == np.asarray(original).dtype
        np.testing.assert_allclose(mine, original, rtol=1e-9, atol=1e-12)


@pytest.mark.slow
def test_repeated_calls_without_a_seed_differ_and_follow_the_generator(installed):
    import random

    import networkx as nx

    G = nx.gnp_random_graph(150, 0.05, seed=1)
    installed(only=["louvain_communities"])

    def several():
        random.seed(2)
        return [nx.community.louvain_communities(G) for _ in range(4)]

    first = several()
    assert first == several() and any(each != first[0] for each in first)


@pytest.mark.slow
def test_rows_that_change_after_a_fit_do_not_change_its_similarities(installed):
    from sklearn.cluster import AffinityPropagation
    from sklearn.datasets import make_blobs

    X, _ = make_blobs(n_samples=80, centers=3, random_state=0)
    theirs = AffinityPropagation(random_state=0).fit(X).affinity_matrix_
    installed(only=["AffinityPropagation"])
    model = AffinityPropagation(random_state=0).fit(X)
    X[:] = 0
    np.testing.assert_allclose(model.affinity_matrix_, theirs, rtol=1e-12, atol=1e-250)
    with pytest.raises(AttributeError):
        AffinityPropagation().affinity_matrix_  # noqa: B018


def test_a_cluster_that_does_not_answer_is_asked_once(monkeypatch):
    asked = []

    def ours(settings, value):
        asked.append(value)
        raise ClusterUnavailableError("no scheduler answers")

    call = calls.Call("home", "name", "project.name", ours)
    monkeypatch.setattr(calls, "_counts", {})
    instead = calls.replacement(call, lambda value: -value, calls.AccelSettings(client="tcp://127.0.0.1:1"))
    assert [instead(value) for value in (1, 2, 3)] == [-1, -2, -3] and asked == [1]
    assert calls.totals()[0]["fell_back"] == {"no scheduler answers": 3}
