"""Each row's nearest rows.

`estimator` is the method and two functions, `ranks` searches on the ranks, `presentation` shows results.
"""
