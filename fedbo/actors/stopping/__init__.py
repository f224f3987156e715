"""Early stopping: which evaluations go on at a rung of the fidelity axis, which stop, and which pause and go on later."""
