"""Densities with standard errors, and the test for significant peaks.

`adaptive_density` estimates each density from the k nearest rows. With ``k="adaptive"``, k is the size of the largest
neighbourhood in which the density stays constant; this needs the `intrinsic_dimension`. `significance` tests each peak
against its highest saddle.
"""
