"""Confined processes that read users' data, and the code with which the service reads their output.

::

    fork_server.py       starts all confined children: attempts and readers
    child_process.py     the parent's view of a child, and whether the child hangs
    child_messages.py    messages of children, checked as if the children were hostile
    confine.py           gives up rights before data are read; system_calls.py    filters system calls
    inputs.py            the inputs of a job, in the process that reads them
    reader_pool.py       sends orders of the web process to readers; turns.py    a queue per user
    reader_process.py    the process of a reader
    results.py, folders.py    read logs, results and folders of attempts as untrusted files
    caches.py            cache folders of libraries for children
"""
