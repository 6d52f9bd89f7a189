"""The client of a service, for Python programs and for the command line.

::

    service.py       Service(url, token): finds, lists and compares jobs
      submission.py  submits jobs and sweeps; in_memory.py    arrays and tables as files
        uploads.py   sends files
      accounts.py    users, tokens, webhooks
        connection.py    URL, token, requests and retries
    remote_job.py    a job: its state, log and result; remote_sweep.py    jobs that differ in some parameters
"""
