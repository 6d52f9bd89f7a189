"""Density peaks: the estimator, what runs on the ranks (`ranks`), and which rows are centres (`decision_graph`)."""
