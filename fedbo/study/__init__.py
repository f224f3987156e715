"""The study file: its tables, defaults, checks, limits and sweeps."""
