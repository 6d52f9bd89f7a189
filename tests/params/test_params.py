"""Every declared check: what passes, in which type it comes back, and the sentence when it does not."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mgclust.algorithms import METHODS
from mgclust.base.errors import InputError
from mgclust.output.file_run import open_sources
from mgclust.params import (
    Anything,
    Boolean,
    Bytes,
    Choice,
    Integer,
    Real,
    RealOrPerRow,
    RealOrWord,
    RowNumbers,
    Seed,
    check_parameters,
)

METRIC = Choice("euclidean", "manhattan", "cosine")


def refusal(constraint, value, name="x"):
    with pytest.raises(InputError) as caught:
        constraint.check(name, value)
    return str(caught.value)


def test_the_sentence_names_value_bound_and_remedy():
    constraint = Integer(at_least=1, optional=True, remedy="give the number of clusters or leave it out")
    assert refusal(constraint, 0, "n_clusters") == (
        "n_clusters=0 should be an integer >= 1; give the number of clusters or leave it out."
    )
    assert refusal(Real(above=0, optional=True), 0).endswith("; give an allowed value or leave it out.")
    assert refusal(Real(above=0), -1.0, "t2") == "t2=-1.0 should be a finite number > 0; give an allowed value."


@pytest.mark.parametrize(
    "constraint, value, result",
    [
        (Real(), 3, 3.0),
        (Real(), np.float32(0.5), 0.5),
        (Real(), np.int64(2), 2.0),
        (Real(), np.array(1.5), 1.5),
        (Real(above=0, at_most=1), 1, 1.0),
        (Real(at_least=0, below=1), 0, 0.0),
        (Integer(), np.int32(7), 7),
        (Integer(at_least=1), np.uint8(1), 1),
        (Integer(optional=True), None, None),
        (Boolean(), np.bool_(True), True),
        (METRIC, np.str_("cosine"), "cosine"),
        (Choice("a", optional=True), None, None),
        (Bytes(), np.int64(5), 5),
        (Bytes(), "16 GiB", 16 * 2**30),
        (Bytes(), "1.5kB", 1500),
        (Bytes(), "12", 12),
        (Seed(), np.uint32(3), 3),
        (Seed(), None, None),
    ],
)
def test_passes_as_a_plain_python_value(constraint, value, result):
    checked = constraint.check("x", value)
    assert checked == result
    assert type(checked) is type(result)


@pytest.mark.parametrize(
    "constraint, value, phrase",
    [
        (Real(), math.nan, "finite number"),
        (Real(), math.inf, "finite number"),
        (Real(), True, "x=True"),
        (Real(), "1", "x='1'"),
        (Real(), 1j, "finite number"),
        (Real(), None, "x=None"),
        (Real(above=0), 0, "> 0"),
        (Real(at_least=0, below=1), 1, ">= 0 and < 1"),
        (Real(at_most=1), np.float64(2), "x=2.0 "),
        (Real(), np.ones(3), "finite number"),
        (Integer(), True, "an integer"),
        (Integer(), 3.0, "x=3.0"),
        (Integer(), np.float64(3), "an integer"),
        (Integer(below=3), 3, "< 3"),
        (Boolean(), 2, "True or False"),
        (Boolean(), 1.0, "True or False"),
        (Boolean(), "yes", "True or False"),
        (Bytes(), 0, "16 GiB"),
        (Bytes(), "many", "16 GiB"),
        (Bytes(), 1.5, "16 GiB"),
        (Bytes(), "-1 GB", "16 GiB"),
        (Seed(), -1, "from 0"),
        (Seed(), 2**32, "from 0"),
        (Seed(), "x", "from 0"),
        (METRIC, None, "one of 'euclidean'"),
        (METRIC, ["euclidean"], "one of 'euclidean'"),
        (METRIC, 5, "x=5"),
    ],
)
def test_refuses(constraint, value, phrase):
    assert phrase in refusal(constraint, value)


def test_a_word_in_place_of_a_number():
    share = RealOrWord("auto", above=0, at_most=1)
    assert share.check("x", "auto") == share.parse(" auto ") == "auto"
    assert share.check("x", 0.5) == share.parse("0.5") == 0.5
    for wrong in ("Auto", 0, "0.5", True, None):
        assert "should be a finite number > 0 and <= 1, or 'auto'" in refusal(share, wrong)


@pytest.mark.parametrize("constraint", [Real(), RealOrPerRow(), Bytes()])
@pytest.mark.parametrize("digits", [350, 4000, 5000])
def test_refuses_what_no_float_holds(constraint, digits):
    value = f"{'9' * digits}b" if isinstance(constraint, Bytes) else 10**digits
    assert "should be a" in refusal(constraint, value)


def test_long_values_are_cut():
    assert len(refusal(METRIC, list(range(1000)))) < 250


def test_unknown_choice_lists_all_and_suggests_the_nearest():
    assert refusal(METRIC, "manhatan", "metric") == (
        "metric='manhatan' should be one of 'euclidean', 'manhattan', 'cosine'; did you mean 'manhattan'?"
    )
    assert "did you mean 'euclidean'?" in refusal(METRIC, "Euclidean")
    assert "did you mean" not in refusal(METRIC, "zzz")
    assert "None" in refusal(Choice("a", "b", optional=True), "zzz")


@pytest.mark.parametrize(
    "constraint, text, result",
    [
        (Real(), "0.5", 0.5),
        (Real(optional=True), "none", None),
        (Integer(), " 12 ", 12),
        (Boolean(), "true", True),
        (Boolean(), "No", False),
        (METRIC, "cosine", "cosine"),
        (Bytes(), "2 MiB", 2**21),
        (Seed(), "7", 7),
        (Seed(), "None", None),
        (Anything(), "tcp://host:8786", "tcp://host:8786"),
    ],
)
def test_parse(constraint, text, result):
    assert constraint.parse(text) == result


@pytest.mark.parametrize("constraint", [Real(), Integer(), Boolean(), METRIC, Bytes(), Seed()])
@pytest.mark.parametrize("text", ["", "many", "1.5.2", "nan"])
def test_parse_refuses_with_the_parameters_name(constraint, text):
    with pytest.raises(InputError, match=f"^dc='?{text}"):
        constraint.parse(text, "dc")


def test_seed_keeps_generators():
    generator, state = np.random.default_rng(0), np.random.RandomState(0)
    assert Seed().check("random_state", generator) is generator
    assert Seed().check("random_state", state) is state


def test_check_parameters():
    constraints = {"dc": Real(above=0, optional=True), "metric": METRIC, "client": Anything()}
    client = object()
    params = {"metric": "cosine", "dc": np.float32(2), "client": client}
    assert check_parameters(constraints, params) == {"metric": "cosine", "dc": 2.0, "client": client}
    with pytest.raises(InputError, match=r"metrics='cosine' is not a parameter; did you mean 'metric'"):
        check_parameters(constraints, {"metrics": "cosine"})
    with pytest.raises(InputError, match="known parameters are dc, metric, client"):
        check_parameters(constraints, {"zzz": 1})
    with pytest.raises(InputError, match=r"^dc=-1 should be"):
        check_parameters(constraints, {"dc": -1})


def test_what_the_command_line_needs():
    for constraint in (Real(help="h"), Integer(help="h"), Boolean(help="h"), Choice("a", help="h")):
        assert constraint.help == "h"
        assert constraint.type in {"number", "integer", "flag", "choice"}
    assert METRIC.choices == ("euclidean", "manhattan", "cosine")
    assert Real().choices == ()


@given(value=st.one_of(st.integers(), st.floats(), st.text(), st.none(), st.booleans(), st.binary()))
def test_a_check_returns_a_valid_value_or_an_input_error(value):
    for constraint in (Real(above=0), Integer(at_least=1), Boolean(), METRIC, Bytes(), Seed()):
        try:
            checked = constraint.check("x", value)
        except InputError as error:
            assert str(error).startswith("x=")
        else:
            assert constraint.check("x", checked) == checked


@given(value=st.floats(min_value=0, exclude_min=True, allow_infinity=False))
def test_what_is_printed_parses_to_the_same_bits(value):
    assert Real(above=0).parse(repr(value)) == value


@pytest.mark.parametrize("rows", [[], [-1, 3], [2, 2], [10**30], [1.5], 7, [[1, 2]], [[1], [1, 2]], "3"])
def test_row_numbers(rows):
    assert RowNumbers().check("indices", np.array([4, 0])).tolist() == [4, 0]
    with pytest.raises(InputError, match="should be a non-empty list of distinct row numbers >= 0"):
        RowNumbers().check("indices", rows)


@pytest.mark.parametrize("value", [10**400, -(10**400), 2**63])
def test_integers_of_more_than_64_bits(value):
    with pytest.raises(InputError, match=r"^n=.* should be an integer of at most 64 bits; give a smaller one\.$"):
        Integer().check("n", value)
    assert Integer().check("n", 2**63 - 1) == 2**63 - 1
    with pytest.raises(InputError, match="should be an integer"):
        Integer().parse("9" * 5000, "n")
    with pytest.raises(InputError, match="should be an integer"):
        Seed().parse("9" * 5000, "seed")


@pytest.mark.parametrize("text", ["²", "9" * 5000, "٣" * 30])
def test_positions_of_columns_that_are_no_numbers(text, tmp_path):
    np.savetxt(tmp_path / "x.csv", np.arange(12.0).reshape(4, 3), delimiter=",", header="a,b,c", comments="")
    with pytest.raises(InputError, match="is not a column of"):
        open_sources(METHODS["density-peaks"], [str(tmp_path / "x.csv")], columns=f"a,{text}")
    (tmp_path / "x.edges.csv").write_text("a,b\n0,1\n1,2\n")
    with pytest.raises(InputError, match="is not a column of"):
        open_sources(METHODS["communities"], [str(tmp_path / "x.edges.csv")], source=text, target="b")
