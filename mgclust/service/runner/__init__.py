"""The runner, which takes jobs from the queue and runs an attempt of each job in a separate process.

::

    supervisor.py         starts a runner, and replaces it if it ends or hangs
    runner.py             claims jobs, starts attempts, and writes their heartbeats and ends to the queue
      runner_lock.py      one runner at a time in a data folder
      devices.py          allocation of GPUs to attempts
      semaphores.py       removes semaphores that killed attempts left
      running_attempt.py  the runner's view of an attempt, and the attempt's limits
    attempt.py            the process of an attempt: confines itself, reads, fits, writes one result
"""
