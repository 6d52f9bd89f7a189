"""Agreement of labellings, beside its definitions by pairs of rows and by permutations."""

from __future__ import annotations

import json
from collections import Counter
from itertools import combinations, permutations
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mgclust import compare_labels
from mgclust.base.errors import InputError
from mgclust.cli import run_command
from mgclust.results import label_agreement
from mgclust.results.result import Result

LABELS = st.integers(1, 14).flatmap(lambda n: st.tuples(*[st.lists(st.integers(-1, 3), min_size=n, max_size=n)] * 2))


@pytest.fixture(autouse=True, scope="module")
def imported():
    """Imports of the first call take longer than an example may."""
    compare_labels([0, 1], [0, 1])


@settings(deadline=None)
@given(LABELS)
def test_definitions(labels):
    first, second = labels
    found, n = compare_labels(first, second), len(first)
    pairs = list(combinations(range(n), 2))
    a = [first[i] == first[j] for i, j in pairs]
    b = [second[i] == second[j] for i, j in pairs]
    both, one, other = sum(x and y for x, y in zip(a, b, strict=True)), sum(a), sum(b)
    if one and other:
        assert found["fowlkes_mallows"] == pytest.approx(both / np.sqrt(one * other))
        if one + other < 2 * len(pairs):
            expected = one * other / len(pairs)
            assert found["ari"] == pytest.approx((both - expected) / ((one + other) / 2 - expected), abs=1e-12)
    together = Counter(zip(first, second, strict=True))
    purity = sum(max(together[k, other] for k in set(first)) for other in set(second))
    assert found["purity"] == pytest.approx(purity / n)
    assert compare_labels(second, first)["inverse_purity"] == found["purity"]
    names = sorted({*first, *second, *range(-1, 4)})
    hits = max(
        sum(renamed[names.index(s)] == f for f, s in zip(first, second, strict=True)) for renamed in permutations(names)
    )
    assert found["error_rate"] == pytest.approx(1 - hits / n)
    assert found["clusters"] == [len({label for label in some if label >= 0}) for some in labels]
    assert found["noise"] == [some.count(-1) for some in labels] and found["rows"] == n


def test_noise_is_left_out_on_request():
    first, second = [0, 0, 1, 1, -1, -7, 2], [5, 5, 6, -1, 6, 6, 6]
    found = compare_labels(first, second, noise="drop")
    kept = compare_labels([0, 0, 1, 2], [5, 5, 6, 6])
    assert {**found, "noise": None} == {**kept, "noise": None} and found["noise"] == [2, 1]
    assert compare_labels([-1, -7, 0], [0, 0, 1])["ari"] == 1.0  # all noise is alike


def test_names_and_types_do_not_matter():
    numbers = np.array([0, 0, 1, 2, 2, 1])
    for others in (
        numbers.astype(str),
        numbers[:, None],
        numbers.astype(np.uint8),
        numbers.astype(float),
        [9, 9, 4, 3, 3, 4],
    ):
        found = compare_labels(numbers, others)
        assert (found["ari"], found["nmi"], found["error_rate"]) == (1.0, pytest.approx(1.0), 0.0)


def test_rows_that_are_all_alone_agree():
    """No pair is together in either: 0 / 0, which was 0."""
    assert compare_labels([0, 1, 2], [7, 5, 6])["fowlkes_mallows"] == 1.0
    assert compare_labels([0, 1, 2], [0, 0, 0])["fowlkes_mallows"] == 0.0


@pytest.mark.parametrize(
    ("labels", "noise"),
    [
        (np.array([2**63, 2**63, 1, 2**64 - 1], np.uint64), 0),  # both became negative, and so one noise
        (np.array([1e19, 1e19, 1.0, 3e19]), 0),
        ([2**70, 2**70, 1, 2**71], 0),
        (np.array([4, 4, -1, 7], object), 1),
        (["a", "a", None, "b"], 1),
        ([4, 4, None, 7], 1),
        (np.ma.masked_array([4, 4, 9, 7], [False, False, True, False]), 1),
        (np.ma.masked_array([4.0, 4.0, np.nan, 7.0], [False, False, True, False]), 1),
        (np.ma.masked_array(["a", "a", "b", "c"], [False, False, True, False]), 1),
    ],
)
def test_what_is_in_a_cluster_and_what_is_not(labels, noise):
    found = compare_labels([0, 0, 1 if not noise else -1, 2], labels)
    assert found["noise"] == [noise, noise] and found["clusters"] == [3 - noise] * 2 and found["ari"] == 1.0


@pytest.mark.parametrize(
    ("first", "second", "given", "text"),
    [
        ([[0], [1, 2]], [0, 1], {}, "the first labelling is a ragged list; give one label per row"),
        ([0, 1], [0, 1, 2], {}, "the first labelling has 2 rows and the second has 3"),
        ([], [], {}, "no row is in a cluster of both"),
        ([-1, 0], [0, -1], {"noise": "drop"}, "no row is in a cluster of both"),
        ([0.5, 1], [0, 1], {}, "give whole numbers or strings"),
        ([[0, 1]], [0, 1], {}, r"has shape \(1, 2\), not \(n,\)"),
        ([0, 1], [0, 1], {"noise": "keep"}, "noise='keep' should be one of 'cluster', 'drop'"),
    ],
)
def test_refused(first, second, given, text):
    with pytest.raises(InputError, match=text):
        compare_labels(first, second, **given)


def test_no_matching_of_very_many_clusters(monkeypatch):
    monkeypatch.setattr(label_agreement, "MAX_PAIRS", 3)
    assert compare_labels([0, 1], [0, 1])["error_rate"] is None


def test_command(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    for name, labels, sha in (("one", [0, 0, 1, 1], "a"), ("two", [1, 1, 0, 2], "b")):
        Result("density-peaks", labels=np.array(labels, np.int32), source={"sha256": sha}).save(name)
    np.save("truth.npy", np.array([3, 3, 4, 4]))
    assert run_command(["compare", "truth.npy", "one"]) == 0
    out, err = capsys.readouterr()
    assert "adjusted Rand index  1.0000" in out and "2 and 2" in out and not err
    assert run_command(["compare", "one", "two", "--json"]) == 0
    out, err = capsys.readouterr()
    found = json.loads(out)
    assert found["error_rate"] == 0.25 and found["clusters"] == [2, 3] and "different data" in found["warnings"][0]
    assert err.startswith("warning: 'one' and 'two' are results of different data")
    for name, text in (("truth.txt", "3\n3\n4\n4\n"), ("truth.csv", "row,class\n0,a\n1,a\n2,b\n3,b\n")):
        Path(name).write_text(text)
        assert run_command(["compare", name, "truth.npy", "--json"]) == 0
        assert json.loads(capsys.readouterr().out)["ari"] == 1.0
    np.save("short.npy", np.zeros(3, int))
    Path("points.txt").write_text("0.5 1.5 3\n0.5 2.5 4\n")
    Path("other.parquet").write_text("")
    for wrong in (
        ["one", "points.txt"],
        ["one", "other.parquet"],
        ["one", "short.npy"],
        ["one", "none.npy"],
        ["one", "two", "--noise", "x"],
        ["one"],
    ):
        assert run_command(["compare", *wrong]) == 2
        out, err = capsys.readouterr()
        assert err.startswith("error: ") and err.count("\n") == 1 and not out
