"""The job service: submit a job, leave, come back to its result.

::

    client.py       Service(url, token): what `mgclust submit` and programs use
    server.py       connections: how many, how fast, how long
      gate.py         who asks, how often, how much at once: before a body is read
        callers.py, access.py    users, tokens, scopes; addresses.py, rates.py    limits of who shows no token
        bodies.py, errors.py     bounded bodies; refusals as one sentence
      app.py          the API; holds nothing that matters
        pages.py, streams.py, health.py, metrics.py, audit.py    what else is told, and what is written down of it
        decision.py     other centres of a density-peaks job, computed by
          readers.py, reader.py    confined processes that read data and results for pictures
        sources.py      what a job may read: uploads, files below roots, URLs (fetch.py)
        jobs.py         the queue: every change of a job's state is one transaction of the database
          models.py       its tables; migrations/ brings older ones up to date; disk.py    what users keep
    supervisor.py   starts a runner, and another one when it ends or hangs
      runner.py       takes jobs, gives each attempt a process, watches it (liveness.py), tells of it (log.py)
        attempt.py      that process, a copy of forkserver.py: confined (confine.py), it fits and leaves one result

The database is the record. A web process, a runner or an attempt may die, hang or be suspended at any moment: a running
job whose heartbeat does not change is queued again, and an attempt that was thought dead cannot finish a job that has
gone on without it.
"""
