"""Results as tables of text for the terminal, and as plain data for JSON."""
