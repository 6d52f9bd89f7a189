"""The endpoints: one module per kind of object, each with a `router` that `create_app` includes.

jobs        submit, list, watch, rename, compare, cancel, retry and delete jobs, and their logs
sweeps      jobs that differ in some parameters, as one
results     files of results, and results for other centres
uploads     files that users send
admin       users and tokens, the queue, the audit log, pins
links       read-only links to results
sessions    sessions of browsers
webhooks    addresses that receive a message at the end of each job
monitoring  /healthz and /metrics
"""
