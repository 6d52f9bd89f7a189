"""Declarations of methods: names, parameters and defaults, without the computation, so that ``--help`` is quick.

Each method declares its parameters in `options.py` of its folder, in a class from which its estimator is derived.
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

# The command line and the service set these parameters from their own options.
PLACE = ("client", "device", "n_workers", "workers", "resources", "retries", "verbose")
IN_MEMORY = ("copy",)  # only for rows in memory, which neither the command line nor the service has


def refuses(**remedies: str) -> Callable[[Callable[P, None]], Callable[P, None]]:
    """Return a decorator that makes a constructor reject some arguments and suggest a remedy.

    Parameters
    ----------
    **remedies : str
        Remedies by the names of arguments that users may pass by mistake.

    Returns
    -------
    callable
        The decorator.
    """

    def decorate(constructor: Callable[P, None]) -> Callable[P, None]:
        @functools.wraps(constructor)
        def checked(*args: P.args, **kwargs: P.kwargs) -> None:
            for name in remedies.keys() & kwargs.keys():
                raise TypeError(
                    f"{name}={kwargs[name]!r} is not a parameter of {type(args[0]).__name__}; {remedies[name]}."
                )
            constructor(*args, **kwargs)

        return checked

    return decorate


class Declaration:
    """Name and parameters of a method. The constructor defines the defaults.

    Attributes
    ----------
    method : str
        Name on the command line.
    opens : {"rows", "series", "graph"}
        Kind of data that the command line opens for the method; series are rows with neighbours.
    constraints : dict of str to Constraint
        Parameters of this method.
    common : dict of str to Constraint
        Parameters that several methods share; a method has a shared parameter if its constructor takes it.
    ignored_when : tuple of Ignored
        Parameters that have no effect with certain values of other parameters. If such a parameter is given, a fit
        warns.
    center_parameters : dict of str to Constraint
        Parameters of `select_centers`, if the method can choose other centres for a result without another pass over
        the data; otherwise empty. Such a method also has a class method `from_result`, which makes an estimator from a
        result. The parameters of `select_centers` replace the method's parameters of the same name.
    discarded_by_centers : tuple of str
        Parameters of the method that no longer apply after other centres have been chosen.
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
        "n_workers": Integer(at_least=1, optional=True, help="Number of a cluster's workers to use."),
        "workers": Anything(help="Addresses, names or hosts of the workers of a cluster that a run may use."),
        "resources": Anything(help="Dask resources that each rank reserves, by name."),
        "retries": Integer(at_least=0, help="How often to retry a run that lost a worker of its cluster."),
        "dtype": Choice("float32", "float64", help="Number type of the distances."),
        "memory_limit": Bytes(
            optional=True,
            help="Memory by which one rank may grow, e.g. '4 GiB'; rows that do not fit are streamed.",
        ),
        "random_state": Seed(help="Random seed; none means 0, so a repeated run gives the same result."),
        "verbose": Boolean(help="Print progress."),
        "copy": Boolean(help="Has no effect: input arrays are never changed."),
    }

    def __init_subclass__(cls, **arguments: Any) -> None:
        super().__init_subclass__(**arguments)
        if "__init__" in cls.__dict__:  # Python's error about an unknown argument quotes this name
            inspect.unwrap(cls.__init__).__qualname__ = f"{cls.__qualname__.removesuffix('Options')}.__init__"

    @classmethod
    def summary(cls) -> str:
        """Return the purpose of the method in one line, the first line of its docstring.

        Returns
        -------
        str
        """
        return (cls.__doc__ or "").strip().split("\n")[0]

    @classmethod
    @functools.cache
    def defaults(cls) -> dict[str, Any]:
        """Return the defaults of all parameters, by name.

        Returns
        -------
        dict of str to object
        """
        return {name: each.default for name, each in inspect.signature(cls).parameters.items()}

    @classmethod
    @functools.cache  # the service calls this for every job
    def options(cls) -> tuple[Option, ...]:
        """Return the parameters that users of the command line or the service can set; the method's own come first.

        Returns
        -------
        tuple of Option
        """
        constraints, taken = {**cls.constraints, **cls.common}, cls.defaults()
        given = (name for name in constraints if name in taken and name not in (*PLACE, *IN_MEMORY))
        return tuple(Option(name, taken[name], constraints[name]) for name in given)
