"""The job service: submit a job, disconnect, fetch the result later.

::

    client/      Service(url, token) and its jobs, for programs and the command line
    web/         the web process: connections, tokens, endpoints, pages
    queue/       the database: users, jobs, attempts, uploads, and the quota of each user
    runner/      the runner: claims jobs, starts an attempt for each, and monitors it
    confined/    child processes that read users' data: attempts and readers
    settings.py  settings of all processes; audit.py    the audit log; states.py    states of a job
    addresses.py the client address of a request, and which proxies are trusted

A request enters `web`, which changes the queue in one transaction. A runner claims the job and starts an attempt.
The attempt is a confined child process that writes one result folder. `web` reads this folder as untrusted content.

Only the database keeps jobs, so a web process, a runner or an attempt may die, hang or be suspended at any time. A
running job is queued again if its heartbeat stops changing. If the old attempt then resumes, it cannot end the job,
because the job has a newer attempt.
"""
