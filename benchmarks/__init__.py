"""Benchmarks: a folder a method, run as ``python -m benchmarks.density_peaks.cpu`` from the root."""
