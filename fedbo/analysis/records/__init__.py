"""Results as tables for other programs, and the configurations in them."""
