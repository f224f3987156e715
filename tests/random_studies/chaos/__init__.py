"""Chaos beyond a study's own faults: knobs, calls of Ray that fail, hosts that are killed, and situations to be reached."""
