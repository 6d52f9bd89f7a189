"""The queue for users. Each change is one transaction.

::

    submission.py    jobs enter the queue
    lists.py         jobs that a caller may see
    changes.py       names, cancellation and deletion

    PENDING ──claim──> RUNNING ──> SUCCEEDED
       ^                  │ ├────> FAILED      fault of the data, the parameters or the memory: at once;
       └── lost, or the ──┘ │                  fault of the cluster: after `attempts` attempts
           cluster's fault  └────> CANCELLED
    FAILED, CANCELLED ──retry──> PENDING
    SUCCEEDED, FAILED, CANCELLED ──delete──> nothing

Runners claim and end jobs (``attempts.py``).
"""
