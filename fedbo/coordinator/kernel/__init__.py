"""The kernel: the core of a run with its parts, its events and state, exchange modes, and the loops that drive it."""
