"""The states of a job."""

from typing import Literal, get_args

__all__ = ["ENDED", "STATES", "State"]

State = Literal["PENDING", "RUNNING", "SUCCEEDED", "FAILED", "CANCELLED"]
STATES = get_args(State)
ENDED = ("SUCCEEDED", "FAILED", "CANCELLED")
