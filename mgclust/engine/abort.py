"""Signal by which a rank learns that it should stop."""

from __future__ import annotations

from collections.abc import Callable

from mgclust.base.errors import RunCancelled

__all__ = ["Abort"]


class Abort:
    """A flag that other threads set, and that every wait of a rank checks.

    Parameters
    ----------
    orphaned : callable, optional
        Returns whether the client that started the run has gone. It is called at every check.
    """

    def __init__(self, orphaned: Callable[[], bool] | None = None) -> None:
        self._orphaned = orphaned
        self._reason: str | None = None

    def set(self, reason: str) -> None:
        """Make every later `check` raise an error with this reason; further calls of `set` do not change the reason."""
        if self._reason is None:
            self._reason = reason

    @property
    def is_set(self) -> bool:
        """True if `set` was called, or if a `check` has raised an error."""
        return self._reason is not None

    def check(self) -> None:
        """Raise an error if the run was stopped.

        Raises
        ------
        RunCancelled
            `set` was called, or the client no longer waits for the result.
        """
        if self._reason is None and self._orphaned is not None and self._orphaned():
            self._reason = "the client that started it has gone"
        if self._reason is not None:
            raise RunCancelled(f"the run was stopped: {self._reason}.")
