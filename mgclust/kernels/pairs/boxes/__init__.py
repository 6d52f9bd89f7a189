"""Bounding boxes of columns, with which kernels for few features skip columns that are far away."""
