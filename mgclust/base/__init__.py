"""The base of all other folders: errors, progress, hashing, questions to Dask arrays, functions that travel by value.

Nothing here imports another folder of mgclust.
"""
