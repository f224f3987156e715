"""Results as text tables for the terminal, and as plain data for JSON."""
