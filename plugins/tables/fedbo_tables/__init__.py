"""Replacing a costly objective by a table of evaluations and a surface through them."""
