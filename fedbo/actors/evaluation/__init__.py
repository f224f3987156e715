"""Evaluating an objective: once or again, in a process of its own, overlapping, or as a task on Ray."""
