"""Figures of one kind each: sweeps, optima, disruptions, and how a search went."""
