"""A model of a cluster: workers, their queue of evaluations, and the events of workers."""
