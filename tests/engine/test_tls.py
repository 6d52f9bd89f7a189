"""A TLS connection that breaks leaves no error to others of its thread: see `mgclust.engine.tls`."""

from __future__ import annotations

import _ssl
import contextlib
import ctypes
import errno
import select
import socket
import ssl
import threading

import distributed
import pytest

from mgclust.engine import tls

pytestmark = pytest.mark.timeout(60)
SYSTEM = 2  # OpenSSL's number of errors of system calls


@pytest.fixture
def contexts(monkeypatch):
    """Of the end that calls and of the one that accepts; whatever guards sockets is undone afterwards."""
    monkeypatch.setattr(ssl.SSLContext, "sslsocket_class", ssl.SSLSocket)
    made = distributed.Security.temporary()
    return made.get_connection_args("client")["ssl_context"], made.get_listen_args("scheduler")["ssl_context"]


@contextlib.contextmanager
def connection(contexts):
    """Both ends of one, neither of them blocking from here on."""
    client, server = contexts
    with socket.create_server(("127.0.0.1", 0)) as listener:
        calling = socket.create_connection(listener.getsockname(), 10)
        accepted = listener.accept()[0]
    accepted.settimeout(10)
    ends = []
    thread = threading.Thread(target=lambda: ends.append(server.wrap_socket(accepted, server_side=True)))
    thread.start()
    with client.wrap_socket(calling) as near:
        thread.join()
        with ends[0] as far:
            near.setblocking(False)
            far.setblocking(False)
            yield near, far


def waits(end: ssl.SSLSocket) -> bool:
    """Whether there is nothing to read, and nothing wrong."""
    try:
        return end.recv(1) and False
    except ssl.SSLWantReadError:
        return True
    except OSError:
        return False


class Breaks:
    """A connection's object of Python's, that does what newer ones do when a system call fails."""

    openssl = ctypes.CDLL(getattr(_ssl, "__file__", None))

    def read(self, *_):
        self.openssl.ERR_new()
        self.openssl.ERR_set_error(SYSTEM, errno.EPIPE, None)
        raise BrokenPipeError(errno.EPIPE, "Broken pipe")

    write = shutdown = do_handshake = read


CALLS = {
    "recv": (1,), "recv_into": (bytearray(1),), "read": (), "write": (b"x",), "send": (b"x",), "sendall": (b"x",),
    "unwrap": (), "do_handshake": (),
}  # fmt: skip


@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize("guarded", [True, False])
def test_no_error_is_left_to_another_connection(contexts, guarded, call):
    if guarded:
        tls.guard()
    with connection(contexts) as (whole, _), connection(contexts) as (broken, other):
        assert waits(whole) and waits(broken)
        other.close()
        broken._sslobj = Breaks()
        with pytest.raises(BrokenPipeError):
            getattr(broken, call)(*CALLS[call])
        # Unguarded, the error of one is the other's: else this test would show nothing.
        assert waits(whole) is guarded


def test_one_that_its_other_end_leaves(contexts):
    """In earnest, with this Python and OpenSSL, whichever they are: Dask leaves all its connections without a word."""
    tls.guard()
    with connection(contexts) as (whole, far), connection(contexts) as (broken, left):
        assert all(map(waits, (whole, far, broken, left)))  # what comes with a handshake is read
        left.close()
        broken.send(b"x")
        refused = select.poll()
        refused.register(broken, 0)
        assert refused.poll(10_000)
        assert not waits(broken)  # its end is read, and the answer to that cannot be written
        assert waits(whole) and waits(far)
        assert far.send(b"here") == 4
        whole.settimeout(10)
        assert whole.recv(4) == b"here"


def test_sockets_of_others_stay_theirs(contexts):
    """Which a context of its own class of sockets makes."""

    class Own(ssl.SSLSocket):
        pass

    contexts[0].sslsocket_class = Own
    tls.guard()
    with connection(contexts) as (near, far):
        assert type(near) is Own and type(far) is tls._Socket
