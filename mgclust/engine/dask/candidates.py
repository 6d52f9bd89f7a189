"""Workers of a running cluster that a run may use, and the reasons why it may not use the others.

A run may use a worker that the caller permits and that is not paused. The worker needs this version of mgclust and, for
a run on GPUs, a GPU. Other workers are left out. A run waits for the first answer of each permitted worker, because a
new worker often needs seconds to import mgclust, and a run takes all workers that are there.
"""

from __future__ import annotations

import pkgutil
from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from math import isfinite
from numbers import Integral, Real
from typing import Any

from mgclust import __version__
from mgclust.base.errors import DeviceUnavailableError, InputError, RunFailed, WorkerWarning, described, warn_caller
from mgclust.outside.quoting import shortened

__all__ = ["WorkerCandidates", "WorkerRules", "candidates_of"]

NAMED = 3  # number of workers that a message names; it counts the others


@dataclass(frozen=True)
class WorkerRules:
    """Workers that the caller of a run permits.

    Attributes
    ----------
    workers : tuple of str and int, or None
        Addresses, names (aliases) or hosts, as in ``Client.submit``. None: all workers.
    resources : dict of str to float, or None
        Resources of Dask that each rank takes while it runs.
    """

    workers: tuple[str | int, ...] | None = None
    resources: dict[str, float] | None = None

    @classmethod
    def checked(cls, workers: Any, resources: Any) -> WorkerRules:
        """Check the arguments of a user, and make rules from them.

        Parameters
        ----------
        workers, resources : object
            Arguments of `mgclust.engine.dask.cluster.connect`.

        Raises
        ------
        InputError
            An argument is invalid.
        """
        given = workers.tolist() if hasattr(workers, "tolist") else workers  # an array or number of NumPy
        given = (given,) if isinstance(given, (str, int)) else given
        if given is not None:
            several = isinstance(given, Collection) and not isinstance(given, (Mapping, bytes))
            if not several or len(given) == 0 or not all(_is_name(each) for each in given):
                raise InputError(
                    f"workers={shortened(repr(workers))} should be addresses, names or hosts of workers; give at least "
                    "one, as in Client.submit, such as ['tcp://10.0.0.7:40331', 'gpu-1'], or a number of workers as "
                    "n_workers=."
                )
            given = tuple(each if isinstance(each, str) else int(each) for each in given)
        if resources is None:
            return cls(given)
        amounts = {name: _amount(each) for name, each in resources.items()} if isinstance(resources, Mapping) else {}
        if not amounts or not all(isinstance(name, str) and amount > 0 for name, amount in amounts.items()):
            raise InputError(
                f"resources={shortened(repr(resources))} should be a dict of amounts > 0 by name, such as "
                "{'GPU': 1}; give resources that workers were started with (dask worker --resources)."
            )
        return cls(given, amounts)

    def __bool__(self) -> bool:
        return self.workers is not None or self.resources is not None

    def __str__(self) -> str:
        parts = [] if self.workers is None else [f"workers={shortened(repr(list(self.workers)))}"]
        parts += [] if self.resources is None else [f"resources={shortened(repr(self.resources))}"]
        return " and ".join(parts)

    def permit(self, address: str, record: Mapping[str, Any]) -> bool:
        """Return whether the caller permits a worker.

        Parameters
        ----------
        address : str
            Address of the worker.
        record : mapping
            The scheduler's record of the worker.
        """
        offered = record.get("resources") or {}
        return self._named(address, record) and all(
            offered.get(name, 0) >= amount for name, amount in (self.resources or {}).items()
        )

    def missing(self, records: Mapping[str, Mapping[str, Any]]) -> list[str]:
        """Return the workers that the caller names, but that the cluster does not have.

        Parameters
        ----------
        records : mapping of str to mapping
            The scheduler's records of its workers, by address.
        """
        there = {name for address, record in records.items() for name in _names(address, record)}
        return [str(each) for each in self.workers or () if str(each) not in there]

    def _named(self, address: str, record: Mapping[str, Any]) -> bool:
        return self.workers is None or not _names(address, record).isdisjoint(map(str, self.workers))


def _is_name(value: Any) -> bool:
    return isinstance(value, (str, Integral)) and not isinstance(value, bool) and value != ""


def _amount(value: Any) -> float:
    """Return an amount of a resource, or 0 if the value is not a finite number."""
    number = value.item() if getattr(value, "ndim", None) == 0 else value  # a number of NumPy
    try:
        amount = float(number) if isinstance(number, Real) and not isinstance(number, bool) else 0.0
    except OverflowError:
        return 0.0
    return amount if isfinite(amount) else 0.0


def _names(address: str, record: Mapping[str, Any]) -> set[str]:
    """Return all texts by which `workers` may name a worker."""
    return {address, address.partition("://")[2], str(record.get("name", "")), str(record.get("host", ""))}


@dataclass(frozen=True)
class WorkerCandidates:
    """Workers of a cluster at one moment.

    Attributes
    ----------
    rules : WorkerRules
        Workers that the caller permits.
    device : {"cpu", "cuda"}
        Device of the ranks.
    offers : dict of str to mgclust.engine.dask.tasks.Offer
        Devices of the workers that a run may use, by address, in the order of addresses.
    unfit : dict of str to str
        Reasons why a run may not use some workers that the rules permit, by address.
    paused : list of str
        Addresses of workers that are paused and take no tasks now.
    missing : list of str
        Workers that the rules name but the cluster does not have.
    n_permitted, n_workers : int
        Number of workers that the rules permit, and number of workers of the cluster.
    """

    rules: WorkerRules
    device: str
    offers: dict[str, Any]
    unfit: dict[str, str] = field(default_factory=dict)
    paused: list[str] = field(default_factory=list)
    missing: list[str] = field(default_factory=list)
    n_permitted: int = 0
    n_workers: int = 0

    def warn(self) -> None:
        """Warn of all workers that are left out, in one warning."""
        if reasons := [*_left_out(self.unfit), *self._missing()]:
            there = f"the run may use {len(self.offers)} of {self.n_workers} worker(s)"
            warn_caller(f"{there}: {'; '.join(reasons)}. Choose workers with workers=.", WorkerWarning)

    def why(self) -> str:
        """Return the reasons why there are no more workers, as a clause; empty if there are no reasons."""
        reasons = [] if not self.rules else [f"{self.rules} permits {self.n_permitted} of {self.n_workers}"]
        if self.paused:
            reasons.append(f"paused: {_listed(self.paused)} (nearly out of memory: free some, or restart the worker)")
        reasons += _left_out(self.unfit) + self._missing()
        return f" ({'; '.join(reasons)})" if reasons else ""

    def _missing(self) -> list[str]:
        return [f"not in the cluster: {_listed(self.missing)}"] if self.missing else []


def _left_out(unfit: Mapping[str, str]) -> list[str]:
    """Return a clause for each reason why workers are left out."""
    reasons = dict.fromkeys(unfit.values())
    return [f"{_listed([each for each in unfit if unfit[each] == reason])} left out: {reason}" for reason in reasons]


def _listed(names: list[str]) -> str:
    more = len(names) - NAMED
    return ", ".join(names[:NAMED]) + (f" and {more} more" if more > 0 else "")


def candidates_of(client: Any, rules: WorkerRules, device: str) -> WorkerCandidates:
    """Find the workers of a cluster that a run may use.

    Parameters
    ----------
    client : distributed.Client
        Client of the cluster.
    rules : WorkerRules
        Workers that the caller permits.
    device : {"auto", "cpu", "cuda"}
        Device of the ranks; "auto": GPUs if any worker has one, else CPUs.

    Raises
    ------
    InputError
        There are workers, but none of them can run mgclust.
    DeviceUnavailableError
        No worker has a GPU, or two workers share one.
    RunFailed
        The workers do not answer.
    """
    from mgclust.engine.dask.scheduler import workers_of

    records = workers_of(client)
    permitted = {address: record for address, record in sorted(records.items()) if rules.permit(address, record)}
    running = {address: record for address, record in permitted.items() if record["status"] == "running"}
    paused = [address for address, record in permitted.items() if record["status"] == "paused"]
    offers, unfit = _offers(client, running)
    if unfit and not offers:
        reasons = "; ".join(_left_out(unfit))
        raise InputError(f"none of {len(unfit)} worker(s) can run mgclust: {reasons}.")
    device, without = _device_of(offers, device)
    for address, reason in without.items():
        del offers[address]
        unfit[address] = f"no GPU ({reason}; device='cpu' needs no GPU)"
    return WorkerCandidates(rules, device, offers, unfit, paused, rules.missing(records), len(permitted), len(records))


def _offers(client: Any, running: Mapping[str, Mapping[str, Any]]) -> tuple[dict[str, Any], dict[str, str]]:
    """Return the devices of workers by address, and the reasons why other workers cannot run mgclust.

    Each worker process gets this request only once, and is recognised by its folder. A worker that cannot run mgclust
    gets the request each time.
    """
    from mgclust.engine.dask.tasks import offer

    known = vars(client).setdefault("mgclust_offers", {})
    for address in list(known):
        if address in running and known[address][0] != running[address]["local_directory"]:
            known.pop(address, None)
    unknown = [address for address in running if address not in known]
    # The function is in the standard library: the worker may have no mgclust, or another version of mgclust or Python.
    versions = _answers(client, unknown, pkgutil.resolve_name, "mgclust:__version__")
    same = [address for address, version in versions.items() if version == __version__]
    # A worker that leaves between the two requests has no offer, and does not count as unfit.
    offers = _answers(client, same, offer)
    failed = {address: found for address, found in offers.items() if isinstance(found, BaseException)}
    others = {address: version for address, version in versions.items() if address not in same}
    unfit = {address: _why_unfit(answer) for address, answer in {**others, **failed}.items()}
    known.update(
        {
            address: (running[address]["local_directory"], found)
            for address, found in offers.items()
            if address not in unfit
        }
    )
    fit = [address for address in running if address in known and (address not in unknown or address in offers)]
    return {address: known[address][1] for address in fit}, unfit


def _why_unfit(answer: Any) -> str:
    if isinstance(answer, ModuleNotFoundError):
        return f"no module {answer.name} (install mgclust {__version__} there)"
    if isinstance(answer, BaseException):
        return shortened(described(answer))
    return f"mgclust {shortened(answer)} instead of {__version__} (install the same version)"


def _answers(client: Any, workers: list[str], function: Any, *arguments: Any) -> dict[str, Any]:
    """Call a function on workers; return values or exceptions by address, without workers that have left."""
    from mgclust.engine.dask.scheduler import ANSWER_SECONDS, workers_of

    if not workers:
        return {}
    try:
        asked = {"workers": workers, "on_error": "return", "callback_timeout": ANSWER_SECONDS}
        found: dict[str, Any] = client.run(function, *arguments, **asked)
    except TimeoutError:
        heard = {address: record["last_seen"] for address, record in workers_of(client).items() if address in workers}
        silent = min(heard, key=lambda address: heard[address], default="")
        raise RunFailed(
            f"some workers have not answered for {ANSWER_SECONDS:g} s, {silent} for the longest time: its process is "
            "stopped or hangs, or its machine is gone. End it, or leave it out with workers=, and run again."
        ) from None
    except Exception as error:
        raise RunFailed(f"the workers did not answer: {type(error).__name__}: {error}.") from error
    if any(isinstance(each, OSError) for each in found.values()):  # workers of an adaptive cluster may leave
        there = workers_of(client)
        found = {address: each for address, each in found.items() if not isinstance(each, OSError) or address in there}
    return found


def _device_of(offers: Mapping[str, Any], device: str) -> tuple[str, dict[str, str]]:
    """Choose one device for all ranks; also return the reasons why workers do not have it, by address."""
    without = {address: each.why_no_gpu for address, each in offers.items() if each.why_no_gpu}
    if device == "cpu" or not offers or (device == "auto" and len(without) == len(offers)):
        return ("cpu" if device == "auto" else device), {}
    if len(without) == len(offers):
        address, reason = next(iter(without.items()))
        raise DeviceUnavailableError(
            f"{len(without)} of {len(offers)} workers have no GPU (the first, {address}: {reason}); use device='cpu', "
            "or a cluster with GPU workers (dask cuda worker)."
        )
    having = [address for address in offers if address not in without]
    shared = [gpu for gpu, count in Counter(offers[address].gpu for address in having).items() if count > 1]
    if shared:
        twins = [address for address in having if offers[address].gpu == shared[0]]
        raise DeviceUnavailableError(
            f"workers {', '.join(twins)} would share one GPU; start one worker per GPU (dask cuda worker, or "
            "client='local'), leave some out with workers=, or use device='cpu'."
        )
    return "cuda", without
