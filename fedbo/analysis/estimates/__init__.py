"""Estimates made before a study runs: its cost, and the privacy that it will spend."""
