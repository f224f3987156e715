"""Objectives made from other objectives: their mean, and all agents as one."""
