"""The analysis of runs: results, summaries, curves, statistics and estimates."""
