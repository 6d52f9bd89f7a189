"""The GPUs of this machine, as the runner allocates them to attempts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from itertools import chain
from typing import Any

from mgclust.base.errors import InputError

__all__ = ["Devices"]


class Devices:
    """GPUs for jobs that run at once.

    Each GPU is for one job at a time, unless there are more slots than GPUs: then each is for as many as that takes.

    Parameters
    ----------
    names : iterable of str
        As in CUDA_VISIBLE_DEVICES.
    slots : int
        Number of jobs that run at once.
    """

    def __init__(self, names: Iterable[str], slots: int) -> None:
        self.names, self._slots = tuple(names), slots

    def number_for(self, resources: Mapping[str, Any]) -> int:
        """Number of GPUs of a job: what it asks for, else one, as on the command line; 0 if it runs on CPUs.

        Raises
        ------
        InputError
            It asks for more than there are.
        """
        asked, count = resources.get("gpus"), len(self.names)
        if resources.get("workers"):
            return 0
        if asked and not count:
            raise InputError(f"gpus={asked} cannot be given: the service's machine has no GPU; leave gpus out.")
        if asked and asked > count:
            raise InputError(f"gpus={asked} should be <= {count}, the GPUs of the service's machine; ask for fewer.")
        return asked or min(1, count)

    def free(self, number: int, held: Iterable[Iterable[str]]) -> list[str] | None:
        """Pick so many GPUs, those of the fewest jobs first; None while not enough are free.

        Parameters
        ----------
        number : int
        held : iterable
            The GPUs of each job that runs.
        """
        holders = Counter(chain.from_iterable(held))
        free = [name for name in self.names if holders[name] * len(self.names) < self._slots]
        return sorted(free, key=holders.__getitem__)[:number] if number <= len(free) else None
