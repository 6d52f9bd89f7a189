"""Run one function on several ranks: choose where the ranks run, divide the rows among them, and connect them.

::

    spmd.run ─┬─ one rank, in this process ─────────────────> rank.run_rank
              └─ driver (caller) ── Dask ── tasks (worker) ─> rank.run_rank
                                                                  └─ Context ─ Comm ─ Session

A `mgclust.engine.run_spec.RunSpec` describes a run, and is the same for the caller and for all ranks.
``rank.run_rank`` executes the run on one rank. ``rows`` checks the rows for NaN and infinity, and ``memory`` compares
the memory that the run needs with the memory that is free.

The other modules::

    context              the function's view of its run; partition defines which rank owns which rows
    transport/           exchange of arrays between ranks: comm has the collectives (a Comm is a SoloComm, a HostComm
                         or an NcclComm), session keeps connections between runs
    dask/                all code that needs Dask: it chooses the workers of a run, and monitors them
    checkpoint           the state from which a run resumes; checkpoint_files reads and writes the files
    certificates, tls    certificates for a cluster with TLS; a guard that keeps a broken TLS connection from breaking
                         other connections
    abort, heartbeat     the signal that stops a rank; the time for which a heartbeat has not changed
    devices              the GPUs of this process
    safe_path            keeps the current folder off the module search path of processes that are started
"""
