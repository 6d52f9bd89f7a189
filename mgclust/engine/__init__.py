"""Ranks: where they run, which rows they own, how they connect, and how one function runs on all of them.

::

    spmd.run ─┬─ one rank, in this process ─────────────────> rank.run_rank
              └─ driver (caller) ── Dask ── tasks (worker) ─> rank.run_rank
                                                                  └─ Context ─ Comm ─ Session

``rank.run_rank`` makes ``rows`` look for NaN and infinity, and ``memory`` compare what is needed with what there is.
A `mgclust.engine.run_spec.RunSpec` describes the run, the same for the caller and for all ranks. A
`mgclust.engine.transport.comm.Comm` is a SoloComm, HostComm or NcclComm.
``certificates`` makes what a cluster with TLS needs, and ``tls`` keeps its connections from breaking each other.

context              what the function sees of its run; ``partition`` says which rank owns which rows
transport/           how ranks exchange arrays: ``comm`` has the collectives, ``session`` keeps connections between runs
dask/                what needs Dask: where ranks run, and what becomes of them
checkpoint           what a run needs to resume; ``checkpoint_files`` are its files
abort, heartbeat     how a rank learns that it should stop, and for how long another has not changed
devices              the GPUs of this process
safe_path            keeps the current folder off the module path of processes that are started
"""
