"""Code that several methods share.

- `preparation` prepares rows for the kernels, and chooses the arithmetic of their distances;
- `pair_matrix` has functions for a matrix of all pairs, whose rows are divided among the ranks;
- `nearest_rows` finds the nearest rows of each row, and `nearest_centers` the nearest centre;
- `weights` checks weights of rows;
- `row_hashes` computes hashes of rows, to find equal rows;
- `methods_text` writes a paragraph for papers;
- `scikit_learn` adds types to the classes of scikit-learn from which methods are derived.
"""
