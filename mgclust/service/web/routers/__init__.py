"""The endpoints: one module per kind of object, each with a `router` that `create_app` includes.

jobs        submit, list, watch, cancel, retry and delete jobs, and their logs
results     files of results, and results for other centres
uploads     files that users send
admin       users and tokens
monitoring  /healthz and /metrics
"""
