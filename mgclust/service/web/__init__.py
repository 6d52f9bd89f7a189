"""The web process: connections, authentication, endpoints, and the pages that browsers show.

::

    perimeter/       checks of a request before an endpoint sees it
    app.py           assembles the web application
      routers/       the endpoints: jobs, results, uploads, admin, monitoring
        dependencies.py, requests.py, views.py    dependencies, requests and responses of endpoints
      errors.py      rejections: a status code, a message, and the kind of fault
      sent_file.py   a file of a result as a response
      streams.py     event streams of jobs; health.py    the report of /healthz
      recenter.py    results of a job for other centres, computed by confined readers
    pages.py         the pages, made of templates/, with the static files of pages/ and security headers
"""
