"""Keep a TLS connection that breaks from breaking others of its thread.

OpenSSL keeps a queue of errors for each thread, and tells the outcome of a call by what is in it. Where a system call
fails, Python's ssl module raises OSError and leaves the queue as it is. The next call that would only have to wait, of
any connection of that thread, is then told that error: Dask closes a connection that was whole, with "Broken pipe",
and a worker that has just come leaves. That is so with OpenSSL 3.4 and newer and Python that has the change gh-127257,
such as Debian 13's (3.13.5, OpenSSL 3.5): https://github.com/python/cpython/issues/148594, open in 2026.

`guard` has sockets empty the queue after such an error. It is for all connections of a process, as the queue is, and
each process of a cluster needs it: those that mgclust starts have it; others get it as Dask's commands load modules,
by ``--preload mgclust.engine.tls`` and, for nannies, ``--preload-nanny mgclust.engine.tls``.
"""

from __future__ import annotations

import functools
import ssl
from collections.abc import Callable
from typing import Any

__all__ = ["MODULE", "dask_setup", "guard"]

MODULE = __name__  # what Dask is told to load
_ANY = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)


def guard() -> None:
    """Let connections with TLS that this process makes from now on leave no error to others; again does nothing."""
    ssl.SSLContext.sslsocket_class = _Socket


def dask_setup(server: Any) -> None:
    """Prepare a process that loads this module; Dask calls it before the process has connections."""
    guard()


def _empty() -> None:
    # Python empties the queue before it makes a new object; this one takes some microseconds and is dropped.
    _ANY.wrap_bio(ssl.MemoryBIO(), ssl.MemoryBIO(), server_side=True)


def _emptying(call: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(call)
    def then_empty(*arguments: Any, **options: Any) -> Any:
        try:
            return call(*arguments, **options)
        except ssl.SSLError:
            raise  # Python has emptied the queue; sockets that wait raise these all the time
        except OSError:
            _empty()
            raise

    return then_empty


class _Socket(ssl.SSLSocket):
    """Calls of OpenSSL to read, write, begin or end; the other methods call these."""

    do_handshake = _emptying(ssl.SSLSocket.do_handshake)
    read = _emptying(ssl.SSLSocket.read)
    write = _emptying(ssl.SSLSocket.write)
    send = _emptying(ssl.SSLSocket.send)
    unwrap = _emptying(ssl.SSLSocket.unwrap)
