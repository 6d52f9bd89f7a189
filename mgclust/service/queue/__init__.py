"""The queue in the database: users, jobs, attempts, and the files that belong to them.

::

    jobs/          the queue for users: how jobs enter it, lists, and changes
    attempts.py    the queue for runners: claims, heartbeats, and the end of a job, written exactly once
      fair_share.py    choice of the next job
    access.py      users, roles, tokens and scopes
    sources.py     uploads, and files under the roots of the service
      labels_of_jobs.py    doubts about jobs that read the labels of another job
    quotas.py      how much a user may keep; removal.py    removal of deleted jobs and of files of killed processes
      clock.py     whether the clock may decide what has expired; orphans.py    folders that no row names
    revocations.py revocations that a restored database has forgotten; durable.py    files that survive a loss of power
    administration.py    users with their usage and limits, the order of the queue; backup.py    a copy of all
    metrics.py     metrics for Prometheus; log.py    the log of jobs
    models.py      the tables; migrations/    versions of the tables; identity.py    checks of the database's files
"""
