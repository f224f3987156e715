"""Objectives made from other objectives: their mean, all agents as one, with noise, shifted, scaled."""
