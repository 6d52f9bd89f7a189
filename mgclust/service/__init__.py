"""The job service: submit a job, leave, come back to its result.

::

    client.py, connection.py    Service(url, token), for programs and the command line
    server.py       limits of connections
      gate.py         authentication and limits of requests, before their bodies
        callers.py, access.py    tokens, users, scopes; rates.py, addresses.py    rate limits
        bodies.py, errors.py     limited bodies; errors as one sentence
      app.py          puts together the web application
        routers/        the endpoints: jobs, results, uploads, admin, monitoring
          dependencies.py, views.py, requests.py    what endpoints need, answer, and accept
        pages.py, streams.py, health.py, metrics.py, audit.py    pages, events, health, metrics, audit log
        decision.py     other centres of a job, computed by
          reader_pool.py, reader_process.py    confined children that read data and results for pictures
        sources.py      uploads, files below roots
        jobs.py         the queue for users: each change is one transaction of the database
          models.py       the tables; states.py; migrations/; identity.py    checks of the database's files
          quotas.py, removal.py    limits and removal of what users keep (folders.py)
          batches.py      calls that wait for the database share its next transaction
        results.py, sent_file.py    logs and results, read as hostile files; one as an answer
    settings.py     settings of all processes; caches.py    cache folders of libraries; log.py    the log of jobs
    supervisor.py   keeps a runner running
      devices.py      the GPUs that each attempt has
      runner.py       claims jobs and runs attempts (attempts.py, fair_share.py), one runner at a time (runner_lock.py)
        running_attempt.py    an attempt as the runner sees it, and its limits
        attempt.py      its process, a confined child: reads (inputs.py), fits and leaves one result; starts and ends
                        the job's Dask cluster: file_run.placed, engine.dask.cluster.connect
    fork_server.py  starts all confined children (confine.py, system_calls.py): attempts and readers
      child_process.py    a child as its parent sees it, and whether a process hangs
      child_messages.py   what children write, read as messages of hostile processes

The database is the record. A web process, a runner or an attempt may die, hang or be suspended at any time: a running
job whose heartbeat does not change is queued again, and an attempt that was lost by mistake cannot end a job that has
another attempt.
"""
