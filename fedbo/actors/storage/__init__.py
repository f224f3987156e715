"""The files of an agent: the run's folder, checkpoints and their encoding, rows, and atomic writes."""
