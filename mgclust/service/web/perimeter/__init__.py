"""The perimeter of the web process: what is decided about a request before an endpoint sees it.

::

    server.py            connections: how many, bytes of headers, deadlines
    authentication.py    the caller, from the headers alone; rejects before the body is read
      callers.py         the caller of a token, cached for a moment
      rates.py           rate limits of tokens and addresses
    bodies.py            bodies of requests, read within limits
    batches.py           calls that wait for the database share its next transaction
"""
