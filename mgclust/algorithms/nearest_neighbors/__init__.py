"""Each row's nearest rows: the estimator, the search on the ranks, and how results are shown."""
