"""The progress of a run in another process, in the terminal or in a browser."""
