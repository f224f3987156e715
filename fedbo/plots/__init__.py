"""Results as figures, drawn with matplotlib."""
