"""Statistics over many runs: mean ranks, paired tests, costs to reach a level, and performance profiles, as tables."""
