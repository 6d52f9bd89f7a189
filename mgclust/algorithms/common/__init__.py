"""Parts that several methods share.

`preparation` makes rows ready for the kernels and finds the arithmetic that their distances can afford; `pair_matrix`
is for a matrix of all pairs, whose rows the ranks own; `weights` is for weights of rows; `nearest_centers` finds the
nearest of some centres for each row; `row_hashes` tells which rows are equal; `methods_text`
writes a paragraph for papers; `scikit_learn` gives types to the classes of scikit-learn that methods are derived from.
"""
