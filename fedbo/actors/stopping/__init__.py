"""Early stopping: which evaluations continue at a rung of the fidelity axis, which stop, and which pause and resume later."""
