"""Affinity propagation on the CPU: similarities, their noise, and one iteration of messages."""

from mgclust.kernels.affinity_propagation.cpu_messages import pass_columns, pass_rows
from mgclust.kernels.affinity_propagation.similarities.cpu_similarities import jitter, similarities

__all__ = ["jitter", "pass_columns", "pass_rows", "similarities"]
