"""Greedy modularity merging after Newman: merge by merge, exact."""
