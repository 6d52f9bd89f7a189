"""The web process: connections, authentication, endpoints, and the pages that browsers show."""
