"""Runs on a Dask cluster.

`cluster` connects to a cluster; `local_cluster` starts one on this machine. `driver` is the caller's side of a run, and
`run_monitor` watches the workers of the run. `leases` reserves workers for runs, and `runs_page` shows which run has
which workers. `placement` sends rows to the workers, `sessions` keeps connections and rows on the workers between runs,
and `tasks` has the code that runs on each worker.
"""
