"""Contracts of algorithms and objectives, algorithms in lock-step, and random whole studies with their laws and promises."""
