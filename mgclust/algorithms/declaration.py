"""Declaration of a method, apart from what computes it: quick to import, for ``--help``.

A method declares its parameters in `options.py` of its folder, in a class that its estimator is derived from.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any, ClassVar, ParamSpec

from mgclust.params import Anything, Boolean, Bytes, Choice, Constraint, Integer, Option, Seed
from mgclust.params.relations import Ignored

__all__ = ["PLACE", "Declaration", "refuses"]

P = ParamSpec("P")

# The command line and the service set these, from options of their own.
PLACE = ("client", "device", "n_workers", "workers", "resources", "retries", "verbose")
IN_MEMORY = ("copy",)  # of rows in memory alone, which neither has


def refuses(**remedies: str) -> Callable[[Callable[P, None]], Callable[P, None]]:
    """Make a constructor say where an argument belongs that is given to it by mistake.

    Parameters
    ----------
    **remedies : str
        What to do, by name of such an argument.
    """

    def decorate(constructor: Callable[P, None]) -> Callable[P, None]:
        @functools.wraps(constructor)
        def checked(*args: P.args, **kwargs: P.kwargs) -> None:
            for name in remedies.keys() & kwargs.keys():
                raise TypeError(
                    f"{name}={kwargs[name]!r} is no parameter of {type(args[0]).__name__}; {remedies[name]}."
                )
            constructor(*args, **kwargs)

        return checked

    return decorate


class Declaration:
    """Name of a method, and its parameters with their defaults, which its constructor has.

    Attributes
    ----------
    method : str
        Name on the command line.
    opens : {"rows", "graph"}
        What the command line opens for it.
    constraints : dict of str to Constraint
        Its own parameters.
    common : dict of str to Constraint
        Those of all methods; of these a method has what its constructor takes.
    ignored_when : tuple of Ignored
        Parameters that others make void: a fit warns of each that was given.
    center_parameters : dict of str to Constraint
        A method that has some can choose other centres of a result without another pass: its class method
        `from_result` makes an estimator of the result, whose `select_centers` takes these. They replace parameters of
        the same name.
    discarded_by_centers : tuple of str
        Parameters of the method that have no meaning for another choice.
    """

    method: ClassVar[str]
    opens: ClassVar[str] = "rows"
    constraints: ClassVar[dict[str, Constraint]]
    center_parameters: ClassVar[dict[str, Constraint]] = {}
    discarded_by_centers: ClassVar[tuple[str, ...]] = ()
    ignored_when: ClassVar[tuple[Ignored, ...]] = ()
    common: ClassVar[dict[str, Constraint]] = {
        "device": Choice("auto", "cpu", "cuda", help="Where to compute; auto: a GPU if there is one."),
        "client": Anything(help="A Dask client or scheduler address; 'auto', 'local' or None."),
        "n_workers": Integer(at_least=1, optional=True, help="How many of a cluster's workers to take."),
        "workers": Anything(help="Addresses, names or hosts of the workers of a cluster that a run may have."),
        "resources": Anything(help="Resources of Dask that each rank takes, by name."),
        "retries": Integer(at_least=0, help="How often a run that has lost a worker of its cluster is tried again."),
        "dtype": Choice("float32", "float64", help="Number type of the distances."),
        "memory_limit": Bytes(
            optional=True,
            help="Memory by which one rank may grow, e.g. '4 GiB'; rows that do not fit are streamed.",
        ),
        "random_state": Seed(help="Seed of everything random; none: as 0, so that a run again is the same."),
        "verbose": Boolean(help="Print progress."),
        "copy": Boolean(help="Has no effect: what is given is never changed."),
    }

    def __init_subclass__(cls, **arguments: Any) -> None:
        super().__init_subclass__(**arguments)
        if "__init__" in cls.__dict__:  # Python names it where an argument is none of its parameters
            inspect.unwrap(cls.__init__).__qualname__ = f"{cls.__qualname__.removesuffix('Options')}.__init__"

    @classmethod
    def summary(cls) -> str:
        """Purpose of the method in a line: the first one of its docstring."""
        return (cls.__doc__ or "").strip().split("\n")[0]

    @classmethod
    @functools.cache
    def defaults(cls) -> dict[str, Any]:
        """The defaults of all parameters, by name."""
        return {name: each.default for name, each in inspect.signature(cls).parameters.items()}

    @classmethod
    @functools.cache  # the service asks with every job
    def options(cls) -> tuple[Option, ...]:
        """The parameters that a user of the command line or of the service gives, own ones first."""
        constraints, taken = {**cls.constraints, **cls.common}, cls.defaults()
        given = (name for name in constraints if name in taken and name not in (*PLACE, *IN_MEMORY))
        return tuple(Option(name, taken[name], constraints[name]) for name in given)
