"""Objectives: federations of private black boxes, their data sets, and the box of their parameters."""
