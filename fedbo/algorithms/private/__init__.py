"""Variants of core methods whose messages are differentially private."""
