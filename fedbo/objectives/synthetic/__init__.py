"""Synthetic problems: draws of a Gaussian process, and functions with constraints."""
