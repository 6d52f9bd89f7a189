"""Canopy clustering.

`estimator` has the parameters and the fitted attributes. `ranks` describes the computation: `centers` chooses the
centres, `members` lists the rows of each canopy, and `agglomeration` clusters within canopies. `presentation` shows
results.

`tests/oracles/canopy.py` implements the method in plain float64.
"""
