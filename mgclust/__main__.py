"""The command ``mgclust``, also as ``python -m mgclust``."""

import os
import signal

__all__ = ["main"]


def main() -> None:
    """Import the command line, and run it.

    While modules are imported, Ctrl-C ends the process at once: if the signal raised an exception, an extension module
    could turn it into another exception.
    """
    handled = signal.getsignal(signal.SIGINT) is signal.default_int_handler  # False in the background of a shell
    if handled:
        signal.signal(signal.SIGINT, _cancel)
    from mgclust.cli import main

    if handled:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    main()


def _cancel(number: int, frame: object) -> None:
    os.write(2, b"cancelled\n")
    os._exit(130)


if __name__ == "__main__":
    main()
