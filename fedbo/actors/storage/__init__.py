"""What an agent keeps on disk: the run's folder, checkpoints and their encoding, rows, atomic writes."""
