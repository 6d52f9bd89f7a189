"""A method that no file of mgclust names: rows to the left and to the right of a threshold."""

# ruff: noqa: RUF012
from __future__ import annotations

from dataclasses import replace

import numpy as np

from mgclust.algorithms import METHODS, Clusterer
from mgclust.algorithms.presentation import Fact, Presentation, Score, Table
from mgclust.engine.memory import Estimate
from mgclust.engine.spmd import RunSpec
from mgclust.params import Integer, Real
from mgclust.results.result import Result


class ToyPresentation(Presentation):
    title = "Toy sides"
    scores = {"balance": Score("balance of the sides", ".2f")}
    facts = {"side": Fact("side of row 0", {"left": "to the left, where it began"})}
    captions = {"sides": "How many rows lie on each side."}
    progress = {"moved": "{:,} rows moved"}

    def draw(self, result, sample):
        from mgclust.plots.style import own_axes

        ax = own_axes(None, (3, 2))
        ax.bar(["left", "right"], result.cluster_sizes)
        return {"sides": ax, **super().draw(result, sample)}

    def tables(self, result):
        return [*super().tables(result), Table("Sides <of it>", ["side"], [["left & far"], ["right"]])]

    def summary(self, result):
        return [*super().summary(result), ("sides", f"balance {result.scores['balance']:.2f}")]


def estimate(shape, itemsize, size, room):
    return Estimate({"rows": shape[0]})


def split(context, *, threshold):
    with context.stage("split"):
        labels = np.concatenate([np.asarray(block.x[:, 0] > threshold) for block in context.chunks()])
        context.say(moved=1234)
    return labels.astype(np.int32)


class Toy(Clusterer):
    """Sides of a threshold, for tests."""

    method = "toy"
    presentation = ToyPresentation()
    center_parameters = {"first": Integer(at_least=0, help="The first row of the other side.")}
    constraints = {"threshold": Real(help="Where the sides meet.")}

    def __init__(
        self, threshold=0.0, device="auto", client=None, n_workers=None, workers=None, resources=None, retries=0,
        dtype="float32", memory_limit=None, random_state=None, verbose=False,
    ):  # fmt: skip
        self.threshold = threshold
        self.device, self.client, self.n_workers = device, client, n_workers
        self.workers, self.resources, self.retries = workers, resources, retries
        self.dtype, self.memory_limit = dtype, memory_limit
        self.random_state, self.verbose = random_state, verbose

    @classmethod
    def from_result(cls, result):
        model = cls(result.parameters["threshold"])
        model.result_ = result
        return model

    def select_centers(self, first=0):
        """The rows before this one on one side, all others on the other one."""
        self.labels_ = (np.arange(len(self.result_.labels)) >= first).astype(np.int32)
        self.n_clusters_, self.cluster_centers_indices_ = 2, np.array([0, first])
        self.result_ = replace(self.result_, labels=self.labels_)
        return self

    def _run_spec(self, parameters, inputs):
        return RunSpec(split, {"threshold": parameters["threshold"]}, estimate, parameters["dtype"])

    def _publish(self, outcome, frame, inputs):
        self.labels_ = outcome.value
        scores = {"n_clusters": 2, "balance": float(self.labels_.mean())}
        return Result(labels=self.labels_, scores=scores, diagnostics={"side": "left"}, **frame)


def register():
    METHODS["toy"] = Toy
