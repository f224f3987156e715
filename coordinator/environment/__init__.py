"""How the simulated environment behaves: durations, latency, availability, network and faults, as models."""
