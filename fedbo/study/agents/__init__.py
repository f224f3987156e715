"""What the agents of a study start with, and their budgets where these are unequal."""
