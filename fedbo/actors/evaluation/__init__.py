"""Evaluation of an objective: with retries, in a separate process, overlapping, or as a Ray task."""
