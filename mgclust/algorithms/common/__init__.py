"""What several methods share: rows made ready, quantiles of all distances, near-linear figures, equal rows."""
