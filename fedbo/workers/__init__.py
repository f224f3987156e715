"""Several evaluations of an agent at once: on Ray, in virtual time, and on the workers of a simulated cluster."""
