"""The queue in the database: users, jobs, attempts, and the files that belong to them.

::

    jobs.py        the queue for users: each change is one transaction
    attempts.py    the queue for runners: claims, heartbeats, and the end of a job, written exactly once
      fair_share.py    which job is next
    access.py      users, roles, tokens and scopes
    sources.py     uploads, and files under the roots of the service
    quotas.py      how much a user may keep; removal.py    removal of deleted jobs and of leftovers
    metrics.py     metrics for Prometheus; log.py    the log of jobs
    models.py      the tables; migrations/    their versions; identity.py    checks of the database's files
"""
