"""Parts that several methods share.

- `preparation` prepares rows for the kernels, and chooses the arithmetic of their distances;
- `pair_matrix` is for a matrix of all pairs, whose rows are divided among the ranks;
- `nearest_rows` finds the nearest rows of each row, and `nearest_centers` the nearest centre;
- `weights` checks weights of rows;
- `row_hashes` computes hashes, by which equal rows are found;
- `methods_text` writes a paragraph for papers;
- `scikit_learn` gives types to the classes of scikit-learn from which methods are derived.
"""
