"""The job service: submit a job, leave, come back to its result.

::

    client.py, remote_job.py, connection.py    Service(url, token) and its jobs, for programs and the command line
    web/         the web process: connections, tokens, endpoints, pages
    queue/       the database: users, jobs, attempts, uploads, and what each user may keep
    runner/      the runner: claims jobs, starts an attempt of each, and watches it
    confined/    child processes that read users' data: attempts and readers
    settings.py  settings of all processes; audit.py    the audit log; states.py    states of a job
    addresses.py the client address of a request, and which proxies are trusted

A request enters `web`, which changes the queue in one transaction. A runner claims the job and starts an attempt, a
confined child, which leaves one result folder. `web` reads this folder as a file from outside.

The database is the record. A web process, a runner or an attempt may die, hang or be suspended at any time: a running
job whose heartbeat does not change is queued again, and an attempt that was lost by mistake cannot end a job that has
another attempt.
"""
