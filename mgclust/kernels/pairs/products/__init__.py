"""Pairs of rows with many features: matrix products decide most pairs, and direct differences decide the rest."""
