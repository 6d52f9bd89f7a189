"""scikit-learn's own checks, on the device at hand."""

from __future__ import annotations

import pytest
from sklearn.utils.estimator_checks import parametrize_with_checks

from mgclust import AdaptiveAffinityPropagation, AffinityPropagation, DensityPeaks


def known_failures(estimator) -> dict[str, str]:
    """scikit-learn's check sets preference=-100 and max_iter=100, and damping stays at 0.5."""
    if type(estimator) is AffinityPropagation and estimator.dtype == "float32":
        return {"check_clustering": "oscillates: float32 settles after 123 iterations, float64 after 87"}
    return {}


@parametrize_with_checks(
    [
        DensityPeaks(device="cpu", client=None),
        DensityPeaks(n_clusters=3, device="cpu", client=None),
        AffinityPropagation(device="cpu", client=None),
        AffinityPropagation(dtype="float64", device="cpu", client=None),
        AdaptiveAffinityPropagation(device="cpu", client=None),
    ],
    expected_failed_checks=known_failures,
)
def test_on_the_cpu(estimator, check):
    check(estimator)


@pytest.mark.gpu
@parametrize_with_checks(
    [
        DensityPeaks(device="cuda", client=None),
        AffinityPropagation(dtype="float64", device="cuda", client=None),
        AdaptiveAffinityPropagation(device="cuda", client=None),
    ]
)
def test_on_a_gpu(estimator, check):
    check(estimator)
