"""The perimeter of the web process: checks of a request before an endpoint sees it.

::

    server.py            limits of connections: their number, bytes of headers, deadlines
    authentication.py    finds the caller from the headers only, and rejects before the body is read
      callers.py         the caller of a token, cached briefly
      rates.py           rate limits of tokens and addresses
    bodies.py            bodies of requests, read within limits
    batches.py           one transaction for all calls that wait for the database
"""
