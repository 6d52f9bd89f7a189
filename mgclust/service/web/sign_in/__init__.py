"""Signing in at an OpenID Connect provider, by Authlib and joserfc (``pip install 'mgclust[sso]'``).

``/sign-in/openid`` sends the browser to the provider (`endpoints`), and the provider sends it back with a code. The
code is exchanged for an ID token, which is verified (`provider`). Its groups decide the role of the user
(`mgclust.service.queue.identities`), for whom a session begins.
"""
