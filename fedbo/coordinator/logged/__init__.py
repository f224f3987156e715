"""The event log of a run: its kinds of lines, one record for each, and their table."""
