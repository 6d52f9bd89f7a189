"""Runs on a Dask cluster.

`cluster` connects to one; `local_cluster` starts one on this machine. `driver` is the caller's side of a run, and
`run_monitor` watches the run's workers. `leases` reserves workers, and `runs_page` shows who has them. `placement`
brings workers their rows, `sessions` knows which are connected already, and `tasks` is what runs on each.
"""
