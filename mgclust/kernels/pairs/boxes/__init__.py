"""Bounding boxes of columns, which let passes skip columns that are far away: for few features."""
