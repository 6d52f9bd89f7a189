"""Runs on ranks: where ranks run, which rows they own, how they connect, and how one function runs on all of them.

::

    spmd.run ─┬─ one rank, in this process ─────────────────> rank.run_rank
              └─ driver (caller) ── Dask ── tasks (worker) ─> rank.run_rank
                                                                  └─ Context ─ Comm ─ Session

A `mgclust.engine.run_spec.RunSpec` describes a run; the caller and all ranks have the same one. ``rank.run_rank`` runs
it on one rank. ``rows`` checks the rows for NaN and infinity, and ``memory`` compares the memory that the run needs
with the memory that is free.

The other modules::

    context              what the function sees of its run; partition defines which rank owns which rows
    transport/           how ranks exchange arrays: comm has the collectives (a Comm is a SoloComm, a HostComm or an
                         NcclComm), session keeps connections between runs
    dask/                all code that needs Dask: where ranks run, and monitoring them
    checkpoint           what a run needs to resume; checkpoint_files reads and writes its files
    certificates, tls    certificates of a cluster with TLS; keeping TLS connections from breaking each other
    abort, heartbeat     how a rank learns that it should stop, and for how long a heartbeat has not changed
    devices              the GPUs of this process
    safe_path            keeps the current folder off the module path of processes that are started
"""
