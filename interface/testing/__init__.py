"""Contracts of algorithms and objectives, algorithms in lock-step, and random whole studies with laws and promises of theirs."""
