"""The agents of a study: their initial points and their histories."""
