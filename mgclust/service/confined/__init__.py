"""Confined processes that read users' data, and what the service reads of theirs.

::

    fork_server.py       starts all confined children: attempts and readers
    child_process.py     a child as its parent sees it, and whether it hangs
    child_messages.py    what children write, read as messages of hostile processes
    confine.py           gives up rights before data are read; system_calls.py    the filter of system calls
    inputs.py            the inputs of a job, in the process that reads them
    reader_pool.py       orders of the web process to readers; reader_process.py    a reader's own process
    results.py, folders.py    logs, results and folders of attempts, read as hostile files
    caches.py            cache folders of libraries for children
"""
