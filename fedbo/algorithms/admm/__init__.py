"""Coupled problems: agents share a resource and agree by the alternating direction method of multipliers."""
