"""What a job is asked for, checked when it is submitted: whatever can be known then is refused then."""

from __future__ import annotations

from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from mgclust.algorithms import METHODS
from mgclust.errors import InputError
from mgclust.params import check_parameters

__all__ = ["NOT_A_JOBS", "Resources", "Source", "Submission", "describe_methods"]

# Parameters of the estimators that the service decides.
NOT_A_JOBS = {"client", "device", "verbose"}
ROW_OPTIONS = {"columns", "delimiter", "standardize", "detrend", "constant"}
GRAPH_OPTIONS = {"columns", "n_nodes"}


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid")


class Source(_Strict):
    """One thing to read: an upload, or a path below a folder that the service may read."""

    upload: Annotated[str, Field(max_length=64)] | None = None
    path: Annotated[str, Field(max_length=4096)] | None = None

    @model_validator(mode="after")
    def _one(self) -> Self:
        if (self.upload is None) == (self.path is None):
            raise ValueError("a source should be either {'upload': id} or {'path': path}")
        return self


class Resources(_Strict):
    """What a job may use of the machine, where the service runs on one machine."""

    gpus: Annotated[int, Field(ge=1, le=1024)] | None = None
    workers: Annotated[int, Field(ge=1, le=1024)] | None = None


class Options(_Strict):
    """How the source is read, as on the command line."""

    columns: Annotated[str, Field(max_length=4096)] | None = None
    delimiter: Annotated[str, Field(max_length=1)] | None = None
    standardize: Literal["zscore"] | None = None
    detrend: bool | None = None
    constant: Literal["drop", "refuse"] | None = None
    n_nodes: Annotated[int, Field(ge=1, lt=2**31)] | None = None


class Submission(_Strict):
    """A job as it is submitted."""

    method: Annotated[str, Field(max_length=64)]
    sources: Annotated[list[Source], Field(min_length=1, max_length=1000)]
    parameters: dict[Annotated[str, Field(max_length=64)], Any] = {}
    options: Options = Options()
    mask: Source | None = None
    resources: Resources = Resources()
    report: bool = True
    priority: Annotated[int, Field(ge=-100, le=100)] = 0
    key: Annotated[str, Field(min_length=1, max_length=200)] | None = Field(
        None, description="Of the sender's choice: the same key again is the same job, not another."
    )

    def check(self) -> None:
        """Refuse an unknown method, parameters that it does not have or take, options for other data.

        Raises
        ------
        InputError
        """
        method = METHODS.get(self.method)
        if method is None:
            raise InputError(f"method={self.method!r} should be one of {', '.join(map(repr, METHODS))}.")
        constraints = {name: c for name, c in {**method.constraints, **method.common}.items() if name not in NOT_A_JOBS}
        for name, value in self.parameters.items():
            if name not in constraints:
                raise InputError(f"{name!r} is no parameter of {self.method}; it has {', '.join(constraints)}.")
            if not isinstance(value, (str, int, float, bool, type(None))):
                raise InputError(f"{name} should be a number, a text or a truth value; a job takes no arrays.")
        check_parameters({name: constraints[name] for name in self.parameters}, self.parameters)
        graph = method.opens == "graph"
        given = {name for name, value in self.options.model_dump().items() if value is not None}
        wrong = given - (GRAPH_OPTIONS if graph else ROW_OPTIONS)
        if wrong or (graph and self.mask):
            raise InputError(f"{', '.join(sorted(wrong)) or 'mask'} does not go with {self.method}, which reads "
                             f"{'graphs' if graph else 'rows'}.")  # fmt: skip
        if graph and len(self.sources) > 1:
            raise InputError(f"sources names {len(self.sources)} files; {self.method} takes one graph.")

    def to_record(self) -> dict[str, Any]:
        """What the queue keeps."""
        kept = self.model_dump(exclude={"method", "priority", "key"}, exclude_none=True)
        kept["parameters"] = self.parameters
        return kept


def describe_methods() -> dict[str, Any]:
    """Every method with its parameters, for clients."""
    return {
        name: {
            "summary": (method.__doc__ or "").strip().split("\n")[0],
            "reads": method.opens,
            "parameters": {
                option.name: {
                    "values": "|".join(option.constraint.choices) or option.constraint.type,
                    "default": option.default,
                    "help": option.constraint.help,
                }
                for option in method.options()
                if option.name not in NOT_A_JOBS
            },
        }
        for name, method in METHODS.items()
    }
