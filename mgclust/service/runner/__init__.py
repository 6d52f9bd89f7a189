"""The runner: takes jobs from the queue and runs an attempt of each in a process of its own.

::

    supervisor.py         starts a runner, and replaces it if it ends or hangs
    runner.py             claims jobs, starts attempts, and writes their heartbeats and ends to the queue
      runner_lock.py      one runner at a time in a data folder
      devices.py          the GPUs that each attempt has
      running_attempt.py  an attempt as the runner sees it, and its limits
    attempt.py            the attempt's own process: confines itself, reads, fits, leaves one result
"""
