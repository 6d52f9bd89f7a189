"""Declarative checks of parameters.

An algorithm declares each of its parameters once::

    constraints = {
        "n_clusters": Integer(at_least=1, optional=True, remedy="give the number of clusters or leave it out"),
        "metric": Choice("euclidean", "manhattan", help="Distance between rows."),
    }

The declaration is used for the check (`check_parameters`), for the option of the command line (`Constraint.type`,
`.choices`, `.help`, `.parse`), and for the message about an invalid value::

    n_clusters=0 should be an integer >= 1; give the number of clusters or leave it out.
    metric='manhatan' should be one of 'euclidean', 'manhattan'; did you mean 'manhattan'?

Modules::

    constraint  base class: checks a value, parses text of the command line, makes the error
    numbers     numbers within bounds
    words       flags, words, sizes, seeds
    arrays      arrays with one value per row, and lists of row numbers
    declared    all parameters of a method
    relations   parameters that have no effect because of other parameters
"""

from mgclust.params.arrays import RealOrPerRow, RowNumbers
from mgclust.params.constraint import Constraint
from mgclust.params.declared import Option, check_parameters
from mgclust.params.numbers import Integer, IntegerOf, IntegerOrWord, Integers, Range, Real, RealOrWord
from mgclust.params.words import Anything, Boolean, Bytes, Choice, Seed

__all__ = [
    "Anything",
    "Boolean",
    "Bytes",
    "Choice",
    "Constraint",
    "Integer",
    "IntegerOf",
    "IntegerOrWord",
    "Integers",
    "Option",
    "Range",
    "Real",
    "RealOrPerRow",
    "RealOrWord",
    "RowNumbers",
    "Seed",
    "check_parameters",
]
