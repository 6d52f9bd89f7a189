"""The job service: submit a job, leave, come back to its result.

::

    client.py     Service(url, token): what `mgclust submit` and programs use
      app.py      HTTP: who asks, what they may see, answers; holds nothing that matters
        access.py     users and tokens
        pages.py      the pages (pages/: HTML, CSS and JavaScript as browsers read them) and security headers
        decision.py   other centres for a density-peaks job: previews, and results of their own
        sources.py    what a job may read: uploads and configured folders
        jobs.py       the queue: every change of a job's state is one transaction of the database
          records.py      its tables; migrations/ brings older ones up to date
      runner.py   another process: takes jobs, starts one process for each attempt, watches it
        attempt.py    that process: one fit, one result directory

The database is the record. A web process, a runner or an attempt may die at any moment: a running job whose heartbeat
stops is queued again, and an attempt that was thought dead cannot finish a job that has gone on without it.
"""
