"""The request of a job, which is checked completely when it is submitted."""

from __future__ import annotations

import contextlib
import itertools
import json
import math
from collections.abc import Iterable
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, model_validator

from mgclust.algorithms import declarations, presentation_of
from mgclust.algorithms.declaration import Declaration
from mgclust.base.errors import InputError
from mgclust.data.formats import reject_name
from mgclust.data.options import GRAPH_OPTIONS, ROW_OPTIONS
from mgclust.params import Option, check_parameters
from mgclust.service.web.patterns import NAME, TAG

__all__ = [
    "MAX_RECORD_BYTES",
    "Changes",
    "JobSource",
    "Resources",
    "Submission",
    "SweepSubmission",
    "describe_methods",
    "score_names",
]

MAX_RECORD_BYTES = 256 << 10  # size of a request in the queue
MAX_NAMES, MAX_PARAMETERS = 64, 256
MAX_SWEEP = 100  # jobs of a sweep
JobName = Annotated[str, Field(max_length=100, pattern=NAME)]
Tags = Annotated[list[Annotated[str, Field(pattern=TAG)]], Field(max_length=8)]


def _at_most(given: Any, most: int) -> Any:
    if isinstance(given, dict) and len(given) > most:
        raise ValueError(f"{len(given)} names should be at most {most}")
    return given


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid")

    @model_validator(mode="before")
    @classmethod
    def _limit_names(cls, given: Any) -> Any:
        """Reject many unknown names at once, because pydantic would make an error for each."""
        return _at_most(given, MAX_NAMES)


class JobSource(_Strict):
    """A file to read: an upload, a path below a folder that the service may read, or the labels of a job."""

    upload: Annotated[str, Field(max_length=64)] | None = None
    path: Annotated[str, Field(max_length=4096)] | None = None
    job: Annotated[str, Field(max_length=64)] | None = Field(None, description="A job whose labels to read.")
    name: Annotated[str, Field(max_length=255, pattern=NAME)] | None = Field(
        None, description="Name for display: one line of visible characters."
    )

    @model_validator(mode="after")
    def _exactly_one(self) -> Self:
        if sum(each is not None for each in (self.upload, self.path, self.job)) != 1:
            raise ValueError("a source should be either {'upload': id}, {'path': path} or {'job': id}")
        return self


class Resources(_Strict):
    """Number of GPUs or workers, and limits. By default, one GPU of the machine, or all workers of a cluster."""

    gpus: Annotated[int | None, Field(ge=1, le=1024, description="GPUs to use.")] = None
    workers: Annotated[int | None, Field(ge=1, le=1024, description="Processes on CPUs to use instead of GPUs.")] = None
    max_seconds: Annotated[
        float | None, Field(gt=0, le=1e9, description="Time limit of an attempt in seconds, not counting suspensions.")
    ] = None
    memory: Annotated[
        int | None,
        Field(ge=1 << 20, le=1 << 60, description="Memory limit of all processes of the job on the machine, in bytes."),
    ] = None

    @model_validator(mode="after")
    def _exactly_one(self) -> Self:
        if self.gpus and self.workers:
            raise ValueError("resources should be either gpus or workers")
        return self


class Options(_Strict):
    """Options for reading the files, as on the command line."""

    columns: Annotated[str, Field(max_length=4096)] | None = None
    delimiter: Annotated[str, Field(max_length=1)] | None = None
    standardize: Literal["zscore", "zscore_sample"] | None = None
    detrend: bool | None = None
    constant: Literal["drop", "refuse"] | None = None
    n_nodes: Annotated[int, Field(ge=1, lt=2**31)] | None = None
    source: Annotated[str, Field(max_length=256)] | None = None
    target: Annotated[str, Field(max_length=256)] | None = None
    weight: Annotated[str, Field(max_length=256)] | None = None
    header: bool | None = None
    index: bool | None = None
    dummy_volumes: Annotated[int, Field(ge=0, lt=2**31)] | None = None
    smoothing_fwhm: Annotated[float, Field(gt=0, le=1e6)] | None = None
    low_pass: Annotated[float, Field(gt=0, le=1e6)] | None = None
    high_pass: Annotated[float, Field(gt=0, le=1e6)] | None = None
    t_r: Annotated[float, Field(gt=0, le=1e6)] | None = None
    confound_names: Annotated[str, Field(max_length=4096)] | None = None
    fd_threshold: Annotated[float, Field(gt=0, le=1e6)] | None = None


class Submission(_Strict):
    """The request of a job."""

    method: Annotated[str, Field(max_length=64)]
    sources: Annotated[list[JobSource], Field(min_length=1, max_length=1000)]
    parameters: Annotated[
        dict[Annotated[str, Field(max_length=64)], Any],
        BeforeValidator(lambda given: _at_most(given, MAX_PARAMETERS)),
    ] = {}
    options: Options = Field(default_factory=Options)  # a default would be copied by pydantic, which takes longer
    mask: JobSource | None = None
    confounds: Annotated[
        list[JobSource] | None, Field(min_length=1, max_length=1000, description="Table of confounds of each source.")
    ] = None
    surfaces: Annotated[
        list[JobSource] | None,
        Field(min_length=1, max_length=100, description="Surfaces of a CIFTI file: a .surf.gii file per hemisphere."),
    ] = None
    atlas: Annotated[
        list[JobSource] | None,
        Field(
            min_length=1,
            max_length=100,
            description="Files of labels with which the clusters are compared: a volume, a .dlabel.nii file, or "
            ".label.gii files; then the table of the names of the labels (.tsv), if there is one.",
        ),
    ] = None
    resources: Resources = Field(default_factory=Resources)
    report: bool = True
    results_to: Annotated[str, Field(max_length=512)] | None = Field(
        None, description="Copy the files of the result to this place of a store, store:NAME/PREFIX."
    )
    priority: Annotated[int, Field(ge=-100, le=100)] = 0
    name: JobName | None = Field(None, description="Name of the job in lists. An empty text means no name.")
    tags: Tags = Field(default_factory=list, description="Tags of the job in lists, without spaces, commas and #.")
    key: Annotated[str, Field(min_length=1, max_length=200)] | None = Field(
        None,
        description="Chosen by the client: a request with the same key and parameters does not create a second job.",
    )

    def check(self) -> None:
        """Check the method, its parameters, and the options for reading.

        Raises
        ------
        InputError
        """
        known = declarations()
        method = known.get(self.method)
        if method is None:
            raise InputError(f"method={self.method!r} should be one of {', '.join(map(repr, known))}.")
        constraints = {option.name: option.constraint for option in method.options()}
        for name, value in self.parameters.items():
            if name not in constraints:
                raise InputError(f"{name!r} is not a parameter of {self.method}; use some of {', '.join(constraints)}.")
            kinds = constraints[name].type.split("|")
            of_file = bool({"FILE", "file"} & set(kinds))
            if of_file and (isinstance(value, dict) or (isinstance(value, str) and value not in kinds)):
                if name not in self.files():
                    raise InputError(
                        f"{name}={str(value)[:80]!r} should name a file as {{'upload': id}}, {{'path': path}} or, for "
                        "the labels of a job, {'job': id}."
                    )
            elif isinstance(value, list) and "," in constraints[name].type:  # several numbers, as JSON writes them
                if not all(isinstance(each, (int, float)) for each in value):
                    raise constraints[name].refuse(name, value)
            elif not isinstance(value, (str, int, float, bool, type(None))):
                raise InputError(f"{name} should be a number, a string or a boolean; arrays are not accepted here.")
        plain = {name: value for name, value in self.parameters.items() if name not in self.files()}
        check_parameters({name: constraints[name] for name in plain}, plain)
        for option in method.options():  # a value that has no default
            if option.default is None and not option.constraint.optional and not self.parameters.get(option.name):
                raise InputError(
                    f"{option.name} is missing, but {self.method} needs it; give a file, or a job with labels."
                )
        graph = method.opens == "graph"
        given = {name for name, value in self.options if value is not None}
        wrong = given - {option.name for option in (GRAPH_OPTIONS if graph else ROW_OPTIONS)}
        wrong |= {name for name in ("mask", "confounds", "surfaces", "atlas") if graph and getattr(self, name)}
        if wrong:
            raise InputError(f"{', '.join(sorted(wrong))} does not apply to {self.method}, which reads "
                             f"{'graphs' if graph else 'rows'}.")  # fmt: skip
        for source in self.sources:
            reject_name(source.name or source.path or "", "graph" if graph else "rows")
        if graph and len(self.sources) > 1:
            raise InputError(
                f"sources names {len(self.sources)} files, but {self.method} takes one graph; name one file."
            )

    def files(self) -> dict[str, JobSource]:
        """Return the parameters whose values are in files."""
        found = {}
        for name, value in self.parameters.items():
            if isinstance(value, dict):
                with contextlib.suppress(ValidationError):
                    found[name] = JobSource.model_validate(value)
        return found

    def to_record(self) -> dict[str, Any]:
        """Make the record that the queue stores.

        Raises
        ------
        InputError
            The record is too long.
        """
        kept = self.model_dump(exclude={"method", "priority", "key", "name", "tags"}, exclude_none=True)
        kept["parameters"] = self.parameters | {
            name: source.model_dump(exclude_none=True) for name, source in self.files().items()
        }
        if (size := len(json.dumps(kept))) > MAX_RECORD_BYTES:
            raise InputError(
                f"the job takes {size} bytes in the queue, more than {MAX_RECORD_BYTES}; name fewer "
                "sources, or shorter names."
            )
        return kept


class SweepSubmission(Submission):
    """The request of a sweep: a job for each combination of values."""

    vary: Annotated[
        dict[Annotated[str, Field(max_length=64)], Annotated[list[Any], Field(min_length=1, max_length=MAX_SWEEP)]],
        Field(min_length=1, max_length=8),
    ] = Field(
        description="Values of parameters. The sweep has a job for each combination of one value per parameter, at "
        f"most {MAX_SWEEP} jobs."
    )

    def combinations(self) -> list[Submission]:
        """Return the request of each job, in the order of the values; the last parameter changes first.

        Raises
        ------
        InputError
            There are too many combinations, or a parameter is also given a single value.
        """
        if both := sorted(set(self.vary) & set(self.parameters)):
            raise InputError(f"{', '.join(both)} has a single value and values to vary; give one of the two.")
        if (count := math.prod(map(len, self.vary.values()))) > MAX_SWEEP:
            raise InputError(
                f"vary gives {count} combinations, but a sweep has at most {MAX_SWEEP}; give fewer values."
            )
        for name, values in self.vary.items():
            if len({json.dumps(value, sort_keys=True) for value in values}) < len(values):
                raise InputError(f"vary names a value of {name} twice; give each value once.")
        plain = {name: getattr(self, name) for name in Submission.model_fields}
        return [
            Submission.model_construct(
                **plain | {"parameters": self.parameters | dict(zip(self.vary, values, strict=True))}
            )
            for values in itertools.product(*self.vary.values())
        ]


class Changes(_Strict):
    """New name and tags of a job; what is left out stays."""

    name: JobName | None = Field(None, description="An empty name removes the name.")
    tags: Tags | None = None


def describe_methods() -> dict[str, Any]:
    """Describe the methods with their parameters, options and resources; the page makes its form from this."""
    return {name: _describe_method(name, method) for name, method in declarations().items()}


def score_names(presentation: Any) -> dict[str, str | None]:
    """Return the name of each score of a method; None: the score is not shown."""
    return {score: words and words.name for score, words in presentation.all_scores().items()}


def _describe_method(name: str, method: type[Declaration]) -> dict[str, Any]:
    presentation = presentation_of(name)
    scores = presentation.all_scores()
    return {
        "title": presentation.title_of(name),
        "scores": score_names(presentation),
        "better": {score: words.better for score, words in scores.items() if words is not None and words.better},
        "captions": presentation.all_captions(),  # in the order in which pictures are shown
        "summary": method.summary(),
        "reads": method.opens,
        "centers": {
            parameter: Option(parameter, None, constraint).describe()
            for parameter, constraint in method.center_parameters.items()
        },
        "decision_graph": [axis._asdict() for axis in presentation.decision_graph],
        "parameters": _describe(method.options()),
        "options": _describe(
            option
            for option in (GRAPH_OPTIONS if method.opens == "graph" else ROW_OPTIONS)
            if option.name in Options.model_fields
        ),
        "resources": {
            name: {
                "values": "number" if name == "max_seconds" else "integer",
                "choices": [],
                "default": None,
                "help": field.description,
            }
            for name, field in Resources.model_fields.items()
        },
    }


def _describe(options: Iterable[Option]) -> dict[str, Any]:
    return {option.name: option.describe() for option in options}
