"""Models of the simulated environment: durations, latency, availability, network and faults."""
