"""Tuning of a user's function: `fedbo.tune`, the ask/tell agent, its log and message folder, and search spaces."""
