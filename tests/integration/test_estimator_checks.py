"""scikit-learn's own checks, on the device at hand."""

from __future__ import annotations

import pytest
from sklearn.utils.estimator_checks import parametrize_with_checks

from mgclust import DensityPeaks


@parametrize_with_checks(
    [DensityPeaks(device="cpu", client=None), DensityPeaks(n_clusters=3, device="cpu", client=None)]
)
def test_on_the_cpu(estimator, check):
    check(estimator)


@pytest.mark.gpu
@parametrize_with_checks([DensityPeaks(device="cuda", client=None)])
def test_on_a_gpu(estimator, check):
    check(estimator)
