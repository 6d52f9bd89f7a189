"""The bins of the histograms from which the exact quantile of all distances follows."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from mgclust import DensityPeaks
from mgclust.algorithms.density_peaks.cutoff_distance import pair_quantile
from mgclust.algorithms.density_peaks.passes.all_pairs import AllPairs

LARGEST = int(np.array(np.inf, "float64").view("int64"))


@given(st.integers(0, LARGEST - 1), st.integers(1, LARGEST), st.sampled_from([1 << k for k in range(21)]))
def test_bins_cover_the_bracket_in_whole_blocks_and_little_beyond_it(first, width, most):
    """What lies beyond is counted pair by pair: with a gap below it, as between clusters, that may be most pairs."""
    stop = min(first + width, LARGEST)
    shift = pair_quantile._shift(first, stop, most)
    bins = pair_quantile._bins(first, stop, shift)
    block = pair_quantile._block_of(bins)
    assert bins % block == 0
    assert bins // block <= pair_quantile.BINS // pair_quantile.BLOCK
    needed = -(-(stop - first) >> shift)
    assert needed <= bins < needed + max(1, needed / pair_quantile.FEWEST_BLOCKS + 1)
    assert (stop - first) <= bins << shift


def test_full_passes_keep_to_the_bracket_of_the_sample(monkeypatch):
    """Two values of pairs within clusters and between them, a gap, and a quantile at its edge."""
    brackets, whole = [], []
    sample_rows, pair_histogram = pair_quantile.sample_rows, AllPairs.pair_histogram

    def sampled(*arguments, **options):
        sample = sample_rows(*arguments, **options)
        brackets.append((sample.low, sample.high))
        return sample

    def counted(self, norm, first, shift, bins):
        whole.append(tuple(pair_quantile._value(at, np.dtype("float32")) for at in (first, first + (bins << shift))))
        return pair_histogram(self, norm, first, shift, bins)

    monkeypatch.setattr("mgclust.algorithms.density_peaks.passes.all_pairs.sample_rows", sampled)
    monkeypatch.setattr(AllPairs, "pair_histogram", counted)
    rng = np.random.default_rng(0)
    X = (rng.normal(size=(50, 200))[rng.integers(0, 50, 6000)] + rng.normal(size=(6000, 200))).astype("float32")
    DensityPeaks(n_clusters=50, device="cpu", client=None, algorithm="brute").fit(X)
    (low, high), (first, stop) = brackets[0], whole[0]
    assert first == low
    assert high <= stop < high + 0.1 * (high - low)
