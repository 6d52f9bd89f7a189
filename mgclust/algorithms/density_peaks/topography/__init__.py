"""Densities with errors, and the peaks that are significant.

`adaptive_density` takes as many nearest rows as the density stays constant (`intrinsic_dimension`), and `significance`
tests each peak against its highest saddle.
"""
