"""Results as tables that other programs read, and the configurations in them."""
