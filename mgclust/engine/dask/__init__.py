"""Runs on a Dask cluster: connecting to it or starting one, leases on its workers, and the caller's side of a run."""
