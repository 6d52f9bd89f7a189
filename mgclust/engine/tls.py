"""Keep a broken TLS connection from breaking other connections of its thread.

OpenSSL keeps a queue of errors per thread, and derives the outcome of a call from the queue. If a system call fails,
Python's ssl module raises OSError and does not clear the queue. If the next call for any connection of the thread would
only have to wait, the call gets this old error instead. Dask then closes the intact connection with "Broken pipe", and
a worker that has just joined leaves. This happens with OpenSSL 3.4 and newer and Python versions with the change
gh-127257, such as Debian 13's (3.13.5, OpenSSL 3.5): https://github.com/python/cpython/issues/148594, open in 2026.

`guard` makes sockets clear the queue after such an error. It applies to all connections of a process, and each process
of a cluster needs it. Processes that mgclust starts call `guard`. Other processes load this module by options of Dask's
commands: ``--preload mgclust.engine.tls`` and, for nannies, ``--preload-nanny mgclust.engine.tls``.
"""

from __future__ import annotations

import functools
import ssl
from collections.abc import Callable
from typing import Any

__all__ = ["MODULE", "dask_setup", "guard"]

MODULE = __name__  # module that Dask is told to load
_ANY = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)


def guard() -> None:
    """Make TLS connections that this process opens from now on clear their errors; further calls have no effect."""
    ssl.SSLContext.sslsocket_class = _Socket


def dask_setup(server: Any) -> None:
    """Prepare a process that loads this module; Dask calls this before the process has connections."""
    guard()


def _empty() -> None:
    # Python clears the queue before it makes a new TLS object. The object is dropped; making it takes microseconds.
    _ANY.wrap_bio(ssl.MemoryBIO(), ssl.MemoryBIO(), server_side=True)


def _emptying(call: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(call)
    def then_empty(*arguments: Any, **options: Any) -> Any:
        try:
            return call(*arguments, **options)
        except ssl.SSLError:
            raise  # Python has cleared the queue; waiting sockets raise these errors all the time
        except OSError:
            _empty()
            raise

    return then_empty


class _Socket(ssl.SSLSocket):
    """A socket that clears the queue after an error in one of these methods; all other methods call these methods."""

    do_handshake = _emptying(ssl.SSLSocket.do_handshake)
    read = _emptying(ssl.SSLSocket.read)
    write = _emptying(ssl.SSLSocket.write)
    send = _emptying(ssl.SSLSocket.send)
    unwrap = _emptying(ssl.SSLSocket.unwrap)
