"""Parcels: connected clusters of voxels or vertices by their series."""
