"""Tuning a user's own function: `fedbo.tune`, the ask/tell agent, its log and message folder, search spaces."""
