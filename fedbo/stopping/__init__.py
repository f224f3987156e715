"""Early stopping: evaluations that end at a rung, or pause there."""
