"""Content from outside is read within bounds here: files under a root folder, JSON, Zarr stores, compressed data."""
