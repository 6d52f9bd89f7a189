"""Canopies.

`estimator` has the parameters, `ranks` what is computed: `centers` chooses the centres, `members` lists the rows of
each, `agglomeration` clusters within them. `presentation` shows results.

The method in plain float64 is `tests/oracles/canopy.py`.
"""
