"""A prior that agents learn from messages about earlier tasks, and what they decide by it."""
