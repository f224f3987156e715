"""Guides: the coordinator sends an average of the agents' optima, and the agents search around it."""
