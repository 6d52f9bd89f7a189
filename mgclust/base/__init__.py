"""The base of all other folders: errors, progress, hashing, checks of Dask arrays, functions pickled by value.

No module here imports another folder of mgclust.
"""
