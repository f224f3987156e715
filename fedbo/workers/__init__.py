"""Evaluations that overlap, or queue for the workers of a simulated cluster, in virtual time."""
