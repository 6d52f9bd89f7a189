"""Masks whose elements are all true, or some of them, against NumPy."""

from __future__ import annotations

import numpy as np
import pytest

from mgclust.kernels.masks import all_true, any_true


@pytest.mark.parametrize("mask", [[], [True], [False], [True, False], [[True, True], [True, True]], [[], []]])
def test_masks(mask):
    array = np.array(mask, bool)
    for each in (array, array[::2], array.T):
        assert all_true(each) is bool(each.all())
        assert any_true(each) is bool(each.any())


@pytest.mark.parametrize("size", [1, 31, 32, 33, 4097])
def test_one_that_differs(size):
    for at in {0, size // 2, size - 1}:
        mask = np.zeros(size, bool)
        mask[at] = True
        assert any_true(mask) and not all_true(~mask)
