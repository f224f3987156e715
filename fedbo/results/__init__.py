"""Numbers from a finished run: its tables, curves, summaries, regret, and the privacy spent."""
