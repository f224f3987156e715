"""A cluster as a model: workers, the queue of evaluations for them, and what befalls workers."""
