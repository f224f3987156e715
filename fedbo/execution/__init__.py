"""Running, resuming, monitoring and replaying a study: jobs, worker processes, the run directory, the cluster."""
