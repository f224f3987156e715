"""What a study may say, and whether one is right: its tables, defaults, checks, limits and sweeps."""
