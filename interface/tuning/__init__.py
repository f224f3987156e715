"""Tuning a user's own function: `fedbo.tune`, the ask/tell agent, its log and its message folder, declared spaces."""
