"""Sums of float64 parts whose bits do not depend on their order."""
