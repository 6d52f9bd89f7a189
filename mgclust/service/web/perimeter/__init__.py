"""The perimeter of the web process: what is decided about a request before an endpoint sees it."""
