"""Near-linear figures in one to three features: a tree of boxes (`box_tree`), Gaussian sums on a grid."""
