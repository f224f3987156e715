"""Guides: agents send where their optima may be, and search there."""
