"""A hunt for the smallest world in which a claim about a method fails."""
