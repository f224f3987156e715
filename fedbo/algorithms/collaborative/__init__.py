"""Sharing of points: agents send their best points, or all observations."""
