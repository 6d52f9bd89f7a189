"""Declarative checks of parameters.

An algorithm declares each of its parameters once::

    constraints = {
        "n_clusters": Integer(at_least=1, optional=True, remedy="give their number or leave it out"),
        "metric": Choice("euclidean", "manhattan", help="Distance between rows."),
    }

and gets from it the check (`check_parameters`), the command line's option (`Constraint.type`, `.choices`,
`.help`, `.parse`) and the sentence when a value is wrong::

    n_clusters=0 should be an integer >= 1; give their number or leave it out.
    metric='manhatan' should be one of 'euclidean', 'manhattan'; did you mean 'manhattan'?

Map::

    constraint  the base of all: check, text of the command line, refusal
    numbers     numbers within bounds
    words       flags, words, sizes, seeds
    arrays      values of which there may be one for each row
    declared    the parameters of a method together
    relations   parameters that others make void
"""

from mgclust.params.arrays import RealOrPerRow, RowNumbers
from mgclust.params.constraint import Constraint
from mgclust.params.declared import Option, check_parameters
from mgclust.params.numbers import Integer, IntegerOrWord, Range, Real, RealOrWord
from mgclust.params.words import Anything, Boolean, Bytes, Choice, Seed

__all__ = [
    "Anything",
    "Boolean",
    "Bytes",
    "Choice",
    "Constraint",
    "Integer",
    "IntegerOrWord",
    "Option",
    "Range",
    "Real",
    "RealOrPerRow",
    "RealOrWord",
    "RowNumbers",
    "Seed",
    "check_parameters",
]
