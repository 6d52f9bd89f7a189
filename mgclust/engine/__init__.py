"""Ranks: where they run, which rows they own, how they meet, and how one function runs on all of them.

::

    spmd.run ─┬─ one rank, in this process ─────────────────> rank.prepare, rank.execute
              └─ driver (caller) ── Dask ── tasks (worker) ─> rank.prepare, rank.execute
                                                                  └─ Context ─ Comm

``rank.prepare`` makes ``rows`` look for NaN and infinity, and ``memory`` compare what is needed with what there is.
A `mgclust.engine.run_spec.RunSpec` describes the run, the same for the caller and for all ranks. A
`mgclust.engine.comm.Comm` is a SoloComm, HostComm or NcclComm.
``certificates`` makes what a cluster with TLS needs, and ``tls`` keeps its connections from breaking each other.
"""
