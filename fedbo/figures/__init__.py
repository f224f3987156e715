"""Figures, the report page, and tables for a terminal."""
