"""Readers of files with rows, one module per family of formats."""
