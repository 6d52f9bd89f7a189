"""A reader of the service that stops before it opens its data: the module of a web process's readers in a test."""

import os
import signal

from mgclust.service.confined import fork_server, reader_process


def _stop(*given):
    os.kill(os.getpid(), signal.SIGSTOP)


if __name__ == "__main__":
    reader_process._open_source = _stop
    fork_server.run_child(reader_process.main)
