"""Runs on a Dask cluster.

`cluster` connects to one; `local_cluster` starts one on this machine. `driver` is the caller's side of a run: `leases`
reserves workers, and `runs_page` shows who has them; `placement` brings them their rows, `sessions` knows which are
connected already, `tasks` is what runs on each.
"""
