"""Modules that all other folders use: errors, progress, hashing, Dask arrays, functions pickled by value.

They import nothing from other folders of mgclust.
"""
