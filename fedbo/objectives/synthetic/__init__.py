"""Synthetic problems: published functions, draws of a Gaussian process, and functions with constraints."""
