"""Pairs by matrix products, which filter; what the filter leaves open is computed directly: for many features."""
