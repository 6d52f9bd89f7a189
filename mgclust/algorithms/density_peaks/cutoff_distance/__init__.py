"""The cut-off distance dc.

`cutoff` finds dc from the fraction of pairs within dc: exactly by `pair_quantile`, or approximately by `random_pairs`.
If the fraction is automatic, `fraction_choice` chooses it on a sample of rows (`sample_passes`), and `separation` finds
clusters separated by low density, from the `spanning_tree` of their peaks.
"""
