"""Templates of what `fedbo new` writes."""
